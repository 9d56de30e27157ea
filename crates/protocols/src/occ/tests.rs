use serried_model::Key;

use super::*;
use crate::frameworks::shard::bench::{Bench, last, ready, shot, stamp, txn};
use crate::frameworks::shard::{Event, Refusal};

type Leader = Bench<Validation<Locks>>;

fn refused(us: u64, key: &str) -> Vec<Event> {
    let reason = Refusal::Conflict { keys: vec![Key::from(key)], after_us: 0 };
    vec![Event::Refused(txn(us), reason)]
}

/// One that was read by a transaction of this time before its last shot.
fn with_reader(us: u64, keys: &[&str]) -> Leader {
    let mut leader = Leader::new();
    leader.commit(5, &[], keys);
    assert_eq!(leader.execute(&shot(us, 1, keys, &[])), [Event::Released(txn(us), 1)]);
    leader
}

#[test]
fn a_read_is_answered_at_once_and_holds_if_nothing_has_changed() {
    let mut leader = with_reader(20, &["x"]);
    assert_eq!(leader.found(20, &["x"]), Some(vec![5]));
    assert_eq!(leader.execute(&last(20, &[], &["y"])), ready(20));
    assert_eq!(leader.prepare(20), Validity { from: stamp(20), until: None });
}

#[test]
fn a_read_is_refused_that_was_overwritten_since() {
    let mut leader = with_reader(20, &["x"]);
    leader.commit(10, &[], &["x"]);
    assert_eq!(leader.execute(&last(20, &[], &["y"])), refused(20, "x"));
    leader.commit(30, &[], &["y"]);
}

#[test]
fn what_is_read_twice_is_refused_unless_it_is_the_same() {
    let mut leader = with_reader(20, &["x"]);
    leader.commit(10, &[], &["x"]);
    assert_eq!(leader.execute(&shot(20, 2, &["x"], &[])), refused(20, "x"));
}

#[test]
fn a_write_that_is_validated_keeps_readers_and_writers_off_until_it_ends() {
    let mut leader = with_reader(20, &["x"]);
    assert_eq!(leader.execute(&last(10, &[], &["x"])), ready(10));
    leader.prepare(10);
    assert_eq!(leader.execute(&last(20, &[], &[])), refused(20, "x"));
    assert_eq!(leader.execute(&last(30, &[], &["x"])), refused(30, "x"));
    assert_eq!(leader.execute(&shot(40, 1, &["x"], &[])), [Event::Released(txn(40), 1)]);
    assert_eq!(leader.end(10, None), []);
    assert_eq!(leader.execute(&last(40, &[], &["x"])), ready(40));
}

#[test]
fn a_read_that_is_validated_keeps_writers_off_and_shares_with_readers() {
    let mut leader = with_reader(20, &["x"]);
    assert_eq!(leader.execute(&last(20, &[], &[])), ready(20));
    leader.prepare(20);
    assert_eq!(leader.execute(&last(30, &["x"], &[])), ready(30));
    assert_eq!(leader.execute(&last(40, &[], &["x"])), refused(40, "x"));
    leader.prepare(30);
    leader.end(20, Some(stamp(20)));
    assert_eq!(leader.execute(&last(50, &[], &["x"])), refused(50, "x"));
    leader.end(30, Some(stamp(30)));
    leader.commit(60, &[], &["x"]);
}

#[test]
fn a_transaction_that_is_given_up_locks_nothing() {
    let mut leader = with_reader(20, &["x"]);
    assert_eq!(leader.discard(20), []);
    leader.commit(10, &["x"], &["x"]);
}

#[test]
fn a_part_holds_after_all_that_was_read_and_written_whatever_clocks_say() {
    let mut leader = Leader::new();
    leader.commit(100, &[], &["x"]);
    let at = leader.commit(50, &["x"], &["y"]);
    assert_eq!(at, stamp(100).next_of(txn(50)));
    // It was read then.
    assert_eq!(leader.commit(40, &[], &["x"]), at.next_of(txn(40)));
}

#[test]
fn another_leader_has_the_locks_of_those_that_are_ready() {
    let mut leader = with_reader(20, &["x"]);
    leader.execute(&last(20, &[], &["y"]));
    leader.prepare(20);
    leader.execute(&shot(30, 1, &["y"], &[]));
    assert_eq!(leader.fail_over(), [Event::Settled(txn(20))]);
    assert_eq!(leader.execute(&last(40, &["x"], &[])), ready(40));
    assert_eq!(leader.execute(&last(50, &[], &["x"])), refused(50, "x"));
    assert_eq!(leader.execute(&last(60, &["y"], &[])), refused(60, "y"));
    assert_eq!(leader.found(20, &["x"]), Some(vec![5]));
    assert_eq!(leader.found(30, &["y"]), None);
    leader.end(20, Some(stamp(20)));
    leader.commit(70, &["y"], &["y"]);
}

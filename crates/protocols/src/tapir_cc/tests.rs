use serried_model::{Key, NodeId};

use super::*;
use crate::frameworks::shard::bench::{Bench, last, ready, shot, stamp, txn};
use crate::frameworks::shard::{Event, Refusal, Shot};

type Leader = Bench<Validation<Timestamps>>;

fn refused(us: u64, key: &str, after_us: u64) -> Vec<Event> {
    vec![Event::Refused(txn(us), Refusal::Conflict { keys: vec![Key::from(key)], after_us })]
}

/// One at which these are ready to commit, by when they began, what they read and what they write.
fn with_ready(txns: &[(u64, &[&str], &[&str])]) -> Leader {
    let mut leader = Leader::new();
    for (us, reads, writes) in txns {
        assert_eq!(leader.execute(&last(*us, reads, writes)), ready(*us));
        assert_eq!(leader.prepare(*us), Validity::at(stamp(*us)));
    }
    leader
}

#[test]
fn a_read_holds_at_its_timestamp_if_its_version_is_the_newest_then() {
    let mut leader = Leader::new();
    leader.commit(10, &[], &["x"]);
    assert_eq!(leader.execute(&last(5, &["x"], &[])), refused(5, "x", 10));
    assert_eq!(leader.execute(&shot(20, 1, &["x"], &[])), [Event::Released(txn(20), 1)]);
    assert_eq!(leader.found(20, &["x"]), Some(vec![10]));
    leader.commit(15, &[], &["x"]);
    assert_eq!(leader.execute(&last(20, &[], &[])), refused(20, "x", 0));
}

#[test]
fn a_read_is_refused_only_if_a_prepared_write_comes_before_its_timestamp() {
    let mut leader = with_ready(&[(30, &[], &["x"])]);
    assert_eq!(leader.execute(&last(40, &["x"], &[])), refused(40, "x", 0));
    assert_eq!(leader.execute(&last(20, &["x"], &[])), ready(20));
    // What it has found is known, though it is not what is committed any more.
    leader.end(30, Some(stamp(30)));
    assert_eq!(leader.found(20, &["x"]), Some(vec![0]));
}

#[test]
fn a_write_is_later_than_what_is_committed_and_all_reads_of_the_key() {
    let mut leader = with_ready(&[(30, &["x"], &[])]);
    assert_eq!(leader.execute(&last(20, &[], &["x"])), refused(20, "x", 30));
    leader.end(30, Some(stamp(30)));
    assert_eq!(leader.execute(&last(20, &[], &["x"])), refused(20, "x", 30));
    leader.commit(40, &[], &["x"]);
    assert_eq!(leader.execute(&last(35, &[], &["x"])), refused(35, "x", 40));
}

#[test]
fn the_read_of_a_transaction_that_was_aborted_keeps_no_write_off() {
    let mut leader = with_ready(&[(30, &["x"], &["y"])]);
    leader.end(30, None);
    leader.commit(20, &[], &["x", "y"]);
}

#[test]
fn writes_that_are_ready_end_in_any_order_and_count_in_that_of_timestamps() {
    let mut leader = with_ready(&[(30, &[], &["x"]), (20, &[], &["x"])]);
    leader.end(30, Some(stamp(30)));
    leader.end(20, Some(stamp(20)));
    leader.execute(&last(40, &["x"], &["x"]));
    assert_eq!(leader.found(40, &["x"]), Some(vec![30]));
}

#[test]
fn what_a_transaction_reads_does_not_keep_itself_from_writing() {
    let mut leader = Leader::new();
    leader.commit(10, &["x"], &["x"]);
    leader.execute(&shot(20, 1, &["x"], &[]));
    assert_eq!(leader.execute(&last(20, &[], &["x"])), ready(20));
}

#[test]
fn another_leader_holds_to_the_reads_and_writes_of_those_that_are_ready() {
    let mut leader = with_ready(&[(20, &["x"], &["y"]), (30, &["x"], &[])]);
    assert_eq!(leader.fail_over(), [Event::Settled(txn(20)), Event::Settled(txn(30))]);
    assert_eq!(leader.execute(&last(25, &[], &["x"])), refused(25, "x", 30));
    assert_eq!(leader.execute(&last(40, &["y"], &[])), refused(40, "y", 0));
    assert_eq!(leader.found(20, &["x"]), Some(vec![0]));
    leader.commit(50, &[], &["x"]);
    assert_eq!(leader.found(20, &["x"]), None, "nobody knows any more");
    leader.end(20, Some(stamp(20)));
    leader.commit(60, &["y"], &[]);
}

#[test]
fn of_two_in_one_microsecond_the_lesser_may_not_overwrite_a_read() {
    let mut leader = Leader::new();
    let reader = Version { coordinator: NodeId(70_001), ..txn(10) };
    assert!(reader > txn(10));
    let told = leader.execute(&Shot { txn: reader, ..last(10, &["x"], &[]) });
    assert_eq!(told, [Event::Executed(reader), Event::Settled(reader)]);
    assert_eq!(leader.execute(&last(10, &[], &["x"])), refused(10, "x", 10));
}

#[test]
fn who_is_too_late_for_several_keys_is_told_of_the_latest() {
    let mut leader = with_ready(&[(30, &["x"], &[]), (40, &["y"], &[])]);
    for keys in [["x", "y"], ["y", "x"]] {
        let told = leader.execute(&last(20, &[], &keys));
        let keys = keys.map(Key::from).to_vec();
        let reason = Refusal::Conflict { keys, after_us: 40 };
        assert_eq!(told, [Event::Refused(txn(20), reason)]);
    }
}

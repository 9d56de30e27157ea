use serried_model::Key;

use super::*;
use crate::frameworks::shard::bench::{Bench, appends, last, ready, shot, stamp, txn};
use crate::frameworks::shard::{Event, Glance, Refusal, Validity};

type Leader = Bench<Versions>;

fn refused(us: u64, key: &str, after_us: u64) -> Vec<Event> {
    vec![Event::Refused(txn(us), Refusal::Conflict { keys: vec![Key::from(key)], after_us })]
}

fn executed(us: u64) -> Event {
    Event::Executed(txn(us))
}

fn settled(us: u64) -> Event {
    Event::Settled(txn(us))
}

/// One at which these have committed, by when they began, and have written.
fn with_committed(txns: &[(u64, &[&str])]) -> Leader {
    let mut leader = Leader::new();
    for (us, writes) in txns {
        leader.commit(*us, &[], writes);
    }
    leader
}

/// One at which `x` is read at 40 after it was written at 10 and is being written at 20; the last has a part.
fn with_reader_that_waits() -> Leader {
    let mut leader = with_committed(&[(10, &["x"])]);
    leader.execute(&last(20, &[], &["x"]));
    leader.prepare(20);
    assert_eq!(leader.execute(&last(40, &["x"], &["y"])), [executed(40)]);
    leader.prepare(40);
    leader
}

#[test]
fn a_read_finds_the_last_version_before_its_timestamp() {
    let mut leader = with_committed(&[(10, &["x"]), (30, &["x"]), (20, &["x"])]);
    for (us, found) in [(5, 0), (15, 10), (25, 20), (35, 30)] {
        assert_eq!(leader.execute(&last(us, &["x"], &[])), ready(us));
        assert_eq!(leader.found(us, &["x"]), Some(vec![found]));
        assert_eq!(leader.prepare(us), Validity::at(stamp(us)));
    }
}

#[test]
fn a_read_waits_until_its_version_is_committed() {
    let mut leader = with_reader_that_waits();
    assert_eq!(leader.execute(&shot(50, 1, &["x"], &[])), []);
    assert_eq!(leader.execute(&shot(50, 2, &["z"], &[])), [Event::Released(txn(50), 2)]);
    assert_eq!(leader.execute(&last(15, &["x"], &[])), ready(15), "it reads what was before");
    let released = [settled(40), Event::Released(txn(50), 1)];
    assert_eq!(leader.end(20, Some(stamp(20))), released);
    assert_eq!(leader.found(40, &["x"]), Some(vec![20]));
    assert_eq!(leader.execute(&last(50, &[], &["x"])), ready(50));
}

#[test]
fn a_read_of_what_is_aborted_is_done_again() {
    let mut leader = with_reader_that_waits();
    leader.execute(&last(15, &[], &["x"]));
    leader.prepare(15);
    assert_eq!(
        leader.end(20, None),
        [executed(40)],
        "what it has read now is not committed either"
    );
    assert_eq!(leader.end(15, Some(stamp(15))), [settled(40)]);
    assert_eq!(leader.found(40, &["x"]), Some(vec![15]));
}

#[test]
fn a_write_is_refused_if_the_version_before_it_was_read_later() {
    let mut leader = with_committed(&[(10, &["x"]), (30, &["x"])]);
    assert_eq!(leader.execute(&last(20, &["x"], &[])), ready(20));
    leader.prepare(20);
    assert_eq!(leader.execute(&last(15, &[], &["x"])), refused(15, "x", 20));
    leader.end(20, Some(stamp(20)));
    assert_eq!(leader.execute(&last(15, &[], &["x"])), refused(15, "x", 20));
    leader.commit(25, &[], &["x"]);
    leader.commit(5, &[], &["x"]);
}

#[test]
fn a_write_is_refused_if_what_another_is_about_to_write_was_read_later() {
    let mut leader = with_reader_that_waits();
    assert_eq!(leader.execute(&last(30, &[], &["x"])), refused(30, "x", 40));
    assert_eq!(leader.execute(&last(15, &[], &["x"])), ready(15));
}

#[test]
fn a_snapshot_keeps_earlier_writes_off() {
    let mut leader = with_committed(&[(10, &["x"]), (30, &["x"]), (5, &["y"])]);
    let found = |leader: &mut Leader, us, key| match leader.glance(us, key) {
        Glance::Found(found) => found.version.timestamp_us,
        other => panic!("{other:?}"),
    };
    assert_eq!((found(&mut leader, 25, "x"), found(&mut leader, 40, "x")), (10, 30));
    assert_eq!(leader.execute(&last(35, &[], &["x"])), refused(35, "x", 40));
    assert_eq!(leader.execute(&last(20, &[], &["x"])), refused(20, "x", 40), "though it is older");
    leader.commit(15, &[], &["y"]);
    leader.commit(45, &[], &["x"]);
    assert_eq!(found(&mut leader, 40, "x"), 30);
    leader.close(50);
    leader.commit(60, &[], &["x"]);
    assert_eq!(leader.glance(40, "x"), Glance::Refused { anew: false }, "that is not kept");
    assert_eq!(found(&mut leader, 55, "x"), 45);
}

#[test]
fn who_has_no_part_waits_until_its_version_is_committed() {
    let mut leader = with_reader_that_waits();
    assert_eq!(leader.glance(50, "x"), Glance::Waits(txn(20)));
    assert_eq!(leader.execute(&last(30, &[], &["x"])), refused(30, "x", 50));
    leader.end(20, None);
    assert!(matches!(leader.glance(50, "x"), Glance::Found(found) if found.version == txn(10)));
}

#[test]
fn the_read_of_a_transaction_that_was_aborted_keeps_no_write_off() {
    let mut leader = Leader::new();
    leader.execute(&last(40, &["x"], &[]));
    leader.prepare(40);
    leader.end(40, None);
    leader.execute(&shot(50, 1, &["x"], &[]));
    leader.discard(50);
    leader.commit(20, &[], &["x"]);
}

#[test]
fn what_a_transaction_reads_does_not_keep_itself_from_writing() {
    let mut leader = Leader::new();
    leader.commit(10, &["x"], &["x"]);
    leader.execute(&shot(20, 1, &["x"], &[]));
    assert_eq!(leader.execute(&last(20, &[], &["x"])), ready(20));
}

#[test]
fn who_needs_a_version_that_is_not_kept_is_refused() {
    let mut leader = with_committed(&[(10, &["x"]), (20, &["x"])]);
    leader.close(30);
    leader.commit(40, &[], &["x"]);
    leader.commit(50, &[], &["x"]);
    assert_eq!(leader.execute(&last(15, &["x"], &[])), refused(15, "x", 0));
    assert_eq!(leader.execute(&last(16, &[], &["x"])), refused(16, "x", 0));
    leader.commit(35, &["x"], &["x"]);
}

#[test]
fn parts_that_read_each_other_and_lack_a_version_are_refused_in_turn() {
    let mut leader = with_committed(&[(10, &["x"])]);
    leader.execute(&last(20, &[], &["x", "z"]));
    leader.prepare(20);
    leader.execute(&last(25, &["x"], &["y"]));
    leader.prepare(25);
    leader.execute(&last(26, &["x", "y", "z"], &[]));
    leader.prepare(26);
    leader.close(30);
    leader.commit(28, &[], &["x"]);
    leader.commit(40, &[], &["x"]);
    assert_eq!(leader.end(20, None), [refused(25, "x", 0), refused(26, "x", 0)].concat());
    leader.commit(60, &["x", "y"], &["x", "y"]);
}

#[test]
fn who_reads_again_waits_for_all_that_it_has_read() {
    let mut leader = with_committed(&[(10, &["x"])]);
    leader.execute(&last(15, &[], &["x"]));
    leader.prepare(15);
    leader.execute(&last(20, &[], &["x", "y"]));
    leader.prepare(20);
    leader.execute(&last(40, &["y", "x"], &[]));
    leader.prepare(40);
    assert_eq!(leader.end(20, None), [executed(40)]);
    assert_eq!(leader.found(40, &["y", "x"]), Some(vec![0, 15]));
    assert_eq!(leader.end(15, None), [executed(40), settled(40)]);
    assert_eq!(leader.found(40, &["y", "x"]), Some(vec![0, 10]));
}

#[test]
fn another_leader_holds_to_the_reads_and_writes_of_those_that_are_ready() {
    let mut leader = with_reader_that_waits();
    assert_eq!(leader.fail_over(), [settled(20)]);
    assert_eq!(leader.execute(&last(30, &[], &["x"])), refused(30, "x", 40));
    assert_eq!(leader.execute(&last(50, &["y"], &[])), [executed(50)]);
    assert_eq!(leader.glance(60, "x"), Glance::Waits(txn(20)));
    assert_eq!(leader.end(20, Some(stamp(20))), [settled(40)]);
    assert_eq!(leader.found(40, &["x"]), Some(vec![20]));
    assert_eq!(leader.end(40, Some(stamp(40))), [settled(50)]);
}

#[test]
fn a_part_reads_again_if_its_version_has_no_part() {
    let mut leader = with_committed(&[(10, &["x"])]);
    leader.execute(&last(20, &[], &["x"]));
    leader.execute(&last(40, &["x"], &["y"]));
    leader.prepare(40);
    assert_eq!(leader.fail_over(), [executed(40), settled(40)]);
    assert_eq!(leader.found(40, &["x"]), Some(vec![10]));
    assert_eq!(leader.execute(&last(30, &[], &["x"])), refused(30, "x", 40));
}

#[test]
fn a_part_whose_version_may_have_been_committed_once_stays_what_it_is() {
    let mut leader = with_committed(&[(10, &["x"])]);
    leader.execute(&last(20, &["x"], &["y"]));
    leader.prepare(20);
    leader.close(30);
    leader.commit(28, &[], &["x"]);
    leader.commit(40, &[], &["x"]);
    assert_eq!(leader.fail_over(), [settled(20)]);
    assert_eq!(leader.found(20, &["x"]), None, "nobody knows any more");
    leader.end(20, Some(stamp(20)));
}

#[test]
fn nothing_is_kept_of_keys_whose_transactions_are_over() {
    let mut leader = with_reader_that_waits();
    leader.end(20, Some(stamp(20)));
    leader.end(40, None);
    leader.execute(&shot(50, 1, &["z"], &["y"]));
    leader.discard(50);
    assert_eq!(format!("{:?}", leader.control), "Versions of 0 keys, 0 transactions");
}

#[test]
fn a_modification_follows_from_the_version_before_it_and_is_refused_with_that() {
    let mut leader = with_committed(&[(10, &["x"])]);
    assert_eq!(leader.execute(&appends(20, &["x"])), ready(20));
    assert_eq!(leader.execute(&appends(30, &["x"])), [executed(30)]);
    assert_eq!(leader.execute(&last(40, &["x"], &["y"])), [executed(40)]);
    assert_eq!([leader.written(20, "x"), leader.written(30, "x")], ["1020", "102030"]);
    for us in [20, 30, 40] {
        leader.prepare(us);
    }
    let again = vec![executed(40), settled(40)];
    assert_eq!(leader.end(20, None), [refused(30, "x", 0), again].concat());
    assert_eq!(leader.found(40, &["x"]), Some(vec![10]));
    // What was read at a later timestamp is not modified at an earlier one.
    assert!(matches!(leader.execute(&appends(35, &["x"]))[..], [Event::Refused(..)]));
}

#[test]
fn a_modification_that_follows_from_what_another_leader_lacks_is_refused() {
    let mut leader = with_committed(&[(10, &["x"])]);
    leader.execute(&appends(20, &["x"]));
    leader.execute(&appends(30, &["x"]));
    leader.execute(&appends(50, &["x"]));
    leader.execute(&last(40, &["x"], &[]));
    for us in [30, 40] {
        leader.prepare(us);
    }
    let again = vec![executed(40), settled(40)];
    assert_eq!(leader.fail_over(), [again, refused(30, "x", 0)].concat());
}

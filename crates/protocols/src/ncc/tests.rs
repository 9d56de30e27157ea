//! What the leader of a shard does, rule by rule.

use serried_model::Key;

use super::Queues;
use crate::frameworks::shard::bench::{Bench, appends, last, ready, shot, stamp, txn};
use crate::frameworks::shard::{AsOf, Event, Glance, Refusal, Shot, Stamp, Validity};

type Leader = Bench<Queues<false>>;

/// One where `x`, `y` and `z` were written.
fn leader() -> Leader {
    let mut leader = Leader::new();
    leader.commit(5, &[], &["x", "y", "z"]);
    leader
}

/// The last shot was executed, and waits.
fn waits(us: u64) -> [Event; 1] {
    [Event::Executed(txn(us))]
}

fn refused(us: u64, key: &str) -> [Event; 1] {
    let reason = Refusal::Conflict { keys: vec![Key::from(key)], after_us: 0 };
    [Event::Refused(txn(us), reason)]
}

fn released(us: u64) -> Event {
    Event::Released(txn(us), 1)
}

fn settled(us: u64) -> Event {
    Event::Settled(txn(us))
}

/// The moment at which a transaction takes effect once it was moved there.
fn moved(us: u64, of: u64) -> Stamp {
    Stamp { us, txn: txn(of) }
}

fn from_until(from: u64, until: u64) -> Validity {
    Validity { from: stamp(from), until: Some(stamp(until)) }
}

#[test]
fn a_write_is_later_than_what_it_overwrites_and_than_the_reads_of_that() {
    let mut leader = leader();
    leader.commit(100, &[], &["x"]);
    assert_eq!(leader.commit(50, &[], &["x"]), stamp(100).next_of(txn(50)));
    leader.commit(80, &[], &["y"]);
    assert_eq!(leader.commit(90, &["y", "z"], &[]), stamp(80));
    assert_eq!(leader.commit(20, &[], &["z"]), stamp(80).next_of(txn(20)));
}

#[test]
fn a_read_holds_from_its_version_to_the_latest_read_of_that() {
    let mut leader = leader();
    assert_eq!(leader.execute(&last(20, &["x"], &[])), ready(20));
    assert_eq!(leader.prepare(20), from_until(5, 20));
    assert_eq!(leader.execute(&last(10, &["x"], &[])), ready(10));
    assert_eq!(leader.prepare(10), from_until(5, 20));
    assert_eq!(leader.found(10, &["x"]), Some(vec![5]));
}

#[test]
fn a_write_and_its_transactions_reads_hold_at_one_moment() {
    let mut leader = leader();
    assert_eq!(leader.execute(&last(20, &["x", "y"], &["x"])), ready(20));
    assert_eq!(leader.prepare(20), Validity::at(stamp(20)));
}

#[test]
fn what_is_read_is_told_once_it_is_committed() {
    let mut leader = leader();
    assert_eq!(leader.execute(&last(10, &[], &["x"])), ready(10));
    assert_eq!(leader.execute(&shot(20, 1, &["x", "y"], &[])), []);
    assert_eq!(leader.execute(&last(30, &["x"], &[])), waits(30));
    leader.prepare(10);
    assert_eq!(leader.end(10, Some(stamp(10))), [released(20), settled(30)]);
    assert_eq!(leader.found(20, &["x", "y"]), Some(vec![10, 5]));
    assert_eq!(leader.found(30, &["x"]), Some(vec![10]));
}

#[test]
fn a_read_of_what_is_aborted_reads_again() {
    let mut leader = leader();
    leader.execute(&last(10, &[], &["x"]));
    assert_eq!(leader.execute(&shot(20, 1, &["x"], &[])), []);
    assert_eq!(leader.execute(&last(30, &["x"], &[])), waits(30));
    leader.prepare(10);
    assert_eq!(leader.prepare(30), from_until(10, 30));
    // What the last shot says has to be made durable anew.
    let again = [waits(30)[0].clone(), released(20), settled(30)];
    assert_eq!(leader.end(10, None), again);
    assert_eq!(leader.found(20, &["x"]), Some(vec![5]));
    assert_eq!(leader.prepare(30), from_until(5, 30));
}

#[test]
fn who_has_written_what_it_read_reads_again_what_comes_before_its_write() {
    let mut leader = leader();
    leader.execute(&last(10, &[], &["x"]));
    assert_eq!(leader.execute(&last(20, &["x"], &["x"])), waits(20));
    assert_eq!(leader.execute(&shot(30, 1, &["x"], &[])), []);
    leader.prepare(10);
    assert_eq!(leader.end(10, None), ready(20));
    assert_eq!(leader.found(20, &["x"]), Some(vec![5]));
    assert_eq!(leader.prepare(20), Validity::at(stamp(20)));
    assert_eq!(leader.end(20, Some(stamp(20))), [released(30)]);
}

#[test]
fn a_write_waits_for_the_write_before_it_and_for_its_readers() {
    let mut leader = leader();
    leader.execute(&last(10, &[], &["x"]));
    assert_eq!(leader.execute(&shot(20, 1, &["x"], &[])), []);
    assert_eq!(leader.execute(&shot(30, 1, &["x"], &[])), []);
    assert_eq!(leader.execute(&last(40, &[], &["x"])), waits(40));
    assert_eq!(leader.execute(&shot(50, 1, &["x"], &[])), []);
    leader.prepare(10);
    // The reads are told together, though neither is over.
    assert_eq!(leader.end(10, Some(stamp(10))), [released(20), released(30)]);
    assert_eq!(leader.discard(20), []);
    leader.execute(&last(30, &[], &[]));
    leader.prepare(30);
    assert_eq!(leader.end(30, Some(stamp(10))), [settled(40)]);
    leader.prepare(40);
    assert_eq!(leader.end(40, Some(stamp(40))), [released(50)]);
}

#[test]
fn nobody_waits_for_a_younger_one() {
    let mut leader = leader();
    leader.execute(&last(50, &[], &["x"]));
    assert_eq!(leader.execute(&last(20, &["x"], &[])), refused(20, "x"));
    assert_eq!(leader.execute(&last(30, &["y"], &["x"])), refused(30, "x"));
    leader.execute(&shot(50, 1, &["y"], &[]));
    assert_eq!(leader.execute(&last(40, &[], &["y"])), refused(40, "y"));
    // Nothing of theirs is left behind.
    leader.prepare(50);
    leader.end(50, Some(stamp(50)));
    leader.commit(60, &[], &["y"]);
}

#[test]
fn an_older_one_that_has_not_to_wait_is_executed() {
    let mut leader = leader();
    assert_eq!(leader.execute(&shot(50, 1, &["x"], &[])), [released(50)]);
    assert_eq!(leader.execute(&last(20, &["x"], &["y"])), ready(20));
    leader.prepare(20);
    leader.end(20, Some(stamp(20)));
    assert_eq!(leader.execute(&last(40, &[], &["y"])), ready(40));
}

#[test]
fn who_writes_what_it_has_read_is_refused_if_another_has_written_since() {
    let mut leader = leader();
    assert_eq!(leader.execute(&shot(20, 1, &["x"], &[])), [released(20)]);
    assert_eq!(leader.execute(&last(30, &[], &["x"])), waits(30));
    assert_eq!(leader.execute(&last(20, &[], &["x"])), [settled(30), refused(20, "x")[0].clone()]);
}

#[test]
fn who_writes_what_it_has_read_waits_for_other_readers_and_not_for_itself() {
    let mut leader = leader();
    assert_eq!(leader.execute(&shot(30, 1, &["x"], &[])), [released(30)]);
    assert_eq!(leader.execute(&shot(20, 1, &["x"], &[])), [released(20)]);
    assert_eq!(leader.execute(&last(30, &[], &["x"])), waits(30));
    assert_eq!(leader.discard(20), [settled(30)]);
}

#[test]
fn a_write_moves_unless_it_was_read_or_overwritten_before() {
    let mut leader = leader();
    assert_eq!(leader.execute(&last(20, &[], &["x"])), ready(20));
    leader.prepare(20);
    assert_eq!(leader.reposition(20, moved(60, 20)), Some(waits(20).to_vec()));
    assert_eq!(leader.prepare(20), Validity::at(moved(60, 20)));
    let next = moved(60, 20).next_of(txn(30));
    assert_eq!(leader.execute(&last(30, &[], &["x"])), waits(30));
    assert_eq!(leader.prepare(30), Validity::at(next));
    assert_eq!(leader.reposition(20, moved(next.us, 20)), None);
    assert_eq!(leader.reposition(20, moved(next.us - 1, 20)), Some(waits(20).to_vec()));
    // Whoever reads a version, even at the moment at which it was written, keeps it there.
    leader.execute(&shot(40, 1, &["x"], &[]));
    assert_eq!(leader.reposition(30, moved(next.us + 100, 30)), None);
    assert_eq!(leader.reposition(30, next), Some(waits(30).to_vec()));
}

#[test]
fn a_read_moves_unless_overwritten_and_later_writes_come_after_it() {
    let mut leader = leader();
    assert_eq!(leader.execute(&last(20, &["x"], &[])), ready(20));
    leader.prepare(20);
    assert_eq!(leader.reposition(20, moved(60, 20)), Some(waits(20).to_vec()));
    assert_eq!(leader.prepare(20), Validity { from: stamp(5), until: Some(moved(60, 20)) });
    let next = moved(60, 20).next_of(txn(30));
    assert_eq!(leader.execute(&last(30, &[], &["x"])), waits(30));
    assert_eq!(leader.prepare(30), Validity::at(next));
    assert_eq!(leader.reposition(20, moved(next.us, 20)), None);
    assert_eq!(leader.reposition(20, moved(50, 20)), Some(waits(20).to_vec()));
}

#[test]
fn a_move_that_one_key_prevents_changes_none() {
    let mut leader = leader();
    leader.execute(&last(20, &["x"], &["y", "z"]));
    let at = leader.prepare(20);
    leader.execute(&shot(40, 1, &["z"], &[]));
    assert_eq!(leader.reposition(20, moved(90, 20)), None);
    assert_eq!(leader.prepare(20), at);
    leader.execute(&last(30, &[], &["x"]));
    assert_eq!(leader.prepare(30), Validity::at(stamp(30)));
    leader.execute(&last(50, &[], &["y"]));
    assert_eq!(leader.prepare(50), Validity::at(stamp(50)));
}

#[test]
fn another_leader_has_those_who_are_ready_in_line() {
    let mut leader = leader();
    leader.execute(&last(10, &[], &["x"]));
    leader.execute(&last(20, &["x"], &["y"]));
    leader.execute(&last(30, &[], &["x"]));
    for us in [10, 20, 30] {
        leader.prepare(us);
    }
    assert_eq!(leader.fail_over(), [settled(10)]);
    assert_eq!(leader.end(10, Some(stamp(10))), [settled(20)]);
    assert_eq!(leader.found(20, &["x"]), Some(vec![10]));
    assert_eq!(leader.end(20, Some(stamp(20))), [settled(30)]);
    assert_eq!(leader.execute(&last(40, &["x"], &[])), waits(40));
}

#[test]
fn what_was_read_that_another_leader_does_not_have_is_read_again() {
    let mut leader = leader();
    leader.execute(&last(10, &[], &["x", "y"]));
    leader.execute(&last(20, &["x"], &[]));
    leader.execute(&last(30, &["y"], &["y"]));
    leader.prepare(20);
    leader.prepare(30);
    // What 30 writes may follow from what it had read.
    assert_eq!(leader.fail_over(), [refused(30, "y").to_vec(), ready(20)].concat());
    assert_eq!(leader.found(20, &["x"]), Some(vec![5]));
    assert_eq!(leader.prepare(20), from_until(5, 20));
}

#[test]
fn nothing_is_answered_before_all_is_read_again_that_another_leader_does_not_have() {
    let mut leader = leader();
    leader.execute(&last(10, &[], &["y"]));
    leader.prepare(10);
    leader.execute(&last(20, &[], &["x", "y"]));
    leader.execute(&last(30, &["x", "y"], &[]));
    leader.prepare(30);
    assert_eq!(leader.fail_over(), [Event::Executed(txn(30)), settled(10)], "it waits for 10");
    assert_eq!(leader.end(10, Some(stamp(10))), [settled(30)]);
    assert_eq!(leader.found(30, &["x", "y"]), Some(vec![5, 10]));
}

#[test]
fn one_that_has_to_read_again_twice_is_refused_once() {
    let mut leader = leader();
    leader.execute(&last(10, &[], &["x"]));
    leader.prepare(10);
    leader.execute(&last(20, &["x"], &["y"]));
    leader.execute(&last(30, &["x", "y"], &[]));
    leader.execute(&last(40, &[], &["x", "y"]));
    let refused = [refused(20, "x"), refused(30, "x")].concat();
    assert_eq!(leader.end(10, None), [refused, vec![settled(40)]].concat());
}

#[test]
fn what_a_new_leaders_parts_have_read_is_not_overwritten_before_they_end() {
    let mut leader = leader();
    leader.execute(&last(50, &["x"], &[]));
    leader.prepare(50);
    assert_eq!(leader.fail_over(), [settled(50)]);
    assert_eq!(leader.execute(&last(20, &[], &["x"])), refused(20, "x"));
    assert_eq!(leader.execute(&last(60, &[], &["x"])), waits(60));
    assert_eq!(leader.end(50, Some(stamp(5))), [settled(60)]);
}

#[test]
fn a_snapshot_begins_anew_for_an_unknown_version_but_not_beside_a_writer() {
    let mut leader = Bench::<Queues<true>>::new();
    leader.commit(10, &[], &["x"]);
    let since = 2; // After its part and its end.
    let found = leader.glance_as_of(AsOf::Slot(since), "x");
    assert!(matches!(found, Glance::Found(found) if found.version == txn(10)));
    assert_eq!(leader.glance_as_of(AsOf::Slot(since - 1), "x"), Glance::Refused { anew: true });
    leader.execute(&last(20, &[], &["x"]));
    assert_eq!(leader.glance_as_of(AsOf::Slot(since), "x"), Glance::Refused { anew: false });
}

#[test]
fn a_new_leader_writes_later_than_a_moved_read() {
    let mut leader = leader();
    leader.execute(&last(50, &["x"], &[]));
    leader.reposition(50, stamp(200)).expect("nobody has written since");
    assert_eq!(leader.prepare(50), from_until(5, 200));
    assert_eq!(leader.fail_over(), [settled(50)]);
    assert_eq!(leader.execute(&last(60, &[], &["x"])), waits(60));
    assert_eq!(leader.end(50, Some(stamp(200))), [settled(60)]);
    assert_eq!(leader.prepare(60), Validity::at(stamp(200).next_of(txn(60))));
}

#[test]
fn another_leader_does_not_move_a_read_past_the_version_that_has_overwritten_it() {
    for fails_over in [false, true] {
        let mut leader = leader();
        leader.commit(100, &[], &["y"]);
        // What is read of `x` holds until 20. What is written to `y` takes effect after 100.
        leader.execute(&last(20, &["x"], &["y"]));
        let at = stamp(100).next_of(txn(20));
        assert_eq!(leader.prepare(20), Validity { from: at, until: Some(stamp(20)) });
        leader.execute(&last(30, &[], &["x"]));
        assert_eq!(leader.prepare(30), Validity::at(stamp(30)));
        if fails_over {
            leader.fail_over();
        }
        assert_eq!(leader.reposition(20, at), None, "after a fail-over: {fails_over}");
    }
}

fn for_update(us: u64, key: &str) -> Shot {
    Shot { for_update: 1, ..shot(us, 1, &[key], &[]) }
}

#[test]
fn reads_for_update_take_turns_and_find_what_the_one_before_has_written() {
    let mut leader = leader();
    assert_eq!(leader.execute(&for_update(10, "x")), [released(10)]);
    assert_eq!(leader.execute(&for_update(30, "x")), []);
    assert_eq!(leader.execute(&for_update(20, "x")), []);
    assert_eq!(leader.execute(&last(10, &[], &["x"])), ready(10));
    leader.prepare(10);
    assert_eq!(leader.end(10, Some(stamp(10))), [released(20)]);
    assert_eq!(leader.found(20, &["x"]), Some(vec![10]));
    // One that gives up lets the next one have its turn.
    assert_eq!(leader.discard(20), [released(30)]);
    assert_eq!(leader.execute(&last(30, &[], &["x"])), ready(30));
    leader.prepare(30);
    assert_eq!(leader.end(30, Some(stamp(30))), []);
    assert_eq!(leader.execute(&for_update(40, "x")), [released(40)]);
    assert_eq!(leader.found(40, &["x"]), Some(vec![30]));
}

#[test]
fn who_reads_for_update_waits_for_nobody_who_is_younger() {
    let mut leader = leader();
    assert_eq!(leader.execute(&for_update(20, "x")), [released(20)]);
    assert_eq!(leader.execute(&for_update(10, "x")), [released(10)]);
    // Only one of them can commit.
    assert_eq!(leader.execute(&last(20, &[], &["x"])), waits(20));
    assert_eq!(leader.execute(&last(10, &[], &["x"])), [settled(20), refused(10, "x")[0].clone()]);
}

#[test]
fn what_waits_for_its_turn_is_not_executed_once_the_program_has_ended() {
    let mut leader = leader();
    leader.execute(&for_update(10, "x"));
    assert_eq!(leader.execute(&for_update(20, "x")), []);
    assert_eq!(leader.execute(&last(20, &[], &["y"])), ready(20));
    assert_eq!(leader.prepare(20), Validity::at(stamp(20)));
    assert_eq!(leader.discard(10), []);
    assert_eq!(leader.end(20, Some(stamp(20))), []);
    assert_eq!(leader.execute(&for_update(30, "x")), [released(30)]);
}

#[test]
fn many_whose_turns_end_at_once_end_one_after_the_other() {
    let mut leader = leader();
    leader.execute(&for_update(10, "x"));
    for us in 20..5000 {
        assert_eq!(leader.execute(&for_update(us, "x")), []);
    }
    for us in 20..5000 {
        assert_eq!(leader.discard(us), []);
    }
    assert_eq!(leader.discard(10), []);
    assert_eq!(leader.execute(&for_update(6000, "x")), [released(6000)]);
}

#[test]
fn who_comes_after_an_end_that_is_not_in_the_rows_sees_it() {
    let mut leader = leader();
    leader.execute(&last(10, &[], &["x"]));
    leader.prepare(10);
    assert_eq!(leader.release(10, Some(stamp(10))), []);
    assert_eq!(leader.execute(&last(40, &["x"], &[])), ready(40));
    assert_eq!(leader.found(40, &["x"]), Some(vec![10]));
    leader.prepare(40);
    assert_eq!(leader.release(40, Some(stamp(40))), []);
    assert_eq!(leader.execute(&last(20, &[], &["x"])), ready(20));
    let after = stamp(40).next_of(txn(20));
    assert_eq!(leader.prepare(20), Validity::at(after), "after the read");
    assert_eq!(leader.glance_as_of(AsOf::Slot(u64::MAX), "x"), Glance::Refused { anew: false });
    leader.put_into_rows(10, Some(stamp(10)));
    leader.put_into_rows(40, Some(stamp(40)));
    assert_eq!(leader.end(20, Some(after)), []);
    assert!(matches!(leader.glance_as_of(AsOf::Slot(u64::MAX), "x"), Glance::Found(_)));
    assert_eq!(leader.execute(&last(50, &["x"], &[])), ready(50));
    assert_eq!(leader.found(50, &["x"]), Some(vec![20]));
}

/// 30 can't read again, and it is 40's turn. 40 can't read either, and ends. Of 70, which waited for 40 too, not everything
/// that it has to read again has been read by then.
#[test]
fn a_turn_is_passed_on_when_all_have_read_again() {
    let mut leader = Leader::new();
    leader.execute(&last(10, &[], &["z2"]));
    leader.execute(&last(20, &[], &["z1", "z2"]));
    leader.execute(&for_update(30, "k"));
    leader.execute(&shot(30, 2, &["z1"], &[]));
    leader.execute(&shot(40, 1, &["y"], &[]));
    leader.execute(&Shot { for_update: 1, ..shot(40, 2, &["k"], &[]) });
    leader.execute(&last(50, &[], &["z1"]));
    leader.execute(&last(60, &[], &["k"]));
    leader.execute(&last(70, &["z2"], &["y"]));
    for us in [10, 20, 50, 60, 70] {
        leader.prepare(us);
    }
    let events = leader.end(20, None);
    assert!(events.contains(&refused(30, "z1")[0]), "{events:?}");
    assert!(events.contains(&refused(40, "k")[0]), "{events:?}");
    assert!(!events.contains(&settled(70)), "{events:?}");
    assert!(leader.end(10, Some(stamp(10))).contains(&settled(70)));
    assert_eq!(leader.found(70, &["z2"]), Some(vec![10]));
}

#[test]
fn modifications_follow_from_each_other_before_any_of_them_is_committed() {
    let mut leader = leader();
    assert_eq!(leader.execute(&appends(10, &["x"])), ready(10));
    assert_eq!(leader.execute(&appends(20, &["x", "y"])), waits(20));
    assert_eq!(leader.execute(&last(30, &["x"], &[])), waits(30));
    assert_eq!(leader.execute(&appends(40, &["x"])), waits(40));
    for (us, value) in [(10, "510"), (20, "51020"), (40, "5102040")] {
        assert_eq!(leader.written(us, "x"), value);
        leader.prepare(us);
    }
    leader.prepare(30);
    assert_eq!(leader.end(10, Some(stamp(10))), [settled(20)]);
    assert_eq!(leader.end(20, Some(stamp(20))), [settled(30)]);
    assert_eq!(leader.found(30, &["x"]), Some(vec![51_020]));
    assert_eq!(leader.end(30, Some(stamp(20))), [settled(40)]);
    leader.end(40, Some(stamp(40)));
    leader.execute(&last(50, &["x", "y"], &[]));
    assert_eq!(leader.found(50, &["x", "y"]), Some(vec![5_102_040, 520]));
}

#[test]
fn modifications_are_made_anew_when_what_they_follow_from_is_aborted() {
    let mut leader = leader();
    leader.execute(&last(10, &[], &["x"]));
    leader.execute(&appends(20, &["x"]));
    leader.execute(&appends(30, &["x"]));
    leader.execute(&last(40, &[], &["x"]));
    leader.execute(&appends(50, &["x"]));
    assert_eq!(leader.written(30, "x"), "102030");
    for us in [10, 20, 30, 40, 50] {
        leader.prepare(us);
    }
    let executed = |us| Event::Executed(txn(us));
    let again = [executed(30), executed(20), settled(20)];
    assert_eq!(leader.end(10, None), again, "the latest first");
    assert_eq!(leader.written(20, "x"), "520");
    assert_eq!(leader.written(30, "x"), "52030");
    assert_eq!(leader.written(50, "x"), "4050");
    // One in the middle.
    assert_eq!(leader.end(20, None), [executed(30), settled(30)]);
    assert_eq!(leader.written(30, "x"), "530");
    leader.prepare(30);
    assert_eq!(leader.end(30, Some(stamp(30))), [settled(40)]);
    assert_eq!(leader.end(40, Some(stamp(40))), [settled(50)]);
}

#[test]
fn a_modification_that_follows_from_what_another_leader_lacks_is_refused() {
    let mut leader = leader();
    leader.execute(&last(10, &[], &["x"]));
    leader.execute(&appends(20, &["x"]));
    leader.execute(&appends(30, &["x"]));
    leader.prepare(20);
    leader.prepare(30);
    let both = [refused(20, "x"), refused(30, "x")].concat();
    assert_eq!(leader.fail_over(), both);
}

#[test]
fn a_modification_that_another_leader_has_inherited_is_refused_with_what_it_follows_from() {
    let mut leader = leader();
    for us in [10, 20] {
        leader.execute(&appends(us, &["x"]));
        leader.prepare(us);
    }
    assert_eq!(leader.fail_over(), [settled(10)]);
    assert_eq!(leader.execute(&appends(30, &["x"])), waits(30));
    assert_eq!(leader.written(30, "x"), "5102030");
    let again = vec![Event::Executed(txn(30)), settled(30)];
    assert_eq!(leader.end(10, None), [refused(20, "x").to_vec(), again].concat());
    assert_eq!(leader.written(30, "x"), "530");
}

#[test]
fn a_modification_keeps_to_what_its_transaction_has_read() {
    let mut leader = leader();
    leader.execute(&shot(10, 1, &["x"], &[]));
    assert_eq!(leader.execute(&appends(10, &["x"])), ready(10));
    leader.prepare(10);
    leader.end(10, Some(stamp(10)));
    leader.execute(&shot(20, 1, &["x"], &[]));
    assert_eq!(leader.execute(&last(30, &[], &["x"])), waits(30));
    let refused = refused(20, "x");
    assert_eq!(
        leader.execute(&appends(20, &["x"])),
        [vec![settled(30)], refused.to_vec()].concat()
    );
    // Who writes and modifies one key is not a correct client.
    let both = Shot { writes: last(40, &[], &["y"]).writes, ..appends(40, &["y"]) };
    assert!(matches!(leader.execute(&both)[..], [Event::Refused(..)]));
}

#[test]
fn a_modification_is_refused_if_the_new_part_that_it_follows_from_is_lost() {
    // The new parts come into the log one after the other. The leader fails after the first, or after both.
    for chosen in [0, 1, 2] {
        let mut leader = leader();
        leader.execute(&last(10, &[], &["x"]));
        for us in [20, 30] {
            leader.execute(&appends(us, &["x"]));
        }
        for us in [10, 20, 30] {
            leader.prepare(us);
        }
        let told = leader.end(10, None);
        let new = told.iter().filter_map(|event| match event {
            Event::Executed(txn) => Some(txn.timestamp_us),
            _ => None,
        });
        for us in new.take(chosen) {
            leader.prepare(us);
        }
        let told = leader.fail_over();
        if chosen == 2 {
            assert_eq!(told, [settled(20)]);
            assert_eq!(leader.written(30, "x"), "52030");
        } else {
            assert_eq!(told, [refused(20, "x"), refused(30, "x")].concat(), "{chosen} chosen");
        }
    }
}

#[test]
fn a_new_leader_answers_nothing_before_all_have_read_again_though_it_refuses_a_modification() {
    let mut leader = leader();
    leader.execute(&last(6, &[], &["y"]));
    leader.execute(&last(10, &[], &["x", "y"]));
    leader.execute(&appends(20, &["x"]));
    leader.execute(&last(30, &["x", "y"], &[]));
    for us in [6, 20, 30] {
        leader.prepare(us);
    }
    let told = [refused(20, "x").to_vec(), waits(30).to_vec(), vec![settled(6)]].concat();
    assert_eq!(leader.fail_over(), told);
    leader.prepare(30);
    assert_eq!(leader.end(6, Some(stamp(6))), [settled(30)]);
    assert_eq!(leader.found(30, &["x", "y"]), Some(vec![5, 6]));
}

#[test]
fn modifications_let_those_go_first_who_have_read_for_update() {
    let mut leader = leader();
    assert_eq!(leader.execute(&for_update(10, "x")), [released(10)]);
    assert_eq!(leader.execute(&appends(20, &["x", "y"])), [], "it waits");
    assert_eq!(leader.execute(&appends(30, &["x"])), [], "behind it");
    assert_eq!(leader.execute(&appends(40, &["y"])), ready(40), "the other key is free");
    leader.prepare(40);
    leader.end(40, Some(stamp(40)));
    assert_eq!(leader.execute(&last(10, &[], &["x"])), ready(10));
    leader.prepare(10);
    // Their turns pass on at once, so that they are in the log together.
    let told = leader.end(10, Some(stamp(10)));
    assert_eq!(told, [ready(20), waits(30).to_vec()].concat());
    assert_eq!(leader.written(30, "x"), "102030");
    assert_eq!(
        leader.execute(&for_update(50, "x")),
        [],
        "it has its turn, and waits for the value"
    );
    leader.prepare(20);
    leader.prepare(30);
    assert_eq!(leader.end(20, Some(stamp(20))), [settled(30)]);
    assert_eq!(leader.end(30, Some(stamp(30))), [released(50)]);
    // Nobody waits for the turn of one with a later timestamp.
    let mut leader = self::leader();
    leader.execute(&for_update(50, "x"));
    assert_eq!(leader.execute(&appends(45, &["x"])), refused(45, "x"), "50 has read it");
}

#[test]
fn a_modification_that_waits_is_forgotten_with_its_transaction() {
    let mut leader = leader();
    leader.execute(&for_update(10, "x"));
    leader.execute(&appends(20, &["x"]));
    leader.execute(&appends(30, &["x"]));
    assert_eq!(leader.discard(20), []);
    assert_eq!(leader.discard(10), ready(30));
    leader.prepare(30);
    leader.end(30, Some(stamp(30)));
    assert_eq!(leader.execute(&for_update(40, "x")), [released(40)], "no turn is left behind");
    assert_eq!(leader.discard(40), []);
    assert!(format!("{:?}", leader.control).contains("0 of them read for update"));
}

#[test]
fn a_shot_that_reads_what_its_transaction_has_written_is_refused() {
    let mut leader = leader();
    leader.execute(&shot(10, 1, &[], &["x"]));
    assert!(matches!(leader.execute(&last(10, &["y"], &[]))[..], [Event::Refused(..)]));
}

#[test]
fn who_modifies_what_it_has_read_waits_for_other_readers() {
    let mut leader = leader();
    assert_eq!(leader.execute(&shot(30, 1, &["x"], &[])), [released(30)]);
    assert_eq!(leader.execute(&shot(20, 1, &["x"], &[])), [released(20)]);
    assert_eq!(leader.execute(&appends(30, &["x"])), waits(30));
    assert_eq!(leader.discard(20), [settled(30)]);
}

#[test]
fn a_transaction_finds_its_accesses_whether_they_are_few_or_many() {
    for many in [10, 31, 32, 33, 100] {
        let mut leader = leader();
        let keys: Vec<String> = (0..many).map(|number| format!("k{}", number * 7 % many)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let half = &keys[..many / 2];
        assert_eq!(leader.execute(&shot(10, 1, half, &[])), [released(10)]);
        assert_eq!(leader.execute(&appends(10, &keys)), ready(10));
        for key in &keys {
            assert_eq!(leader.written(10, key), "10");
        }
        leader.prepare(10);
        leader.end(10, Some(stamp(10)));
        leader.execute(&last(20, &keys, &[]));
        assert_eq!(leader.found(20, &keys), Some(vec![10; many]));
    }
}

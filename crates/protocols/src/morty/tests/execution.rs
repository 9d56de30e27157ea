//! Reads, writes that are shown while their transaction runs, and what has to run again.

use super::*;

#[test]
fn a_lone_transaction_takes_one_round_to_its_nearest_replica_and_one_to_all() {
    let mut net = morty(1);
    net.get(0, "x");
    assert_eq!(net.trace(), ["c0 -> n0 Get x", "n0 -> c0 GetReply x = absent"]);
    net.commit(0, &["x"], &[("x", "1")]);
    assert_eq!(
        net.trace(),
        [
            "c0 -> n0 Prepare 0",
            "c0 -> n1 Prepare 0",
            "c0 -> n2 Prepare 0",
            "n0 -> c0 PrepareReply 0 Commit",
            "n1 -> c0 PrepareReply 0 Commit",
            "n2 -> c0 PrepareReply 0 Commit",
            "c0 -> n0 Decide 0 Commit",
            "c0 -> n1 Decide 0 Commit",
            "c0 -> n2 Decide 0 Commit",
        ]
    );
    assert_eq!(net.told(0), ["value x = absent", "committed"]);
}

/// 000 Fig. 3: overlapping serialization windows are lined up by moving reads forward.
#[test]
fn re_execution_lines_up_three_overlapping_transactions_without_an_abort() {
    let mut net = morty(3);
    for client in 0..3 {
        net.get(client, "x");
    }
    net.settle();
    for client in 0..3 {
        net.commit(client, &["x"], &[("x", "1")]);
    }
    net.settle();
    // The first one's write was missed by the others, and reached them before their votes.
    assert_eq!(net.told(0), ["value x = absent", "committed"]);
    assert_eq!(net.told(1), ["value x = absent", "rewind x = 1"]);
    assert_eq!(net.told(2), ["value x = absent", "rewind x = 1", "rewind x = 1"]);
    net.commit(1, &["x"], &[("x", "2")]);
    net.settle();
    assert_eq!(net.told(1), ["committed"]);
    assert_eq!(net.told(2), ["rewind x = 2"]);
    net.commit(2, &["x"], &[("x", "3")]);
    net.settle();
    assert_eq!(net.told(2), ["committed"]);
    net.get(0, "x");
    net.settle();
    assert_eq!(net.told(0), ["value x = 3"]);
}

#[test]
fn without_re_execution_the_transaction_that_missed_a_write_is_aborted() {
    let mut net = overlapping(mvtso(2));
    net.commit(0, &["x"], &[("x", "1")]);
    net.settle();
    net.commit(1, &["x"], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    assert_eq!(net.told(1), ["aborted over [\"x\"]"]);
}

#[test]
fn a_put_is_shown_to_readers_before_its_transaction_ends() {
    let mut net = overlapping(morty(2));
    net.put(0, "x", "1");
    net.settle();
    assert_eq!(net.told(1), ["rewind x = 1"]);
    net.commit(1, &["x"], &[("x", "2")]);
    net.settle();
    assert_eq!(net.told(1), [] as [&str; 0], "its vote waits for what it read");
    net.commit(0, &["x"], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    assert_eq!(net.told(1), ["committed"]);
}

#[test]
fn an_unchanged_write_is_not_sent_again_and_a_changed_one_supersedes_it() {
    let mut net = overlapping(morty(2));
    net.put(0, "x", "1");
    net.settle();
    net.put(0, "x", "1");
    assert_eq!(net.trace(), [] as [&str; 0]);
    net.put(0, "x", "2");
    assert!(net.trace().contains(&"c0 -> n1 Put x = 2".to_string()));
    assert_eq!(net.told(1), ["rewind x = 1", "rewind x = 2"]);
}

#[test]
fn a_write_that_the_next_execution_does_not_make_is_withdrawn() {
    let mut net = overlapping(morty(2));
    net.put(0, "x", "1");
    net.settle();
    assert_eq!(net.told(1), ["rewind x = 1"]);
    net.commit(0, &["x"], &[("y", "1")]);
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    assert_eq!(net.told(1), ["rewind x = absent"]);
    net.commit(1, &["x"], &[]);
    net.settle();
    assert_eq!(net.told(1), ["committed"]);
}

#[test]
fn a_one_shot_transaction_is_not_offered_and_leaves_nothing_behind() {
    let mut net = morty(1);
    let reads = vec![Key::from("x")];
    net.operate(
        0,
        Operation::OneShot { reads, writes: vec![write("x", "1")], modifies: Vec::new() },
    );
    net.settle();
    assert_eq!(net.told(0), ["aborted over []"]);
    net.get(0, "x");
    net.settle();
    assert_eq!(net.told(0), ["value x = absent"]);
}

#[test]
fn readers_of_an_aborted_write_are_told_what_is_there_without_it() {
    let mut net = overlapping(morty(2));
    net.put(0, "x", "1");
    net.settle();
    net.operate(0, Operation::Rollback);
    net.settle();
    assert_eq!(net.told(0), ["aborted over []"]);
    assert_eq!(net.told(1), ["rewind x = 1", "rewind x = absent"]);
}

#[test]
fn a_delete_is_a_write_and_an_absent_key_can_be_read() {
    let mut net = morty(1);
    for (value, read) in [("1", "value x = 1"), ("", "value x = absent")] {
        net.commit(0, &[], &[("x", value)]);
        net.settle();
        assert_eq!(net.told(0), ["committed"]);
        net.get(0, "x");
        net.settle();
        net.commit(0, &["x"], &[]);
        net.settle();
        assert_eq!(net.told(0), [read, "committed"]);
    }
}

#[test]
fn a_commit_that_crosses_a_rewind_is_ignored() {
    let mut net = overlapping(morty(2));
    net.hear();
    let stale = net.open[&1].clone();
    net.put(0, "x", "1");
    net.settle();
    assert_eq!(net.told(1), ["rewind x = 1"]);
    let reads = vec![ReadStamp { key: Key::from("x"), stamp: stale[&Key::from("x")] }];
    net.operate(
        1,
        Operation::Commit { reads, writes: vec![write("y", "of absent")], modifies: Vec::new() },
    );
    assert!(net.network.is_empty(), "{:?}", net.network);
}

/// Client 0 has changed `x`, and client 1 has revised what it writes, until client 1 takes changes
/// together; then client 0 has changed it two times more.
fn overwhelmed() -> Net {
    let mut net = overlapping(morty(2));
    for change in 1..=REVISIONS_AT_ONCE + 3 {
        let value = change.to_string();
        net.put(0, "x", &value);
        net.settle();
        if change <= REVISIONS_AT_ONCE + 1 {
            assert_eq!(net.told(1), [format!("rewind x = {value}")]);
            net.commit(1, &["x"], &[("x", &value)]);
            net.settle();
        }
    }
    assert_eq!(net.told(1), [] as [&str; 0], "the last two are held");
    net
}

#[test]
fn changes_that_come_thick_and_fast_are_taken_together() {
    let mut net = overwhelmed();
    let last = (REVISIONS_AT_ONCE + 3).to_string();
    net.fire(1, |timer| matches!(timer, Timer::Rewind(_)));
    assert_eq!(net.told(1), [format!("rewind x = {last}")]);
    net.commit(1, &["x"], &[("x", "later")]);
    net.commit(0, &["x"], &[("x", &last)]);
    net.settle();
    assert_eq!(net.told(0).last().unwrap(), "committed");
    assert_eq!(net.told(1).last().unwrap(), "committed");
}

#[test]
fn what_is_held_is_told_at_once_when_the_execution_is_voted_down() {
    let mut net = overwhelmed();
    let last = (REVISIONS_AT_ONCE + 3).to_string();
    // What client 1 has prepared rests on an earlier value than the one that commits.
    net.commit(0, &["x"], &[("x", &last)]);
    net.settle();
    assert_eq!(net.told(0).last().unwrap(), "committed");
    assert_eq!(net.told(1), [format!("rewind x = {last}")]);
}

#[test]
fn a_transaction_with_independent_writes_is_told_of_each_change_at_once() {
    let mut net = overlapping(morty(2));
    for change in 1..=REVISIONS_AT_ONCE + 3 {
        let value = change.to_string();
        net.put(0, "x", &value);
        net.settle();
        assert_eq!(net.told(1), [format!("rewind x = {value}")]);
        net.commit(1, &["x"], &[("x", "the same")]);
        net.settle();
    }
}

#[test]
fn a_change_goes_through_a_chain_link_by_link() {
    let mut net = morty(4);
    for client in 0..4 {
        net.get(client, "x");
    }
    net.settle();
    for (client, value) in [(1, "1"), (2, "12"), (0, "0")] {
        net.put(client, "x", value);
        net.settle();
    }
    assert_eq!(net.told(1), ["value x = absent", "rewind x = 0"]);
    assert_eq!(net.told(2), ["value x = absent", "rewind x = 1"]);
    assert_eq!(net.told(3), ["value x = absent", "rewind x = 1", "rewind x = 12"]);
    net.put(2, "x", "1 and 2");
    net.settle();
    assert_eq!(net.told(3), [] as [&str; 0], "what that rests on is going to change");
    net.put(1, "x", "01");
    net.settle();
    assert_eq!(net.told(2), ["rewind x = 01"]);
    net.put(2, "x", "012");
    net.settle();
    assert_eq!(net.told(3), ["rewind x = 012"]);
}

/// How long a read is waited for before another replica is asked: see `coordinator::patience`.
const PATIENCE_US: u64 = 102_000;

/// Client 0's timer goes off after so long; who is then asked for what.
fn asked_after(net: &mut Net, us: u64) -> Vec<String> {
    net.now += us;
    net.fire_now(0, |timer| matches!(timer, Timer::Repeat(_)));
    net.network.iter().map(|(_, to, message)| format!("{to} {}", name(message))).collect()
}

#[test]
fn a_read_is_given_its_own_time_before_another_replica_is_asked() {
    let mut net = morty(1);
    net.get(0, "x");
    net.settle();
    net.now += PATIENCE_US - 10_000;
    net.get(0, "y");
    net.network.clear(); // It is lost.
    assert_eq!(asked_after(&mut net, 10_000), [] as [&str; 0], "y was asked for just now");
    assert_eq!(asked_after(&mut net, PATIENCE_US - 10_000), ["n1 Get y"]);
    net.network.clear();
    assert_eq!(asked_after(&mut net, PATIENCE_US), [] as [&str; 0], "it has twice the time");
    assert_eq!(asked_after(&mut net, PATIENCE_US), ["n2 Get y"]);
}

#[test]
fn a_long_transaction_keeps_reading_from_the_replica_that_answers() {
    let mut net = morty(1);
    for key in ["x", "y", "z"] {
        net.get(0, key);
        assert_eq!(asked_after(&mut net, PATIENCE_US / 2), [format!("n0 Get {key}")]);
        net.settle();
    }
    assert_eq!(net.told(0).len(), 3);
}

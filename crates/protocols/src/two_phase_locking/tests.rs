//! A shard with one replica, to which requests come by hand.

use core::time::Duration;
use std::sync::Arc;

use serried_actor::{Group, Settings};
use serried_model::{Key, NodeId, Value, Version, Write};

use super::Locking;
use crate::Mutated;
use crate::frameworks::shard::bench::{self, Bench, last, ready, stamp, txn as txn_at};
use crate::frameworks::shard::{
    Control, Decision, Event, Executed, Message, Refusal, Replica, Reply, Request, Shot, Stamp,
    Validity,
};
use crate::testing::Net;

const CLIENT: NodeId = NodeId(NodeId::FIRST_COORDINATOR);
/// Transactions by when they began: the least is the oldest.
fn txn(us: u64) -> Version {
    Version { timestamp_us: us, coordinator: CLIENT }
}

/// The network of a shard's only replica.
struct Only<C: Control>(Net<Replica<C>>);

type WoundWait = Only<Locking<true>>;
type NoWait = Only<Locking<false>>;

/// What a transaction was told, in short.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Told {
    /// A shot was executed, and has found this.
    Found(u64, Vec<Option<String>>),
    /// It is ready to commit from this time on.
    Ready(u64, u64, Vec<Option<String>>),
    /// It is refused over this.
    Refused(u64, Vec<Key>),
}

impl<C: Control> Only<C> {
    fn new() -> Only<C> {
        let mut net = Net::new(1, 1, |_| fresh());
        net.now = 1;
        net.set_clock_us(5);
        net.start();
        let mut only = Only(net);
        only.lead();
        only
    }

    /// One that has led before waits a while for others who lead.
    fn lead(&mut self) {
        self.0.wait_with_clocks_stopped(Duration::from_secs(10));
        let timers: Vec<_> = self.0.nodes[0].timers.keys().copied().collect();
        timers.into_iter().for_each(|timer| self.0.fire(0, timer));
        self.0.network.clear();
    }

    fn restart(&mut self) {
        self.0.restart(0, fresh());
        self.lead();
    }

    fn request(&mut self, request: Request) -> Vec<Told> {
        let answers = self.0.answers(CLIENT, 0, Message::Request(request));
        answers.into_iter().filter_map(|(.., message)| in_short(message)).collect()
    }

    fn shot(&mut self, us: u64, number: u16, reads: &[&str], writes: &[&str]) -> Vec<Told> {
        self.request(Request::Shot(shot(us, number, reads, writes)))
    }

    /// Reads keys that the transaction is going to write.
    fn read_for_update(&mut self, us: u64, number: u16, reads: &[&str]) -> Vec<Told> {
        let for_update = reads.len() as u32;
        self.request(Request::Shot(Shot { for_update, ..shot(us, number, reads, &[]) }))
    }

    /// The last shot of a transaction that has a part in another shard, too.
    fn last(&mut self, us: u64, reads: &[&str], writes: &[&str]) -> Vec<Told> {
        let participants = Some(Arc::from([0, 1]));
        self.request(Request::Shot(Shot { participants, ..shot(us, 9, reads, writes) }))
    }

    /// The last shot of a transaction that has no other part.
    fn last_alone(&mut self, us: u64, reads: &[&str], writes: &[&str]) -> Vec<Told> {
        let participants = Some(Arc::from([0]));
        self.request(Request::Shot(Shot { participants, ..shot(us, 9, reads, writes) }))
    }

    fn end(&mut self, us: u64, decision: Decision) -> Vec<Told> {
        self.request(Request::End { txn: txn(us), decision })
    }

    fn commit(&mut self, us: u64, at_us: u64) -> Vec<Told> {
        self.end(us, Decision::Commit(Stamp { us: at_us, txn: txn(us) }))
    }

    /// Has a transaction write a key that is free, and commit.
    fn write(&mut self, us: u64, key: &str) {
        self.shot(us, 1, &[], &[key]);
        let told = self.last(us, &[], &[]);
        assert_eq!(told, [Told::Ready(us, us, Vec::new())]);
        assert_eq!(self.commit(us, us), []);
    }
}

fn fresh<C: Control>() -> Replica<C> {
    let group = Group::new(1, Duration::from_millis(1)).with_partitions(2);
    Replica::new(NodeId(0), group, &Settings::default(), Mutated::NONE)
}

/// What is written says who has written it.
fn shot(us: u64, number: u16, reads: &[&str], writes: &[&str]) -> Shot {
    let value = Some(Value::from(us.to_string().as_str()));
    let write = |key: &&str| Write { key: Key::from(*key), value: value.clone() };
    Shot {
        txn: txn(us),
        age: None,
        number,
        reads: reads.iter().map(|key| Key::from(*key)).collect(),
        for_update: 0,
        writes: writes.iter().map(write).collect(),
        modifies: Vec::new(),
        participants: None,
    }
}

fn in_short(message: Message) -> Option<Told> {
    let Message::Reply(reply) = message else { return None };
    match reply {
        Reply::Executed(Executed { txn, found, validity, .. }) => {
            let value = |value: &Value| value.to_string();
            let found = found.iter().map(|found| found.value.as_ref().map(value)).collect();
            Some(match validity {
                None => Told::Found(txn.timestamp_us, found),
                Some(validity) => {
                    assert_eq!(validity.until, None);
                    Told::Ready(txn.timestamp_us, validity.from.us, found)
                }
            })
        }
        Reply::Refused { txn, reason: Refusal::Conflict { keys, .. } } => {
            Some(Told::Refused(txn.timestamp_us, keys))
        }
        _ => None,
    }
}

fn refused(us: u64, key: &str) -> Told {
    Told::Refused(us, vec![Key::from(key)])
}

fn found(us: u64, values: &[&str]) -> Told {
    Told::Found(us, some(values))
}

fn some(values: &[&str]) -> Vec<Option<String>> {
    values.iter().map(|value| Some(value.to_string()).filter(|value| !value.is_empty())).collect()
}

#[test]
fn without_waiting_who_cannot_have_a_lock_is_refused_and_leaves_no_lock_behind() {
    let mut only = NoWait::new();
    assert_eq!(only.shot(1, 1, &["x"], &[]), [found(1, &[""])]);
    assert_eq!(only.shot(2, 1, &["x", "z"], &[]), [found(2, &["", ""])]);
    assert_eq!(only.last(2, &[], &["y", "x"]), [refused(2, "x")]);
    assert_eq!(only.last(3, &[], &["y", "z"]), [Told::Ready(3, 3, Vec::new())]);
    assert_eq!(only.last(4, &["y"], &[]), [refused(4, "y")], "until it is over");
    assert_eq!(only.commit(3, 3), []);
    assert_eq!(only.last(5, &["y"], &[]), [Told::Ready(5, 5, some(&["3"]))]);
}

#[test]
fn who_alone_has_read_a_key_can_write_it() {
    let mut only = NoWait::new();
    only.shot(1, 1, &["x"], &[]);
    assert_eq!(only.last(1, &[], &["x"]), [Told::Ready(1, 1, Vec::new())]);
    assert_eq!(only.shot(2, 1, &["x"], &[]), [refused(2, "x")]);
    only.commit(1, 1);
    only.shot(3, 1, &["x"], &[]);
    only.shot(4, 1, &["x"], &[]);
    assert_eq!(only.last(3, &[], &["x"]), [refused(3, "x")]);
    assert_eq!(only.last(4, &[], &["x"]), [Told::Ready(4, 4, Vec::new())]);
}

#[test]
fn a_shot_that_reads_and_writes_a_key_finds_what_was_there_before() {
    let mut only = NoWait::new();
    only.last(1, &[], &["x"]);
    only.commit(1, 1);
    assert_eq!(only.last(2, &["x"], &["x"]), [Told::Ready(2, 2, some(&["1"]))]);
}

#[test]
fn the_younger_waits_until_the_older_is_over_and_then_finds_what_it_has_written() {
    let mut only = WoundWait::new();
    assert_eq!(only.shot(1, 1, &["x"], &[]), [found(1, &[""])]);
    assert_eq!(only.shot(1, 2, &[], &["x", "y"]), [found(1, &[])]);
    assert_eq!(only.shot(3, 1, &["x"], &[]), []);
    assert_eq!(only.shot(2, 1, &["y", "x"], &[]), []);
    assert_eq!(only.last(1, &[], &[]), [Told::Ready(1, 1, Vec::new())]);
    assert_eq!(only.commit(1, 1), [found(3, &["1"]), found(2, &["1", "1"])]);
}

#[test]
fn the_older_has_the_younger_refused_and_takes_its_lock() {
    let mut only = WoundWait::new();
    only.shot(3, 1, &["x"], &["y"]);
    assert_eq!(only.shot(4, 1, &["y"], &[]), []);
    assert_eq!(only.shot(2, 1, &[], &["x"]), [found(4, &[""]), found(2, &[])]);
    assert_eq!(only.last(3, &[], &[]), [refused(3, "x")]);
    assert_eq!(only.last(2, &[], &[]), [Told::Ready(2, 2, Vec::new())]);
}

#[test]
fn who_is_tried_again_is_as_old_as_its_first_attempt() {
    let mut only = WoundWait::new();
    only.shot(2, 1, &[], &["x"]);
    let age = Some(txn(1));
    let again = Shot { age, ..shot(3, 1, &[], &["x"]) };
    assert_eq!(only.request(Request::Shot(again)), [found(3, &[])]);
    assert_eq!(only.last(2, &[], &[]), [refused(2, "x")]);
    // Of two attempts of one transaction, the later is the younger.
    let later = Shot { age, ..shot(4, 1, &[], &["x"]) };
    assert_eq!(only.request(Request::Shot(later)), []);
    let mut only = WoundWait::new();
    only.request(Request::Shot(Shot { age, ..shot(4, 1, &[], &["x"]) }));
    let earlier = Shot { age, ..shot(3, 1, &[], &["x"]) };
    assert_eq!(only.request(Request::Shot(earlier)), [found(3, &[])]);
    assert_eq!(only.last(4, &[], &[]), [refused(4, "x")]);
}

#[test]
fn an_abandoned_read_of_one_that_is_tried_again_leaves_no_lock_behind() {
    let mut only = WoundWait::new();
    only.shot(1, 1, &[], &["x"]);
    let again = Shot { age: Some(txn(2)), ..shot(3, 1, &["x"], &[]) };
    assert_eq!(only.request(Request::Shot(again)), []);
    assert_eq!(only.last(3, &[], &["y"]), [Told::Ready(3, 3, Vec::new())]);
    only.last(1, &[], &[]);
    assert_eq!(only.commit(1, 1), []);
    assert_eq!(only.commit(3, 3), []);
    assert_eq!(only.shot(4, 1, &[], &["x"]), [found(4, &[])]);
}

#[test]
fn who_waits_is_refused_at_once_when_it_is_wounded() {
    let mut only = WoundWait::new();
    only.shot(1, 1, &[], &["x"]);
    only.shot(3, 1, &["y"], &[]);
    assert_eq!(only.shot(3, 2, &["x"], &[]), []);
    assert_eq!(only.shot(2, 1, &[], &["y"]), [refused(3, "y"), found(2, &[])]);
    only.last(1, &[], &[]);
    assert_eq!(only.commit(1, 1), [], "it does not wait any more");
}

#[test]
fn what_a_wounded_transaction_frees_goes_to_the_one_that_has_wounded_it() {
    let mut only = WoundWait::new();
    only.shot(5, 1, &[], &["x"]);
    assert_eq!(only.shot(7, 1, &[], &["x"]), []);
    assert_eq!(only.shot(6, 1, &["x"], &[]), []);
    assert_eq!(only.shot(4, 1, &["x"], &["x"]), [found(4, &[""])]);
    only.last(4, &[], &[]);
    assert_eq!(only.commit(4, 4), [found(6, &["4"])], "7 waits for that");
    only.last(6, &[], &[]);
    assert_eq!(only.end(6, Decision::Abort), [found(7, &[])]);
}

#[test]
fn one_that_is_ready_to_commit_is_waited_for_by_its_elders() {
    let mut only = WoundWait::new();
    only.shot(5, 1, &["x"], &[]);
    only.last(5, &[], &[]);
    assert_eq!(only.shot(2, 1, &[], &["x"]), []);
    assert_eq!(only.shot(3, 1, &["x"], &[]), [], "an older one waits to write");
    assert_eq!(only.end(5, Decision::Abort), [found(2, &[])]);
}

#[test]
fn two_that_lock_in_opposite_orders_do_not_wait_for_each_other() {
    let mut only = WoundWait::new();
    only.shot(1, 1, &[], &["x"]);
    only.shot(2, 1, &[], &["y"]);
    assert_eq!(only.shot(2, 2, &[], &["x"]), []);
    assert_eq!(only.shot(1, 2, &[], &["y"]), [refused(2, "y"), found(1, &[])]);
    let mut only = WoundWait::new();
    only.shot(1, 1, &["x"], &[]);
    only.shot(2, 1, &["x"], &[]);
    assert_eq!(only.shot(2, 2, &[], &["x"]), [], "both have read it and want to write it");
    assert_eq!(only.shot(1, 2, &[], &["x"]), [refused(2, "x"), found(1, &[])]);
}

#[test]
fn an_abandoned_read_is_not_waited_for_and_not_in_the_part() {
    let mut only = WoundWait::new();
    only.shot(1, 1, &[], &["x"]);
    assert_eq!(only.shot(2, 1, &["x"], &[]), []);
    assert_eq!(only.shot(3, 1, &["x"], &[]), []);
    assert_eq!(only.shot(2, 2, &[], &["y"]), [found(2, &[])]);
    assert_eq!(only.last(2, &[], &[]), [Told::Ready(2, 2, Vec::new())]);
    only.last(1, &[], &[]);
    assert_eq!(only.commit(1, 1), [found(3, &["1"])]);
    only.last(3, &[], &[]);
    assert_eq!(only.end(3, Decision::Abort), []);
    only.write(4, "x");
    assert_eq!(only.commit(2, 2), []);
    only.write(5, "y");
}

#[test]
fn giving_up_a_wait_lets_those_behind_it_have_the_lock() {
    let mut only = WoundWait::new();
    only.shot(1, 1, &["x"], &[]);
    only.shot(2, 1, &[], &["x"]);
    assert_eq!(only.shot(3, 1, &["x"], &[]), []);
    let told = only.end(2, Decision::Abort);
    assert_eq!(told, [Told::Refused(2, Vec::new()), found(3, &[""])]);
}

#[test]
fn a_part_holds_after_its_reads_and_after_reads_that_it_overwrites() {
    let mut only = WoundWait::new();
    only.shot(100, 1, &[], &["x", "y"]);
    only.last(100, &[], &[]);
    only.commit(100, 500);
    // The clock of its client is slow.
    only.shot(7, 1, &["x"], &[]);
    let told = only.last(7, &[], &[]);
    let after = |us: u64, own: u64| own + (us - own + 1).next_multiple_of(Stamp::LANES);
    assert_eq!(told, [Told::Ready(7, after(500, 7), Vec::new())]);
    only.commit(7, 900 + 7);
    only.shot(8, 1, &[], &["x"]);
    assert_eq!(only.last(8, &[], &[]), [Told::Ready(8, after(907, 8), Vec::new())]);
    only.shot(9, 1, &["y"], &[]);
    assert_eq!(only.last(9, &[], &[]), [Told::Ready(9, after(500, 9), Vec::new())]);
}

#[test]
fn a_new_leader_holds_the_locks_of_prepared_transactions_only() {
    let mut only = WoundWait::new();
    only.write(1, "x");
    only.shot(5, 1, &["x"], &["y"]);
    only.last(5, &[], &[]);
    only.shot(6, 1, &[], &["z"]);
    only.restart();
    let late = 1_000_000;
    assert_eq!(only.last(5, &[], &[]), [Told::Ready(5, 5, Vec::new())]);
    assert_eq!(only.shot(late, 1, &["x", "z"], &[]), [found(late, &["1", ""])]);
    assert_eq!(only.shot(late + 1, 1, &["y"], &[]), []);
    assert_eq!(only.commit(5, 5), [found(late + 1, &["5"])]);
}

#[test]
fn a_new_leader_answers_what_was_read_under_locks_that_it_has_taken_over() {
    let mut only = NoWait::new();
    only.last(1, &[], &["x"]);
    only.commit(1, 1);
    only.last(5, &["x"], &["x"]);
    only.restart();
    assert_eq!(only.last(5, &["x"], &["x"]), [Told::Ready(5, 5, some(&["1"]))]);
    assert_eq!(only.shot(1_000_000, 1, &["x"], &[]), [refused(1_000_000, "x")]);
}

#[test]
fn a_transaction_of_one_shard_gives_its_locks_on_with_its_last_shot() {
    let mut only = WoundWait::new();
    assert_eq!(only.read_for_update(1, 1, &["x"]), [found(1, &[""])]);
    assert_eq!(only.read_for_update(2, 1, &["x"]), []);
    assert_eq!(only.read_for_update(3, 1, &["x"]), []);
    let told = only.last_alone(1, &[], &["x"]);
    assert!(told.contains(&found(2, &["1"])), "{told:?}");
    assert!(told.contains(&Told::Ready(1, 1, Vec::new())), "{told:?}");
    // Its client says the same afterwards.
    assert_eq!(only.commit(1, 1), []);
    let told = only.last_alone(2, &["x"], &["x"]);
    assert!(told.contains(&found(3, &["2"])), "{told:?}");
    assert!(told.contains(&Told::Ready(2, 2, some(&["1"]))), "{told:?}");
    only.restart();
    let late = 1_000_000;
    assert_eq!(only.shot(late, 1, &["x"], &[]), [found(late, &["2"])]);
}

#[test]
fn who_comes_after_an_end_that_is_not_in_the_rows_sees_it() {
    let mut leader = Bench::<Locking<true>>::new();
    leader.commit(5, &[], &["x"]);
    assert_eq!(leader.execute(&last(10, &[], &["x"])), ready(10));
    leader.prepare(10);
    assert_eq!(leader.release(10, Some(stamp(10))), []);
    assert_eq!(leader.execute(&last(40, &["x"], &[])), ready(40));
    assert_eq!(leader.found(40, &["x"]), Some(vec![10]));
    leader.prepare(40);
    assert_eq!(leader.release(40, Some(stamp(40))), []);
    assert_eq!(leader.execute(&last(20, &[], &["x"])), ready(20));
    let Validity { from, .. } = leader.prepare(20);
    assert_eq!(from, stamp(40).next_of(txn_at(20)), "after the read");
    leader.put_into_rows(10, Some(stamp(10)));
    leader.put_into_rows(40, Some(stamp(40)));
    assert_eq!(leader.end(20, Some(from)), []);
    assert_eq!(leader.execute(&last(50, &["x"], &[])), ready(50));
    assert_eq!(leader.found(50, &["x"]), Some(vec![20]));
}

#[test]
fn who_reads_for_update_waits_for_others_who_do_and_aborts_nobody() {
    let mut only = WoundWait::new();
    assert_eq!(only.read_for_update(1, 1, &["x"]), [found(1, &[""])]);
    assert_eq!(only.read_for_update(2, 1, &["x"]), [], "it waits");
    assert_eq!(only.shot(1, 2, &[], &["x"]), [found(1, &[])], "it has the lock");
    assert_eq!(only.last(1, &[], &[]), [Told::Ready(1, 1, Vec::new())]);
    assert_eq!(only.commit(1, 1), [found(2, &["1"])]);
    only.end(2, Decision::Abort);
    // Those who only read share the lock, and the younger one is aborted when the older one writes.
    assert_eq!(only.shot(3, 1, &["x"], &[]), [found(3, &["1"])]);
    assert_eq!(only.shot(4, 1, &["x"], &[]), [found(4, &["1"])]);
    assert_eq!(only.shot(3, 2, &[], &["x"]), [found(3, &[])]);
    assert_eq!(only.last(4, &[], &["x"]), [refused(4, "x")]);
}

#[test]
fn without_waiting_reads_for_update_share_their_lock() {
    let mut only = NoWait::new();
    assert_eq!(only.read_for_update(1, 1, &["x"]), [found(1, &[""])]);
    assert_eq!(only.read_for_update(2, 1, &["x"]), [found(2, &[""])]);
    assert_eq!(only.last(1, &[], &["x"]), [refused(1, "x")]);
    assert_eq!(only.last(2, &[], &["x"]), [Told::Ready(2, 2, Vec::new())]);
}

#[test]
fn who_reads_one_key_for_update_shares_the_others_that_it_reads() {
    let mut only = WoundWait::new();
    let both = Shot { for_update: 1, ..shot(1, 1, &["x", "y"], &[]) };
    assert_eq!(only.request(Request::Shot(both)), [found(1, &["", ""])]);
    assert_eq!(only.shot(2, 1, &["y"], &[]), [found(2, &[""])]);
    assert_eq!(only.shot(2, 2, &["x"], &[]), [], "it waits");
}

#[test]
fn a_modification_that_waits_for_its_lock_follows_from_what_is_there_then() {
    let mut leader = Bench::<Locking<true>>::new();
    let released = |us| Event::Released(txn_at(us), 1);
    let modify = |us| Shot { number: 1, participants: None, ..bench::appends(us, &["x"]) };
    assert_eq!(leader.execute(&bench::shot(10, 1, &[], &["x"])), [released(10)]);
    let both = Shot { reads: vec![Key::from("x")], ..modify(20) };
    assert_eq!(leader.execute(&both), [], "it waits");
    leader.execute(&last(10, &[], &[]));
    leader.prepare(10);
    assert_eq!(leader.end(10, Some(stamp(10))), [released(20)]);
    assert_eq!(leader.found(20, &["x"]), Some(vec![10]), "what was there before");
    assert_eq!(leader.execute(&last(20, &[], &[])), ready(20));
    assert_eq!(leader.written(20, "x"), "1020");
    leader.prepare(20);
    // Another leader keeps the lock, and what follows from what was there.
    assert_eq!(leader.fail_over(), [Event::Settled(txn_at(20))]);
    assert_eq!(leader.execute(&modify(30)), []);
    assert_eq!(leader.end(20, Some(stamp(20))), [released(30)]);
    leader.execute(&last(30, &[], &[]));
    assert_eq!(leader.written(30, "x"), "102030");
}

#[test]
fn a_modification_takes_effect_after_the_reads_of_what_it_overwrites() {
    let mut leader = Bench::<Locking<true>>::new();
    leader.commit(100, &["x"], &[]);
    leader.execute(&bench::appends(20, &["x"]));
    assert_eq!(leader.prepare(20).from, stamp(100).next_of(txn_at(20)));
}

//! A shard's only replica, to which messages are handed one by one.

use core::time::Duration;
use std::sync::Arc;

use rand_pcg::Pcg64Mcg;
use serried_actor::{
    Actor, ClockInterval, Context, Durable, Effect, Group, MemoryStore, Recover, Settings,
    Timestamp,
};
use serried_model::{Key, NodeId, Value, Version, Write};

use super::super::control::Control;
use super::super::message::{
    AsOf, Decision, Found, Message, Record, Refusal, Reply, Request, Shot,
};
use super::super::stamp::Stamp;
use super::{Replica, Timer};
use crate::mvto::Versions;
use crate::ncc::Queues;
use crate::replicated_log;

const CLIENT: NodeId = NodeId(NodeId::FIRST_COORDINATOR);
/// What its clock says, in microseconds.
const NOW_US: u64 = 10_000_000;

struct Bench<C: Control> {
    replica: Replica<C>,
    store: MemoryStore,
    random: Pcg64Mcg,
    records: Vec<Record>,
    now: Timestamp,
}

impl<C: Control> Bench<C> {
    /// One that leads.
    fn new() -> Bench<C> {
        let mut bench = Bench::stopped();
        bench.start();
        bench
    }

    fn stopped() -> Bench<C> {
        let (store, random) = (MemoryStore::default(), Pcg64Mcg::new(1));
        let now = Timestamp(1);
        Bench { replica: replica(), store, random, records: Vec::new(), now }
    }

    fn restart(&mut self) {
        self.replica = replica();
        for record in &self.records {
            self.replica.replay(record.clone(), &mut self.store);
        }
        self.start();
        self.now = self.now + Duration::from_secs(9);
        let elect = Timer::Log(replicated_log::Timer::Elect);
        self.act(|replica, cx| replica.on_timer(elect, cx));
    }

    fn start(&mut self) -> Vec<Reply> {
        self.act(|replica, cx| replica.on_start(cx))
    }

    fn act(
        &mut self,
        act: impl FnOnce(&mut Replica<C>, &mut Context<'_, Replica<C>>),
    ) -> Vec<Reply> {
        let mut effects = Vec::new();
        let clock = ClockInterval { earliest_us: NOW_US, latest_us: NOW_US };
        let log_position = self.records.len() as u64;
        let durable = Durable { store: &mut self.store, log_position };
        let (now, random) = (self.now, &mut self.random);
        let mut cx = Context::new(NodeId(0), now, clock, random, &mut effects, durable);
        act(&mut self.replica, &mut cx);
        let mut replies = Vec::new();
        for effect in effects {
            match effect {
                Effect::Send { message: Message::Reply(reply), .. }
                | Effect::SendBeforeDurable { message: Message::Reply(reply), .. } => {
                    replies.push(reply);
                }
                Effect::Append(record) => self.records.push(record),
                _ => {}
            }
        }
        replies
    }

    fn ask(&mut self, request: Request) -> Vec<Reply> {
        self.act(|replica, cx| replica.on_message(CLIENT, Message::Request(request), cx))
    }

    /// The last shot of a transaction that began so many microseconds after now, and writes `x`.
    fn write(&mut self, after_us: u64) -> Vec<Reply> {
        let write = Write { key: Key::from("x"), value: Some(Value::from("new")) };
        let participants: Option<Arc<[u16]>> = Some(Arc::new([0, 1]));
        let (reads, writes) = (Vec::new(), vec![write]);
        self.ask(Request::Shot(Shot { txn: txn(after_us), number: 1, reads, writes, participants }))
    }

    /// Reads `x` for a transaction that began so many microseconds after now, and has no part.
    fn glance(&mut self, after_us: u64) -> Vec<Reply> {
        let keys = vec![Key::from("x")];
        self.ask(Request::Snapshot { number: 7, as_of: AsOf::Time(txn(after_us)), keys })
    }

    fn commit(&mut self, txn: Version, at: Stamp) -> Vec<Reply> {
        self.ask(Request::End { txn, decision: Decision::Commit(at) })
    }
}

fn replica<C: Control>() -> Replica<C> {
    let group = Group::new(1, Duration::from_millis(1)).with_partitions(2);
    Replica::new(NodeId(0), group, &Settings::default(), None)
}

fn txn(after_us: u64) -> Version {
    Version { timestamp_us: NOW_US + after_us, coordinator: CLIENT }
}

fn stamp(us: u64, of: u64) -> Stamp {
    Stamp { us: NOW_US + us, txn: txn(of) }
}

#[test]
fn a_part_that_is_asked_to_move_before_it_is_settled_has_moved_when_that_is_said() {
    let mut bench = Bench::<Queues<false>>::new();
    assert!(matches!(bench.write(1)[..], [Reply::Executed(_)]));
    assert_eq!(bench.write(2), [], "it waits for the first");
    let to = stamp(2 + Stamp::LANES, 2);
    assert_eq!(bench.ask(Request::Move { txn: txn(2), to }), []);
    let replies = bench.commit(txn(1), Stamp::assigned(txn(1)));
    assert!(replies.contains(&Reply::Moved { txn: txn(2) }), "{replies:?}");
    match &bench.ask(Request::Inspect { txn: txn(2) })[..] {
        [Reply::Prepared { validity, .. }] => assert!(validity.holds_at(to), "{validity:?}"),
        replies => panic!("{replies:?}"),
    }
}

#[test]
fn a_transaction_that_begins_with_a_version_under_which_another_has_committed_is_another() {
    let mut bench = Bench::<Queues<false>>::new();
    bench.write(1);
    let at = stamp(1 + Stamp::LANES, 1);
    assert_eq!(bench.ask(Request::Move { txn: txn(1), to: at }), [Reply::Moved { txn: txn(1) }]);
    bench.commit(txn(1), at);
    let committed = Reply::Decided { txn: at.version(), decision: Decision::Commit(at) };
    assert_eq!(bench.ask(Request::Resolve { txn: at.version() }), [committed]);
    assert!(matches!(bench.write(1 + Stamp::LANES)[..], [Reply::Executed(_)]));
}

#[test]
fn what_is_told_before_it_is_durable_does_not_say_what_is_known() {
    let mut bench = Bench::<Queues<false>>::new();
    bench.write(1);
    bench.commit(txn(1), Stamp::assigned(txn(1)));
    let mut known = |number, participants: Option<Arc<[u16]>>| {
        let reads = if participants.is_some() { Vec::new() } else { vec![Key::from("y")] };
        let shot = Shot { txn: txn(2), number, reads, writes: Vec::new(), participants };
        match &bench.ask(Request::Shot(shot))[..] {
            [Reply::Executed(executed)] => executed.known,
            replies => panic!("{replies:?}"),
        }
    };
    assert_eq!(known(1, None), 0);
    assert!(
        known(2, Some(Arc::new([0, 1]))) > 3,
        "the slots of the other's part and end, at least"
    );
}

#[test]
fn the_window_has_whoever_was_refused_by_it_so_that_the_next_leader_refuses_it_too() {
    let mut bench = Bench::<Queues<false>>::new();
    let replies = bench.ask(Request::Inspect { txn: txn(1_000_000) });
    assert!(matches!(replies[..], [Reply::Refused { .. }]), "{replies:?}");
    let window = bench.replica.shard.window();
    assert!(window.to_us > txn(1_000_000).timestamp_us, "{window:?}");
}

fn found(replies: &[Reply]) -> Option<Version> {
    match replies {
        [Reply::Snapshot { number: 7, found: Ok(found), .. }] => match &found[..] {
            [Found { version, .. }] => Some(*version),
            found => panic!("{found:?}"),
        },
        _ => None,
    }
}

#[test]
fn a_reader_without_a_part_is_answered_once_whoever_has_written_what_it_reads_is_over() {
    let mut bench = Bench::<Versions>::new();
    bench.write(1);
    for _ in 0..3 {
        assert_eq!(bench.glance(2), [], "however often it asks");
    }
    let replies = bench.commit(txn(1), Stamp::assigned(txn(1)));
    let answers: Vec<&Reply> =
        replies.iter().filter(|reply| matches!(reply, Reply::Snapshot { .. })).collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(found(&[answers[0].clone()]), Some(txn(1)));
    bench.write(3);
    assert_eq!(bench.glance(4), []);
    let replies = bench.ask(Request::End { txn: txn(3), decision: Decision::Abort });
    assert_eq!(found(&replies), Some(txn(1)), "{replies:?}");
}

#[test]
fn a_reader_without_a_part_began_before_a_time_that_is_in_the_log() {
    let mut bench = Bench::<Versions>::new();
    let after_us = 1_000_000;
    assert_eq!(found(&bench.glance(after_us)), Some(Version::INITIAL));
    let window = bench.replica.shard.window();
    assert!(window.to_us > txn(after_us).timestamp_us);
    let bound_us = Settings::default().clock_bound_ms * 1000;
    let late = bound_us + after_us;
    let reason = Refusal::ClockSkew { ahead_us: late as i64 };
    assert_eq!(bench.glance(late), [Reply::Refused { txn: txn(late), reason }]);
    assert_eq!(bench.replica.shard.window(), window);
}

#[test]
fn what_has_waited_for_a_leader_is_all_done_once_there_is_one() {
    let mut bench = Bench::<Versions>::stopped();
    let commit = |bench: &mut Bench<_>| bench.commit(txn(1), Stamp::assigned(txn(1)));
    let waiting = [bench.write(1), bench.glance(2), commit(&mut bench), bench.write(3)];
    assert_eq!(waiting.concat(), []);
    match &bench.start()[..] {
        [Reply::Executed(first), snapshot, Reply::Executed(last)] => {
            assert_eq!((first.txn, last.txn), (txn(1), txn(3)));
            assert_eq!(found(core::slice::from_ref(snapshot)), Some(txn(1)));
        }
        replies => panic!("{replies:?}"),
    }
}

#[test]
fn nobody_writes_before_what_a_reader_without_a_part_has_read_from_a_former_leader() {
    let mut bench = Bench::<Versions>::new();
    bench.write(1);
    bench.commit(txn(1), Stamp::assigned(txn(1)));
    assert_eq!(found(&bench.glance(3)), Some(txn(1)));
    bench.restart();
    let refused = bench.write(2);
    assert!(
        matches!(refused[..], [Reply::Refused { reason: Refusal::Late { .. }, .. }]),
        "{refused:?}"
    );
    assert_eq!(found(&bench.glance(3)), Some(txn(1)));
}

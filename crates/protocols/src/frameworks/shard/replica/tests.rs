//! A shard's only replica, to which messages are handed one by one.

mod ahead;
mod forged;
mod forgetting;
mod trio;

use core::time::Duration;
use std::sync::Arc;

use rand_pcg::Pcg64Mcg;
use serried_actor::{
    Actor, ClockInterval, Context, Durable, Effect, Group, MemoryStore, Recover, Settings,
    Timestamp,
};
use serried_model::{Key, NodeId, Value, Version, Write};

use super::super::control::Control;
use super::super::forger::NOW_US;
use super::super::message::{
    AsOf, Decision, Found, Message, Record, Refusal, Reply, Request, Shot,
};
use super::super::stamp::Stamp;
use super::{Replica, Timer};
use crate::Mutated;
use crate::frameworks::replicated_log;
use crate::mvto::Versions;
use crate::ncc::Queues;

const CLIENT: NodeId = NodeId(NodeId::FIRST_COORDINATOR);

struct Bench<C: Control> {
    replica: Replica<C>,
    store: MemoryStore,
    random: Pcg64Mcg,
    records: Vec<Record>,
    now: Timestamp,
    /// What its clock says, in microseconds.
    clock_us: u64,
    /// The replies to the last event that left before what was appended is durable.
    early: Vec<Reply>,
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
        let (records, early, clock_us) = (Vec::new(), Vec::new(), NOW_US);
        Bench { replica: replica(), store, random, records, now, clock_us, early }
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
        let clock = ClockInterval { earliest_us: self.clock_us, latest_us: self.clock_us };
        let log_position = self.records.len() as u64;
        let durable = Durable { store: &mut self.store, log_position, durable_position: u64::MAX };
        let (now, random) = (self.now, &mut self.random);
        let mut cx = Context::new(NodeId(0), now, clock, random, &mut effects, durable);
        act(&mut self.replica, &mut cx);
        let mut replies = Vec::new();
        self.early.clear();
        for effect in effects {
            match effect {
                Effect::Send { message: Message::Reply(reply), .. } => replies.push(reply),
                Effect::SendBeforeDurable { message: Message::Reply(reply), .. } => {
                    self.early.push(reply.clone());
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

    /// Some time passes, after which it looks after what is overdue.
    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.clock_us += time.as_micros() as u64;
        self.act(|replica, cx| replica.on_timer(Timer::Watch, cx));
    }

    fn gauge(&self, wanted: &str) -> u64 {
        let mut found = None;
        self.replica.gauges(&mut |name, value| found = found.or((name == wanted).then_some(value)));
        found.expect("a gauge of that name")
    }

    fn commit(&mut self, txn: Version, at: Stamp) -> Vec<Reply> {
        self.ask(Request::End { txn, decision: Decision::Commit(at) })
    }
}

fn replica<C: Control>() -> Replica<C> {
    let group = Group::new(1, Duration::from_millis(1)).with_partitions(2);
    Replica::new(NodeId(0), group, &Settings::default(), Mutated::NONE)
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
fn what_has_committed_under_another_version_is_not_called_refused_before_its_shards_know() {
    for beyond_the_window in [false, true] {
        let mut bench = Bench::<Queues<false>>::new();
        let lanes = if beyond_the_window { 1 << 30 } else { 1 };
        bench.write(1);
        let at = stamp(1 + lanes * Stamp::LANES, 1);
        assert_eq!(
            bench.ask(Request::Move { txn: txn(1), to: at }),
            [Reply::Moved { txn: txn(1) }]
        );
        // Its client has committed it, and has said so under this version. The shards are told later.
        let resolve = Request::Resolve { txn: at.version() };
        let early = bench.ask(resolve.clone());
        assert!(!early.iter().any(|reply| matches!(reply, Reply::Refused { .. })), "{early:?}");
        bench.commit(txn(1), at);
        let committed = Reply::Decided { txn: at.version(), decision: Decision::Commit(at) };
        assert_eq!(bench.ask(resolve), [committed]);
        // Another client's transaction of that version is another one.
        let other = Version { coordinator: NodeId(at.version().coordinator.0 + 1), ..at.version() };
        let replies = bench.ask(Request::Resolve { txn: other });
        assert!(matches!(replies[..], [Reply::Refused { .. }]), "{replies:?}");
    }
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

/// Who begins so long after now is ahead by a little more than clocks may differ.
fn too_far_ahead_us() -> u64 {
    Settings::default().clock_bound_ms * 1000 + 1000
}

#[track_caller]
fn assert_refused_for_its_clock(replies: &[Reply]) {
    let [Reply::Refused { reason: Refusal::ClockSkew { ahead_us }, .. }] = replies else {
        panic!("{replies:?}");
    };
    assert_eq!(*ahead_us, too_far_ahead_us() as i64);
}

#[track_caller]
fn assert_never_taken(bench: &mut Bench<Queues<false>>, after_us: u64) {
    let replies = bench.write(after_us);
    let refused = matches!(
        replies[..],
        [Reply::Refused { .. } | Reply::Decided { decision: Decision::Abort, .. }]
    );
    assert!(refused, "{replies:?}");
}

#[test]
fn who_was_refused_for_its_clock_is_never_taken_though_its_shot_comes_again_in_time() {
    let mut bench = Bench::<Queues<false>>::new();
    let after_us = too_far_ahead_us();
    assert_refused_for_its_clock(&bench.write(after_us));
    assert_eq!(bench.early, [], "it is told once that is durable");
    bench.wait(Duration::from_millis(2));
    assert_never_taken(&mut bench, after_us);
    bench.restart();
    assert_never_taken(&mut bench, after_us);
    bench.wait(Duration::from_secs(60));
    let replies = bench.ask(Request::Resolve { txn: txn(after_us) });
    assert!(!matches!(replies[..], [Reply::Prepared { .. }]), "{replies:?}");
    assert_eq!(bench.gauge("open"), 0);
}

#[test]
fn who_was_refused_to_its_backup_coordinator_is_refused_by_the_next_leader_however_far_ahead() {
    for after_us in [1000, too_far_ahead_us(), 1 << 50] {
        let mut bench = Bench::<Queues<false>>::new();
        let replies = bench.ask(Request::Inspect { txn: txn(after_us) });
        assert!(matches!(replies[..], [Reply::Refused { .. }]), "{replies:?}");
        bench.restart();
        bench.wait(Duration::from_millis(2));
        assert_never_taken(&mut bench, after_us);
    }
}

#[test]
fn an_end_that_nobody_has_waited_for_refuses_nobody_beyond_the_window() {
    let mut bench = Bench::<Queues<false>>::new();
    let after_us = too_far_ahead_us();
    bench.ask(Request::End { txn: txn(after_us), decision: Decision::Abort });
    assert_eq!(bench.gauge("refused"), 0, "the next leader would not know of it");
    bench.ask(Request::Inspect { txn: txn(1) });
    assert_eq!(bench.gauge("refused"), 1);
}

#[test]
fn what_a_replica_alone_says_waits_for_what_it_rests_on_to_be_durable() {
    let mut bench = Bench::<crate::two_phase_locking::Locking<false>>::new();
    assert!(matches!(bench.write(1)[..], [Reply::Executed(_)]));
    // After a pause, so that the window has to reach further.
    bench.clock_us += 300_000;
    let durable = bench.records.len();
    let replies = bench.write(300_000);
    assert!(matches!(replies[..], [Reply::Refused { .. }]), "{replies:?}");
    let shot = Shot {
        txn: txn(600_000),
        number: 1,
        reads: vec![Key::from("y")],
        writes: Vec::new(),
        participants: None,
    };
    assert!(bench.records.len() > durable && bench.early.is_empty(), "{:?}", bench.early);
    let replies = bench.ask(Request::Shot(shot));
    assert!(matches!(replies[..], [Reply::Executed(_)]), "{replies:?}");
    assert_eq!(bench.early, []);
}

#[test]
fn no_more_transactions_are_open_than_may_be_and_those_that_are_end_all_the_same() {
    let mut bench = Bench::<Queues<false>>::new();
    let read = |us| {
        let reads = vec![Key::from(u64::to_string(&us).as_str())];
        let (writes, participants) = (Vec::new(), None);
        Request::Shot(Shot { txn: txn(us), number: 1, reads, writes, participants })
    };
    let most = super::leader::OPEN_AT_MOST as u64;
    for us in 1..=most + 100 {
        bench.ask(read(us));
    }
    assert_eq!(bench.gauge("open"), most);
    bench.ask(Request::End { txn: txn(1), decision: Decision::Abort });
    assert_eq!(bench.gauge("open"), most - 1);
    assert!(matches!(bench.ask(read(most + 1))[..], [Reply::Executed(_)]), "it comes again");
    assert_eq!(bench.gauge("open"), most);
}

#[test]
fn no_more_refusals_are_remembered_than_may_be_and_those_that_are_not_are_late() {
    let mut bench = Bench::<Queues<false>>::new();
    let most = super::refusals::REFUSED_AT_MOST as u64;
    bench.write(most + 150);
    for us in 1..=most + 100 {
        bench.ask(Request::End { txn: txn(us), decision: Decision::Abort });
        assert!(bench.gauge("refused") <= most);
    }
    assert!(bench.gauge("refused") > 100);
    for us in [1, most / 2 - 1, most / 2 + 2, most + 100] {
        let replies = bench.write(us);
        assert!(matches!(replies[..], [Reply::Refused { .. }]), "{us}: {replies:?}");
    }
    bench.ask(Request::End { txn: txn(most + 150), decision: Decision::Abort });
    assert!(matches!(bench.write(most + 200)[..], [Reply::Executed(_)]));
}

#[test]
fn who_runs_for_longer_than_a_transaction_may_is_told_so() {
    let mut bench = Bench::<Queues<false>>::new();
    let read = |number| {
        let (reads, writes) = (vec![Key::from("x")], Vec::new());
        Request::Shot(Shot { txn: txn(1), number, reads, writes, participants: None })
    };
    bench.ask(read(1));
    let limit_ms = Settings::default().truncation_lag_ms;
    for _ in 0..limit_ms / 500 {
        bench.ask(Request::Alive(vec![txn(1)]));
        bench.wait(Duration::from_millis(500));
    }
    let reason = Refusal::TooLong { limit_ms };
    assert_eq!(bench.ask(read(2)), [Reply::Refused { txn: txn(1), reason }]);
}

#[test]
fn who_begins_exactly_at_the_end_of_the_window_is_not_within_it() {
    let unknown = |txn| [Request::Inspect { txn }, Request::End { txn, decision: Decision::Abort }];
    for ask in 0..4 {
        let mut bench = Bench::<Versions>::new();
        assert_eq!(found(&bench.glance(1)), Some(Version::INITIAL));
        let window = bench.replica.shard.window();
        let after_us = window.to_us - NOW_US;
        let replies = match ask {
            0 => bench.write(after_us),
            1 => bench.glance(after_us),
            _ => bench.ask(unknown(txn(after_us))[ask - 2].clone()),
        };
        let extended = bench.replica.shard.window() != window;
        assert_eq!(
            extended,
            ask < 3,
            "whoever is answered for good has to be within it: {replies:?}"
        );
        assert!(ask == 3 || replies.len() == 1, "{ask}: {replies:?}");
    }
}

#[test]
fn who_is_refused_for_its_clock_and_begins_exactly_at_the_end_of_the_window_is_refused_in_the_log()
{
    let mut bench = Bench::<Queues<false>>::new();
    assert!(matches!(bench.write(1)[..], [Reply::Executed(_)]));
    let after_us = bench.replica.shard.window().to_us - NOW_US;
    // The clock is set back, so that this is too far ahead.
    bench.clock_us = NOW_US - 2 * too_far_ahead_us();
    let said = bench.write(after_us);
    assert!(
        matches!(said[..], [Reply::Refused { reason: Refusal::ClockSkew { .. }, .. }]),
        "{said:?}"
    );
    // The next leader takes whoever begins then, unless the log says otherwise.
    bench.clock_us = NOW_US;
    bench.restart();
    let said = bench.write(after_us);
    assert!(matches!(said[..], [Reply::Decided { decision: Decision::Abort, .. }]), "{said:?}");
}

#[test]
fn a_window_ends_no_later_than_the_clock_and_the_bound_allow() {
    let bound_us = Settings::default().clock_bound_ms * 1000;
    for after_us in [1, bound_us / 2, bound_us] {
        let mut bench = Bench::<Queues<false>>::new();
        assert!(matches!(bench.write(after_us)[..], [Reply::Executed(_)]));
        let to_us = bench.replica.shard.window().to_us;
        assert!((NOW_US + after_us + 1..=NOW_US + bound_us + 1).contains(&to_us), "{to_us}");
    }
}

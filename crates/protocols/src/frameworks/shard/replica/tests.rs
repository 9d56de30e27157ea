//! Tests of a shard's only replica. The tests pass messages to it one by one.

mod ahead;
mod forged;
mod forgetting;
mod gaps;
mod inquired;
mod kept;
mod missing;
mod observed;
mod trio;
mod waiting;

use core::time::Duration;
use std::sync::Arc;

use rand_pcg::Pcg64Mcg;
use serried_actor::{Actor, Context, Group, Settings};
use serried_model::{Key, Modification, Modify, NodeId, Value, Version, Write};

use super::super::control::Control;
use super::super::forger::NOW_US;
use super::super::message::{
    AdmissionWindow, AsOf, Decision, Found, Message, Refusal, Reply, Request, Shot,
};
use super::super::stamp::Stamp;
use super::{Replica, Timer};
use crate::Mutated;
use crate::frameworks::replicated_log;
use crate::frameworks::validation::Validation;
use crate::mvto::Versions;
use crate::ncc::Queues;
use crate::occ::Locks;
use crate::testing::{self, Envelope, derefs_to_net};
use crate::two_phase_locking::Locking;

const CLIENT: NodeId = NodeId(NodeId::FIRST_COORDINATOR);

/// The only replica of a shard, in a group of two shards.
struct Bench<C: Control>(testing::Net<Replica<C>>);

derefs_to_net!([C: Control] Bench<C>, 0: testing::Net<Replica<C>>);

/// A shot, which is the last one if it has `participants`. It writes "new".
fn shot(txn: Version, reads: &[&str], writes: &[&str], participants: &[u16]) -> Shot {
    let keys = |keys: &[&str]| keys.iter().map(|key| Key::from(*key)).collect::<Vec<_>>();
    let write = |key| Write { key, value: Some(Value::from("new")) };
    Shot {
        txn,
        age: None,
        number: 1,
        reads: keys(reads),
        for_update: 0,
        writes: keys(writes).into_iter().map(write).collect(),
        modifies: Vec::new(),
        participants: (!participants.is_empty()).then(|| Arc::from(participants)),
    }
}

impl<C: Control> Bench<C> {
    /// Creates a replica that leads.
    fn new() -> Bench<C> {
        let mut bench = Bench::stopped();
        bench.start();
        bench
    }

    fn stopped() -> Bench<C> {
        let mut bench = Bench(testing::Net::new(1, 1, |_| replica()));
        bench.now = 1;
        bench.set_clock_us(NOW_US);
        bench
    }

    fn restart(&mut self) {
        self.0.restart(0, replica());
        self.wait_with_clocks_stopped(Duration::from_secs(9));
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
        self.early.clear();
        self.network.clear();
        self.0.act(0, act);
        self.network.drain(..).filter_map(reply).collect()
    }

    /// The window in which transactions are admitted.
    fn window(&self) -> AdmissionWindow {
        self.nodes[0].shard.window()
    }

    fn ask(&mut self, request: Request) -> Vec<Reply> {
        self.act(|replica, cx| replica.on_message(CLIENT, Message::Request(request), cx))
    }

    /// Sends the last shot of a transaction that begins `after_us` microseconds after now and
    /// writes `x`.
    fn write(&mut self, after_us: u64) -> Vec<Reply> {
        self.ask(Request::Shot(shot(txn(after_us), &[], &["x"], &[0, 1])))
    }

    /// Reads `x` for a transaction without parts that begins `after_us` microseconds after now.
    fn glance(&mut self, after_us: u64) -> Vec<Reply> {
        let keys = vec![Key::from("x")];
        self.ask(Request::Snapshot { number: 7, as_of: AsOf::Time(txn(after_us)), keys })
    }

    /// Advances the time, and runs the timers that are due.
    fn wait(&mut self, time: Duration) {
        self.0.wait(time);
        self.act(|replica, cx| replica.on_timer(Timer::Watch, cx));
    }

    fn gauge(&self, wanted: &str) -> u64 {
        self.nodes[0].gauge(wanted)
    }

    fn commit(&mut self, txn: Version, at: Stamp) -> Vec<Reply> {
        self.ask(Request::End { txn, decision: Decision::Commit(at) })
    }
}

/// The reply in a message, if it is one.
fn reply((.., message): Envelope<Message>) -> Option<Reply> {
    match message {
        Message::Reply(reply) => Some(reply),
        _ => None,
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
fn a_part_that_is_not_settled_moves_before_the_acknowledgement() {
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
fn a_transaction_is_not_confused_with_one_that_committed_as_its_version() {
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
fn a_refined_commit_is_not_called_refused_before_its_shards_know() {
    for beyond_the_window in [false, true] {
        let mut bench = Bench::<Queues<false>>::new();
        let lanes = if beyond_the_window { 1 << 30 } else { 1 };
        bench.write(1);
        let at = stamp(1 + lanes * Stamp::LANES, 1);
        assert_eq!(
            bench.ask(Request::Move { txn: txn(1), to: at }),
            [Reply::Moved { txn: txn(1) }]
        );
        // Its client has committed it, and knows it under this version. The shards learn of it
        // later.
        let resolve = Request::Resolve { txn: at.version() };
        let early = bench.ask(resolve.clone());
        assert!(!early.iter().any(|reply| matches!(reply, Reply::Refused { .. })), "{early:?}");
        bench.commit(txn(1), at);
        let committed = Reply::Decided { txn: at.version(), decision: Decision::Commit(at) };
        assert_eq!(bench.ask(resolve), [committed]);
        // Another client's transaction at the same time has another version.
        let other = Version { coordinator: NodeId(at.version().coordinator.0 + 1), ..at.version() };
        let replies = bench.ask(Request::Resolve { txn: other });
        assert!(matches!(replies[..], [Reply::Refused { .. }]), "{replies:?}");
    }
}

#[test]
fn an_answer_before_durability_reports_no_known_slot() {
    let mut bench = Bench::<Queues<false>>::new();
    bench.write(1);
    bench.commit(txn(1), Stamp::assigned(txn(1)));
    let mut known = |number, participants: Option<Arc<[u16]>>| {
        let reads = if participants.is_some() { Vec::new() } else { vec![Key::from("y")] };
        let shot = Shot { number, reads, participants, ..shot(txn(2), &[], &[], &[]) };
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
fn a_refused_transaction_lies_before_the_end_of_the_window() {
    let mut bench = Bench::<Queues<false>>::new();
    let replies = bench.ask(Request::Inspect { txn: txn(1_000_000) });
    assert!(matches!(replies[..], [Reply::Refused { .. }]), "{replies:?}");
    let window = bench.window();
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
fn a_snapshot_waits_for_the_writers_of_its_keys() {
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
    let window = bench.window();
    assert!(window.to_us > txn(after_us).timestamp_us);
    let bound_us = Settings::default().clock_bound_ms * 1000;
    let late = bound_us + after_us;
    let reason = Refusal::ClockSkew { ahead_us: late as i64 };
    assert_eq!(bench.glance(late), [Reply::Unread { number: 7, reason }]);
    assert_eq!(bench.window(), window);
}

#[test]
fn a_new_leader_handles_all_waiting_requests() {
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
fn no_write_precedes_a_snapshot_of_a_former_leader() {
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

/// A transaction that begins this long after now is ahead by a little more than clocks may differ.
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
fn a_transaction_refused_for_its_clock_is_never_taken() {
    let mut bench = Bench::<Queues<false>>::new();
    let after_us = too_far_ahead_us();
    assert_refused_for_its_clock(&bench.write(after_us));
    assert_eq!(bench.early, [], "the answer waits until the refusal is durable");
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
fn a_refusal_to_a_backup_coordinator_outlives_the_leader() {
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
fn an_unexpected_end_refuses_nothing_beyond_the_window() {
    let mut bench = Bench::<Queues<false>>::new();
    let after_us = too_far_ahead_us();
    bench.ask(Request::End { txn: txn(after_us), decision: Decision::Abort });
    assert_eq!(bench.gauge("refused"), 0, "the next leader would not know the refusal");
    bench.ask(Request::Inspect { txn: txn(1) });
    assert_eq!(bench.gauge("refused"), 1);
}

#[test]
fn a_single_replica_answers_when_its_entries_are_durable() {
    let mut bench = Bench::<crate::two_phase_locking::Locking<false>>::new();
    assert!(matches!(bench.write(1)[..], [Reply::Executed(_)]));
    // After a pause, so that the window has to reach further.
    bench.set_clock_us(NOW_US + 300_000);
    let durable = bench.nodes[0].records.len();
    let replies = bench.write(300_000);
    assert!(matches!(replies[..], [Reply::Refused { .. }]), "{replies:?}");
    let shot = shot(txn(600_000), &["y"], &[], &[]);
    assert!(bench.nodes[0].records.len() > durable && bench.early.is_empty(), "{:?}", bench.early);
    let replies = bench.ask(Request::Shot(shot));
    assert!(matches!(replies[..], [Reply::Executed(_)]), "{replies:?}");
    assert_eq!(bench.early, []);
}

#[test]
fn open_transactions_are_bounded_and_can_end() {
    let mut bench = Bench::<Queues<false>>::new();
    let read = |us| Request::Shot(shot(txn(us), &[&u64::to_string(&us)], &[], &[]));
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
fn refusals_are_bounded_and_forgotten_ones_are_late() {
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
fn a_transaction_that_runs_too_long_is_refused_with_that_reason() {
    let mut bench = Bench::<Queues<false>>::new();
    let read = |number| Request::Shot(Shot { number, ..shot(txn(1), &["x"], &[], &[]) });
    bench.ask(read(1));
    let limit_ms = Settings::default().truncation_lag_ms;
    for _ in 0..limit_ms / 500 {
        bench.ask(Request::Alive(vec![txn(1)]));
        bench.wait(Duration::from_millis(500));
    }
    let reason = Refusal::TooLong { limit_ms };
    assert_eq!(bench.ask(read(2)), [Reply::Refused { txn: txn(1), reason }]);
}

/// The modifications are small. What they make is not.
#[test]
fn a_part_that_would_be_too_large_is_refused_and_others_go_on() {
    fn with_large_values<C: Control>() -> Bench<C> {
        let mut bench = Bench::<C>::new();
        let large = Some(Value::from(vec![7; 12 << 20].as_slice()));
        for (us, key) in [(1, "a"), (2, "b"), (3, "c")] {
            let write = Write { key: Key::from(key), value: large.clone() };
            let put = Shot { writes: vec![write], ..shot(txn(us), &[], &[], &[0]) };
            bench.ask(Request::Shot(put));
            bench.commit(txn(us), Stamp::assigned(txn(us)));
        }
        bench
    }
    fn appends(us: u64, keys: &[&str]) -> Request {
        let modify = |key: &&str| Modify {
            key: Key::from(*key),
            modifications: vec![Modification::Append(Value::from("x")).within(16 << 20)],
        };
        let modifies = keys.iter().map(modify).collect();
        Request::Shot(Shot { modifies, ..shot(txn(us), &[], &[], &[0]) })
    }
    // What it follows from was small, and is aborted.
    fn refused_when_made_anew() {
        let mut bench = with_large_values::<Queues<false>>();
        bench.ask(Request::Shot(shot(txn(10), &[], &["a"], &[0, 1])));
        assert_eq!(bench.ask(appends(20, &["a", "b", "c"])), []);
        let told = bench.ask(Request::End { txn: txn(10), decision: Decision::Abort });
        let ended = Reply::Decided { txn: txn(20), decision: Decision::Abort };
        assert!(told.contains(&ended), "{told:?}");
    }
    fn refused<C: Control>() {
        let mut bench = with_large_values::<C>();
        let told = bench.ask(appends(10, &["a", "b", "c"]));
        let [Reply::Refused { reason: Refusal::TooLarge { bytes, .. }, .. }] = told[..] else {
            panic!("{}: {told:?}", C::NAME)
        };
        assert!(bytes > 36 << 20);
        let told = bench.ask(appends(20, &["a", "b"]));
        assert!(matches!(told[..], [Reply::Executed(_)]), "{}: {told:?}", C::NAME);
    }
    refused::<Queues<false>>();
    refused_when_made_anew();
    refused::<Versions>();
    refused::<Locking<false>>();
    refused::<Validation<Locks>>();
}

#[test]
fn the_end_of_the_window_is_not_within_it() {
    let unknown = |txn| [Request::Inspect { txn }, Request::End { txn, decision: Decision::Abort }];
    for ask in 0..4 {
        let mut bench = Bench::<Versions>::new();
        assert_eq!(found(&bench.glance(1)), Some(Version::INITIAL));
        let window = bench.window();
        let after_us = window.to_us - NOW_US;
        let replies = match ask {
            0 => bench.write(after_us),
            1 => bench.glance(after_us),
            _ => bench.ask(unknown(txn(after_us))[ask - 2].clone()),
        };
        let extended = bench.window() != window;
        assert_eq!(
            extended,
            ask < 3,
            "a final answer needs a window that contains the transaction: {replies:?}"
        );
        assert!(ask == 3 || replies.len() == 1, "{ask}: {replies:?}");
    }
}

#[test]
fn a_refusal_at_the_end_of_the_window_goes_into_the_log() {
    let mut bench = Bench::<Queues<false>>::new();
    assert!(matches!(bench.write(1)[..], [Reply::Executed(_)]));
    let after_us = bench.window().to_us - NOW_US;
    // The clock is set back, so that this is too far ahead.
    bench.set_clock_us(NOW_US - 2 * too_far_ahead_us());
    let said = bench.write(after_us);
    assert!(
        matches!(said[..], [Reply::Refused { reason: Refusal::ClockSkew { .. }, .. }]),
        "{said:?}"
    );
    // The next leader admits transactions that begin then, unless the log says otherwise.
    bench.set_clock_us(NOW_US);
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
        let to_us = bench.window().to_us;
        assert!((NOW_US + after_us + 1..=NOW_US + bound_us + 1).contains(&to_us), "{to_us}");
    }
}

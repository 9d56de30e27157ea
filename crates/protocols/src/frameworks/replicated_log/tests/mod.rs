//! Logs on a network whose messages the tests move.

mod forged;
mod formats;
mod leaders;
mod lost;
mod missing;
mod runs;

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use serried_actor::{Actor, Context, Group, NodeSet, Recover, Settings, Store, Timestamp};
use serried_model::{Key, NodeId};
use serried_parts::{Cells, decode_cell_of_another};

use super::{Ballot, Chosen, Entry, Host, Message, Record, ReplicatedLog, StateMachine, Timer};
use crate::testing::{self, derefs_to_net, set};

/// An entry, which adds to one of ten sums. A new leader removes late entries of [`FLEETING`] or
/// more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Add(u64);

impl Entry for Add {
    fn size(&self) -> usize {
        if self.0 >= LARGE { 1 << 20 } else { 8 }
    }
}

/// An actor with nothing but a log and a state machine of sums.
struct Bare {
    log: ReplicatedLog<Add>,
    sums: Sums,
}

impl Bare {
    fn new(id: NodeId, settings: &Settings, may_begin_anew: bool) -> Bare {
        let group = Group::new(3, Duration::from_millis(1));
        let mut log = ReplicatedLog::new(id, group, settings);
        if may_begin_anew {
            log = log.that_may_begin_anew();
        }
        Bare { log, sums: Sums(Cells::new(100)) }
    }
}

impl Actor for Bare {
    type Message = Message<Add>;
    type Timer = Timer;
    type Record = Record<Add>;
    type Output = ();

    fn on_start(&mut self, cx: &mut Context<'_, Self>) {
        self.log.on_start(&mut self.sums, cx);
    }

    fn on_message(&mut self, from: NodeId, message: Message<Add>, cx: &mut Context<'_, Self>) {
        self.log.on_message(from, message, &mut self.sums, cx);
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_, Self>) {
        self.log.on_timer(timer, &mut self.sums, cx);
    }

    fn on_durable(&mut self, cx: &mut Context<'_, Self>) {
        self.log.on_durable(&mut self.sums, cx);
    }
}

impl Recover for Bare {
    fn replay(&mut self, record: Record<Add>, _: &mut dyn Store) {
        self.log.replay(record);
    }

    fn rejoin(&mut self, cx: &mut Context<'_, Self>) {
        self.log.rejoin(cx);
    }
}

impl Host for Bare {
    type Entry = Add;

    fn message(message: Message<Add>) -> Message<Add> {
        message
    }

    fn record(record: Record<Add>) -> Record<Add> {
        record
    }

    fn timer(timer: Timer) -> Timer {
        timer
    }
}

const FLEETING: u64 = 1000;
/// Entries of this number or more are large.
const LARGE: u64 = 1 << 32;

/// Sums, each with the slot up to which it is complete.
struct Sums(Cells<(u64, u64)>);

impl StateMachine<Bare> for Sums {
    fn apply(&mut self, chosen: Chosen<'_, Add>, cx: &mut Context<'_, Bare>) {
        let Some(Add(number)) = chosen.entry else { return };
        let key = Key::from((number % 10).to_be_bytes());
        let (as_of, sum) = self.0.change(&key, chosen.position, cx.store());
        if *as_of <= chosen.slot {
            (*as_of, *sum) = (chosen.slot + 1, *sum + number);
        }
    }

    fn revise(&self, _: u64, inherited: &mut [Option<Add>]) {
        for entry in inherited {
            *entry = entry.filter(|Add(number)| *number < FLEETING);
        }
    }

    fn store_all(&mut self, store: &mut dyn Store) {
        self.0.store_some(usize::MAX, store);
    }

    fn needs_log_from(&self) -> Option<u64> {
        self.0.needs_log_from()
    }

    fn take_over(&mut self, key: &Key, state: &[u8], store: &mut dyn Store) -> bool {
        let Some(state) = decode_cell_of_another::<(u64, u64)>(state) else { return false };
        if state.0 >= self.0.get(key, store).0 {
            self.0.put(key, state, store);
        }
        true
    }
}

/// Three replicas and the messages between them.
struct Net {
    net: testing::Net<Bare>,
    settings: Settings,
    may_begin_anew: bool,
}

derefs_to_net!([] Net, net: testing::Net<Bare>);

impl Net {
    /// Creates three replicas. The first leads.
    fn led(settings: Settings, may_begin_anew: bool) -> Net {
        let mut net = testing::Net::new(1, 3, |id| Bare::new(id, &settings, may_begin_anew));
        net.now = 1;
        net.start();
        let mut net = Net { net, settings, may_begin_anew };
        net.settle();
        net
    }

    fn new() -> Net {
        Net::led(Settings::default(), false)
    }

    fn that_may_begin_anew() -> Net {
        Net::led(Settings::default(), true)
    }

    /// The messages with which the first replica, which leads, proposes an entry. They are still on their way.
    fn network_of_leader(&mut self, number: u64) -> Vec<(NodeId, NodeId, Message<Add>)> {
        self.propose(0, number);
        self.timer(0, Timer::Flush);
        self.network.drain(..).collect()
    }

    fn act<T>(
        &mut self,
        member: usize,
        act: impl FnOnce(&mut ReplicatedLog<Add>, &mut Sums, &mut Context<'_, Bare>) -> T,
    ) -> T {
        self.net.act(member, |Bare { log, sums }, cx| act(log, sums, cx))
    }

    fn timer(&mut self, member: usize, timer: Timer) {
        self.fire(member, timer);
    }

    /// Delivers all messages. A leader proposes its queued entries at once.
    fn settle(&mut self) {
        loop {
            self.fire_where_set(Timer::Flush);
            if !self.step() {
                return;
            }
        }
    }

    fn propose(&mut self, member: usize, number: u64) {
        let slot = self.act(member, |log, _, cx| log.propose(Some(Add(number)), cx));
        assert!(slot.is_some(), "{member} leads and has room");
    }

    /// Advances the time beyond the time-out for a silent leader. Then `member` looks for a new
    /// one.
    fn elect(&mut self, member: usize) {
        self.wait(Duration::from_secs(3));
        self.timer(member, Timer::Elect);
        self.settle();
    }

    /// Makes the leader send a beat.
    fn beat(&mut self, member: usize) {
        self.wait(Duration::from_millis(400));
        self.timer(member, Timer::Lead);
        self.settle();
    }

    fn leads(&self, member: usize) -> bool {
        self.nodes[member].log.leads().is_some()
    }

    fn sums(&mut self, member: usize) -> u64 {
        let node = &mut self.nodes[member];
        let (sums, store) = (&mut node.actor.sums, &node.store);
        (0..10u64).map(|key| sums.0.get(&Key::from(key.to_be_bytes()), store).1).sum()
    }

    /// Stops a replica and starts it again with its disk.
    fn restart(&mut self, member: usize) {
        let fresh = Bare::new(NodeId(member as u64), &self.settings, self.may_begin_anew);
        self.net.restart(member, fresh);
    }

    /// Stops a replica and starts it again without the last `records` records of its log.
    fn restart_without_last(&mut self, member: usize, records: usize) {
        let node = &mut self.nodes[member];
        node.keep_records(node.records.len() - records);
        self.restart(member);
    }

    /// Replaces a replica whose disk is lost.
    fn lose(&mut self, member: usize) {
        self.network.retain(|(from, to, _)| from.member() != member && to.member() != member);
        let fresh = Bare::new(NodeId(member as u64), &self.settings, self.may_begin_anew);
        self.net.replace(member, fresh);
    }
}

#[test]
fn accepted_covers_a_prefix_under_loss_repetition_and_reordering() {
    let mut net = Net::new();
    let ballot = net.nodes[0].log.acceptor.promised();
    let accept = |first: u64, numbers: &[u64]| Message::Accept {
        ballot,
        first,
        chosen: 0,
        entries: numbers.iter().map(|number| Some(Add(*number))).collect(),
    };
    let mut told = |accept: Message<Add>| {
        net.deliver((NodeId(0), NodeId(1), accept));
        let Some((_, _, Message::Accepted { matched, .. })) = net.network.pop_back() else {
            panic!("it answers")
        };
        (matched, net.nodes[1].records.len())
    };
    let (matched, records) = told(accept(1, &[2, 3]));
    assert_eq!(matched, 0);
    assert_eq!(told(accept(3, &[4])), (0, records + 1));
    assert_eq!(told(accept(0, &[1])), (4, records + 2));
    assert_eq!(told(accept(1, &[2, 3])), (4, records + 2), "repeated, and nothing is appended");
}

#[test]
fn entries_that_come_in_one_turn_go_in_one_message() {
    let mut net = Net::new();
    (0..5).for_each(|number| net.propose(0, number));
    assert!(net.network.is_empty());
    net.timer(0, Timer::Flush);
    let batches = net.network.iter().filter_map(|(_, _, message)| match message {
        Message::Accept { entries, .. } => Some(entries.len()),
        _ => None,
    });
    assert_eq!(batches.collect::<Vec<_>>(), [5, 5]);
}

#[test]
fn a_thrifty_leader_sends_to_the_nearest_and_to_all_once_one_is_slow() {
    let mut net = Net::led(Settings { thrifty: true, ..Settings::default() }, false);
    let accepts = |net: &Net| -> Vec<u64> {
        let accepts = net.network.iter().filter(|(_, _, m)| matches!(m, Message::Accept { .. }));
        accepts.map(|(_, to, _)| to.0).collect()
    };
    net.propose(0, 7);
    net.timer(0, Timer::Flush);
    assert_eq!(accepts(&net), [1]);
    net.settle();
    assert_eq!(net.sums(0), 7);
    net.away = set(&[1]);
    net.propose(0, 8);
    net.settle();
    assert_eq!(net.sums(0), 7);
    (0..3).for_each(|_| net.beat(0));
    assert_eq!(net.sums(0), 15, "2 has it, and the entries that it was spared before");
    net.propose(0, 9);
    net.timer(0, Timer::Flush);
    assert_eq!(accepts(&net), [2], "a slow follower gets only beats");
}

#[test]
fn a_leader_proposes_no_more_than_there_is_room_for() {
    let mut net = Net::new();
    net.away = set(&[1, 2]);
    let mut proposed = 0;
    while net.act(0, |log, _, cx| log.propose(Some(Add(1)), cx)).is_some() {
        proposed += 1;
        assert!(proposed < 1_000_000);
    }
    net.away = NodeSet::EMPTY;
    net.settle();
    assert_eq!(net.sums(0), proposed);
    net.propose(0, 1);
}

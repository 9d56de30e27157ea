//! Logs with the messages between them moved by hand.

mod forged;
mod leaders;
mod lost;
mod runs;

use core::time::Duration;
use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use serried_actor::{
    Actor, ClockInterval, Context, Durable, Effect, Group, MemoryStore, NodeSet, Settings, Store,
    Timestamp,
};
use serried_model::{Key, NodeId};
use serried_parts::{Cells, decode_cell_of_another};

use super::{Ballot, Chosen, Entry, Host, Message, Record, ReplicatedLog, StateMachine, Timer};

/// An entry: adds to one of ten sums. One of [`FLEETING`] or more does so unless a new leader finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Add(u64);

impl Entry for Add {
    fn size(&self) -> usize {
        8
    }
}

/// An actor that is nothing but a log.
#[derive(Debug)]
struct Bare;

impl Actor for Bare {
    type Message = Message<Add>;
    type Timer = Timer;
    type Record = Record<Add>;
    type Output = ();

    fn on_message(&mut self, _: NodeId, _: Message<Add>, _: &mut Context<'_, Self>) {}

    fn on_timer(&mut self, _: Timer, _: &mut Context<'_, Self>) {}
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

/// Sums, each with the slot that it is as of.
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

struct Node {
    log: ReplicatedLog<Add>,
    sums: Sums,
    store: MemoryStore,
    records: VecDeque<Record<Add>>,
    log_position: u64,
    flush: bool,
}

/// Three replicas and the messages between them.
struct Net {
    settings: Settings,
    nodes: Vec<Node>,
    network: VecDeque<(NodeId, NodeId, Message<Add>)>,
    /// Messages to and from these are lost.
    away: NodeSet,
    now: Timestamp,
    random: Pcg64Mcg,
}

fn set(members: &[u64]) -> NodeSet {
    members.iter().map(|member| NodeId(*member)).collect()
}

fn node(member: u64, settings: &Settings) -> Node {
    Node {
        log: ReplicatedLog::new(NodeId(member), Group::new(3, Duration::from_millis(1)), settings),
        sums: Sums(Cells::new(100)),
        store: MemoryStore::default(),
        records: VecDeque::new(),
        log_position: 0,
        flush: false,
    }
}

impl Net {
    /// Three replicas, of which the first leads.
    fn led(settings: Settings) -> Net {
        let mut net = Net {
            nodes: (0..3).map(|member| node(member, &settings)).collect(),
            settings,
            network: VecDeque::new(),
            away: NodeSet::EMPTY,
            now: Timestamp(1),
            random: Pcg64Mcg::new(1),
        };
        (0..3).for_each(|member| net.act(member, |log, sums, cx| log.on_start(sums, cx)));
        net.settle();
        net
    }

    fn new() -> Net {
        Net::led(Settings::default())
    }

    fn act<T>(
        &mut self,
        member: usize,
        act: impl FnOnce(&mut ReplicatedLog<Add>, &mut Sums, &mut Context<'_, Bare>) -> T,
    ) -> T {
        let mut effects: Vec<Effect<Bare>> = Vec::new();
        let node = &mut self.nodes[member];
        let clock = ClockInterval { earliest_us: 5, latest_us: 5 };
        let durable = Durable {
            store: &mut node.store,
            log_position: node.log_position,
            durable_position: u64::MAX,
        };
        let id = NodeId(member as u64);
        let mut cx = Context::new(id, self.now, clock, &mut self.random, &mut effects, durable);
        let done = act(&mut node.log, &mut node.sums, &mut cx);
        node.log_position = cx.log_position();
        for effect in effects {
            match effect {
                Effect::Send { to, message } | Effect::SendBeforeDurable { to, message } => {
                    self.network.push_back((id, to, message))
                }
                Effect::Broadcast { to, message, .. } => {
                    let each = to.members().map(|to| (id, NodeId(to as u64), message.clone()));
                    self.network.extend(each);
                }
                Effect::Append(record) => node.records.push_back(record),
                Effect::TrimLog(position) => {
                    let kept = (node.log_position - position) as usize;
                    let trimmed = node.records.len().saturating_sub(kept);
                    node.records.drain(..trimmed);
                }
                Effect::SetTimer { timer, .. } => node.flush |= timer == Timer::Flush,
                _ => {}
            }
        }
        done
    }

    fn timer(&mut self, member: usize, timer: Timer) {
        self.act(member, |log, sums, cx| log.on_timer(timer, sums, cx));
    }

    /// Delivers one message.
    fn deliver(&mut self, (from, to, message): (NodeId, NodeId, Message<Add>)) {
        if !self.away.contains(from) && !self.away.contains(to) {
            self.act(to.member(), |log, sums, cx| log.on_message(from, message, sums, cx));
        }
    }

    fn settle(&mut self) {
        loop {
            for member in 0..3 {
                if core::mem::take(&mut self.nodes[member].flush) {
                    self.timer(member, Timer::Flush);
                }
            }
            let Some(next) = self.network.pop_front() else { return };
            self.deliver(next);
        }
    }

    fn propose(&mut self, member: usize, number: u64) {
        let slot = self.act(member, |log, _, cx| log.propose(Some(Add(number)), cx));
        assert!(slot.is_some(), "{member} leads and has room");
    }

    /// Lets so much time pass that a leader which was not heard of is taken for dead; a member that there
    /// is then looks for one.
    fn elect(&mut self, member: usize) {
        self.now = self.now + Duration::from_secs(3);
        self.timer(member, Timer::Elect);
        self.settle();
    }

    /// Has the leader beat.
    fn beat(&mut self, member: usize) {
        self.now = self.now + Duration::from_millis(400);
        self.timer(member, Timer::Lead);
        self.settle();
    }

    fn leads(&self, member: usize) -> bool {
        self.nodes[member].log.leads().is_some()
    }

    fn sums(&mut self, member: usize) -> u64 {
        let Node { sums, store, .. } = &mut self.nodes[member];
        (0..10u64).map(|key| sums.0.get(&Key::from(key.to_be_bytes()), store).1).sum()
    }

    /// Stops a replica and starts it again, with what it had made durable.
    fn restart(&mut self, member: usize) {
        let old = core::mem::replace(&mut self.nodes[member], node(member as u64, &self.settings));
        let new = &mut self.nodes[member];
        (new.store, new.log_position) = (old.store, old.log_position);
        old.records.iter().for_each(|record| new.log.replay(record.clone()));
        new.records = old.records;
        self.act(member, |log, sums, cx| log.on_start(sums, cx));
    }

    /// The same, but that the last records of what it had made durable are gone.
    fn restart_without_last(&mut self, member: usize, records: usize) {
        let node = &mut self.nodes[member];
        node.records.truncate(node.records.len() - records);
        node.log_position -= records as u64;
        self.restart(member);
    }

    /// The disk of a replica is lost, and another takes its place.
    fn lose(&mut self, member: usize) {
        self.nodes[member] = node(member as u64, &self.settings);
        self.network.retain(|(from, to, _)| from.member() != member && to.member() != member);
        self.act(member, |log, sums, cx| {
            log.rejoin(cx);
            log.on_start(sums, cx);
        });
    }
}

#[test]
fn accepted_tells_of_a_prefix_however_messages_are_lost_repeated_and_reordered() {
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
    let mut net = Net::led(Settings { thrifty: true, ..Settings::default() });
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
    assert_eq!(net.sums(0), 15, "2 has it, and what it was spared before");
    net.propose(0, 9);
    net.timer(0, Timer::Flush);
    assert_eq!(accepts(&net), [2], "who is slow is sent no more than beats");
}

#[test]
fn a_leader_takes_no_more_than_there_is_room_for() {
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

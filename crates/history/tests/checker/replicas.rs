//! Transactions with known writers of what they read, and replicas that pass writes on in causal order.

use std::collections::VecDeque;

use serried_history::{EventKind, History, MicroOperation, ReadResult, Recorder};
use serried_model::Version;

use crate::support::{Random, version};

/// A transaction that reads keys, then writes keys.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) process: u64,
    /// If false, its outcome is unknown, and its reads are not recorded.
    pub(crate) committed: bool,
    /// Each key, and the transaction that wrote what it found. `None` if nobody did.
    pub(crate) reads: Vec<(u64, Option<usize>)>,
    pub(crate) writes: Vec<u64>,
}

/// The value that a transaction writes to a key. No other write has it.
fn value(writer: usize, key: u64) -> u64 {
    100 * writer as u64 + key
}

/// The history in which the transactions run one after the other.
pub(crate) fn history(transactions: &[Planned], with_versions: bool) -> History {
    let recorder = Recorder::with_capacity(2 * transactions.len());
    let at = |writer: usize| version(writer as u64 + 1);
    for (number, Planned { process, committed, reads, writes }) in transactions.iter().enumerate() {
        let read = |result: ReadResult, key: u64| MicroOperation::Read { key, result };
        let written = writes.iter().map(|&key| {
            let value = Some(value(number, key));
            MicroOperation::Write { key, value }
        });
        let pending = reads.iter().map(|&(key, _)| read(ReadResult::Pending, key));
        let begun: Vec<MicroOperation> = pending.chain(written.clone()).collect();
        let time_ns = 2 * number as u64;
        recorder.invoke(*process, time_ns, begun.clone());
        let version = with_versions.then(|| at(number));
        if !committed {
            let (kind, end) = (EventKind::Info, time_ns + 1);
            recorder.complete(*process, end, kind, begun, version, Vec::new(), None);
            continue;
        }
        let found = reads.iter().map(|&(key, writer)| {
            read(ReadResult::Register(writer.map(|writer| value(writer, key))), key)
        });
        let read_versions = match with_versions {
            true => reads.iter().map(|(_, it)| it.map_or(Version::INITIAL, at)).collect(),
            false => Vec::new(),
        };
        let operations = found.chain(written).collect();
        let (kind, end) = (EventKind::Ok, time_ns + 1);
        recorder.complete(*process, end, kind, operations, version, read_versions, None);
    }
    recorder.into_history()
}

/// Which of two writes of a key stays at a replica.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Wins {
    /// The one that arrives last.
    LastArrival,
    /// The one with the later logical time.
    LastTime,
}

/// Writes on their way from one replica to another.
#[derive(Clone)]
struct Message {
    writer: usize,
    writes: Vec<u64>,
    /// How many messages of each process come before it in the causal order.
    causes: Vec<u64>,
    time: (u64, u64),
}

/// One process and its copy of all keys.
struct Replica {
    keys: Vec<Option<(usize, (u64, u64))>>,
    /// How many messages of each process it has applied.
    applied: Vec<u64>,
    /// From each process, in order.
    inboxes: Vec<VecDeque<Message>>,
    time: u64,
}

impl Replica {
    fn apply(&mut self, message: &Message, from: usize, wins: Wins) {
        self.applied[from] += 1;
        self.time = self.time.max(message.time.0);
        for &key in &message.writes {
            let place = &mut self.keys[key as usize];
            if wins == Wins::LastArrival || place.is_none_or(|(_, time)| time < message.time) {
                *place = Some((message.writer, message.time));
            }
        }
    }

    /// Applies the next message from a process, if all that come before it have been applied.
    fn deliver(&mut self, from: usize, wins: Wins) {
        let is_next = |message: &Message| {
            message.causes.iter().zip(&self.applied).all(|(cause, applied)| cause <= applied)
        };
        if self.inboxes[from].front().is_some_and(is_next) {
            let message = self.inboxes[from].pop_front().expect("a message");
            self.apply(&message, from, wins);
        }
    }
}

/// Runs transactions, each on the replica of its process. A few have an unknown outcome.
pub(crate) fn run(
    random: &mut Random,
    [transactions, processes, keys]: [u64; 3],
    wins: Wins,
) -> Vec<Planned> {
    let count = processes as usize;
    let replica = || Replica {
        keys: vec![None; keys as usize],
        applied: vec![0; count],
        inboxes: vec![VecDeque::new(); count],
        time: 0,
    };
    let mut replicas: Vec<Replica> = (0..count).map(|_| replica()).collect();
    let mut planned: Vec<Planned> = Vec::new();
    while (planned.len() as u64) < transactions {
        let process = random.below(processes) as usize;
        let replica = &mut replicas[process];
        for _ in 0..random.below(processes) {
            let from = random.below(processes) as usize;
            replica.deliver(from, wins);
        }
        let mut pick = |most: u64| {
            let mut picked: Vec<u64> =
                (0..random.below(most)).map(|_| random.below(keys)).collect();
            picked.sort_unstable();
            picked.dedup();
            picked
        };
        let (read, writes) = (pick(3), pick(3));
        let writer = planned.len();
        let found = |&key: &u64| (key, replica.keys[key as usize].map(|(writer, _)| writer));
        let reads = read.iter().map(found).collect();
        // A transaction of unknown outcome without operations could have done anything.
        let committed = !random.one_in(20) || read.is_empty() && writes.is_empty();
        planned.push(Planned { process: process as u64, committed, reads, writes: writes.clone() });
        if writes.is_empty() {
            continue;
        }
        let time = (replica.time + 1, process as u64);
        let message = Message { writer, writes, causes: replica.applied.clone(), time };
        replica.apply(&message, process, wins);
        for other in (0..count).filter(|other| *other != process) {
            replicas[other].inboxes[process].push_back(message.clone());
        }
    }
    planned
}

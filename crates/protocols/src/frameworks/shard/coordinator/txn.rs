//! A transaction as its coordinator sees it.

use std::collections::{BTreeMap, BTreeSet};

use serried_actor::Timestamp;
use serried_model::{Key, Version, Write};

use super::super::message::Shot;
use super::super::stamp::{Stamp, Validity};
use super::snapshot::Snapshot;

/// How far a transaction has got.
#[derive(Debug)]
pub(super) enum Phase {
    /// Its program runs.
    Running,
    /// All that it does is known, and what has to be executed before it is prepared is being executed. These
    /// writes are still to be sent.
    Executing(Vec<Write>),
    /// Its last shots are under way.
    Preparing,
    /// Its shards are asked to have it hold at another moment; these do.
    Moving(Stamp, BTreeSet<u16>),
}

/// A transaction that is open.
#[derive(Debug)]
pub(super) struct Txn {
    /// Once something was sent.
    pub(super) version: Option<Version>,
    pub(super) phase: Phase,
    /// While it reads without being prepared.
    pub(super) snapshot: Option<Snapshot>,
    /// All of it is known: once its reads are answered it commits.
    pub(super) one_shot: bool,
    /// Keys that are to be read, and were not asked for.
    pub(super) wanted: Vec<Key>,
    /// What was sent and not answered, by shard and number.
    pub(super) asked: BTreeMap<(u16, u16), Asked>,
    /// Those that it has sent something to.
    pub(super) shards: BTreeMap<u16, Part>,
    pub(super) repeated: u32,
    /// Its program has given it up while it was being prepared.
    pub(super) abandoned: bool,
    pub(super) began: Timestamp,
}

/// A shot under way.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) shot: Shot,
    /// The client's clock when it was sent, in microseconds.
    pub(super) sent_us: u64,
}

/// A shard's part in a transaction.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The number of its last shot.
    pub(super) shots: u16,
    /// When it holds, once it is prepared.
    pub(super) validity: Option<Validity>,
}

impl Txn {
    pub(super) fn new(snapshot: Option<Snapshot>, now: Timestamp) -> Txn {
        Txn {
            version: None,
            phase: Phase::Running,
            snapshot,
            one_shot: false,
            wanted: Vec::new(),
            asked: BTreeMap::new(),
            shards: BTreeMap::new(),
            repeated: 0,
            abandoned: false,
            began: now,
        }
    }

    /// Whether its program can't do anything any more that changes how it ends.
    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.phase, Phase::Preparing | Phase::Moving(..))
    }

    /// The number of the next shot at a shard.
    pub(super) fn next_shot(&mut self, shard: u16) -> u16 {
        let part = self.shards.entry(shard).or_default();
        part.shots += 1;
        part.shots
    }
}

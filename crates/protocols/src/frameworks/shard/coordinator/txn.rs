//! A transaction at its coordinator.

use std::collections::{BTreeMap, BTreeSet};

use serried_actor::Timestamp;
use serried_model::{Key, Version};

use super::super::message::Shot;
use super::super::stamp::{Stamp, Validity};
use super::prepare::Changes;
use super::snapshot::Snapshot;

/// How far a transaction has got.
#[derive(Debug)]
pub(super) enum Phase {
    /// Its program runs.
    Running,
    /// Its program has ended. The remaining shots are executed first; then these changes are sent.
    Executing(Changes),
    /// Its last shots are under way.
    Preparing,
    /// Its parts are being moved to another moment. Those of these shards hold at it already.
    Moving(Stamp, BTreeSet<u16>),
}

/// An open transaction.
#[derive(Debug)]
pub(super) struct Txn {
    /// Its version, once a message has needed one.
    pub(super) version: Option<Version>,
    /// The version of its first attempt, if this is another one.
    pub(super) age: Option<Version>,
    pub(super) phase: Phase,
    /// Its reads without parts, while it runs without them.
    pub(super) snapshot: Option<Snapshot>,
    /// Whether its program is known as a whole. Then it commits as soon as its reads are answered.
    pub(super) one_shot: bool,
    /// Keys that the program has requested and that were not yet sent to shards, and whether it will write them.
    pub(super) wanted: Vec<(Key, bool)>,
    /// The keys that it reads for update, at most `LOCKED_AT_MOST`, if writes take a round to be locked.
    pub(super) locked: Vec<Key>,
    /// The shots that were sent and not answered, by shard and number.
    pub(super) asked: BTreeMap<(u16, u16), Asked>,
    /// The shards to which it has sent anything.
    pub(super) shards: BTreeMap<u16, Part>,
    pub(super) repeated: u32,
    /// Whether a request was repeated, or a shard has another leader since.
    pub(super) is_disturbed: bool,
    /// Whether its program abandoned it while it was being prepared.
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
    pub(super) fn new(snapshot: Option<Snapshot>, age: Option<Version>, now: Timestamp) -> Txn {
        Txn {
            version: None,
            age,
            phase: Phase::Running,
            snapshot,
            one_shot: false,
            wanted: Vec::new(),
            locked: Vec::new(),
            asked: BTreeMap::new(),
            shards: BTreeMap::new(),
            repeated: 0,
            is_disturbed: false,
            abandoned: false,
            began: now,
        }
    }

    /// Whether a shard may have a part of it.
    pub(super) fn concerns(&self, shard: u16) -> bool {
        self.shards.contains_key(&shard)
    }

    /// Whether its outcome no longer depends on its program.
    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.phase, Phase::Preparing | Phase::Moving(..))
    }

    /// Whether it has the locks that it needs for these changes: it has read their keys for update, and was answered.
    pub(super) fn has_locked(&self, changes: &Changes) -> bool {
        let is_answered = self.wanted.is_empty() && self.asked.is_empty();
        is_answered && changes.keys().all(|key| self.locked.contains(key))
    }

    /// The number of the next shot at a shard.
    pub(super) fn next_shot(&mut self, shard: u16) -> u16 {
        let part = self.shards.entry(shard).or_default();
        part.shots += 1;
        part.shots
    }
}

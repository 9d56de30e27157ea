//! A call that has ended, or is ended now: whether it has committed, and what it has returned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_model::Version;
use serried_procedures::{Call, Outcome};

use super::super::super::calls::InUse;
use super::super::super::message::{Decision, Kept, Refusal, Request};
use super::done;

/// What is known of a call.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) call: Version,
    /// The shards in which it has not committed and never will.
    refused: BTreeSet<u16>,
    /// Whether one of these may have forgotten it.
    forgotten: bool,
    /// Whether it has committed.
    committed: bool,
    /// By participant, what it has kept, once it has answered. At first, a shard that knows that the call has committed.
    parts: BTreeMap<u16, Option<Arc<Kept>>>,
}

/// What an answer leads to.
#[derive(Debug)]
pub(super) enum Known {
    /// Nothing yet.
    Wait,
    /// Shards have to be asked.
    Ask,
    /// Another set of procedures than the known one has to be asked for.
    NeedsSet,
    /// This is how it has ended.
    Ended(Outcome),
}

impl Past {
    /// A call of which nothing is known.
    pub(super) fn new(call: Version) -> Past {
        Past {
            call,
            refused: BTreeSet::new(),
            forgotten: false,
            committed: false,
            parts: BTreeMap::new(),
        }
    }

    /// A call that has committed, as `shard` knows.
    pub(super) fn committed(call: Version, shard: u16) -> Past {
        Past { committed: true, parts: BTreeMap::from([(shard, None)]), ..Past::new(call) }
    }

    /// The requests that were not answered. There are `shards` shards.
    pub(super) fn unanswered(&self, shards: u16) -> Vec<(u16, Request)> {
        let txn = self.call;
        if self.committed {
            let missing = self.parts.iter().filter(|(_, kept)| kept.is_none());
            return missing.map(|(shard, _)| (*shard, Request::Kept { txn })).collect();
        }
        let missing = (0..shards).filter(|shard| !self.refused.contains(shard));
        missing.map(|shard| (shard, Request::Resolve { txn })).collect()
    }

    /// A shard reports how the call has ended.
    pub(super) fn on_decided(&mut self, shard: u16, shards: u16, decision: Decision) -> Known {
        match decision {
            Decision::Commit(_) if self.committed => Known::Wait,
            Decision::Commit(_) => {
                *self = Past::committed(self.call, shard);
                Known::Ask
            }
            // The shard may have no part of it, and may only have been asked before.
            Decision::Abort => self.on_refused(shard, shards, &Refusal::CONFLICT),
        }
    }

    /// A shard reports that it has no part of the call, or will never commit it.
    pub(super) fn on_refused(&mut self, shard: u16, shards: u16, reason: &Refusal) -> Known {
        if self.committed {
            return Known::Wait;
        }
        self.refused.insert(shard);
        self.forgotten |= matches!(reason, Refusal::Forgotten { .. });
        match (self.refused.len() == usize::from(shards), self.forgotten) {
            (false, _) => Known::Wait,
            (true, true) => Known::Ended(Outcome::Forgotten),
            (true, false) => Known::Ended(Outcome::NoEffect),
        }
    }

    /// A shard reports what it has kept. `set` is the set of procedures that is known to be in use.
    pub(super) fn on_kept(
        &mut self,
        shard: u16,
        kept: Option<Arc<Kept>>,
        set: Option<&Arc<InUse>>,
    ) -> Known {
        if !self.committed || !self.parts.contains_key(&shard) {
            return Known::Wait;
        }
        let Some(kept) = kept else { return Known::Ended(Outcome::Forgotten) };
        let before = self.parts.len();
        for participant in kept.participants.iter() {
            self.parts.entry(*participant).or_default();
        }
        self.parts.insert(shard, Some(kept));
        match self.parts.len() > before {
            true => Known::Ask,
            false => self.results(set),
        }
    }

    /// The results, if all parts are known.
    pub(super) fn results(&self, set: Option<&Arc<InUse>>) -> Known {
        let parts: Option<Vec<&Arc<Kept>>> = self.parts.values().map(Option::as_ref).collect();
        let (true, Some(parts)) = (self.committed, parts) else { return Known::Wait };
        let Some(of) = parts.first().map(|kept| kept.call.clone()) else { return Known::Wait };
        let Some(set) = set.filter(|set| set.version >= of.set) else { return Known::NeedsSet };
        // Under another set, the results can't be computed any more.
        let lost = Known::Ended(Outcome::Forgotten);
        let procedure = set.procedure(of.procedure).filter(|_| set.version == of.set);
        let Some(procedure) = procedure else { return lost };
        let Ok(mut call) = Call::new(procedure, of.inputs.clone()) else { return lost };
        // The outputs of pieces lead to further pieces.
        while !call.has_executed_all() {
            let started = call.start(procedure);
            let mut is_news = started.is_ok_and(|started| !started.is_empty());
            for piece in parts.iter().flat_map(|kept| &kept.ran.pieces) {
                let at = (piece.piece, piece.number);
                is_news |= call.executed(procedure, at, piece.outputs.clone()).unwrap_or(false);
            }
            if !is_news {
                return lost; // No correct shard leaves pieces out.
            }
        }
        match call.results(procedure) {
            Ok(data) => Known::Ended(done(set, of.procedure, data)),
            Err(refused) => Known::Ended(Outcome::Refused(refused)),
        }
    }
}

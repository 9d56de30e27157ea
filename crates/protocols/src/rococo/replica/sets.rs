//! Which set of procedures is in use.
//!
//! A new set can change which pieces are immediate. So it takes effect only when all calls under the former set have ended,
//! at all partitions. The first partition decides:
//!
//! 1. It puts the new set into its log ([`Entry::Drain`]). From then on it starts no call under the former set, unless
//!    another partition has started the call. It asks the other partitions to do the same.
//! 2. A partition has *drained* when all of its calls have ended. A call ends at a partition only after it was executed at all
//!    of its participants. A call that is started after step 1 somewhere was started before step 1 elsewhere, and has not
//!    ended there. So when every partition has drained, no call is left.
//! 3. The first partition puts the set in use ([`Entry::Install`]), and asks the others to do the same until they have.
//!
//! Every step is in a log, so a new leader goes on where the former one was. Calls name the version of their set. A partition
//! refuses a call under another set, before it has started a piece.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use serried_model::NodeId;
use serried_procedures::{PieceId, Procedure, ProcedureSet};

use super::super::message::{Entry, Registered, Reply, Request};
use super::super::{Mutation, OF_SETS};
use super::Cx;
use super::leader::{Common, Leader};

/// How many requests wait for a set that is not in use yet. The oldest are dropped, and clients send them again.
const EARLY_AT_MOST: usize = 1024;

/// What a leader knows of a change.
#[derive(Debug, Default)]
pub(super) struct Sets {
    /// The set of the last [`Entry::Drain`] that was proposed, with its version.
    draining: Option<(u64, Arc<ProcedureSet>)>,
    /// The version of the last [`Entry::Install`] that was proposed.
    installing: u64,
    /// The clients that wait until a set is in use.
    waiting: Vec<(NodeId, u64)>,
    /// The replica that waits until this partition has drained.
    asker: Option<NodeId>,
    /// At the first partition: the others that have drained, and those that use the set that is in use.
    drained: BTreeSet<u16>,
    installed: BTreeSet<u16>,
    /// Requests under a set that is not in use here yet, the oldest first.
    early: VecDeque<(NodeId, Request)>,
    /// Whether a step was chosen since other partitions were asked to take it, and since early requests have been tried.
    has_taken_step: bool,
}

impl Sets {
    /// A step of a change was chosen.
    pub(super) fn on_step(&mut self) {
        self.has_taken_step = true;
    }

    /// Keeps a request under a set that is not in use here yet.
    pub(super) fn keep(&mut self, from: NodeId, request: Request) {
        if self.early.len() == EARLY_AT_MOST {
            self.early.pop_front();
        }
        self.early.push_back((from, request));
    }
}

impl Leader {
    /// Whether calls are started only if another partition has started them.
    pub(super) fn is_draining(&self, common: &Common) -> bool {
        self.next_set(common).is_some()
    }

    fn next_set(&self, common: &Common) -> Option<(u64, Arc<ProcedureSet>)> {
        let in_use = version(common);
        let proposed = self.sets.draining.clone().filter(|(version, _)| *version > in_use);
        common.table.next_set().cloned().or(proposed)
    }

    pub(super) fn on_register(
        &mut self,
        from: (NodeId, u64),
        set: Arc<ProcedureSet>,
        replaces: Option<u64>,
        common: &Common,
    ) {
        let in_use = version(common);
        let reply = |end| Reply::Registered { number: from.1, end };
        if let Some((version, next)) = self.next_set(common) {
            if next != set {
                return self.proposals.confirm(from.0, reply(Registered::Superseded { version }));
            }
            if !self.sets.waiting.contains(&from) {
                self.sets.waiting.push(from);
            }
            return;
        }
        if common.table.set().is_some_and(|known| *known.set() == set) {
            return self.proposals.confirm(from.0, reply(Registered::InUse { version: in_use }));
        }
        if replaces.is_some_and(|replaces| replaces != in_use) {
            return self
                .proposals
                .confirm(from.0, reply(Registered::Superseded { version: in_use }));
        }
        if let Err(why) = fits(&set, common) {
            return self.proposals.confirm(from.0, reply(Registered::Unfit(why)));
        }
        self.sets.waiting = vec![from];
        self.drain(in_use + 1, set);
    }

    fn drain(&mut self, version: u64, set: Arc<ProcedureSet>) {
        self.sets.drained.clear();
        self.sets.draining = Some((version, set.clone()));
        self.proposals.put(Entry::Drain { version, set }, Vec::new());
    }

    fn install(&mut self, version: u64, set: Arc<ProcedureSet>, replies: Vec<(NodeId, Reply)>) {
        self.sets.installed.clear();
        self.sets.installing = version;
        self.proposals.put(Entry::Install { version, set }, replies);
    }

    pub(super) fn on_drain(
        &mut self,
        from: NodeId,
        new: u64,
        set: Arc<ProcedureSet>,
        common: &Common,
    ) {
        if new <= version(common) {
            return self.proposals.confirm(from, Reply::Drained { version: new });
        }
        if self.next_set(common).is_none_or(|(next, _)| next < new) {
            self.drain(new, set);
        }
        self.sets.asker = Some(from);
    }

    pub(super) fn on_install(
        &mut self,
        from: NodeId,
        new: u64,
        set: Arc<ProcedureSet>,
        common: &Common,
    ) {
        let reply = Reply::Installed { version: new };
        match new > version(common).max(self.sets.installing) {
            true => self.install(new, set, vec![(from, reply)]),
            false => self.proposals.confirm(from, reply),
        }
    }

    /// A partition has taken a step.
    pub(super) fn on_set_reply(&mut self, from: NodeId, reply: &Reply, common: &Common) {
        let at = from.partition();
        match reply {
            Reply::Drained { version }
                if self.next_set(common).is_some_and(|(next, _)| next == *version) =>
            {
                self.sets.drained.insert(at);
            }
            // A copy of the answer about the former set may come while the next one is being put in use.
            Reply::Installed { version: installed }
                if *installed >= version(common).max(self.sets.installing) =>
            {
                self.sets.installed.insert(at);
            }
            _ => {}
        }
    }

    /// Takes the next step of a change, if it is possible.
    pub(super) fn advance_sets(&mut self, common: &Common) {
        let Some((version, set)) = common.table.next_set().cloned() else {
            let in_use = version(common);
            if self.sets.draining.as_ref().is_some_and(|(draining, _)| *draining > in_use) {
                return; // The entry is not chosen.
            }
            for (to, number) in core::mem::take(&mut self.sets.waiting) {
                let end = Registered::InUse { version: in_use };
                self.proposals.confirm(to, Reply::Registered { number, end });
            }
            return;
        };
        let is_empty = common.table.open().is_empty() && self.has_no_calls();
        let drains = !common.mutation.is(Mutation::DoesNotDrain);
        if (drains && !is_empty) || self.sets.installing >= version {
            return;
        }
        if common.partition() != OF_SETS {
            if let Some(asker) = self.sets.asker.take() {
                self.proposals.confirm(asker, Reply::Drained { version });
            }
        } else if !drains || self.sets.drained.len() + 1 == usize::from(common.group.partitions()) {
            self.install(version, set, Vec::new());
        }
    }

    /// Goes on if a step was chosen: asks the other partitions to take it, and handles the requests that were early. Returns
    /// whether there was such a step.
    pub(super) fn follow_step(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> bool {
        if !core::mem::take(&mut self.sets.has_taken_step) {
            return false;
        }
        self.repeat_sets(common, cx);
        for (from, request) in core::mem::take(&mut self.sets.early) {
            self.on_request(from, request, common, cx);
        }
        true
    }

    /// Asks the partitions again that have not taken a step.
    pub(super) fn repeat_sets(&self, common: &Common, cx: &mut Cx<'_>) {
        if common.partition() != OF_SETS {
            return;
        }
        // A partition puts the set in use before it gets the next one: calls under it may have been started here.
        for at in (0..common.group.partitions()).filter(|at| *at != OF_SETS) {
            let in_use = common.table.set().filter(|_| !self.sets.installed.contains(&at));
            let next = common.table.next_set().filter(|_| !self.sets.drained.contains(&at));
            let request = match (in_use, next) {
                (Some(set), _) => {
                    Request::Install { version: set.version(), set: set.set().clone() }
                }
                (None, Some((version, set))) => {
                    Request::Drain { version: *version, set: set.clone() }
                }
                (None, None) => continue,
            };
            self.recoveries.send(at, request, &common.group, cx);
        }
    }
}

/// The version of the set that is in use; 0 if there is none.
fn version(common: &Common) -> u64 {
    common.table.set().map_or(0, |set| set.version())
}

/// Whether a set can replace the one that is in use.
fn fits(set: &ProcedureSet, common: &Common) -> Result<(), String> {
    let tables = common.table.set().map_or(&[][..], |known| known.tables());
    set.check_replacement(tables).map_err(|why| why.to_string())?;
    let can_be_ordered = |procedure: &Procedure| {
        procedure.pieces.iter().all(|piece| piece.immediate || !piece.body.can_fail)
    };
    let is_checked = |procedure: &Procedure| match procedure.is_read_only() {
        true => !procedure.ordered || can_be_ordered(procedure),
        false => {
            procedure.pieces.iter().all(|piece| {
                let is_executed = |PieceId(at): &PieceId| {
                    procedure.pieces.get(usize::from(*at)).is_some_and(|before| before.immediate)
                };
                (piece.immediate || !piece.needed && !piece.body.can_fail)
                    && piece.after.iter().all(is_executed)
            }) && procedure.merged.iter().flatten().all(|PieceId(at)| {
                procedure.pieces.get(usize::from(*at)).is_some_and(|piece| piece.immediate)
            }) && !procedure.ordered
        }
    };
    if let Some(procedure) = set.procedures.iter().find(|procedure| !is_checked(procedure)) {
        return Err(format!("the offline checker has not checked procedure `{}`", procedure.name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serried_model::Version;

    use super::*;

    #[test]
    fn the_oldest_early_requests_are_dropped_if_there_are_too_many() {
        let mut sets = Sets::default();
        let early = |number: usize| {
            let txn = Version::at(number as u64);
            (NodeId(7), Request::Ask { txn })
        };
        for number in 0..EARLY_AT_MOST + 3 {
            let (from, request) = early(number);
            sets.keep(from, request);
        }
        assert_eq!(sets.early.len(), EARLY_AT_MOST);
        assert_eq!(sets.early.front(), Some(&early(3)));
        assert_eq!(sets.early.back(), Some(&early(EARLY_AT_MOST + 2)));
    }
}

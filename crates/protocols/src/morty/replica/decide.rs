//! Decisions, and what carrying them out takes (000 §4.2, "Decide").

use std::collections::BTreeSet;
use std::sync::Arc;

use serried_actor::Observation;
use serried_model::{Key, NodeId, Version};
use serried_parts::WriteId;
use smallvec::SmallVec;

use super::{Cx, End, Execution, Places, Replica, observe_writes, reject};
use crate::morty::message::{Contents, Decision, Record, Settlement};

impl Replica {
    pub(super) fn on_decide(
        &mut self,
        from: NodeId,
        (version, eid): (Version, u32),
        decision: Decision,
        contents: Option<Arc<Contents>>,
        cx: &mut Cx,
    ) {
        let own = self.setup.id.partition();
        if contents.as_ref().is_some_and(|contents| !self.setup.is_sound(version, own, contents)) {
            let what = format_args!("a decision that {version} commits what no transaction can do");
            return reject(from, what, cx);
        }
        match (decision, self.settlement(version)) {
            (Decision::Abandon, _) => return self.on_abandoned(from, version, eid, cx),
            // Nothing is left to do.
            (_, Some(Settlement::Forgotten)) => {}
            (Decision::Commit, Some(Settlement::Committed { eid: other })) if other == eid => {}
            (Decision::Abort, Some(Settlement::Aborted)) => {}
            (Decision::Commit | Decision::Abort, Some(settlement)) => {
                let what = format_args!("{decision:?} of {version} ({eid}), but {settlement:?}");
                return reject(from, what, cx);
            }
            (Decision::Commit, None) => {
                let voted_on = self.voted_on(version, eid);
                let logged = voted_on.is_some();
                // The execution is unknown here. The coordinator gets no acknowledgement, so it sends the contents.
                let Some(contents) = voted_on.or(contents) else { return };
                self.commit(version, eid, contents, logged, cx);
            }
            // It was never admitted.
            (Decision::Abort, None)
                if self.setup.is_too_far_ahead(version, cx)
                    && !self.transactions.contains_key(&version) => {}
            (Decision::Abort, None) => self.abort(version, cx),
        }
        self.acknowledgements.add(from, version, cx);
    }

    /// The contents of an execution, if this replica's last vote on the transaction was on it.
    pub(super) fn voted_on(&self, version: Version, eid: u32) -> Option<Arc<Contents>> {
        let execution = self.transactions.get(&version)?.execution.as_ref()?;
        (execution.eid == eid && execution.vote.is_some()).then(|| execution.contents.clone())
    }

    /// The transaction commits as this execution. `logged` says that its contents are in the log.
    pub(super) fn commit(
        &mut self,
        version: Version,
        eid: u32,
        contents: Arc<Contents>,
        logged: bool,
        cx: &mut Cx,
    ) {
        cx.charge(contents.reads.len() + contents.writes.len());
        let waiters = self.carry_out(version, End::Committed(eid, &contents));
        observe_writes(version, &contents, cx);
        cx.observe(|| Observation::Committed {
            version,
            reads: contents.reads.iter().map(|r| (r.key.clone(), r.write.version)).collect(),
            writes: contents.writes.iter().map(|write| write.key.clone()).collect(),
        });
        self.notify(cx);
        let contents = (!logged).then_some(contents);
        self.log.append(Record::Committed { version, eid, contents }, cx);
        self.decided(version, waiters, cx);
    }

    /// The transaction aborts, in this partition at least.
    pub(super) fn abort(&mut self, version: Version, cx: &mut Cx) {
        let waiters = self.carry_out(version, End::Aborted);
        cx.observe(|| Observation::Aborted { version });
        self.notify(cx);
        self.log.append(Record::Aborted { version }, cx);
        self.decided(version, waiters, cx);
    }

    /// Continues with the transactions that waited for a decision, and tells those who asked for the outcome.
    pub(super) fn decided(
        &mut self,
        version: Version,
        waiters: SmallVec<[Version; 2]>,
        cx: &mut Cx,
    ) {
        for waiter in waiters {
            self.confirm(waiter, cx);
        }
        if !self.recoveries.is_empty() {
            self.recovered(version, cx);
        }
    }

    /// Carries out a decision, and forgets everything that was kept while the transaction was open (000 §4.4, "Decide
    /// Garbage Collection"). Returns the transactions that waited for it.
    pub(super) fn carry_out(&mut self, version: Version, end: End) -> SmallVec<[Version; 2]> {
        let undecided = self.transactions.remove(&version).unwrap_or_default();
        self.watch.remove(version);
        let prepared = undecided.execution.as_ref().filter(|execution| execution.is_prepared());
        // Usually the prepared execution is the one that commits.
        let commits =
            |execution: &&Execution| matches!(end, End::Committed(eid, _) if eid == execution.eid);
        let committed = prepared.filter(commits);
        if let Some(execution) = prepared {
            for (place, read) in execution.reads.iter().zip(&execution.contents.reads) {
                let (_, record) = self.keys.at(*place);
                record.unprepare_read(version);
                if committed.is_some() {
                    record.committed_reads.record(read.write.version, version);
                }
            }
        }
        for place in &undecided.reads {
            self.keys.at(*place).1.remove_read(version);
        }
        let nothing = Contents::default();
        let contents = match end {
            End::Committed(eid, contents) => {
                self.settled.committed(version, eid, contents);
                contents
            }
            End::Aborted => {
                self.settled.aborted(version);
                &nothing
            }
            End::Unknown => &nothing,
        };
        let installed = self.withdraw(version, &undecided.writes, contents);
        for (i, write) in contents.writes.iter().enumerate() {
            let id = WriteId { version, tag: write.tag };
            let place = match installed {
                true => undecided.writes[i],
                false => self.keys.place(&write.key),
            };
            self.keys.commit_write(place, id, &write.value);
        }
        if committed.is_none() {
            for read in &contents.reads {
                self.keys.touch(&read.key).committed_reads.record(read.write.version, version);
            }
        }
        self.waiting.remove(&version).unwrap_or_default()
    }

    /// Withdraws the transaction's uncommitted writes in those `places` that `contents` does not write. Returns whether the
    /// places are exactly those of the writes of `contents`, as is nearly always the case.
    pub(super) fn withdraw(
        &mut self,
        version: Version,
        places: &Places,
        contents: &Contents,
    ) -> bool {
        let writes = &contents.writes;
        let mut pairs = places.iter().zip(writes);
        if places.len() == writes.len()
            && pairs.all(|(place, write)| *self.keys.at(*place).0 == write.key)
        {
            return true;
        }
        let written: BTreeSet<&Key> = writes.iter().map(|write| &write.key).collect();
        for place in places {
            if !written.contains(self.keys.at(*place).0) {
                self.keys.withdraw_write(*place, version);
            }
        }
        false
    }
}

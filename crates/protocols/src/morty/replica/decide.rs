//! Decisions (000 §4.2, "Decide").
//!
//! A decision concerns all components: transactions and state change, votes that waited for it follow, and recoveries
//! end. So it is the replica that takes it.

use std::sync::Arc;

use serried_actor::Observation;
use serried_model::{NodeId, Version};

use super::execute::observe_writes;
use super::transactions::{End, Waiters};
use super::{Cx, Replica, reject};
use crate::morty::message::{Contents, Decision, Settlement};
use crate::morty::record::Record;

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
                let voted_on = self.transactions.voted_on(version, eid);
                let logged = voted_on.is_some();
                // The execution is unknown here. The coordinator gets no acknowledgement, so it sends the contents.
                let Some(contents) = voted_on.or(contents) else { return };
                self.commit(version, eid, contents, logged, cx);
            }
            // It was never admitted.
            (Decision::Abort, None)
                if self.setup.is_too_far_ahead(version, cx)
                    && !self.transactions.contains(version) => {}
            (Decision::Abort, None) => self.abort(version, cx),
        }
        self.acknowledgements.add(from, version, cx);
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
        let waiters =
            self.transactions.carry_out(version, End::Committed(eid, &contents), &mut self.state);
        observe_writes(version, &contents, cx);
        cx.observe(|| Observation::Committed {
            version,
            reads: contents
                .reads
                .iter()
                .map(|r| (r.key.clone(), r.found.latest().version))
                .collect(),
            writes: contents.writes.iter().map(|write| write.key.clone()).collect(),
            leads: true,
        });
        self.notify(cx);
        let contents = (!logged).then_some(contents);
        self.log.append(Record::Committed { version, eid, contents }, cx);
        self.decided(version, waiters, cx);
    }

    /// The transaction aborts, in this partition at least.
    pub(super) fn abort(&mut self, version: Version, cx: &mut Cx) {
        let waiters = self.transactions.carry_out(version, End::Aborted, &mut self.state);
        cx.observe(|| Observation::Aborted { version });
        self.notify(cx);
        self.log.append(Record::Aborted { version }, cx);
        self.decided(version, waiters, cx);
    }

    /// Continues with the transactions that waited for a decision, and answers questions about the outcome.
    pub(super) fn decided(&mut self, version: Version, waiters: Waiters, cx: &mut Cx) {
        for waiter in waiters {
            self.confirm(waiter, cx);
        }
        self.recovered(version, cx);
    }
}

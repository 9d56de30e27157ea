//! What a leader asks of other partitions, and the calls that it coordinates because their coordinators are silent.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use serried_actor::{Group, Timestamp};
use serried_model::{NodeId, Version};
use serried_procedures::Call;

use super::super::message::{CallOf, Message, Reply, Request};
use super::super::registered::Registered;
use super::super::run::{Requests, Run, Step};
use super::Cx;
use super::leader::Common;

/// How many calls a leader coordinates at a time. When there are so many, others take the places of those that it has
/// coordinated for [`PATIENCE`]: what these wait for may be the others.
const RUNS_AT_MOST: usize = 256;

/// How long a leader coordinates a call before it gives its place to another one.
const PATIENCE: Duration = Duration::from_secs(1);

/// The calls that a leader coordinates.
#[derive(Debug, Default)]
pub(super) struct Recoveries {
    /// Each with the time at which that began.
    runs: BTreeMap<Version, (Timestamp, Run)>,
    /// The known leaders of partitions.
    leaders: BTreeMap<u16, NodeId>,
}

impl Recoveries {
    /// Sends a request to the leader of a partition, or to any replica if the leader is unknown.
    pub(super) fn send(&self, at: u16, request: Request, group: &Group, cx: &mut Cx<'_>) {
        let known = self.leaders.get(&at).copied();
        let to = known.unwrap_or_else(|| group.choice(at, cx.draw() as usize % group.size()));
        cx.send(to, Message::Request(request));
    }

    fn send_all(&self, requests: Requests, group: &Group, cx: &mut Cx<'_>) {
        for (at, request) in requests {
            self.send(at, request, group, cx);
        }
    }

    /// Coordinates a call, unless that is done already.
    pub(super) fn begin(
        &mut self,
        txn: Version,
        of: Arc<CallOf>,
        set: &Arc<Registered>,
        group: &Group,
        cx: &mut Cx<'_>,
    ) {
        if self.runs.contains_key(&txn) || !self.has_place(cx.now()) {
            return;
        }
        let Some(procedure) = set.procedure(of.procedure) else { return };
        let Some(inputs) = of.inputs.decode() else { return };
        let Ok(call) = Call::new(procedure, inputs) else { return };
        let (run, step) = match of.is_read() {
            true => {
                let mut run = Run::ordered(txn, of, set.clone(), call).insisting();
                let step = Step::Send(run.close(cx.now()));
                (run, step)
            }
            false => {
                let run = Run::new(txn, of, set.clone(), call).insisting();
                let mut run = run.with_participant(cx.id().partition());
                let step = run.begin(group);
                (run, step)
            }
        };
        self.runs.insert(txn, (cx.now(), run));
        self.take(txn, step, group, cx);
    }

    /// Whether there is a place for another call, perhaps that of the one that has been coordinated for longest.
    fn has_place(&mut self, now: Timestamp) -> bool {
        if self.runs.len() < RUNS_AT_MOST {
            return true;
        }
        let longest = self.runs.iter().min_by_key(|(_, (begun, _))| *begun);
        let longest = longest.filter(|(_, (begun, _))| now.since(*begun) >= PATIENCE);
        longest.map(|(txn, _)| *txn).is_some_and(|txn| self.runs.remove(&txn).is_some())
    }

    /// Handles a reply that belongs to a call, if there is one.
    pub(super) fn on_reply(&mut self, from: NodeId, reply: Reply, group: &Group, cx: &mut Cx<'_>) {
        let at = from.partition();
        self.leaders.insert(at, from);
        let Some(txn) = reply.call() else { return };
        let Some((_, run)) = self.runs.get_mut(&txn) else { return };
        let step = run.on_reply(at, reply, group);
        self.take(txn, step, group, cx);
    }

    fn take(&mut self, txn: Version, step: Step, group: &Group, cx: &mut Cx<'_>) {
        match step {
            Step::Send(requests) => self.send_all(requests, group, cx),
            Step::Started => {
                let Some((_, run)) = self.runs.get_mut(&txn) else { return };
                let requests = run.commit();
                self.send_all(requests, group, cx);
            }
            Step::NotStarted(_) => {
                self.runs.remove(&txn);
            }
            Step::Executed(_) => {
                let Some((_, run)) = self.runs.remove(&txn) else { return };
                for at in run.participants() {
                    self.send(at, Request::End(vec![txn]), group, cx);
                }
            }
        }
    }

    /// Sends requests again that were not answered.
    pub(super) fn repeat(&mut self, common: &Common, cx: &mut Cx<'_>) {
        self.leaders.clear();
        let unanswered: Requests =
            self.runs.values().flat_map(|(_, run)| run.unanswered()).collect();
        self.send_all(unanswered, &common.group, cx);
        // A run whose transaction has ended is of no use.
        self.runs.retain(|txn, _| common.table.open().contains(txn));
    }
}

//! The coordination of a transaction.
//!
//! Replicas remember what they have taken on, accepted and executed. So several nodes can coordinate a transaction, one
//! after the other or at the same time: the client, and replicas if the client is silent. Each uses ballots of its own.

mod agreement;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_model::{NodeId, Version};

use super::members::Members;
use super::message::{
    Accept, Ancestors, Ballot, Commit, Dependencies, Edge, End, NotAccepted, PreAccept, Reply,
    Request, Results, Vertex, Work,
};
use agreement::{Agreement, Next, Quorum};

/// A replica that was outbid this often does not wait longer any more.
const RESTARTS_COUNTED: usize = 5;

/// A transaction that is being coordinated.
#[derive(Debug)]
pub(super) struct Run {
    txn: Version,
    /// What it does. None if that is to be found out.
    work: Option<Arc<Work>>,
    ballot: Ballot,
    /// A later attempt of another coordinator.
    outbid: Option<Ballot>,
    parts: BTreeMap<u16, Part>,
    /// What is known of transactions before this one: those that commit, and those that were executed.
    committing: BTreeMap<Version, Vertex>,
    cycles: Vec<Arc<[Vertex]>>,
    executed: BTreeSet<Version>,
    /// Whether a replica has taken it on, so that all have to.
    insists: bool,
    /// The replicas that have not answered lately.
    slow: BTreeSet<NodeId>,
    /// Whether a majority of each partition is enough.
    hurries: bool,
    /// How many attempts were begun again, and how often the last one was looked at since it was outbid.
    restarts: usize,
    looks: usize,
    phase: Phase,
}

/// How far it has come.
#[derive(Debug)]
enum Phase {
    Agrees,
    Commits(Arc<Commit>),
    Voids,
}

/// How far a participant has come.
#[derive(Debug, Default)]
struct Part {
    agreement: Agreement,
    /// Whether everything of its time is over there, and it is not known. Then it was forgotten, or has no pieces there.
    is_forgotten: bool,
    executed: Option<(End, Results)>,
}

/// Requests, each with the replica to which it goes.
pub(super) type Requests = Vec<(NodeId, Request)>;

/// What comes of a reply.
#[derive(Debug)]
pub(super) enum Step {
    /// These requests are to be sent; mostly none.
    Send(Requests),
    /// No replica has taken the transaction on, and none will under this version.
    NotAccepted(NotAccepted),
    /// A replica of each participant has executed it.
    Executed(Option<End>, Vec<Results>),
}

fn nothing() -> Step {
    Step::Send(Vec::new())
}

impl Run {
    /// A transaction that no replica knows yet. `slow` are replicas that have not answered lately.
    pub(super) fn new(txn: Version, work: Arc<Work>, slow: &BTreeSet<NodeId>) -> Run {
        let parts = work.participants.iter().map(|at| (*at, Part::default())).collect();
        Run::of(txn, Some(work), parts, slow)
    }

    /// Goes on with a transaction that some replica has taken on.
    #[must_use]
    pub(super) fn in_ballot(self, ballot: Ballot) -> Run {
        Run { insists: true, ballot, ..self }
    }

    /// Finds out what has become of a transaction that may have pieces at these partitions. If they don't know what it
    /// does, it becomes void there.
    pub(super) fn unknown(
        txn: Version,
        at: impl IntoIterator<Item = u16>,
        ballot: Ballot,
        slow: &BTreeSet<NodeId>,
    ) -> Run {
        let parts = at.into_iter().map(|at| (at, Part::default())).collect();
        Run::of(txn, None, parts, slow).in_ballot(ballot)
    }

    fn of(
        txn: Version,
        work: Option<Arc<Work>>,
        parts: BTreeMap<u16, Part>,
        slow: &BTreeSet<NodeId>,
    ) -> Run {
        Run {
            txn,
            work,
            ballot: Ballot::FIRST,
            outbid: None,
            parts,
            committing: BTreeMap::new(),
            cycles: Vec::new(),
            executed: BTreeSet::new(),
            insists: false,
            slow: slow.clone(),
            hurries: false,
            restarts: 0,
            looks: 0,
            phase: Phase::Agrees,
        }
    }

    pub(super) fn txn(&self) -> Version {
        self.txn
    }

    pub(super) fn work(&self) -> Option<&Arc<Work>> {
        self.work.as_ref()
    }

    /// A later attempt of another coordinator, if there is one: this one can only go on in a later one.
    pub(super) fn outbid(&self) -> Option<Ballot> {
        self.outbid.filter(|_| matches!(self.phase, Phase::Agrees))
    }

    /// Whether the replica of this number is to begin the attempt again, which was outbid and is looked at once more. The
    /// higher the number, the longer it waits, so that replicas do not outbid each other for ever.
    pub(super) fn is_due(&mut self, member: usize) -> bool {
        self.looks += 1;
        self.looks > self.restarts.min(RESTARTS_COUNTED) * member
    }

    /// Whether all participants have agreed on what comes before the transaction.
    pub(super) fn commits(&self) -> bool {
        matches!(self.phase, Phase::Commits(_))
    }

    /// Begins, or ends at once if there are no participants.
    pub(super) fn begin(&self, members: &Members) -> Step {
        match self.parts.is_empty() {
            true => Step::Executed(None, Vec::new()),
            false => Step::Send(self.unanswered(members)),
        }
    }

    /// Begins another attempt.
    pub(super) fn restart(&mut self, ballot: Ballot, members: &Members) -> Requests {
        (self.ballot, self.outbid, self.insists) = (ballot, None, true);
        (self.restarts, self.looks) = (self.restarts + 1, 0);
        self.parts.values_mut().for_each(|part| part.agreement.restart());
        self.unanswered(members)
    }

    /// Some replicas have not answered in time: goes on without them if that is possible, and asks them again.
    pub(super) fn hurry(&mut self, members: &Members) -> Step {
        self.hurries = true;
        if matches!(self.phase, Phase::Agrees) {
            if self.parts.values().any(|part| part.agreement.has_refusals()) {
                self.insist();
            }
            let at: Vec<u16> = self.parts.keys().copied().collect();
            for at in at {
                let next =
                    self.with_quorum(at, members, |agreement, quorum| agreement.choose(quorum));
                match self.follow(at, next, members) {
                    Step::Send(_) => {}
                    step => return step,
                }
            }
        }
        Step::Send(self.unanswered(members))
    }

    /// The replicas that have not answered.
    pub(super) fn silent(&self, members: &Members) -> Vec<NodeId> {
        let open = self.parts.iter().filter(|(_, part)| match self.phase {
            Phase::Agrees => part.agreement.agreed().is_none() && !part.is_forgotten,
            Phase::Commits(_) | Phase::Voids => false,
        });
        let of_part = |(at, part): (&u16, &Part)| {
            members.of(*at).filter(|replica| part.agreement.lacks(*replica)).collect::<Vec<_>>()
        };
        open.flat_map(of_part).collect()
    }

    /// Handles the reply of a participant.
    pub(super) fn on_reply(&mut self, from: NodeId, reply: Reply, members: &Members) -> Step {
        let at = from.partition();
        let Some(part) = self.parts.get_mut(&at) else { return nothing() };
        match reply {
            Reply::Executed { end, results, .. } => {
                match self.phase {
                    Phase::Agrees if end == End::Void && self.work.is_some() => {
                        return self.void(members);
                    }
                    // Perhaps it has no pieces there.
                    Phase::Agrees if end == End::Void => {
                        part.agreement.make_void();
                        return self.commit(members);
                    }
                    Phase::Agrees => return nothing(), // What it commits with follows.
                    Phase::Commits(_) | Phase::Voids => {}
                }
                part.executed.get_or_insert((end, results));
                self.result()
            }
            Reply::NotAccepted { why, .. } => self.on_not_accepted(from, why, members),
            _ if !matches!(self.phase, Phase::Agrees) => nothing(),
            Reply::Committed { commit, work, .. } => {
                let mut requests = match (&self.work, work) {
                    (Some(_), _) => Vec::new(),
                    (None, Some(work)) => self.does(work, members),
                    (None, None) => return nothing(), // an answer to another coordinator's request
                };
                self.phase = Phase::Commits(commit);
                requests.extend(self.unanswered(members));
                Step::Send(requests)
            }
            Reply::PreAccepted(reply) if reply.ballot == self.ballot => {
                if !part.agreement.hear(from, &reply.incarnations) {
                    return nothing();
                }
                let Ancestors { commit, cycles, executed } = reply.ancestors.clone();
                let is_new = |cycle: &Arc<[Vertex]>| !self.cycles.contains(cycle);
                let cycles: Vec<_> = cycles.into_iter().filter(is_new).collect();
                self.cycles.extend(cycles);
                self.committing.extend(commit.into_iter().map(|vertex| (vertex.txn, vertex)));
                self.executed.extend(executed);
                if let (None, Some(work)) = (&self.work, &reply.work) {
                    return self.found(work.clone(), members);
                }
                let is_known = reply.dependencies.is_some();
                let next = self.with_quorum(at, members, |agreement, quorum| {
                    agreement.on_pre_accepted(from, *reply, quorum)
                });
                let mut requests = match self.follow(at, next, members) {
                    Step::Send(requests) => requests,
                    step => return step,
                };
                if is_known && !self.insists {
                    requests.extend(self.insist_at(members));
                }
                Step::Send(requests)
            }
            Reply::Accepted { ballot, incarnations, .. } if ballot == self.ballot => {
                if !part.agreement.hear(from, &incarnations) {
                    return nothing();
                }
                let next = part.agreement.on_accepted(from, members.majority());
                self.follow(at, next, members)
            }
            Reply::Replaced { ballot, incarnations, .. } if ballot == self.ballot => {
                part.agreement.hear(from, &incarnations);
                self.outbid = Some(self.outbid.map_or(ballot, |known| known.max(ballot)));
                nothing()
            }
            Reply::Promised { ballot, .. } if ballot > self.ballot => {
                self.outbid = Some(self.outbid.map_or(ballot, |known| known.max(ballot)));
                nothing()
            }
            _ => nothing(),
        }
    }

    fn with_quorum(
        &mut self,
        at: u16,
        members: &Members,
        then: impl FnOnce(&mut Agreement, &Quorum<'_>) -> Next,
    ) -> Next {
        let (count, majority) = (members.count(), members.majority());
        let slow: BTreeSet<NodeId> =
            self.slow.iter().filter(|node| node.partition() == at).copied().collect();
        let quorum = Quorum { count, majority, slow: &slow, hurries: self.hurries };
        self.parts.get_mut(&at).map_or(Next::Nothing, |part| then(&mut part.agreement, &quorum))
    }

    /// It became known what the transaction does, and where. Other partitions have promised to take part, so they have to
    /// learn that it has no pieces there.
    fn does(&mut self, work: Arc<Work>, members: &Members) -> Requests {
        let is_elsewhere = |at: &&u16| !work.participants.contains(at);
        let elsewhere = self.parts.keys().filter(is_elsewhere).flat_map(|at| members.of(*at));
        let requests = elsewhere.map(|to| (to, Request::Void { txn: self.txn })).collect();
        self.parts.retain(|at, _| work.participants.contains(at));
        for at in work.participants.iter() {
            self.parts.entry(*at).or_default();
        }
        self.work = Some(work);
        requests
    }

    /// It became known what the transaction does, before it commits.
    fn found(&mut self, work: Arc<Work>, members: &Members) -> Step {
        let mut requests = self.does(work, members);
        for part in self.parts.values_mut() {
            part.agreement.ask_again();
            part.is_forgotten = false;
        }
        // All that have pieces may have agreed before.
        match self.commit(members) {
            Step::Send(next) if next.is_empty() => requests.extend(self.unanswered(members)),
            Step::Send(next) => requests.extend(next),
            step => return step,
        }
        Step::Send(requests)
    }

    fn on_not_accepted(&mut self, from: NodeId, why: NotAccepted, members: &Members) -> Step {
        if why == NotAccepted::Forgotten {
            let Some(part) = self.parts.get_mut(&from.partition()) else { return nothing() };
            match self.phase {
                // Others may know it.
                Phase::Agrees if self.work.is_none() => {
                    part.is_forgotten = true;
                    return self.commit(members);
                }
                Phase::Agrees | Phase::Commits(_) => return Step::NotAccepted(why),
                Phase::Voids => {
                    part.executed.get_or_insert((End::Void, Results::default()));
                    return self.result();
                }
            }
        }
        // If it insists, the replica has answered a request from before that was known. The timer repeats it.
        if self.insists || !matches!(self.phase, Phase::Agrees) {
            return nothing();
        }
        if let Some(part) = self.parts.get_mut(&from.partition()) {
            part.agreement.refuse(from, members.count());
        }
        let is_refused = |part: &Part| part.agreement.are_all_refusing(members.count());
        match self.parts.values().all(is_refused) {
            true => Step::NotAccepted(why),
            false => nothing(),
        }
    }

    fn insist(&mut self) {
        self.insists = true;
        self.parts.values_mut().for_each(|part| part.agreement.ask_again());
    }

    /// Asks those again that have refused.
    fn insist_at(&mut self, members: &Members) -> Requests {
        self.insists = true;
        let mut requests = Vec::new();
        for (at, part) in &mut self.parts {
            if part.agreement.has_refusals() {
                part.agreement.ask_again();
                let again = members.of(*at).filter(|replica| part.agreement.lacks(*replica));
                requests.extend(again.map(|replica| (replica, ())));
            }
        }
        requests.into_iter().map(|(replica, ())| (replica, self.pre_accept())).collect()
    }

    fn follow(&mut self, at: u16, next: Next, members: &Members) -> Step {
        match next {
            Next::Nothing => nothing(),
            Next::Propose => {
                Step::Send(members.of(at).filter_map(|to| Some((to, self.accept(at)?))).collect())
            }
            Next::Agreed => self.commit(members),
        }
    }

    /// Commits if all participants have agreed.
    fn commit(&mut self, members: &Members) -> Step {
        let agreed = |part: &Part| part.agreement.agreed().cloned();
        let known: Vec<Dependencies> = self.parts.values().filter_map(agreed).collect();
        let is_void = |dependencies: &Dependencies| dependencies.edges.is_none();
        let is_over = |part: &Part| part.is_forgotten || part.agreement.agreed().is_some();
        if self.work.is_none()
            && self.parts.values().any(|part| part.is_forgotten)
            && self.parts.values().all(is_over)
        {
            return Step::NotAccepted(NotAccepted::Forgotten);
        }
        // Without knowing what it does, it is not known either which of these partitions it has pieces at.
        let all_are_void = known.len() == self.parts.len() && known.iter().all(is_void);
        if all_are_void || (self.work.is_some() && known.iter().any(is_void)) {
            return self.void(members);
        }
        let Some(work) = self.work.as_ref().filter(|_| known.len() == self.parts.len()) else {
            return nothing();
        };
        let edges = known.iter().filter_map(|dependencies| dependencies.edges.as_ref());
        let edges: BTreeSet<Edge> = edges.flat_map(|edges| edges.iter().copied()).collect();
        let vertex = Vertex {
            txn: self.txn,
            participants: work.participants.clone(),
            edges: edges.into_iter().collect(),
            floor_us: known.iter().map(|known| known.floor_us).max().unwrap_or(0),
        };
        let ancestors = Ancestors {
            commit: core::mem::take(&mut self.committing).into_values().collect(),
            cycles: core::mem::take(&mut self.cycles),
            executed: core::mem::take(&mut self.executed).into_iter().collect(),
        };
        self.phase = Phase::Commits(Arc::new(Commit { vertex, ancestors }));
        Step::Send(self.unanswered(members))
    }

    /// A partition has agreed that the transaction is void.
    fn void(&mut self, members: &Members) -> Step {
        self.phase = Phase::Voids;
        Step::Send(self.unanswered(members))
    }

    fn result(&self) -> Step {
        let mut end = None;
        let mut all = Vec::with_capacity(self.parts.len());
        for part in self.parts.values() {
            let Some((of_part, results)) = &part.executed else { return nothing() };
            // It is the same at all participants.
            end = Some(of_part.clone());
            all.push(results.clone());
        }
        Step::Executed(end, all)
    }

    /// The requests that were not answered.
    pub(super) fn unanswered(&self, members: &Members) -> Requests {
        let mut requests = Vec::new();
        for (at, part) in &self.parts {
            let request = match &self.phase {
                _ if part.executed.is_some() => None,
                Phase::Commits(commit) => Some(Request::Commit(commit.clone())),
                Phase::Voids => Some(Request::Void { txn: self.txn }),
                Phase::Agrees if part.is_forgotten || part.agreement.agreed().is_some() => None,
                Phase::Agrees => Some(self.accept(*at).unwrap_or_else(|| self.pre_accept())),
            };
            let Some(request) = request else { continue };
            let is_agreeing = matches!(self.phase, Phase::Agrees);
            let to = members.of(*at).filter(|to| !is_agreeing || part.agreement.lacks(*to));
            requests.extend(to.map(|to| (to, request.clone())));
        }
        requests
    }

    fn pre_accept(&self) -> Request {
        let (txn, work, insist) = (self.txn, self.work.clone(), self.insists);
        Request::PreAccept(PreAccept { txn, work, insist, ballot: self.ballot })
    }

    fn accept(&self, at: u16) -> Option<Request> {
        let agreement = &self.parts.get(&at)?.agreement;
        Some(Request::Accept(Accept {
            txn: self.txn,
            ballot: self.ballot,
            dependencies: agreement.proposal()?.clone(),
            incarnations: agreement.incarnations().to_vec(),
        }))
    }
}

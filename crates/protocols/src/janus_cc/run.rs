//! The coordination of a transaction.
//!
//! Servers remember what they have taken on and executed, and give the same answers again. So several nodes can coordinate
//! a transaction, one after the other or at the same time: the client, and servers if the client is silent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_model::Version;

use super::message::{
    Ancestors, Commit, Edge, End, NotAccepted, PreAccept, Reply, Request, Results, Vertex, Work,
};

/// A transaction that is being coordinated.
#[derive(Debug)]
pub(super) struct Run {
    txn: Version,
    work: Arc<Work>,
    parts: BTreeMap<u16, Part>,
    /// What is known of transactions before this one: those that commit, and those that were executed.
    committing: BTreeMap<Version, Vertex>,
    cycles: Vec<Arc<[Vertex]>>,
    executed: BTreeSet<Version>,
    /// Whether a partition has taken it on, so that all have to.
    insists: bool,
    commit: Option<Arc<Commit>>,
}

/// How far a participant has come.
#[derive(Debug)]
enum Part {
    Asked,
    NotAccepted,
    PreAccepted(Vec<Edge>),
    Executed(End, Results),
}

/// Requests, each with the partition to whose server it goes.
pub(super) type Requests = Vec<(u16, Request)>;

/// What comes of a reply.
#[derive(Debug)]
pub(super) enum Step {
    /// These requests are to be sent; mostly none.
    Send(Requests),
    /// No partition has taken the transaction on, and none will under this version.
    NotAccepted(NotAccepted),
    /// All participants have executed it.
    Executed(Option<End>, Vec<Results>),
}

impl Run {
    /// A transaction that no server knows yet.
    pub(super) fn new(txn: Version, work: Arc<Work>) -> Run {
        let parts = work.participants.iter().map(|at| (*at, Part::Asked)).collect();
        Run {
            txn,
            work,
            parts,
            committing: BTreeMap::new(),
            cycles: Vec::new(),
            executed: BTreeSet::new(),
            insists: false,
            commit: None,
        }
    }

    /// Goes on with a transaction that some partition has taken on.
    #[must_use]
    pub(super) fn insisting(self) -> Run {
        Run { insists: true, ..self }
    }

    pub(super) fn txn(&self) -> Version {
        self.txn
    }

    pub(super) fn work(&self) -> &Arc<Work> {
        &self.work
    }

    /// Begins, or ends at once if there are no participants.
    pub(super) fn begin(&self) -> Step {
        match self.parts.is_empty() {
            true => Step::Executed(None, Vec::new()),
            false => Step::Send(self.unanswered()),
        }
    }

    /// Handles the reply of a participant.
    pub(super) fn on_reply(&mut self, at: u16, reply: Reply) -> Step {
        let none = Step::Send(Vec::new());
        if !self.parts.contains_key(&at) {
            return none;
        }
        match reply {
            Reply::PreAccepted { edges, ancestors, .. } => {
                self.on_pre_accepted(at, edges, ancestors)
            }
            Reply::NotAccepted { why, .. } => self.on_not_accepted(at, why),
            Reply::Executed { end, results, .. } if self.commit.is_some() => {
                self.parts.insert(at, Part::Executed(end, results));
                self.result()
            }
            _ => none,
        }
    }

    fn on_pre_accepted(&mut self, at: u16, edges: Vec<Edge>, ancestors: Ancestors) -> Step {
        if self.commit.is_some() {
            return Step::Send(Vec::new()); // late: all have answered
        }
        let Ancestors { commit, cycles, executed } = ancestors;
        let is_new = |cycle: &Arc<[Vertex]>| !self.cycles.contains(cycle);
        let cycles: Vec<_> = cycles.into_iter().filter(is_new).collect();
        self.cycles.extend(cycles);
        self.committing.extend(commit.into_iter().map(|vertex| (vertex.txn, vertex)));
        self.executed.extend(executed);
        self.parts.insert(at, Part::PreAccepted(edges));
        if !core::mem::replace(&mut self.insists, true) {
            let refusing = self.parts.iter().filter(|(_, part)| matches!(part, Part::NotAccepted));
            let requests: Requests = refusing.map(|(at, _)| (*at, self.pre_accept())).collect();
            if !requests.is_empty() {
                return Step::Send(requests);
            }
        }
        self.commit()
    }

    fn on_not_accepted(&mut self, at: u16, why: NotAccepted) -> Step {
        if why == NotAccepted::Forgotten {
            return Step::NotAccepted(why);
        }
        // If it insists, the partition has answered a request from before that was known. The timer repeats it.
        if !self.insists {
            self.parts.insert(at, Part::NotAccepted);
            if self.parts.values().all(|part| matches!(part, Part::NotAccepted)) {
                return Step::NotAccepted(why);
            }
        }
        Step::Send(Vec::new())
    }

    /// Commits if all participants have taken the transaction on.
    fn commit(&mut self) -> Step {
        let mut edges: BTreeSet<Edge> = BTreeSet::new();
        for part in self.parts.values() {
            let Part::PreAccepted(own) = part else { return Step::Send(Vec::new()) };
            edges.extend(own);
        }
        let vertex = Vertex {
            txn: self.txn,
            participants: self.work.participants.clone(),
            edges: edges.into_iter().collect(),
        };
        let ancestors = Ancestors {
            commit: core::mem::take(&mut self.committing).into_values().collect(),
            cycles: core::mem::take(&mut self.cycles),
            executed: core::mem::take(&mut self.executed).into_iter().collect(),
        };
        self.commit = Some(Arc::new(Commit { vertex, ancestors }));
        Step::Send(self.unanswered())
    }

    fn result(&self) -> Step {
        let mut end = None;
        let mut all = Vec::with_capacity(self.parts.len());
        for part in self.parts.values() {
            let Part::Executed(of_part, results) = part else { return Step::Send(Vec::new()) };
            // It is the same at all participants.
            end = Some(of_part.clone());
            all.push(results.clone());
        }
        Step::Executed(end, all)
    }

    /// The requests that were not answered.
    pub(super) fn unanswered(&self) -> Requests {
        let request = |(at, part): (&u16, &Part)| match (&self.commit, part) {
            (_, Part::Executed(..)) | (None, Part::PreAccepted(_)) => None,
            (Some(commit), _) => Some((*at, Request::Commit(commit.clone()))),
            (None, _) => Some((*at, self.pre_accept())),
        };
        self.parts.iter().filter_map(request).collect()
    }

    fn pre_accept(&self) -> Request {
        let (txn, work, insist) = (self.txn, self.work.clone(), self.insists);
        Request::PreAccept(PreAccept { txn, work, insist })
    }
}

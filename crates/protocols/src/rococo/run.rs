//! The coordination of a call that writes: its start phase and its commit phase (002 §3.2).
//!
//! Servers remember what they have started and executed. So several nodes can coordinate a call, one after the other or at
//! the same time: the client, and servers if the client is silent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::Group;
use serried_model::Version;
use serried_procedures::{Call, Datum, PieceId, Procedure, Refused, placement_key};

use super::message::{
    Ancestors, CallOf, Commit, Edge, Executed, NotStarted, Occurrence, Reply, Request, Start,
    Started, Vertex,
};
use super::registered::Registered;

/// A call that is being coordinated.
#[derive(Debug)]
pub(super) struct Run {
    txn: Version,
    of: Arc<CallOf>,
    set: Arc<Registered>,
    call: Call,
    parts: BTreeMap<u16, Part>,
    /// What is known of transactions before this one: those that commit, and those that were executed.
    committing: BTreeMap<Version, Vertex>,
    cycles: Vec<Arc<[Vertex]>>,
    executed: BTreeSet<Version>,
    /// Whether a partition has started it, so that all have to.
    insists: bool,
    refused: Option<Refused>,
    commit: Option<Arc<Commit>>,
}

/// What a call has at a partition.
#[derive(Debug, Default)]
struct Part {
    /// The pieces, in the order of their start.
    pieces: Vec<Occurrence>,
    /// Those that the partition has started.
    started: BTreeSet<(PieceId, u32)>,
    /// Whether it has executed the call. Then another coordinator has committed the call with fewer pieces, because it was
    /// refused.
    is_over: bool,
    not_started: Option<NotStarted>,
    edges: BTreeSet<Edge>,
    executed: bool,
}

impl Part {
    fn is_started(&self) -> bool {
        self.is_over
            || self.pieces.iter().all(|piece| self.started.contains(&(piece.piece, piece.number)))
    }
}

/// Requests, each with the partition to whose leader it goes.
pub(super) type Requests = Vec<(u16, Request)>;

/// What comes of a reply.
#[derive(Debug)]
pub(super) enum Step {
    /// These requests are to be sent; mostly none.
    Send(Requests),
    /// No partition has started the call, and none will under this version.
    NotStarted(NotStarted),
    /// The call was executed: its results, or why it was refused.
    Executed(Result<Vec<Datum>, Refused>),
}

impl Run {
    /// A call that is not started yet.
    pub(super) fn new(txn: Version, of: Arc<CallOf>, set: Arc<Registered>, call: Call) -> Run {
        Run {
            txn,
            of,
            set,
            call,
            parts: BTreeMap::new(),
            committing: BTreeMap::new(),
            cycles: Vec::new(),
            executed: BTreeSet::new(),
            insists: false,
            refused: None,
            commit: None,
        }
    }

    /// Goes on with a call that some partition has started.
    #[must_use]
    pub(super) fn insisting(self) -> Run {
        Run { insists: true, ..self }
    }

    pub(super) fn txn(&self) -> Version {
        self.txn
    }

    /// The place of the procedure in its set.
    pub(super) fn procedure(&self) -> u16 {
        self.of.procedure
    }

    pub(super) fn set(&self) -> &Arc<Registered> {
        &self.set
    }

    pub(super) fn participants(&self) -> impl Iterator<Item = u16> {
        self.parts.keys().copied()
    }

    /// Starts the first pieces.
    pub(super) fn begin(&mut self, group: &Group) -> Step {
        self.proceed(group)
    }

    /// Handles a reply of a partition's leader.
    pub(super) fn on_reply(&mut self, at: u16, reply: Reply, group: &Group) -> Step {
        match reply {
            Reply::Started(started) => self.on_started(at, started, group),
            Reply::NotStarted { why, .. } => self.on_not_started(at, why),
            Reply::Executed { outputs, .. } => self.on_executed(at, outputs),
            _ => Step::Send(Vec::new()),
        }
    }

    /// Pieces were started at a partition.
    fn on_started(&mut self, at: u16, started: Started, group: &Group) -> Step {
        let set = self.set.clone();
        let procedure = procedure(&set, &self.of);
        let Some(part) = self.parts.get_mut(&at) else { return Step::Send(Vec::new()) };
        part.not_started = None;
        part.is_over |= started.is_over;
        part.edges.extend(started.edges);
        let Ancestors { commit, cycles, executed } = started.ancestors;
        let is_new = |cycle: &Arc<[Vertex]>| !self.cycles.contains(cycle);
        let cycles: Vec<_> = cycles.into_iter().filter(is_new).collect();
        self.cycles.extend(cycles);
        self.committing.extend(commit.into_iter().map(|vertex| (vertex.txn, vertex)));
        self.executed.extend(executed);
        let is_first = !core::mem::replace(&mut self.insists, true);
        for piece in started.pieces {
            let occurrence = (piece.piece, piece.number);
            if !part.pieces.iter().any(|own| (own.piece, own.number) == occurrence)
                || !part.started.insert(occurrence)
            {
                continue;
            }
            match piece.outcome {
                Some(Ok(outputs)) => {
                    let executed = self.call.executed(procedure, occurrence, outputs);
                    // No correct server sends other outputs.
                    executed.is_err().then(|| part.started.remove(&occurrence));
                }
                Some(Err(refused)) => {
                    self.refused.get_or_insert(refused);
                }
                None => {}
            }
        }
        let mut step = self.proceed(group);
        if let Step::Send(requests) = &mut step
            && is_first
        {
            let refusing = self.parts.iter().filter(|(_, part)| part.not_started.is_some());
            requests.extend(refusing.map(|(at, part)| (*at, self.start_at(part))));
        }
        step
    }

    /// A partition has not started the call.
    fn on_not_started(&mut self, at: u16, why: NotStarted) -> Step {
        if why == NotStarted::Forgotten {
            return Step::NotStarted(why);
        }
        let Some(part) = self.parts.get_mut(&at).filter(|part| part.started.is_empty()) else {
            return Step::Send(Vec::new());
        };
        part.not_started = Some(why);
        if self.insists {
            // The partition has answered a request from before that was known. The timer repeats it.
            return Step::Send(Vec::new());
        }
        match self.parts.values().all(|part| part.not_started.is_some()) {
            true => Step::NotStarted(why),
            false => Step::Send(Vec::new()),
        }
    }

    /// The call was executed at a partition.
    fn on_executed(&mut self, at: u16, outputs: Vec<Executed>) -> Step {
        let set = self.set.clone();
        let procedure = procedure(&set, &self.of);
        let none = Step::Send(Vec::new());
        let Some(part) = self.parts.get_mut(&at).filter(|_| self.commit.is_some()) else {
            return none;
        };
        for Executed { piece, number, outputs } in outputs {
            if self.call.executed(procedure, (piece, number), outputs).is_err() {
                return none; // No correct server sends this.
            }
        }
        part.executed = true;
        let has_executed = self.refused.is_some() || self.call.has_executed_all();
        if !has_executed || !self.parts.values().all(|part| part.executed) {
            return none;
        }
        self.results(procedure)
    }

    /// The requests that were not answered.
    pub(super) fn unanswered(&self) -> Requests {
        let parts = self.parts.iter();
        match &self.commit {
            Some(commit) => {
                let waits = parts.filter(|(_, part)| !part.executed);
                waits.map(|(at, _)| (*at, Request::Commit(commit.clone()))).collect()
            }
            None => {
                let waits = parts.filter(|(_, part)| !part.is_started());
                waits.map(|(at, part)| (*at, self.start_at(part))).collect()
            }
        }
    }

    /// Starts what can be started, and commits if that is all.
    fn proceed(&mut self, group: &Group) -> Step {
        let set = self.set.clone();
        let procedure = procedure(&set, &self.of);
        let mut requests: BTreeMap<u16, Vec<Occurrence>> = BTreeMap::new();
        if self.refused.is_none() {
            match self.call.start(procedure) {
                Ok(started) => {
                    for start in started {
                        let piece = &procedure.pieces[usize::from(start.piece.0)];
                        let leading = piece.placement(set.tables(), &start.arguments);
                        let at = group.partition_of(&placement_key(&leading));
                        let occurrence = Occurrence {
                            piece: start.piece,
                            number: start.occurrence,
                            arguments: start.arguments,
                        };
                        self.parts.entry(at).or_default().pieces.push(occurrence.clone());
                        requests.entry(at).or_default().push(occurrence);
                    }
                }
                Err(refused) => self.refused = Some(refused),
            }
        }
        if !requests.is_empty() {
            let send = |(at, pieces)| (at, self.start(pieces));
            return Step::Send(requests.into_iter().map(send).collect());
        }
        let has_started = self.refused.is_some() || self.call.has_started_all();
        if self.commit.is_some() || !has_started || !self.parts.values().all(Part::is_started) {
            return Step::Send(Vec::new());
        }
        if self.parts.is_empty() {
            return self.results(procedure);
        }
        let edges: BTreeSet<Edge> =
            self.parts.values().flat_map(|part| &part.edges).copied().collect();
        let vertex = Vertex {
            txn: self.txn,
            participants: self.participants().collect(),
            edges: edges.into_iter().collect(),
        };
        let ancestors = Ancestors {
            commit: core::mem::take(&mut self.committing).into_values().collect(),
            cycles: core::mem::take(&mut self.cycles),
            executed: core::mem::take(&mut self.executed).into_iter().collect(),
        };
        let commit = Arc::new(Commit { vertex, ancestors });
        self.commit = Some(commit.clone());
        Step::Send(self.parts.keys().map(|at| (*at, Request::Commit(commit.clone()))).collect())
    }

    fn results(&self, procedure: &Procedure) -> Step {
        Step::Executed(match &self.refused {
            Some(refused) => Err(refused.clone()),
            None => self.call.results(procedure),
        })
    }

    fn start_at(&self, part: &Part) -> Request {
        self.start(part.pieces.clone())
    }

    fn start(&self, pieces: Vec<Occurrence>) -> Request {
        Request::Start(Start { txn: self.txn, call: self.of.clone(), insist: self.insists, pieces })
    }
}

fn procedure<'s>(set: &'s Registered, of: &CallOf) -> &'s Procedure {
    set.procedure(of.procedure).expect("the call was checked")
}

//! The leader of a partition: it executes pieces, tracks which transactions come before which, and proposes the results.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serried_actor::{Group, Settings, Timestamp};
use serried_model::{NodeId, Version};
use serried_procedures::{Datum, PieceId, Refused};

use super::super::Mutation;
use super::super::accesses::Accesses;
use super::super::message::{
    Ancestors, CallOf, Commit, Edge, Entry, ExecuteEntry, Executed, Found, Inquired, Kind, Led,
    Message, NotStarted, Occurrence, Read, Reply, Request, Start, StartEntry, Started,
    StartedPiece, Vertex, Window,
};
use super::super::order::{self, Known};
use super::super::registered::Registered;
use super::super::table::{HowExecuted, Table};
use super::Cx;
use super::recovery::Recoveries;
use super::rows::{Rows, Unapplied};
use super::sets::Sets;
use crate::Mutated;
use crate::frameworks::replicated_log::{Ballot, ReplicatedLog};

/// How many reads wait for transactions. Others are dropped, and clients send them again.
const PARKED_AT_MOST: usize = 4096;

/// How many transactions of other partitions are remembered as executed. If there are more, the earlier half is forgotten;
/// then another partition is asked for them again.
const REMOTE_AT_MOST: usize = 65_536;

/// What a replica of a partition has, whether it leads or not.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) id: NodeId,
    pub(super) group: Group,
    pub(super) settings: Settings,
    pub(super) mutation: Mutated<Mutation>,
    pub(super) table: Table,
}

impl Common {
    pub(super) fn partition(&self) -> u16 {
        self.id.partition()
    }
}

/// The state of a leader. It is lost with the leadership.
#[derive(Debug)]
pub(super) struct Leader {
    by: Ballot,
    /// The transactions that have pieces here and are not executed.
    live: BTreeMap<Version, Live>,
    /// The transactions whose execution is proposed and not chosen.
    executing: BTreeSet<Version>,
    accesses: Accesses,
    unapplied: Unapplied,
    /// Transactions that commit, here and elsewhere.
    vertices: BTreeMap<Version, Vertex>,
    /// Those of them that another server has executed on a cycle, and the others on it.
    cycles: BTreeMap<Version, Arc<[Version]>>,
    /// Transactions of other partitions that are decided.
    decided: BTreeSet<Version>,
    /// By transaction whose edges are missing, those that wait for them.
    blocked: BTreeMap<Version, Vec<Version>>,
    /// By transaction, the servers that wait for its edges.
    askers: BTreeMap<Version, Vec<NodeId>>,
    /// When other partitions were asked for the edges of transactions.
    asked: BTreeMap<Version, Timestamp>,
    /// By transaction, the reads that wait for it.
    parked: BTreeMap<Version, Vec<(NodeId, Read)>>,
    parked_reads: usize,
    /// Entries that are not proposed yet; none stands for the confirmation that this replica leads.
    unproposed: VecDeque<Proposal>,
    /// Proposals that are not chosen, by slot.
    proposed: VecDeque<(u64, Proposal)>,
    /// The number of the next entry.
    entry: u64,
    /// By partition, the time below which its transactions have ended.
    over: BTreeMap<u16, u64>,
    /// The window that was proposed last.
    window: Window,
    pub(super) recoveries: Recoveries,
    pub(super) sets: Sets,
}

/// A transaction that has pieces here and is not executed.
#[derive(Debug)]
struct Live {
    call: Arc<CallOf>,
    /// The deferred pieces.
    deferred: Vec<Occurrence>,
    /// All pieces.
    started: BTreeSet<(PieceId, u32)>,
    edges: Vec<Edge>,
    /// The participants to notify when it is executed.
    committers: Vec<NodeId>,
    /// When its coordinator was last heard of.
    heard: Timestamp,
}

/// An entry with what is answered once it is chosen.
#[derive(Debug)]
struct Proposal {
    number: u64,
    entry: Option<Entry>,
    replies: Vec<(NodeId, Reply)>,
}

impl Leader {
    /// Begins to lead in ballot `by`. Everything that former leaders have proposed is applied.
    pub(super) fn new(by: Ballot, common: &mut Common, cx: &mut Cx<'_>) -> Leader {
        let mut leader = Leader {
            by,
            live: BTreeMap::new(),
            executing: BTreeSet::new(),
            accesses: Accesses::default(),
            unapplied: Unapplied::default(),
            vertices: BTreeMap::new(),
            cycles: BTreeMap::new(),
            decided: BTreeSet::new(),
            blocked: BTreeMap::new(),
            askers: BTreeMap::new(),
            asked: BTreeMap::new(),
            parked: BTreeMap::new(),
            parked_reads: 0,
            unproposed: VecDeque::new(),
            proposed: VecDeque::new(),
            entry: 0,
            over: BTreeMap::new(),
            window: common.table.window(),
            recoveries: Recoveries::default(),
            sets: Sets::default(),
        };
        leader.inherit(common, cx);
        leader
    }

    /// Goes on with the transactions that were started under former leaders.
    fn inherit(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        let open: Vec<Version> = common.table.open().iter().copied().collect();
        let mut pieces = Vec::new();
        for txn in open {
            let state = common.table.txn(txn, cx.store()).expect("it is open").clone();
            if state.executed.is_some() {
                continue;
            }
            let mut live = Live::new(state.call, cx.now());
            live.edges = state.edges;
            self.live.insert(txn, live);
            let started = state.pieces.into_iter().zip(state.outcomes);
            pieces.extend(started.map(|((slot, occurrence), outcome)| {
                let kind = if outcome.is_some() { Kind::Immediate } else { Kind::Deferred };
                (slot, txn, occurrence, kind)
            }));
        }
        // What comes before a new piece depends on the order in which the others were started. The pieces of an entry stay
        // in their order.
        pieces.sort_by_key(|(slot, ..)| *slot);
        for (_, txn, occurrence, kind) in pieces {
            let live = self.live.get_mut(&txn).expect("it was added");
            let set = common.table.set().expect("pieces were started");
            for (row, used) in set.rows(live.call.procedure, &occurrence) {
                // Its edges are known.
                self.accesses.add(txn, kind, &row, used, &mut |_, _| {});
            }
            live.start(occurrence, kind);
        }
    }

    pub(super) fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("live_transactions", self.live.len() as u64);
        each("used_rows", self.accesses.len() as u64);
        each("waiting_reads", self.parked_reads as u64);
        each("known_vertices", (self.vertices.len() + self.cycles.len()) as u64);
    }

    /// Whether all entries were proposed.
    pub(super) fn has_proposed_all(&self) -> bool {
        self.unproposed.is_empty()
    }

    pub(super) fn on_request(
        &mut self,
        from: NodeId,
        request: Request,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        match request {
            Request::Start(start) => self.on_start(from, start, common, cx),
            Request::Commit(commit) => self.on_commit(from, &commit, common, cx),
            Request::End(txns) => self.on_end(txns, common),
            Request::Read(read) => self.on_read(from, read, common, cx),
            Request::Ask { txn } => self.on_ask(from, txn, common, cx),
            Request::Over { below_us } => {
                self.over.insert(from.partition(), below_us);
            }
            Request::Set => {
                let set = common.table.set();
                let (version, set) =
                    set.map_or((0, Arc::default()), |set| (set.version(), set.set().clone()));
                self.confirm(vec![(from, Reply::Set { version, set })]);
            }
            Request::Register { number, set, replaces } => {
                self.on_register((from, number), set, replaces, common);
            }
            Request::Drain { version, set } => self.on_drain(from, version, set, common),
            Request::Install { version, set } => self.on_install(from, version, set, common),
            Request::Inquire { txn } => self.on_inquire(from, txn, common, cx),
        }
    }

    // The start phase.

    fn on_start(&mut self, from: NodeId, start: Start, common: &mut Common, cx: &mut Cx<'_>) {
        let Start { txn, call, insist, pieces } = start;
        let not_started = |leader: &mut Leader, why| {
            leader.confirm(vec![(from, Reply::NotStarted { txn, why })]);
        };
        let is_known = self.live.contains_key(&txn) || common.table.has_started(txn);
        if !is_known {
            let window = common.table.window();
            if txn.timestamp_us < window.forget_us.max(self.window.forget_us) {
                return not_started(self, NotStarted::Forgotten);
            }
            let version = common.table.set().map_or(0, |set| set.version());
            if call.set > version {
                return; // This partition does not use the set yet. The request comes again.
            }
            if call.set < version || (self.is_draining(common) && !insist) {
                return not_started(self, NotStarted::OtherSet { version });
            }
            let from_us = window.from_us.max(self.window.from_us);
            if txn.timestamp_us < from_us && !insist {
                return not_started(self, NotStarted::Late { from_us });
            }
        }
        let is_executed = is_known && !self.live.contains_key(&txn);
        if !is_executed {
            let Some(set) = common.table.set().filter(|set| set.version() == call.set).cloned()
            else {
                return;
            };
            let is_same = self.live.get(&txn).is_none_or(|live| live.call == call);
            if !is_same || !set.accepts(call.procedure, &pieces, false) {
                return cx.reject(|| format!("{from} has sent pieces that {txn} does not have"));
            }
            self.start_pieces((txn, &call), pieces, &set, common, cx);
        }
        self.answer_start(from, txn, common, cx);
    }

    fn start_pieces(
        &mut self,
        (txn, call): (Version, &Arc<CallOf>),
        pieces: Vec<Occurrence>,
        set: &Registered,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        let partition = common.partition();
        let now = cx.now();
        let live = self.live.entry(txn).or_insert_with(|| Live::new(call.clone(), now));
        live.heard = now;
        let is_new = |piece: &Occurrence| !live.started.contains(&(piece.piece, piece.number));
        let new: Vec<Occurrence> = pieces.into_iter().filter(is_new).collect();
        if new.is_empty() {
            return;
        }
        cx.charge(new.len());
        let mut edges: BTreeSet<Edge> = BTreeSet::new();
        let mut outcomes = Vec::with_capacity(new.len());
        let mut rows = Rows {
            table: &mut common.table,
            unapplied: &mut self.unapplied,
            store: cx.store(),
            entry: self.entry,
            written: BTreeSet::new(),
            read: Vec::new(),
        };
        for occurrence in &new {
            let piece = set.piece(call.procedure, occurrence.piece).expect("it was checked");
            let kind = set.kind(piece);
            for (row, used) in set.rows(call.procedure, occurrence) {
                self.accesses.add(txn, kind, &row, used, &mut |before, its_kind| {
                    // The offline checker has spread immediacy, so both are of one kind.
                    let kind = kind.min(its_kind);
                    if !common.mutation.is(Mutation::ForgetsEdge) {
                        edges.insert(Edge { from: before, kind, at: partition });
                    }
                });
            }
            outcomes.push(
                (kind == Kind::Immediate)
                    .then(|| piece.body.execute(set.tables(), &occurrence.arguments, &mut rows)),
            );
            live.start(occurrence.clone(), kind);
        }
        let rows = rows.into_written();
        live.edges.extend(edges.iter().copied());
        live.edges.sort_unstable();
        live.edges.dedup();
        let entry = StartEntry {
            txn,
            call: call.clone(),
            pieces: new,
            outcomes,
            edges: edges.into_iter().collect(),
            rows,
        };
        self.put(Entry::Start(Arc::new(entry)), Vec::new());
    }

    /// Answers that pieces were started, as soon as what is proposed is chosen.
    fn answer_start(&mut self, to: NodeId, txn: Version, common: &mut Common, cx: &mut Cx<'_>) {
        let mut pieces: Vec<StartedPiece> = Vec::new();
        let add = |pieces: &mut Vec<StartedPiece>, entry: &StartEntry| {
            if entry.txn == txn {
                pieces.extend(started(entry.pieces.iter(), &entry.outcomes));
            }
        };
        if let Some(state) = common.table.txn(txn, cx.store()) {
            let known = state.pieces.iter().map(|(_, piece)| piece);
            pieces.extend(started(known, &state.outcomes));
        }
        let proposals = self.proposed.iter().map(|(_, proposal)| proposal).chain(&self.unproposed);
        for proposal in proposals {
            if let Some(Entry::Start(entry)) = &proposal.entry {
                add(&mut pieces, entry);
            }
        }
        let edges = match self.live.get(&txn) {
            Some(live) => live.edges.clone(),
            None => common.table.txn(txn, cx.store()).map_or(Vec::new(), |txn| txn.edges.clone()),
        };
        let ancestors = self.ancestors(edges.iter().map(|edge| edge.from), common, cx);
        let is_over = !self.live.contains_key(&txn);
        let started = Started { txn, pieces, edges, ancestors, is_over };
        self.confirm(vec![(to, Reply::Started(started))]);
    }

    // The commit phase.

    fn on_commit(
        &mut self,
        from: NodeId,
        Commit { vertex, ancestors }: &Commit,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        let txn = vertex.txn;
        if let Some(live) = self.live.get_mut(&txn) {
            live.heard = cx.now();
            if !live.committers.contains(&from) {
                live.committers.push(from);
            }
            self.learn(ancestors, Some(vertex), common, cx);
        } else if let Some(state) = common.table.txn(txn, cx.store()) {
            if let Some(outputs) = state.executed.clone() {
                self.confirm(vec![(from, Reply::Executed { txn, outputs })]);
            } else if let Some(proposal) = self.execution_of(txn) {
                let Some(Entry::Execute(entry)) = &proposal.entry else { return };
                let own = entry.txns.iter().find(|(other, _)| *other == txn);
                let outputs = own.map(|(_, outputs)| outputs.clone()).unwrap_or_default();
                proposal.replies.push((from, Reply::Executed { txn, outputs }));
            }
        } else if txn.timestamp_us < common.table.window().forget_us {
            let why = NotStarted::Forgotten;
            self.confirm(vec![(from, Reply::NotStarted { txn, why })]);
        }
    }

    /// The proposal with which a transaction is executed.
    fn execution_of(&mut self, txn: Version) -> Option<&mut Proposal> {
        let proposed = self.proposed.iter_mut().map(|(_, proposal)| proposal);
        proposed.chain(&mut self.unproposed).find(|proposal| match &proposal.entry {
            Some(Entry::Execute(entry)) => entry.txns.iter().any(|(other, _)| *other == txn),
            _ => false,
        })
    }

    /// Learns of transactions, and executes what has become possible.
    fn learn(
        &mut self,
        Ancestors { commit, cycles, executed }: &Ancestors,
        own: Option<&Vertex>,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        let mut open = Vec::new();
        for txn in executed {
            if !self.live.contains_key(txn) {
                self.vertices.remove(txn);
                self.cycles.remove(txn);
                self.decided.insert(*txn);
                open.push(*txn);
            }
        }
        for cycle in cycles {
            let members: Arc<[Version]> = cycle.iter().map(|vertex| vertex.txn).collect();
            for txn in members.iter() {
                if !self.is_decided(*txn, common) {
                    self.cycles.insert(*txn, members.clone());
                    open.push(*txn);
                }
            }
        }
        let on_cycles = cycles.iter().flat_map(|cycle| cycle.iter());
        for vertex in commit.iter().chain(on_cycles).chain(own) {
            let txn = vertex.txn;
            if self.vertices.contains_key(&txn) || self.is_decided(txn, common) {
                continue;
            }
            self.vertices.insert(txn, vertex.clone());
            open.push(txn);
        }
        for txn in &open {
            self.answer_askers(*txn, common, cx);
        }
        self.execute_all(open, common, cx);
    }

    /// Executes these transactions and those that were waiting for them, if nothing is missing.
    fn execute_all(&mut self, mut open: Vec<Version>, common: &mut Common, cx: &mut Cx<'_>) {
        while let Some(txn) = open.pop() {
            open.extend(self.blocked.remove(&txn).into_iter().flatten());
            if !self.live.contains_key(&txn) {
                continue;
            }
            let is_here = |txn| self.live.contains_key(&txn);
            match order::groups(txn, |txn| self.known(txn, common), is_here) {
                Ok(groups) => {
                    for group in groups {
                        self.execute(&group, common, cx);
                    }
                }
                Err(missing) => {
                    for order::Missing { txn: ancestor, at } in missing {
                        let waiting = self.blocked.entry(ancestor).or_default();
                        if !waiting.contains(&txn) {
                            waiting.push(txn);
                        }
                        if !self.live.contains_key(&ancestor) {
                            self.ask(ancestor, at, common, cx);
                        }
                    }
                }
            }
        }
    }

    fn known(&self, txn: Version, common: &Common) -> Known<'_> {
        if self.is_decided(txn, common) {
            return Known::Decided;
        }
        match self.vertices.get(&txn) {
            Some(vertex) => match self.cycles.get(&txn) {
                Some(cycle) => Known::OnCycle(&vertex.edges, cycle),
                None => Known::Committing(&vertex.edges),
            },
            None if !self.live.contains_key(&txn)
                && common.mutation.is(Mutation::IgnoresOtherServers) =>
            {
                Known::Decided
            }
            None => Known::Open,
        }
    }

    fn is_decided(&self, txn: Version, common: &Common) -> bool {
        if self.live.contains_key(&txn) {
            return false;
        }
        // What was started here and is not live has been executed, or the execution is proposed.
        self.executing.contains(&txn)
            || self.decided.contains(&txn)
            || common.table.has_started(txn)
    }

    /// Executes the deferred pieces of a group.
    fn execute(&mut self, group: &[Version], common: &mut Common, cx: &mut Cx<'_>) {
        let (here, elsewhere): (Vec<Version>, Vec<Version>) =
            group.iter().partition(|txn| self.live.contains_key(txn));
        let cycle = self.cycle(group);
        for txn in elsewhere {
            self.decided.insert(txn);
            self.vertices.remove(&txn);
            self.cycles.remove(&txn);
        }
        if self.decided.len() > REMOTE_AT_MOST {
            let middle = *self.decided.iter().nth(REMOTE_AT_MOST / 2).expect("there are more");
            self.decided = self.decided.split_off(&middle);
        }
        if here.is_empty() {
            return;
        }
        let set = common.table.set().expect("pieces were started").clone();
        let mut rows = Rows {
            table: &mut common.table,
            unapplied: &mut self.unapplied,
            store: cx.store(),
            entry: self.entry,
            written: BTreeSet::new(),
            read: Vec::new(),
        };
        let (mut txns, mut replies) = (Vec::new(), Vec::new());
        for txn in here {
            let Live { call, mut deferred, committers, .. } =
                self.live.remove(&txn).expect("it is live");
            deferred.sort_by_key(|piece| (piece.piece, piece.number));
            let mut outputs = Vec::with_capacity(deferred.len());
            for Occurrence { piece, number, arguments } in deferred {
                let body = &set.piece(call.procedure, piece).expect("it was checked").body;
                let executed = body.execute(set.tables(), &arguments, &mut rows);
                // The compiler makes pieces immediate that can fail. A set that it has not made can have others.
                let zero = || body.outputs.iter().map(|(field, _)| field.of.zero()).collect();
                let found = executed.unwrap_or_else(|_| zero());
                outputs.push(Executed { piece, number, outputs: found });
            }
            let reply = Reply::Executed { txn, outputs: outputs.clone() };
            replies.extend(committers.into_iter().map(|to| (to, reply.clone())));
            txns.push((txn, outputs));
        }
        let rows = rows.into_written();
        cx.charge(rows.len());
        let executed: Vec<Version> = txns.iter().map(|(txn, _)| *txn).collect();
        self.put(Entry::Execute(Arc::new(ExecuteEntry { txns, cycle, rows })), replies);
        for txn in executed {
            self.executing.insert(txn);
            self.accesses.remove(txn);
            let parked = self.parked.remove(&txn).unwrap_or_default();
            self.parked_reads -= parked.len();
            for (from, read) in parked {
                self.on_read(from, read, common, cx);
            }
        }
    }

    /// All transactions of a group; nothing, if there is only one.
    ///
    /// A server that still has to execute one of them needs to know that it belongs to the group.
    fn cycle(&self, group: &[Version]) -> Arc<[Vertex]> {
        if group.len() == 1 {
            return Arc::default();
        }
        group.iter().filter_map(|txn| self.vertices.get(txn)).cloned().collect()
    }

    fn on_end(&mut self, mut txns: Vec<Version>, common: &mut Common) {
        txns.retain(|txn| common.table.open().contains(txn) && !self.live.contains_key(txn));
        if !txns.is_empty() {
            self.put(Entry::End(txns), Vec::new());
        }
    }

    // Status requests (002 §3.2).

    fn ask(&mut self, txn: Version, at: u16, common: &Common, cx: &mut Cx<'_>) {
        let again = 2 * common.group.round_trip() + core::time::Duration::from_millis(50);
        let now = cx.now();
        if self.asked.get(&txn).is_some_and(|asked| now.since(*asked) < again) {
            return;
        }
        self.asked.insert(txn, now);
        self.recoveries.send(at, Request::Ask { txn }, &common.group, cx);
    }

    fn on_ask(&mut self, from: NodeId, txn: Version, common: &mut Common, cx: &mut Cx<'_>) {
        let askers = self.askers.entry(txn).or_default();
        if !askers.contains(&from) {
            askers.push(from);
        }
        self.answer_askers(txn, common, cx);
        if !self.live.contains_key(&txn) && !self.executing.contains(&txn) {
            // It is not known yet, and the question comes again.
            self.askers.remove(&txn);
        }
    }

    /// Answers questions for a transaction, if it commits or has been executed.
    fn answer_askers(&mut self, txn: Version, common: &mut Common, cx: &mut Cx<'_>) {
        if !self.askers.contains_key(&txn) {
            return;
        }
        let ancestors = self.ancestors([txn].into_iter(), common, cx);
        if ancestors == Ancestors::default() {
            return;
        }
        for to in self.askers.remove(&txn).into_iter().flatten() {
            let ancestors = ancestors.clone();
            cx.send(to, Message::Reply(Reply::Status { txn, ancestors }));
        }
    }

    pub(super) fn on_status(
        &mut self,
        txn: Version,
        ancestors: &Ancestors,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        self.asked.remove(&txn);
        self.learn(ancestors, None, common, cx);
    }

    /// What is known of these transactions, and of others before them: that they commit, or have been executed.
    fn ancestors(
        &self,
        txns: impl Iterator<Item = Version>,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) -> Ancestors {
        let mut open: Vec<Version> = txns.collect();
        let mut known = BTreeSet::new();
        let mut ancestors = Ancestors::default();
        while let Some(txn) = open.pop() {
            if !known.insert(txn) {
                continue;
            }
            if let Some(vertex) = self.vertices.get(&txn) {
                open.extend(vertex.edges.iter().map(|edge| edge.from));
                ancestors.commit.push(vertex.clone());
            } else if txn.timestamp_us < common.table.window().forget_us {
                ancestors.executed.push(txn);
            } else if !self.live.contains_key(&txn) {
                match common.table.executed(txn, cx.store()) {
                    None => {}
                    Some(HowExecuted::Alone) => ancestors.executed.push(txn),
                    Some(HowExecuted::OnCycle(cycle)) => {
                        known.extend(cycle.iter().map(|vertex| vertex.txn));
                        ancestors.cycles.push(cycle);
                    }
                }
            }
        }
        ancestors
    }

    // Read-only calls (002 §4.1).

    fn on_read(&mut self, from: NodeId, read: Read, common: &mut Common, cx: &mut Cx<'_>) {
        let version = common.table.set().map_or(0, |set| set.version());
        let number = read.number;
        if read.set != version {
            let found = Err(NotStarted::OtherSet { version });
            return self.confirm(vec![(from, Reply::Read { number, found })]);
        }
        let Some(set) = common.table.set().cloned() else { return };
        if !set.accepts(read.procedure, &read.pieces, true) {
            return cx
                .reject(|| format!("{from} has sent pieces that the procedure does not have"));
        }
        let uses = read.pieces.iter().flat_map(|piece| set.rows(read.procedure, piece));
        let conflict = uses.into_iter().find_map(|(row, used)| self.accesses.conflict(&row, used));
        if let Some(txn) = conflict {
            if self.parked_reads < PARKED_AT_MOST {
                self.parked_reads += 1;
                self.parked.entry(txn).or_default().push((from, read));
            }
            return;
        }
        cx.charge(read.pieces.len());
        let mut rows = Rows {
            table: &mut common.table,
            unapplied: &mut self.unapplied,
            store: cx.store(),
            entry: self.entry,
            written: BTreeSet::new(),
            read: Vec::new(),
        };
        let mut found = Vec::with_capacity(read.pieces.len());
        for occurrence in &read.pieces {
            let piece = set.piece(read.procedure, occurrence.piece).expect("it was checked");
            let outcome = piece.body.execute(set.tables(), &occurrence.arguments, &mut rows);
            found.push(Found { outcome, versions: core::mem::take(&mut rows.read) });
        }
        self.confirm(vec![(from, Reply::Read { number, found: Ok(found) })]);
    }

    // Inquiries.

    fn on_inquire(&mut self, from: NodeId, txn: Version, common: &mut Common, cx: &mut Cx<'_>) {
        let live = self.live.get(&txn).map(|live| live.call.clone());
        let call =
            live.or_else(|| common.table.txn(txn, cx.store()).map(|state| state.call.clone()));
        let Window { from_us, forget_us } = common.table.window();
        let known = match call {
            Some(call) => Inquired::Started(call),
            None if txn.timestamp_us < forget_us => Inquired::Forgotten,
            None => Inquired::Unknown { from_us },
        };
        self.confirm(vec![(from, Reply::Known { txn, known })]);
    }

    // Proposals.

    pub(super) fn put(&mut self, entry: Entry, replies: Vec<(NodeId, Reply)>) {
        let number = self.entry;
        self.entry += 1;
        self.unproposed.push_back(Proposal { number, entry: Some(entry), replies });
    }

    /// Sends replies once everything that was proposed before is chosen, and this replica still leads.
    pub(super) fn confirm(&mut self, replies: Vec<(NodeId, Reply)>) {
        if let Some(last) = self.unproposed.back_mut() {
            return last.replies.extend(replies);
        }
        let number = self.entry;
        self.unproposed.push_back(Proposal { number, entry: None, replies });
    }

    /// Proposes the waiting entries, as far as the log has room.
    pub(super) fn propose(&mut self, log: &mut ReplicatedLog<Led>, cx: &mut Cx<'_>) {
        while let Some(first) = self.unproposed.front() {
            let slot = match first.entry.clone() {
                Some(entry) => log.propose(Some(Led { by: self.by, entry }), cx),
                None => log.confirm(cx),
            };
            let Some(slot) = slot else { return };
            let proposal = self.unproposed.pop_front().expect("there is a first");
            self.proposed.push_back((slot, proposal));
        }
    }

    /// A slot was chosen and applied.
    pub(super) fn on_chosen(&mut self, slot: u64, common: &mut Common, cx: &mut Cx<'_>) {
        while self.proposed.front().is_some_and(|(first, _)| *first <= slot) {
            let (_, Proposal { number, entry, replies }) =
                self.proposed.pop_front().expect("there is a first");
            let written = match &entry {
                Some(Entry::Start(entry)) => entry.rows.as_slice(),
                Some(Entry::Execute(entry)) => entry.rows.as_slice(),
                _ => &[],
            };
            self.unapplied.applied(number, written.iter().map(|row| &row.key));
            if let Some(Entry::Execute(entry)) = &entry {
                for (txn, _) in &entry.txns {
                    self.executing.remove(txn);
                    self.vertices.remove(txn);
                    self.cycles.remove(txn);
                    self.answer_askers(*txn, common, cx);
                }
            }
            for (to, reply) in replies {
                cx.send(to, Message::Reply(reply));
            }
        }
        self.window = self.window.and(common.table.window());
        self.advance_sets(common);
    }

    /// Whether no transaction is under way here, as far as this leader knows.
    pub(super) fn has_no_calls(&self) -> bool {
        self.live.is_empty() && self.executing.is_empty()
    }

    // Time.

    /// Looks for transactions whose coordinators are silent, and for what can be forgotten. Runs every now and then.
    pub(super) fn watch(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        let now = cx.now();
        let after = core::time::Duration::from_millis(common.settings.recovery_after_ms);
        // What is not chosen may be lost with this leader, and must not be started elsewhere.
        let is_silent = |(txn, live): &(&Version, &Live)| {
            now.since(live.heard) > after && common.table.has_started(**txn)
        };
        let silent = self.live.iter().filter(is_silent);
        let silent: Vec<(Version, Arc<CallOf>)> =
            silent.map(|(txn, live)| (*txn, live.call.clone())).collect();
        for (txn, call) in silent {
            self.recover(txn, &call, common, cx);
        }
        // Those that were executed here, and perhaps not elsewhere.
        let old_us = cx.clock().midpoint_us().saturating_sub(2 * after.as_micros() as u64);
        let not_ended: Vec<Version> =
            common.table.open().range(..Version::at(old_us)).copied().take(64).collect();
        for txn in not_ended {
            if let Some(state) = common.table.txn(txn, cx.store()) {
                let call = state.call.clone();
                self.recover(txn, &call, common, cx);
            }
        }
        // What is blocked may have lost its question or the answer.
        let blocked: Vec<Version> = self.blocked.values().flatten().copied().collect();
        self.execute_all(blocked, common, cx);
        self.prune(common);
        self.asked.retain(|txn, _| self.blocked.contains_key(txn));
        self.report_over(common, cx);
        self.recoveries.repeat(common, cx);
        self.advance_sets(common);
        self.repeat_sets(common, cx);
    }

    /// Forgets transactions of other partitions that come before none which is to be executed here.
    fn prune(&mut self, common: &Common) {
        let mut needed: BTreeSet<Version> = BTreeSet::new();
        let mut open: Vec<Version> = self.live.keys().copied().collect();
        open.extend(self.executing.iter().copied());
        while let Some(txn) = open.pop() {
            if !needed.insert(txn) {
                continue;
            }
            let edges = self.vertices.get(&txn).into_iter().flat_map(|vertex| vertex.edges.iter());
            let cycle = self.cycles.get(&txn).into_iter().flat_map(|cycle| cycle.iter()).copied();
            open.extend(edges.map(|edge| edge.from).chain(cycle));
            if let Some(live) = self.live.get(&txn) {
                open.extend(live.edges.iter().map(|edge| edge.from));
            }
        }
        self.vertices.retain(|txn, _| needed.contains(txn));
        self.cycles.retain(|txn, _| needed.contains(txn));
        let forget_us = common.table.window().forget_us;
        self.decided.retain(|txn| needed.contains(txn) || txn.timestamp_us >= forget_us);
    }

    fn recover(&mut self, txn: Version, call: &Arc<CallOf>, common: &mut Common, cx: &mut Cx<'_>) {
        if let Some(live) = self.live.get_mut(&txn) {
            live.heard = cx.now();
        }
        if let Some(set) = common.table.set().filter(|set| set.version() == call.set).cloned() {
            self.recoveries.begin(txn, call.clone(), &set, &common.group, cx);
        }
    }

    /// Reports to the other partitions the time below which everything has ended here, and moves the window.
    fn report_over(&mut self, common: &mut Common, cx: &mut Cx<'_>) {
        let Window { from_us, .. } = common.table.window();
        let oldest = common.table.open().first().map_or(u64::MAX, |txn| txn.timestamp_us);
        let live = self.live.keys().next().map_or(u64::MAX, |txn| txn.timestamp_us);
        let below_us = from_us.min(oldest).min(live);
        self.over.insert(common.partition(), below_us);
        for partition in 0..common.group.partitions() {
            if partition != common.partition() {
                let request = Request::Over { below_us };
                self.recoveries.send(partition, request, &common.group, cx);
            }
        }
        let is_complete = self.over.len() == usize::from(common.group.partitions());
        let all_us = self.over.values().copied().min().filter(|_| is_complete).unwrap_or(0);
        let now_us = cx.clock().midpoint_us();
        let ago = |ms: u64| now_us.saturating_sub(ms.saturating_mul(1000));
        let new = Window {
            from_us: ago(common.settings.truncation_lag_ms),
            forget_us: all_us.min(ago(common.settings.outcomes_ms)),
        };
        let new = new.and(self.window);
        if new != self.window {
            self.window = new;
            self.put(Entry::Window(new), Vec::new());
        }
    }
}

impl Live {
    fn new(call: Arc<CallOf>, now: Timestamp) -> Live {
        Live {
            call,
            deferred: Vec::new(),
            started: BTreeSet::new(),
            edges: Vec::new(),
            committers: Vec::new(),
            heard: now,
        }
    }

    fn start(&mut self, occurrence: Occurrence, kind: Kind) {
        self.started.insert((occurrence.piece, occurrence.number));
        if kind == Kind::Deferred {
            self.deferred.push(occurrence);
        }
    }
}

type Outcome = Option<Result<Vec<Datum>, Refused>>;

fn started<'p>(
    pieces: impl Iterator<Item = &'p Occurrence> + 'p,
    outcomes: &'p [Outcome],
) -> impl Iterator<Item = StartedPiece> + 'p {
    pieces.zip(outcomes).map(|(piece, outcome)| StartedPiece {
        piece: piece.piece,
        number: piece.number,
        outcome: outcome.clone(),
    })
}

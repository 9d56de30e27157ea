//! The leader of a partition: it executes pieces, tracks which transactions come before which, and proposes the results.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serried_actor::{Group, Settings, Timestamp};
use serried_model::{NodeId, Version};

use super::super::Mutation;
use super::super::message::{
    Ancestors, CallOf, Commit, Edge, Entry, ExecuteEntry, Executed, Inquired, Kind, Message,
    NotStarted, Occurrence, Reply, Request, Start, StartEntry, Started, Vertex, Window,
};
use super::super::registered::Registered;
use super::super::table::{HowExecuted, Table};
use super::Cx;
use super::live::{self, Live};
use super::merged::Holds;
use super::proposals::{Proposal, Proposals};
use super::reads::Reads;
use super::recovery::Recoveries;
use super::rows::{Rows, Unapplied};
use super::sets::Sets;
use crate::Mutated;
use crate::frameworks::chopped::order::Known;
use crate::frameworks::chopped::{
    ANCESTORS_AT_MOST, Accesses, Blocked, EDGES_AT_MOST, FAR, Graph, Horizon, Missing, Next, View,
};

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
    /// The transactions that have pieces here and are not executed.
    pub(super) live: BTreeMap<Version, Live>,
    /// The transactions whose execution is proposed and not chosen.
    executing: BTreeSet<Version>,
    pub(super) accesses: Accesses,
    pub(super) unapplied: Unapplied,
    graph: Graph,
    blocked: Blocked,
    /// By transaction, the servers that wait for its edges.
    askers: BTreeMap<Version, Vec<NodeId>>,
    /// When other partitions were asked for the edges of transactions.
    asked: BTreeMap<Version, Timestamp>,
    pub(super) reads: Reads,
    pub(super) proposals: Proposals,
    pub(super) horizon: Horizon,
    pub(super) holds: Holds,
    pub(super) recoveries: Recoveries,
    pub(super) sets: Sets,
}

/// What a leader knows of transactions.
struct OfLeader<'a> {
    leader: &'a Leader,
    common: &'a Common,
}

impl View for OfLeader<'_> {
    fn known(&self, txn: Version) -> Known<'_> {
        self.leader.known(txn, self.common)
    }

    fn is_here(&self, txn: Version) -> bool {
        self.leader.live.contains_key(&txn)
    }

    fn is_far(&self) -> bool {
        self.common.group.round_trip() >= FAR
    }
}

impl Leader {
    /// Begins to lead with the entry of slot `first`. Everything that former leaders have proposed is applied.
    pub(super) fn new(first: u64, common: &mut Common, cx: &mut Cx<'_>) -> Leader {
        let mut leader = Leader {
            live: BTreeMap::new(),
            executing: BTreeSet::new(),
            accesses: Accesses::default(),
            unapplied: Unapplied::default(),
            graph: Graph::default(),
            blocked: Blocked::default(),
            askers: BTreeMap::new(),
            asked: BTreeMap::new(),
            reads: Reads::new(first),
            proposals: Proposals::default(),
            horizon: Horizon::new(common.table.window()),
            holds: Holds::default(),
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
            if let Some(set) = common.table.set().filter(|_| !state.holds.is_empty()) {
                self.holds.inherit(txn, &state.call, state.holds, set);
            }
            let mut live = Live::new(state.call, state.edges, cx.now());
            live.attempts = state.attempts;
            live.is_closed = state.is_closed;
            self.live.insert(txn, live);
            let started = state.pieces.into_iter().zip(state.outcomes);
            pieces.extend(
                started.map(|((slot, occurrence), outcome)| (slot, txn, occurrence, outcome)),
            );
        }
        // What comes before a new piece depends on the order in which the others were started. The pieces of an entry stay
        // in their order.
        pieces.sort_by_key(|(slot, ..)| *slot);
        for (_, txn, occurrence, outcome) in pieces {
            let live = self.live.get_mut(&txn).expect("it was added");
            let set = common.table.set().expect("pieces were started");
            for (row, used) in set.rows(live.call.procedure, &occurrence) {
                // Its edges are known.
                self.accesses.add(txn, live::kind(&outcome), &row, used, &mut |_, _| {});
            }
            live.start(&occurrence, outcome);
        }
    }

    pub(super) fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("live_transactions", self.live.len() as u64);
        each("used_rows", self.accesses.len() as u64);
        each("held_merged_pieces", self.holds.len() as u64);
        each("waiting_for_held_rows", self.holds.waiting() as u64);
        each("waiting_reads", self.reads.len() as u64);
        each("remembered_bytes_of_reads", self.reads.remembered_bytes() as u64);
        each("known_vertices", self.graph.len() as u64);
    }

    /// Whether all entries were proposed.
    pub(super) fn has_proposed_all(&self) -> bool {
        self.proposals.are_in_log()
    }

    pub(super) fn on_request(
        &mut self,
        from: NodeId,
        request: Request,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        let set = match &request {
            Request::Start(start) => start.call.set,
            Request::Hold(hold) | Request::Release(hold) => hold.start.call.set,
            Request::Read(read) => read.set,
            _ => 0,
        };
        if set > common.table.set().map_or(0, |set| set.version()) {
            return self.sets.keep(from, request); // Other partitions use the set already.
        }
        match request {
            Request::Start(start) => self.on_start(from, start, common, cx),
            Request::Commit(commit) => self.on_commit(from, &commit, common, cx),
            Request::End(txns) => self.on_end(txns, common),
            Request::Read(read) => self.on_read(from, read, common, cx),
            Request::Ask { txn } => self.on_ask(from, txn, common, cx),
            Request::Over { below_us } => {
                self.horizon.is_over(from.partition(), below_us);
            }
            Request::Set => {
                let set = common.table.set();
                let (version, set) =
                    set.map_or((0, Arc::default()), |set| (set.version(), set.set().clone()));
                let from_us = common.table.window().from_us;
                self.proposals.confirm(from, Reply::Set { version, set, from_us });
            }
            Request::Register { number, set, replaces } => {
                self.on_register((from, number), set, replaces, common);
            }
            Request::Drain { version, set } => self.on_drain(from, version, set, common),
            Request::Install { version, set } => self.on_install(from, version, set, common),
            Request::Inquire { txn } => self.on_inquire(from, txn, common, cx),
            Request::Hold(hold) => self.on_hold(from, hold, common, cx),
            Request::Release(hold) => self.on_release(from, hold, common, cx),
        }
    }

    // The start phase.

    fn on_start(&mut self, from: NodeId, start: Start, common: &mut Common, cx: &mut Cx<'_>) {
        let txn = start.txn;
        if let Err(why) = self.admit(&start, common) {
            return self.proposals.confirm(from, Reply::NotStarted { txn, why });
        }
        let is_executed = !self.live.contains_key(&txn) && common.table.has_started(txn);
        // A coordinator that only asks what was started here sends no pieces. If it is a read-only call, that closes it.
        let asks = self.live.get(&txn).is_some_and(|live| match start.call.is_read() {
            true => live.is_closed,
            false => start.pieces.is_empty(),
        });
        if !is_executed && !asks {
            let Start { ref call, ref pieces, .. } = start;
            let Some(set) = common.table.set().filter(|set| set.version() == call.set).cloned()
            else {
                return;
            };
            let is_same = self.live.get(&txn).is_none_or(|live| live.call == *call);
            if !is_same || !set.accepts_start(&start) {
                return cx.reject(|| format!("{from} has sent pieces that {txn} does not have"));
            }
            self.start_held(txn, call, pieces, &set, common, cx);
            if self.waits_for_held(from, &start, &set, common) {
                return;
            }
            let Start { call, pieces, .. } = start;
            self.start_pieces((txn, &call), pieces, &set, common, cx);
        }
        self.answer_start(from, txn, common, cx);
    }

    pub(super) fn start_pieces(
        &mut self,
        (txn, call): (Version, &Arc<CallOf>),
        pieces: Vec<Occurrence>,
        set: &Registered,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        let partition = common.partition();
        let now = cx.now();
        let live = self.live.entry(txn).or_insert_with(|| Live::new(call.clone(), Vec::new(), now));
        live.heard = now;
        live.is_closed = call.is_read() && pieces.is_empty();
        let new: Vec<Occurrence> = pieces.into_iter().filter(|piece| !live.has(piece)).collect();
        if new.is_empty() && !live.is_closed {
            return;
        }
        cx.charge(new.len());
        let mut edges: BTreeSet<Edge> = BTreeSet::new();
        let mut outcomes = Vec::with_capacity(new.len());
        let entry = self.proposals.next();
        let mut rows = Rows::new(&mut common.table, &mut self.unapplied, cx.store(), entry);
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
            let execute = || piece.execute(set.tables(), &occurrence.arguments, &mut rows);
            let outcome = (kind == Kind::Immediate).then(execute);
            live.start(occurrence, outcome.clone());
            outcomes.push(outcome);
        }
        let rows = rows.into_written();
        live.add_edges(&edges);
        let entry = StartEntry {
            txn,
            call: call.clone(),
            pieces: new,
            outcomes,
            edges: edges.into_iter().collect(),
            rows,
        };
        self.proposals.put(Entry::Start(Arc::new(entry)), Vec::new());
    }

    /// Answers that pieces were started, as soon as what is proposed is chosen.
    pub(super) fn answer_start(
        &mut self,
        to: NodeId,
        txn: Version,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        let is_closed = self.live.get(&txn).is_some_and(|live| live.is_closed);
        let (pieces, attempts, edges, is_over) = match self.live.get(&txn) {
            Some(live) => (live.started.clone(), live.attempts.clone(), live.edges.clone(), false),
            None => {
                let Some(state) = common.table.txn(txn, cx.store()) else { return };
                (state.started().collect(), state.attempts.clone(), state.edges.clone(), true)
            }
        };
        let ancestors = self.ancestors(edges.iter().map(|edge| edge.from), common, cx);
        let started = Started { txn, pieces, attempts, edges, ancestors, is_over, is_closed };
        self.proposals.confirm(to, Reply::Started(started));
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
                self.proposals.confirm(from, Reply::Executed { txn, outputs });
            } else if let Some(proposal) = self.proposals.execution_of(txn) {
                let Some(Entry::Execute(entry)) = &proposal.entry else { return };
                let own = entry.txns.iter().find(|(other, _)| *other == txn);
                let outputs = own.map(|(_, outputs)| outputs.clone()).unwrap_or_default();
                proposal.replies.push((from, Reply::Executed { txn, outputs }));
            }
        } else if txn.timestamp_us < common.table.window().forget_us {
            let why = NotStarted::Forgotten;
            self.proposals.confirm(from, Reply::NotStarted { txn, why });
        }
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
                self.graph.decide(*txn);
                open.push(*txn);
            }
        }
        for cycle in cycles {
            let members: Arc<[Version]> = cycle.iter().map(|vertex| vertex.txn).collect();
            for txn in members.iter() {
                if !self.is_decided(*txn, common) {
                    self.graph.is_on_cycle(*txn, members.clone());
                    open.push(*txn);
                }
            }
        }
        let on_cycles = cycles.iter().flat_map(|cycle| cycle.iter());
        for vertex in commit.iter().chain(on_cycles).chain(own) {
            if !self.is_decided(vertex.txn, common) && self.graph.commit(vertex) {
                open.push(vertex.txn);
            }
        }
        for txn in &open {
            self.answer_askers(*txn, common, cx);
        }
        self.execute_all(open, common, cx);
    }

    /// Executes these transactions and those that were waiting for them, if nothing is missing.
    fn execute_all(&mut self, mut open: Vec<Version>, common: &mut Common, cx: &mut Cx<'_>) {
        while let Some(txn) = open.pop() {
            match self.known(txn, common) {
                Known::Decided => open.extend(self.blocked.release(txn)),
                Known::Open => {}
                Known::Committing(_) | Known::OnCycle(..) => {
                    self.execute_group_of(txn, &mut open, common, cx)
                }
            }
        }
    }

    /// Executes a transaction that commits, with all others on a cycle with it, or finds an ancestor for which it waits.
    /// Those that can be looked at next are added to `open`.
    fn execute_group_of(
        &mut self,
        txn: Version,
        open: &mut Vec<Version>,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        let mut blocked = core::mem::take(&mut self.blocked);
        let next = blocked.next(txn, &OfLeader { leader: self, common });
        self.blocked = blocked;
        match next {
            Next::Execute(group) => {
                self.execute(&group, common, cx);
                open.extend(group);
            }
            Next::Wait { missing, look_at } => {
                open.extend(look_at);
                for Missing { txn, at } in missing {
                    self.ask_if_absent(txn, at, common, cx);
                }
            }
            Next::Void(_) => {}
        }
    }

    fn known(&self, txn: Version, common: &Common) -> Known<'_> {
        if self.is_decided(txn, common) {
            return Known::Decided;
        }
        match self.graph.known(txn) {
            Known::Open
                if !self.live.contains_key(&txn)
                    && common.mutation.is(Mutation::IgnoresOtherServers) =>
            {
                Known::Decided
            }
            known => known,
        }
    }

    fn is_decided(&self, txn: Version, common: &Common) -> bool {
        if self.live.contains_key(&txn) {
            return false;
        }
        // What was started here and is not live has been executed, or the execution is proposed.
        self.executing.contains(&txn) || self.graph.is_decided(txn) || common.table.has_started(txn)
    }

    /// Executes the deferred pieces of a group.
    fn execute(&mut self, group: &[Version], common: &mut Common, cx: &mut Cx<'_>) {
        let (mut here, elsewhere): (Vec<Version>, Vec<Version>) =
            group.iter().partition(|txn| self.live.contains_key(txn));
        if common.mutation.is(Mutation::OrdersByArrival) {
            here.sort_by_key(|txn| self.live[txn].heard);
        }
        let cycle = self.graph.cycle(group);
        elsewhere.into_iter().for_each(|txn| self.graph.decide(txn));
        if here.is_empty() {
            return;
        }
        let set = common.table.set().expect("pieces were started").clone();
        let entry = self.proposals.next();
        let mut rows = Rows::new(&mut common.table, &mut self.unapplied, cx.store(), entry);
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
            let outputs: Arc<[Executed]> = outputs.into();
            let reply = Reply::Executed { txn, outputs: outputs.clone() };
            replies.extend(committers.into_iter().map(|to| (to, reply.clone())));
            txns.push((txn, outputs));
        }
        let rows = rows.into_written();
        cx.charge(rows.len());
        let executed: Vec<Version> = txns.iter().map(|(txn, _)| *txn).collect();
        self.proposals.put(Entry::Execute(Arc::new(ExecuteEntry { txns, cycle, rows })), replies);
        for txn in executed {
            self.executing.insert(txn);
            self.accesses.remove(txn);
            self.holds.end(txn);
            self.resume_reads(txn, common, cx);
        }
    }

    fn on_end(&mut self, mut txns: Vec<Version>, common: &mut Common) {
        txns.retain(|txn| common.table.open().contains(txn) && !self.live.contains_key(txn));
        if !txns.is_empty() {
            self.proposals.put(Entry::End(txns), Vec::new());
        }
    }

    // Status requests (002 §3.2).

    /// Asks for the edges of a transaction, unless it has pieces here that are not executed.
    fn ask_if_absent(&mut self, txn: Version, at: u16, common: &Common, cx: &mut Cx<'_>) {
        if self.live.contains_key(&txn) {
            return;
        }
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

    /// What is known of these transactions, and of others before them: that they commit, or have been executed. If there
    /// are many, others are left out. A leader that needs them asks for them.
    fn ancestors(
        &self,
        txns: impl Iterator<Item = Version>,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) -> Ancestors {
        // Each with whether it has pieces here.
        let mut open: VecDeque<(Version, bool)> = txns.map(|txn| (txn, true)).collect();
        let mut known = BTreeSet::new();
        let mut ancestors = Ancestors::default();
        let mut edges = 0;
        while let Some((txn, is_here)) = open.pop_front() {
            if !known.insert(txn) {
                continue;
            }
            if edges >= EDGES_AT_MOST || known.len() > ANCESTORS_AT_MOST {
                break;
            }
            if let Some(vertex) = self.graph.vertex(txn) {
                edges += vertex.edges.len();
                let own = common.partition();
                open.extend(vertex.edges.iter().map(|edge| (edge.from, edge.at == own)));
                ancestors.commit.push(vertex.clone());
            } else if common.table.has_started(txn) {
                match common.table.executed(txn, cx.store()) {
                    None => {}
                    Some(HowExecuted::Alone) => ancestors.executed.push(txn),
                    Some(HowExecuted::OnCycle(cycle)) => {
                        edges += cycle.iter().map(|vertex| vertex.edges.len()).sum::<usize>();
                        known.extend(cycle.iter().map(|vertex| vertex.txn));
                        ancestors.cycles.push(cycle);
                    }
                }
            } else if is_here && txn.timestamp_us < common.table.window().forget_us {
                // If it was on a cycle, that is forgotten, too. Elsewhere it may be on one that is not.
                ancestors.executed.push(txn);
            }
        }
        ancestors
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
        self.proposals.confirm(from, Reply::Known { txn, known });
    }

    /// A slot was chosen and applied.
    pub(super) fn on_chosen(&mut self, slot: u64, common: &mut Common, cx: &mut Cx<'_>) {
        while let Some(Proposal { number, entry, replies }) = self.proposals.pop_chosen(slot) {
            let written = match &entry {
                Some(Entry::Start(entry)) => entry.rows.as_slice(),
                Some(Entry::Execute(entry)) => entry.rows.as_slice(),
                Some(Entry::Drain { .. } | Entry::Install { .. }) => {
                    self.sets.on_step();
                    &[]
                }
                _ => &[],
            };
            self.unapplied.applied(number, written.iter().map(|row| &row.key));
            if let Some(Entry::Execute(entry)) = &entry {
                for (txn, _) in &entry.txns {
                    self.executing.remove(txn);
                    self.graph.remove(*txn);
                    self.answer_askers(*txn, common, cx);
                }
            }
            for (to, reply) in replies {
                cx.send(to, Message::Reply(reply));
            }
        }
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
        // Those that were executed here, and perhaps not elsewhere. A new set of procedures waits for the end of all of them,
        // whatever the clocks of their clients say.
        let drains = self.is_draining(common);
        let old_us = match drains {
            true => u64::MAX,
            false => cx.clock().midpoint_us().saturating_sub(2 * after.as_micros() as u64),
        };
        let not_ended = common.table.open().range(..Version::at(old_us)).copied();
        let not_ended: Vec<Version> =
            not_ended.filter(|txn| !self.live.contains_key(txn)).take(64).collect();
        for txn in not_ended {
            if let Some(state) = common.table.txn(txn, cx.store()) {
                let call = state.call.clone();
                self.recover(txn, &call, common, cx);
            }
        }
        // What is blocked may have lost its question or the answer.
        for (ancestor, at) in self.blocked.ancestors() {
            match self.known(ancestor, common) {
                Known::Open => self.ask_if_absent(ancestor, at, common, cx),
                _ if self.blocked.waits(ancestor) => {}
                _ => self.execute_all(vec![ancestor], common, cx),
            }
        }
        self.prune(common);
        self.asked.retain(|txn, _| self.blocked.waits_for(*txn));
        self.report_over(common, cx);
        self.recoveries.repeat(common, cx);
        self.advance_sets(common);
        self.repeat_sets(common, cx);
    }

    /// Forgets transactions of other partitions that come before none which is to be executed here.
    fn prune(&mut self, common: &Common) {
        let before = self.live.values().flat_map(|live| &live.edges).map(|edge| edge.from);
        let here = self.live.keys().chain(&self.executing).copied();
        let open = here.chain(before).collect();
        self.graph.prune(open, common.table.window().forget_us);
        let (live, graph) = (&self.live, &self.graph);
        self.blocked.retain(|txn| live.contains_key(&txn) || graph.vertex(txn).is_some());
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
        self.horizon.is_over(common.partition(), below_us);
        for partition in 0..common.group.partitions() {
            if partition != common.partition() {
                let request = Request::Over { below_us };
                self.recoveries.send(partition, request, &common.group, cx);
            }
        }
        let (partitions, now_us) = (common.group.partitions(), cx.clock().midpoint_us());
        if common.mutation.is(Mutation::ForgetsEarly) {
            (0..partitions).for_each(|partition| self.horizon.is_over(partition, u64::MAX));
        }
        if let Some(window) = self.horizon.advance(partitions, now_us, &common.settings) {
            self.proposals.put(Entry::Window(window), Vec::new());
        }
    }
}

//! The execution of transactions, in the order of the graph.

use std::collections::BTreeMap;

use serried_actor::Store;
use serried_model::{Key, NodeId, Version};
use serried_procedures::{Datum, RowStore, StoredRow, row_key};

use super::super::Mutation;
use super::super::message::{
    End, Entry, ExecuteEntry, PieceResult, Progress, Reply, Request, Results, Task,
};
use super::super::table::Table;
use super::{Cx, Replica};
use crate::frameworks::chopped::order::Known;
use crate::frameworks::chopped::{FAR, Missing, Next, View};

/// A group that is being executed.
#[derive(Debug)]
pub(super) struct Group {
    /// Its transactions, in the order of their execution.
    members: Vec<Version>,
    /// How many of them are done.
    done: usize,
}

/// What was executed and is not recorded.
#[derive(Debug, Default)]
struct Unrecorded {
    rows: BTreeMap<Key, Option<StoredRow>>,
    progress: Vec<Progress>,
}

/// The rows as bodies see them.
struct Rows<'a> {
    table: &'a mut Table,
    store: &'a mut dyn Store,
    written: &'a mut BTreeMap<Key, Option<StoredRow>>,
    used: usize,
}

impl RowStore for Rows<'_> {
    fn read(&mut self, table: u16, key: &[Datum]) -> Option<StoredRow> {
        self.used += 1;
        let key = row_key(table, key);
        match self.written.get(&key) {
            Some(written) => written.clone(),
            None => self.table.row(&key, self.store).cloned(),
        }
    }

    fn write(&mut self, table: u16, key: &[Datum], row: StoredRow) {
        self.used += 1;
        self.written.insert(row_key(table, key), Some(row));
    }

    fn delete(&mut self, table: u16, key: &[Datum]) {
        self.used += 1;
        self.written.insert(row_key(table, key), None);
    }
}

impl View for Replica {
    fn known(&self, txn: Version) -> Known<'_> {
        Replica::known(self, txn)
    }

    fn is_here(&self, txn: Version) -> bool {
        self.live.contains_key(&txn) || self.wanted.contains_key(&txn)
    }

    fn is_far(&self) -> bool {
        self.members.round_trip() >= FAR
    }

    fn is_void(&self, ancestor: Version, at: u16) -> bool {
        at == self.partition() && self.is_dead(ancestor)
    }
}

impl Replica {
    /// Executes these transactions and those that were waiting for them, if nothing is missing.
    pub(super) fn execute_all(&mut self, mut open: Vec<Version>, cx: &mut Cx<'_>) {
        if !self.executes() {
            return;
        }
        while let Some(txn) = open.pop() {
            if let Some(name) = self.running.get(&txn).copied() {
                open.extend(self.proceed(name, cx));
                continue;
            }
            match self.known(txn) {
                Known::Decided => open.extend(self.blocked.release(txn)),
                Known::Open if self.voids.contains(&txn) => {
                    open.extend(self.blocked.release(txn));
                }
                Known::Open if self.is_gated(txn) => drop(self.gated.insert(txn)),
                Known::Open => {}
                Known::Committing(_) | Known::OnCycle(..) => {
                    self.execute_group_of(txn, &mut open, cx)
                }
            }
        }
    }

    /// Executes a transaction that commits, with all others on a cycle with it, or finds an ancestor for which it waits.
    /// Those that can be looked at next are added to `open`.
    fn execute_group_of(&mut self, txn: Version, open: &mut Vec<Version>, cx: &mut Cx<'_>) {
        let mut blocked = core::mem::take(&mut self.blocked);
        let next = loop {
            match blocked.next(txn, self) {
                Next::Void(ancestor) => {
                    self.graph.decide(ancestor);
                    open.push(ancestor);
                }
                next => break next,
            }
        };
        self.blocked = blocked;
        match next {
            Next::Execute(group) => open.extend(self.start(group, cx)),
            Next::Wait { missing, look_at } => {
                open.extend(look_at.filter(|last| !self.running.contains_key(last)));
                for Missing { txn, at } in missing {
                    self.ask_if_absent(txn, at, cx);
                }
            }
            Next::Void(_) => {}
        }
    }

    /// Asks for an ancestor, unless it is known here what it does.
    pub(super) fn ask_if_absent(&mut self, ancestor: Version, at: u16, cx: &mut Cx<'_>) {
        if !self.live.contains_key(&ancestor) && !self.running.contains_key(&ancestor) {
            self.ask(ancestor, at, cx);
        }
    }

    /// Starts the execution of a group. Returns its members if that is all, and nothing if it has to wait.
    fn start(&mut self, mut members: Vec<Version>, cx: &mut Cx<'_>) -> Vec<Version> {
        if !members.iter().any(|txn| self.live.contains_key(txn)) {
            members.iter().for_each(|txn| self.graph.decide(*txn));
            return members;
        }
        if self.mutation.is(Mutation::ExecutesByArrival) {
            members.sort_by_key(|txn| self.live.get(txn).map(|live| live.began));
        }
        let name = members[0];
        for txn in &members {
            self.running.insert(*txn, name);
        }
        self.groups.insert(name, Group { members, done: 0 });
        self.proceed(name, cx)
    }

    /// Executes what can be executed of a group. Returns its members if that is all.
    fn proceed(&mut self, name: Version, cx: &mut Cx<'_>) -> Vec<Version> {
        let Some(Group { members, mut done }) = self.groups.remove(&name) else {
            return Vec::new();
        };
        let mut unrecorded = Unrecorded::default();
        while let Some(txn) = members.get(done) {
            if self.live.contains_key(txn) && !self.execute(*txn, &mut unrecorded, cx) {
                self.record_execution(unrecorded, ExecuteEntry::default(), cx);
                self.groups.insert(name, Group { members, done });
                return Vec::new();
            }
            done += 1;
        }
        let (here, elsewhere): (Vec<Version>, Vec<Version>) =
            members.iter().partition(|txn| self.live.contains_key(txn));
        let cycle = self.graph.cycle(&members);
        let executed = here.iter().filter_map(|txn| self.graph.vertex(*txn).cloned()).collect();
        let entry = ExecuteEntry { executed, cycle, ..ExecuteEntry::default() };
        self.record_execution(unrecorded, entry, cx);
        for txn in &members {
            self.running.remove(txn);
        }
        elsewhere.into_iter().for_each(|txn| self.graph.decide(txn));
        for txn in here {
            let Some(live) = self.live.remove(&txn) else { continue };
            self.settle_uses(txn, &live);
            self.graph.remove(txn);
            for to in live.committers {
                self.answer_commit(to, txn, cx);
            }
            self.answer_askers(txn, cx);
            self.has_executed(txn);
        }
        members
    }

    /// A transaction was executed here. If the partition has other replicas, its uses of rows are kept.
    fn settle_uses(&mut self, txn: Version, live: &super::live::Live) {
        if self.is_alone() || self.mutation.is(Mutation::ForgetsExecuted) {
            self.accesses.remove(txn);
            self.registrations.remove(&txn);
            return;
        }
        if !self.accesses.contains(txn) {
            self.use_rows(txn, &live.work, &mut |_| {});
        }
        self.agree_on_uses(txn);
        self.accesses.settle(txn);
        if let Task::Register { .. } = live.work.task {
            // It comes after all that were executed before.
            let live = &self.live;
            self.registrations.retain(|other| *other == txn || live.contains_key(other));
        }
    }

    /// Executes what can be executed of a transaction. Returns whether nothing is left.
    fn execute(&mut self, txn: Version, unrecorded: &mut Unrecorded, cx: &mut Cx<'_>) -> bool {
        let Some(live) = self.live.get_mut(&txn) else { return true };
        if live.end.is_some() {
            return true;
        }
        let work = live.work.clone();
        let results = Results::default();
        match &work.task {
            Task::Register { set, replaces } => {
                let (registration, installs) = self.table.register(set, *replaces);
                let end = Some(End::Registered(registration));
                live.end = end.clone();
                unrecorded.progress.push(Progress { txn, results, end });
                let next = self.table.version() + 1;
                let installs = installs.then(|| (next, set.clone()));
                // Transactions after it need the new set.
                let entry = ExecuteEntry { installs, ..ExecuteEntry::default() };
                self.record_execution(core::mem::take(unrecorded), entry, cx);
                true
            }
            Task::Call(of) => {
                let set = self.table.set().filter(|set| set.version() == of.set).cloned();
                let Some(set) = set else {
                    live.end = Some(End::OtherSet);
                    unrecorded.progress.push(Progress { txn, results, end: live.end.clone() });
                    return true;
                };
                let place = (self.id.partition(), self.members.group());
                let written = &mut unrecorded.rows;
                let mut rows = Rows { table: &mut self.table, store: cx.store(), written, used: 0 };
                let (pieces, is_over) = live.execution.proceed(of, &set, place, &mut rows);
                let used = rows.used;
                cx.charge(used);
                if is_over {
                    live.end = Some(End::Executed);
                }
                if is_over || !pieces.is_empty() {
                    let refused = live.execution.refused().cloned();
                    let (results, end) = (Results { pieces, refused }, live.end.clone());
                    unrecorded.progress.push(Progress { txn, results, end });
                }
                is_over
            }
        }
    }

    /// Records what was executed, and reports it to other participants that may need it.
    fn record_execution(
        &mut self,
        Unrecorded { rows, progress }: Unrecorded,
        entry: ExecuteEntry,
        cx: &mut Cx<'_>,
    ) {
        if progress.is_empty() && entry.executed.is_empty() {
            return;
        }
        let moved: Vec<Version> = progress.iter().map(|progress| progress.txn).collect();
        let rows = rows.into_iter().collect();
        self.record(Entry::Execute(Box::new(ExecuteEntry { rows, progress, ..entry })), cx);
        for txn in moved {
            self.report_results(txn, cx);
        }
    }

    /// Reports what pieces of a call here have returned, if pieces elsewhere may need it.
    fn report_results(&mut self, txn: Version, cx: &mut Cx<'_>) {
        let Some(live) = self.live.get(&txn) else { return };
        if !self.is_exchanged(txn) {
            return;
        }
        let own = cx.id().partition();
        let results = live.execution.results();
        for at in live.work.participants.iter().filter(|at| **at != own) {
            let reply = Reply::Results { txn, results: results.clone() };
            cx.send(self.members.counterpart(self.id, *at), super::Message::Reply(reply));
        }
    }

    /// Whether pieces of a call come after others, and perhaps at other servers.
    fn is_exchanged(&self, txn: Version) -> bool {
        let Some(live) = self.live.get(&txn) else { return false };
        let Task::Call(of) = &live.work.task else { return false };
        let set = self.table.set().filter(|set| set.version() == of.set);
        let procedure = set.and_then(|set| set.procedure(of.procedure));
        live.work.participants.len() > 1
            && procedure.is_some_and(|procedure| {
                procedure.pieces.iter().any(|piece| !piece.after.is_empty())
            })
    }

    /// Another server asks for what pieces here have returned.
    pub(super) fn on_results_wanted(&mut self, from: NodeId, txn: Version, cx: &mut Cx<'_>) {
        let results = match self.live.get(&txn) {
            Some(live) => live.execution.results(),
            None => match self.table.txn(txn, cx.store()) {
                Some(state) => state.results.clone(),
                None => return,
            },
        };
        self.reply(from, Reply::Results { txn, results }, cx);
    }

    /// Another server reports what its pieces have returned.
    pub(super) fn on_results(
        &mut self,
        from: NodeId,
        txn: Version,
        results: Results,
        cx: &mut Cx<'_>,
    ) {
        let Some(live) = self.live.get_mut(&txn) else {
            return; // late: all of its pieces here are executed
        };
        let Task::Call(of) = &live.work.task else { return };
        let Some(set) = self.table.set().filter(|set| set.version() == of.set) else { return };
        let is_piece = |result: &PieceResult| {
            let PieceResult { piece, number, .. } = result;
            set.has_piece(of.procedure, *piece, *number)
        };
        let is_participant = live.work.participants.contains(&from.partition());
        if !is_participant || !results.pieces.iter().all(is_piece) {
            return cx.reject(|| format!("{from} has sent results that {txn} does not have"));
        }
        live.execution.receive(results);
        if self.running.contains_key(&txn) {
            self.execute_all(vec![txn], cx);
        }
    }

    /// Asks the other participants of transactions that wait for results.
    pub(super) fn ask_for_results(&mut self, cx: &mut Cx<'_>) {
        let own = cx.id().partition();
        let waiting = self.groups.values().filter_map(|group| group.members.get(group.done));
        let waiting: Vec<Version> = waiting.copied().collect();
        for txn in waiting {
            let Some(live) = self.live.get(&txn) else { continue };
            for at in live.work.participants.iter().filter(|at| **at != own) {
                for to in self.members.of(*at) {
                    self.send(to, Request::Results { txn }, cx);
                }
            }
        }
    }
}

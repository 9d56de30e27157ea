//! The rows and transactions of a partition, as built from the entries of its log.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_actor::{Actor, Context, Store};
use serried_model::{Key, Version};
use serried_parts::{Cells, decode_cell, decode_cell_of_another, encode_cell};
use serried_procedures::{Datum, ProcedureSet, Refused, StoredRow};

use super::merged::{HeldPieces, HoldEntry};
use super::message::{
    CallOf, Edge, Entry, ExecuteEntry, Executed, Led, Occurrence, StartEntry, StartedPiece, Vertex,
    Window, Written,
};
use super::registered::Registered;
use crate::frameworks::chopped::names::{OF_TXN, name_of_control, name_of_txn, txn_of_name};
use crate::frameworks::replicated_log::{Last, WriteBack};

/// How many bytes a scan of the store reads at a time.
const READ_AT_ONCE: usize = 256 << 10;

/// A value of a replica's store. Most are rows, so the others are not in place.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
enum Cell {
    /// Nothing.
    #[default]
    Nothing,
    /// A row.
    Row(Row),
    /// A transaction, and the slot after that of the last entry that has changed it.
    Txn(u64, Box<Txn>),
    /// What concerns no row and no transaction.
    Control(Box<Control>),
}

/// A row.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Row {
    /// The slot after that of the last entry that has written it.
    applied: u64,
    /// Counts the writes of this row.
    pub(super) version: u64,
    /// Its columns; none if it is deleted. A deleted row stays, because another replica may copy it that has an older
    /// state of it, and because a read-only call has to notice that a row was there meanwhile.
    pub(super) columns: Option<StoredRow>,
}

/// A transaction that was started at this partition.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Txn {
    /// The call.
    pub(super) call: Arc<CallOf>,
    /// Its pieces here, in the order of their start, with the slots of their entries. Without their arguments once it is
    /// executed, because most transactions are remembered for a while.
    pub(super) pieces: Vec<(u64, Occurrence)>,
    /// The outcome of each piece that is immediate.
    pub(super) outcomes: Vec<Option<Result<Vec<Datum>, Refused>>>,
    /// The transactions before it, by its pieces here. In ascending order, each once.
    pub(super) edges: Vec<Edge>,
    /// The outputs of the deferred pieces, once they are executed.
    pub(super) executed: Option<Arc<[Executed]>>,
    /// If it was executed with others on a cycle, the transaction here that keeps the cycle, and the last one of all.
    cycle_at: Option<(Version, Version)>,
    /// The cycle, if this is that transaction.
    cycle: Arc<[Vertex]>,
    /// Whether it has been executed at all of its participants.
    pub(super) ended: bool,
    /// Its merged pieces that are not started, with their last attempts.
    pub(super) holds: Vec<HeldPieces>,
    /// Those that were held and are started, with the attempts that have succeeded.
    pub(super) attempts: Vec<(u16, u64)>,
    /// Whether no other pieces of it are started.
    pub(super) is_closed: bool,
}

impl Txn {
    /// A transaction of which no piece was started.
    fn new(call: Arc<CallOf>) -> Txn {
        Txn {
            call,
            pieces: Vec::new(),
            outcomes: Vec::new(),
            edges: Vec::new(),
            executed: None,
            cycle_at: None,
            cycle: Arc::default(),
            ended: false,
            holds: Vec::new(),
            attempts: Vec::new(),
            is_closed: false,
        }
    }

    /// Its pieces, as they are reported.
    pub(super) fn started(&self) -> impl Iterator<Item = StartedPiece> {
        let pieces = self.pieces.iter().zip(&self.outcomes);
        pieces.map(|((_, Occurrence { piece, number, .. }), outcome)| StartedPiece {
            piece: *piece,
            number: *number,
            outcome: outcome.clone(),
        })
    }
}

/// How a transaction was executed.
pub(super) enum HowExecuted {
    /// It is on no cycle.
    Alone,
    /// With others on a cycle.
    OnCycle(Arc<[Vertex]>),
}

/// What concerns no row and no transaction. Each part comes with the slot after that of the last entry that has changed it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Control {
    window: (u64, Window),
    last: Last,
    sets: (u64, Sets),
}

/// Sets of procedures, with their versions.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Sets {
    /// The one that is in use.
    in_use: Option<(u64, Arc<ProcedureSet>)>,
    /// The one that is to replace it.
    next: Option<(u64, Arc<ProcedureSet>)>,
}

/// The state that a replica has built from the chosen entries.
#[derive(Debug)]
pub(super) struct Table {
    cells: Cells<Cell>,
    control: Box<Control>,
    set: Option<Arc<Registered>>,
    /// The transactions that have not been executed everywhere, as far as is known here.
    open: BTreeSet<Version>,
    /// Those that have.
    ended: BTreeSet<Version>,
}

impl Table {
    /// An empty table. It keeps about `resident` rows in memory.
    pub(super) fn new(resident: usize) -> Table {
        Table {
            cells: Cells::new(resident),
            control: Box::default(),
            set: None,
            open: BTreeSet::new(),
            ended: BTreeSet::new(),
        }
    }

    pub(super) fn window(&self) -> Window {
        self.control.window.1
    }

    /// The last entry that was applied.
    pub(super) fn last(&self) -> Last {
        self.control.last
    }

    /// The set of procedures that is in use.
    pub(super) fn set(&self) -> Option<&Arc<Registered>> {
        self.set.as_ref()
    }

    /// The set of procedures that is to replace the one in use, with its version.
    pub(super) fn next_set(&self) -> Option<&(u64, Arc<ProcedureSet>)> {
        self.control.sets.1.next.as_ref()
    }

    /// The transactions that have not been executed everywhere, as far as is known here.
    pub(super) fn open(&self) -> &BTreeSet<Version> {
        &self.open
    }

    /// How many transactions are known.
    pub(super) fn remembered(&self) -> usize {
        self.open.len() + self.ended.len()
    }

    /// Whether pieces of a transaction were started here.
    pub(super) fn has_started(&self, txn: Version) -> bool {
        self.open.contains(&txn) || self.ended.contains(&txn)
    }

    /// A row; `None` if it was never written.
    pub(super) fn row(&mut self, key: &Key, store: &dyn Store) -> Option<&Row> {
        match self.cells.get(key, store) {
            Cell::Nothing => None,
            Cell::Row(row) => Some(row),
            other => panic!("row {key} holds {other:?}"),
        }
    }

    /// A transaction that was started here.
    pub(super) fn txn(&mut self, txn: Version, store: &dyn Store) -> Option<&Txn> {
        if !self.has_started(txn) {
            return None;
        }
        match self.cells.get(&name_of_txn(txn), store) {
            Cell::Txn(_, state) => Some(state),
            other => panic!("transaction {txn} is {other:?}"),
        }
    }

    /// How a transaction was executed here, if it was.
    pub(super) fn executed(&mut self, txn: Version, store: &dyn Store) -> Option<HowExecuted> {
        let state = self.txn(txn, store)?;
        state.executed.as_ref()?;
        let Some((at, _)) = state.cycle_at else { return Some(HowExecuted::Alone) };
        let cycle = self.txn(at, store).map(|state| state.cycle.clone()).unwrap_or_default();
        Some(HowExecuted::OnCycle(cycle))
    }

    pub(super) fn cells_len(&self) -> (usize, usize) {
        (self.cells.resident(), self.cells.unstored())
    }

    /// Applies the entry of a slot. Its record is at `position` of the durable log or later.
    pub(super) fn apply(&mut self, at: (u64, u64), led: &Led, store: &mut dyn Store) {
        match &led.entry {
            Entry::Start(entry) => self.start(at, entry, store),
            Entry::Execute(entry) => self.execute(at, entry, store),
            Entry::Hold(entry) => self.hold(at, entry, store),
            Entry::End(txns) => txns.iter().for_each(|txn| self.end(at, *txn, store)),
            Entry::Window(window) => {
                let slot = at.0;
                if self.change_control(at, store, |control| {
                    let is_new = control.window.0 <= slot;
                    if is_new {
                        control.window = (slot + 1, *window);
                    }
                    is_new
                }) {
                    self.forget(store);
                }
            }
            Entry::Drain { version, set } => self.change_sets(at, store, |sets| {
                sets.next = Some((*version, set.clone()));
            }),
            Entry::Install { version, set } => {
                self.change_sets(at, store, |sets| {
                    sets.in_use = Some((*version, set.clone()));
                    sets.next = sets.next.take().filter(|(next, _)| next > version);
                });
                // All calls under the former set have been executed at all of their participants.
                for txn in self.open.clone() {
                    self.end(at, txn, store);
                }
            }
            Entry::Lead => {}
        }
        self.change_control(at, store, |control| control.last.apply(at.0, led));
    }

    fn start(&mut self, at: (u64, u64), entry: &StartEntry, store: &mut dyn Store) {
        let StartEntry { txn, call, pieces, outcomes, edges, rows } = entry;
        let is_new = self.change_txn(at, *txn, Some(Txn::new(call.clone())), store, |state| {
            let started = state.holds.extract_if(.., |held| held.has_some(pieces));
            state.attempts.extend(started.map(|held| (held.group, held.attempt)));
            state.pieces.extend(pieces.iter().map(|piece| (at.0, piece.clone())));
            state.is_closed |= pieces.is_empty();
            state.outcomes.extend(outcomes.iter().cloned());
            state.edges.extend(edges.iter().copied());
            state.edges.sort_unstable();
            state.edges.dedup();
        });
        if is_new {
            self.open.insert(*txn);
        }
        self.write(at, rows, store);
    }

    fn hold(&mut self, at: (u64, u64), entry: &HoldEntry, store: &mut dyn Store) {
        let HoldEntry { txn, call, group, attempt, pieces } = entry;
        let is_new = self.change_txn(at, *txn, Some(Txn::new(call.clone())), store, |state| {
            state.holds.retain(|held| held.group != *group);
            let (group, attempt, pieces) = (*group, *attempt, pieces.clone());
            state.holds.push(HeldPieces { group, attempt, pieces });
        });
        if is_new {
            self.open.insert(*txn);
        }
    }

    fn execute(&mut self, at: (u64, u64), entry: &ExecuteEntry, store: &mut dyn Store) {
        // The last one is forgotten last.
        let last = entry.txns.iter().map(|(txn, _)| *txn).max();
        let last_of_all = entry.cycle.iter().map(|vertex| vertex.txn).max();
        let cycle_at = last.zip(last_of_all);
        for (txn, outputs) in &entry.txns {
            self.change_txn(at, *txn, None, store, |state| {
                state.executed = Some(outputs.clone());
                state.pieces.iter_mut().for_each(|(_, piece)| piece.arguments = Arc::default());
                state.holds.clear();
                state.cycle_at = cycle_at;
                if last == Some(*txn) {
                    state.cycle = entry.cycle.clone();
                }
            });
        }
        self.write(at, &entry.rows, store);
    }

    fn end(&mut self, at: (u64, u64), txn: Version, store: &mut dyn Store) {
        if self.change_txn(at, txn, None, store, |state| state.ended = true) {
            self.open.remove(&txn);
            self.ended.insert(txn);
        }
    }

    /// Changes a transaction, unless its state contains the entry, or it is forgotten. Returns whether it was changed.
    fn change_txn(
        &mut self,
        (slot, position): (u64, u64),
        txn: Version,
        new: Option<Txn>,
        store: &mut dyn Store,
        change: impl FnOnce(&mut Txn),
    ) -> bool {
        // What was forgotten can be replayed. Then it is forgotten again with the next change of the window.
        let name = name_of_txn(txn);
        let cell = match self.has_started(txn) {
            true => self.cells.change(&name, position, store),
            false => self.cells.add(&name, position),
        };
        match cell {
            Cell::Txn(applied, _) if *applied > slot => return false,
            Cell::Txn(applied, state) => {
                *applied = slot + 1;
                change(state);
            }
            cell => {
                // If the transaction was not started, its beginning was replayed before it was forgotten.
                let Some(mut state) = new else { return false };
                change(&mut state);
                *cell = Cell::Txn(slot + 1, Box::new(state));
            }
        }
        true
    }

    fn write(&mut self, (slot, position): (u64, u64), rows: &[Written], store: &mut dyn Store) {
        for Written { key, version, columns } in rows {
            let cell = self.cells.change(key, position, store);
            if matches!(cell, Cell::Row(row) if row.applied > slot) {
                continue; // The row was copied, and contains this.
            }
            *cell =
                Cell::Row(Row { applied: slot + 1, version: *version, columns: columns.clone() });
        }
    }

    fn change_control(
        &mut self,
        (_, position): (u64, u64),
        store: &mut dyn Store,
        change: impl FnOnce(&mut Control) -> bool,
    ) -> bool {
        if !change(&mut self.control) {
            return false;
        }
        let cell = self.cells.change(&name_of_control(), position, store);
        match cell {
            // This happens with each entry.
            Cell::Control(known) => (**known).clone_from(&self.control),
            cell => *cell = Cell::Control(self.control.clone()),
        }
        true
    }

    fn change_sets(
        &mut self,
        at: (u64, u64),
        store: &mut dyn Store,
        change: impl FnOnce(&mut Sets),
    ) {
        self.change_control(at, store, |control| {
            let is_new = control.sets.0 <= at.0;
            if is_new {
                control.sets.0 = at.0 + 1;
                change(&mut control.sets.1);
            }
            is_new
        });
        self.use_set();
    }

    /// Forgets transactions that have been executed everywhere, unless others on a cycle with them may not have been. A
    /// server that has to execute one of these asks for the whole cycle.
    fn forget(&mut self, store: &mut dyn Store) {
        let first = Version::at(self.window().forget_us);
        let is_old =
            |txns: &BTreeSet<Version>| -> Vec<Version> { txns.range(..first).copied().collect() };
        for txn in is_old(&self.open).into_iter().chain(is_old(&self.ended)) {
            let name = name_of_txn(txn);
            let is_kept = match self.cells.get(&name, store) {
                Cell::Txn(_, state) => state.cycle_at.is_some_and(|(_, last)| last >= first),
                _ => false,
            };
            if !is_kept {
                self.open.remove(&txn);
                self.ended.remove(&txn);
                self.cells.forget(&name, store);
            }
        }
    }

    fn use_set(&mut self) {
        if let Some((version, set)) = &self.control.sets.1.in_use
            && self.set.as_ref().is_none_or(|known| known.version() != *version)
        {
            self.set = Some(Arc::new(Registered::new(*version, set.clone())));
        }
    }

    /// Loads the known transactions from the store.
    pub(super) fn load(&mut self, store: &dyn Store) {
        if let Cell::Control(control) = self.cells.get(&name_of_control(), store) {
            self.control = control.clone();
        }
        self.use_set();
        let mut after = OF_TXN.to_vec();
        loop {
            let mut found = Vec::new();
            let more = store.scan(Some(&after), READ_AT_ONCE, &mut |name, state| {
                let cell =
                    if state.is_empty() { Cell::Nothing } else { decode_cell::<Cell>(state) };
                found.push((name.to_vec(), cell));
            });
            let last = found.last().map(|(name, _)| name.clone());
            for (name, cell) in found {
                if let (Some(txn), Cell::Txn(_, state)) = (txn_of_name(&name), cell) {
                    self.know(txn, &state);
                }
            }
            match last.filter(|_| more) {
                Some(last) => after = last,
                None => return,
            }
        }
    }

    fn know(&mut self, txn: Version, state: &Txn) {
        match state.ended {
            true => {
                self.open.remove(&txn);
                self.ended.insert(txn);
            }
            false => {
                self.open.insert(txn);
            }
        }
    }

    /// Takes over the state that another replica's store has under a name, unless this table's own state is later. Returns
    /// false if `state` is not valid for that name.
    pub(super) fn take_over(&mut self, name: &Key, state: &[u8], store: &mut dyn Store) -> bool {
        let Some(cell) = decode_cell_of_another::<Cell>(state) else { return false };
        let txn = txn_of_name(name.as_bytes());
        let is_valid = match &cell {
            Cell::Nothing => true,
            Cell::Row(_) => txn.is_none() && *name != name_of_control(),
            Cell::Txn(..) => txn.is_some(),
            Cell::Control(_) => *name == name_of_control(),
        };
        if !is_valid {
            return false;
        }
        match (&cell, self.cells.get(name, store)) {
            (Cell::Row(new), Cell::Row(old)) if new.applied < old.applied => return true,
            (Cell::Txn(new, _), Cell::Txn(old, _)) if new < old => return true,
            _ => {}
        }
        match cell {
            Cell::Control(new) => {
                let old = &mut self.control;
                if new.window.0 > old.window.0 {
                    old.window = new.window;
                }
                if new.last.is_after(old.last) {
                    old.last = new.last;
                }
                if new.sets.0 > old.sets.0 {
                    old.sets = new.sets;
                }
                let control = Cell::Control(self.control.clone());
                self.cells.put(name, control, store);
                self.use_set();
                self.forget(store);
            }
            cell => {
                if let (Some(txn), Cell::Txn(_, state)) = (txn, &cell) {
                    self.know(txn, state);
                }
                self.cells.put(name, cell, store);
            }
        }
        true
    }

    pub(super) fn store_all(&mut self, store: &mut dyn Store) {
        self.cells.store_some(usize::MAX, store);
    }

    pub(super) fn needs_log_from(&self) -> Option<u64> {
        self.cells.needs_log_from()
    }

    /// Writes rows to the store that were changed long ago. Returns whether it is time to trim the log.
    pub(super) fn write_back<A: Actor>(
        &mut self,
        schedule: &mut WriteBack,
        cx: &mut Context<'_, A>,
    ) -> bool {
        schedule.write(&mut self.cells, cx)
    }
}

/// What a store has for a row that exists before the first call, from its encoded columns.
///
/// # Panics
/// If these are not the encoded columns of a row.
pub(super) fn stored_row(columns: &[u8]) -> Vec<u8> {
    let columns = decode_cell_of_another(columns).expect("a row's columns are encoded");
    encode_cell(&Cell::Row(Row { applied: 0, version: 1, columns: Some(columns) }))
}

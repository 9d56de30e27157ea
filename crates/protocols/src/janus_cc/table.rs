//! The rows and transactions of a partition, as built from the records of its server.
//!
//! The server changes the table before the record of the change is durable. The store must not have a change that is in no
//! durable record: after a crash, the change would be made again. So what goes to the store is held back until all records
//! so far are durable ([`Table::hold`], [`Table::flush`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_actor::Store;
use serried_model::{Key, NodeId, Version};
use serried_parts::{Cells, decode_cell, decode_cell_of_another, encode_cell};
use serried_procedures::{ProcedureSet, Registration, StoredRow};

use super::in_use::InUse;
use super::message::{Edge, End, Entry, ExecuteEntry, Results, Vertex, Window, Work};

/// The first bytes of the names of transactions in the store. Names of rows begin with the number of a table, which is
/// lower.
const OF_TXN: [u8; 2] = [0xff, 0xff];
/// How many bytes a scan of the store reads at a time.
const READ_AT_ONCE: usize = 256 << 10;

/// A value of the store.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
enum Cell {
    /// Nothing, or a row that was deleted.
    #[default]
    Nothing,
    /// The columns of a row.
    Row(StoredRow),
    /// A transaction.
    Txn(Box<Txn>),
    /// What concerns no row and no transaction.
    Control(Control),
}

/// A transaction that was taken on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Txn {
    pub(super) work: Arc<Work>,
    /// The position of the record with which it began.
    pub(super) began: u64,
    /// The transactions before it, by its pieces here. In ascending order, each once.
    pub(super) edges: Vec<Edge>,
    /// What its pieces here have returned.
    pub(super) results: Results,
    /// What came of it, if none of its pieces are left.
    pub(super) end: Option<End>,
    /// Whether its whole group was executed.
    pub(super) is_executed: bool,
    /// If the group was a cycle, the transaction here that keeps the cycle, and the last one of all.
    cycle_at: Option<(Version, Version)>,
    /// The cycle, if this is that transaction.
    cycle: Arc<[Vertex]>,
    /// Whether it has been executed at all of its participants.
    is_over: bool,
}

/// How a transaction was executed.
pub(super) enum HowExecuted {
    /// It is on no cycle.
    Alone,
    /// With others on a cycle.
    OnCycle(Arc<[Vertex]>),
}

/// What concerns no row and no transaction.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Control {
    window: Window,
    /// The set of procedures that is in use, with its version.
    set: Option<(u64, Arc<ProcedureSet>)>,
}

/// The state of a server.
#[derive(Debug)]
pub(super) struct Table {
    cells: Cells<Cell>,
    held: HeldBack,
    control: Control,
    set: Option<Arc<InUse>>,
    /// The transactions that have not been executed everywhere, as far as is known here.
    open: BTreeSet<Version>,
    /// Those that have.
    over: BTreeSet<Version>,
}

/// What is to go to the store.
#[derive(Debug, Default)]
struct HeldBack {
    /// As soon as the records so far are durable.
    next: BTreeMap<Key, Option<Vec<u8>>>,
    /// Later.
    later: BTreeMap<Key, Option<Vec<u8>>>,
}

/// A store, with what is held back from it.
struct Held<'a> {
    held: &'a mut HeldBack,
    store: &'a mut dyn Store,
}

impl Store for Held<'_> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.held.later.get(key).or_else(|| self.held.next.get(key)) {
            Some(held) => held.clone(),
            None => self.store.get(key),
        }
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.held.later.insert(Key::from(key), value.map(<[u8]>::to_vec));
    }

    fn scan(&self, after: Option<&[u8]>, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        self.store.scan(after, bytes, each)
    }
}

impl Table {
    /// An empty table. It keeps about `resident` rows in memory.
    pub(super) fn new(resident: usize) -> Table {
        Table {
            cells: Cells::new(resident),
            held: HeldBack::default(),
            control: Control::default(),
            set: None,
            open: BTreeSet::new(),
            over: BTreeSet::new(),
        }
    }

    pub(super) fn window(&self) -> Window {
        self.control.window
    }

    /// The set of procedures that is in use.
    pub(super) fn set(&self) -> Option<&Arc<InUse>> {
        self.set.as_ref()
    }

    /// The version of the set that is in use; 0 if there is none.
    pub(super) fn version(&self) -> u64 {
        self.set.as_ref().map_or(0, |set| set.version())
    }

    /// The transactions that have not been executed everywhere, as far as is known here.
    pub(super) fn open(&self) -> &BTreeSet<Version> {
        &self.open
    }

    /// How many transactions are known.
    pub(super) fn remembered(&self) -> usize {
        self.open.len() + self.over.len()
    }

    /// Whether a transaction was taken on here.
    pub(super) fn has_begun(&self, txn: Version) -> bool {
        self.open.contains(&txn) || self.over.contains(&txn)
    }

    /// How many rows are in memory, and how many have to be stored.
    pub(super) fn cells_len(&self) -> (usize, usize) {
        (self.cells.resident(), self.cells.unstored())
    }

    fn get(&mut self, key: &Key, store: &mut dyn Store) -> &Cell {
        self.cells.get(key, &Held { held: &mut self.held, store })
    }

    fn change(&mut self, key: &Key, position: u64, store: &mut dyn Store) -> &mut Cell {
        self.cells.change(key, position, &Held { held: &mut self.held, store })
    }

    /// A row; `None` if there is none.
    pub(super) fn row(&mut self, key: &Key, store: &mut dyn Store) -> Option<&StoredRow> {
        match self.get(key, store) {
            Cell::Nothing => None,
            Cell::Row(columns) => Some(columns),
            other => panic!("row {key} holds {other:?}"),
        }
    }

    /// A transaction that was taken on here.
    pub(super) fn txn(&mut self, txn: Version, store: &mut dyn Store) -> Option<&Txn> {
        if !self.has_begun(txn) {
            return None;
        }
        match self.get(&name_of_txn(txn), store) {
            Cell::Txn(state) => Some(state),
            other => panic!("transaction {txn} is {other:?}"),
        }
    }

    /// How a transaction was executed here, if it was.
    pub(super) fn executed(&mut self, txn: Version, store: &mut dyn Store) -> Option<HowExecuted> {
        let state = self.txn(txn, store).filter(|state| state.is_executed)?;
        let Some((at, _)) = state.cycle_at else { return Some(HowExecuted::Alone) };
        let cycle = self.txn(at, store).map(|state| state.cycle.clone()).unwrap_or_default();
        Some(HowExecuted::OnCycle(cycle))
    }

    /// What comes of a registration, and whether the set is installed by it.
    pub(super) fn register(&self, set: &ProcedureSet, replaces: u64) -> (Registration, bool) {
        let version = self.version();
        if self.set.as_ref().is_some_and(|known| **known.set() == *set) {
            return (Registration::InUse { version }, false);
        }
        if replaces != version {
            return (Registration::Superseded { version }, false);
        }
        match self.fits(set) {
            Ok(()) => (Registration::InUse { version: version + 1 }, true),
            Err(why) => (Registration::Unfit(why), false),
        }
    }

    /// Whether a set can replace the one that is in use.
    fn fits(&self, set: &ProcedureSet) -> Result<(), String> {
        set.validate().map_err(|wrong| wrong.to_string())?;
        let tables = self.set.as_ref().map_or(&[][..], |known| &known.set().tables);
        if !set.tables.starts_with(tables) {
            return Err(
                "it lacks tables that are in use, or declares them otherwise; add to the set that is registered"
                    .to_owned(),
            );
        }
        for procedure in &set.procedures {
            // A call whose pieces wait for each other would never end.
            let mut free: BTreeSet<usize> = BTreeSet::new();
            loop {
                let before = free.len();
                for (at, piece) in procedure.pieces.iter().enumerate() {
                    if piece.after.iter().all(|before| free.contains(&usize::from(before.0))) {
                        free.insert(at);
                    }
                }
                if free.len() == before {
                    break;
                }
            }
            if free.len() < procedure.pieces.len() {
                return Err(format!(
                    "pieces of procedure `{}` wait for each other",
                    procedure.name
                ));
            }
        }
        Ok(())
    }

    /// Applies the entry of the record at `position`.
    pub(super) fn apply(&mut self, position: u64, entry: &Entry, store: &mut dyn Store) {
        match entry {
            Entry::Begin { txn, work, edges } => {
                let state = Txn {
                    work: work.clone(),
                    began: position,
                    edges: edges.clone(),
                    results: Results::default(),
                    end: None,
                    is_executed: false,
                    cycle_at: None,
                    cycle: Arc::default(),
                    is_over: false,
                };
                *self.change(&name_of_txn(*txn), position, store) = Cell::Txn(Box::new(state));
                self.over.remove(txn);
                self.open.insert(*txn);
            }
            Entry::Execute(entry) => self.execute(position, entry, store),
            Entry::End(txns) => {
                for txn in txns {
                    let is_known =
                        self.change_txn(position, *txn, store, |state| state.is_over = true);
                    if is_known && self.open.remove(txn) {
                        self.over.insert(*txn);
                    }
                }
            }
            Entry::Window(window) => {
                self.control.window = window.and(self.control.window);
                self.control_changed(position, store);
                self.forget(store);
            }
            Entry::Lost => {}
        }
    }

    fn execute(&mut self, position: u64, entry: &ExecuteEntry, store: &mut dyn Store) {
        for progress in &entry.progress {
            self.change_txn(position, progress.txn, store, |state| {
                state.results.pieces.extend(progress.results.pieces.iter().cloned());
                state.results.refused = progress.results.refused.clone();
                state.end = progress.end.clone();
            });
        }
        // The last one is forgotten last.
        let last = entry.executed.iter().max();
        let last_of_all = entry.cycle.iter().map(|vertex| vertex.txn).max();
        let cycle_at = last.copied().zip(last_of_all);
        for txn in &entry.executed {
            self.change_txn(position, *txn, store, |state| {
                state.is_executed = true;
                state.cycle_at = cycle_at;
                if last == Some(txn) {
                    state.cycle = entry.cycle.clone();
                }
            });
        }
        for (key, columns) in &entry.rows {
            let cell = columns.clone().map_or(Cell::Nothing, Cell::Row);
            *self.change(key, position, store) = cell;
        }
        if let Some((version, set)) = &entry.installs {
            self.control.set = Some((*version, set.clone()));
            self.control_changed(position, store);
            self.use_set();
        }
    }

    /// Changes a transaction, unless it is forgotten. Returns whether it was changed.
    ///
    /// What was forgotten can be replayed. Then it is forgotten again with the next change of the window.
    fn change_txn(
        &mut self,
        position: u64,
        txn: Version,
        store: &mut dyn Store,
        change: impl FnOnce(&mut Txn),
    ) -> bool {
        if !self.has_begun(txn) {
            return false;
        }
        match self.change(&name_of_txn(txn), position, store) {
            Cell::Txn(state) => change(state),
            other => panic!("transaction {txn} is {other:?}"),
        }
        true
    }

    fn control_changed(&mut self, position: u64, store: &mut dyn Store) {
        let control = self.control.clone();
        *self.change(&name_of_control(), position, store) = Cell::Control(control);
    }

    fn use_set(&mut self) {
        if let Some((version, set)) = &self.control.set
            && self.version() != *version
        {
            self.set = Some(Arc::new(InUse::new(*version, set.clone())));
        }
    }

    /// Forgets transactions that have been executed everywhere, unless others on a cycle with them may not have been. A
    /// server that has to execute one of these asks for the whole cycle.
    fn forget(&mut self, store: &mut dyn Store) {
        let first = Version::at(self.window().forget_us);
        let old: Vec<Version> =
            self.open.range(..first).chain(self.over.range(..first)).copied().collect();
        for txn in old {
            let name = name_of_txn(txn);
            let is_kept = match self.get(&name, store) {
                Cell::Txn(state) => state.cycle_at.is_some_and(|(_, last)| last >= first),
                _ => false,
            };
            if !is_kept {
                self.open.remove(&txn);
                self.over.remove(&txn);
                self.cells.forget(&name, &mut Held { held: &mut self.held, store });
            }
        }
    }

    /// Loads what the store has. Records are replayed after that.
    pub(super) fn load(&mut self, store: &mut dyn Store) {
        if let Cell::Control(control) = self.get(&name_of_control(), store) {
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
                if let (Some(txn), Cell::Txn(state)) = (txn_of_name(&name), cell) {
                    let known = if state.is_over { &mut self.over } else { &mut self.open };
                    known.insert(txn);
                }
            }
            match last.filter(|_| more) {
                Some(last) => after = last,
                None => return,
            }
        }
    }

    /// Has cells stored whose first change is before `position`, once all records so far are durable. Nothing is waiting
    /// for that.
    pub(super) fn hold(&mut self, position: u64, store: &mut dyn Store) {
        while self.cells.needs_log_from().is_some_and(|first| first < position) {
            self.cells.store_some(1, &mut Held { held: &mut self.held, store });
        }
        self.held.next = core::mem::take(&mut self.held.later);
    }

    /// Whether something waits until records are durable.
    pub(super) fn holds(&self) -> bool {
        !self.held.next.is_empty()
    }

    /// All records are durable that had been appended when [`Table::hold`] was called.
    pub(super) fn flush(&mut self, store: &mut dyn Store) {
        for (key, value) in core::mem::take(&mut self.held.next) {
            store.put(key.as_bytes(), value.as_deref());
        }
    }

    /// The position of the first record that is needed; none if all cells are stored.
    pub(super) fn needs_log_from(&self) -> Option<u64> {
        self.cells.needs_log_from()
    }
}

/// What a store has for a row that exists before the first call, from its encoded columns.
///
/// # Panics
/// If these are not the encoded columns of a row.
pub(super) fn stored_row(columns: &[u8]) -> Vec<u8> {
    let columns = decode_cell_of_another(columns).expect("a row's columns are encoded");
    encode_cell(&Cell::Row(columns))
}

fn name_of_txn(txn: Version) -> Key {
    let mut name = [0; 18];
    name[..2].copy_from_slice(&OF_TXN);
    name[2..10].copy_from_slice(&txn.timestamp_us.to_be_bytes());
    name[10..].copy_from_slice(&txn.coordinator.0.to_be_bytes());
    Key::from(name)
}

fn txn_of_name(name: &[u8]) -> Option<Version> {
    let (us, coordinator) = name.strip_prefix(&OF_TXN)?.split_first_chunk()?;
    let coordinator = NodeId(u64::from_be_bytes(coordinator.try_into().ok()?));
    Some(Version { timestamp_us: u64::from_be_bytes(*us), coordinator })
}

fn name_of_control() -> Key {
    Key::from(OF_TXN)
}

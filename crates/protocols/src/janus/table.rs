//! The rows and transactions of a partition, as built from the records of its server.
//!
//! The server changes the table before the record of the change is durable. The store must not have a change that is in no
//! durable record: after a crash, the change would be made again. So what goes to the store is held back until all records
//! so far are durable ([`Table::hold`], [`Table::flush`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_actor::Store;
use serried_model::{Key, Version};
use serried_parts::{Cells, decode_cell, decode_cell_of_another, encode_cell};
use serried_procedures::{ProcedureSet, Registration, StoredRow};

use super::in_use::InUse;
use super::message::{
    Ballot, Copied, CopyFrom, Dependencies, End, Entry, ExecuteEntry, Part, Results, Vertex,
    Vote as ConfigurationVote, Window, WindowEntry, Work,
};
use crate::frameworks::chopped::names::{OF_TXN, name_of_control, name_of_txn, txn_of_name};

/// How many bytes of data are copied at a time.
const COPIED_AT_ONCE: usize = 256 << 10;
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

/// A transaction that is known.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Txn {
    /// What it does. None if the replica has only promised to take part in no earlier attempt to agree on it.
    pub(super) work: Option<Arc<Work>>,
    /// What this replica has promised, reported and accepted.
    pub(super) vote: Vote,
    /// What its pieces here have returned.
    pub(super) results: Results,
    /// What came of it, if none of its pieces are left.
    pub(super) end: Option<End>,
    /// If its whole group was executed, when that was: a number that rises from one execution to the next.
    pub(super) executed: Option<u64>,
    /// What was agreed on, if it was executed or has waited for others.
    pub(super) vertex: Option<Box<Vertex>>,
    /// If the group was a cycle, the transaction here that keeps the cycle, and the last one of all.
    cycle_at: Option<(Version, Version)>,
    /// The cycle, if this is that transaction.
    cycle: Arc<[Vertex]>,
}

/// What a replica has promised, reported and accepted.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Vote {
    /// The position of the record with which it was taken on.
    pub(super) began: u64,
    /// The attempt before which it takes part in none.
    pub(super) promised: Ballot,
    /// If the transaction was taken on, those before it by its pieces here.
    pub(super) dependencies: Option<Dependencies>,
    /// What was accepted, and in which attempt.
    pub(super) accepted: Option<(Ballot, Dependencies)>,
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
    window: WindowEntry,
    part: Part,
    /// The number of the copy from which the data comes.
    copy: u64,
    /// The configuration, and the vote for the next one.
    vote: ConfigurationVote,
    /// The number of the last execution.
    executed: u64,
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
    /// The transactions that were not executed by all replicas of the partition, as far as is known here.
    open: BTreeSet<Version>,
    /// Those that were.
    over: BTreeSet<Version>,
    /// If another replica copies the data, what has changed since it began.
    changed: Option<BTreeSet<Key>>,
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
            changed: None,
        }
    }

    pub(super) fn window(&self) -> Window {
        self.control.window.window
    }

    /// The window, and what the others know of it.
    pub(super) fn windows(&self) -> &WindowEntry {
        &self.control.window
    }

    /// How far this replica takes part.
    pub(super) fn part(&self) -> Part {
        self.control.part
    }

    /// The number of the copy from which the data comes.
    pub(super) fn copy(&self) -> u64 {
        self.control.copy
    }

    /// The configuration, and the vote for the next one.
    pub(super) fn vote(&self) -> &ConfigurationVote {
        &self.control.vote
    }

    /// The set of procedures that is in use.
    pub(super) fn set(&self) -> Option<&Arc<InUse>> {
        self.set.as_ref()
    }

    /// The version of the set that is in use; 0 if there is none.
    pub(super) fn version(&self) -> u64 {
        self.set.as_ref().map_or(0, |set| set.version())
    }

    /// The transactions that were not executed by all replicas of the partition, as far as is known here.
    pub(super) fn open(&self) -> &BTreeSet<Version> {
        &self.open
    }

    /// How many transactions are known.
    pub(super) fn remembered(&self) -> usize {
        self.open.len() + self.over.len()
    }

    /// All replicas of the partition have executed a transaction.
    pub(super) fn end(&mut self, txn: Version) {
        if self.open.remove(&txn) {
            self.over.insert(txn);
        }
    }

    /// The transactions that are known.
    pub(super) fn all(&self) -> Vec<Version> {
        self.open.iter().chain(&self.over).copied().collect()
    }

    /// Whether a transaction is known here.
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
        if let Some(changed) = &mut self.changed {
            changed.insert(key.clone());
        }
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

    /// A transaction that is known.
    pub(super) fn txn(&mut self, txn: Version, store: &mut dyn Store) -> Option<&Txn> {
        if !self.has_begun(txn) {
            return None;
        }
        match self.get(&name_of_txn(txn), store) {
            Cell::Txn(state) => Some(state),
            other => panic!("transaction {txn} is {other:?}"),
        }
    }

    /// How a transaction was executed here, if it was. One that is void here, and of which nobody has said here what it does,
    /// may have pieces elsewhere, and may be on a cycle there.
    pub(super) fn executed(&mut self, txn: Version, store: &mut dyn Store) -> Option<HowExecuted> {
        let may_be_elsewhere = |state: &Txn| state.end == Some(End::Void) && state.work.is_none();
        let state = self.txn(txn, store).filter(|state| !may_be_elsewhere(state))?;
        state.executed?;
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
        let tables = self.set.as_ref().map_or(&[][..], |known| &known.set().tables);
        set.check_replacement(tables).map_err(|why| why.to_string())
    }

    /// Applies the entry of the record at `position`.
    pub(super) fn apply(&mut self, position: u64, entry: &Entry, store: &mut dyn Store) {
        match entry {
            Entry::Begin { txn, work, pre_accepted } => {
                self.change_or_begin(position, *txn, store, |state| {
                    state.work = Some(work.clone());
                    if let Some((ballot, dependencies)) = pre_accepted {
                        state.vote.promised = state.vote.promised.max(*ballot);
                        if state.vote.dependencies.is_none() {
                            state.vote.began = position;
                            state.vote.dependencies = Some(dependencies.clone());
                        }
                    }
                });
            }
            Entry::Promise { txn, ballot } => {
                self.change_or_begin(position, *txn, store, |state| {
                    state.vote.promised = state.vote.promised.max(*ballot);
                });
            }
            Entry::Accept { txn, ballot, dependencies } => {
                self.change_or_begin(position, *txn, store, |state| {
                    state.vote.promised = state.vote.promised.max(*ballot);
                    let accepted = &mut state.vote.accepted;
                    if accepted.as_ref().is_none_or(|(known, _)| known <= ballot) {
                        *accepted = Some((*ballot, dependencies.clone()));
                    }
                });
            }
            Entry::Commit(vertex) => {
                self.change_txn(position, vertex.txn, store, |state| {
                    state.vertex.get_or_insert_with(|| Box::new(vertex.clone()));
                });
            }
            Entry::Void(txn) => {
                let number = self.next_execution(position, store);
                self.change_or_begin(position, *txn, store, |state| {
                    state.end = Some(End::Void);
                    state.executed = Some(number);
                });
            }
            Entry::Execute(entry) => self.execute(position, entry, store),
            Entry::Window(window) => {
                self.control.window = window.and(self.control.window);
                self.control_changed(position, store);
                self.forget(store);
            }
            Entry::Copy { copied, gone_us } => {
                self.take_copied(position, copied, *gone_us, store);
            }
            Entry::Vote(vote) => {
                self.control.vote = vote.clone();
                self.control_changed(position, store);
            }
            Entry::Standing { part, copy, settled_us } => {
                (self.control.part, self.control.copy) = (*part, *copy);
                self.control_changed(position, store);
                if matches!(part, Part::Full | Part::Restored) {
                    self.drop_dead(*settled_us, store);
                }
            }
        }
    }

    /// The number of the next execution.
    fn next_execution(&mut self, position: u64, store: &mut dyn Store) -> u64 {
        self.control.executed += 1;
        self.control_changed(position, store);
        self.control.executed
    }

    /// Changes a transaction that may not be known yet.
    fn change_or_begin(
        &mut self,
        position: u64,
        txn: Version,
        store: &mut dyn Store,
        change: impl FnOnce(&mut Txn),
    ) {
        if !self.over.contains(&txn) {
            self.open.insert(txn);
        }
        let cell = self.change(&name_of_txn(txn), position, store);
        if *cell == Cell::Nothing {
            *cell = Cell::Txn(Box::default());
        }
        match cell {
            Cell::Txn(state) => change(state),
            other => panic!("transaction {txn} is {other:?}"),
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
        let last = entry.executed.iter().map(|vertex| vertex.txn).max();
        let last_of_all = entry.cycle.iter().map(|vertex| vertex.txn).max();
        let cycle_at = last.zip(last_of_all);
        for vertex in &entry.executed {
            let number = self.next_execution(position, store);
            self.change_txn(position, vertex.txn, store, |state| {
                state.executed = Some(number);
                state.vertex = Some(Box::new(vertex.clone()));
                state.cycle_at = cycle_at;
                if last == Some(vertex.txn) {
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

    /// Forgets transactions that all replicas know to be forgotten, unless others on a cycle with them are not. A replica
    /// that has to execute one of these asks for the whole cycle. Forgets promises for transactions that never begin, too.
    fn forget(&mut self, store: &mut dyn Store) {
        let settled = Version::at(self.window().settled_us);
        for txn in self.open.range(..settled).copied().collect::<Vec<_>>() {
            let is_promise = |state: &Txn| state.work.is_none() && state.executed.is_none();
            if self.txn(txn, store).is_some_and(is_promise) {
                self.remove(txn, store);
            }
        }
        let first = Version::at(self.control.window.gone_us);
        let old: Vec<Version> =
            self.open.range(..first).chain(self.over.range(..first)).copied().collect();
        for txn in old {
            let name = name_of_txn(txn);
            let is_kept = match self.get(&name, store) {
                Cell::Txn(state) => state.cycle_at.is_some_and(|(_, last)| last >= first),
                _ => false,
            };
            if !is_kept {
                self.remove(txn, store);
            }
        }
    }

    fn remove(&mut self, txn: Version, store: &mut dyn Store) {
        self.open.remove(&txn);
        self.over.remove(&txn);
        self.cells.forget(&name_of_txn(txn), &mut Held { held: &mut self.held, store });
    }

    /// All data was copied from another replica. Transactions that it did not know, and that began before everything was
    /// settled there, are never executed.
    fn drop_dead(&mut self, settled_us: u64, store: &mut dyn Store) {
        let settled = Version::at(settled_us);
        let old: Vec<Version> = self.open.range(..settled).copied().collect();
        for txn in old {
            if self.txn(txn, store).is_some_and(|state| state.executed.is_none()) {
                self.remove(txn, store);
            }
        }
    }

    // Copying.

    /// Another replica begins to copy the data. What was changed and is not in the store comes last.
    pub(super) fn begin_copy(&mut self) {
        let held = self.held.next.keys().chain(self.held.later.keys()).cloned();
        let unstored = self.cells.unstored_keys().cloned();
        self.changed = Some(held.chain(unstored).chain([name_of_control()]).collect());
    }

    /// The other replica has everything, or is gone.
    pub(super) fn end_copy(&mut self) {
        self.changed = None;
    }

    /// What the store has after a name.
    pub(super) fn page(
        &mut self,
        after: Option<&Key>,
        store: &mut dyn Store,
    ) -> (Vec<(Key, Vec<u8>)>, Option<CopyFrom>) {
        let mut cells = Vec::new();
        let after = after.map(|key| key.as_bytes());
        let more = store.scan(after, COPIED_AT_ONCE, &mut |name, state| {
            cells.push((Key::from(name), state.to_vec()));
        });
        let next = match cells.last().filter(|_| more) {
            Some((last, _)) => Some(CopyFrom::After(last.clone())),
            None => Some(CopyFrom::Changed),
        };
        (cells, next)
    }

    /// Some of what has changed since the copy began.
    pub(super) fn changed_page(
        &mut self,
        store: &mut dyn Store,
    ) -> (Vec<(Key, Vec<u8>)>, Option<CopyFrom>) {
        let mut changed = self.changed.take().unwrap_or_default();
        let (mut cells, mut size) = (Vec::new(), 0);
        while let Some(name) = changed.pop_first() {
            let state = encode_cell(self.get(&name, store));
            size += name.len() + state.len();
            cells.push((name, state));
            if size >= COPIED_AT_ONCE {
                break;
            }
        }
        let is_last = changed.is_empty();
        self.changed = Some(changed);
        (cells, (!is_last).then_some(CopyFrom::Changed))
    }

    /// Another replica has names that were not in the part that it was sent.
    pub(super) fn send_again(&mut self, names: &[Key]) {
        if let Some(changed) = &mut self.changed {
            changed.extend(names.iter().cloned());
        }
    }

    /// The names that are known here and are missing in a part of a copy, although they belong there.
    pub(super) fn lacking(&self, copied: &Copied, store: &dyn Store) -> Vec<Key> {
        let after = match &copied.request.from {
            CopyFrom::First => None,
            CopyFrom::After(after) => Some(after),
            CopyFrom::Changed => return Vec::new(),
        };
        let until = match &copied.next {
            Some(CopyFrom::After(until)) => Some(until),
            _ => None,
        };
        let belongs = |name: &Key| {
            after.is_none_or(|after| name > after) && until.is_none_or(|until| name <= until)
        };
        let held = self.held.next.keys().chain(self.held.later.keys());
        let held = held.chain(self.cells.unstored_keys());
        let mut known: BTreeSet<Key> = held.filter(|name| belongs(name)).cloned().collect();
        let mut from = after.cloned();
        loop {
            let mut last = None;
            let after = from.as_ref().map(|key| key.as_bytes());
            let more = store.scan(after, READ_AT_ONCE, &mut |name, _| {
                let name = Key::from(name);
                if belongs(&name) {
                    known.insert(name.clone());
                }
                last = Some(name);
            });
            match last.filter(|last| more && belongs(last)) {
                Some(last) => from = Some(last),
                None => break,
            }
        }
        known.remove(&name_of_control());
        for (name, _) in &copied.cells {
            known.remove(name);
        }
        known.into_iter().collect()
    }

    fn take_copied(&mut self, position: u64, copied: &Copied, gone_us: u64, store: &mut dyn Store) {
        for (name, state) in &copied.cells {
            let cell = match state.is_empty() {
                true => Cell::Nothing,
                false => decode_cell_of_another(state).unwrap_or_default(),
            };
            match (txn_of_name(name.as_bytes()), cell) {
                (Some(txn), Cell::Txn(state)) => {
                    if txn.timestamp_us >= gone_us {
                        if state.executed.is_none() {
                            self.over.remove(&txn);
                        }
                        self.change_or_begin(position, txn, store, |own| {
                            let vote = core::mem::take(&mut own.vote);
                            let work = own.work.take();
                            *own = *state;
                            own.vote = vote;
                            own.work = own.work.take().or(work);
                        });
                    }
                }
                (Some(txn), _) => {
                    // It was executed here, and will be again.
                    if self.over.remove(&txn) {
                        self.open.insert(txn);
                    }
                    self.change_txn(position, txn, store, |own| {
                        if own.end != Some(End::Void) {
                            let (work, vote) = (own.work.take(), core::mem::take(&mut own.vote));
                            *own = Txn { work, vote, ..Txn::default() };
                        }
                    });
                }
                (None, Cell::Control(control)) => {
                    let own = &mut self.control;
                    own.window = own.window.and(control.window);
                    own.executed = own.executed.max(control.executed);
                    own.set = control.set.or(own.set.take());
                    self.use_set();
                }
                (None, cell @ (Cell::Row(_) | Cell::Nothing)) => {
                    *self.change(name, position, store) = cell;
                }
                (None, Cell::Txn(_)) => {}
            }
        }
        self.control_changed(position, store);
        if copied.next.is_none() {
            self.forget(store);
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
                if let (Some(txn), Cell::Txn(_)) = (txn_of_name(&name), cell) {
                    self.open.insert(txn);
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

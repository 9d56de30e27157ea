//! The keys and transactions of a replica, as built from the entries of its log.

use std::collections::BTreeSet;
use std::sync::Arc;

use serried_actor::Store;
use serried_model::{Key, NodeId, Version};
use serried_parts::{Cells, decode_cell, decode_cell_of_another};

use super::calls::InUse;
use super::horizon::Horizon;
use super::message::{AdmissionWindow, Decision, Entry, Item, Kept, Led, Part};
use super::outcomes::{Outcomes, can_forget};
use super::row::{Cell, Row, TxnRow, TxnState};
use crate::frameworks::replicated_log::Last;

/// The first byte of names in the store that are not keys, and of the names of keys that begin with
/// this byte.
const ESCAPE: u8 = 0xff;
/// The second byte of the name of such a key.
const OF_KEY: u8 = 0;
/// The second byte of the name of what is kept of a call.
const OF_CALL: u8 = 1;
/// The second byte of the name of the set of procedures.
const OF_SET: u8 = 2;
/// The second byte of the name of what is known of the last entry.
const OF_LAST: u8 = 3;
/// The second byte of the name of a transaction. Transactions come after all keys.
const OF_TXN: u8 = 0xff;
/// How many bytes a scan of the store reads at a time.
const READ_AT_ONCE: usize = 256 << 10;

const _: () = assert!(
    ESCAPE == u8::MAX
        && OF_KEY < OF_CALL
        && OF_CALL < OF_SET
        && OF_SET < OF_LAST
        && OF_LAST < OF_TXN,
    "all other names come after those of all keys"
);

/// The state that a replica has built from the chosen entries.
#[derive(Debug)]
pub struct Table {
    cells: Cells<Cell>,
    window: AdmissionWindow,
    last: Last,
    outcomes: Outcomes,
    /// Which overwritten versions can be read.
    keeps: Horizon,
    /// Whether the keyspace has procedures.
    runs_calls: bool,
    /// The set of procedures that is in use; none if none was ever registered.
    set: Option<Arc<InUse>>,
    /// The calls of which something is kept.
    kept: BTreeSet<Version>,
    /// The row of a key that was never written.
    empty: Row,
}

impl Table {
    /// Creates an empty table. It keeps about `resident` rows in memory.
    pub(super) fn new(resident: usize, keeps: Horizon) -> Table {
        Table {
            cells: Cells::new(resident),
            window: AdmissionWindow::default(),
            last: Last::default(),
            outcomes: Outcomes::default(),
            keeps,
            runs_calls: false,
            set: None,
            kept: BTreeSet::new(),
            empty: Row::default(),
        }
    }

    /// The table of a keyspace that has procedures, if `runs_calls` says so.
    #[must_use]
    pub(super) fn running_calls(self, runs_calls: bool) -> Table {
        Table { runs_calls, ..self }
    }

    /// Whether the keyspace has procedures.
    pub(super) fn runs_calls(&self) -> bool {
        self.runs_calls
    }

    /// The set of procedures that is in use, if one was ever registered.
    pub(super) fn set(&self) -> Option<&Arc<InUse>> {
        self.set.as_ref()
    }

    /// What is kept of a call that has a part, or had one.
    pub(super) fn kept(&mut self, txn: Version, store: &dyn Store) -> Option<Arc<Kept>> {
        if !self.kept.contains(&txn) {
            return None;
        }
        match self.cells.get(&name_of_call(txn), store) {
            Cell::Kept(_, kept) => Some(kept.clone()),
            _ => None,
        }
    }

    /// The row of a key.
    pub fn row(&mut self, key: &Key, store: &dyn Store) -> &Row {
        match self.cells.get(&name_of_key(key), store) {
            Cell::Row(row) => row,
            Cell::Nothing => &self.empty,
            other => panic!("key {key} holds {other:?}"),
        }
    }

    /// Has the processor fetch the rows of these keys from memory, together.
    pub(super) fn prefetch(&self, keys: &[Key]) {
        self.cells.prefetch(keys.iter(), |cell| match cell {
            Cell::Row(row) => row.prefetch(),
            _ => 0,
        });
    }

    /// Which transactions are admitted.
    pub(super) fn window(&self) -> AdmissionWindow {
        self.window
    }

    /// Removes entries that were not chosen: a later leader had begun before them, or an earlier entry of their own leader
    /// is lost. The first belongs to slot `first`.
    pub(super) fn revise(&self, first: u64, entries: &mut [Option<Led>]) {
        self.last.revise(first, entries);
    }

    /// A transaction's outcome, if it is known.
    pub(super) fn decision(&self, txn: Version) -> Option<Decision> {
        self.outcomes.decision(txn)
    }

    /// See [`Outcomes::decision_of_version`].
    pub(super) fn decision_of_version(&self, version: Version) -> Option<Decision> {
        self.outcomes.decision_of_version(version)
    }

    /// The transactions that are prepared.
    pub(super) fn prepared(&self) -> &BTreeSet<Version> {
        self.outcomes.prepared()
    }

    /// How many transactions that began at `us` or later are known to have ended.
    pub(super) fn decided_from(&self, us: u64) -> usize {
        self.outcomes.decided_from(us)
    }

    /// How many transactions are known to have ended.
    pub(super) fn remembered(&self) -> usize {
        self.outcomes.remembered()
    }

    pub(super) fn cells(&self) -> &Cells<Cell> {
        &self.cells
    }

    pub(super) fn cells_mut(&mut self) -> &mut Cells<Cell> {
        &mut self.cells
    }

    /// The part of a prepared transaction.
    pub(super) fn part(&mut self, txn: Version, store: &dyn Store) -> Part {
        let Cell::Txn(TxnRow {
            state: TxnState::Prepared { participants, validity, keys }, ..
        }) = self.cells.get(&name_of_txn(txn), store).clone()
        else {
            panic!("transaction {txn} is not ready to commit")
        };
        let item = |key: &Key| self.row(key, store).item(key, txn);
        let items: Vec<Item> = keys.iter().filter_map(item).collect();
        assert_eq!(items.len(), keys.len(), "transaction {txn} lacks keys of its part");
        Part { txn, participants, validity, items }
    }

    /// Applies the entry of a slot. Its record is at `position` of the durable log or later.
    pub(super) fn apply(
        &mut self,
        (slot, position): (u64, u64),
        led: Option<&Led>,
        store: &mut dyn Store,
    ) {
        let Some(led) = led else { return };
        if self.last.apply(slot, led) {
            *self.cells.change(&name_of_last(), position, store) = Cell::Last(self.last);
        }
        match &led.entry {
            Entry::Prepare(part) => self.prepare((slot, position), part, store),
            Entry::PrepareCall(part, kept) => {
                self.prepare((slot, position), part, store);
                self.keep((slot, position), part.txn, kept, store);
            }
            Entry::Set { version, set } => {
                if self.set.as_ref().is_none_or(|known| known.version < *version) {
                    let cell = self.cells.change(&name_of_set(), position, store);
                    *cell = Cell::Set(*version, set.clone());
                    self.set = Some(Arc::new(InUse::new(*version, set.clone())));
                }
            }
            Entry::Decide { txn, decision, keys } => {
                self.decide((slot, position), (*txn, *decision), keys, store);
            }
            Entry::Window(window) => {
                self.turn_to((slot, position), *window, store);
            }
            Entry::Lead => {
                let AdmissionWindow { to_us, forget_us, .. } = self.window;
                let window = AdmissionWindow { from_us: to_us, to_us, forget_us };
                self.turn_to((slot, position), window, store);
            }
        }
    }

    fn prepare(&mut self, (slot, position): (u64, u64), part: &Part, store: &dyn Store) {
        let Part { txn, participants, validity, items } = part;
        let state = TxnState::Prepared {
            participants: participants.clone(),
            validity: *validity,
            keys: items.iter().map(|item| item.key.clone()).collect(),
        };
        if self.set_txn((slot, position), *txn, state, store) {
            self.outcomes.prepare(*txn);
        }
        for item in items {
            self.change(&item.key, position, store).prepare(slot, *txn, item);
        }
    }

    fn keep(
        &mut self,
        (slot, position): (u64, u64),
        txn: Version,
        kept: &Arc<Kept>,
        store: &dyn Store,
    ) {
        if txn.timestamp_us < self.window.forget_us {
            return; // Replayed.
        }
        let cell = self.cells.change(&name_of_call(txn), position, store);
        if !matches!(cell, Cell::Kept(applied, _) if *applied > slot) {
            *cell = Cell::Kept(slot + 1, kept.clone());
        }
        self.kept.insert(txn);
    }

    fn decide(
        &mut self,
        (slot, position): (u64, u64),
        (txn, decision): (Version, Decision),
        keys: &Arc<[Key]>,
        store: &dyn Store,
    ) {
        if self.set_txn((slot, position), txn, TxnState::Decided(decision), store) {
            self.know(txn, &TxnState::Decided(decision));
        }
        let kept_us = self.keeps.begins_us(self.window);
        for key in keys.iter() {
            self.change(key, position, store).decide(slot, txn, decision, kept_us);
        }
    }

    /// Sets the state of a transaction. Returns false if a later state is known, or if the
    /// transaction may be forgotten.
    fn set_txn(
        &mut self,
        (slot, position): (u64, u64),
        txn: Version,
        state: TxnState,
        store: &dyn Store,
    ) -> bool {
        // It may be replayed. What has committed at a later time than it began is remembered for longer.
        let forget_us = self.window.forget_us;
        let is_forgotten = match &state {
            TxnState::Decided(decision) => can_forget(txn, *decision, forget_us),
            TxnState::Prepared { .. } => txn.timestamp_us < forget_us,
        };
        if is_forgotten {
            return false;
        }
        let cell = self.cells.change(&name_of_txn(txn), position, store);
        if matches!(cell, Cell::Txn(row) if row.applied > slot) {
            return false;
        }
        *cell = Cell::Txn(TxnRow { applied: slot + 1, state });
        true
    }

    fn turn_to(
        &mut self,
        (slot, position): (u64, u64),
        window: AdmissionWindow,
        store: &mut dyn Store,
    ) {
        let cell = self.cells.change(&name_of_window(), position, store);
        if matches!(cell, Cell::Window(applied, _) if *applied > slot) {
            return;
        }
        // The entry may have been proposed before others were applied.
        let window = window.and(self.window);
        *cell = Cell::Window(slot + 1, window);
        self.window = window;
        self.forget_below(window.forget_us, store);
    }

    /// Forgets transactions that began before `forget_us`. They have ended, even if this replica
    /// does not know it.
    fn forget_below(&mut self, forget_us: u64, store: &mut dyn Store) {
        for txn in self.outcomes.forget_below(forget_us) {
            self.cells.forget(&name_of_txn(txn), store);
        }
        let outcomes = &self.outcomes;
        let old = self.kept.range(..Version::at(forget_us)).copied();
        let old: Vec<Version> = old.filter(|txn| outcomes.decision(*txn).is_none()).collect();
        for txn in old {
            self.kept.remove(&txn);
            self.cells.forget(&name_of_call(txn), store);
        }
    }

    fn change(&mut self, key: &Key, position: u64, store: &dyn Store) -> &mut Row {
        let cell = self.cells.change(&name_of_key(key), position, store);
        if *cell == Cell::Nothing {
            *cell = Cell::Row(Row::default());
        }
        match cell {
            Cell::Row(row) => row,
            other => panic!("key {key} holds {other:?}"),
        }
    }

    /// Loads the known transactions from the store.
    pub(super) fn load(&mut self, store: &dyn Store) {
        if let Cell::Window(_, window) = self.cells.get(&name_of_window(), store) {
            self.window = *window;
        }
        if let Cell::Last(last) = self.cells.get(&name_of_last(), store) {
            self.last = *last;
        }
        if let Cell::Set(version, set) = self.cells.get(&name_of_set(), store) {
            self.set = Some(Arc::new(InUse::new(*version, set.clone())));
        }
        let mut after = vec![ESCAPE, OF_CALL];
        loop {
            let mut found = Vec::new();
            let more = store.scan(Some(&after), READ_AT_ONCE, &mut |name, state| {
                if !state.is_empty() {
                    found.push((name.to_vec(), decode_cell::<Cell>(state)));
                } else {
                    found.push((name.to_vec(), Cell::Nothing));
                }
            });
            let last = found.last().map(|(name, _)| name.clone());
            for (name, cell) in found {
                if let (Some(txn), Cell::Txn(row)) = (txn_of_name(&name), cell) {
                    self.know(txn, &row.state);
                } else if let Some(call) = call_of_name(&name) {
                    self.kept.insert(call);
                }
            }
            match last.filter(|_| more) {
                Some(last) => after = last,
                None => return,
            }
        }
    }

    fn know(&mut self, txn: Version, state: &TxnState) {
        let forget_us = self.window.forget_us;
        match state {
            TxnState::Decided(decision) if can_forget(txn, *decision, forget_us) => {}
            TxnState::Decided(decision) => self.outcomes.decide(txn, *decision),
            TxnState::Prepared { .. } if txn.timestamp_us < forget_us => {}
            TxnState::Prepared { .. } => self.outcomes.prepare(txn),
        }
    }

    /// Takes over the state that another replica's store has under a name, unless this table's own
    /// state is later. Returns false if `state` is not a valid state for that name.
    pub(super) fn take_over(&mut self, name: &Key, state: &[u8], store: &mut dyn Store) -> bool {
        let Some(cell) = decode_cell_of_another::<Cell>(state) else { return false };
        if !can_lie_under(name, &cell) {
            return false;
        }
        // What is the same here was perhaps replayed from records that are given up after the copy. So it is stored, too.
        match (&cell, self.cells.get(name, store)) {
            (Cell::Row(new), Cell::Row(old)) if !new.is_as_late_as(old) => return true,
            (Cell::Txn(new), Cell::Txn(old)) if new.applied < old.applied => return true,
            (Cell::Window(new, _), Cell::Window(old, _)) if new < old => return true,
            (Cell::Kept(new, _), Cell::Kept(old, _)) if new < old => return true,
            (Cell::Set(new, _), Cell::Set(old, _)) if new < old => return true,
            (Cell::Last(new), Cell::Last(old)) if old.is_after(*new) => return true,
            _ => {}
        }
        match (&cell, txn_of_name(name.as_bytes())) {
            (Cell::Txn(row), Some(txn)) => self.know(txn, &row.state),
            (Cell::Last(last), _) => self.last = *last,
            (Cell::Window(_, window), _) => {
                self.window = *window;
                self.forget_below(window.forget_us, store);
            }
            (Cell::Set(version, set), _) => {
                self.set = Some(Arc::new(InUse::new(*version, set.clone())));
            }
            _ => {}
        }
        if let (Cell::Kept(..), Some(call)) = (&cell, call_of_name(name.as_bytes())) {
            if call.timestamp_us < self.window.forget_us && self.decision(call).is_none() {
                return true;
            }
            self.kept.insert(call);
        }
        self.cells.put(name, cell, store);
        true
    }
}

fn can_lie_under(name: &Key, cell: &Cell) -> bool {
    let of_txn = txn_of_name(name.as_bytes()).is_some();
    let of_window = *name == name_of_window();
    let of_call = call_of_name(name.as_bytes()).is_some();
    let of_set = *name == name_of_set();
    let of_last = *name == name_of_last();
    match cell {
        Cell::Nothing => true,
        Cell::Row(_) => !of_txn && !of_window && !of_call && !of_set && !of_last,
        Cell::Kept(..) => of_call,
        Cell::Set(_, set) => of_set && set.validate().is_ok(),
        Cell::Txn(_) => of_txn,
        Cell::Window(..) => of_window,
        Cell::Last(_) => of_last,
    }
}

/// The name of a key in the store: the key itself, except for keys that begin with the escape byte.
fn name_of_key(key: &Key) -> Key {
    if key.as_bytes().first() != Some(&ESCAPE) {
        return key.clone();
    }
    let mut name = vec![ESCAPE, OF_KEY];
    name.extend_from_slice(key.as_bytes());
    Key::from(name.as_slice())
}

fn name_of_txn(txn: Version) -> Key {
    name_of_version(OF_TXN, txn)
}

fn name_of_call(txn: Version) -> Key {
    name_of_version(OF_CALL, txn)
}

fn name_of_version(of: u8, txn: Version) -> Key {
    let mut name = [0; 18];
    name[..2].copy_from_slice(&[ESCAPE, of]);
    name[2..10].copy_from_slice(&txn.timestamp_us.to_be_bytes());
    name[10..].copy_from_slice(&txn.coordinator.0.to_be_bytes());
    Key::from(name)
}

fn txn_of_name(name: &[u8]) -> Option<Version> {
    version_of_name(OF_TXN, name)
}

fn call_of_name(name: &[u8]) -> Option<Version> {
    version_of_name(OF_CALL, name)
}

fn version_of_name(of: u8, name: &[u8]) -> Option<Version> {
    let (us, coordinator) = name.strip_prefix(&[ESCAPE, of])?.split_first_chunk()?;
    let coordinator = NodeId(u64::from_be_bytes(coordinator.try_into().ok()?));
    Some(Version { timestamp_us: u64::from_be_bytes(*us), coordinator })
}

fn name_of_window() -> Key {
    Key::from([ESCAPE, OF_TXN])
}

fn name_of_last() -> Key {
    Key::from([ESCAPE, OF_LAST])
}

fn name_of_set() -> Key {
    Key::from([ESCAPE, OF_SET])
}

#[cfg(test)]
mod tests {
    use serried_actor::MemoryStore;

    use super::super::stamp::{Stamp, Validity};
    use super::*;
    use crate::frameworks::replicated_log::Ballot;

    #[test]
    fn a_state_that_is_taken_over_removes_forgotten_transactions() {
        let (mut behind, mut ahead) = (Table::new(9, Horizon::Now), Table::new(9, Horizon::Now));
        let (mut its_store, mut store) = (MemoryStore::default(), MemoryStore::default());
        let txn = Version { timestamp_us: 7, coordinator: NodeId(70_000) };
        let key = Key::from("x");
        let items = vec![Item { key: key.clone(), read: Some(Stamp::INITIAL), write: None }];
        let (participants, validity) = (Arc::new([0]), Validity::ALWAYS);
        let led = |entry| Led { by: Ballot::NONE, number: 0, entry };
        let prepare = led(Entry::Prepare(Arc::new(Part { txn, participants, validity, items })));
        behind.apply((0, 0), Some(&prepare), &mut its_store);
        let decision = Decision::Commit(Stamp::assigned(txn));
        let forget = AdmissionWindow { from_us: 9, to_us: 9, forget_us: 9 };
        let keys = Arc::new([key]);
        let decide = led(Entry::Decide { txn, decision, keys });
        let entries = [prepare, decide, led(Entry::Window(forget))];
        for (slot, entry) in (0..).zip(&entries) {
            ahead.apply((slot, slot), Some(entry), &mut store);
        }
        ahead.cells.store_some(usize::MAX, &mut store);
        store.scan(None, READ_AT_ONCE, &mut |name, state| {
            behind.take_over(&Key::from(name), state, &mut its_store);
        });
        assert_eq!((behind.prepared().len(), behind.window()), (0, forget));
        assert_eq!(*behind.cells.get(&name_of_txn(txn), &its_store), Cell::Nothing);
    }

    #[test]
    fn a_transferred_state_replaces_no_later_state() {
        let led = |entry| Led { by: Ballot::NONE, number: 0, entry };
        let key = Key::from("x");
        let ended = |us: u64| {
            let txn = Version { timestamp_us: us, coordinator: NodeId(70_000) };
            let items = vec![Item { key: key.clone(), read: Some(Stamp::INITIAL), write: None }];
            let (participants, validity) = (Arc::new([0]), Validity::ALWAYS);
            let prepare = Entry::Prepare(Arc::new(Part { txn, participants, validity, items }));
            let decision = Decision::Commit(Stamp::assigned(txn));
            [led(prepare), led(Entry::Decide { txn, decision, keys: Arc::new([key.clone()]) })]
        };
        let window =
            |to_us| led(Entry::Window(AdmissionWindow { from_us: 1, to_us, forget_us: 0 }));
        let [prepared, decided] = ended(8);
        let entries: Vec<_> = ended(7).into_iter().chain([window(10), prepared]).collect();
        let more = [decided, window(20)];
        let [(mut older, mut its_store), (mut newer, mut store)] =
            [(), ()].map(|()| (Table::new(9, Horizon::Now), MemoryStore::default()));
        for (slot, entry) in (0..).zip(&entries) {
            older.apply((slot, slot), Some(entry), &mut its_store);
            newer.apply((slot, slot), Some(entry), &mut store);
        }
        for (slot, entry) in (4..).zip(&more) {
            newer.apply((slot, slot), Some(entry), &mut store);
        }
        older.cells.store_some(usize::MAX, &mut its_store);
        let mut names = 0;
        its_store.scan(None, READ_AT_ONCE, &mut |name, state| {
            let name = Key::from(name);
            let before = newer.cells.get(&name, &store).clone();
            assert!(newer.take_over(&name, state, &mut store));
            assert_eq!(*newer.cells.get(&name, &store), before, "{name}");
            names += 1;
        });
        assert_eq!((names, newer.window().to_us), (5, 20));
    }

    /// A replica replays entries, and copies the state of another one that has applied the same. It gives up its records then.
    #[test]
    fn what_is_the_same_is_stored_when_it_is_taken_over() {
        let led = |entry| Led { by: Ballot::NONE, number: 0, entry };
        let key = Key::from("x");
        let txn = Version { timestamp_us: 7, coordinator: NodeId(70_000) };
        let items = vec![Item { key: key.clone(), read: Some(Stamp::INITIAL), write: None }];
        let (participants, validity) = (Arc::new([0]), Validity::ALWAYS);
        let prepare = Entry::Prepare(Arc::new(Part { txn, participants, validity, items }));
        let window = Entry::Window(AdmissionWindow { from_us: 1, to_us: 9, forget_us: 0 });
        let entries = [prepare, window, Entry::Set { version: 1, set: Arc::default() }].map(led);
        let [(mut source, mut its_store), (mut replayed, mut store)] = [(), ()]
            .map(|()| (Table::new(9, Horizon::Now).running_calls(true), MemoryStore::default()));
        for (slot, entry) in (0..).zip(&entries) {
            source.apply((slot, slot), Some(entry), &mut its_store);
            replayed.apply((slot, slot), Some(entry), &mut store);
        }
        source.cells.store_some(usize::MAX, &mut its_store);
        let mut names = Vec::new();
        its_store.scan(None, READ_AT_ONCE, &mut |name, state| {
            assert!(replayed.take_over(&Key::from(name), state, &mut store));
            assert_eq!(store.get(name).as_deref(), Some(state), "{}", Key::from(name));
            names.push(Key::from(name));
        });
        let all = [key, name_of_txn(txn), name_of_window(), name_of_set(), name_of_last()];
        assert!(all.iter().all(|name| names.contains(name)), "{names:?}");
    }

    #[test]
    fn names_of_keys_and_transactions_never_collide() {
        let txn = Version { timestamp_us: 7, coordinator: NodeId(70_000) };
        let name = name_of_txn(txn);
        assert_eq!(txn_of_name(name.as_bytes()), Some(txn));
        assert_ne!(name_of_key(&name), name);
        assert_eq!(txn_of_name(name_of_key(&name).as_bytes()), None);
        assert_ne!(name_of_key(&name_of_window()), name_of_window());
        let key = Key::from("alice");
        assert_eq!(name_of_key(&key), key);
    }
}

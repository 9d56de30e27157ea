//! The state machine of a replica: its keys, and the transactions that it takes part in.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serried_actor::{Context, Settings, Store, Timestamp};
use serried_model::{Key, Versionstamp, Write};
use serried_parts::{Cells, decode_cell, decode_cell_of_another};

use super::Mutation;
use super::cell::{
    Cell, Partition, Transaction, Version, before_transactions, coordinator, name_of_transaction,
    transaction_of_name,
};
use super::message::{Entry, TransactionId};
use super::open::Open;
use super::replica::Replica;
use super::serving::Serving;
use crate::Mutated;
use crate::frameworks::replicated_log::{Ballot, Chosen, Led, StateMachine};
use crate::frameworks::stamp_clock::ahead;
use crate::frameworks::stored_names::{name_of, name_of_partition};

/// How many bytes of transactions are loaded at a time.
const LOADED_BYTES: usize = 1 << 20;

/// What a leader has to do after entries were applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A transaction is prepared.
    Prepared(TransactionId),
    /// A transaction is decided, or refused.
    Decided(TransactionId),
    /// The bound is higher.
    Raised,
}

/// The keys, and the transactions.
#[derive(Debug)]
pub(super) struct Machine {
    cells: Cells<Cell>,
    pub(super) partition: Partition,
    /// The partition has changed since it was last put among the cells. The record at this position is the first that
    /// is needed to replay that.
    changed_at: Option<u64>,
    /// While the state of another replica is copied: the transactions that it has not shown. It may have forgotten
    /// them.
    not_shown: BTreeSet<TransactionId>,
    /// All transactions that are remembered.
    pub(super) transactions: BTreeMap<TransactionId, Transaction>,
    /// The highest commit time, as far as this replica has applied it itself.
    written: Versionstamp,
    /// The ballot in which this replica leads.
    pub(super) ballot: Option<Ballot>,
    /// What it has in memory as a leader that serves. It serves once its first entry is applied, and so all entries of
    /// its predecessors.
    pub(super) serving: Option<Serving>,
    /// What a leader has to do.
    pub(super) events: VecDeque<Event>,
    settings: Settings,
    mutation: Mutated<Mutation>,
}

impl Machine {
    /// A machine without keys.
    pub(super) fn new(settings: &Settings, mutation: Mutated<Mutation>) -> Machine {
        Machine {
            cells: Cells::new(settings.resident_keys),
            partition: Partition::default(),
            changed_at: None,
            not_shown: BTreeSet::new(),
            transactions: BTreeMap::new(),
            written: Versionstamp::ZERO,
            ballot: None,
            serving: None,
            events: VecDeque::new(),
            settings: *settings,
            mutation,
        }
    }

    /// Brings what is known of the partition and of transactions into memory.
    pub(super) fn load(&mut self, store: &dyn Store) {
        if let Cell::Partition(partition) = self.cells.get(&name_of_partition(), store) {
            self.partition = *partition;
        }
        let mut after = before_transactions().to_vec();
        loop {
            let transactions = &mut self.transactions;
            let mut last = None;
            let has_more = store.scan(Some(&after), LOADED_BYTES, &mut |name, state| {
                last = Some(name.to_vec());
                let Some(id) = transaction_of_name(name).filter(|_| !state.is_empty()) else {
                    return;
                };
                if let Cell::Transaction(transaction) = decode_cell(state) {
                    transactions.insert(id, transaction);
                }
            });
            match last {
                Some(last) if has_more => after = last,
                _ => return,
            }
        }
    }

    pub(super) fn cells(&self) -> &Cells<Cell> {
        &self.cells
    }

    pub(super) fn cells_mut(&mut self) -> &mut Cells<Cell> {
        &mut self.cells
    }

    /// The latest version of a key, as far as the log is applied.
    pub(super) fn latest(&mut self, key: &Key, store: &dyn Store) -> &Version {
        self.cells.get(&name_of(key), store).version()
    }

    /// This replica leads in another ballot, or does not lead.
    pub(super) fn lead(&mut self, ballot: Option<Ballot>) {
        self.ballot = ballot;
        self.events.clear();
        self.serving = None;
    }

    /// Puts what is known of the partition among the cells, if it has changed.
    pub(super) fn keep_partition(&mut self, store: &dyn Store) {
        if let Some(position) = self.changed_at.take() {
            let cell = self.cells.change(&name_of_partition(), position, store);
            *cell = Cell::Partition(self.partition);
        }
    }

    /// Changes the state of a transaction.
    fn set(
        &mut self,
        id: TransactionId,
        transaction: Transaction,
        position: u64,
        store: &dyn Store,
    ) {
        let cell = self.cells.change(&name_of_transaction(id), position, store);
        *cell = Cell::Transaction(transaction.clone());
        self.transactions.insert(id, transaction);
    }

    /// Writes take effect. It may be so already.
    fn install(
        &mut self,
        id: TransactionId,
        commit: Versionstamp,
        writes: &[Write],
        position: u64,
        store: &dyn Store,
    ) {
        self.written = self.written.max(commit);
        for Write { key, value } in writes {
            let version = Version { value: value.clone(), commit, session: id.session };
            let latest = self.cells.change(&name_of(key), position, store).version_mut();
            let (overwritten, at) = match latest.commit.cmp(&commit) {
                core::cmp::Ordering::Less => (core::mem::replace(latest, version), commit),
                core::cmp::Ordering::Equal => continue,
                // It commits here later than one with a higher commit time.
                core::cmp::Ordering::Greater => (version, latest.commit),
            };
            if let Some(serving) = &mut self.serving {
                serving.overwritten.add(key, overwritten, at);
            }
        }
    }

    /// An entry is applied. If a copy came before it, the copy is complete if the entry is not part of it. Otherwise
    /// it was given up, and the log goes on where it was.
    fn end_copy(&mut self, is_new: bool, store: &mut dyn Store) {
        for id in core::mem::take(&mut self.not_shown).into_iter().filter(|_| is_new) {
            self.transactions.remove(&id);
            self.cells.forget(&name_of_transaction(id), store);
        }
    }

    /// Forgets outcomes that are old enough. Each is forgotten everywhere at the same entry of the log.
    fn forget(&mut self, store: &mut dyn Store) {
        let last = match self.mutation.is(Mutation::OutcomesForgotten) {
            true => Versionstamp(u64::MAX),
            false => self.partition.horizon,
        };
        let last = TransactionId { requested: last, session: u64::MAX };
        let is_old = |(id, transaction): (&TransactionId, &Transaction)| {
            (transaction.stage() == 2).then_some(*id)
        };
        let old: Vec<_> = self.transactions.range(..=last).filter_map(is_old).collect();
        for id in old {
            self.transactions.remove(&id);
            self.cells.forget(&name_of_transaction(id), store);
        }
    }

    /// A leader has begun: what its predecessors have left is open.
    fn take_up(&mut self, before: Versionstamp, now: Timestamp) {
        let mut serving = Serving::new(before, self.written, now, &self.settings, self.mutation);
        for (id, transaction) in &self.transactions {
            match transaction {
                Transaction::Prepared { participants, pending, writes } => {
                    serving.begin(*id, *pending, participants, writes, now);
                    self.events.push_back(Event::Prepared(*id));
                }
                Transaction::Decided { untold, .. } if !untold.is_empty() => {
                    serving.open.insert(*id, Open::new(now));
                    self.events.push_back(Event::Decided(*id));
                }
                Transaction::Decided { .. } => {}
            }
        }
        self.serving = Some(serving);
    }

    /// The bound is at least what it would be if the clock showed this.
    fn raise(&mut self, stamp: Versionstamp) {
        let bound = stamp.after(ahead(&self.settings));
        self.partition.bound = self.partition.bound.max(bound);
    }

    fn decided(
        &mut self,
        id: TransactionId,
        commit: Option<Versionstamp>,
        keys: &[Write],
        now: Timestamp,
    ) {
        let Some(serving) = &mut self.serving else { return };
        if let Some(commit) = commit {
            serving.committed(commit, now);
        }
        serving.end(id, keys.iter().map(|write| &write.key));
        self.events.push_back(Event::Decided(id));
    }

    fn decide(
        &mut self,
        id: TransactionId,
        commit: Option<Versionstamp>,
        writes: &[Write],
        position: u64,
        cx: &mut Context<'_, Replica>,
    ) {
        let (now, own) = (cx.now(), cx.id().partition());
        let mut untold = Vec::new();
        // An undone transaction's entry has no writes.
        let mut prepared = Vec::new();
        match self.transactions.remove(&id) {
            Some(Transaction::Prepared { mut participants, writes, .. }) => {
                if coordinator(&participants, own) == own && !participants.is_empty() {
                    untold = participants.split_off(1);
                }
                prepared = writes;
            }
            // It is replayed, and the state of the transaction is later than those of keys.
            Some(Transaction::Decided { untold: left, .. }) => untold = left,
            None => {}
        }
        if let Some(commit) = commit {
            self.install(id, commit, writes, position, cx.store());
        }
        self.set(id, Transaction::Decided { commit, untold }, position, cx.store());
        self.decided(id, commit, &prepared, now);
    }
}

impl StateMachine<Replica> for Machine {
    fn apply(&mut self, chosen: Chosen<'_, Led<Entry>>, cx: &mut Context<'_, Replica>) {
        let Chosen { position, entry, led_in, .. } = chosen;
        let Some(led) = entry else { return };
        let is_new = self.partition.last.apply(chosen.slot, led);
        self.end_copy(is_new, cx.store());
        self.changed_at.get_or_insert(position);
        let is_own = led_in.is_some() && led_in == self.ballot && Some(led.by) == led_in;
        let now = cx.now();
        match &led.entry {
            Entry::Lead => {
                let before = self.partition.bound;
                if is_new {
                    self.raise(before);
                }
                if is_own {
                    self.take_up(before, now);
                }
            }
            Entry::Bound { bound, horizon, refused } => {
                if is_new {
                    self.partition.refused = self.partition.refused.max(*refused);
                    self.partition.bound = self.partition.bound.max(*bound);
                    self.partition.horizon = self.partition.horizon.max(*horizon);
                }
                self.forget(cx.store());
                self.events.push_back(Event::Raised);
            }
            Entry::Write { id, commit, writes } => {
                cx.charge(writes.len());
                if is_new {
                    self.raise(*commit);
                }
                self.install(*id, *commit, writes, position, cx.store());
                let untold = Vec::new();
                let decided = Transaction::Decided { commit: Some(*commit), untold };
                self.set(*id, decided, position, cx.store());
                self.decided(*id, Some(*commit), writes, now);
            }
            Entry::Prepare { id, participants, pending, writes } => {
                cx.charge(writes.len());
                if is_new {
                    self.raise(*pending);
                }
                if !self.transactions.contains_key(id) {
                    let (participants, writes) = (participants.clone(), writes.clone());
                    let pending = *pending;
                    let prepared = Transaction::Prepared { participants, pending, writes };
                    self.set(*id, prepared, position, cx.store());
                }
                self.events.push_back(Event::Prepared(*id));
            }
            Entry::Refuse(id) => {
                if !self.transactions.contains_key(id) {
                    let refused = Transaction::Decided { commit: None, untold: Vec::new() };
                    self.set(*id, refused, position, cx.store());
                }
                self.events.push_back(Event::Decided(*id));
            }
            Entry::Decide { id, commit, writes } => {
                cx.charge(writes.len());
                if let Some(commit) = commit.filter(|_| is_new) {
                    self.raise(commit);
                }
                self.decide(*id, *commit, writes, position, cx);
                if self.mutation.is(Mutation::OutcomesForgotten) {
                    self.forget(cx.store());
                }
            }
            Entry::Finish(ids) => {
                for id in ids {
                    if let Some(Transaction::Decided { commit, .. }) = self.transactions.get(id) {
                        let (commit, untold) = (*commit, Vec::new());
                        self.set(
                            *id,
                            Transaction::Decided { commit, untold },
                            position,
                            cx.store(),
                        );
                    }
                    if let Some(serving) = &mut self.serving {
                        serving.open.remove(id);
                    }
                }
            }
        }
        if self.serving.is_none() {
            self.events.clear();
        }
    }

    fn revise(&self, first: u64, inherited: &mut [Option<Led<Entry>>]) {
        self.partition.last.revise(first, inherited);
    }

    fn store_all(&mut self, store: &mut dyn Store) {
        self.keep_partition(store);
        self.cells.store_some(usize::MAX, store);
    }

    fn needs_log_from(&self) -> Option<u64> {
        self.cells.needs_log_from().into_iter().chain(self.changed_at).min()
    }

    fn take_over(&mut self, name: &Key, state: &[u8], store: &mut dyn Store) -> bool {
        let Some(state) = decode_cell_of_another::<Cell>(state) else { return false };
        let is_partition = *name == name_of_partition();
        let id = transaction_of_name(name.as_bytes());
        match (&state, is_partition, id) {
            (Cell::Partition(partition), true, _) => {
                let own = self.partition;
                // What is the same here was perhaps replayed from records that are given up after the copy. So it is
                // stored, too.
                if own.last.is_after(partition.last) {
                    return true;
                }
                // Transactions that the other has forgotten must not come back. It shows those that it knows.
                if partition.last.is_after(own.last) {
                    self.not_shown = self.transactions.keys().copied().collect();
                }
                self.partition = Partition {
                    bound: own.bound.max(partition.bound),
                    horizon: own.horizon.max(partition.horizon),
                    refused: own.refused.max(partition.refused),
                    ..*partition
                };
                self.changed_at = None;
                self.cells.put(name, Cell::Partition(self.partition), store);
            }
            (Cell::Transaction(transaction), false, Some(id)) => {
                self.not_shown.remove(&id);
                let own = self.transactions.get(&id).map(Transaction::stage);
                if own > Some(transaction.stage()) {
                    return true;
                }
                self.transactions.insert(id, transaction.clone());
                self.cells.put(name, state, store);
            }
            (Cell::Key(version), false, None) => {
                let own = self.cells.get(name, store).version();
                if version.commit < own.commit {
                    return true;
                }
                self.cells.put(name, state, store);
            }
            _ => return false,
        }
        true
    }
}

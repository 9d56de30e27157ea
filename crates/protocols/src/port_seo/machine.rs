//! The state machine of a replica: its keys, the last batches, and the reads that wait for confirmation.

use core::time::Duration;
use std::collections::VecDeque;

use serried_actor::{Context, Settings, Store};
use serried_model::Key;
use serried_parts::{Cells, decode_cell_of_another};

use super::Mutation;
use super::cell::{Cell, Partition};
use super::history::History;
use super::message::{Batch, Entry, Fate, Found, Mark, SEQUENCER, Version, Write};
use super::replica::{Client, Replica};
use crate::Mutated;
use crate::frameworks::replicated_log::{Ballot, Chosen, Led, StateMachine};
use crate::frameworks::stored_names::{name_of, name_of_partition};

/// How long overwritten versions are kept at least, if they do not take too much room, and the settings do not say
/// longer.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The keys, and the reads that wait.
#[derive(Debug)]
pub(super) struct Machine {
    /// The number of its partition.
    own: u16,
    cells: Cells<Cell>,
    pub(super) partition: Partition,
    /// The partition has changed since it was last put among the cells. The record at this position is the first that
    /// is needed to replay that.
    changed_at: Option<u64>,
    /// What became of the writes of a batch that was applied: the number of the last one, and all of them.
    fates: (u64, Vec<Fate>),
    /// The ballot in which this replica leads.
    ballot: Option<Ballot>,
    /// What was applied lately, if it is a leader that serves. It serves once its first entry is applied, and so all
    /// entries of its predecessors.
    history: Option<History>,
    /// Reads that wait until this slot is applied: then the replica has led since they arrived. In the order of the
    /// slots.
    confirming: VecDeque<(u64, Vec<Client>)>,
    /// Reads that were confirmed.
    pub(super) confirmed: VecDeque<Client>,
    kept_for: Duration,
    remembered_us: u64,
    mutation: Mutated<Mutation>,
}

impl Machine {
    /// A machine of the partition `own`, without keys.
    pub(super) fn new(own: u16, settings: &Settings, mutation: Mutated<Mutation>) -> Machine {
        Machine {
            own,
            cells: Cells::new(settings.resident_keys),
            partition: Partition::default(),
            changed_at: None,
            fates: (0, Vec::new()),
            ballot: None,
            history: None,
            confirming: VecDeque::new(),
            confirmed: VecDeque::new(),
            kept_for: KEPT_FOR.max(Duration::from_millis(settings.history_ms)),
            remembered_us: settings.outcomes_ms.saturating_mul(1000),
            mutation,
        }
    }

    /// Brings what is known of the partition into memory.
    pub(super) fn load(&mut self, store: &dyn Store) {
        if let Cell::Partition(partition) = self.cells.get(&name_of_partition(), store) {
            self.partition = partition.clone();
        }
    }

    pub(super) fn cells(&self) -> &Cells<Cell> {
        &self.cells
    }

    pub(super) fn cells_mut(&mut self) -> &mut Cells<Cell> {
        &mut self.cells
    }

    /// Whether it is a leader that serves.
    pub(super) fn is_serving(&self) -> bool {
        self.ballot.is_some() && self.history.is_some()
    }

    /// This replica leads in another ballot, or does not lead. Returns the reads that wait.
    pub(super) fn lead(&mut self, ballot: Option<Ballot>) -> Vec<Client> {
        self.ballot = ballot;
        self.history = None;
        let mut reads: Vec<Client> = self.confirmed.drain(..).collect();
        reads.extend(self.confirming.drain(..).flat_map(|(_, reads)| reads));
        reads
    }

    /// A read waits for a slot, which is not before those of others.
    pub(super) fn confirm(&mut self, slot: u64, read: Client) {
        match self.confirming.back_mut().filter(|(last, _)| *last == slot) {
            Some((_, reads)) => reads.push(read),
            None => self.confirming.push_back((slot, vec![read])),
        }
    }

    /// For how many slots reads wait.
    pub(super) fn confirmations(&self) -> usize {
        self.confirming.len()
    }

    /// What a read finds, if this replica serves.
    pub(super) fn read(
        &mut self,
        (since, exact): (u64, bool),
        keys: &[Key],
        partitions: &[u16],
        store: &dyn Store,
    ) -> Option<Found> {
        let history = self.history.as_ref()?;
        let mut of = |key| self.cells.get(&name_of(key), store).key().latest().clone();
        let latest: Vec<Version> = keys.iter().map(&mut of).collect();
        Some(history.find((since, exact), keys, latest, partitions))
    }

    /// What became of the writes of a batch that is applied.
    pub(super) fn fates(&mut self, batch: &Batch, store: &dyn Store) -> Vec<Fate> {
        if let Some(fates) = self.latest_fates(batch) {
            return fates;
        }
        let mut fate = |write: &Write| {
            let state = self.cells.get(&name_of(&write.key), store).key();
            state.fate(write)
        };
        batch.writes.iter().map(|sequenced| fate(&sequenced.write)).collect()
    }

    /// The same, if it is the last batch that this replica has applied.
    pub(super) fn latest_fates(&self, batch: &Batch) -> Option<Vec<Fate>> {
        let (last, fates) = &self.fates;
        let is_it = *last == batch.last() && fates.len() == batch.writes.len();
        is_it.then(|| fates.clone())
    }

    /// How many overwritten versions are kept.
    pub(super) fn overwritten(&self) -> usize {
        self.history.as_ref().map_or(0, History::versions)
    }

    /// Forgets what was applied long ago, and puts what is known of the partition among the cells, if it has changed.
    pub(super) fn tidy(&mut self, cx: &mut Context<'_, Replica>) {
        if let Some(history) = &mut self.history {
            history.expire(cx.now());
        }
        self.keep_partition(cx.store());
    }

    fn keep_partition(&mut self, store: &dyn Store) {
        if let Some(position) = self.changed_at.take() {
            let cell = self.cells.change(&name_of_partition(), position, store);
            *cell = Cell::Partition(self.partition.clone());
        }
    }

    /// Gives a batch its numbers. Only the sequencer's partition does that.
    fn sequence(&mut self, batch: &Batch) {
        let sequenced = Mark { last: batch.last(), highest: batch.highest.clone() };
        self.partition.sequenced = sequenced;
        self.partition.handed_out = (batch.partition != self.own).then(|| batch.clone());
    }

    /// Applies a batch of this partition. If it was applied before, the keys say so.
    fn apply_batch(
        &mut self,
        batch: &Batch,
        position: u64,
        is_new: bool,
        cx: &mut Context<'_, Replica>,
    ) {
        let mut overwritten = Vec::new();
        let mut fates = Vec::with_capacity(batch.writes.len());
        for (number, sequenced) in (batch.first..).zip(&batch.writes) {
            cx.charge(1);
            let key = &sequenced.write.key;
            let state = self.cells.change(&name_of(key), position, cx.store()).key_mut();
            let is_first = self.history.is_some() && state.latest().number < batch.first;
            let before = is_first.then(|| state.latest().clone());
            let fate = state.execute(number, sequenced, self.remembered_us, self.mutation);
            if let Some(version) = before.filter(|_| fate == Fate::Done(number)) {
                overwritten.push((key.clone(), version));
            }
            fates.push(fate);
        }
        if !is_new || batch.last() <= self.partition.applied.last {
            return;
        }
        let mark = Mark { last: batch.last(), highest: batch.highest.clone() };
        if let Some(history) = &mut self.history {
            history.add(mark.clone(), overwritten, cx.now());
        }
        self.partition.applied = mark;
        self.fates = (batch.last(), fates);
    }
}

impl StateMachine<Replica> for Machine {
    fn apply(&mut self, chosen: Chosen<'_, Led<Entry>>, cx: &mut Context<'_, Replica>) {
        let Chosen { slot, position, entry, led_in } = chosen;
        let leads = led_in.is_some() && led_in == self.ballot;
        if let Some(led) = entry {
            let is_new = self.partition.last.apply(slot, led);
            self.changed_at.get_or_insert(position);
            match &led.entry {
                Entry::Lead if leads && Some(led.by) == led_in => {
                    let before = self.partition.applied.clone();
                    self.history = Some(History::new(before, self.kept_for));
                }
                Entry::Lead => {}
                // No sequencer proposes another one. It would be without effect at all replicas.
                Entry::Batch(batch) if !batch.has_numbers() => {}
                Entry::Batch(batch) => {
                    if is_new && self.own == SEQUENCER {
                        self.sequence(batch);
                    }
                    if batch.partition == self.own {
                        self.apply_batch(batch, position, is_new, cx);
                    }
                }
            }
        }
        while leads && self.confirming.front().is_some_and(|(waits_for, _)| *waits_for <= slot) {
            let reads = self.confirming.pop_front().map(|(_, reads)| reads);
            self.confirmed.extend(reads.into_iter().flatten());
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
        match (&state, *name == name_of_partition()) {
            (Cell::Partition(partition), true) => {
                // What is the same here was perhaps replayed from records that are given up after the copy. So it is
                // stored, too.
                if self.partition.last.is_after(partition.last) {
                    return true;
                }
                self.partition = partition.clone();
                self.changed_at = None;
                self.cells.put(name, state, store);
            }
            (Cell::Key(key), false) => {
                if !self.cells.get(name, store).key().is_after(key) {
                    self.cells.put(name, state, store);
                }
            }
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serried_actor::MemoryStore;
    use serried_model::NodeId;
    use serried_parts::encode_cell;

    use super::super::cell::KeyState;
    use super::super::message::Sequenced;
    use super::*;
    use crate::frameworks::replicated_log::Last;

    fn machine() -> Machine {
        Machine::new(0, &Settings::default(), Mutated::NONE)
    }

    /// A key after a write with this number.
    fn after(number: u64) -> Vec<u8> {
        let token = serried_model::Version { timestamp_us: number, coordinator: NodeId(70_000) };
        let write = Write { key: Key::from("x"), value: None, token, settled: token };
        let mut state = KeyState::default();
        let sequenced = Sequenced { write, is_refused: false };
        state.execute(number, &sequenced, 1000, Mutated::NONE);
        encode_cell(&Cell::Key(state))
    }

    #[test]
    fn what_another_has_replaces_nothing_that_is_later() {
        let (mut machine, mut store, x) = (machine(), MemoryStore::default(), Key::from("x"));
        for (shown, kept) in [(2, 2), (1, 2), (3, 3)] {
            assert!(machine.take_over(&x, &after(shown), &mut store));
            assert_eq!(machine.cells.get(&x, &store).key().latest().number, kept);
        }
        let name = name_of_partition();
        for (slot, number, kept) in [(5, 50, 50), (3, 90, 50), (7, 60, 60)] {
            let mut last = Last::default();
            let by = Ballot { round: 1, member: 0 };
            last.apply(slot, &Led { by, number: 0, entry: () });
            let applied = Mark { last: number, highest: vec![number] };
            let partition = Partition { last, applied, ..Partition::default() };
            let cell = encode_cell(&Cell::Partition(partition));
            assert!(machine.take_over(&name, &cell, &mut store));
            assert_eq!(machine.partition.applied.last, kept);
        }
        assert!(!machine.take_over(&name, &after(1), &mut store));
        assert!(!machine.take_over(&x, b"something else", &mut store));
        let mut fresh = self::machine();
        fresh.load(&store);
        assert_eq!(fresh.partition, machine.partition);
    }
}

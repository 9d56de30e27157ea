//! The slots of a log that are in memory.

use std::collections::VecDeque;

use super::acceptor::{OPEN_BYTES, OPEN_ENTRIES};
use super::message::{Accepted, Ballot, Entry};

/// How many applied entries are kept for replicas that lack them.
const KEPT_ENTRIES: usize = 32 << 10;
/// The limit of their size in bytes.
pub(super) const KEPT_BYTES: usize = 4 << 20;

const _: () = assert!(
    KEPT_ENTRIES as u64 >= OPEN_ENTRIES && KEPT_BYTES >= OPEN_BYTES,
    "a follower that lacks what a leader has just applied need not copy the state"
);

/// The accepted entry of a slot.
#[derive(Clone, Debug)]
pub(super) struct Slot<E> {
    pub(super) ballot: Ballot,
    /// No record of this slot or a later one lies before this position of the durable log.
    pub(super) position: u64,
    pub(super) entry: Option<E>,
    /// The entry's approximate size.
    bytes: usize,
}

/// The approximate size of an entry in bytes.
pub(super) fn size<E: Entry>(entry: Option<&E>) -> usize {
    entry.map_or(0, Entry::size) + size_of::<Slot<E>>()
}

/// The slots of a log from the first kept one on.
#[derive(Debug)]
pub(super) struct Slots<E> {
    first: u64,
    slots: VecDeque<Option<Slot<E>>>,
    /// All slots below this one have been applied.
    applied: u64,
    /// The size of the kept entries that were applied.
    applied_bytes: usize,
    /// The size of the other entries.
    open_bytes: usize,
    kept_entries: usize,
}

impl<E: Entry> Slots<E> {
    /// Creates an empty log. It keeps at most `at_most` applied entries.
    pub(super) fn new(at_most: usize) -> Slots<E> {
        Slots {
            first: 0,
            slots: VecDeque::new(),
            applied: 0,
            applied_bytes: 0,
            open_bytes: 0,
            kept_entries: at_most.min(KEPT_ENTRIES),
        }
    }

    /// The first slot that is kept.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The first slot that was not applied.
    pub(super) fn applied(&self) -> u64 {
        self.applied
    }

    /// The first slot after all that have an entry or were applied.
    pub(super) fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// The size of the entries that were not applied, in bytes.
    pub(super) fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn get(&self, slot: u64) -> Option<&Slot<E>> {
        let index = slot.checked_sub(self.first)?;
        self.slots.get(index as usize)?.as_ref()
    }

    /// Accepts an entry in a slot that was not applied. Its record is written at `position`.
    pub(super) fn accept(&mut self, slot: u64, ballot: Ballot, position: u64, entry: Option<E>) {
        assert!(slot >= self.applied, "slot {slot} was applied");
        let index = (slot - self.first) as usize;
        while self.slots.len() <= index {
            self.slots.push_back(None);
        }
        let later = self.slots.range(index + 1..).flatten().map(|later| later.position);
        let position = later.min().map_or(position, |later| later.min(position));
        let bytes = size(entry.as_ref());
        self.open_bytes += bytes;
        let new = Slot { ballot, position, entry, bytes };
        if let Some(old) = self.slots[index].replace(new) {
            self.open_bytes -= old.bytes;
        }
    }

    /// Marks the next slot as applied. It must have an entry.
    pub(super) fn apply_next(&mut self) -> &Slot<E> {
        let index = (self.applied - self.first) as usize;
        self.applied += 1;
        let slot = self.slots[index].as_ref().expect("a slot in which something was accepted");
        self.open_bytes -= slot.bytes;
        self.applied_bytes += slot.bytes;
        slot
    }

    /// The entries from a slot on. Applied entries are reported as chosen. Returns `None` if some
    /// of them are not kept, or if their size exceeds `at_most` bytes.
    pub(super) fn show(&self, from: u64, at_most: usize) -> Option<Vec<Accepted<E>>> {
        if from < self.first {
            return None;
        }
        let (mut shown, mut bytes) = (Vec::new(), 0);
        for slot in from..self.end() {
            let Some(Slot { ballot, entry, bytes: own, .. }) = self.get(slot) else { continue };
            bytes += own;
            let ballot = if slot < self.applied { Ballot::CHOSEN } else { *ballot };
            shown.push(Accepted { slot, ballot, entry: entry.clone() });
        }
        (bytes <= at_most).then_some(shown)
    }

    /// Consecutive entries from a slot on, up to `bytes` bytes, but at least one if there is one.
    pub(super) fn read(&self, from: u64, bytes: usize) -> Vec<Option<E>> {
        let (mut entries, mut read) = (Vec::new(), 0);
        let mut slot = from;
        while let Some(accepted) = self.get(slot).filter(|_| read < bytes) {
            read += accepted.bytes;
            entries.push(accepted.entry.clone());
            slot += 1;
        }
        entries
    }

    /// Forgets applied entries that need not be kept. If `held` is a slot and a number of bytes,
    /// entries from that slot on are kept up to that size.
    pub(super) fn forget(&mut self, held: Option<(u64, usize)>) {
        while self.first < self.applied {
            let kept = (self.applied - self.first) as usize;
            let few = kept <= self.kept_entries && self.applied_bytes <= KEPT_BYTES;
            let is_held =
                held.is_some_and(|(from, most)| self.first >= from && self.applied_bytes <= most);
            if few || is_held {
                return;
            }
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let size = self.slots.pop_front().flatten().map_or(0, |slot| slot.bytes);
        if self.first < self.applied {
            self.applied_bytes -= size;
        } else {
            self.open_bytes -= size;
        }
        self.first += 1;
    }

    /// Continues from a copied state, which contains everything that was chosen below `at`.
    pub(super) fn skip_to(&mut self, at: u64) {
        while self.first < at && !self.slots.is_empty() {
            self.forget_first();
        }
        self.first = self.first.max(at);
        self.applied = self.applied.max(at);
    }

    /// The entries that were not applied.
    pub(super) fn open(&self) -> impl Iterator<Item = (u64, &Slot<E>)> {
        (self.applied..self.end()).filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    /// The first position of the durable log with a record of an entry that was not applied, if
    /// there is one.
    pub(super) fn needs_log_from(&self) -> Option<u64> {
        self.open().next().map(|(_, slot)| slot.position)
    }
}

//! Disks in memory, which can be slow, full or damaged.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use serried_actor::{MemoryStore, Store};
use serried_node::{Batch, Disks, Opened, PartitionLog, Replay};

/// What the disk does when it panics.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Panics {
    Replaying,
    Writing,
    Storing,
}

/// The disk of one node.
#[derive(Default)]
pub(crate) struct Disk {
    state: Arc<(Mutex<State>, Condvar)>,
    /// Whether stores panic when they are asked. It is no part of the state, which is locked while a log is replayed.
    stores_panic: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    records: HashMap<(String, u16), Vec<Vec<u8>>>,
    /// Batches that the disk does not take in yet.
    held: bool,
    waiting: usize,
    full: bool,
    refused: usize,
    damaged: bool,
    /// Nothing may be written before all partitions were opened.
    waits: bool,
    /// How many batches were written before that, and how many at all.
    early: usize,
    written: usize,
    /// How often a node has opened all of its partitions.
    opened: usize,
    /// How often a node was done with it in good order.
    closed: usize,
    /// Where it panics.
    panics: Option<Panics>,
}

impl Disk {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (state, changed) = &*self.state;
        let result = change(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
        result
    }

    /// Holds writes up until [`Disk::release`].
    pub(crate) fn hold(&self) {
        self.change(|state| state.held = true);
    }

    pub(crate) fn release(&self) {
        self.change(|state| state.held = false);
    }

    /// How many writes wait.
    pub(crate) fn waiting(&self) -> usize {
        self.change(|state| state.waiting)
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.change(|state| state.full = full);
    }

    /// How many writes were refused because the disk was full.
    pub(crate) fn refused(&self) -> usize {
        self.change(|state| state.refused)
    }

    pub(crate) fn set_panics(&self, panics: Panics) {
        self.stores_panic.store(panics == Panics::Storing, Ordering::SeqCst);
        self.change(|state| state.panics = Some(panics));
    }

    /// How often a node has opened all of its partitions.
    pub(crate) fn opened(&self) -> usize {
        self.change(|state| state.opened)
    }

    /// How often a node was done with it in good order.
    pub(crate) fn closed(&self) -> usize {
        self.change(|state| state.closed)
    }

    /// From now on, nothing may be written before all partitions were opened.
    pub(crate) fn wait_for_all(&self) {
        self.change(|state| state.waits = true);
    }

    /// How many batches were written before all partitions were opened, and how many at all.
    pub(crate) fn written(&self) -> (usize, usize) {
        self.change(|state| (state.early, state.written))
    }

    pub(crate) fn damage(&self) {
        self.change(|state| state.damaged = true);
    }
}

impl Disks for Disk {
    fn open(&self, keyspace: &str, partition: u16) -> Result<Opened, String> {
        let (state, place) = (self.state.clone(), (keyspace.to_string(), partition));
        let panics = self.stores_panic.clone();
        let store = Box::new(KeptStore { panics, store: MemoryStore::default() });
        let log = Box::new(MemoryLog { state, place, appended: Vec::new() });
        Ok(Opened { log, store, rejoins: false })
    }

    fn waits_for_all(&self) -> bool {
        self.change(|state| state.waits)
    }

    fn opened(&self) -> Result<(), String> {
        self.change(|state| state.opened += 1);
        Ok(())
    }

    fn close(&self) -> Result<(), String> {
        self.change(|state| state.closed += 1);
        Ok(())
    }
}

struct KeptStore {
    panics: Arc<AtomicBool>,
    store: MemoryStore,
}

impl Store for KeptStore {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        assert!(!self.panics.load(Ordering::SeqCst), "panicked in the store");
        self.store.get(key)
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.store.put(key, value);
    }

    fn scan(&self, after: Option<&[u8]>, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        self.store.scan(after, bytes, each)
    }
}

struct MemoryLog {
    state: Arc<(Mutex<State>, Condvar)>,
    place: (String, u16),
    appended: Vec<Vec<u8>>,
}

impl PartitionLog for MemoryLog {
    fn replay(&mut self, each: &mut Replay<'_>) -> Result<u64, String> {
        let mut state = self.state.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(state.panics != Some(Panics::Replaying) || self.place.1 > 0, "panicked in reading");
        if state.damaged {
            return Err("log.0 is damaged at byte 7: restore it".to_string());
        }
        let records = state.records.entry(self.place.clone()).or_default();
        for (position, record) in records.iter().enumerate() {
            each(position as u64, record)?;
        }
        Ok(records.len() as u64)
    }

    fn append(&mut self, encode: &mut dyn FnMut(&mut Vec<u8>)) {
        let mut record = Vec::new();
        encode(&mut record);
        self.appended.push(record);
    }

    fn trim(&mut self, _: u64) {}

    fn take_batch(&mut self) -> Option<Box<dyn Batch>> {
        let records = std::mem::take(&mut self.appended);
        let (state, place) = (self.state.clone(), self.place.clone());
        let batch = MemoryBatch { state, place, records };
        (!batch.records.is_empty()).then(|| Box::new(batch) as Box<dyn Batch>)
    }
}

struct MemoryBatch {
    state: Arc<(Mutex<State>, Condvar)>,
    place: (String, u16),
    records: Vec<Vec<u8>>,
}

impl Batch for MemoryBatch {
    fn write(&mut self, _: bool) -> io::Result<()> {
        let (state, changed) = &*self.state;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(state.panics != Some(Panics::Writing), "panicked in writing");
        if state.full {
            state.refused += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.early += usize::from(state.opened == 0);
        state.written += 1;
        state.waiting += 1;
        let mut state = changed.wait_while(state, |state| state.held).unwrap();
        state.waiting -= 1;
        state.records.entry(self.place.clone()).or_default().append(&mut self.records);
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.records.iter().map(Vec::len).sum()
    }
}

//! A test bench for one concurrency control. Entries that a leader would propose are chosen
//! immediately, unless the test chooses them itself.

use std::sync::Arc;

use serried_actor::{ClockInterval, MemoryStore, Settings};
use serried_model::{Key, Modification, Modify, NodeId, Value, Version, Write};

use super::control::{Control, Desk, Event, Glance};
use super::horizon::Horizon;
use super::message::{AdmissionWindow, AsOf, Decision, Entry, Found, Led, Part, Shot};
use super::program::Program;
use super::stamp::{Stamp, Validity};
use super::table::Table;
use crate::Mutated;
use crate::frameworks::replicated_log::Ballot;

/// The control, and the table that it reads.
pub(crate) struct Bench<C> {
    pub(crate) control: C,
    table: Table,
    store: MemoryStore,
    slot: u64,
    /// The time that the control is given.
    pub(crate) clock: ClockInterval,
}

/// The transaction that begins at `us`.
pub(crate) fn txn(us: u64) -> Version {
    Version { timestamp_us: us, coordinator: NodeId(70_000) }
}

/// The pre-assigned timestamp of the transaction that begins at `us`.
pub(crate) fn stamp(us: u64) -> Stamp {
    Stamp::assigned(txn(us))
}

/// Shot `number` of the transaction that begins at `us`. Its writes store that time.
pub(crate) fn shot(us: u64, number: u16, reads: &[&str], writes: &[&str]) -> Shot {
    let value = Some(Value::from(us.to_string().as_str()));
    let write = |key: &&str| Write { key: Key::from(*key), value: value.clone() };
    Shot {
        txn: txn(us),
        age: None,
        number,
        reads: reads.iter().map(|key| Key::from(*key)).collect(),
        for_update: 0,
        writes: writes.iter().map(write).collect(),
        modifies: Vec::new(),
        participants: None,
    }
}

/// The last shot of the transaction that begins at `us`.
pub(crate) fn last(us: u64, reads: &[&str], writes: &[&str]) -> Shot {
    Shot { participants: Some(Arc::new([0])), ..shot(us, 9, reads, writes) }
}

/// The last shot of a transaction that appends the time at which it begins to keys.
pub(crate) fn appends(us: u64, keys: &[&str]) -> Shot {
    let modify = |key: &&str| Modify {
        key: Key::from(*key),
        modifications: vec![Modification::Append(Value::from(format!("{us}").as_str()))],
    };
    Shot { modifies: keys.iter().map(modify).collect(), ..last(us, &[], &[]) }
}

/// The events after the last shot of a transaction that waits for no other.
pub(crate) fn ready(us: u64) -> Vec<Event> {
    vec![Event::Executed(txn(us)), Event::Settled(txn(us))]
}

impl<C: Control> Bench<C> {
    pub(crate) fn new() -> Bench<C> {
        Bench {
            control: C::new(Mutated::NONE),
            table: Table::new(100, Horizon::of(C::KEEPS, &Settings::default())),
            store: MemoryStore::default(),
            slot: 0,
            clock: ClockInterval { earliest_us: 0, latest_us: 0 },
        }
    }

    /// That of a keyspace of procedures.
    pub(crate) fn running_calls() -> Bench<C> {
        let bench = Bench::new();
        Bench { table: bench.table.running_calls(true), ..bench }
    }

    /// Runs `act` on the control, and returns the events that it reports.
    fn with<T>(&mut self, act: impl FnOnce(&mut C, &mut Desk<'_>) -> T) -> (T, Vec<Event>) {
        let mut events = Vec::new();
        let mut desk = Desk::new(&mut self.table, &self.store, &mut events, self.clock);
        (act(&mut self.control, &mut desk), events)
    }

    pub(crate) fn execute(&mut self, shot: &Shot) -> Vec<Event> {
        self.with(|control, desk| control.execute(shot, desk)).1
    }

    pub(crate) fn run(&mut self, shot: &Shot, program: Arc<dyn Program>) -> Vec<Event> {
        self.with(|control, desk| control.run(shot, program, desk)).1
    }

    /// For each version that a transaction read, when its writer began. Zero is the initial
    /// version.
    pub(crate) fn found(&mut self, us: u64, keys: &[&str]) -> Option<Vec<u64>> {
        let keys: Vec<Key> = keys.iter().map(|key| Key::from(*key)).collect();
        let found = self.with(|control, desk| control.found(txn(us), &keys, desk)).0?;
        let time = |found: &Found| {
            let value = found.value.as_ref().map(|value| value.as_bytes().to_vec());
            value.map_or(0, |text| String::from_utf8(text).unwrap().parse().unwrap())
        };
        Some(found.iter().map(time).collect())
    }

    /// What a transaction's part writes to a key that it modifies.
    pub(crate) fn written(&mut self, us: u64, key: &str) -> String {
        let (_, items) = self.control.part(txn(us)).expect("the transaction was not refused");
        let item = items.into_iter().find(|item| item.key == Key::from(key)).expect("it is there");
        assert!(
            item.read.is_some(),
            "another leader has to know that the value follows from a read"
        );
        item.write.expect("it has written").value.expect("nothing was deleted").to_string()
    }

    /// The result of a read of `key` by a transaction without parts that begins at `us`.
    pub(crate) fn glance(&mut self, us: u64, key: &str) -> Glance {
        self.glance_as_of(AsOf::Time(txn(us)), key)
    }

    pub(crate) fn glance_as_of(&mut self, as_of: AsOf, key: &str) -> Glance {
        let key = Key::from(key);
        self.with(|control, desk| control.glance(&key, as_of, desk)).0
    }

    fn choose(&mut self, entry: &Entry) {
        let led = Led { by: Ballot::NONE, number: self.slot, entry: entry.clone() };
        self.table.apply((self.slot, self.slot), Some(&led), &mut self.store);
        self.slot += 1;
    }

    /// Prepares a transaction, and treats its part as chosen.
    pub(crate) fn prepare(&mut self, us: u64) -> Validity {
        let (validity, items) =
            self.control.part(txn(us)).expect("the transaction was not refused");
        let part = Part { txn: txn(us), participants: Arc::new([0]), validity, items };
        self.choose(&Entry::Prepare(Arc::new(part)));
        validity
    }

    /// Ends a prepared transaction, and treats its end as chosen.
    pub(crate) fn end(&mut self, us: u64, committed: Option<Stamp>) -> Vec<Event> {
        if !C::RELEASES_EARLY {
            self.choose_end(us, committed);
            return self.release(us, committed);
        }
        let events = self.release(us, committed);
        self.put_into_rows(us, committed);
        events
    }

    /// The end of a prepared transaction has its place in the log, or is in the rows.
    pub(crate) fn release(&mut self, us: u64, committed: Option<Stamp>) -> Vec<Event> {
        self.with(|control, desk| control.decided(txn(us), committed, desk)).1
    }

    /// The end of a transaction that was released is chosen.
    pub(crate) fn put_into_rows(&mut self, us: u64, committed: Option<Stamp>) {
        self.choose_end(us, committed);
        assert_eq!(self.with(|control, desk| control.is_in_rows(txn(us), desk)).1, []);
    }

    fn choose_end(&mut self, us: u64, committed: Option<Stamp>) {
        let keys = self.table.part(txn(us), &self.store).items.into_iter().map(|item| item.key);
        let decision = committed.map_or(Decision::Abort, Decision::Commit);
        let keys = keys.collect();
        self.choose(&Entry::Decide { txn: txn(us), decision, keys });
    }

    /// Moves a transaction's part to `to`. Returns `None` if that is impossible.
    pub(crate) fn reposition(&mut self, us: u64, to: Stamp) -> Option<Vec<Event>> {
        let (can, events) = self.with(|control, desk| control.reposition(txn(us), to, desk));
        can.then_some(events)
    }

    /// Discards a transaction that has no part.
    pub(crate) fn discard(&mut self, us: u64) -> Vec<Event> {
        self.with(|control, desk| control.discard(txn(us), desk)).1
    }

    /// Executes, prepares and commits a transaction at the earliest possible moment.
    pub(crate) fn commit(&mut self, us: u64, reads: &[&str], writes: &[&str]) -> Stamp {
        assert_eq!(self.execute(&last(us, reads, writes)), ready(us));
        let Validity { from, .. } = self.prepare(us);
        assert_eq!(self.end(us, Some(from)), []);
        from
    }

    /// Stops admitting unknown transactions that begin before `from_us`.
    pub(crate) fn close(&mut self, from_us: u64) {
        self.choose(&Entry::Window(AdmissionWindow { from_us, to_us: u64::MAX, forget_us: 0 }));
    }

    /// Replaces the leader. The new one has all chosen entries.
    pub(crate) fn fail_over(&mut self) -> Vec<Event> {
        self.control = C::new(Mutated::NONE);
        let prepared: Vec<Version> = self.table.prepared().iter().copied().collect();
        let part = |txn: &Version| self.table.part(*txn, &self.store);
        let parts: Vec<Part> = prepared.iter().map(part).collect();
        self.with(|control, desk| control.inherit(&parts, desk)).1
    }
}

//! The state machine of a replica: its keys, and the clients that wait for their writes.

use std::collections::VecDeque;

use serried_actor::{Context, Settings, Store, Timestamp};
use serried_model::{Key, Value, Versionstamp};
use serried_parts::{Cells, decode_cell_of_another};

use super::Mutation;
use super::cell::{Cell, Latest, Partition};
use super::message::{Answer, Entry, Message};
use super::replica::{Client, Replica};
use super::serving::Serving;
use super::stamp::Stamp;
use crate::Mutated;
use crate::frameworks::replicated_log::{Ballot, Chosen, Led, StateMachine};
use crate::frameworks::stamp_clock::ahead;
use crate::frameworks::stored_names::{name_of, name_of_partition};

/// What a key has after a write was applied.
struct Applied {
    /// The versionstamp of its latest version.
    stamp: Versionstamp,
    /// The place of that.
    place: Versionstamp,
    /// What the write has replaced; `None` if it was omitted.
    replaced: Option<Latest>,
}

/// The keys, and the clients that wait.
#[derive(Debug)]
pub(super) struct Machine<S: Stamp> {
    cells: Cells<Cell>,
    pub(super) partition: Partition,
    /// The partition has changed since it was last put among the cells. The record at this position is the first that
    /// is needed to replay that.
    changed_at: Option<u64>,
    /// The highest versionstamp of a write that was applied.
    written: Versionstamp,
    /// The ballot in which this replica leads.
    pub(super) ballot: Option<Ballot>,
    /// What it has in memory as a leader that serves. It serves once its first entry is applied, and so all entries of
    /// its predecessors.
    pub(super) serving: Option<Serving<S>>,
    /// The clients that wait for their writes, with the key, by slot, in the order of the slots.
    waiting: VecDeque<(u64, Client<S>)>,
    /// Requests that can be handled now.
    pub(super) released: VecDeque<Client<S>>,
    /// Requests that wait for a higher bound.
    above_bound: Vec<Client<S>>,
    /// What they want to read as of.
    wanted: Versionstamp,
    /// How many writes were omitted.
    pub(super) omitted: u64,
    settings: Settings,
    mutation: Mutated<Mutation>,
}

impl<S: Stamp> Machine<S> {
    /// A machine without keys.
    pub(super) fn new(settings: &Settings, mutation: Mutated<Mutation>) -> Machine<S> {
        Machine {
            cells: Cells::new(settings.resident_keys),
            partition: Partition::default(),
            changed_at: None,
            written: Versionstamp::ZERO,
            ballot: None,
            serving: None,
            waiting: VecDeque::new(),
            released: VecDeque::new(),
            above_bound: Vec::new(),
            wanted: Versionstamp::ZERO,
            omitted: 0,
            settings: *settings,
            mutation,
        }
    }

    /// Brings what is known of the partition into memory.
    pub(super) fn load(&mut self, store: &dyn Store) {
        if let Cell::Partition(partition) = self.cells.get(&name_of_partition(), store) {
            self.partition = *partition;
        }
    }

    pub(super) fn cells(&self) -> &Cells<Cell> {
        &self.cells
    }

    pub(super) fn cells_mut(&mut self) -> &mut Cells<Cell> {
        &mut self.cells
    }

    /// The latest version of a key, as far as the log is applied.
    pub(super) fn latest(&mut self, key: &Key, store: &dyn Store) -> &Latest {
        self.cells.get(&name_of(key), store).latest()
    }

    /// A client waits for a slot, which comes after those of the others.
    pub(super) fn wait(&mut self, slot: u64, client: Client<S>) {
        self.waiting.push_back((slot, client));
    }

    /// A request to read as of `at` waits for a higher bound.
    pub(super) fn wait_for_bound(&mut self, at: Versionstamp, client: Client<S>) {
        self.wanted = self.wanted.max(at);
        self.above_bound.push(client);
    }

    /// The bound is higher. Requests that have waited for that are handled, or wait again.
    fn release_above_bound(&mut self) {
        self.released.extend(self.above_bound.drain(..));
        self.wanted = Versionstamp::ZERO;
    }

    /// How many requests wait for a higher bound.
    pub(super) fn waits_for_bound(&self) -> usize {
        self.above_bound.len()
    }

    /// As of when requests want to read that wait for a higher bound. [`Versionstamp::ZERO`] if there are none.
    pub(super) fn wanted(&self) -> Versionstamp {
        self.wanted
    }

    /// This replica leads in another ballot, or does not lead. Returns the clients that wait.
    pub(super) fn lead(&mut self, ballot: Option<Ballot>) -> Vec<Client<S>> {
        self.ballot = ballot;
        let written: Vec<_> = self.waiting.drain(..).map(|(_, client)| client).collect();
        let mut clients: Vec<Client<S>> = self.released.drain(..).collect();
        if let Some(serving) = self.serving.take() {
            let keys = written.iter().filter_map(|client| client.request.key().cloned());
            clients.extend(serving.into_parked(keys));
        }
        clients.append(&mut self.above_bound);
        self.wanted = Versionstamp::ZERO;
        clients.extend(written);
        clients
    }

    /// What the version clock shows to clients.
    pub(super) fn shown(&self, cx: &Context<'_, Replica<S>>) -> S {
        let shown = self.serving.as_ref().map(|s| s.shown(self.partition.bound, cx.now()));
        S::of(shown.unwrap_or_default())
    }

    /// Puts what is known of the partition among the cells, if it has changed.
    pub(super) fn keep_partition(&mut self, store: &dyn Store) {
        if let Some(position) = self.changed_at.take() {
            let cell = self.cells.change(&name_of_partition(), position, store);
            *cell = Cell::Partition(self.partition);
        }
    }

    /// Applies a write, and places it if this replica serves.
    fn write(
        &mut self,
        slot: u64,
        position: u64,
        (key, value): (&Key, &Option<Value>),
        (requested, stamp): (Versionstamp, Versionstamp),
        now: Timestamp,
        store: &dyn Store,
    ) -> Applied {
        let (requested, stamp) = match S::VERSIONS {
            true => (requested, stamp),
            // What comes later in the log overwrites the rest.
            false => (Versionstamp(slot + 1), Versionstamp(slot + 1)),
        };
        let latest = self.cells.change(&name_of(key), position, store).latest_mut();
        if latest.omits(requested) {
            return Applied { stamp: latest.stamp, place: latest.place, replaced: None };
        }
        let bound = self.partition.bound;
        let serving = self.serving.as_mut().filter(|_| S::VERSIONS);
        let place = serving.map_or(stamp, |serving| serving.place(stamp, bound, now));
        let new = Latest { value: value.clone(), stamp, place };
        Applied { stamp, place, replaced: Some(core::mem::replace(latest, new)) }
    }
}

impl<S: Stamp> StateMachine<Replica<S>> for Machine<S> {
    fn apply(&mut self, chosen: Chosen<'_, Led<Entry<S>>>, cx: &mut Context<'_, Replica<S>>) {
        let Chosen { slot, position, entry, led_in } = chosen;
        let Some(led) = entry else { return };
        let is_new = self.partition.last.apply(slot, led);
        self.changed_at.get_or_insert(position);
        let is_own = led_in.is_some() && led_in == self.ballot && Some(led.by) == led_in;
        match &led.entry {
            Entry::Lead => {
                let before = self.partition.bound;
                if is_new {
                    self.partition.bound = before.after(ahead(&self.settings));
                }
                if is_own {
                    let (now, mutation) = (cx.now(), self.mutation);
                    let serving = Serving::new(before, self.written, now, &self.settings, mutation);
                    self.serving = Some(serving);
                }
            }
            Entry::Bound(bound) => {
                if is_new {
                    self.partition.bound = self.partition.bound.max(bound.stamp());
                }
                self.release_above_bound();
            }
            Entry::Write { key, value, requested, stamp } => {
                cx.charge(1);
                let (requested, stamp, now) = (requested.stamp(), stamp.stamp(), cx.now());
                if is_new && S::VERSIONS {
                    let bound = stamp.after(ahead(&self.settings));
                    self.partition.bound = self.partition.bound.max(bound);
                    self.written = self.written.max(stamp);
                    self.release_above_bound();
                }
                let stamps = (requested, stamp);
                let applied = self.write(slot, position, (key, value), stamps, now, cx.store());
                let Applied { stamp, place, replaced } = applied;
                let omitted = replaced.is_none();
                if S::VERSIONS {
                    self.omitted += u64::from(omitted);
                    if let Some(serving) = &mut self.serving {
                        self.released.extend(serving.applied(key, place, replaced, now));
                    }
                }
                let is_waited_for = self.waiting.front().is_some_and(|(first, _)| *first == slot);
                if is_waited_for && is_own {
                    let (_, client) = self.waiting.pop_front().expect("a client waits");
                    let stamp = S::of(stamp);
                    let (shown, omitted) = (self.shown(cx), omitted && S::VERSIONS);
                    let answer = Answer::Written { stamp, omitted, shown };
                    // It is durable, here and at a majority, so it does not wait for what was appended since.
                    let reply = Message::Reply { number: client.number, answer };
                    cx.send_before_durable(client.node, reply);
                }
            }
        }
    }

    fn revise(&self, first: u64, inherited: &mut [Option<Led<Entry<S>>>]) {
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
        match (&state, is_partition) {
            (Cell::Partition(partition), true) => {
                let own = self.partition;
                // What is the same here was perhaps replayed from records that are given up after the copy. So it is
                // stored, too.
                if own.last.is_after(partition.last) {
                    return true;
                }
                let bound = own.bound.max(partition.bound);
                self.partition = Partition { bound, ..*partition };
                self.changed_at = None;
                self.cells.put(name, Cell::Partition(self.partition), store);
            }
            (Cell::Key(latest), false) => {
                let own = self.cells.get(name, store).latest();
                if latest.stamp < own.stamp {
                    return true;
                }
                self.cells.put(name, state, store);
            }
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serried_actor::MemoryStore;
    use serried_parts::encode_cell;

    use super::*;
    use crate::frameworks::replicated_log::Last;

    fn machine() -> Machine<Versionstamp> {
        Machine::new(&Settings::default(), Mutated::NONE)
    }

    #[test]
    fn what_another_has_replaces_nothing_that_is_later() {
        let (mut machine, mut store, x) = (machine(), MemoryStore::default(), Key::from("x"));
        let of_key = |stamp| {
            let (stamp, place) = (Versionstamp(stamp), Versionstamp(stamp));
            encode_cell(&Cell::Key(Latest { value: None, stamp, place }))
        };
        for (shown, kept) in [(2, 2), (1, 2), (3, 3)] {
            assert!(machine.take_over(&x, &of_key(shown), &mut store));
            assert_eq!(machine.latest(&x, &store).stamp, Versionstamp(kept));
        }
        let name = name_of_partition();
        for (slot, bound, kept) in [(5, 50, 50), (3, 90, 50), (7, 40, 50)] {
            let mut last = Last::default();
            let by = Ballot { round: 1, member: 0 };
            last.apply(slot, &Led { by, number: 0, entry: () });
            let partition = Partition { last, bound: Versionstamp(bound) };
            let cell = encode_cell(&Cell::Partition(partition));
            assert!(machine.take_over(&name, &cell, &mut store));
            assert_eq!(machine.partition.bound, Versionstamp(kept));
        }
        // What it has replayed is stored, too, if the other has the same: the records may be given up after that.
        machine.partition.bound = Versionstamp(70);
        let cell = encode_cell(&Cell::Partition(machine.partition));
        assert!(machine.take_over(&name, &cell, &mut store));
        assert!(!machine.take_over(&name, &of_key(1), &mut store));
        let mut fresh = self::machine();
        fresh.load(&store);
        assert_eq!(fresh.partition, machine.partition);
    }

    #[test]
    fn a_key_that_is_the_same_at_another_replica_is_stored_too() {
        let (mut machine, mut store, x) = (machine(), MemoryStore::default(), Key::from("x"));
        let latest = Latest { value: None, stamp: Versionstamp(3), place: Versionstamp(3) };
        *machine.cells.change(&name_of(&x), 0, &store).latest_mut() = latest.clone();
        assert!(machine.take_over(&x, &encode_cell(&Cell::Key(latest)), &mut store));
        let mut fresh = self::machine();
        assert_eq!(fresh.latest(&x, &store).stamp, Versionstamp(3));
    }
}

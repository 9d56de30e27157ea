//! Taking over the state of another, key by key, where it keeps less of the log than a replica lacks.

use core::time::Duration;

use serried_actor::{Context, Timestamp};
use serried_model::{Key, NodeId, Value};

use super::log::{Host, Log, Machine, Role};
use super::message::{Entry, Message, Record, Timer};

/// How many bytes a reply to a scan holds, about.
const SCANNED_AT_ONCE: usize = 256 << 10;
/// How long to wait for the reply to a scan.
const SCAN_AGAIN: Duration = Duration::from_millis(300);
/// How often a scan is asked for before its source is given up.
const ASKED_AT_MOST: u32 = 4;
/// For how long what somebody will need who scans is kept after the last request, and how much of it.
const HELD: Duration = Duration::from_secs(10);
const HELD_BYTES: usize = 64 << 20;

/// How far a replica has got in taking over the state of another.
#[derive(Debug)]
pub(super) struct Restore {
    source: NodeId,
    /// The source's incarnation, and the slot up to which its state is, once it has begun.
    begun: Option<(u64, u64)>,
    after: Option<Key>,
    asked: u32,
    /// How many keys it has been shown.
    pub(super) keys: u64,
}

/// Somebody takes over the state, and will need the entries from where it begins.
#[derive(Debug)]
pub(super) struct Hold {
    at: u64,
    asked: Timestamp,
}

impl Hold {
    /// From where on entries are kept, and how many bytes at most.
    pub(super) fn at_least(&self, now: Timestamp) -> Option<(u64, usize)> {
        (now.since(self.asked) < HELD).then_some((self.at, HELD_BYTES))
    }
}

impl<E: Entry> Log<E> {
    pub(super) fn restore_from<H: Host<Entry = E>>(
        &mut self,
        source: NodeId,
        cx: &mut Context<'_, H>,
    ) {
        self.restore = Some(Restore { source, begun: None, after: None, asked: 0, keys: 0 });
        self.scan(cx);
    }

    fn scan<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        let Some(restore) = &mut self.restore else { return };
        restore.asked += 1;
        let (source, after) = (restore.source, restore.after.clone());
        self.send(source, Message::Scan { after }, cx);
        cx.set_timer(H::timer(Timer::Restore), SCAN_AGAIN + 2 * self.group.round_trip());
    }

    /// Asks again.
    pub(super) fn restore_on<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        self.ask_for_standing(cx);
        if self.restore.as_ref().is_some_and(|restore| restore.asked >= ASKED_AT_MOST) {
            // Whoever leads says so if the state is still needed.
            self.restore = None;
        }
        self.scan(cx);
    }

    pub(super) fn on_scan<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        after: Option<Key>,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if self.is_behind() {
            return;
        }
        let applied = self.slots.applied();
        let held = self.hold.as_ref().and_then(|hold| hold.at_least(cx.now()));
        let at = held.map_or(applied, |(at, _)| at);
        self.hold = Some(Hold { at, asked: cx.now() });
        if after.is_none() {
            // What is shown is what lies in the store.
            machine.store_all(cx.store());
        }
        let mut entries = Vec::new();
        let start = after.as_ref().map(Key::as_bytes);
        let more = cx.store().scan(start, SCANNED_AT_ONCE, &mut |key, state| {
            entries.push((Key::from(key), Value::from(state)));
        });
        cx.charge(entries.len());
        let incarnation = self.incarnation;
        self.send(from, Message::Scanned { after, incarnation, at: applied, entries, more }, cx);
    }

    pub(super) fn on_scanned<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        after: Option<Key>,
        (incarnation, at, entries, more): (u64, u64, Vec<(Key, Value)>, bool),
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let Some(restore) = &mut self.restore else { return };
        if restore.source != from || restore.after != after {
            return; // Repeated.
        }
        match restore.begun {
            None => restore.begun = Some((incarnation, at)),
            Some((begun, _)) if begun == incarnation => {}
            // After its restart the source may lack what it has shown before.
            Some(_) => return self.restore_from(from, cx),
        }
        restore.keys += entries.len() as u64;
        cx.charge(entries.len());
        // A state that is empty was removed.
        for (key, state) in entries.iter().filter(|(_, state)| !state.is_empty()) {
            if key.as_bytes().is_empty() {
                return; // No key is empty.
            }
            if !machine.take_over(key, state.as_bytes(), cx.store()) {
                return; // The page is damaged. It is asked for again.
            }
        }
        restore.asked = 0;
        if more && let Some((last, _)) = entries.last() {
            restore.after = Some(last.clone());
            return self.scan(cx);
        }
        let (_, at) = restore.begun.expect("it has begun");
        self.restore = None;
        cx.cancel_timer(H::timer(Timer::Restore));
        if at > self.slots.applied() {
            self.slots.skip_to(at);
            self.told = self.told.max(at);
            cx.append(H::record(Record::TakenOver(at)));
            self.match_on();
            self.apply(machine, cx);
        }
        if let (Role::Follower, Some(leader)) = (&self.role, self.leader(cx.now())) {
            self.tell_what_it_has(leader, cx);
        }
    }
}

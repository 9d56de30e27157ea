//! Copying another replica's state, key by key, if that replica does not keep all entries that this
//! one lacks.

use core::time::Duration;

use serried_actor::{Context, Timestamp};
use serried_model::{Key, NodeId, Value};

use super::host::{Host, StateMachine};
use super::members::Members;
use super::message::{Message, Timer};
use super::slots::KEPT_BYTES;

/// The approximate size of a reply to a scan, in bytes.
const SCANNED_AT_ONCE: usize = 256 << 10;
/// How long to wait for the reply to a scan, plus round trips.
const SCAN_AGAIN: Duration = Duration::from_millis(300);
/// How often a scan is repeated before its source is given up.
const ASKED_AT_MOST: u32 = 4;
/// How long entries are kept for a replica that scans, after its last request.
const HELD: Duration = Duration::from_secs(10);
/// How many bytes of entries are kept for it.
const HELD_BYTES: usize = 64 << 20;

const _: () = assert!(
    HELD.as_millis() > SCAN_AGAIN.as_millis() * ASKED_AT_MOST as u128,
    "entries are kept for as long as a replica goes on asking for a page"
);
const _: () = assert!(
    HELD_BYTES >= KEPT_BYTES,
    "more entries are kept while a replica copies the state, not fewer"
);

/// The progress of a replica that copies another one's state.
#[derive(Debug)]
pub(super) struct Restore {
    source: NodeId,
    /// The source's run and the slot of its state, once the first page has arrived.
    begun: Option<(u64, u64)>,
    /// The last key that was copied.
    after: Option<Key>,
    asked: u32,
    /// How many keys the pages contained.
    keys: u64,
}

/// A page of another replica's state.
pub(super) struct Page {
    /// The key after which it begins.
    pub(super) after: Option<Key>,
    /// Identifies the source's run.
    pub(super) incarnation: u64,
    /// The state contains everything that was chosen below this slot.
    pub(super) at: u64,
    pub(super) entries: Vec<(Key, Value)>,
    /// Whether more pages follow.
    pub(super) more: bool,
}

/// The result of a page.
pub(super) enum Progress {
    /// The page is repeated or damaged. Nothing is to be done.
    None,
    /// The source has restarted, and may lack state that it reported before. The copy has to begin
    /// again.
    Restarted,
    /// The next page is to be requested.
    More,
    /// The state is complete. It contains everything that was chosen below this slot.
    Complete(u64),
}

impl Restore {
    /// Begins to copy the state of `source`.
    pub(super) fn begin<H: Host>(
        source: NodeId,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) -> Restore {
        let mut restore = Restore { source, begun: None, after: None, asked: 0, keys: 0 };
        restore.ask(members, cx);
        restore
    }

    /// How many keys the pages contained.
    pub(super) fn keys(&self) -> u64 {
        self.keys
    }

    /// Whether to give up the source, because it was asked often enough.
    pub(super) fn is_given_up(&self) -> bool {
        self.asked >= ASKED_AT_MOST
    }

    /// Requests the next page.
    pub(super) fn ask<H: Host>(&mut self, members: &Members, cx: &mut Context<'_, H>) {
        self.asked += 1;
        let after = self.after.clone();
        cx.send(self.source, H::message(Message::Scan { after }));
        cx.set_timer(H::timer(Timer::Restore), SCAN_AGAIN + 2 * members.group.round_trip());
    }

    /// Copies a page.
    pub(super) fn on_page<H: Host>(
        &mut self,
        from: NodeId,
        page: Page,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) -> Progress {
        let Page { after, incarnation, at, entries, more } = page;
        if self.source != from || self.after != after {
            return Progress::None; // Repeated.
        }
        let (begun, at) = *self.begun.get_or_insert((incarnation, at));
        if begun != incarnation {
            return Progress::Restarted;
        }
        self.keys += entries.len() as u64;
        cx.charge(entries.len());
        // An empty state stands for a removed one.
        for (key, state) in entries.iter().filter(|(_, state)| !state.is_empty()) {
            if key.as_bytes().is_empty() {
                return Progress::None; // No key is empty.
            }
            if !machine.take_over(key, state.as_bytes(), cx.store()) {
                return Progress::None; // The page is damaged. It is asked for again.
            }
        }
        self.asked = 0;
        match entries.into_iter().next_back() {
            Some((last, _)) if more => {
                self.after = Some(last);
                Progress::More
            }
            _ => Progress::Complete(at),
        }
    }
}

/// Sends the next page to a replica that copies the state. This replica has applied everything
/// below `applied`.
pub(super) fn show<H: Host>(
    to: NodeId,
    after: Option<Key>,
    (incarnation, applied): (u64, u64),
    machine: &mut impl StateMachine<H>,
    cx: &mut Context<'_, H>,
) {
    if after.is_none() {
        // The pages are read from the store.
        machine.store_all(cx.store());
    }
    let mut entries = Vec::new();
    let start = after.as_ref().map(Key::as_bytes);
    let more = cx.store().scan(start, SCANNED_AT_ONCE, &mut |key, state| {
        entries.push((Key::from(key), Value::from(state)));
    });
    cx.charge(entries.len());
    let page = Message::Scanned { after, incarnation, at: applied, entries, more };
    cx.send(to, H::message(page));
}

/// Keeps entries for a replica that copies the state and will need the entries after it.
#[derive(Debug, Default)]
pub(super) struct Hold(Option<(u64, Timestamp)>);

impl Hold {
    /// The first slot of the kept entries, and the limit of their size in bytes.
    pub(super) fn held(&self, now: Timestamp) -> Option<(u64, usize)> {
        let (at, asked) = self.0?;
        (now.since(asked) < HELD).then_some((at, HELD_BYTES))
    }

    /// Handles the request for a page. If it is the first for long, entries are kept from slot
    /// `applied` on.
    pub(super) fn extend(&mut self, applied: u64, now: Timestamp) {
        let at = self.held(now).map_or(applied, |(at, _)| at);
        self.0 = Some((at, now));
    }
}

//! A leader: it proposes entries and keeps its followers up to date (phase 2a).

use core::time::Duration;

use serried_actor::{Context, NodeSet, Timestamp};
use serried_model::NodeId;

use super::acceptor::{Acceptor, OPEN_BYTES, OPEN_ENTRIES};
use super::follower::{Follower, Reached};
use super::hand_over::{self, HandOver};
use super::host::Host;
use super::members::Members;
use super::message::{Entries, Entry, Message, Timer};
use super::slots::size;

/// How many bytes are sent at once to a follower that lacks entries.
const SENT_AT_ONCE: usize = 256 << 10;
/// How many entries a follower may lack that a thrifty leader spares, before it gets more.
pub(super) const SPARED_ENTRIES: u64 = 1024;
/// How long the leader waits before it repeats a message to a follower, plus round trips.
const REPEAT_AFTER: Duration = Duration::from_millis(20);

const _: () = assert!(
    SPARED_ENTRIES < OPEN_ENTRIES,
    "a spared follower is sent entries before the leader runs out of room"
);

/// The state of a leader, in memory.
#[derive(Debug)]
pub(super) struct Leader<E> {
    /// Every entry that may have been chosen in a lower ballot is below this slot.
    base: u64,
    /// The entries to propose next, and their size.
    queue: Vec<Option<E>>,
    queued_bytes: usize,
    /// How many entries it has proposed that are not empty.
    proposed: u64,
    /// By member, including itself.
    followers: Vec<Follower>,
    /// How many beats it has sent.
    beats: u64,
    last_beat: Option<Timestamp>,
    /// Whether anything may be unanswered, so that the leader checks its followers often.
    busy: bool,
    /// The hand-over under way. The leader proposes nothing meanwhile.
    hand_over: Option<HandOver>,
}

impl<E: Entry> Leader<E> {
    /// Creates a leader whose own entries begin at slot `base`. For each member, `applied` is the
    /// slot below which it has applied all entries, if that is known.
    pub(super) fn new(base: u64, applied: &[Option<u64>], now: Timestamp) -> Leader<E> {
        let followers = applied.iter().map(|applied| Follower::new(*applied, now)).collect();
        let (queue, queued_bytes, proposed) = (Vec::new(), 0, 0);
        let (beats, last_beat, busy, hand_over) = (0, None, false, None);
        Leader { base, queue, queued_bytes, proposed, followers, beats, last_beat, busy, hand_over }
    }

    /// How many entries it has proposed that are not empty.
    pub(super) fn proposed(&self) -> u64 {
        self.proposed
    }

    /// Whether any entry waits to be proposed.
    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Queues an entry, and returns the slot in which it will be proposed. Returns `None` if the
    /// leader hands over or has no room.
    pub(super) fn propose<H: Host<Entry = E>>(
        &mut self,
        entry: Option<E>,
        acceptor: &Acceptor<E>,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) -> Option<u64> {
        if self.hand_over.is_some() {
            return None;
        }
        let slots = acceptor.slots();
        let slot = slots.end() + self.queue.len() as u64;
        let bytes = size(entry.as_ref());
        let open = slots.open_bytes() + self.queued_bytes;
        if slot >= slots.applied() + OPEN_ENTRIES || (open > 0 && open + bytes > OPEN_BYTES) {
            return None;
        }
        // Other entries of the same turn go into the same message.
        if self.queue.is_empty() && !members.is_alone() {
            cx.set_timer(H::timer(Timer::Flush), Duration::ZERO);
        }
        self.proposed += u64::from(entry.is_some());
        self.queue.push(entry);
        self.queued_bytes += bytes;
        Some(slot)
    }

    /// A slot that is proposed from now on: that of the last queued entry, or of an empty one.
    /// Returns `None` if there is no room.
    pub(super) fn confirm<H: Host<Entry = E>>(
        &mut self,
        acceptor: &Acceptor<E>,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) -> Option<u64> {
        match self.queue.len() as u64 {
            0 => self.propose(None, acceptor, members, cx),
            queued => Some(acceptor.slots().end() + queued - 1),
        }
    }

    /// Proposes the queued entries. Returns false if there are none.
    pub(super) fn flush<H: Host<Entry = E>>(
        &mut self,
        acceptor: &mut Acceptor<E>,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        let entries: Entries<E> = self.queue.drain(..).collect();
        self.queued_bytes = 0;
        let first = acceptor.slots().end();
        acceptor.accept_own(first, &entries, cx);
        let to = self.current(first, members);
        let end = acceptor.slots().end();
        to.members().for_each(|member| self.followers[member].sent = end);
        let was_busy = core::mem::replace(&mut self.busy, true);
        let (ballot, chosen) = (acceptor.promised(), acceptor.chosen());
        members.send(to, Message::Accept { ballot, first, chosen, entries }, cx);
        if !was_busy {
            cx.set_timer(H::timer(Timer::Lead), repeat_after(members));
        }
        true
    }

    /// The followers that get new entries from slot `first` on as they are proposed.
    fn current(&self, first: u64, members: &Members) -> NodeSet {
        let is_current = |node: &NodeId| self.followers[node.member()].sent == first;
        let others = members.others_by_distance();
        if members.thrifty {
            let few: Vec<NodeId> = others.clone().take(members.group.faults()).collect();
            let quick = |node: &NodeId| !self.followers[node.member()].slow && is_current(node);
            if few.iter().all(quick) {
                return few.into_iter().collect();
            }
        }
        others.filter(is_current).collect()
    }

    /// Handles a follower's report of what it has accepted. Returns false if the report is ignored,
    /// because it may be from an earlier run.
    pub(super) fn on_accepted(&mut self, from: usize, reached: Reached, now: Timestamp) -> bool {
        self.followers[from].answered(reached, self.beats, now)
    }

    /// The first slot that no quorum has accepted. This replica itself has accepted everything
    /// below `matched`.
    pub(super) fn chosen(&mut self, matched: u64, members: &Members) -> u64 {
        self.followers[members.own()].matched = matched;
        let mut matched: smallvec::SmallVec<[u64; 8]> =
            self.followers.iter().map(|follower| follower.matched).collect();
        matched.sort_unstable_by(|one, other| other.cmp(one));
        matched[members.quorum - 1]
    }

    /// Sends the next entries to a follower that has answered, unless it is spared and lacks only a
    /// few.
    pub(super) fn feed_after_answer<H: Host<Entry = E>>(
        &mut self,
        member: usize,
        acceptor: &Acceptor<E>,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) {
        // Followers that a thrifty leader spares get their entries with the beats.
        let lags = self.followers[member].sent + SPARED_ENTRIES < acceptor.slots().end();
        if !members.thrifty || lags {
            self.feed(member, acceptor, members, cx);
        }
    }

    /// Sends a follower the next entries that were not sent to it.
    pub(super) fn feed<H: Host<Entry = E>>(
        &mut self,
        member: usize,
        acceptor: &Acceptor<E>,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) {
        let slots = acceptor.slots();
        let follower = &mut self.followers[member];
        let first = follower.sent;
        if first < slots.first() || first >= slots.end() || member == members.own() {
            return;
        }
        let entries: Entries<E> = slots.read(first, SENT_AT_ONCE).into();
        follower.sent += entries.len() as u64;
        let (ballot, chosen) = (acceptor.promised(), acceptor.chosen());
        let accept = Message::Accept { ballot, first, chosen, entries };
        cx.send(members.node(member), H::message(accept));
        if !core::mem::replace(&mut self.busy, true) {
            cx.set_timer(H::timer(Timer::Lead), repeat_after(members));
        }
    }

    /// Repeats entries that followers should have accepted by now, and sends beats. Returns false,
    /// and does nothing, if this leader has not received answers from a majority for long: another
    /// leader may reach more replicas.
    pub(super) fn look_after_followers<H: Host<Entry = E>>(
        &mut self,
        acceptor: &Acceptor<E>,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) -> bool {
        let (now, end) = (cx.now(), acceptor.slots().end());
        let (beat, patience) = (members.beat(), members.patience());
        let own = members.own();
        let is_there = |(member, follower): (usize, &Follower)| {
            member == own || now.since(follower.heard) < 2 * patience
        };
        let there = self.followers.iter().enumerate().filter(|each| is_there(*each)).count();
        if there < members.group.majority() {
            return false;
        }
        let beats = self.last_beat.is_none_or(|last| now.since(last) >= beat);
        let mut again = Vec::new();
        self.busy = false;
        for (member, follower) in self.followers.iter_mut().enumerate() {
            if member == own {
                continue;
            }
            let waits = follower.matched < follower.sent;
            let moved = core::mem::replace(&mut follower.matched_before, follower.matched);
            if waits && moved == follower.matched {
                follower.sent = follower.matched;
                // A follower that does not answer only gets beats.
                if !core::mem::replace(&mut follower.slow, true) {
                    again.push(member);
                }
            } else if !follower.slow && follower.sent < end && beats {
                again.push(member);
            }
            self.busy |= !follower.slow && follower.matched < follower.sent;
        }
        let open = acceptor.chosen() < end;
        self.busy |= open;
        if beats {
            self.last_beat = Some(now);
            self.beats += 1;
            for member in members.others().members() {
                self.send_beat(member, acceptor, members, cx);
            }
        }
        for member in again {
            self.feed(member, acceptor, members, cx);
        }
        if open && self.followers.iter().any(|follower| follower.slow) {
            self.feed_spared(acceptor, members, cx);
        }
        let after = if self.busy { repeat_after(members).min(beat) } else { beat };
        cx.set_timer(H::timer(Timer::Lead), after);
        true
    }

    /// Sends entries to spared followers. They are needed when a follower is slow while entries
    /// wait to be chosen.
    fn feed_spared<H: Host<Entry = E>>(
        &mut self,
        acceptor: &Acceptor<E>,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) {
        for member in members.others().members() {
            if !self.followers[member].slow {
                self.feed(member, acceptor, members, cx);
            }
        }
    }

    pub(super) fn send_beat<H: Host<Entry = E>>(
        &self,
        member: usize,
        acceptor: &Acceptor<E>,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) {
        let follower = &self.followers[member];
        let known = !follower.slow || follower.matched > 0;
        let behind = known && follower.matched < acceptor.slots().first();
        let (ballot, number, base) = (acceptor.promised(), self.beats, self.base);
        let beat = Message::Beat { ballot, number, chosen: acceptor.chosen(), base, behind };
        cx.send(members.node(member), H::message(beat));
    }

    /// Begins a hand-over if there is a reason, continues one, or gives it up if it takes too long.
    /// A reason is that the node stops, or that another member is preferred.
    pub(super) fn look_after_hand_over<H: Host<Entry = E>>(
        &mut self,
        stops: bool,
        acceptor: &Acceptor<E>,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) {
        let now = cx.now();
        let mut tried = NodeSet::EMPTY;
        if let Some(begun) = &self.hand_over {
            if !begun.is_overdue(now, members) {
                return self.continue_hand_over(acceptor, members, cx);
            }
            tried = begun.tried();
            self.followers[begun.to()].well_since = now;
            self.hand_over = None;
        }
        let to = match stops {
            true => hand_over::best_but(tried, &self.followers, members),
            false => {
                let end = acceptor.slots().end();
                hand_over::preferred_if_well(&self.followers, end, members, now)
            }
        };
        let Some(to) = to else { return };
        self.hand_over = Some(HandOver::begin(members.node(to), tried, now));
        self.continue_hand_over(acceptor, members, cx);
    }

    /// Asks the successor to lead once it has accepted everything that this leader has proposed.
    pub(super) fn continue_hand_over<H: Host<Entry = E>>(
        &mut self,
        acceptor: &Acceptor<E>,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) {
        let Some(to) = self.hand_over.as_ref().map(HandOver::to) else { return };
        if self.has_queued() {
            return; // Queued entries are proposed first.
        }
        if self.followers[to].matched < acceptor.slots().end() {
            return self.feed(to, acceptor, members, cx);
        }
        let ballot = acceptor.promised();
        cx.send(members.node(to), H::message(Message::HandOver { ballot }));
    }
}

/// How long a follower may take to answer before a message is repeated.
fn repeat_after(members: &Members) -> Duration {
    2 * members.group.round_trip() + REPEAT_AFTER
}

//! What the leader does.

use serried_actor::{Context, NodeSet, Timestamp};
use serried_model::NodeId;

use super::follower::{Follower, Reached};
use super::hand_over::HandOver;
use super::log::{Host, Log, Machine, OPEN_BYTES, OPEN_ENTRIES, Role};
use super::message::{Ballot, Entry, Message, Record, Timer};
use super::slots::size;

/// How much a follower that lacks entries is sent at once, in bytes.
const SENT_AT_ONCE: usize = 256 << 10;

/// How many entries one that a thrifty leader spares may lack before it is sent more.
pub(super) const SPARED_ENTRIES: u64 = 1024;

/// A leader's view.
#[derive(Debug)]
pub(super) struct Leader<E> {
    /// All that can have been chosen in lower ballots is below.
    base: u64,
    /// What is to be proposed next, and its bytes.
    queue: Vec<Option<E>>,
    queued_bytes: usize,
    /// By member, itself included.
    pub(super) followers: Vec<Follower>,
    /// How many beats it has sent.
    beats: u64,
    last_beat: Option<Timestamp>,
    /// Somebody may be waiting, so that it looks often.
    busy: bool,
    /// Set while it hands over and proposes nothing.
    pub(super) hand_over: Option<HandOver>,
}

impl<E: Entry> Leader<E> {
    /// That of members that know what was chosen below these slots, those of which that is known.
    pub(super) fn new(base: u64, applied: &[Option<u64>], now: Timestamp) -> Leader<E> {
        let followers = applied.iter().map(|applied| Follower::new(*applied, now)).collect();
        let (queue, queued_bytes) = (Vec::new(), 0);
        let (beats, last_beat, busy, hand_over) = (0, None, false, None);
        Leader { base, queue, queued_bytes, followers, beats, last_beat, busy, hand_over }
    }

    /// Whether something waits to be proposed.
    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }
}

impl<E: Entry> Log<E> {
    /// Proposes an entry, or that nothing be done, in the slot that is returned. None unless this replica
    /// leads, means to go on, and has room.
    pub fn propose<H: Host<Entry = E>>(
        &mut self,
        entry: Option<E>,
        cx: &mut Context<'_, H>,
    ) -> Option<u64> {
        let Role::Leader(leader) = &mut self.role else { return None };
        if leader.hand_over.is_some() {
            return None;
        }
        let slot = self.slots.end() + leader.queue.len() as u64;
        let bytes = size(entry.as_ref());
        let open = self.slots.open_bytes() + leader.queued_bytes;
        if slot >= self.slots.applied() + OPEN_ENTRIES || (open > 0 && open + bytes > OPEN_BYTES) {
            return None;
        }
        // The others that come in the same turn go with it.
        if leader.queue.is_empty() && self.group.size() > 1 {
            cx.set_timer(H::timer(Timer::Flush), core::time::Duration::ZERO);
        }
        leader.queue.push(entry);
        leader.queued_bytes += bytes;
        Some(slot)
    }

    /// A slot that can't be chosen unless this replica leads from now until then: that of an entry which waits
    /// to be proposed, or of an empty one. None unless it leads and has room.
    pub fn confirm<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) -> Option<u64> {
        let Role::Leader(leader) = &self.role else { return None };
        match leader.queue.len() as u64 {
            0 => self.propose(None, cx),
            queued => Some(self.slots.end() + queued - 1),
        }
    }

    /// Whether something waits to be proposed.
    pub fn has_queued(&self) -> bool {
        matches!(&self.role, Role::Leader(leader) if leader.has_queued())
    }

    /// A replica that is alone has nobody to wait for: what it has proposed is chosen, and applied, now. It is to
    /// be called whenever it has proposed something, and does nothing in a group of several.
    pub fn choose_alone<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if self.is_alone() {
            self.flush(machine, cx);
        }
    }

    /// Proposes what has come together.
    pub(super) fn flush<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let Role::Leader(leader) = &mut self.role else { return };
        if leader.queue.is_empty() {
            return;
        }
        let entries: super::Entries<E> = leader.queue.drain(..).collect();
        leader.queued_bytes = 0;
        let (ballot, first) = (self.promised, self.slots.end());
        let position = cx.log_position();
        for (slot, entry) in (first..).zip(entries.iter()) {
            self.slots.accept(slot, ballot, position, entry.clone());
        }
        self.matched = self.slots.end();
        cx.append(H::record(Record::Accepted { ballot, first, entries: entries.clone() }));
        self.undurable.note(first, cx.log_position());
        let to = self.current(first);
        let end = self.slots.end();
        let Role::Leader(leader) = &mut self.role else { unreachable!("as before") };
        to.members().for_each(|member| leader.followers[member].sent = end);
        let was_busy = core::mem::replace(&mut leader.busy, true);
        let chosen = self.told;
        self.broadcast(to, Message::Accept { ballot, first, chosen, entries }, cx);
        if !was_busy {
            cx.set_timer(H::timer(Timer::Lead), self.repeat_after());
        }
        self.choose(machine, cx);
    }

    /// The followers that are sent entries from a slot on as they come.
    fn current(&self, first: u64) -> NodeSet {
        let Role::Leader(leader) = &self.role else { return NodeSet::EMPTY };
        let is_current = |node: &NodeId| leader.followers[node.member()].sent == first;
        let partition = self.id.partition();
        let nearest = (0..self.group.size()).map(|i| self.group.choice(partition, i));
        let others = nearest.filter(|node| *node != self.id);
        if self.thrifty {
            let few: Vec<NodeId> = others.clone().take(self.group.faults()).collect();
            let quick = |node: &NodeId| !leader.followers[node.member()].slow && is_current(node);
            if few.iter().all(quick) {
                return few.into_iter().collect();
            }
        }
        others.filter(is_current).collect()
    }

    /// How long a follower may take before it is sent something again.
    fn repeat_after(&self) -> core::time::Duration {
        2 * self.group.round_trip() + core::time::Duration::from_millis(20)
    }

    pub(super) fn on_accepted<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        standing: Reached,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let Role::Leader(leader) = &mut self.role else { return };
        if ballot != self.promised {
            return;
        }
        let follower = &mut leader.followers[from.member()];
        if !follower.answered(standing, leader.beats, cx.now()) {
            return; // The follower's present run will answer.
        }
        self.choose(machine, cx);
        let Role::Leader(leader) = &self.role else { return };
        // A thrifty leader tells those that it spares with the beats.
        let lags = leader.followers[from.member()].sent + SPARED_ENTRIES < self.slots.end();
        if !self.thrifty || lags {
            self.feed(from.member(), cx);
        }
        self.hand_over_on(cx);
    }

    /// Takes for chosen what a quorum has accepted.
    pub(super) fn choose<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let Role::Leader(leader) = &mut self.role else { return };
        leader.followers[self.id.member()].matched = self.matched;
        let mut matched: smallvec::SmallVec<[u64; 8]> =
            leader.followers.iter().map(|follower| follower.matched).collect();
        matched.sort_unstable_by(|one, other| other.cmp(one));
        let chosen = matched[self.quorum - 1];
        if chosen > self.told {
            self.told = chosen;
            self.apply(machine, cx);
        }
    }

    /// Sends a follower the next of the entries that it was not sent.
    pub(super) fn feed<H: Host<Entry = E>>(&mut self, member: usize, cx: &mut Context<'_, H>) {
        let to = self.node(member);
        let Role::Leader(leader) = &mut self.role else { return };
        let follower = &mut leader.followers[member];
        let first = follower.sent;
        if first < self.slots.first() || first >= self.slots.end() || member == self.id.member() {
            return;
        }
        let entries: super::Entries<E> = self.slots.read(first, SENT_AT_ONCE).into();
        follower.sent += entries.len() as u64;
        let (ballot, chosen) = (self.promised, self.told);
        self.send(to, Message::Accept { ballot, first, chosen, entries }, cx);
        self.busy_from_now_on(cx);
    }

    fn busy_from_now_on<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        let after = self.repeat_after();
        let Role::Leader(leader) = &mut self.role else { return };
        if !core::mem::replace(&mut leader.busy, true) {
            cx.set_timer(H::timer(Timer::Lead), after);
        }
    }

    /// Sends again what followers should have accepted by now, beats, and sees whether it still leads.
    pub(super) fn look_after_followers<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        let (now, end) = (cx.now(), self.slots.end());
        let (beat, patience) = (self.beat(), self.patience());
        let (id, majority) = (self.id.member(), self.group.majority());
        let Role::Leader(leader) = &mut self.role else { return };
        let is_there = |(member, follower): (usize, &Follower)| {
            member == id || now.since(follower.heard) < 2 * patience
        };
        let there = leader.followers.iter().enumerate().filter(|each| is_there(*each)).count();
        if there < majority {
            // Another may be needed that hears more.
            self.role = Role::Follower;
            self.heard = now;
            return self.wait_for_leader(cx);
        }
        let beats = leader.last_beat.is_none_or(|last| now.since(last) >= beat);
        let mut again = Vec::new();
        leader.busy = false;
        for (member, follower) in leader.followers.iter_mut().enumerate() {
            if member == id {
                continue;
            }
            let waits = follower.matched < follower.sent;
            let moved = core::mem::replace(&mut follower.matched_before, follower.matched);
            if waits && moved == follower.matched {
                follower.sent = follower.matched;
                // To one that does not answer no more is sent than beats.
                if !core::mem::replace(&mut follower.slow, true) {
                    again.push(member);
                }
            } else if !follower.slow && follower.sent < end && beats {
                again.push(member);
            }
            leader.busy |= !follower.slow && follower.matched < follower.sent;
        }
        let open = self.told < end;
        leader.busy |= open;
        if beats {
            leader.last_beat = Some(now);
            leader.beats += 1;
            for member in self.others().members() {
                self.send_beat(member, cx);
            }
        }
        for member in again {
            self.feed(member, cx);
        }
        if open {
            self.tell_all(cx);
        }
        let Role::Leader(leader) = &self.role else { return };
        let after = if leader.busy { self.repeat_after().min(beat) } else { beat };
        cx.set_timer(H::timer(Timer::Lead), after);
    }

    /// Something waits to be chosen: those that were spared are needed as well.
    fn tell_all<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        let Role::Leader(leader) = &self.role else { return };
        let slow = leader.followers.iter().any(|follower| follower.slow);
        let spared = |member: &usize| !leader.followers[*member].slow;
        let members: Vec<usize> = self.others().members().filter(spared).collect();
        if slow {
            members.into_iter().for_each(|member| self.feed(member, cx));
        }
    }

    pub(super) fn send_beat<H: Host<Entry = E>>(&self, member: usize, cx: &mut Context<'_, H>) {
        let Role::Leader(leader) = &self.role else { return };
        let follower = &leader.followers[member];
        let known = !follower.slow || follower.matched > 0;
        let behind = known && follower.matched < self.slots.first();
        let (ballot, number, base) = (self.promised, leader.beats, leader.base);
        let beat = Message::Beat { ballot, number, chosen: self.told, base, behind };
        self.send(self.node(member), beat, cx);
    }
}

//! The log of one replica: what it accepts, and what it hands to its machine.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use serried_actor::{Actor, Context, Group, NodeSet, Settings, Standing, Store, Timestamp};
use serried_model::{Key, NodeId};

use super::canvass::Canvass;
use super::elect::Candidate;
use super::follower::Reached;
use super::lead::Leader;
use super::lost::Lost;
use super::message::{Ballot, Entries, Entry, Message, Record, Timer};
use super::restore::{Hold, Restore};
use super::slots::Slots;
use super::undurable::Undurable;

/// How many entries a leader may have that are not chosen, and a follower accepts beyond what it has applied.
pub(super) const OPEN_ENTRIES: u64 = 8192;
/// How many bytes of them.
pub(super) const OPEN_BYTES: usize = 4 << 20;

/// An actor with a log of its own among what it has.
pub trait Host: Actor {
    /// What the log holds.
    type Entry: Entry;

    /// A message of the log as one of the actor's.
    fn message(message: Message<Self::Entry>) -> Self::Message;

    /// A record of the log as one of the actor's.
    fn record(record: Record<Self::Entry>) -> Self::Record;

    /// A timer of the log as one of the actor's.
    fn timer(timer: Timer) -> Self::Timer;
}

/// What is done with the entries.
pub trait Machine<H: Host> {
    /// An entry was chosen, and all before it are applied.
    fn apply(&mut self, chosen: Chosen<'_, H::Entry>, cx: &mut Context<'_, H>);

    /// This replica is about to lead, and to propose anew what was accepted from slot `first` on, which is where it has
    /// applied all. Of that the machine may take out what was first proposed in a lower ballot than something that comes
    /// earlier, there or among what was applied; nothing else. Who has proposed the later one had not found the other,
    /// so that was not chosen; nor can it have been chosen since, as a leader that finds both takes it out.
    fn revise(&self, _first: u64, _inherited: &mut [Option<H::Entry>]) {}

    /// Puts all that was applied into the store.
    fn store_all(&mut self, store: &mut dyn Store);

    /// The position in the durable log of the first record that is needed to replay what is not in the
    /// store; none if all is there.
    fn needs_log_from(&self) -> Option<u64>;

    /// Takes over a key's state from another replica's store, unless the machine's own is as of a later slot. The state must
    /// be in the store afterwards. Returns false if `state` is not a valid state.
    fn take_over(&mut self, key: &Key, state: &[u8], store: &mut dyn Store) -> bool;
}

/// An entry that was chosen.
#[derive(Debug)]
pub struct Chosen<'a, E> {
    /// Its slot.
    pub slot: u64,
    /// What is made of it can be replayed as long as the durable log is kept from this position.
    pub position: u64,
    /// The entry, if it does anything.
    pub entry: Option<&'a E>,
    /// The ballot in which this replica has proposed it, if it leads.
    pub led_in: Option<Ballot>,
}

/// One replica's part of a replicated log.
#[derive(Debug)]
pub struct Log<E> {
    pub(super) id: NodeId,
    pub(super) group: Group,
    pub(super) thrifty: bool,
    pub(super) election_timeout: Duration,
    /// How many have to have accepted an entry: a majority, but in a test that shows what comes of less.
    pub(super) quorum: usize,
    pub(super) promised: Ballot,
    /// The highest that it has heard of.
    pub(super) seen: Ballot,
    pub(super) slots: Slots<E>,
    /// Of the slots below, what was accepted was proposed in the promised ballot, or is chosen.
    pub(super) matched: u64,
    /// All below are chosen.
    pub(super) told: u64,
    /// What of it may not be durable here.
    pub(super) undurable: Undurable,
    /// The number of the last beat that it has received in the promised ballot.
    beat_heard: u64,
    pub(super) role: Role<E>,
    /// When a leader was last heard of, or somebody promised a ballot.
    pub(super) heard: Timestamp,
    /// Set while it does not know what its predecessor had promised and accepted.
    pub(super) lost: Option<Lost>,
    /// Set while it takes over a state.
    pub(super) restore: Option<Restore>,
    /// Whoever takes over its state.
    pub(super) hold: Option<Hold>,
    /// Tells this replica from what it was before a restart.
    pub(super) incarnation: u64,
    /// The last loss that each member has told of.
    pub(super) rejoined: BTreeMap<usize, u64>,
    /// The node is about to stop.
    pub(super) stops: bool,
    /// What was found in the durable log, by slot.
    replayed: BTreeMap<u64, (Ballot, Option<E>)>,
    /// Where the last mark is in the durable log.
    marked: u64,
}

#[derive(Debug)]
pub(super) enum Role<E> {
    Follower,
    /// Has not heard of a leader for long, and asks the others whether they have.
    Canvasser(Canvass),
    Candidate(Candidate<E>),
    Leader(Leader<E>),
}

impl<E: Entry> Log<E> {
    /// An empty log of the replica that is called `id`.
    pub fn new(id: NodeId, group: Group, settings: &Settings) -> Log<E> {
        Log {
            id,
            quorum: group.majority(),
            group,
            thrifty: settings.thrifty,
            election_timeout: settings.election_timeout(),
            promised: Ballot::NONE,
            seen: Ballot::NONE,
            slots: Slots::new(settings.resident_keys),
            matched: 0,
            told: 0,
            undurable: Undurable::default(),
            beat_heard: 0,
            role: Role::Follower,
            heard: Timestamp(0),
            lost: None,
            restore: None,
            hold: None,
            incarnation: 0,
            rejoined: BTreeMap::new(),
            stops: false,
            replayed: BTreeMap::new(),
            marked: 0,
        }
    }

    /// The same, but that it takes for chosen what so many have accepted: wrong unless that is a majority,
    /// and meant for tests that show that it would be noticed.
    #[must_use]
    pub fn with_quorum(self, quorum: usize) -> Log<E> {
        Log { quorum, ..self }
    }

    /// The ballot in which this replica leads, if it does.
    pub fn leads(&self) -> Option<Ballot> {
        matches!(self.role, Role::Leader(_)).then_some(self.promised)
    }

    /// The leader that this replica knows, if it has heard of it lately.
    pub fn leader(&self, now: Timestamp) -> Option<NodeId> {
        let member = usize::from(self.promised.member);
        let known = self.promised > Ballot::NONE && self.lost.is_none();
        match &self.role {
            Role::Leader(_) => Some(self.id),
            Role::Follower if known && member != self.id.member() && self.hears_leader(now) => {
                Some(self.node(member))
            }
            _ => None,
        }
    }

    /// How many slots are in memory.
    pub fn kept(&self) -> usize {
        self.slots.len()
    }

    /// What was chosen below this slot has been applied.
    pub fn applied(&self) -> u64 {
        self.slots.applied()
    }

    /// Whether it is the only replica.
    pub fn is_alone(&self) -> bool {
        self.group.size() == 1
    }

    /// How far it takes part.
    pub fn standing(&self) -> Standing {
        let keys = self.restore.as_ref().map_or(0, |restore| restore.keys);
        match (&self.lost, &self.restore) {
            (Some(_), _) => Standing::Rejoining { keys },
            (None, Some(_)) => Standing::CatchingUp { keys },
            (None, None) => Standing::Full,
        }
    }

    /// Whether it can't take full part at present: it has lost its disk, or takes over a state.
    pub fn is_behind(&self) -> bool {
        self.lost.is_some() || self.restore.is_some()
    }

    pub(super) fn node(&self, member: usize) -> NodeId {
        NodeId::replica(self.id.partition(), member)
    }

    /// All replicas but this one.
    pub(super) fn others(&self) -> NodeSet {
        self.group.all().without([self.id].into_iter().collect())
    }

    pub(super) fn send<H: Host<Entry = E>>(
        &self,
        to: NodeId,
        message: Message<E>,
        cx: &mut Context<'_, H>,
    ) {
        cx.send(to, H::message(message));
    }

    pub(super) fn broadcast<H: Host<Entry = E>>(
        &self,
        to: NodeSet,
        message: Message<E>,
        cx: &mut Context<'_, H>,
    ) {
        cx.broadcast(self.id.partition(), to, H::message(message));
    }

    /// The node has started, maybe again.
    pub fn on_start<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        self.incarnation = cx.draw();
        self.seen = self.promised;
        self.heard = cx.now();
        let mut chosen = core::mem::take(&mut self.replayed);
        let open = chosen.split_off(&self.told);
        // What of it is in the store already, the machine knows.
        for (slot, (_, entry)) in chosen {
            let position = cx.log_position();
            machine.apply(Chosen { slot, position, entry: entry.as_ref(), led_in: None }, cx);
        }
        machine.store_all(cx.store());
        self.slots.skip_to(self.told);
        // Where their records lie is not known; they are written once more.
        for (slot, (ballot, entry)) in open {
            self.slots.accept(slot, ballot, cx.log_position(), entry.clone());
            let entries = Arc::new([entry]);
            cx.append(H::record(Record::Accepted { ballot, first: slot, entries }));
            self.undurable.note(slot, cx.log_position());
        }
        self.match_on();
        if self.lost.is_some() {
            self.ask_for_standing(cx);
        }
        let is_first = self.id.member() == self.preferred();
        if self.promised == Ballot::NONE && is_first && self.lost.is_none() {
            self.campaign(machine, cx);
        } else {
            self.wait_for_leader(cx);
        }
    }

    /// A message of the log has arrived.
    pub fn on_message<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        message: Message<E>,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if !self.is_sound(from, &message) {
            return cx.reject(|| format!("{from} has sent a replica what no replica sends"));
        }
        if !self.is_of_use(&message) {
            return;
        }
        match message {
            Message::Rejoin { nonce } => self.on_rejoin(from, nonce, machine, cx),
            Message::Standing { nonce, promised } => self.on_standing(from, nonce, promised, cx),
            _ if self.lost.as_ref().is_some_and(Lost::is_asking) => {}
            Message::Accept { ballot, first, chosen, entries } => {
                self.on_accept(from, ballot, first, (chosen, entries), machine, cx);
            }
            Message::Beat { ballot, number, chosen, base, behind } => {
                self.on_beat(from, (ballot, number), chosen, (base, behind), machine, cx);
            }
            Message::Accepted { ballot, incarnation, beat, matched } => {
                let standing = Reached { incarnation, beat, matched };
                self.on_accepted(from, ballot, standing, machine, cx);
            }
            Message::Prepare { ballot, from: slot, after } => {
                self.on_prepare(from, (ballot, after), slot, cx);
            }
            Message::Promise { ballot, applied, accepted } => {
                self.on_promise(from, ballot, (applied, accepted), machine, cx);
            }
            Message::Behind { ballot } => self.on_behind(from, ballot, cx),
            Message::Refused { promised } => self.on_refused(promised, machine, cx),
            Message::Scan { after } => self.on_scan(from, after, machine, cx),
            Message::Scanned { after, incarnation, at, entries, more } => {
                let page = (incarnation, at, entries, more);
                self.on_scanned(from, after, page, machine, cx);
            }
            Message::Canvass { nonce } => self.on_canvass(from, nonce, cx),
            Message::Willing { nonce } => self.is_willing(from, nonce, machine, cx),
            Message::HandOver { ballot } => self.on_hand_over(ballot, machine, cx),
        }
    }

    /// What was appended is durable. The host calls it from its own `on_durable`.
    pub fn on_durable<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        self.apply(machine, cx);
    }

    /// A timer of the log is due.
    pub fn on_timer<H: Host<Entry = E>>(
        &mut self,
        timer: Timer,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        match timer {
            Timer::Flush => self.flush(machine, cx),
            Timer::Lead => {
                self.look_after_followers(cx);
                self.look_after_hand_over(cx);
            }
            Timer::Elect => self.look_for_leader(machine, cx),
            Timer::Restore => self.restore_on(cx),
        }
    }

    /// Takes back a record.
    pub fn replay(&mut self, record: Record<E>) {
        match record {
            Record::Accepted { ballot, first, entries } => {
                self.promised = self.promised.max(ballot);
                let entries = (first..).zip(entries.iter());
                self.replayed.extend(entries.map(|(slot, entry)| (slot, (ballot, entry.clone()))));
            }
            Record::Mark { promised, applied, lost } => {
                self.promised = self.promised.max(promised);
                self.told = self.told.max(applied);
                self.lost = lost.then(Lost::default);
            }
            Record::TakenOver(at) => {
                self.told = self.told.max(at);
                self.replayed = self.replayed.split_off(&at);
            }
        }
    }

    /// Gives up the records that are not needed, once more has come into the store.
    pub fn trim<H: Host<Entry = E>>(&mut self, machine: &impl Machine<H>, cx: &mut Context<'_, H>) {
        let position = cx.log_position();
        if position <= self.marked + 1 {
            return; // There is nothing but the last mark.
        }
        let needed = machine.needs_log_from().into_iter().chain(self.slots.needs_log_from());
        let keep = needed.fold(position, u64::min);
        self.mark(cx);
        cx.trim_log(keep);
    }

    pub(super) fn mark<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        self.marked = cx.log_position();
        let (promised, applied) = (self.promised, self.slots.applied());
        let lost = self.lost.is_some();
        cx.append(H::record(Record::Mark { promised, applied, lost }));
    }

    /// Promises a higher ballot, whose leader or candidate this replica is not unless it says so later. A mark has
    /// to follow: what it says is applied counts as accepted in the ballot, after a restart as well.
    pub(super) fn promise(&mut self, ballot: Ballot) {
        self.promised = ballot;
        self.seen = self.seen.max(ballot);
        self.role = Role::Follower;
        self.matched = self.slots.applied();
        self.beat_heard = 0;
    }

    /// A leader has been heard of: whether this replica follows it.
    fn follow<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        cx: &mut Context<'_, H>,
    ) -> bool {
        if ballot < self.promised {
            let promised = self.promised;
            self.send(from, Message::Refused { promised }, cx);
            return false;
        }
        if ballot > self.promised {
            self.promise(ballot);
            self.mark(cx);
            self.wait_for_leader(cx);
        }
        if matches!(self.role, Role::Canvasser(_)) {
            self.role = Role::Follower;
        }
        self.heard = cx.now();
        true
    }

    fn on_accept<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        first: u64,
        (chosen, entries): (u64, Entries<E>),
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if !self.follow(from, ballot, cx) {
            return;
        }
        self.accept(ballot, first, &entries, cx);
        self.told = self.told.max(chosen);
        self.tell_what_it_has(from, cx);
        self.apply(machine, cx);
    }

    /// Reports to the leader of the promised ballot which of its entries this replica has.
    pub(super) fn tell_what_it_has<H: Host<Entry = E>>(
        &self,
        leader: NodeId,
        cx: &mut Context<'_, H>,
    ) {
        let (ballot, incarnation) = (self.promised, self.incarnation);
        let (beat, matched) = (self.beat_heard, self.matched);
        self.send(leader, Message::Accepted { ballot, incarnation, beat, matched }, cx);
    }

    /// Accepts entries, but those that it has and those that are too far ahead.
    pub(super) fn accept<H: Host<Entry = E>>(
        &mut self,
        ballot: Ballot,
        first: u64,
        entries: &Entries<E>,
        cx: &mut Context<'_, H>,
    ) {
        let too_far = self.slots.applied() + 2 * OPEN_ENTRIES;
        let end = first + entries.len() as u64;
        let has = |slot: u64| self.slots.get(slot).is_some_and(|slot| slot.ballot == ballot);
        let is_new = |slot: u64| slot >= self.slots.applied() && !has(slot);
        let room = self.slots.open_bytes() < 4 * OPEN_BYTES || first == self.slots.applied();
        if end <= too_far && room && (first..end).any(is_new) {
            let position = cx.log_position();
            for (slot, entry) in (first..).zip(entries.iter()) {
                if slot >= self.slots.applied() {
                    self.slots.accept(slot, ballot, position, entry.clone());
                }
            }
            cx.append(H::record(Record::Accepted { ballot, first, entries: entries.clone() }));
            self.undurable.note(first, cx.log_position());
        }
        self.match_on();
    }

    /// Goes on with what was accepted without a gap.
    pub(super) fn match_on(&mut self) {
        self.matched = self.matched.max(self.slots.applied());
        let accepted = |slot| self.slots.get(slot).is_some_and(|s| s.ballot == self.promised);
        while accepted(self.matched) {
            self.matched += 1;
        }
    }

    fn on_beat<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        (ballot, number): (Ballot, u64),
        chosen: u64,
        (base, behind): (u64, bool),
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if !self.follow(from, ballot, cx) {
            return;
        }
        self.beat_heard = self.beat_heard.max(number);
        self.told = self.told.max(chosen);
        self.apply(machine, cx);
        if self.lost.is_some() && self.matched >= base {
            self.lost = None;
            self.mark(cx);
        }
        if behind && self.restore.is_none() {
            self.restore_from(from, cx);
        }
        self.tell_what_it_has(from, cx);
    }

    /// Hands to the machine what is known to be chosen, as far as it is durable here. The machine's store may be ahead of
    /// this log otherwise: a crash may keep what was put there and lose the entries. A replica that is alone would use their
    /// slots again.
    pub(super) fn apply<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let chosen = self.told.min(self.matched);
        let known = chosen.min(self.undurable.first(cx.durable_position()));
        if known < chosen {
            cx.await_durable();
        }
        if self.slots.applied() >= known {
            return;
        }
        let led_in = self.leads();
        while self.slots.applied() < known {
            let slot = self.slots.applied();
            let applied = self.slots.apply_next();
            let (position, entry) = (applied.position, applied.entry.as_ref());
            machine.apply(Chosen { slot, position, entry, led_in }, cx);
        }
        let hold = self.hold.as_ref().and_then(|hold| hold.at_least(cx.now()));
        self.slots.forget(hold);
    }
}

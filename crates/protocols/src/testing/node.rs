//! One participant with its disk and its timers.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut, Index, IndexMut};
use std::collections::{BTreeMap, VecDeque};

use serried_actor::{
    Actor, ClockInterval, Context, Durable, Effect, MemoryStore, NodeSet, Observation, Random,
    Recover, Store, Timestamp,
};
use serried_model::NodeId;

/// The client of this number.
pub(crate) fn client_id(number: u64) -> NodeId {
    NodeId(NodeId::FIRST_COORDINATOR + number)
}

/// The replicas of these numbers.
pub(crate) fn set(members: &[u64]) -> NodeSet {
    members.iter().map(|member| NodeId(*member)).collect()
}

/// How a test names a participant: by its id, or, if it is a replica of the first partition, by its number.
pub(crate) trait Slot {
    fn id(self) -> NodeId;
}

impl Slot for NodeId {
    fn id(self) -> NodeId {
        self
    }
}

impl Slot for &NodeId {
    fn id(self) -> NodeId {
        *self
    }
}

impl Slot for usize {
    fn id(self) -> NodeId {
        NodeId::replica(0, self)
    }
}

/// A store in memory that is behind, or ends with the run, if a test says so.
#[derive(Default)]
pub(crate) struct TestStore {
    entries: MemoryStore,
    pub(crate) is_behind: bool,
    pub(crate) ends_with_run: bool,
}

impl Store for TestStore {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.entries.get(key)
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.entries.put(key, value);
    }

    fn is_behind(&self) -> bool {
        self.is_behind
    }

    fn ends_with_run(&self) -> bool {
        self.ends_with_run
    }

    fn scan(&self, after: Option<&[u8]>, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        self.entries.scan(after, bytes, each)
    }
}

/// What a participant does not decide: the time, how fast its disk is, and random numbers.
pub(super) struct Moment<'a> {
    pub(super) now: Timestamp,
    pub(super) clock: ClockInterval,
    /// Whether records are durable within the event in which they are appended.
    pub(super) durable_at_once: bool,
    pub(super) random: &'a mut Random,
}

/// What one event has led to outside the participant.
pub(super) struct Turn<A: Actor, T> {
    /// What the test got from the actor.
    pub(super) value: T,
    /// What was sent, and whether it leaves before what was appended is durable.
    pub(super) sent: Vec<(NodeId, A::Message, bool)>,
    pub(super) outputs: Vec<A::Output>,
    pub(super) appended: Vec<A::Record>,
    pub(super) rejected: Option<String>,
    /// Whether the actor waits until everything is durable.
    pub(super) awaits_durable: bool,
}

/// An actor, its disk and its timers. Its fields and methods are the actor's as well.
pub(crate) struct Node<A: Actor> {
    pub(crate) actor: A,
    pub(crate) store: TestStore,
    /// The records that were not trimmed.
    pub(crate) records: VecDeque<A::Record>,
    /// The position of the first of `records`; none if the log was never trimmed.
    pub(crate) trimmed: Option<u64>,
    /// The records from this position on are not durable; none if the log is not held.
    pub(super) held_from: Option<u64>,
    pub(super) awaits_durable: bool,
    pub(crate) timers: BTreeMap<A::Timer, Timestamp>,
    /// How many messages the actor has rejected.
    pub(crate) rejected: u64,
    /// What it has observed; none if it is not watched.
    pub(crate) observed: Option<Vec<Observation>>,
}

impl<A: Actor> Node<A> {
    pub(super) fn new(actor: A) -> Node<A> {
        Node {
            actor,
            store: TestStore::default(),
            records: VecDeque::new(),
            trimmed: None,
            held_from: None,
            awaits_durable: false,
            timers: BTreeMap::new(),
            rejected: 0,
            observed: None,
        }
    }

    fn first_position(&self) -> u64 {
        self.trimmed.unwrap_or(0)
    }

    /// The position of the next record.
    pub(crate) fn log_position(&self) -> u64 {
        self.first_position() + self.records.len() as u64
    }

    /// Runs `act`, and does what it asks for as far as that concerns nobody else.
    pub(super) fn turn<T>(
        &mut self,
        id: NodeId,
        moment: Moment<'_>,
        act: impl FnOnce(&mut A, &mut Context<'_, A>) -> T,
    ) -> Turn<A, T> {
        let Moment { now, clock, durable_at_once, random } = moment;
        let log_position = self.log_position();
        let unheld = if durable_at_once { u64::MAX } else { log_position };
        let durable_position = self.held_from.unwrap_or(unheld);
        let durable = Durable { store: &mut self.store, log_position, durable_position };
        let mut effects = Vec::new();
        let mut cx = Context::new(id, now, clock, random, &mut effects, durable);
        if let Some(observed) = &mut self.observed {
            cx = cx.watched(observed);
        }
        let value = act(&mut self.actor, &mut cx);
        let (rejected, awaits_durable) = (cx.take_rejected(), cx.awaits_durable());
        self.rejected += u64::from(rejected.is_some());
        let (mut sent, mut outputs, mut appended) = (Vec::new(), Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::Append(record) => {
                    appended.push(record.clone());
                    self.records.push_back(record);
                }
                Effect::TrimLog(position) => self.trim(position),
                Effect::Send { to, message } | Effect::SendUnhurried { to, message } => {
                    sent.push((to, message, false));
                }
                Effect::SendBeforeDurable { to, message } => sent.push((to, message, true)),
                Effect::Broadcast { partition, to, message } => sent
                    .extend(to.members().map(|member| {
                        (NodeId::replica(partition, member), message.clone(), false)
                    })),
                Effect::SetTimer { timer, after } => drop(self.timers.insert(timer, now + after)),
                Effect::CancelTimer(timer) => drop(self.timers.remove(&timer)),
                Effect::Output(output) => outputs.push(output),
            }
        }
        Turn { value, sent, outputs, appended, rejected, awaits_durable }
    }

    fn trim(&mut self, position: u64) {
        assert!(position <= self.log_position(), "{position} is not in the log yet");
        let count = position.saturating_sub(self.first_position());
        self.records.drain(..count as usize);
        self.trimmed = Some(position.max(self.first_position()));
    }

    /// Nothing that is appended from now on is durable, until it is [flushed](super::Net::flush) or the node restarts.
    pub(crate) fn hold_log(&mut self) {
        self.held_from = Some(self.log_position());
    }

    /// A crash keeps only the first `kept` of the records that were not trimmed.
    pub(crate) fn keep_records(&mut self, kept: usize) {
        self.records.truncate(kept);
    }

    /// One of the numbers that the actor shows of its state.
    pub(crate) fn gauge(&self, name: &str) -> u64 {
        let mut found = None;
        self.actor.gauges(&mut |other, value| {
            if other == name {
                found = Some(value);
            }
        });
        found.unwrap_or_else(|| panic!("there is no gauge {name}"))
    }
}

impl<A: Recover> Node<A> {
    /// Puts `fresh` in the actor's place, which has nothing but what is durable.
    pub(super) fn recover(&mut self, fresh: A) {
        if let Some(position) = self.held_from.take() {
            self.keep_records(position.saturating_sub(self.first_position()) as usize);
        }
        self.actor = fresh;
        self.awaits_durable = false;
        self.timers.clear();
        for record in &self.records {
            self.actor.replay(record.clone(), &mut self.store);
        }
    }
}

impl<A: Actor> Deref for Node<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.actor
    }
}

impl<A: Actor> DerefMut for Node<A> {
    fn deref_mut(&mut self) -> &mut A {
        &mut self.actor
    }
}

/// Participants by their ids. Replicas of the first partition can be indexed by their numbers.
pub(crate) struct Nodes<A: Actor>(pub(super) BTreeMap<NodeId, Node<A>>);

/// A timer that is set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due<T> {
    pub(super) at: Timestamp,
    pub(super) id: NodeId,
    pub(super) timer: T,
}

impl<A: Actor> Nodes<A> {
    /// The timer that is due first, of those participants of which `runs` holds.
    pub(super) fn next_timer(&self, runs: impl Fn(NodeId) -> bool) -> Option<Due<A::Timer>> {
        let timers = self.0.iter().filter(|(id, _)| runs(**id)).flat_map(|(id, node)| {
            node.timers.iter().map(|(timer, at)| Due { at: *at, id: *id, timer: *timer })
        });
        timers.min()
    }
}

impl<A: Actor> Deref for Nodes<A> {
    type Target = BTreeMap<NodeId, Node<A>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<A: Actor> DerefMut for Nodes<A> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<A: Actor, S: Slot> Index<S> for Nodes<A> {
    type Output = Node<A>;

    fn index(&self, slot: S) -> &Node<A> {
        &self.0[&slot.id()]
    }
}

impl<A: Actor, S: Slot> IndexMut<S> for Nodes<A> {
    fn index_mut(&mut self, slot: S) -> &mut Node<A> {
        let id = slot.id();
        self.0.get_mut(&id).unwrap_or_else(|| panic!("there is no {id}"))
    }
}

/// The clients of a network whose tests play the clients themselves.
pub(crate) enum NoClient<M> {
    #[expect(dead_code, reason = "it says what messages there are; nothing can be made of it")]
    Never(core::convert::Infallible, PhantomData<M>),
}

impl<M: serried_actor::Wire> Actor for NoClient<M> {
    type Message = M;
    type Timer = ();
    type Record = ();
    type Output = ();

    fn on_message(&mut self, _: NodeId, _: M, _: &mut Context<'_, Self>) {}

    fn on_timer(&mut self, (): (), _: &mut Context<'_, Self>) {}
}

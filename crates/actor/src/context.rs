//! What an actor may ask of its driver while it handles an event.

use core::time::Duration;

use rand_pcg::rand_core::Rng;
use serried_model::NodeId;

use crate::{Actor, ClockInterval, Effect, NodeSet, Observation, Store, Timestamp};

/// The random generator of a node, seeded by the driver; a pinned algorithm, so that a seed means
/// the same on every machine and in every release.
pub type Random = rand_pcg::Pcg64Mcg;

/// CPU work beyond what the message itself costs, in units of one key touched. The simulator's cost
/// model turns it into time; on real hardware it is nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work(pub u32);

/// The world as an actor sees it during one event.
pub struct Context<'a, A: Actor> {
    id: NodeId,
    now: Timestamp,
    clock: ClockInterval,
    random: &'a mut Random,
    effects: &'a mut Vec<Effect<A>>,
    durable: Durable<'a>,
    work: Work,
    observations: Option<&'a mut Vec<Observation>>,
    rejected: Option<String>,
    awaits_durable: bool,
}

/// An actor's durable state, as its driver lends it for an event.
pub struct Durable<'a> {
    /// Its store.
    pub store: &'a mut dyn Store,
    /// The position that the next record to be appended gets: how many there were before it, ever.
    pub log_position: u64,
    /// The records before this position are durable. The greatest number if each is as soon as it is appended.
    pub durable_position: u64,
}

impl<'a, A: Actor> Context<'a, A> {
    /// For drivers: a context for one event, which pushes its effects into `effects`.
    pub fn new(
        id: NodeId,
        now: Timestamp,
        clock: ClockInterval,
        random: &'a mut Random,
        effects: &'a mut Vec<Effect<A>>,
        durable: Durable<'a>,
    ) -> Self {
        Context {
            id,
            now,
            clock,
            random,
            effects,
            durable,
            work: Work(0),
            observations: None,
            rejected: None,
            awaits_durable: false,
        }
    }

    /// For drivers: the same, watched: what is observed is added to `observations`.
    #[must_use]
    pub fn watched(self, observations: &'a mut Vec<Observation>) -> Self {
        Context { observations: Some(observations), ..self }
    }

    /// This node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Time since the driver started, monotonic; it may run a little faster or slower than elsewhere.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Wall-clock time, loosely synchronised with the other nodes.
    pub fn clock(&self) -> ClockInterval {
        self.clock
    }

    /// This node's random generator.
    pub fn random(&mut self) -> &mut Random {
        self.random
    }

    /// A random number.
    pub fn draw(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// A random duration from half of `about` to one and a half of it: nodes that wait so long do not
    /// all act at once.
    pub fn jitter(&mut self, about: Duration) -> Duration {
        let share = self.random.next_u32();
        about / 2 + about.mul_f64(f64::from(share) / f64::from(u32::MAX))
    }

    /// Makes `record` durable, before anything that is sent after it leaves.
    pub fn append(&mut self, record: A::Record) {
        self.durable.log_position += 1;
        self.durable.store.set_log_position(self.durable.log_position);
        self.effects.push(Effect::Append(record));
    }

    /// The position in the log that the next record gets.
    pub fn log_position(&self) -> u64 {
        self.durable.log_position
    }

    /// The records before this position are durable; all are if it is the greatest number. What is put into the store can
    /// be durable before records that were appended earlier. An actor for which that matters waits until they are durable.
    pub fn durable_position(&self) -> u64 {
        self.durable.durable_position
    }

    /// Has [`Actor::on_durable`] called once everything appended so far is durable. To be called only if something is not
    /// durable yet.
    pub fn await_durable(&mut self) {
        self.awaits_durable = true;
    }

    /// For drivers: whether the actor is to be told when everything appended so far is durable.
    pub fn awaits_durable(&self) -> bool {
        self.awaits_durable
    }

    /// Gives up the records before `position`: after a restart only those from there on are replayed.
    pub fn trim_log(&mut self, position: u64) {
        self.effects.push(Effect::TrimLog(position));
    }

    /// The actor's store.
    pub fn store(&mut self) -> &mut dyn Store {
        self.durable.store
    }

    /// Sends once everything appended so far is durable.
    pub fn send(&mut self, to: NodeId, message: A::Message) {
        self.effects.push(Effect::Send { to, message });
    }

    /// Sends at once, whatever is not yet durable. For messages that promise nothing.
    pub fn send_before_durable(&mut self, to: NodeId, message: A::Message) {
        self.effects.push(Effect::SendBeforeDurable { to, message });
    }

    /// Sends to the replicas of `partition` in `to`, once everything appended so far is durable.
    pub fn broadcast(&mut self, partition: u16, to: NodeSet, message: A::Message) {
        self.effects.push(Effect::Broadcast { partition, to, message });
    }

    /// Has `timer` fire `after` from now; if it was set, it is moved.
    pub fn set_timer(&mut self, timer: A::Timer, after: Duration) {
        self.effects.push(Effect::SetTimer { timer, after });
    }

    /// Unsets `timer`, if it was set.
    pub fn cancel_timer(&mut self, timer: A::Timer) {
        self.effects.push(Effect::CancelTimer(timer));
    }

    /// Tells the driver.
    pub fn output(&mut self, output: A::Output) {
        self.effects.push(Effect::Output(output));
    }

    /// Accounts for CPU work that grows with the state or the message.
    pub fn charge(&mut self, keys: usize) {
        self.work.0 += keys as u32;
    }

    /// Tells those who watch this node, if anybody does; only then `observation` is made.
    pub fn observe(&mut self, observation: impl FnOnce() -> Observation) {
        if let Some(observations) = &mut self.observations {
            observations.push(observation());
        }
    }

    /// Reports that the actor drops the present message, because no correct sender can have sent it: it is damaged or forged.
    /// `why` names the sender. A node logs it; the simulator fails unless messages were forged on purpose.
    pub fn reject(&mut self, why: impl FnOnce() -> String) {
        self.rejected = Some(why());
    }

    /// For drivers: why the actor has dropped the message, if it has.
    pub fn take_rejected(&mut self) -> Option<String> {
        self.rejected.take()
    }

    /// For drivers: what was charged.
    pub fn work(&self) -> Work {
        self.work
    }
}

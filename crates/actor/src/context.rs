//! What an actor can request of its driver while it handles an event.

use core::time::Duration;

use rand_pcg::rand_core::Rng;
use serried_model::NodeId;

use crate::{Actor, ClockInterval, Effect, NodeSet, Observation, Store, Timestamp};

/// The random generator of a node, seeded by the driver. The algorithm is pinned, so that a seed gives the same numbers
/// on every machine and in every release.
pub type Random = rand_pcg::Pcg64Mcg;

/// CPU work beyond the cost of handling a message. The unit is one key touched. The simulator's cost model turns it
/// into time. The runtime ignores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work(pub u32);

/// An actor's access to its driver during one event.
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

/// An actor's durable state, which the driver lends it for one event.
pub struct Durable<'a> {
    /// Its store.
    pub store: &'a mut dyn Store,
    /// The position of the next record to be appended: the number of records ever appended before it.
    pub log_position: u64,
    /// The records before this position are durable. `u64::MAX` if records are durable as soon as they are appended.
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

    /// For drivers: adds what the actor observes to `observations`.
    #[must_use]
    pub fn watched(self, observations: &'a mut Vec<Observation>) -> Self {
        Context { observations: Some(observations), ..self }
    }

    /// This node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Monotonic time since the driver started. It may run a little faster or slower than on other nodes.
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

    /// A random duration between 0.5 and 1.5 times `about`, so that several nodes do not act at the same moment.
    pub fn jitter(&mut self, about: Duration) -> Duration {
        let share = self.random.next_u32();
        about / 2 + about.mul_f64(f64::from(share) / f64::from(u32::MAX))
    }

    /// Makes `record` durable. Messages that are sent after it leave only then.
    pub fn append(&mut self, record: A::Record) {
        self.durable.log_position += 1;
        self.durable.store.set_log_position(self.durable.log_position);
        self.effects.push(Effect::Append(record));
    }

    /// The log position of the next record.
    pub fn log_position(&self) -> u64 {
        self.durable.log_position
    }

    /// The records before this position are durable. `u64::MAX` if all are. Changes of the store can become durable
    /// before records that were appended earlier. An actor for which this matters waits until the records are durable.
    pub fn durable_position(&self) -> u64 {
        self.durable.durable_position
    }

    /// Requests a call of [`Actor::on_durable`] when everything appended so far is durable. Only for use while
    /// something is not durable yet.
    pub fn await_durable(&mut self) {
        self.awaits_durable = true;
    }

    /// For drivers: whether the actor has called [`Context::await_durable`].
    pub fn awaits_durable(&self) -> bool {
        self.awaits_durable
    }

    /// Gives up the records before `position`. After a restart only the later ones are replayed.
    pub fn trim_log(&mut self, position: u64) {
        self.effects.push(Effect::TrimLog(position));
    }

    /// The actor's store.
    pub fn store(&mut self) -> &mut dyn Store {
        self.durable.store
    }

    /// Sends a message as soon as everything appended so far is durable.
    pub fn send(&mut self, to: NodeId, message: A::Message) {
        self.effects.push(Effect::Send { to, message });
    }

    /// As [`Context::send`], for a message for which nobody waits yet: the receiver has to wait longer for another one. A
    /// driver may let it wait a little longer, so that one flush carries more.
    pub fn send_unhurried(&mut self, to: NodeId, message: A::Message) {
        self.effects.push(Effect::SendUnhurried { to, message });
    }

    /// Sends a message at once, even if records are not durable yet. For messages that promise nothing.
    pub fn send_before_durable(&mut self, to: NodeId, message: A::Message) {
        self.effects.push(Effect::SendBeforeDurable { to, message });
    }

    /// Sends a message to the replicas of `partition` in `to`, as soon as everything appended so far is durable.
    pub fn broadcast(&mut self, partition: u16, to: NodeSet, message: A::Message) {
        self.effects.push(Effect::Broadcast { partition, to, message });
    }

    /// Sets `timer` to fire `after` from now. If it was set already, it is moved.
    pub fn set_timer(&mut self, timer: A::Timer, after: Duration) {
        self.effects.push(Effect::SetTimer { timer, after });
    }

    /// Cancels `timer`, if it is set.
    pub fn cancel_timer(&mut self, timer: A::Timer) {
        self.effects.push(Effect::CancelTimer(timer));
    }

    /// Passes `output` to the driver.
    pub fn output(&mut self, output: A::Output) {
        self.effects.push(Effect::Output(output));
    }

    /// Accounts for CPU work that grows with the state or the message.
    pub fn charge(&mut self, keys: usize) {
        self.work.0 += keys as u32;
    }

    /// Reports an observation if this node is watched. `observation` is called only then.
    pub fn observe(&mut self, observation: impl FnOnce() -> Observation) {
        if let Some(observations) = &mut self.observations {
            observations.push(observation());
        }
    }

    /// Whether this node is watched. It saves work that an observation needs before [`Context::observe`].
    pub fn is_observed(&self) -> bool {
        self.observations.is_some()
    }

    /// Reports that the actor drops the present message because no correct sender can have sent it: it is damaged or
    /// forged. `why` names the sender. A node logs this. The simulator fails unless messages were forged on
    /// purpose.
    pub fn reject(&mut self, why: impl FnOnce() -> String) {
        self.rejected = Some(why());
    }

    /// For drivers: why the actor has rejected the message, if it has.
    pub fn take_rejected(&mut self) -> Option<String> {
        self.rejected.take()
    }

    /// For drivers: the work that the actor has charged.
    pub fn work(&self) -> Work {
        self.work
    }
}

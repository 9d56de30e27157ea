//! Actors with their types erased, and the carrying out of their effects.
//!
//! The code that reads and writes connections is compiled once for all protocols: it hands bytes to an [`ErasedActor`].
//! The obvious way to take what the actor answers is a queue of effects, which another task empties. That costs an
//! allocation, a wake-up and a change of tasks for each message. Here [`Driven`] carries out each effect at once, and
//! encodes a message straight into the buffer of the connection that it leaves by.

use std::collections::VecDeque;
use std::time::Instant;

use serried_actor::{Actor, Context, Durable, Effect, Malformed, Placement, Random, Timestamp};
use serried_model::NodeId;

use crate::clock::Moment;
use crate::endpoint::Side;
use crate::links::{Links, Sending};
use crate::sparing::{Sparing, legible};
use crate::timers::Timers;

/// An actor at an endpoint of the side `S`: the replica of a partition at a node, a keyspace's coordinator at a client.
pub trait ErasedActor<S>: Send {
    /// The endpoint serves.
    fn start(&mut self, moment: Moment, out: &mut Outbox<'_, S>);

    /// A message has arrived.
    ///
    /// # Errors
    /// If the bytes are no message of its protocol.
    fn on_message(
        &mut self,
        from: NodeId,
        message: &[u8],
        moment: Moment,
        out: &mut Outbox<'_, S>,
    ) -> Result<(), Malformed>;

    /// Fires the timers that are due.
    fn fire_timers(&mut self, moment: Moment, out: &mut Outbox<'_, S>);

    /// When the next timer is due.
    fn next_timer(&mut self) -> Option<Timestamp>;
}

/// Where an actor's effects go.
pub struct Outbox<'a, S> {
    /// The connections.
    pub links: &'a mut Links,
    /// What the endpoint's side shares among its actors.
    pub side: &'a mut S,
    /// The slot of the actor.
    pub place: usize,
}

/// An actor's identity, and what its random numbers come from.
pub struct Role {
    /// The actor's id.
    pub id: NodeId,
    /// The number of its keyspace.
    pub keyspace: u64,
    /// Where the replicas of its keyspace are.
    pub placement: Placement,
    /// Its random generator.
    pub random: Random,
}

/// What one side of a protocol keeps for each of its actors: a node keeps a replica's log and store, a client passes on
/// a coordinator's outputs.
pub trait Host<A: Actor>: Send {
    /// The side.
    type Side: Side;

    /// The actor's durable state, for an event. All flushes up to `flushed` are done.
    fn durable(&mut self, flushed: u64) -> Durable<'_>;

    /// An event has been handled: where the log ends now, and whether the actor awaits that everything it has appended is
    /// durable.
    fn handled(&mut self, _log_position: u64, _awaits_durable: bool) {}

    /// Makes a record durable.
    fn append(&mut self, _record: A::Record, _side: &mut Self::Side) {}

    /// Gives up the records before `position`.
    fn trim(&mut self, _position: u64, _side: &mut Self::Side) {}

    /// The flush that makes everything durable that the actor has appended. 0 if nothing waits for flushes.
    fn flush(&self) -> u64 {
        0
    }

    /// A message in a hurry waits for the flush [`Host::flush`].
    fn hurry(&mut self, _side: &mut Self::Side) {}

    /// The effects of an event have been carried out.
    fn carried_out(&mut self, _side: &mut Self::Side) {}

    /// Everything that follows from an event here is done.
    fn finished(&mut self, _actor: &A, _now: Timestamp, _flushed: u64) {}

    /// Takes an output of the actor.
    fn output(&mut self, output: A::Output);
}

/// An actor with what its driver keeps for it.
pub struct Driven<A: Actor, H> {
    actor: A,
    id: NodeId,
    keyspace: u64,
    placement: Placement,
    random: Random,
    timers: Timers<A::Timer>,
    effects: Vec<Effect<A>>,
    /// How many messages it has rejected.
    rejected: u64,
    sparing: Sparing,
    /// What it sent to itself.
    own: VecDeque<A::Message>,
    /// What its side keeps for it.
    pub host: H,
}

impl<A: Actor, H: Host<A>> Driven<A, H> {
    /// An actor that has not started yet.
    pub fn new(actor: A, role: Role, host: H) -> Driven<A, H> {
        let Role { id, keyspace, placement, random } = role;
        Driven {
            actor,
            id,
            keyspace,
            placement,
            random,
            timers: Timers::new(),
            effects: Vec::new(),
            rejected: 0,
            sparing: Sparing::default(),
            own: VecDeque::new(),
            host,
        }
    }

    /// The actor.
    pub fn actor(&self) -> &A {
        &self.actor
    }

    /// How many messages it has rejected.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// When the next timer is due.
    pub fn next_timer(&mut self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// Runs one event, and everything that follows from it here.
    pub fn step(
        &mut self,
        moment: Moment,
        out: &mut Outbox<'_, H::Side>,
        event: impl FnOnce(&mut A, &mut Context<'_, A>),
    ) {
        self.handle(moment, out, event);
        self.carry_out(moment, out);
        while let Some(message) = self.own.pop_front() {
            let id = self.id;
            self.handle(moment, out, |actor, cx| actor.on_message(id, message, cx));
            self.carry_out(moment, out);
        }
        self.host.finished(&self.actor, moment.now, out.links.flushed());
    }

    /// Fires the timers that are due.
    pub fn fire(&mut self, moment: Moment, out: &mut Outbox<'_, H::Side>) {
        // A timer that sets itself for now again waits for the next call.
        for _ in 0..self.timers.len() {
            let Some(timer) = self.timers.pop(moment.now) else { return };
            self.step(moment, out, |actor, cx| actor.on_timer(timer, cx));
        }
    }

    fn handle(
        &mut self,
        moment: Moment,
        out: &mut Outbox<'_, H::Side>,
        event: impl FnOnce(&mut A, &mut Context<'_, A>),
    ) {
        let Moment { now, clock } = moment;
        let Driven { actor, random, effects, host, .. } = self;
        let durable = host.durable(out.links.flushed());
        let mut cx = Context::new(self.id, now, clock, random, effects, durable);
        if let Some(observations) = out.side.observations(out.place) {
            cx = cx.watched(observations);
        }
        event(actor, &mut cx);
        let (rejected, log_position) = (cx.take_rejected(), cx.log_position());
        let awaits_durable = cx.awaits_durable();
        if let Some(why) = rejected {
            self.rejected += 1;
            if let Some(more) = self.sparing.may_say("rejected", Instant::now().into()) {
                let (why, so_far) = (legible(&why), self.rejected);
                tracing::warn!(node = %self.id, why, so_far, more, "dropping a message");
            }
        }
        self.host.handled(log_position, awaits_durable);
        out.side.observed(out.place, self.id, now, out.links);
    }

    /// What it sends waits for the flush of what it appended before. What it sends to itself does not, because what follows
    /// from that waits.
    fn carry_out(&mut self, moment: Moment, out: &mut Outbox<'_, H::Side>) {
        let Driven { id, keyspace, placement, .. } = *self;
        for effect in self.effects.drain(..) {
            let at_once = matches!(effect, Effect::SendBeforeDurable { .. });
            let after = if at_once { 0 } else { self.host.flush() };
            let is_in_a_hurry = match &effect {
                Effect::Send { to, .. } => *to != id,
                effect => matches!(effect, Effect::Broadcast { .. }),
            };
            if is_in_a_hurry && after > out.links.flushed() {
                self.host.hurry(out.side);
            }
            let sending = Sending { from: id, keyspace, placement, after };
            match effect {
                Effect::Append(record) => {
                    out.links.counters.appends += 1;
                    self.host.append(record, out.side);
                }
                Effect::Send { to, message }
                | Effect::SendUnhurried { to, message }
                | Effect::SendBeforeDurable { to, message } => {
                    if to == id {
                        self.own.push_back(message);
                    } else {
                        out.links.send(sending, to, &message);
                    }
                }
                Effect::TrimLog(position) => self.host.trim(position, out.side),
                Effect::Broadcast { partition, mut to, message } => {
                    if to.contains(id) && id.partition() == partition {
                        to = to.without([id].into_iter().collect());
                        self.own.push_back(message.clone());
                    }
                    out.links.broadcast(sending, partition, to, &message);
                }
                Effect::SetTimer { timer, after } => self.timers.set(timer, moment.now + after),
                Effect::CancelTimer(timer) => self.timers.cancel(timer),
                Effect::Output(output) => self.host.output(output),
            }
        }
        self.host.carried_out(out.side);
    }
}

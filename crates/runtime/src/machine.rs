//! Machines: a protocol's actors with their types erased.
//!
//! What reads and writes connections knows nothing of protocols: it hands bytes to a [`Machine`],
//! which carries its actor's effects out at once, into the buffers of the connections concerned.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use serried_actor::{
    Actor, Context, Coordinate, Durable, Effect, Malformed, MemoryStore, Protocol, Random, Recover,
    Standing, Store, Timestamp, Wire,
};
use serried_model::{Family, NodeId, TxnId};

use crate::clock::Moment;
use crate::desk::Desk;
use crate::durable::{Batch, Log, Opened};
use crate::durable_position::DurablePosition;
use crate::durable_standing::DurableStanding;
use crate::flusher::Flushing;
use crate::links::{Links, Sending};
use crate::metrics::PartitionCounts;
use crate::sparing::{Sparing, legible};
use crate::timers::Timers;
use crate::watch::Watch;

/// An actor at an endpoint: the replica of a partition, or a keyspace's coordinator.
pub(crate) trait Machine: Send {
    /// The endpoint serves.
    fn start(&mut self, moment: Moment, out: &mut Outbox<'_>);

    /// A message has arrived.
    fn on_message(
        &mut self,
        from: NodeId,
        message: &[u8],
        moment: Moment,
        out: &mut Outbox<'_>,
    ) -> Result<(), Malformed>;

    /// Handles the operations that sessions have put down. Only coordinators have sessions.
    fn on_operations(&mut self, moment: Moment, out: &mut Outbox<'_>);

    /// Fires what is due.
    fn fire_timers(&mut self, moment: Moment, out: &mut Outbox<'_>);

    /// When the next timer is due.
    fn next_timer(&mut self) -> Option<Timestamp>;

    /// The endpoint is about to stop.
    fn prepare_to_stop(&mut self, moment: Moment, out: &mut Outbox<'_>);

    /// Whether it may stop now.
    fn may_stop(&self) -> bool;

    /// What it has appended to its log since the last time.
    fn take_batch(&mut self) -> Option<Box<dyn Batch>>;

    /// Everything up to this flush is durable.
    fn on_flushed(&mut self, flushed: u64, moment: Moment, out: &mut Outbox<'_>);

    /// What it has counted so far.
    fn counts(&self) -> PartitionCounts;

    /// What it shows of its state.
    fn gauges(&self) -> Vec<(&'static str, u64)>;

    /// How far it takes part, if everything up to this flush is durable, and when it last took part fully.
    fn standing(&self, flushed: u64) -> (Standing, Timestamp);

    /// Whether it appends to a log.
    fn is_durable(&self) -> bool;
}

/// Where a machine's effects go.
pub(crate) struct Outbox<'a> {
    pub(crate) links: &'a mut Links,
    pub(crate) flushing: &'a mut Flushing,
    /// Whoever is told what the machine observes.
    pub(crate) watch: Option<&'a mut Watch>,
}

/// What a machine is told about itself.
pub(crate) struct Role {
    /// Who it is.
    pub(crate) id: NodeId,
    /// The number of its keyspace.
    pub(crate) keyspace: u64,
    pub(crate) random: Random,
}

/// A coordinator as a machine, with the desk of its sessions.
pub(crate) fn coordinator<P: Protocol>(
    actor: P::Coordinator,
    role: Role,
    desk: Arc<Desk<P::Family>>,
) -> Box<dyn Machine> {
    let driven = Driven::new(actor, |_| Standing::Full, role);
    Box::new(Erased { driven, side: ClientSide { desk, operations: Vec::new() } })
}

/// A replica as a machine, as it was when it last appended to its log, if it has one.
pub(crate) fn replica<P: Protocol>(
    actor: P::Replica,
    role: Role,
    disk: Option<Opened>,
) -> Result<Box<dyn Machine>, String> {
    let mut driven = Driven::new(actor, Recover::standing, role);
    let mut rejoins = false;
    if let Some(Opened { mut log, store, rejoins: is_new }) = disk {
        driven.store = store;
        let Driven { actor, store, .. } = &mut driven;
        driven.log_position = log.replay(&mut |position, record| {
            let record = <P::Replica as Actor>::Record::decode(record)
                .map_err(|error| format!("record {position} is {error}"))?;
            actor.replay(record, store.as_mut());
            Ok(())
        })?;
        driven.log = Some(log);
        // What it had begun before it went down is not known where nothing of it was durable.
        rejoins = is_new && driven.log_position == 0;
    }
    Ok(Box::new(Erased { driven, side: ReplicaSide { rejoins } }))
}

/// An actor with what its driver keeps for it.
struct Driven<A: Actor> {
    actor: A,
    id: NodeId,
    keyspace: u64,
    random: Random,
    timers: Timers<A::Timer>,
    effects: Vec<Effect<A>>,
    store: Box<dyn Store>,
    /// None where a record is durable as soon as it is appended.
    log: Option<Box<dyn Log>>,
    log_position: u64,
    /// The flush that makes everything durable that it has appended.
    after: u64,
    /// The flush after which the actor is told that what it awaits is durable, if it awaits that.
    awaited: Option<u64>,
    /// Whether it has asked for that in the present event.
    awaits_durable: bool,
    counts: PartitionCounts,
    durable_position: DurablePosition,
    /// How far it takes part.
    standing: fn(&A) -> Standing,
    durable_standing: DurableStanding,
    /// When it last took part fully.
    full_at: Timestamp,
    /// Whether it has not taken part fully, and that it does again is not logged yet.
    was_behind: bool,
    /// How many messages it has rejected.
    rejected: u64,
    sparing: Sparing,
    /// What it sent to itself.
    own: VecDeque<A::Message>,
}

impl<A: Actor> Driven<A> {
    fn new(actor: A, standing: fn(&A) -> Standing, role: Role) -> Self {
        let Role { id, keyspace, random } = role;
        Driven {
            actor,
            id,
            keyspace,
            random,
            timers: Timers::new(),
            effects: Vec::new(),
            store: Box::new(MemoryStore::default()),
            log: None,
            log_position: 0,
            after: 0,
            awaited: None,
            awaits_durable: false,
            counts: PartitionCounts::default(),
            durable_position: DurablePosition::default(),
            standing,
            durable_standing: DurableStanding::new(),
            full_at: Timestamp(0),
            was_behind: false,
            rejected: 0,
            sparing: Sparing::default(),
            own: VecDeque::new(),
        }
    }

    /// One event, and everything that comes of it here.
    fn step(
        &mut self,
        moment: Moment,
        out: &mut Outbox<'_>,
        tell: impl Fn(A::Output),
        event: impl FnOnce(&mut A, &mut Context<'_, A>),
    ) {
        self.handle(moment, out, event);
        self.finish(moment, out, &tell);
    }

    /// Everything that comes of an event here.
    fn finish(&mut self, moment: Moment, out: &mut Outbox<'_>, tell: &impl Fn(A::Output)) {
        self.carry_out(moment, out, tell);
        self.await_durable();
        while let Some(message) = self.own.pop_front() {
            let id = self.id;
            self.handle(moment, out, |actor, cx| actor.on_message(id, message, cx));
            self.carry_out(moment, out, tell);
            self.await_durable();
        }
        self.durable_standing.note((self.standing)(&self.actor), self.after);
        let is_full = self.durable_standing.get(out.links.flushed()) == Standing::Full;
        if is_full {
            self.full_at = moment.now;
        }
        if is_full && core::mem::take(&mut self.was_behind) {
            let keyspace = format_args!("{:016x}", self.keyspace).to_string();
            tracing::info!(replica = %self.id, keyspace, "takes part fully again");
        }
        self.was_behind |= (self.standing)(&self.actor) != Standing::Full;
    }

    fn handle(
        &mut self,
        moment: Moment,
        out: &mut Outbox<'_>,
        event: impl FnOnce(&mut A, &mut Context<'_, A>),
    ) {
        let Moment { now, clock } = moment;
        let durable = Durable {
            store: self.store.as_mut(),
            log_position: self.log_position,
            durable_position: match &self.log {
                Some(_) => self.durable_position.get(out.links.flushed(), self.log_position),
                None => u64::MAX,
            },
        };
        let mut cx =
            Context::new(self.id, now, clock, &mut self.random, &mut self.effects, durable);
        if let Some(watch) = &mut out.watch {
            cx = cx.watched(&mut watch.observations);
        }
        event(&mut self.actor, &mut cx);
        if let Some(why) = cx.take_rejected() {
            self.rejected += 1;
            if let Some(more) = self.sparing.may_say("rejected", Instant::now().into()) {
                let (why, so_far) = (legible(&why), self.rejected);
                tracing::warn!(node = %self.id, why, so_far, more, "dropping a message");
            }
        }
        self.log_position = cx.log_position();
        self.awaits_durable = cx.awaits_durable();
        if let Some(watch) = &mut out.watch {
            watch.take(self.id, now, out.links);
        }
    }

    /// Notes the flush that the actor awaits, as what it has appended is with the log now.
    fn await_durable(&mut self) {
        if core::mem::take(&mut self.awaits_durable) {
            self.awaited.get_or_insert(self.after);
        }
    }

    /// What it sends waits for the flush of what it appended before; what it sends to itself need not, as
    /// whatever comes of that waits.
    fn carry_out(&mut self, moment: Moment, out: &mut Outbox<'_>, tell: &impl Fn(A::Output)) {
        let Driven { id, keyspace, .. } = *self;
        for effect in self.effects.drain(..) {
            let at_once = matches!(effect, Effect::SendBeforeDurable { .. });
            let after = if at_once { 0 } else { self.after };
            let sending = Sending { from: id, keyspace, after };
            match effect {
                Effect::Append(record) => {
                    out.links.counters.appends += 1;
                    self.counts.appends += 1;
                    if let Some(log) = &mut self.log {
                        let appended_bytes = &mut self.counts.appended_bytes;
                        log.append(&mut |bytes| {
                            let before = bytes.len();
                            record.encode(bytes);
                            *appended_bytes += (bytes.len() - before) as u64;
                        });
                        self.after = out.flushing.request();
                        self.durable_position.note(self.after, self.log_position);
                    }
                }
                Effect::Send { to, message } | Effect::SendBeforeDurable { to, message } => {
                    if to == id {
                        self.own.push_back(message);
                    } else {
                        out.links.send(sending, to, &message);
                    }
                }
                Effect::TrimLog(position) => {
                    if let Some(log) = &mut self.log {
                        log.trim(position);
                        out.flushing.request();
                    }
                }
                Effect::Broadcast { partition, mut to, message } => {
                    if to.contains(id) && id.partition() == partition {
                        to = to.without([id].into_iter().collect());
                        self.own.push_back(message.clone());
                    }
                    out.links.broadcast(sending, partition, to, &message);
                }
                Effect::SetTimer { timer, after } => self.timers.set(timer, moment.now + after),
                Effect::CancelTimer(timer) => self.timers.cancel(timer),
                Effect::Output(output) => tell(output),
            }
        }
    }

    fn fire(&mut self, moment: Moment, out: &mut Outbox<'_>, tell: impl Fn(A::Output) + Copy) {
        // A timer that sets itself for now again waits for the next call.
        for _ in 0..self.timers.len() {
            let Some(timer) = self.timers.pop(moment.now) else { return };
            self.step(moment, out, tell, |actor, cx| actor.on_timer(timer, cx));
        }
    }
}

/// What differs between the actors of the two sides.
trait Side<A: Actor>: Send {
    /// The actor starts.
    fn start(&self, actor: &mut A, cx: &mut Context<'_, A>);

    /// Its endpoint is about to stop.
    fn stop(&self, actor: &mut A, cx: &mut Context<'_, A>);

    /// Whether it may stop now.
    fn may_stop(&self, actor: &A) -> bool;

    /// Hands the actor what sessions ask for.
    fn operate(&mut self, actor: &mut A, cx: &mut Context<'_, A>);

    /// Takes an output of the actor.
    fn tell(&self, output: A::Output);
}

/// The side of coordinators.
struct ClientSide<F: Family> {
    desk: Arc<Desk<F>>,
    /// A buffer, empty between events.
    operations: Vec<(TxnId, F::Operation)>,
}

impl<F: Family, A: Coordinate<F>> Side<A> for ClientSide<F> {
    fn start(&self, actor: &mut A, cx: &mut Context<'_, A>) {
        actor.on_start(cx);
    }

    fn stop(&self, _: &mut A, _: &mut Context<'_, A>) {}

    fn may_stop(&self, _: &A) -> bool {
        true
    }

    fn operate(&mut self, actor: &mut A, cx: &mut Context<'_, A>) {
        self.desk.take(&mut self.operations);
        for (txn, operation) in self.operations.drain(..) {
            actor.on_operation(txn, operation, cx);
        }
        actor.on_batch_end(cx);
    }

    fn tell(&self, (txn, output): (TxnId, F::Output)) {
        self.desk.deliver(txn, output);
    }
}

/// The side of replicas.
struct ReplicaSide {
    /// Whether the replica takes the place of one whose disk was lost.
    rejoins: bool,
}

impl<A: Recover> Side<A> for ReplicaSide {
    fn start(&self, actor: &mut A, cx: &mut Context<'_, A>) {
        if self.rejoins {
            actor.rejoin(cx);
        }
        actor.on_start(cx);
    }

    fn stop(&self, actor: &mut A, cx: &mut Context<'_, A>) {
        actor.on_stop(cx);
    }

    fn may_stop(&self, actor: &A) -> bool {
        actor.may_stop()
    }

    /// Nodes have no sessions.
    fn operate(&mut self, _: &mut A, _: &mut Context<'_, A>) {}

    fn tell(&self, output: A::Output) {
        tracing::debug!(?output, "replica");
    }
}

/// An actor of either side.
struct Erased<A: Actor, S> {
    driven: Driven<A>,
    side: S,
}

impl<A: Actor, S: Side<A>> Machine for Erased<A, S> {
    fn start(&mut self, moment: Moment, out: &mut Outbox<'_>) {
        let Erased { driven, side } = self;
        driven.step(moment, out, |output| side.tell(output), |actor, cx| side.start(actor, cx));
    }

    fn on_message(
        &mut self,
        from: NodeId,
        message: &[u8],
        moment: Moment,
        out: &mut Outbox<'_>,
    ) -> Result<(), Malformed> {
        let message = A::Message::decode(message)?;
        let Erased { driven, side } = self;
        let tell = |output| side.tell(output);
        driven.counts.messages_received += 1;
        if out.flushing.obstacle.is_none() {
            driven.step(moment, out, tell, |actor, cx| actor.on_message(from, message, cx));
            return Ok(());
        }
        // What it came to could not leave before the log is written again, and would use up memory.
        let mut answered = false;
        driven.step(moment, out, tell, |actor, cx| {
            answered = actor.on_message_read_only(from, message, cx);
        });
        out.links.counters.messages_dropped += u64::from(!answered);
        Ok(())
    }

    fn on_operations(&mut self, moment: Moment, out: &mut Outbox<'_>) {
        let Erased { driven, side } = self;
        // The outputs of this event come after it, when the side is free again.
        driven.handle(moment, out, |actor, cx| side.operate(actor, cx));
        driven.finish(moment, out, &|output| side.tell(output));
    }

    fn fire_timers(&mut self, moment: Moment, out: &mut Outbox<'_>) {
        let Erased { driven, side } = self;
        driven.fire(moment, out, |output| side.tell(output));
    }

    fn next_timer(&mut self) -> Option<Timestamp> {
        self.driven.timers.next()
    }

    fn prepare_to_stop(&mut self, moment: Moment, out: &mut Outbox<'_>) {
        let Erased { driven, side } = self;
        driven.step(moment, out, |output| side.tell(output), |actor, cx| side.stop(actor, cx));
    }

    fn may_stop(&self) -> bool {
        self.side.may_stop(&self.driven.actor)
    }

    fn take_batch(&mut self) -> Option<Box<dyn Batch>> {
        self.driven.log.as_mut()?.take_batch()
    }

    fn on_flushed(&mut self, flushed: u64, moment: Moment, out: &mut Outbox<'_>) {
        if self.driven.awaited.is_some_and(|awaited| awaited <= flushed) {
            let Erased { driven, side } = self;
            driven.awaited = None;
            driven.step(moment, out, |output| side.tell(output), Actor::on_durable);
        }
    }

    fn counts(&self) -> PartitionCounts {
        self.driven.counts
    }

    fn gauges(&self) -> Vec<(&'static str, u64)> {
        let mut gauges = Vec::new();
        self.driven.actor.gauges(&mut |name, value| gauges.push((name, value)));
        gauges.push(("rejected_messages", self.driven.rejected));
        gauges
    }

    fn standing(&self, flushed: u64) -> (Standing, Timestamp) {
        (self.driven.durable_standing.get(flushed), self.driven.full_at)
    }

    fn is_durable(&self) -> bool {
        self.driven.log.is_some()
    }
}

//! What a client and each core of a node have in common: actors, links and timers behind one lock. What differs between
//! the two is their [`Side`]. Only the thread of its core uses an endpoint of a node, but for its statistics.
//!
//! The obvious design gives each actor a task with a queue of messages. Then each message wakes a task, and often
//! another thread. Here a task that has something for the actors, such as the reader of a connection, takes the lock,
//! hands it over, and leaves the effects in the buffers of the links. The lock is never held across a system call.

use std::sync::{Mutex, MutexGuard};
use std::task::Waker;

use serried_actor::{Observation, Random, Timestamp};
use serried_model::NodeId;
use tokio::sync::{oneshot, watch};
use tokio::time::MissedTickBehavior;

use crate::clock::{Clock, Moment};
use crate::driven::{ErasedActor, Outbox};
use crate::frame::{BadFrame, Frame, Kind};
use crate::links::{Cut, LinkId, Links};
use crate::options::TransportOptions;
use crate::out_buffer::{Messages, OutBuffer, Route};
use crate::polling::{Look, Polling};
use crate::shards::{Found, Shards};

/// What distinguishes the endpoints of nodes from those of clients. The methods run under the endpoint's lock, except
/// [`Side::answer`].
pub trait Side: Sized + Send + 'static {
    /// Its actors without their types.
    type Actor: ErasedActor<Self> + ?Sized;
    /// What it has outside of the lock.
    type Outside: Default + Send + Sync;
    /// What is left to do for a frame when the lock has been released.
    type Deferred: Send;

    /// The node's number, if it is a node's. A node has an actor for each partition, a client for each keyspace.
    fn home(&self) -> Option<usize>;

    /// Where the actor in slot `place` reports what it observes, if it is watched.
    fn observations(&mut self, _place: usize) -> Option<&mut Vec<Observation>> {
        None
    }

    /// The actor `id` in slot `place` has handled an event: takes what it has observed.
    fn observed(&mut self, _place: usize, _id: NodeId, _now: Timestamp, _links: &mut Links) {}

    /// Handles a frame of a kind that not all endpoints handle alike.
    ///
    /// # Errors
    /// If the frame is malformed, or none of its kind may come here.
    fn on_frame(
        core: &mut Core<Self>,
        from: NodeId,
        link: LinkId,
        frame: Frame<'_>,
        moment: Moment,
    ) -> Result<Option<Self::Deferred>, BadFrame>;

    /// Does what frames from `link` have left to do. The lock is free.
    fn answer(endpoint: &Endpoint<Self>, link: LinkId, deferred: Vec<Self::Deferred>);

    /// A link to a client or to a node has its connection.
    fn connected(&mut self, _link: LinkId, _links: &mut Links) {}

    /// A connection has ended.
    fn lost(&mut self, link: LinkId);

    /// When it has something to do.
    fn next_due(&self) -> Option<Timestamp>;

    /// Does what is due.
    fn advance(&mut self, now: Timestamp, links: &mut Links);
}

/// What the tasks of an endpoint share.
pub struct Endpoint<S: Side> {
    /// The id of the client or the node.
    pub id: NodeId,
    /// Its clocks.
    pub clock: Clock,
    /// Its bounds and times.
    pub transport: TransportOptions,
    /// What its side has outside of the lock.
    pub outside: S::Outside,
    core: Mutex<Core<S>>,
    closed: watch::Sender<bool>,
}

/// The part of an endpoint that is behind its lock.
pub struct Core<S: Side> {
    /// Its connections.
    pub links: Links,
    /// Its random generator.
    pub random: Random,
    /// The partitions that it knows.
    pub shards: Shards,
    /// What only a node's or only a client's endpoint has.
    pub side: S,
    /// At a node by shard, only those of one core. At a client by keyspace, only those that it uses.
    actors: Vec<Option<Box<S::Actor>>>,
    /// When each actor's next timer is due, [`NEVER`] if none is.
    timers: Vec<Timestamp>,
    alarm: WakeUp,
    polling: Polling,
}

const NEVER: Timestamp = Timestamp(u64::MAX);

/// The timer task, and the time at which it is going to wake up.
#[derive(Default)]
struct WakeUp {
    at: Option<Timestamp>,
    waker: Option<Waker>,
}

impl<S: Side> Endpoint<S> {
    /// An endpoint without actors and connections.
    pub fn new(id: NodeId, transport: TransportOptions, random: Random, side: S) -> Endpoint<S> {
        let core = Core {
            links: Links::new(),
            random,
            shards: Shards::default(),
            side,
            actors: Vec::new(),
            timers: Vec::new(),
            alarm: WakeUp::default(),
            polling: Polling::new(transport.poll()),
        };
        Endpoint {
            id,
            clock: Clock::start(transport.clock_uncertainty()),
            transport,
            outside: S::Outside::default(),
            core: Mutex::new(core),
            closed: watch::Sender::new(false),
        }
    }

    /// Locks the core.
    ///
    /// # Panics
    /// If an actor has panicked: an endpoint whose invariants are broken does nothing more.
    pub fn lock(&self) -> MutexGuard<'_, Core<S>> {
        self.core.lock().expect("the endpoint stopped when one of its actors panicked")
    }

    /// Locks the core to read from it. `None` if the core has panicked.
    pub fn look(&self) -> Option<MutexGuard<'_, Core<S>>> {
        self.core.lock().ok()
    }

    /// Whether none of its actors has panicked.
    pub fn is_sound(&self) -> bool {
        !self.core.is_poisoned()
    }

    /// Flushes and closes every connection. New ones end at once.
    pub fn close(&self) {
        self.closed.send_replace(true);
        if self.is_sound() {
            self.lock().links.close_all();
        }
    }

    /// Whether it is being closed.
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits until it is being closed.
    pub async fn closed(&self) {
        let mut closed = self.closed.subscribe();
        // The sender lives as long as `self`.
        let _ = closed.wait_for(|closed| *closed).await;
    }

    /// Installs an actor in slot `place` and starts it: that of a shard at a node, of a keyspace at a client.
    pub fn install(&self, place: u16, actor: Box<S::Actor>) {
        let moment = self.clock.moment();
        let mut core = self.lock();
        let slot = usize::from(place);
        if core.actors.len() <= slot {
            core.actors.resize_with(slot + 1, || None);
            core.timers.resize(slot + 1, NEVER);
        }
        core.actors[slot] = Some(actor);
        core.run(slot, |actor, out| actor.start(moment, out));
        core.settle(moment);
    }

    /// Looks for messages for a while before the thread sleeps, for as long as it is polled: see
    /// [`TransportOptions::poll_us`]. It is for a runtime of one thread.
    pub async fn keep_polling(&self) {
        loop {
            std::future::poll_fn(|cx| self.lock().polling.poll_reason(cx)).await;
            loop {
                // What is ready runs first, and the runtime asks the sockets.
                tokio::task::yield_now().await;
                let look = self.lock().polling.looked(self.clock.now());
                let looks_again = match look {
                    Look::Found => true,
                    Look::Nothing => {
                        let since = self.clock.now();
                        std::thread::yield_now();
                        let now = self.clock.now();
                        self.lock().polling.gave_way(since, now)
                    }
                    Look::Enough => false,
                };
                if !looks_again {
                    break;
                }
            }
        }
    }

    /// Sends heartbeats, and gives up connections on which none arrive, for as long as it is polled.
    pub async fn keep_beating(&self) {
        let mut beats = tokio::time::interval(self.transport.heartbeat());
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            self.lock().links.beat(self.transport.silent_beats());
        }
    }

    /// Fires timers when they are due, and calls [`Side::advance`] when the side has something to do, for as long as it
    /// is polled.
    pub async fn keep_time(&self) {
        let sleep = tokio::time::sleep(std::time::Duration::ZERO);
        let mut sleep = std::pin::pin!(sleep);
        std::future::poll_fn(|cx| {
            loop {
                let moment = self.clock.moment();
                let next = {
                    let mut core = self.lock();
                    core.fire(moment);
                    let next = core.next_due();
                    core.alarm = WakeUp { at: next, waker: Some(cx.waker().clone()) };
                    next
                };
                let Some(next) = next else { return std::task::Poll::Pending };
                sleep.as_mut().reset(self.clock.instant(next));
                if sleep.as_mut().poll(cx).is_pending() {
                    return std::task::Poll::Pending;
                }
            }
        })
        .await
    }
}

impl<S: Side> Core<S> {
    /// Runs `act` on the actor in slot `place`. `None` if there is none.
    pub fn run<T>(
        &mut self,
        place: usize,
        act: impl FnOnce(&mut S::Actor, &mut Outbox<'_, S>) -> T,
    ) -> Option<T> {
        let Core { actors, links, timers, side, .. } = self;
        let actor = actors.get_mut(place)?.as_mut()?;
        let done = act(actor.as_mut(), &mut Outbox { links, side, place });
        timers[place] = actor.next_timer().unwrap_or(NEVER);
        Some(done)
    }

    /// How many slots for actors there are.
    pub fn places(&self) -> usize {
        self.actors.len()
    }

    /// The actor in slot `place`.
    pub fn actor(&self, place: usize) -> Option<&S::Actor> {
        self.actors.get(place)?.as_deref()
    }

    /// All actors.
    pub fn actors(&self) -> impl Iterator<Item = &S::Actor> {
        self.actors.iter().flatten().map(AsRef::as_ref)
    }

    /// All actors, to be changed.
    pub fn actors_mut(&mut self) -> impl Iterator<Item = &mut S::Actor> {
        self.actors.iter_mut().flatten().map(AsMut::as_mut)
    }

    /// Handles a frame. Returns what is left to do when the lock has been released.
    pub(crate) fn on_frame(
        &mut self,
        from: NodeId,
        link: LinkId,
        frame: Frame<'_>,
        moment: Moment,
    ) -> Result<Option<S::Deferred>, BadFrame> {
        match frame.kind {
            Kind::Batch => self.on_batch(from, link, frame.payload, moment)?,
            Kind::Ping => self.links.push_frame(link, Kind::Pong, &[]),
            Kind::Pong => {}
            _ => return S::on_frame(self, from, link, frame, moment),
        }
        Ok(None)
    }

    /// Bytes were received.
    pub(crate) fn received(&mut self, bytes: usize, moment: Moment) {
        self.links.counters.reads += 1;
        self.links.counters.bytes_received += bytes as u64;
        self.polling.came(moment.now);
    }

    /// A connection has ended.
    pub fn lose(&mut self, link: LinkId) {
        self.links.remove(link);
        self.side.lost(link);
    }

    /// A link to a client or to a node has its connection.
    pub(crate) fn connected(&mut self, link: LinkId) -> oneshot::Receiver<Cut> {
        let cuts = self.links.connected(link);
        self.side.connected(link, &mut self.links);
        cuts
    }

    fn on_batch(
        &mut self,
        from: NodeId,
        link: LinkId,
        payload: &[u8],
        moment: Moment,
    ) -> Result<(), BadFrame> {
        if from.is_coordinator() {
            self.links.route(link);
        }
        let malformed = |reason: String| BadFrame::Payload(Kind::Batch, reason);
        let mut messages = Messages::new(payload);
        for (route, message) in &mut messages {
            self.links.counters.messages_received += 1;
            // A node speaks for its own replicas only.
            let of_sender = |found: Found| match from.is_coordinator() {
                true => Some((from, found)),
                false => Some((found.placement.replica_on(from.member(), route.from)?, found)),
            };
            match self.shards.locate(route).and_then(of_sender) {
                Some((sender, found)) => {
                    self.on_message(sender, route, found, message, moment).map_err(malformed)?
                }
                None => self.refuse(from, route),
            }
        }
        match messages.is_exhausted() {
            true => Ok(()),
            false => Err(malformed("it ends in the middle of a message".to_string())),
        }
    }

    fn on_message(
        &mut self,
        from: NodeId,
        route: Route,
        Found { keyspace, shard, placement }: Found,
        message: &[u8],
        moment: Moment,
    ) -> Result<(), String> {
        let home = self.side.home();
        let place = if home.is_some() { shard } else { keyspace };
        let handle = |actor: &mut S::Actor, out: &mut Outbox<'_, S>| {
            actor.on_message(from, message, moment, out)
        };
        match (self.run(usize::from(place), handle), home) {
            (Some(handled), _) => handled.map_err(|error| error.to_string())?,
            // The sender takes this node to have another number of cores.
            (None, Some(home)) => {
                let place = placement.local(route.to);
                self.links.forward(from, (home, place), route, message);
            }
            // No node sends a client anything about keyspaces that the client does not use.
            (None, None) => {}
        }
        Ok(())
    }

    /// Drops a message for a keyspace or a partition that is not here. Its sender has another configuration, or the message
    /// is forged.
    fn refuse(&mut self, from: NodeId, route: Route) {
        let counters = &mut self.links.counters;
        counters.messages_refused += 1;
        // Logs the first, second, fourth, and so on, so that the log stays short.
        if counters.messages_refused.is_power_of_two() {
            let (keyspace, partition) = (format!("{:016x}", route.keyspace), route.to);
            let so_far = counters.messages_refused;
            tracing::warn!(%from, keyspace, partition, so_far, "dropping messages for what is not here");
        }
    }

    /// Takes what a core of this node has sent, maybe this one. Each message begins with its sender.
    pub fn on_internal(&mut self, buffer: &OutBuffer, moment: Moment) {
        self.polling.came(moment.now);
        for payload in buffer.payloads() {
            for (route, message) in Messages::new(payload) {
                let (from, message) =
                    message.split_first_chunk().expect("it begins with its sender");
                let from = NodeId(u64::from_le_bytes(*from));
                self.links.counters.messages_received += 1;
                let Some(found) = self.shards.locate(route) else {
                    self.refuse(from, route);
                    continue;
                };
                // What came from outside was forwarded unread, and can be malformed.
                if let Err(reason) = self.on_message(from, route, found, message, moment) {
                    self.links.counters.messages_refused += 1;
                    let so_far = self.links.counters.messages_refused;
                    if so_far.is_power_of_two() {
                        tracing::warn!(%from, reason, so_far, "dropping a message");
                    }
                }
            }
        }
        self.settle(moment);
    }

    /// Called after events: fires the timers that are due, and makes sure that the timer task wakes up in time for the
    /// others.
    pub fn settle(&mut self, moment: Moment) {
        let Some(mut due) = self.next_due() else { return };
        if due <= moment.now {
            self.fire(moment);
            let Some(next) = self.next_due() else { return };
            due = next;
        }
        self.wake_by(due);
    }

    /// Makes sure that the timer task wakes up at `due`, if not earlier.
    pub fn wake_by(&mut self, due: Timestamp) {
        if self.alarm.at.is_none_or(|at| due < at)
            && let Some(waker) = self.alarm.waker.take()
        {
            self.alarm.at = Some(due);
            waker.wake();
        }
    }

    fn fire(&mut self, moment: Moment) {
        for place in 0..self.timers.len() {
            if self.timers[place] <= moment.now {
                self.run(place, |actor, out| actor.fire_timers(moment, out));
            }
        }
        self.side.advance(moment.now, &mut self.links);
    }

    fn next_due(&self) -> Option<Timestamp> {
        let timer = self.timers.iter().min().copied().filter(|due| *due < NEVER);
        timer.into_iter().chain(self.side.next_due()).min()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use rand::SeedableRng;

    use super::*;

    /// The side of an endpoint that has no actors.
    pub(crate) struct Bare;

    impl Side for Bare {
        type Actor = dyn ErasedActor<Bare>;
        type Outside = ();
        type Deferred = ();

        fn home(&self) -> Option<usize> {
            Some(0)
        }

        fn on_frame(
            _: &mut Core<Self>,
            _: NodeId,
            _: LinkId,
            frame: Frame<'_>,
            _: Moment,
        ) -> Result<Option<()>, BadFrame> {
            Err(BadFrame::Unexpected(frame.kind))
        }

        fn answer(_: &Endpoint<Self>, _: LinkId, _: Vec<()>) {}

        fn lost(&mut self, _: LinkId) {}

        fn next_due(&self) -> Option<Timestamp> {
            None
        }

        fn advance(&mut self, _: Timestamp, _: &mut Links) {}
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn endpoint() -> Endpoint<Bare> {
        let random = Random::seed_from_u64(1);
        Endpoint::new(NodeId(0), TransportOptions::default(), random, Bare)
    }

    #[test]
    fn messages_from_outside_and_from_other_cores_are_a_reason_to_look_for_more() {
        let cx = Context::from_waker(Waker::noop());
        for from_outside in [true, false] {
            let endpoint = endpoint();
            let mut core = endpoint.lock();
            for us in [1_000_000, 1_000_050] {
                assert!(core.polling.poll_reason(&cx).is_pending());
                let now = Timestamp(us * 1000);
                let moment = Moment { now, ..endpoint.clock.moment() };
                match from_outside {
                    true => core.received(7, moment),
                    false => core.on_internal(&OutBuffer::default(), moment),
                }
            }
            assert!(core.polling.poll_reason(&cx).is_ready());
            let (reads, bytes) = (core.links.counters.reads, core.links.counters.bytes_received);
            assert_eq!((reads, bytes), if from_outside { (2, 14) } else { (0, 0) });
        }
    }

    #[test]
    fn what_looks_for_messages_sleeps_when_none_has_come_until_there_are_some() {
        let mut endpoint = endpoint();
        endpoint.clock = Clock::running_for(std::time::Duration::from_secs(1));
        let woken = Arc::new(Woken::default());
        let waker = woken.clone().into();
        let mut cx = Context::from_waker(&waker);
        let wakes = || woken.0.swap(0, Ordering::Relaxed);
        let mut polling = pin!(endpoint.keep_polling());
        assert!(polling.as_mut().poll(&mut cx).is_pending());
        assert_eq!(wakes(), 0, "there is no reason yet");
        // Messages that came a second ago: it has looked for long enough.
        let came = || endpoint.lock().polling.came(Timestamp(1));
        came();
        came();
        assert_eq!(wakes(), 1);
        // Messages are found, then none, and then it sleeps. Without a runtime each turn wakes it.
        for expected in [1, 1, 0, 0] {
            assert!(polling.as_mut().poll(&mut cx).is_pending());
            assert_eq!(wakes(), expected);
        }
        came();
        assert_eq!(wakes(), 1, "there is a reason again");
    }
}

//! What a node's cores and a client have in common: machines, links and timers behind one lock. A node
//! has an endpoint for each of its cores, which that core's thread alone uses but for statistics.
//!
//! A task that has something for the machines, such as a connection's reader or a transaction's task, takes the
//! lock, hands it over, and leaves the effects in the links' buffers. No queue and no other task lies
//! between. The lock is never held across a system call.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::task::Waker;

use serried_actor::{NodeSet, Random, Timestamp};
use serried_model::NodeId;
use serried_session::Alarms;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;

use crate::clock::{Clock, Moment};
use crate::durable::Batch;
use crate::flusher::Flushing;
use crate::frame::{BadFrame, Frame, Kind};
use crate::handshake::KnownData;
use crate::links::{Cut, LinkId, Links};
use crate::machine::{Machine, Outbox};
use crate::obstacles::Obstacles;
use crate::out_buffer::{Messages, OutBuffer, Route};
use crate::shards::{Found, Shards, replica};
use crate::status::{Behind, NotVoting};
use crate::watch::{WatchReply, Watcher};
use crate::{NodeStatus, TransportOptions};

/// An endpoint: what its tasks share.
pub(crate) struct Endpoint {
    /// Who it is: a client, or a node.
    pub(crate) id: NodeId,
    pub(crate) clock: Clock,
    pub(crate) transport: TransportOptions,
    core: Mutex<Core>,
    closed: watch::Sender<bool>,
    census: OnceLock<Census>,
}

/// Tells how a node is doing, while the node is there.
pub(crate) type Census = Box<dyn Fn() -> Option<NodeStatus> + Send + Sync>;

/// The part of an endpoint that is behind its lock.
pub(crate) struct Core {
    pub(crate) links: Links,
    pub(crate) alarms: Alarms,
    pub(crate) random: Random,
    pub(crate) shards: Shards,
    pub(crate) flushing: Flushing,
    /// By shard at a node, which has those of one core; by keyspace at a client, which has those that it
    /// uses.
    machines: Vec<Option<Box<dyn Machine>>>,
    /// When each machine's next timer is due, [`NEVER`] if none is.
    timers: Vec<Timestamp>,
    alarm: WakeUp,
    /// Requests for nodes' statuses that have not been answered.
    pub(crate) requests: HashMap<u64, oneshot::Sender<NodeStatus>>,
    pub(crate) next_request: u64,
    /// Where the answers go to requests for what nodes observe.
    pub(crate) watches: HashMap<u64, mpsc::UnboundedSender<WatchReply>>,
    /// Whoever is told what is observed here.
    watcher: Watcher,
    /// Nodes that can't write, at a client.
    pub(crate) obstacles: Obstacles,
    /// The node's number, if this is a node's: nodes answer requests, which clients make.
    home: Option<usize>,
}

const NEVER: Timestamp = Timestamp(u64::MAX);

/// The timer task, and when it means to wake up.
#[derive(Default)]
struct WakeUp {
    at: Option<Timestamp>,
    waker: Option<Waker>,
}

/// What is left to do for a frame once the lock has been let go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handled {
    Done,
    /// The other end wants the node's status.
    StatusWanted(u64),
}

impl Endpoint {
    pub(crate) fn new(id: NodeId, transport: TransportOptions, random: Random) -> Endpoint {
        let core = Core {
            links: Links::new(),
            alarms: Alarms::default(),
            random,
            shards: Shards::default(),
            flushing: Flushing::new(),
            machines: Vec::new(),
            timers: Vec::new(),
            alarm: WakeUp::default(),
            requests: HashMap::new(),
            next_request: 0,
            watches: HashMap::new(),
            watcher: Watcher::default(),
            obstacles: Obstacles::default(),
            home: (!id.is_coordinator()).then(|| id.member()),
        };
        Endpoint {
            id,
            clock: Clock::start(transport.clock_uncertainty()),
            transport,
            core: Mutex::new(core),
            closed: watch::Sender::new(false),
            census: OnceLock::new(),
        }
    }

    /// Says what requests for the node's status are answered with.
    pub(crate) fn set_census(&self, census: Census) {
        let _ = self.census.set(census);
    }

    /// How the node is doing of which this is a part.
    pub(crate) fn status(&self) -> Option<NodeStatus> {
        self.census.get().and_then(|census| census())
    }

    /// # Panics
    /// If a machine has panicked: an endpoint whose invariants are broken does nothing more.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("the endpoint stopped when one of its machines panicked")
    }

    /// Locks the core to read from it. `None` if the core has panicked.
    pub(crate) fn look(&self) -> Option<MutexGuard<'_, Core>> {
        self.core.lock().ok()
    }

    /// Whether it still does anything.
    pub(crate) fn is_sound(&self) -> bool {
        !self.core.is_poisoned()
    }

    /// Has every connection flushed and closed, and no new one opened.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
        if self.is_sound() {
            self.lock().links.close_all();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits until it is being closed.
    pub(crate) async fn closed(&self) {
        let mut closed = self.closed.subscribe();
        // The sender lives as long as `self`.
        let _ = closed.wait_for(|closed| *closed).await;
    }

    /// Installs a machine and starts it: that of a shard at a node, of a keyspace at a client.
    pub(crate) fn install(&self, place: u16, machine: Box<dyn Machine>) {
        let moment = self.clock.moment();
        let mut core = self.lock();
        let slot = usize::from(place);
        if core.machines.len() <= slot {
            core.machines.resize_with(slot + 1, || None);
            core.timers.resize(slot + 1, NEVER);
        }
        core.machines[slot] = Some(machine);
        core.run(slot, |machine, out| machine.start(moment, out));
        core.settle(moment);
    }

    /// Tells the machines that the node is about to stop.
    pub(crate) fn prepare_to_stop(&self) {
        let moment = self.clock.moment();
        let mut core = self.lock();
        for place in 0..core.machines.len() {
            core.run(place, |machine, out| machine.prepare_to_stop(moment, out));
        }
        core.settle(moment);
    }

    /// Whether all machines may stop now.
    pub(crate) fn may_stop(&self) -> bool {
        self.lock().machines.iter().flatten().all(|machine| machine.may_stop())
    }

    /// Has a coordinator handle the operations that `submit` puts down at its desk.
    pub(crate) fn operate(&self, keyspace: u16, submit: impl FnOnce()) {
        let moment = self.clock.moment();
        let mut core = self.lock();
        submit();
        core.run(usize::from(keyspace), |machine, out| machine.on_operations(moment, out));
        core.settle(moment);
    }

    /// Sends heartbeats and gives up connections that have none, for as long as it is polled.
    pub(crate) async fn keep_beating(&self) {
        let mut beats = tokio::time::interval(self.transport.heartbeat());
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            self.lock().links.beat(self.transport.silent_beats());
        }
    }

    /// Fires timers and alarms when they are due, for as long as it is polled.
    pub(crate) async fn keep_time(&self) {
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

impl Core {
    /// Runs `act` on the machine in slot `place`. `None` if there is none.
    fn run<T>(
        &mut self,
        place: usize,
        act: impl FnOnce(&mut dyn Machine, &mut Outbox<'_>) -> T,
    ) -> Option<T> {
        let Core { machines, links, timers, flushing, watcher, .. } = self;
        let machine = machines.get_mut(place)?.as_mut()?;
        let watch = watcher.of(place);
        let done = act(machine.as_mut(), &mut Outbox { links, flushing, watch });
        timers[place] = machine.next_timer().unwrap_or(NEVER);
        Some(done)
    }

    /// Does what a frame says.
    pub(crate) fn on_frame(
        &mut self,
        from: NodeId,
        link: LinkId,
        frame: Frame<'_>,
        moment: Moment,
    ) -> Result<Handled, BadFrame> {
        let Frame { kind, payload } = frame;
        match kind {
            Kind::Batch => self.on_batch(from, link, payload, moment)?,
            Kind::Ping => self.links.push_frame(link, Kind::Pong, &[]),
            Kind::Pong => {}
            Kind::StatusRequest if self.home.is_some() => {
                return Ok(Handled::StatusWanted(decode(kind, payload)?));
            }
            Kind::StatusReply if self.home.is_none() => {
                let (request, status) = decode(kind, payload)?;
                if let Some(reply) = self.requests.remove(&request) {
                    // Nobody waits any more where the receiver is gone.
                    let _ = reply.send(status);
                }
            }
            Kind::WatchRequest if self.home.is_some() => {
                let (request, wanted) = decode(kind, payload)?;
                let Core { watcher, shards, links, .. } = self;
                watcher.begin((link, request), wanted, shards, moment.now, links);
            }
            Kind::WatchEnd if self.home.is_some() => {
                let request = decode(kind, payload)?;
                self.watcher.end((link, request), moment.now, &mut self.links);
            }
            Kind::WatchReply if self.home.is_none() => {
                let (request, reply) = decode(kind, payload)?;
                if let Some(watch) = self.watches.get(&request) {
                    // Nobody watches any more where the receiver is gone.
                    let _ = watch.send(reply);
                }
            }
            Kind::Obstacle if self.home.is_none() => {
                self.obstacles.set(link, from, decode(kind, payload)?);
            }
            Kind::Known if self.home.is_none() => {
                let known: KnownData = decode(kind, payload)?;
                for (member, number) in known.into_iter().take(NodeSet::CAPACITY) {
                    self.links.meet_data(usize::from(member), number);
                }
            }
            _ => return Err(BadFrame::Unexpected(kind)),
        }
        Ok(Handled::Done)
    }

    /// A connection has ended.
    pub(crate) fn lose(&mut self, link: LinkId) {
        self.links.remove(link);
        self.watcher.lost(link);
        self.obstacles.lost(link);
    }

    /// A link to a client or to a node has its connection.
    pub(crate) fn connected(&mut self, link: LinkId) -> oneshot::Receiver<Cut> {
        let cuts = self.links.connected(link);
        if let Some(obstacle) = &self.flushing.obstacle {
            self.links.push_frame_to_client(link, Kind::Obstacle, &encode(&Some(obstacle)));
        }
        cuts
    }

    /// The log can't be written for this reason, or it can again: clients are told.
    pub(crate) fn set_obstacle(&mut self, obstacle: Option<String>) {
        if self.flushing.obstacle != obstacle {
            self.links.push_frame_to_clients(Kind::Obstacle, &encode(&obstacle));
            self.flushing.obstacle = obstacle;
        }
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
            let sender = match from.is_coordinator() {
                true => Some(from),
                false => replica(route.from, from.member()),
            };
            match sender {
                Some(sender) => {
                    self.on_message(sender, route, message, moment).map_err(malformed)?
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
        message: &[u8],
        moment: Moment,
    ) -> Result<(), String> {
        self.links.counters.messages_received += 1;
        let Some(Found { keyspace, shard }) = self.shards.locate(route) else {
            self.refuse(from, route);
            return Ok(());
        };
        let place = if self.home.is_some() { shard } else { keyspace };
        let handle = |machine: &mut dyn Machine, out: &mut Outbox<'_>| {
            machine.on_message(from, message, moment, out)
        };
        match (self.run(usize::from(place), handle), self.home) {
            (Some(handled), _) => handled.map_err(|error| error.to_string())?,
            // The sender takes this node to have another number of cores.
            (None, Some(home)) => self.links.forward(from, home, route, message),
            // A client is not asked about keyspaces that it does not use.
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

    /// Takes what another core of this node, or this one, has sent: each message begins with its
    /// sender.
    pub(crate) fn on_internal(&mut self, buffer: &OutBuffer, moment: Moment) {
        for payload in buffer.payloads() {
            for (route, message) in Messages::new(payload) {
                let (from, message) =
                    message.split_first_chunk().expect("it begins with its sender");
                let from = NodeId(u64::from_le_bytes(*from));
                // What came from outside is another's mistake, and was forwarded unread.
                if let Err(reason) = self.on_message(from, route, message, moment) {
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

    /// Begins a flush: its number, and what it is to write.
    pub(crate) fn begin_flush(&mut self) -> (u64, Vec<Box<dyn Batch>>) {
        let machines = self.machines.iter_mut().flatten();
        let batches = machines.filter_map(|machine| machine.take_batch()).collect();
        (self.flushing.begin(), batches)
    }

    /// A flush has ended: what waits for it leaves, and who awaits it is told.
    pub(crate) fn end_flush(&mut self, number: u64, moment: Moment) {
        self.links.release(number);
        for place in 0..self.machines.len() {
            self.run(place, |machine, out| machine.on_flushed(number, moment, out));
        }
        self.settle(moment);
    }

    /// The machine of a shard, if it is here.
    pub(crate) fn machine(&self, shard: u16) -> Option<&dyn Machine> {
        self.machines.get(usize::from(shard))?.as_deref()
    }

    /// The partitions of this core that do not take part fully.
    pub(crate) fn behind(&self, now: Timestamp) -> Option<Behind> {
        let machines = self.machines.iter().flatten();
        let behind = machines.filter_map(|machine| {
            let (standing, since) = machine.standing(self.links.flushed());
            Behind::of(standing, now.since(since))
        });
        behind.reduce(Behind::plus)
    }

    /// The partitions of this core that vote on nothing yet, when the clock says `now_us`.
    pub(crate) fn not_voting(&self, now_us: u64) -> Option<NotVoting> {
        let machines = self.machines.iter().flatten();
        let not_voting = machines.filter_map(|machine| NotVoting::of(&machine.gauges(), now_us));
        not_voting.reduce(NotVoting::plus)
    }

    /// Whether any machine appends to a log.
    pub(crate) fn is_durable(&self) -> bool {
        self.machines.iter().flatten().any(|machine| machine.is_durable())
    }

    /// After machines or alarms have been at work: fires what is due, and has the timer task wake up
    /// in time for the rest.
    pub(crate) fn settle(&mut self, moment: Moment) {
        let Some(mut due) = self.next_due() else { return };
        if due <= moment.now {
            self.fire(moment);
            let Some(next) = self.next_due() else { return };
            due = next;
        }
        self.wake_by(due);
    }

    /// Has the timer task wake up at `due`, unless it means to wake up earlier.
    pub(crate) fn wake_by(&mut self, due: Timestamp) {
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
                self.run(place, |machine, out| machine.fire_timers(moment, out));
            }
        }
        self.watcher.advance(moment.now, &mut self.links);
        self.alarms.ring(moment.now);
    }

    fn next_due(&self) -> Option<Timestamp> {
        let timer = self.timers.iter().min().copied().filter(|due| *due < NEVER);
        let others = self.alarms.next().into_iter().chain(self.watcher.due());
        timer.into_iter().chain(others).min()
    }
}

/// Reads what a frame other than a batch holds.
pub(crate) fn decode<T: serde::de::DeserializeOwned>(
    kind: Kind,
    payload: &[u8],
) -> Result<T, BadFrame> {
    match postcard::take_from_bytes(payload) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(BadFrame::Payload(kind, format!("{} bytes too many", rest.len()))),
        Err(error) => Err(BadFrame::Payload(kind, error.to_string())),
    }
}

/// Writes what a frame other than a batch holds.
pub(crate) fn encode(value: &impl serde::Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("encoding fails only for types without a length")
}

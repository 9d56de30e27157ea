//! What a node and a client have in common: machines, links and timers behind one lock.
//!
//! Whoever has something for the machines, a connection's reader or a transaction's task, takes the
//! lock, hands it over, and leaves the effects in the links' buffers; no queue and no other task lies
//! between. The lock is never held across a system call.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;

use serried_actor::{Random, Timestamp};
use serried_model::{NodeId, Operation, TxnId};
use serried_session::Switchboard;
use tokio::sync::{oneshot, watch};

use crate::clock::{Clock, Moment};
use crate::frame::{BadFrame, Frame, Kind};
use crate::links::{LinkId, Links};
use crate::machine::{Machine, Outbox};
use crate::out_buffer::Messages;
use crate::{NodeStatistics, TransportOptions};

/// An endpoint: what its tasks share.
pub(crate) struct Endpoint {
    /// Who it is.
    pub(crate) id: NodeId,
    pub(crate) clock: Clock,
    pub(crate) transport: TransportOptions,
    core: Mutex<Core>,
    closed: watch::Sender<bool>,
}

/// The part of an endpoint that is behind its lock.
pub(crate) struct Core {
    pub(crate) links: Links,
    pub(crate) switchboard: Switchboard,
    pub(crate) random: Random,
    /// By keyspace; a client has those that it uses.
    machines: Vec<Option<Box<dyn Machine>>>,
    alarm: WakeUp,
    /// Requests for statistics that have not been answered.
    pub(crate) requests: HashMap<u64, oneshot::Sender<NodeStatistics>>,
    pub(crate) next_request: u64,
    /// Whether it answers requests, as a node does, or makes them.
    serves: bool,
}

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
    /// The other end wants the node's statistics.
    StatisticsWanted(u64),
}

impl Endpoint {
    pub(crate) fn new(
        id: NodeId,
        transport: TransportOptions,
        capacity: usize,
        random: Random,
    ) -> Endpoint {
        let core = Core {
            links: Links::new(),
            switchboard: Switchboard::new(capacity),
            random,
            machines: Vec::new(),
            alarm: WakeUp::default(),
            requests: HashMap::new(),
            next_request: 0,
            serves: !id.is_coordinator(),
        };
        Endpoint {
            id,
            clock: Clock::start(transport.clock_uncertainty()),
            transport,
            core: Mutex::new(core),
            closed: watch::Sender::new(false),
        }
    }

    /// # Panics
    /// If a machine has panicked: an endpoint whose invariants are broken does nothing more.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("the endpoint stopped when one of its machines panicked")
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

    /// Installs a keyspace's machine and starts it.
    pub(crate) fn install(&self, keyspace: u16, machine: Box<dyn Machine>) {
        let moment = self.clock.moment();
        let mut core = self.lock();
        let slot = usize::from(keyspace);
        if core.machines.len() <= slot {
            core.machines.resize_with(slot + 1, || None);
        }
        core.machines[slot] = Some(machine);
        core.run(keyspace, |machine, out| machine.start(moment, out));
        core.settle(moment);
    }

    /// Passes operations to a coordinator.
    pub(crate) fn submit(&self, keyspace: u16, txn: TxnId, operations: &mut Vec<Operation>) {
        let moment = self.clock.moment();
        let mut core = self.lock();
        core.run(keyspace, |machine, out| {
            for operation in operations.drain(..) {
                machine.on_operation(txn, operation, moment, out);
            }
        });
        core.settle(moment);
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
    fn run(&mut self, keyspace: u16, act: impl FnOnce(&mut dyn Machine, &mut Outbox<'_>)) {
        let Core { machines, links, switchboard, .. } = self;
        if let Some(Some(machine)) = machines.get_mut(usize::from(keyspace)) {
            act(machine.as_mut(), &mut Outbox { keyspace, links, switchboard });
        }
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
            Kind::StatisticsRequest if self.serves => {
                return Ok(Handled::StatisticsWanted(decode(kind, payload)?));
            }
            Kind::StatisticsReply if !self.serves => {
                let (request, statistics) = decode(kind, payload)?;
                if let Some(reply) = self.requests.remove(&request) {
                    // Nobody waits any more where the receiver is gone.
                    let _ = reply.send(statistics);
                }
            }
            _ => return Err(BadFrame::Unexpected(kind)),
        }
        Ok(Handled::Done)
    }

    fn on_batch(
        &mut self,
        from: NodeId,
        link: LinkId,
        payload: &[u8],
        moment: Moment,
    ) -> Result<(), BadFrame> {
        if from.is_coordinator() {
            self.links.route(from, link);
        }
        let malformed = |reason: String| BadFrame::Payload(Kind::Batch, reason);
        let Core { machines, links, switchboard, .. } = self;
        let mut messages = Messages::new(payload);
        for (keyspace, message) in &mut messages {
            links.counters.messages_received += 1;
            match machines.get_mut(usize::from(keyspace)) {
                Some(Some(machine)) => {
                    let mut out = Outbox { keyspace, links, switchboard };
                    let handled = machine.on_message(from, message, moment, &mut out);
                    handled.map_err(|error| malformed(error.to_string()))?;
                }
                _ if self.serves => return Err(malformed(format!("no keyspace {keyspace}"))),
                // A client is not asked about keyspaces that it does not use.
                _ => {}
            }
        }
        match messages.is_exhausted() {
            true => Ok(()),
            false => Err(malformed("it ends in the middle of a message".to_string())),
        }
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
        let Core { machines, links, switchboard, .. } = self;
        for (keyspace, machine) in machines.iter_mut().enumerate() {
            let Some(machine) = machine else { continue };
            if machine.next_timer().is_some_and(|at| at <= moment.now) {
                let keyspace = keyspace as u16;
                machine.fire_timers(moment, &mut Outbox { keyspace, links, switchboard });
            }
        }
        self.switchboard.ring(moment.now);
    }

    fn next_due(&mut self) -> Option<Timestamp> {
        let timers = self.machines.iter_mut().flatten().filter_map(|machine| machine.next_timer());
        timers.chain(self.switchboard.next_alarm()).min()
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

//! An endpoint's connections, as far as senders are concerned.
//!
//! A channel of messages for each connection would allocate for each message and copy it. Here a sender encodes its
//! message straight behind what else waits for the same receiver ([`OutBuffer`]), and the connection's writer takes the
//! whole buffer at once.

mod beat;
mod burden;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use foldhash::fast::FixedState;
use serried_actor::{Encoded, NodeSet, Placement, Wire};
use serried_model::NodeId;
use slab::Slab;

pub use self::beat::Cut;
use self::beat::Pulse;
use self::burden::Burden;
use crate::frame::Kind;
use crate::out_buffer::{OutBuffer, PREFIX_BYTES, Route};
use crate::shards::{core_of, replica};
use crate::statistics::Statistics;

/// How many times a writer that has something to send yields to other tasks that are ready, so that what they produce
/// leaves in the same flush. Measured with Morty at 64 clients: 0.095 flushes a transaction with 1 or 2, 0.2 with 0; on
/// a runtime with two threads 0.12, and 1.2 with 0.
const PATIENCE: u8 = 1;
/// A writer with this many bytes does not yield.
const FULL_FLUSH_BYTES: usize = 64 << 10;

/// How much room is kept for encoding messages to several receivers.
const SCRATCH_BYTES: usize = 1 << 20;

/// Names a link for as long as it exists; a later link in the same place has another name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkId {
    slot: usize,
    generation: u64,
}

/// The other end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// A client.
    Client(NodeId),
    /// A core of a node, as far as this endpoint distinguishes them.
    Core {
        /// The node.
        member: usize,
        /// Which of its cores.
        core: usize,
    },
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Client(client) => client.fmt(f),
            End::Core { member, core: 0 } => write!(f, "n{member}"),
            End::Core { member, core } => write!(f, "core {core} of n{member}"),
        }
    }
}

/// What a sent message needs besides its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// The sender.
    pub(crate) from: NodeId,
    /// The number of its keyspace.
    pub(crate) keyspace: u64,
    /// Where the replicas of its keyspace are.
    pub(crate) placement: Placement,
    /// It leaves once this flush is done; 0 for at once.
    pub(crate) after: u64,
}

/// How to open a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// The other end.
    pub end: End,
    /// Whether messages to that end take this link from now on; otherwise they do once it has sent
    /// messages over it.
    pub route: bool,
    /// Whether it stays in this process; messages then begin with their sender.
    pub internal: bool,
    /// How long frames are held back, to emulate a distance.
    pub delay: Duration,
    /// The longest payload that the other end accepts, in bytes.
    pub frame_bytes: usize,
    /// Messages are dropped while more bytes than this wait.
    pub most_waiting_bytes: usize,
}

struct Link {
    generation: u64,
    options: LinkOptions,
    buffer: OutBuffer,
    /// What waits for flushes of logs, with the numbers of these.
    held: VecDeque<(u64, OutBuffer)>,
    held_bytes: usize,
    /// Bytes that the writer has taken and not yet written.
    in_flight: usize,
    /// What the reader keeps of a frame that has not come whole, in bytes.
    reading: usize,
    /// How much this end kept for it when that was last measured, in bytes.
    weighed: usize,
    /// The writer, while it waits for something to write.
    writer: Option<Waker>,
    /// A reader that waits for the writer to catch up.
    reader: Option<Waker>,
    connected: bool,
    pulse: Pulse,
    /// Write what is there, then end.
    closing: bool,
    dropping: bool,
}

/// What is known of a node that messages are sent to.
#[derive(Clone, Default)]
struct Node {
    /// By core: the link to it.
    cores: Vec<Option<usize>>,
    /// By a keyspace's number: the place of its first partition among those of the node. It determines which core serves a
    /// partition.
    firsts: HashMap<u64, u16, FixedState>,
}

/// All links, and which of them leads to which client or core.
pub struct Links {
    slots: Slab<Link>,
    clients: HashMap<NodeId, usize, FixedState>,
    /// By member.
    nodes: Vec<Node>,
    /// The last flush that is done.
    flushed: u64,
    generation: u64,
    closing: bool,
    scratch: Encoded,
    burden: Burden,
    /// What this endpoint has counted.
    pub counters: Statistics,
}

impl Default for Links {
    fn default() -> Self {
        Links::new()
    }
}

impl Links {
    /// No links.
    pub fn new() -> Links {
        Links {
            slots: Slab::new(),
            clients: HashMap::default(),
            nodes: Vec::new(),
            flushed: 0,
            generation: 0,
            closing: false,
            scratch: Encoded::default(),
            burden: Burden::default(),
            counters: Statistics::default(),
        }
    }

    /// How many links have a connection.
    pub fn connections(&self) -> usize {
        self.slots.iter().filter(|(_, link)| link.connected).count()
    }

    /// Sets how many cores node `member` has and where the partitions of its keyspaces begin. Links to cores that it does not
    /// have any more are not used.
    pub fn set_cores(
        &mut self,
        member: usize,
        cores: usize,
        firsts: impl IntoIterator<Item = (u64, u16)>,
    ) {
        let node = self.node(member);
        node.cores.resize(cores.max(1), None);
        node.firsts = firsts.into_iter().collect();
    }

    fn node(&mut self, member: usize) -> &mut Node {
        if self.nodes.len() <= member {
            self.nodes.resize(member + 1, Node::default());
        }
        &mut self.nodes[member]
    }

    /// Opens a link.
    pub fn open(&mut self, options: LinkOptions) -> LinkId {
        self.generation += 1;
        let slot = self.slots.insert(Link {
            generation: self.generation,
            options,
            buffer: OutBuffer::default(),
            held: VecDeque::new(),
            held_bytes: 0,
            in_flight: 0,
            reading: 0,
            weighed: 0,
            writer: None,
            reader: None,
            connected: false,
            pulse: Pulse::default(),
            closing: self.closing,
            dropping: false,
        });
        if options.route || !self.leads_to(options.end) {
            self.set_route(options.end, slot);
        }
        LinkId { slot, generation: self.generation }
    }

    /// The other end of an open link has been met: how far it is, and what it accepts.
    pub fn adjust(&mut self, id: LinkId, delay: Duration, frame_bytes: usize) {
        if let Some(link) = self.find(id) {
            link.options.delay = delay;
            link.options.frame_bytes = frame_bytes;
        }
    }

    /// Messages to the other end of this link take it from now on.
    pub(crate) fn route(&mut self, id: LinkId) {
        if let Some(end) = self.find(id).map(|link| link.options.end) {
            self.set_route(end, id.slot);
        }
    }

    /// Whether there is a link that leads to `end`.
    pub fn leads_to(&self, end: End) -> bool {
        match end {
            End::Client(client) => self.clients.contains_key(&client),
            End::Core { member, core } => {
                self.nodes.get(member).and_then(|node| *node.cores.get(core)?).is_some()
            }
        }
    }

    fn set_route(&mut self, end: End, slot: usize) {
        match end {
            End::Client(client) => {
                self.clients.insert(client, slot);
            }
            End::Core { member, core } => {
                let cores = &mut self.node(member).cores;
                let known = cores.len();
                cores.resize(known.max(core + 1), None);
                cores[core] = Some(slot);
            }
        }
    }

    /// Removes a link with all that waits on it.
    pub fn remove(&mut self, id: LinkId) {
        if self.find(id).is_none() {
            return;
        }
        let link = self.slots.remove(id.slot);
        self.unload(&link);
        match link.options.end {
            End::Client(client) if self.clients.get(&client) == Some(&id.slot) => {
                self.clients.remove(&client);
            }
            End::Client(_) => {}
            End::Core { member, .. } => {
                let node = self.nodes.get_mut(member);
                for route in node.into_iter().flat_map(|node| &mut node.cores) {
                    *route = route.filter(|slot| *slot != id.slot);
                }
            }
        }
        link.writer.into_iter().chain(link.reader).for_each(Waker::wake);
    }

    /// Ends every link once what waits on it is written; one that is opened later ends at once.
    pub(crate) fn close_all(&mut self) {
        self.closing = true;
        for (_, link) in &mut self.slots {
            link.closing = true;
            link.writer.take().into_iter().chain(link.reader.take()).for_each(Waker::wake);
        }
    }

    /// Sends a message, encoded right behind what else waits for its receiver.
    pub(crate) fn send(&mut self, sending: Sending, to: NodeId, message: &impl Wire) {
        self.push(sending, to, |out| message.encode_into(out));
    }

    /// Sends a message to several replicas of a partition, encoded once.
    pub(crate) fn broadcast(
        &mut self,
        sending: Sending,
        partition: u16,
        members: NodeSet,
        message: &impl Wire,
    ) {
        if members.is_empty() {
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        message.encode_into(&mut scratch);
        for member in members.members() {
            // A message from outside may have named a partition that can't exist.
            match replica(partition, member) {
                Some(to) => self.push(sending, to, |out| out.append(&scratch)),
                None => self.counters.messages_dropped += 1,
            }
        }
        scratch.clear(SCRATCH_BYTES);
        self.scratch = scratch;
    }

    /// Passes a message on to the core of this node that serves its receiver, which is at `place` among the partitions
    /// of the keyspace here.
    pub(crate) fn forward(
        &mut self,
        from: NodeId,
        (home, place): (usize, u16),
        route: Route,
        message: &[u8],
    ) {
        let slot = self.slot_of_core(home, route.keyspace, place);
        self.push_to(slot, from, route, 0, |out| out.extend_from_slice(message));
    }

    fn push(&mut self, sending: Sending, to: NodeId, encode: impl FnOnce(&mut Encoded)) {
        let Sending { from, keyspace, placement, after } = sending;
        if to.is_coordinator() {
            let slot = self.clients.get(&to).copied();
            let own = if from.is_coordinator() { 0 } else { from.partition() };
            self.push_to(slot, from, Route { keyspace, to: own, from: own }, after, encode);
        } else {
            let partition = to.partition();
            let (node, place) = (placement.host(to), placement.local(partition));
            let slot = self.slot_of_core(node, keyspace, place);
            let own = if from.is_coordinator() { partition } else { from.partition() };
            let route = Route { keyspace, to: partition, from: own };
            self.push_to(slot, from, route, after, encode);
        }
    }

    /// The link to the core that serves the partition at `place` among those of a keyspace at a node. If the node has
    /// not said where the keyspace is, the link to any core, which passes messages on.
    fn slot_of_core(&self, member: usize, keyspace: u64, place: u16) -> Option<usize> {
        let Node { cores, firsts } = self.nodes.get(member)?;
        if cores.len() == 1 {
            return cores[0];
        }
        let first = firsts.get(&keyspace).copied().unwrap_or_default();
        *cores.get(core_of(first.wrapping_add(place), cores.len().max(1)))?
    }

    fn push_to(
        &mut self,
        slot: Option<usize>,
        from: NodeId,
        route: Route,
        after: u64,
        encode: impl FnOnce(&mut Encoded),
    ) {
        let Some(link) = slot.and_then(|slot| self.slots.get_mut(slot)) else {
            self.counters.messages_dropped += 1;
            return;
        };
        let end = link.options.end;
        let most = link.options.most_waiting_bytes;
        if link.waiting() > most {
            if link.is_client() && link.unread() > most {
                link.pulse.cut(Cut::Unread { most });
            }
            self.counters.messages_dropped += 1;
            if !link.dropping {
                link.dropping = true;
                tracing::warn!(node = %end, waiting_bytes = link.waiting(), "dropping messages: the receiver does not keep up");
            }
            return;
        }
        let (limit, internal) = (link.options.frame_bytes, link.options.internal);
        let holds = after > self.flushed;
        let buffer = if holds { link.held_until(after) } else { &mut link.buffer };
        let before = buffer.len();
        let pushed = buffer.push_message(route, limit, |out| {
            out.copy_values(internal);
            if internal {
                out.extend_from_slice(&from.0.to_le_bytes());
            }
            encode(out);
        });
        let grown = buffer.len() - before;
        match pushed {
            Ok(_) => self.counters.messages_sent += 1,
            Err(too_long) => {
                self.counters.messages_dropped += 1;
                let limit = limit - PREFIX_BYTES;
                tracing::error!(node = %end, bytes = too_long.bytes, limit, "dropping a message that is too long for a frame");
            }
        }
        match holds {
            true => link.held_bytes += grown,
            false => link.wake_writer(),
        }
    }

    /// All flushes up to this one are done: what waited for them may leave.
    pub fn release(&mut self, flush: u64) {
        self.flushed = flush;
        for (_, link) in &mut self.slots {
            while let Some((_, held)) = link.held.front_mut().filter(|(after, _)| *after <= flush) {
                link.held_bytes -= held.len();
                link.buffer.append(held);
                link.held.pop_front();
                link.wake_writer();
            }
        }
    }

    /// The last flush that is done.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// How many bytes wait for flushes, and how many for writers.
    pub fn waiting_bytes(&self) -> (usize, usize) {
        self.slots.iter().fold((0, 0), |(held, ready), (_, link)| {
            (held + link.held_bytes, ready + link.buffer.len() + link.in_flight)
        })
    }

    /// Sends a frame over a link, unless too much waits there.
    pub fn push_frame(&mut self, id: LinkId, kind: Kind, payload: &[u8]) {
        let Some(link) = self.find(id) else { return };
        let most = link.options.most_waiting_bytes;
        if link.unread() <= most {
            link.buffer.push_frame(kind, payload);
            link.wake_writer();
        } else if link.is_client() {
            self.cut(id, Cut::Unread { most });
        }
    }

    /// The same, if a connected client is at the other end.
    pub fn push_frame_to_client(&mut self, id: LinkId, kind: Kind, payload: &[u8]) {
        let to_client =
            |link: &mut Link| matches!(link.options.end, End::Client(_)) && link.connected;
        if self.find(id).is_some_and(to_client) {
            self.push_frame(id, kind, payload);
        }
    }

    /// Sends a frame to all connected clients.
    pub fn push_frame_to_clients(&mut self, kind: Kind, payload: &[u8]) {
        let ids: Vec<LinkId> = self
            .slots
            .iter()
            .map(|(slot, link)| LinkId { slot, generation: link.generation })
            .collect();
        for id in ids {
            self.push_frame_to_client(id, kind, payload);
        }
    }

    /// Sends a frame to all clients, also over links that are yet to be connected.
    pub fn tell_clients(&mut self, kind: Kind, payload: &[u8]) {
        for (_, link) in self.slots.iter_mut().filter(|(_, link)| link.is_client()) {
            link.buffer.push_frame(kind, payload);
            link.wake_writer();
        }
    }

    /// Whether there is a connection to a node.
    pub fn reaches(&self, member: usize) -> bool {
        let slots = self.nodes.get(member).into_iter().flat_map(|node| node.cores.iter().flatten());
        slots.into_iter().any(|slot| self.slots.get(*slot).is_some_and(|link| link.connected))
    }

    /// How many cores a node has, if there are links to all of them.
    pub fn connected_cores(&self, member: usize) -> Option<usize> {
        let cores = &self.nodes.get(member)?.cores;
        cores.iter().all(Option::is_some).then_some(cores.len())
    }

    /// Sends a frame to a core of a node; whether there is a link to it.
    pub fn push_frame_to(
        &mut self,
        member: usize,
        core: usize,
        kind: Kind,
        payload: &[u8],
    ) -> bool {
        let slot = self.nodes.get(member).and_then(|node| *node.cores.get(core)?);
        let Some(link) = slot.and_then(|slot| self.slots.get_mut(slot)) else { return false };
        link.buffer.push_frame(kind, payload);
        link.wake_writer();
        true
    }

    /// Ready once at most `bytes` wait on a link, or it has ended.
    pub(crate) fn poll_drained(
        &mut self,
        id: LinkId,
        bytes: usize,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        match self.find(id) {
            Some(link) if link.waiting() > bytes && !link.closing => {
                link.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Whether more than `bytes` wait on a link.
    pub fn is_behind(&mut self, id: LinkId, bytes: usize) -> bool {
        self.find(id).is_some_and(|link| link.waiting() > bytes)
    }

    /// Whether more than `bytes` wait on a link, or more than half of what may wait there before frames are dropped and a client
    /// is disconnected. For frames that are not worth that.
    pub fn is_crowded(&mut self, id: LinkId, bytes: usize) -> bool {
        self.find(id)
            .is_some_and(|link| link.waiting() > bytes.min(link.options.most_waiting_bytes / 2))
    }

    /// The other end of an open link.
    pub fn end(&mut self, id: LinkId) -> Option<End> {
        self.find(id).map(|link| link.options.end)
    }

    /// Ready once something waits on a link; with `false` if it has ended instead.
    pub fn poll_waiting(&mut self, id: LinkId, cx: &mut Context<'_>) -> Poll<bool> {
        match self.find(id) {
            None => Poll::Ready(false),
            Some(link) if link.closing => Poll::Ready(false),
            Some(link) if link.buffer.is_empty() => {
                link.wait_for_something(cx);
                Poll::Pending
            }
            Some(_) => Poll::Ready(true),
        }
    }

    /// For a link's writer: exchanges what waits for `spare`, which is empty, once everything else
    /// that is ready has run. `patience` is the writer's, from 0. Ready with the delay of what was
    /// taken, or with `None` at the end.
    pub fn poll_take(
        &mut self,
        id: LinkId,
        spare: &mut OutBuffer,
        patience: &mut u8,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Duration>> {
        debug_assert!(spare.is_empty());
        let Some(link) = self.find(id) else { return Poll::Ready(None) };
        if link.buffer.is_empty() {
            *patience = 0;
            if link.closing && link.held.is_empty() {
                return Poll::Ready(None);
            }
            link.wait_for_something(cx);
            return Poll::Pending;
        }
        if *patience < PATIENCE && link.buffer.len() < FULL_FLUSH_BYTES {
            *patience += 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        *patience = 0;
        std::mem::swap(&mut link.buffer, spare);
        link.in_flight += spare.len();
        link.pulse.sent = true;
        Poll::Ready(Some(link.options.delay))
    }

    /// For a link's writer: `bytes` of what it took have been written.
    pub(crate) fn written(&mut self, id: LinkId, bytes: usize) {
        self.counters.flushes += 1;
        self.counters.bytes_sent += bytes as u64;
        self.delivered(id, bytes);
    }

    /// The same for a link within the process, where nothing is written.
    pub fn delivered(&mut self, id: LinkId, bytes: usize) {
        if let Some(link) = self.find(id) {
            link.in_flight -= bytes;
            link.dropping &= link.in_flight > 0;
            if let Some(reader) = link.reader.take() {
                link.pulse.sign();
                reader.wake();
            }
        }
        self.weigh(id);
    }

    fn find(&mut self, id: LinkId) -> Option<&mut Link> {
        self.slots.get_mut(id.slot).filter(|link| link.generation == id.generation)
    }
}

impl Link {
    fn waiting(&self) -> usize {
        self.buffer.len() + self.held_bytes + self.in_flight
    }

    /// Where a message goes that may leave after this flush: together with others that wait for it, or
    /// for a later one.
    fn held_until(&mut self, flush: u64) -> &mut OutBuffer {
        if self.held.back().is_none_or(|(after, _)| *after < flush) {
            self.held.push_back((flush, OutBuffer::default()));
        }
        let (_, buffer) = self.held.back_mut().expect("there is one now");
        buffer
    }

    /// Wakes the writer when there is something for it.
    fn wait_for_something(&mut self, cx: &Context<'_>) {
        match &mut self.writer {
            Some(writer) => writer.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}

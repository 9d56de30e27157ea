//! An endpoint's connections, as far as they concern those who send.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use foldhash::fast::FixedState;
use serried_actor::{NodeSet, Wire};
use serried_model::NodeId;
use slab::Slab;

use crate::Statistics;
use crate::frame::Kind;
use crate::out_buffer::{OutBuffer, PREFIX_BYTES};

/// How often a writer that has something to send lets everything else that is ready run first, so
/// that what those produce leaves in the same flush. Measured with Morty at 64 clients: 0.095 flushes
/// a transaction with 1 or 2, 0.2 with 0; on a runtime with two threads 0.12, and 1.2 with 0.
const PATIENCE: u8 = 1;
/// A writer with this many bytes waits for nothing.
const FULL_FLUSH_BYTES: usize = 64 << 10;

/// Names a link for as long as it exists; a later link in the same place has another name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkId {
    slot: usize,
    generation: u64,
}

/// How to open a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkOptions {
    /// Who is at the other end.
    pub(crate) node: NodeId,
    /// Whether messages to `node` take this link from now on; otherwise they do once it has sent
    /// messages over it.
    pub(crate) route: bool,
    /// How long frames are held back, to emulate a distance.
    pub(crate) delay: Duration,
    /// The longest payload that the other end accepts, in bytes.
    pub(crate) frame_bytes: usize,
    /// Messages are dropped while more bytes than this wait.
    pub(crate) most_waiting_bytes: usize,
}

struct Link {
    generation: u64,
    options: LinkOptions,
    buffer: OutBuffer,
    /// Bytes that the writer has taken and not yet written.
    in_flight: usize,
    /// The writer, while it waits for something to write.
    writer: Option<Waker>,
    /// A reader that waits for the writer to catch up.
    reader: Option<Waker>,
    connected: bool,
    /// Write what is there, then end.
    closing: bool,
    dropping: bool,
}

/// All links, and which of them leads to whom.
pub(crate) struct Links {
    slots: Slab<Link>,
    routes: HashMap<NodeId, usize, FixedState>,
    generation: u64,
    closing: bool,
    scratch: Vec<u8>,
    pub(crate) counters: Statistics,
}

impl Links {
    pub(crate) fn new() -> Links {
        Links {
            slots: Slab::new(),
            routes: HashMap::default(),
            generation: 0,
            closing: false,
            scratch: Vec::new(),
            counters: Statistics::default(),
        }
    }

    /// How many links have a connection.
    pub(crate) fn connections(&self) -> usize {
        self.slots.iter().filter(|(_, link)| link.connected).count()
    }

    /// Opens a link.
    pub(crate) fn open(&mut self, options: LinkOptions) -> LinkId {
        self.generation += 1;
        let slot = self.slots.insert(Link {
            generation: self.generation,
            options,
            buffer: OutBuffer::default(),
            in_flight: 0,
            writer: None,
            reader: None,
            connected: false,
            closing: self.closing,
            dropping: false,
        });
        if options.route {
            self.routes.insert(options.node, slot);
        }
        LinkId { slot, generation: self.generation }
    }

    /// The other end of an open link has been met: how far it is, and what it accepts.
    pub(crate) fn adjust(&mut self, id: LinkId, delay: Duration, frame_bytes: usize) {
        if let Some(link) = self.find(id) {
            link.options.delay = delay;
            link.options.frame_bytes = frame_bytes;
        }
    }

    /// A link has a connection from now on, until it is removed.
    pub(crate) fn connected(&mut self, id: LinkId) {
        if let Some(link) = self.find(id) {
            link.connected = true;
        }
    }

    /// Messages to `node` take this link from now on.
    pub(crate) fn route(&mut self, node: NodeId, id: LinkId) {
        if self.find(id).is_some() {
            self.routes.insert(node, id.slot);
        }
    }

    /// Whether there is a link that leads to `node`.
    pub(crate) fn leads_to(&self, node: NodeId) -> bool {
        self.routes.contains_key(&node)
    }

    /// Removes a link with all that waits on it.
    pub(crate) fn remove(&mut self, id: LinkId) {
        if self.find(id).is_none() {
            return;
        }
        let link = self.slots.remove(id.slot);
        if self.routes.get(&link.options.node) == Some(&id.slot) {
            self.routes.remove(&link.options.node);
        }
        link.writer.into_iter().chain(link.reader).for_each(Waker::wake);
    }

    /// Has every link write what waits on it, and end; one that is opened later ends at once.
    pub(crate) fn close_all(&mut self) {
        self.closing = true;
        for (_, link) in &mut self.slots {
            link.closing = true;
            link.writer.take().into_iter().chain(link.reader.take()).for_each(Waker::wake);
        }
    }

    /// Sends a message to `node`, encoded right behind what else waits for it.
    pub(crate) fn send(&mut self, keyspace: u16, node: NodeId, message: &impl Wire) {
        self.push(keyspace, node, |out| message.encode(out));
    }

    /// Sends a message to several replicas, encoded once.
    pub(crate) fn broadcast(&mut self, keyspace: u16, nodes: NodeSet, message: &impl Wire) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        message.encode(&mut scratch);
        for member in nodes.members() {
            let node = NodeId::replica(0, member);
            self.push(keyspace, node, |out| out.extend_from_slice(&scratch));
        }
        self.scratch = scratch;
    }

    fn push(&mut self, keyspace: u16, node: NodeId, encode: impl FnOnce(&mut Vec<u8>)) {
        let link = self.routes.get(&node).and_then(|slot| self.slots.get_mut(*slot));
        let Some(link) = link else {
            self.counters.messages_dropped += 1;
            return;
        };
        if link.waiting() > link.options.most_waiting_bytes {
            self.counters.messages_dropped += 1;
            if !link.dropping {
                link.dropping = true;
                tracing::warn!(%node, waiting_bytes = link.waiting(), "dropping messages: the receiver does not keep up");
            }
            return;
        }
        match link.buffer.push_message(keyspace, link.options.frame_bytes, encode) {
            Ok(_) => self.counters.messages_sent += 1,
            Err(too_long) => {
                self.counters.messages_dropped += 1;
                let limit = link.options.frame_bytes - PREFIX_BYTES;
                tracing::error!(%node, bytes = too_long.bytes, limit, "dropping a message that is too long for a frame");
            }
        }
        link.wake_writer();
    }

    /// Sends a frame over a link.
    pub(crate) fn push_frame(&mut self, id: LinkId, kind: Kind, payload: &[u8]) {
        if let Some(link) = self.find(id) {
            link.buffer.push_frame(kind, payload);
            link.wake_writer();
        }
    }

    /// Sends a frame to `node`; whether there is a link to it.
    pub(crate) fn push_frame_to(&mut self, node: NodeId, kind: Kind, payload: &[u8]) -> bool {
        let link = self.routes.get(&node).and_then(|slot| self.slots.get_mut(*slot));
        let Some(link) = link else { return false };
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
    pub(crate) fn is_behind(&mut self, id: LinkId, bytes: usize) -> bool {
        self.find(id).is_some_and(|link| link.waiting() > bytes)
    }

    /// Ready once something waits on a link; with `false` if it has ended instead.
    pub(crate) fn poll_waiting(&mut self, id: LinkId, cx: &mut Context<'_>) -> Poll<bool> {
        match self.find(id) {
            None => Poll::Ready(false),
            Some(link) if link.closing => Poll::Ready(false),
            Some(link) if link.buffer.is_empty() => {
                link.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(_) => Poll::Ready(true),
        }
    }

    /// For a link's writer: exchanges what waits for `spare`, which is empty, once everything else
    /// that is ready has run. `patience` is the writer's, from 0. Ready with the delay of what was
    /// taken, or with `None` at the end.
    pub(crate) fn poll_take(
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
            if link.closing {
                return Poll::Ready(None);
            }
            match &mut link.writer {
                Some(writer) => writer.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
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
        Poll::Ready(Some(link.options.delay))
    }

    /// For a link's writer: `bytes` of what it took have been written, at one go.
    pub(crate) fn written(&mut self, id: LinkId, bytes: usize) {
        self.counters.flushes += 1;
        self.counters.bytes_sent += bytes as u64;
        if let Some(link) = self.find(id) {
            link.in_flight -= bytes;
            link.dropping &= link.in_flight > 0;
            if let Some(reader) = link.reader.take() {
                reader.wake();
            }
        }
    }

    fn find(&mut self, id: LinkId) -> Option<&mut Link> {
        self.slots.get_mut(id.slot).filter(|link| link.generation == id.generation)
    }
}

impl Link {
    fn waiting(&self) -> usize {
        self.buffer.len() + self.in_flight
    }

    fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);

    fn options() -> LinkOptions {
        LinkOptions {
            node: NODE,
            route: true,
            delay: Duration::ZERO,
            frame_bytes: 1000,
            most_waiting_bytes: 100,
        }
    }

    fn take(links: &mut Links, id: LinkId) -> Option<OutBuffer> {
        let (mut spare, mut patience) = (OutBuffer::default(), PATIENCE);
        let mut cx = Context::from_waker(Waker::noop());
        match links.poll_take(id, &mut spare, &mut patience, &mut cx) {
            Poll::Ready(Some(_)) => Some(spare),
            _ => None,
        }
    }

    #[test]
    fn messages_beyond_the_mark_are_dropped_until_the_writer_has_caught_up() {
        let mut links = Links::new();
        let id = links.open(options());
        for _ in 0..10 {
            links.send(0, NODE, &vec![7u8; 50]);
        }
        assert_eq!((links.counters.messages_sent, links.counters.messages_dropped), (2, 8));
        let taken = take(&mut links, id).unwrap();
        links.send(0, NODE, &vec![7u8; 50]);
        assert_eq!(links.counters.messages_dropped, 9, "what is in flight counts");
        links.written(id, taken.len());
        links.send(0, NODE, &vec![7u8; 50]);
        assert_eq!((links.counters.messages_sent, links.counters.messages_dropped), (3, 9));
    }

    #[test]
    fn messages_take_the_link_on_which_a_node_spoke_last() {
        let mut links = Links::new();
        let first = links.open(options());
        let second = links.open(LinkOptions { route: false, ..options() });
        links.send(0, NODE, &1u8);
        assert!(take(&mut links, first).is_some() && take(&mut links, second).is_none());
        links.route(NODE, second);
        links.send(0, NODE, &1u8);
        assert!(take(&mut links, first).is_none() && take(&mut links, second).is_some());
        links.remove(first);
        assert!(links.leads_to(NODE), "the removed link was not the one in use");
        links.remove(second);
        assert!(!links.leads_to(NODE));
        links.send(0, NODE, &1u8);
        assert_eq!(links.counters.messages_dropped, 1);
    }

    #[test]
    fn a_reader_waits_until_its_writer_has_caught_up() {
        let mut links = Links::new();
        let id = links.open(options());
        let mut cx = Context::from_waker(Waker::noop());
        links.send(0, NODE, &vec![7u8; 50]);
        assert!(links.is_behind(id, 20) && !links.is_behind(id, 1000));
        assert!(links.poll_drained(id, 20, &mut cx).is_pending());
        let taken = take(&mut links, id).unwrap();
        assert!(links.poll_drained(id, 20, &mut cx).is_pending(), "what is in flight counts");
        links.written(id, taken.len());
        assert!(links.poll_drained(id, 20, &mut cx).is_ready());
    }

    #[test]
    fn a_closing_link_ends_once_everything_is_taken() {
        let mut links = Links::new();
        let id = links.open(options());
        links.send(0, NODE, &1u8);
        links.close_all();
        assert!(take(&mut links, id).is_some());
        let (mut spare, mut patience) = (OutBuffer::default(), 0);
        let mut cx = Context::from_waker(Waker::noop());
        let ended = links.poll_take(id, &mut spare, &mut patience, &mut cx);
        assert_eq!(ended, Poll::Ready(None));
        let late = links.open(options());
        assert_eq!(links.poll_waiting(late, &mut cx), Poll::Ready(false));
    }

    #[test]
    fn a_writer_lets_what_is_ready_run_before_it_takes_anything() {
        let mut links = Links::new();
        let id = links.open(options());
        let (mut spare, mut patience) = (OutBuffer::default(), 0);
        let mut cx = Context::from_waker(Waker::noop());
        links.send(0, NODE, &1u8);
        assert!(links.poll_take(id, &mut spare, &mut patience, &mut cx).is_pending());
        links.send(0, NODE, &2u8);
        assert!(links.poll_take(id, &mut spare, &mut patience, &mut cx).is_ready());
        assert!(!spare.is_empty() && take(&mut links, id).is_none());
    }

    #[test]
    fn a_link_in_a_place_used_before_is_another_link() {
        let mut links = Links::new();
        let old = links.open(options());
        links.remove(old);
        let new = links.open(options());
        links.remove(old);
        links.send(0, NODE, &1u8);
        assert!(take(&mut links, old).is_none() && take(&mut links, new).is_some());
    }
}

//! Heartbeats: how an endpoint notices that a connection has no other end any more.
//!
//! A machine that dies or is cut off closes nothing, and a process that is stopped keeps its connections open. So each
//! endpoint looks at all of its links at a steady beat. Over a link on which it has sent nothing or heard nothing since the
//! last beat it sends a ping, which the other end answers. A link on which no byte has come for several beats is cut.
//!
//! - Each end sends something at every beat, even if the other end asks for nothing, so a long frame on a slow connection
//!   never looks like silence: its bytes are a sign too.
//! - Beats are counted, and no times are compared. An endpoint that was stopped itself therefore does not blame the others
//!   when it comes back: for all the beats that it has missed it counts one.
//! - Where an endpoint does not read, because too much waits on the link, it can't hear anything either. There what the
//!   other end takes is a sign. That includes pings, so a connection is not cut because of what waits for this end's disk.
//!
//! There is one timer for each endpoint, none for a message or a connection.

use tokio::sync::oneshot;

use super::{End, LinkId, Links};
use crate::frame::Kind;

/// Why a connection is given up at this end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Cut {
    /// Nothing has come for so many heartbeats.
    #[error("the other end has been silent for {0} heartbeats")]
    Silent(u32),
    /// Another process of the same node has taken its place.
    #[error("another process of the same node has connected, and this one did not answer")]
    Replaced,
    /// Its data does not count any more.
    #[error("the node's data was replaced, so it is connected to anew")]
    Disowned,
    /// Too much waits for the other end.
    #[error("the other end has left more than {most} bytes unread")]
    Unread {
        /// The most that may, in bytes.
        most: usize,
    },
    /// All clients together make this end keep too much, and this one most of it.
    #[error(
        "clients make this end keep more than {most} bytes, {bytes} of them for this one, the most of all"
    )]
    Heaviest {
        /// What is kept for this one, in bytes.
        bytes: usize,
        /// The most that may be kept for all, in bytes.
        most: usize,
    },
}

/// What is known of the other end of a link.
#[derive(Default)]
pub(super) struct Pulse {
    /// How many signs of it there have been.
    signs: u64,
    /// How many there had been at the last beat.
    seen: u64,
    /// How many beats have passed since without one.
    silent: u32,
    /// Whether something was sent since the last beat.
    pub(super) sent: bool,
    /// Ends the connection.
    cut: Option<oneshot::Sender<Cut>>,
    given_up: Option<Cut>,
}

impl Pulse {
    /// There is a sign of the other end.
    pub(super) fn sign(&mut self) {
        self.signs += 1;
    }

    pub(super) fn cut(&mut self, why: Cut) {
        self.given_up.get_or_insert(why);
        // The connection may be ending by itself, or not have begun.
        let _ = self.cut.take().map(|cut| cut.send(why));
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.is_some()
    }
}

impl Links {
    /// A link has a connection from now on, until it is removed. What is returned says when the connection is to be given
    /// up.
    pub(crate) fn connected(&mut self, id: LinkId) -> oneshot::Receiver<Cut> {
        let (cut, cuts) = oneshot::channel();
        if let Some(link) = self.find(id) {
            link.connected = true;
            link.pulse.cut = Some(cut);
            if let Some(why) = link.pulse.given_up {
                self.cut(id, why);
            }
        }
        cuts
    }

    /// Bytes have come; those of a frame that is not finished take so many in memory.
    pub fn heard(&mut self, id: LinkId, reading: usize) {
        if let Some(link) = self.find(id) {
            link.pulse.sign();
            link.reading = reading;
        }
        self.weigh(id);
    }

    /// Some of the bytes that a writer took have been written, and more follow.
    pub(crate) fn progressed(&mut self, id: LinkId) {
        if let Some(link) = self.find(id)
            && link.reader.is_some()
        {
            link.pulse.sign();
        }
    }

    /// How many signs there have been of the other end; `None` if the link is gone, or is being given up.
    pub fn signs(&mut self, id: LinkId) -> Option<u64> {
        let pulse = &self.find(id)?.pulse;
        (!pulse.is_given_up()).then_some(pulse.signs)
    }

    /// Gives a link's connection up.
    pub fn cut(&mut self, id: LinkId, why: Cut) {
        if let Some(link) = self.find(id) {
            link.pulse.cut(why);
        }
    }

    /// Why a link is given up, if it is. Nothing more that it brings is taken.
    pub fn given_up(&mut self, id: LinkId) -> Option<Cut> {
        self.find(id)?.pulse.given_up
    }

    /// Gives up all connections with a node, because its data was replaced.
    pub fn cut_node(&mut self, node: usize) {
        for (_, link) in &mut self.slots {
            if matches!(link.options.end, End::Core { member, .. } if member == node && !link.options.internal)
            {
                link.pulse.cut(Cut::Disowned);
            }
        }
    }

    /// One beat: sends pings where nothing else is sent or heard, and cuts links that have been silent for `patience` beats.
    pub(crate) fn beat(&mut self, patience: u32) {
        let (mut silent, mut clients) = (Vec::new(), Vec::new());
        for (slot, link) in self.slots.iter_mut().filter(|(_, link)| link.connected) {
            let id = LinkId { slot, generation: link.generation };
            clients.extend(link.is_client().then_some(id));
            let pulse = &mut link.pulse;
            pulse.silent = if pulse.signs > pulse.seen { 0 } else { pulse.silent + 1 };
            pulse.seen = pulse.signs;
            let quiet = !std::mem::take(&mut pulse.sent) || pulse.silent > 0;
            if pulse.silent >= patience {
                silent.push(id);
            } else if quiet && link.buffer.is_empty() {
                link.buffer.push_frame(Kind::Ping, &[]);
                link.wake_writer();
            }
        }
        silent.into_iter().for_each(|id| self.cut(id, Cut::Silent(patience)));
        clients.into_iter().for_each(|id| self.weigh(id));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serried_model::NodeId;

    use super::super::{LinkOptions, Sending};
    use super::*;
    use crate::out_buffer::OutBuffer;

    const PATIENCE: u32 = 3;

    const OPTIONS: LinkOptions = LinkOptions {
        end: End::Core { member: 1, core: 0 },
        route: true,
        internal: false,
        delay: Duration::ZERO,
        frame_bytes: 1000,
        most_waiting_bytes: 1000,
    };

    fn open(links: &mut Links) -> (LinkId, oneshot::Receiver<Cut>) {
        let id = links.open(OPTIONS);
        let cuts = links.connected(id);
        (id, cuts)
    }

    /// Writes what waits: how many bytes that was.
    fn write(links: &mut Links, id: LinkId) -> usize {
        let (mut spare, mut patience) = (OutBuffer::default(), super::super::PATIENCE);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = links.poll_take(id, &mut spare, &mut patience, &mut cx);
        links.written(id, spare.len());
        spare.len()
    }

    #[test]
    fn a_link_on_which_nothing_comes_is_cut_and_one_on_which_anything_comes_is_not() {
        let mut links = Links::new();
        let (id, mut cuts) = open(&mut links);
        for _ in 0..10 {
            (1..PATIENCE).for_each(|_| links.beat(PATIENCE));
            links.heard(id, 0);
        }
        assert!(cuts.try_recv().is_err());
        (0..PATIENCE).for_each(|_| links.beat(PATIENCE));
        assert!(cuts.try_recv().is_err(), "it was heard before the first of these");
        links.beat(PATIENCE);
        assert_eq!(cuts.try_recv(), Ok(Cut::Silent(PATIENCE)));
        assert_eq!(links.signs(id), None, "nothing waits for a link that is given up");
    }

    #[test]
    fn each_end_sends_something_at_every_beat_and_nothing_while_something_waits() {
        let mut links = Links::new();
        let (id, _cuts) = open(&mut links);
        for _ in 0..5 {
            links.heard(id, 0);
            links.beat(PATIENCE);
            let ping = write(&mut links, id);
            assert_eq!(ping, crate::frame::HEADER_BYTES, "though it has heard enough itself");
            links.heard(id, 0);
            links.push_frame(id, Kind::Obstacle, &[]);
            write(&mut links, id);
            links.beat(PATIENCE);
            assert_eq!(write(&mut links, id), 0, "something was sent and heard");
        }
        links.beat(PATIENCE);
        links.beat(PATIENCE);
        assert_eq!(write(&mut links, id), crate::frame::HEADER_BYTES, "one ping waits, not two");
    }

    #[test]
    fn where_nothing_is_read_what_the_other_end_takes_is_a_sign() {
        let mut links = Links::new();
        let (id, mut cuts) = open(&mut links);
        links.push_frame(id, Kind::Obstacle, &[0; 100]);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(links.poll_drained(id, 50, &mut cx).is_pending());
        for _ in 0..10 {
            links.progressed(id);
            links.beat(PATIENCE);
        }
        assert!(cuts.try_recv().is_err());
        (0..PATIENCE).for_each(|_| links.beat(PATIENCE));
        assert_eq!(cuts.try_recv(), Ok(Cut::Silent(PATIENCE)));
    }

    #[test]
    fn no_link_is_cut_for_what_waits_for_this_ends_disk() {
        let mut links = Links::new();
        let (id, mut cuts) = open(&mut links);
        let sending = Sending { from: NodeId(0), keyspace: 7, placement: 1.into(), after: 9 };
        links.send(sending, NodeId(1), &vec![7u8; 100]);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..10 {
            assert!(links.poll_drained(id, 50, &mut cx).is_pending());
            links.beat(PATIENCE);
            write(&mut links, id);
        }
        assert!(cuts.try_recv().is_err());
    }

    #[test]
    fn a_link_that_is_given_up_before_it_has_its_connection_never_has_one() {
        let mut links = Links::new();
        let id = links.open(OPTIONS);
        links.cut_node(2);
        assert_eq!(links.given_up(id), None);
        links.cut_node(1);
        links.cut(id, Cut::Replaced);
        assert_eq!(links.given_up(id), Some(Cut::Disowned), "the first reason stays");
        let mut cuts = links.connected(id);
        assert_eq!(cuts.try_recv(), Ok(Cut::Disowned));
    }
}

//! What clients make this end keep in memory, and the bounds of it.
//!
//! A client may announce a long frame and never finish it, and may ask for much and read nothing. Each can make this end keep
//! a frame and [`LinkOptions::most_waiting_bytes`](super::LinkOptions) of output; a client that leaves more than that unread is
//! cut. All clients of an endpoint together have a bound too. If they exceed it, the one is cut for which most is kept. What
//! waits for a flush is not the client's doing, and does not count.
//!
//! Other nodes are not cut: messages to one that does not keep up are dropped, as are other frames.

use super::{Cut, End, Link, LinkId, Links};

/// What is kept for clients.
pub(super) struct Burden {
    /// In bytes, as they were last measured for each link.
    total: usize,
    most: usize,
}

impl Default for Burden {
    fn default() -> Self {
        Burden { total: 0, most: usize::MAX }
    }
}

impl Link {
    /// What is kept in memory until its client does its part, in bytes.
    fn burden(&self) -> usize {
        self.reading + self.unread()
    }

    /// What the other end could have read, in bytes.
    pub(super) fn unread(&self) -> usize {
        self.buffer.len() + self.in_flight
    }

    pub(super) fn is_client(&self) -> bool {
        matches!(self.options.end, End::Client(_))
    }
}

impl Links {
    /// Sets how much is kept for all clients together, in bytes.
    pub fn set_most_for_clients(&mut self, most: usize) {
        self.burden.most = most;
    }

    /// Notes how much a client's link makes this end keep. Cuts that of the client for which most is kept while that is too
    /// much for all together.
    pub(super) fn weigh(&mut self, id: LinkId) {
        let Some(link) = self.find(id).filter(|link| link.is_client()) else { return };
        let now = link.burden();
        let before = std::mem::replace(&mut link.weighed, now);
        self.burden.total = self.burden.total + now - before;
        if self.burden.total > self.burden.most {
            self.cut_heaviest();
        }
    }

    /// A link is gone.
    pub(super) fn unload(&mut self, link: &Link) {
        self.burden.total -= link.weighed;
    }

    fn cut_heaviest(&mut self) {
        let uncut = self.slots.iter().filter(|(_, link)| !link.pulse.is_given_up());
        let Some((slot, link)) = uncut.max_by_key(|(_, link)| link.weighed) else { return };
        // Those that are cut already are about to go, and are enough.
        let going = self.slots.iter().filter(|(_, link)| link.pulse.is_given_up());
        let going: usize = going.map(|(_, link)| link.weighed).sum();
        if self.burden.total - going > self.burden.most {
            let id = LinkId { slot, generation: link.generation };
            let why = Cut::Heaviest { bytes: link.weighed, most: self.burden.most };
            self.cut(id, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serried_model::NodeId;
    use tokio::sync::oneshot;

    use super::super::{LinkOptions, Sending};
    use super::*;
    use crate::frame::Kind;

    fn client(links: &mut Links, i: u64) -> (LinkId, oneshot::Receiver<Cut>) {
        let id = links.open(LinkOptions {
            end: End::Client(NodeId(NodeId::FIRST_COORDINATOR + i)),
            route: true,
            internal: false,
            delay: Duration::ZERO,
            frame_bytes: 1000,
            most_waiting_bytes: 1000,
        });
        let cuts = links.connected(id);
        (id, cuts)
    }

    #[test]
    fn the_client_for_which_most_is_kept_is_cut_when_all_have_too_much() {
        let mut links = Links::new();
        links.set_most_for_clients(1000);
        let mut clients: Vec<_> = (0..4).map(|i| client(&mut links, i)).collect();
        for ((id, _), reading) in clients.iter().zip([300, 350, 200, 100]) {
            links.heard(*id, reading);
        }
        assert!(clients.iter_mut().all(|(_, cuts)| cuts.try_recv().is_err()));
        links.heard(clients[3].0, 200);
        let why = Cut::Heaviest { bytes: 350, most: 1000 };
        let cuts: Vec<_> = clients.iter_mut().map(|(_, cuts)| cuts.try_recv().ok()).collect();
        assert_eq!(cuts, [None, Some(why), None, None]);
        links.heard(clients[3].0, 500);
        assert!(clients[3].1.try_recv().is_err(), "the one that is cut is about to go");
        links.remove(clients[1].0);
        links.heard(clients[3].0, 600);
        assert!(clients[3].1.try_recv().is_ok());
    }

    #[test]
    fn what_was_kept_for_a_client_that_has_gone_counts_no_more() {
        let mut links = Links::new();
        links.set_most_for_clients(1000);
        for i in 0..10 {
            let (id, mut cuts) = client(&mut links, i);
            links.heard(id, 900);
            assert!(cuts.try_recv().is_err(), "client {i} is alone");
            links.remove(id);
        }
    }

    #[test]
    fn a_client_that_reads_nothing_is_cut_and_one_that_waits_for_a_disk_is_not() {
        let mut links = Links::new();
        let (id, mut cuts) = client(&mut links, 0);
        let sending = Sending { from: NodeId(0), keyspace: 7, placement: 1.into(), after: 9 };
        let to = NodeId(NodeId::FIRST_COORDINATOR);
        (0..100).for_each(|_| links.send(sending, to, &vec![7u8; 50]));
        assert!(cuts.try_recv().is_err());
        (0..100).for_each(|_| links.push_frame(id, Kind::Pong, &[]));
        assert!(matches!(cuts.try_recv(), Ok(Cut::Unread { most: 1000 })));
        assert!(links.waiting_bytes().1 < 1100, "nothing is added to it");
    }
}

//! What only a client's endpoint has: its requests to nodes, its alarms, and what nodes report to it.

use std::collections::{BTreeMap, HashMap};

use serried_actor::{NodeSet, Timestamp};
use serried_model::NodeId;
use serried_session::Alarms;
use serried_wire::{
    BadFrame, Core, Endpoint, Frame, Kind, KnownData, LinkId, Links, Moment, NodeStatus, Side,
    WatchReply, Welcome, decode,
};
use tokio::sync::{mpsc, oneshot};

use crate::coordinator::ErasedCoordinator;
use crate::obstacles::Obstacles;

/// The client's side of an endpoint.
#[derive(Default)]
pub(crate) struct ClientSide {
    pub(crate) alarms: Alarms,
    /// Requests for nodes' statuses that have not been answered.
    pub(crate) requests: HashMap<u64, oneshot::Sender<NodeStatus>>,
    /// Where the answers go to requests for what nodes observe.
    pub(crate) watches: HashMap<u64, mpsc::UnboundedSender<WatchReply>>,
    /// Nodes that can't write.
    pub(crate) obstacles: Obstacles,
    newest: NewestData,
    last_request: u64,
}

impl ClientSide {
    /// A number that no request has had.
    pub(crate) fn next_request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    /// Notes which data a node has, and which data it says that others have. Returns whether its own data counts.
    /// All links to a node are to the newest data that is known, since others are cut when it becomes known.
    pub(crate) fn meet(&mut self, welcome: &Welcome, links: &mut Links) -> bool {
        for (member, number) in &welcome.known {
            self.newest.meet(usize::from(*member), *number, links);
        }
        let member = welcome.node.member();
        let provenance = welcome.provenance;
        provenance.is_none_or(|has| self.newest.meet(member, has.incarnation, links))
    }
}

impl Side for ClientSide {
    type Actor = dyn ErasedCoordinator;
    type Outside = ();
    type Deferred = core::convert::Infallible;

    fn home(&self) -> Option<usize> {
        None
    }

    fn on_frame(
        core: &mut Core<Self>,
        from: NodeId,
        link: LinkId,
        Frame { kind, payload, .. }: Frame<'_>,
        _: Moment,
    ) -> Result<Option<Self::Deferred>, BadFrame> {
        let Core { side, links, .. } = core;
        match kind {
            Kind::StatusReply => {
                let (request, status) = decode(kind, payload)?;
                if let Some(reply) = side.requests.remove(&request) {
                    // The task that has asked may be gone.
                    let _ = reply.send(status);
                }
            }
            Kind::WatchReply => {
                let (request, reply) = decode(kind, payload)?;
                if let Some(watch) = side.watches.get(&request) {
                    // The task that watches may be gone.
                    let _ = watch.send(reply);
                }
            }
            Kind::Obstacle => side.obstacles.set(link, from, decode(kind, payload)?),
            Kind::Known => {
                let known: KnownData = decode(kind, payload)?;
                for (member, number) in known.into_iter().take(NodeSet::CAPACITY) {
                    side.newest.meet(usize::from(member), number, links);
                }
            }
            _ => return Err(BadFrame::Unexpected(kind)),
        }
        Ok(None)
    }

    /// A client defers nothing.
    fn answer(_: &Endpoint<Self>, _: LinkId, _: Vec<Self::Deferred>) {}

    fn lost(&mut self, link: LinkId) {
        self.obstacles.lost(link);
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.alarms.next()
    }

    fn advance(&mut self, now: Timestamp, _: &mut Links) {
        self.alarms.ring(now);
    }
}

/// By member: the number of the newest data that it is known to have.
#[derive(Default)]
struct NewestData(BTreeMap<usize, u64>);

impl NewestData {
    /// Notes which data a node has, by its number. If it had other data before, the connections with older data are given
    /// up. Returns whether it is as new as what is known.
    fn meet(&mut self, member: usize, number: u64, links: &mut Links) -> bool {
        match self.0.insert(member, number) {
            Some(known) if known > number => {
                self.0.insert(member, known);
                return false;
            }
            Some(known) if known < number => links.cut_node(member),
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serried_wire::{Cut, End, LinkOptions};

    use super::*;

    #[test]
    fn older_data_is_refused_however_often_it_comes_and_newer_data_cuts_it() {
        let (mut links, mut newest) = (Links::new(), NewestData::default());
        let link = links.open(LinkOptions {
            end: End::Core { member: 1, core: 0 },
            route: true,
            internal: false,
            delay: Duration::ZERO,
            frame_bytes: 1000,
            most_waiting_bytes: 1000,
        });
        assert!(newest.meet(1, 5, &mut links) && newest.meet(1, 5, &mut links));
        for _ in 0..3 {
            assert!(!newest.meet(1, 4, &mut links));
        }
        assert!(newest.meet(2, 9, &mut links), "that is another node");
        assert_eq!(links.given_up(link), None);
        assert!(newest.meet(1, 6, &mut links));
        assert_eq!(links.given_up(link), Some(Cut::Disowned));
        assert!(!newest.meet(1, 5, &mut links));
    }
}

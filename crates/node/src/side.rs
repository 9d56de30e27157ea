//! What only the endpoints of nodes have: flushes of logs, and the clients that watch and record.

use std::sync::OnceLock;

use serried_actor::{Observation, Timestamp};
use serried_model::NodeId;
use serried_wire::{
    BadFrame, Core, Endpoint, Frame, Kind, LinkId, Links, Moment, NodeStatus, Side, decode, encode,
};

use crate::flusher::Flushing;
use crate::recorder::Recorder;
use crate::replica::ErasedReplica;
use crate::watch::Watcher;

/// A node's side of an endpoint.
pub(crate) struct NodeSide {
    pub(crate) flushing: Flushing,
    /// The client that watches this core, if there is one.
    watcher: Watcher,
    /// The client that records what clients do, if there is one.
    recorder: Recorder,
    /// The node's number.
    home: usize,
}

impl NodeSide {
    /// That of a core of the node with this number.
    pub(crate) fn new(home: usize) -> NodeSide {
        let (watcher, recorder) = (Watcher::default(), Recorder::default());
        NodeSide { flushing: Flushing::new(), watcher, recorder, home }
    }

    /// Notes that the log can't be written for this reason, or that it can again, and informs clients.
    pub(crate) fn set_obstacle(&mut self, obstacle: Option<String>, links: &mut Links) {
        if self.flushing.obstacle != obstacle {
            links.push_frame_to_clients(Kind::Obstacle, &encode(&obstacle));
            self.flushing.obstacle = obstacle;
        }
    }
}

/// Reports the status of the node, while the node is there.
type Census = Box<dyn Fn() -> Option<NodeStatus> + Send + Sync>;

/// What answers requests for the node's status. It locks the cores itself.
#[derive(Default)]
pub(crate) struct StatusDesk(OnceLock<Census>);

impl StatusDesk {
    /// Sets what requests for the node's status are answered with.
    pub(crate) fn set(&self, census: Census) {
        let _ = self.0.set(census);
    }

    fn status(&self) -> Option<NodeStatus> {
        self.0.get().and_then(|census| census())
    }
}

impl Side for NodeSide {
    type Actor = dyn ErasedReplica;
    type Outside = StatusDesk;
    /// The number of a request for the node's status.
    type Deferred = u64;

    fn home(&self) -> Option<usize> {
        Some(self.home)
    }

    fn observations(&mut self, place: usize) -> Option<&mut Vec<Observation>> {
        self.watcher.of(place).map(|watch| &mut watch.observations)
    }

    fn observed(&mut self, place: usize, id: NodeId, now: Timestamp, links: &mut Links) {
        if let Some(watch) = self.watcher.of(place) {
            watch.take(id, now, links);
        }
    }

    fn on_frame(
        core: &mut Core<Self>,
        from: NodeId,
        link: LinkId,
        Frame { kind, payload, .. }: Frame<'_>,
        Moment { now, .. }: Moment,
    ) -> Result<Option<u64>, BadFrame> {
        let Core { side, links, shards, .. } = core;
        match kind {
            Kind::StatusRequest => return Ok(Some(decode(kind, payload)?)),
            Kind::WatchRequest => {
                let (request, wanted) = decode(kind, payload)?;
                side.watcher.begin((link, request), wanted, shards, now, links);
            }
            Kind::WatchEnd => {
                let request = decode(kind, payload)?;
                side.watcher.end((link, request), now, links);
            }
            Kind::RecordRequest => {
                let (request, wanted) = decode(kind, payload)?;
                side.recorder.begin((link, request), &wanted, shards, now, links);
            }
            Kind::RecordEnd => side.recorder.end((link, decode(kind, payload)?), now, links),
            Kind::Report => side.recorder.take(from, payload, now, links)?,
            _ => return Err(BadFrame::Unexpected(kind)),
        }
        Ok(None)
    }

    fn answer(endpoint: &Endpoint<Self>, link: LinkId, requests: Vec<u64>) {
        let Some(status) = endpoint.outside.status() else { return };
        let mut core = endpoint.lock();
        for request in requests {
            core.links.push_frame(link, Kind::StatusReply, &encode(&(request, &status)));
        }
    }

    fn connected(&mut self, link: LinkId, links: &mut Links) {
        if let Some(obstacle) = &self.flushing.obstacle {
            links.push_frame_to_client(link, Kind::Obstacle, &encode(&Some(obstacle)));
        }
        self.recorder.connected(link);
    }

    fn lost(&mut self, link: LinkId) {
        self.watcher.lost(link);
        self.recorder.lost(link);
    }

    fn next_due(&self) -> Option<Timestamp> {
        [self.watcher.due(), self.recorder.due()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Timestamp, links: &mut Links) {
        self.watcher.advance(now, links);
        self.recorder.advance(now, links);
    }
}

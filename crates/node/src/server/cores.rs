//! The cores of a node, as the others reach them.

use std::sync::{Arc, MutexGuard};

use rand::SeedableRng;
use serried_actor::Random;
use serried_model::NodeId;
use serried_wire::{Clock, Core, Endpoint, OutBuffer, Shards, TransportOptions};
use tokio::sync::mpsc;

use super::connections::Arrival;
use crate::configuration::NodeConfiguration;
use crate::internal;
use crate::side::NodeSide;

/// All cores of a node.
pub(crate) struct Cores(Vec<Seat>);

/// One core.
struct Seat {
    endpoint: Arc<Endpoint<NodeSide>>,
    inbox: mpsc::Sender<OutBuffer>,
    arrivals: mpsc::UnboundedSender<Arrival>,
}

/// What a core's thread receives from the other cores.
pub(super) struct Received {
    /// Messages.
    pub(super) inbox: mpsc::Receiver<OutBuffer>,
    /// Connections.
    pub(super) arrivals: mpsc::UnboundedReceiver<Arrival>,
}

impl Cores {
    /// The cores of a node that is yet to be started.
    pub(super) fn new(
        id: NodeId,
        configuration: &NodeConfiguration,
        shards: &Shards,
        random: &mut Random,
    ) -> (Cores, Vec<Received>) {
        let count = configuration.core_count();
        // What cores observe is compared, so their times are from one clock.
        let clock = Clock::start(configuration.transport.clock_uncertainty());
        let (mut cores, mut received) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let seed = Random::from_rng(&mut *random);
            let mut endpoint =
                Endpoint::new(id, configuration.transport, seed, NodeSide::new(id.member()));
            endpoint.clock = clock;
            {
                let mut core = endpoint.lock();
                core.shards = shards.clone();
                core.links.set_cores(configuration.node, count, shards.firsts());
                core.links
                    .set_most_for_clients(client_bytes_of_core(&configuration.transport, count));
            }
            let (inbox, inbox_receiver) = mpsc::channel(internal::INBOX_BUFFERS);
            let (arrivals, arrivals_receiver) = mpsc::unbounded_channel();
            cores.push(Seat { endpoint: Arc::new(endpoint), inbox, arrivals });
            received.push(Received { inbox: inbox_receiver, arrivals: arrivals_receiver });
        }
        (Cores(cores), received)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// What one of them has.
    pub(crate) fn endpoint(&self, core: usize) -> &Arc<Endpoint<NodeSide>> {
        &self.0[core].endpoint
    }

    /// What each has.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint<NodeSide>>> {
        self.0.iter().map(|seat| &seat.endpoint)
    }

    /// Locks those that have not panicked, one after the other.
    pub(super) fn look(&self) -> impl Iterator<Item = MutexGuard<'_, Core<NodeSide>>> {
        self.endpoints().filter_map(|endpoint| endpoint.look())
    }

    /// Where each takes messages.
    pub(super) fn inboxes(&self) -> impl Iterator<Item = &mpsc::Sender<OutBuffer>> {
        self.0.iter().map(|seat| &seat.inbox)
    }

    /// Hands a connection to a core. A core that has ended takes nothing more.
    pub(super) fn hand_over(&self, core: usize, arrival: Arrival) {
        let _ = self.0[core].arrivals.send(arrival);
    }

    /// Makes the partitions ready for the end of the node.
    pub(crate) fn prepare_to_stop(&self) {
        let sound = self.endpoints().filter(|endpoint| endpoint.is_sound());
        sound.for_each(|endpoint| prepare_to_stop(endpoint));
    }

    /// Whether all partitions may stop now.
    pub(crate) fn may_stop(&self) -> bool {
        self.endpoints().all(|endpoint| !endpoint.is_sound() || may_stop(endpoint))
    }

    /// Flushes and closes every connection, and ends the threads.
    pub(crate) fn close(&self) {
        self.endpoints().for_each(|endpoint| endpoint.close());
    }
}

/// Makes the replicas of a core ready for the end of the node.
fn prepare_to_stop(endpoint: &Endpoint<NodeSide>) {
    let moment = endpoint.clock.moment();
    let mut core = endpoint.lock();
    for place in 0..core.places() {
        core.run(place, |replica, out| replica.prepare_to_stop(moment, out));
    }
    core.settle(moment);
}

/// Whether all replicas of a core may stop now.
fn may_stop(endpoint: &Endpoint<NodeSide>) -> bool {
    endpoint.lock().actors().all(|replica| replica.may_stop())
}

/// How much each of `cores` cores keeps for clients, in bytes.
fn client_bytes_of_core(transport: &TransportOptions, cores: usize) -> usize {
    let one = transport.frame_bytes.saturating_mul(2).saturating_add(transport.most_waiting_bytes);
    (transport.client_bytes / cores).max(one)
}

//! What a core's thread does.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use serried_actor::Random;
use serried_model::Durability;
use serried_wire::{Endpoint, Role};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};

use super::Server;
use super::connections::{arrive, meet};
use super::cores::Received;
use super::life::Running;
use crate::node::StartError;
use crate::replica::Replicas;
use crate::side::NodeSide;
use crate::{flusher, internal, peer};

/// How long a node that is shut down waits for its connections to be flushed.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait after the operating system refused a connection, usually because there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a core's thread starts with.
pub(crate) struct Thread {
    pub(super) server: Arc<Server>,
    pub(super) core: usize,
    pub(super) received: Received,
}

impl Thread {
    /// Which core this is for.
    pub(crate) fn core(&self) -> usize {
        self.core
    }

    /// What it shares with the others.
    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// For as long as it runs.
    pub(crate) fn running(&self) -> Running {
        self.server.life.running()
    }

    /// Installs the replicas of the partitions that this core serves, as they were when the node last
    /// stopped if it has a disk.
    pub(crate) fn install(&self, replicas: &Replicas) -> Result<(), StartError> {
        let Server { configuration, shards, cores, keyspaces, .. } = &*self.server;
        let endpoint = cores.endpoint(self.core);
        for shard in shards.of_core(self.core, cores.count()) {
            let (number, partition) = shards.find(shard).expect("it is one of them");
            let keyspace = &configuration.keyspaces[usize::from(number)];
            let entry = replicas.find(&keyspace.protocol).expect("a checked configuration");
            let placement = shards.placement(number);
            let role = Role {
                id: placement.replica(configuration.node, partition),
                keyspace: keyspaces.own()[usize::from(number)].number,
                placement,
                random: Random::from_rng(&mut endpoint.lock().random),
            };
            let group = self.server.group(keyspace);
            let disks = self.server.disks.as_ref();
            let disk = disks.map(|disks| disks.open(&keyspace.name, partition)).transpose();
            let replica = disk.and_then(|disk| (entry.make.0)(group, keyspace, role, disk));
            let replica = replica.map_err(|reason| {
                let keyspace = keyspace.name.clone();
                StartError::Storage { keyspace, partition, reason }
            })?;
            endpoint.install(shard, replica);
        }
        Ok(())
    }

    /// Serves until the node is closed or killed, or one of its replicas panics; `listener` is for the
    /// core that accepts connections.
    pub(crate) async fn run(self, listener: Option<TcpListener>) {
        let mut state = self.server.life.watch();
        tokio::select! {
            _ = state.wait_for(|state| state.killed) => {}
            () = self.serve(listener) => {}
        }
    }

    async fn serve(self, mut listener: Option<TcpListener>) {
        let Thread { server, core, received } = self;
        let Received { inbox, mut arrivals } = received;
        let endpoint = server.cores.endpoint(core).clone();
        let mut tasks = JoinSet::new();
        let time = endpoint.clone();
        tasks.spawn(until_closed(endpoint.clone(), async move { time.keep_time().await }));
        let polls = endpoint.clone();
        tasks.spawn(until_closed(endpoint.clone(), async move { polls.keep_polling().await }));
        let beats = endpoint.clone();
        tasks.spawn(until_closed(endpoint.clone(), async move { beats.keep_beating().await }));
        for member in 0..server.configuration.peers.len() {
            if member != server.configuration.node {
                tasks.spawn(peer::keep(server.clone(), core, member));
            }
        }
        if endpoint.lock().actors().any(|replica| replica.is_durable()) {
            let sync = server.configuration.durability == Durability::Sync;
            tasks.spawn(flusher::flush(endpoint.clone(), sync));
        }
        if server.shards.len() > 1 {
            for (other, inbox) in server.cores.inboxes().enumerate() {
                tasks.spawn(internal::carry(endpoint.clone(), other, inbox.clone()));
            }
            let take_in = internal::take_in(endpoint.clone(), inbox);
            tasks.spawn(until_closed(endpoint.clone(), take_in));
        }
        loop {
            tokio::select! {
                () = endpoint.closed() => break,
                Some(ended) = tasks.join_next() => note(&server, ended),
                Some(arrival) = arrivals.recv() => {
                    tasks.spawn(arrive(server.clone(), core, arrival));
                }
                accepted = accept(&listener) => match accepted {
                    Ok((stream, peer)) => {
                        tasks.spawn(meet(server.clone(), core, stream, peer));
                    }
                    Err(error) => {
                        if let Some(more) = server.sparing.may_say("accept", Instant::now().into()) {
                            tracing::warn!(%error, more, "can't accept a connection");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener.take());
        let ended = async {
            while let Some(ended) = tasks.join_next().await {
                note(&server, ended);
            }
        };
        // Those that do not end in time are ended with the set.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, ended).await;
    }
}

/// A task of a core has ended: with a panic, it takes the node with it.
fn note(server: &Server, ended: Result<(), JoinError>) {
    if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
        server.life.fail(panic.as_ref());
    }
}

/// A connection, on the core that has a listener.
async fn accept(listener: &Option<TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

async fn until_closed(endpoint: Arc<Endpoint<NodeSide>>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        () = endpoint.closed() => {}
    }
}

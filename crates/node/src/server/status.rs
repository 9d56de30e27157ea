//! How a node is doing.

use std::ops::Range;

use serried_wire::{AtSite, Behind, Moment, NodeStatistics, NodeStatus, NotVoting, Statistics};

use super::Server;
use crate::configuration::KeyspaceConfiguration;
use crate::flusher::Latency;
use crate::metrics::{Exposed, Partition};
use crate::process::{process_cpu_time, resident_memory};
use crate::standing::{behind, clock_off, not_voting, note_lag};

impl Server {
    /// How it is doing.
    pub(crate) fn status(&self) -> NodeStatus {
        let (not_served, outside) = {
            let tables = self.keyspaces.tables();
            (tables.not_served(), tables.outside(self.configuration.node))
        };
        let mut status = NodeStatus {
            version: env!("CARGO_PKG_VERSION").to_string(),
            incarnation: self.welcome.incarnation,
            uptime: self.started.elapsed(),
            durability: self.configuration.durability,
            cores: self.welcome.cores,
            partitions: self.shards.len() as u16,
            nodes: self.configuration.peers.len() as u16,
            reached: self.reached(0..self.configuration.peers.len()),
            obstacle: None,
            not_served,
            outside,
            spans_all: self.configuration.keyspaces.iter().any(|keyspace| keyspace.sites == 1),
            sites: self.at_sites(),
            behind: None,
            not_voting: None,
            clock_off: None,
            flush_under_way: None,
            flush_lag: 0,
            held_bytes: 0,
            waiting_bytes: 0,
            statistics: NodeStatistics {
                node: self.id(),
                counters: Statistics::default(),
                connections: 0,
                process_cpu: process_cpu_time(),
                process_id: std::process::id(),
            },
        };
        let Moment { now, clock } = self.cores.endpoint(0).clock.moment();
        for core in self.cores.look() {
            let statistics = &mut status.statistics;
            statistics.counters = statistics.counters.plus(&core.links.counters);
            statistics.connections += core.links.connections() as u64;
            let (held, waiting) = core.links.waiting_bytes();
            status.held_bytes += held as u64;
            status.waiting_bytes += waiting as u64;
            status.flush_lag = status.flush_lag.max(core.side.flushing.lag(core.links.flushed()));
            status.obstacle = status.obstacle.or_else(|| core.side.flushing.obstacle.clone());
            status.flush_under_way = status.flush_under_way.max(core.side.flushing.under_way());
            let behind = [status.behind, behind(&core, now)];
            status.behind = behind.into_iter().flatten().reduce(Behind::plus);
            let not_voting = [status.not_voting, not_voting(&core, clock.latest_us)];
            status.not_voting = not_voting.into_iter().flatten().reduce(NotVoting::plus);
            status.clock_off = status.clock_off.max(clock_off(&core));
            for ((number, keyspace), at) in self.with_sites().zip(&mut status.sites) {
                let first = usize::from(self.shards.first(number));
                let shards = first..first + usize::from(keyspace.partitions);
                let replicas = shards.filter_map(|shard| core.actor(shard));
                replicas.for_each(|replica| note_lag(at, &replica.gauges()));
            }
        }
        status
    }

    /// Its part in the keyspaces with several sites, apart from how far other sites are behind.
    fn at_sites(&self) -> Vec<AtSite> {
        let (node, nodes) = (self.configuration.node, self.configuration.peers.len());
        let at = |keyspace: &KeyspaceConfiguration| {
            let each = nodes / usize::from(keyspace.sites);
            let first = node / each * each;
            AtSite {
                keyspace: keyspace.name.clone(),
                site: keyspace.placement(nodes).site_of(node),
                sites: keyspace.sites,
                nodes: each as u16,
                reached: self.reached(first..first + each),
                behind: None,
                backlog_bytes: 0,
                without_backlog: 0,
            }
        };
        self.with_sites().map(|(_, keyspace)| at(keyspace)).collect()
    }

    /// The keyspaces with several sites, with their places in the configuration.
    fn with_sites(&self) -> impl Iterator<Item = (u16, &KeyspaceConfiguration)> {
        (0..).zip(&self.configuration.keyspaces).filter(|(_, keyspace)| keyspace.sites > 1)
    }

    /// How many of these nodes it reaches, itself included.
    fn reached(&self, nodes: Range<usize>) -> u16 {
        let others = nodes.filter(|i| *i != self.configuration.node);
        let core = self.cores.endpoint(0).look();
        let reached = others.filter(|i| core.as_ref().is_some_and(|core| core.links.reaches(*i)));
        1 + reached.count() as u16
    }

    /// Whether it serves; why not.
    pub(crate) fn health(&self) -> Result<(), String> {
        let state = self.life.state();
        if let Some(failed) = state.failed {
            return Err(failed.to_string());
        }
        if state.running < self.cores.count() || self.cores.endpoint(0).is_closed() {
            return Err(format!("{} is stopping", self.id()));
        }
        self.status().serves()
    }

    /// Its figures, in Prometheus' text format.
    pub(crate) fn metrics(&self) -> String {
        let status = self.status();
        let mut latency = Latency::default();
        let mut partitions = Vec::new();
        for (i, endpoint) in self.cores.endpoints().enumerate() {
            let Some(core) = endpoint.look() else { continue };
            latency = latency.plus(&core.side.flushing.latency);
            for shard in self.shards.of_core(i, self.cores.count()) {
                let Some((keyspace, partition)) = self.shards.find(shard) else { continue };
                partitions.extend(core.actor(usize::from(shard)).map(|replica| Partition {
                    keyspace: &self.configuration.keyspaces[usize::from(keyspace)].name,
                    number: partition,
                    counts: replica.counts(),
                    gauges: replica.gauges(),
                }));
            }
        }
        partitions.sort_by_key(|partition| (partition.keyspace, partition.number));
        let resident_bytes = resident_memory();
        Exposed { status: &status, latency, partitions, resident_bytes }.text()
    }
}

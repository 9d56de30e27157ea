//! Turns of processes on one machine on which all nodes run.

use core::time::Duration;

use serried_actor::Protocol;

use super::{Client, ClientHost, Cluster, ReplicaHost};
use crate::node::Occurrence;
use crate::world::Event;

impl<P: Protocol> Cluster<P> {
    /// Gives turns to processes that wait while cores are free.
    pub(super) fn give_turns(&mut self) {
        while let Some((process, nodes)) = self.world.next_turn() {
            let served = nodes.iter().map(|node| self.serve_turn(*node)).sum::<u64>();
            let cores = self.world.shared_cores.as_ref().expect("there are turns");
            let system_calls_ns = cores.system_calls_ns(process);
            if let Some(first) = nodes.first() {
                self.add_system_calls(*first, system_calls_ns);
            }
            let takes = Duration::from_nanos(served + system_calls_ns);
            self.world.after(takes, Event::TurnEnded { process });
        }
    }

    /// A process has used its turn.
    pub(super) fn end_turn(&mut self, process: u32) {
        let cores = self.world.shared_cores.as_mut().expect("a process had a turn");
        for node in cores.end_turn(process) {
            self.happen_alone(node, Occurrence::TurnEnded);
        }
        self.give_turns();
    }

    fn serve_turn(&mut self, node: u32) -> u64 {
        let number = node as usize;
        if let Some(replica) = self.replicas.get_mut(number) {
            let (now, id) = (self.world.now, self.world.id(node));
            let (observer, watcher) = (&mut self.observer, &mut self.watcher);
            let mut host = ReplicaHost { now, id, observer, watcher };
            replica.serve_turn(&mut self.world, &mut host)
        } else {
            let Client { node, port, operations } = &mut self.clients[number - self.replicas.len()];
            node.serve_turn(&mut self.world, &mut ClientHost { port, operations })
        }
    }

    fn add_system_calls(&mut self, node: u32, ns: u64) {
        let number = node as usize;
        match self.replicas.get_mut(number) {
            Some(replica) => replica.add_system_calls(ns),
            None => self.clients[number - self.replicas.len()].node.add_system_calls(ns),
        }
    }
}

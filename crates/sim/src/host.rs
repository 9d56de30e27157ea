//! One machine on which all nodes run.
//!
//! Each replica is a process with one thread, and all clients are one process with one thread, which has one connection
//! to each replica: as in a benchmark on loopback. A process that has a core handles everything that has arrived for it
//! before it gives the core up, and then sends what comes of it. So it reads each connection once, and writes to each
//! once. This is what makes messages cheap when there are many.

use std::collections::{BTreeSet, VecDeque};

use crate::{OneMachine, SystemCallCosts};

/// The cores of the machine, and the processes that run on them or wait for them, in the order in which they asked.
pub(crate) struct SharedCores {
    pub(crate) machine: OneMachine,
    /// How many replicas there are. They come first among the nodes.
    replicas: u32,
    busy: usize,
    waiting: VecDeque<u32>,
    processes: Vec<Process>,
    /// The nodes that have something to do.
    asked: BTreeSet<u32>,
    /// The connections that a process has read and written in its turn, by the processes at their other ends.
    reads: BTreeSet<u32>,
    writes: BTreeSet<u32>,
}

#[derive(Clone, Default)]
struct Process {
    /// Its nodes that have something to do, in the order in which they asked.
    ready: VecDeque<u32>,
    /// The nodes that are being served.
    served: Vec<u32>,
    has_core: bool,
    waits: bool,
}

impl SharedCores {
    pub(crate) fn new(machine: OneMachine, replicas: u32) -> SharedCores {
        assert!(machine.cores > 0, "a machine without a core serves nothing");
        SharedCores {
            machine,
            replicas,
            busy: 0,
            waiting: VecDeque::new(),
            processes: vec![Process::default(); replicas as usize + 1],
            asked: BTreeSet::new(),
            reads: BTreeSet::new(),
            writes: BTreeSet::new(),
        }
    }

    /// The process of a node.
    fn process(&self, node: u32) -> u32 {
        node.min(self.replicas)
    }

    /// A node has something to do.
    pub(crate) fn ask(&mut self, node: u32) {
        let number = self.process(node);
        if !self.asked.insert(node) {
            return;
        }
        let process = &mut self.processes[number as usize];
        process.ready.push_back(node);
        if !process.has_core && !process.waits {
            process.waits = true;
            self.waiting.push_back(number);
        }
    }

    /// The process whose turn it is, and its nodes that have something to do, if a core is free.
    pub(crate) fn next_turn(&mut self) -> Option<(u32, Vec<u32>)> {
        if self.busy == self.machine.cores {
            return None;
        }
        let number = self.waiting.pop_front()?;
        self.busy += 1;
        self.reads.clear();
        self.writes.clear();
        let process = &mut self.processes[number as usize];
        process.has_core = true;
        process.waits = false;
        process.served = process.ready.drain(..).collect();
        process.served.iter().for_each(|node| {
            self.asked.remove(node);
        });
        Some((number, process.served.clone()))
    }

    /// The node receives a message from another one, in its turn.
    pub(crate) fn receives(&mut self, node: u32, from: u32) {
        let (own, other) = (self.process(node), self.process(from));
        if own != other {
            self.reads.insert(other);
        }
    }

    /// The node sends a message to another one, in its turn.
    pub(crate) fn sends(&mut self, node: u32, to: u32) {
        let (own, other) = (self.process(node), self.process(to));
        if own != other {
            self.writes.insert(other);
        }
    }

    /// How long the system calls of the turn that was given last take.
    pub(crate) fn system_calls_ns(&self, process: u32) -> u64 {
        let calls = self.reads.len() + self.writes.len();
        calls as u64 * self.costs(process).system_call_ns
    }

    /// The costs of a node or process.
    pub(crate) fn costs(&self, node: u32) -> SystemCallCosts {
        match node < self.replicas {
            true => self.machine.replica,
            false => self.machine.client,
        }
    }

    /// A process gives its core up. Returns the nodes that were served.
    pub(crate) fn end_turn(&mut self, process: u32) -> Vec<u32> {
        self.busy -= 1;
        let ended = &mut self.processes[process as usize];
        ended.has_core = false;
        if !ended.ready.is_empty() {
            ended.waits = true;
            self.waiting.push_back(process);
        }
        core::mem::take(&mut ended.served)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(cores: usize) -> SharedCores {
        let costs = SystemCallCosts::only;
        SharedCores::new(OneMachine { cores, replica: costs(10), client: costs(100) }, 3)
    }

    #[test]
    fn processes_take_turns_in_the_order_in_which_they_asked_and_clients_are_one_process() {
        let mut cores = cores(1);
        for node in [4, 1, 3, 4, 0] {
            cores.ask(node);
        }
        assert_eq!(cores.next_turn(), Some((3, vec![4, 3])));
        assert_eq!(cores.next_turn(), None, "there is one core");
        cores.ask(5);
        assert_eq!(cores.end_turn(3), [4, 3]);
        assert_eq!(cores.next_turn(), Some((1, vec![1])));
        cores.end_turn(1);
        assert_eq!(cores.next_turn(), Some((0, vec![0])));
        cores.end_turn(0);
        assert_eq!(cores.next_turn(), Some((3, vec![5])));
        cores.end_turn(3);
        assert_eq!(cores.next_turn(), None);
    }

    #[test]
    fn a_connection_is_read_and_written_once_in_a_turn() {
        let mut cores = cores(2);
        cores.ask(1);
        let (process, _) = cores.next_turn().unwrap();
        for client in 3..9 {
            cores.receives(1, client);
            cores.sends(1, client);
        }
        assert_eq!(cores.system_calls_ns(process), 20);
        cores.sends(1, 0);
        cores.sends(1, 1);
        assert_eq!(cores.system_calls_ns(process), 30, "nobody has a connection to itself");
        cores.ask(4);
        let (clients, _) = cores.next_turn().unwrap();
        cores.sends(4, 5);
        cores.sends(4, 2);
        assert_eq!(cores.system_calls_ns(clients), 100);
    }
}

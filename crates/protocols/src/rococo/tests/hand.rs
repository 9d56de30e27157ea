//! A network whose messages a test moves by hand, and procedures for it.

use super::*;
use crate::rococo::message::{Message, Request};
use serried_procedures::placement_key;

pub(super) const OF_HAND: &str = r#"
[tables.t]
key = { id = "int" }
columns = { n = "int" }

[procedures.two]
inputs = { a = "int", b = "int" }
[procedures.two.pieces.one]
rows = { row = { table = "t", key = ["a"] } }
reads = ["row.n"]
writes.row.n = "row.n + 1"
[procedures.two.pieces.other]
rows = { row = { table = "t", key = ["b"] } }
reads = ["row.n"]
writes.row.n = "row.n + 1"

[procedures.put]
inputs = { a = "int", n = "int" }
[procedures.put.pieces.one]
rows = { row = { table = "t", key = ["a"] } }
writes.row.n = "n"

[procedures.add]
inputs = { a = "int" }
[procedures.add.pieces.one]
rows = { row = { table = "t", key = ["a"] } }
reads = ["row.n"]
writes.row.n = "row.n + 1"

[procedures.drop]
inputs = { a = "int" }
[procedures.drop.pieces.one]
rows = { row = { table = "t", key = ["a"] } }
deletes = ["row"]

[procedures.get]
inputs = { a = "int", b = "int" }
returns = { a = "one.n", b = "other.n" }
[procedures.get.pieces.one]
rows = { row = { table = "t", key = ["a"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.get.pieces.other]
rows = { row = { table = "t", key = ["b"] } }
reads = ["row.n"]
outputs.n = "row.n"
"#;

/// A set whose read-only calls are not ordered.
pub(super) fn compiled(file: &str) -> Arc<ProcedureSet> {
    let mut set = Arc::unwrap_or_clone(with_order(file));
    set.procedures.iter_mut().for_each(|procedure| procedure.ordered = false);
    Arc::new(set)
}

/// A set whose read-only calls are ordered under contention.
pub(super) fn with_order(file: &str) -> Arc<ProcedureSet> {
    let mut set = serried_chop::compile(file).unwrap_or_else(|mistake| panic!("{mistake}"));
    serried_chop::check(&mut set).unwrap_or_else(|cycle| panic!("{cycle}"));
    Arc::new(set)
}

/// [`OF_HAND`] and more.
pub(super) fn with(more: &str) -> Arc<ProcedureSet> {
    compiled(&format!("{OF_HAND}{more}"))
}

/// [`OF_HAND`] and another procedure, whose name tells the sets apart.
pub(super) fn other(name: &str) -> Arc<ProcedureSet> {
    with(&format!(
        "[procedures.{name}]\ninputs = {{ a = \"int\" }}\n[procedures.{name}.pieces.one]\n\
         rows = {{ row = {{ table = \"t\", key = [\"a\"] }} }}\ndeletes = [\"row\"]\n"
    ))
}

pub(super) struct Hand {
    pub(super) net: Net,
    pub(super) group: Group,
    pub(super) settings: Settings,
    next: u64,
    pub(super) outputs: Vec<(u64, Output)>,
}

impl Hand {
    pub(super) fn new(partitions: u16, members: usize, settings: Settings) -> Hand {
        Hand::with_mutation(partitions, members, settings, Mutated::NONE)
    }

    pub(super) fn with_mutation(
        partitions: u16,
        members: usize,
        settings: Settings,
        mutation: Mutated<Mutation>,
    ) -> Hand {
        let group = Group::new(members, Duration::from_millis(1)).with_partitions(partitions);
        let replica = |id| Replica::new(id, group.clone(), &settings, mutation);
        let mut net = Net::new(partitions, members, replica)
            .with_clients(4, |_| Coordinator::new(group.clone(), &settings, mutation));
        net.set_clock_us(1_000_000_000);
        net.tick = 1;
        net.start();
        net.pass(Duration::from_secs(1));
        Hand { net, group, settings, next: 100, outputs: Vec::new() }
    }

    /// Lets time pass, even if messages beget messages.
    pub(super) fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            let end = self.net.now + 1000;
            for _ in 0..100 {
                if !self.net.step() {
                    break;
                }
            }
            self.net.now = self.net.now.max(end);
            let now = self.net.timestamp();
            for id in self.net.ids() {
                if self.net.nodes[id].timers.values().any(|at| *at <= now) {
                    self.net.fire_due(id);
                }
            }
            self.net.fire_due_clients();
            self.take();
        }
    }

    /// Lets things happen until such a message is under way, and takes it.
    pub(super) fn until(
        &mut self,
        wanted: impl Fn(&Message) -> bool,
    ) -> testing::Envelope<Message> {
        for _ in 0..10_000 {
            while self.net.step_where(|(.., message)| !wanted(message)) {}
            if let Some(found) = self.net.take_first(|(.., message)| wanted(message)) {
                return found;
            }
            self.net.now += 1000;
            for id in self.net.ids() {
                self.net.fire_due(id);
            }
            self.net.fire_due_clients();
            self.take();
        }
        panic!("it is not sent");
    }

    pub(super) fn take(&mut self) {
        for (_, (TxnId(number), output)) in core::mem::take(&mut self.net.outputs) {
            self.outputs.push((number, output));
        }
    }

    pub(super) fn operate(&mut self, client: u64, operation: Operation) -> u64 {
        self.next += 1;
        self.net.operate(client, self.next, operation);
        self.take();
        self.next
    }

    pub(super) fn begin(&mut self, client: u64, procedure: &str, inputs: &[i64]) -> u64 {
        let inputs = inputs.iter().copied().map(Datum::Int).collect();
        self.operate(client, Operation::Call { procedure: procedure.into(), inputs, age: None })
    }

    pub(super) fn outcome(&self, number: u64) -> Option<Outcome> {
        self.outputs.iter().find_map(|(of, output)| match output {
            Output::Outcome(outcome) if *of == number => Some(outcome.clone()),
            _ => None,
        })
    }

    pub(super) fn began(&self, number: u64) -> Vec<Version> {
        let began = self.outputs.iter().filter_map(|(of, output)| match output {
            Output::Began(version) if *of == number => Some(*version),
            _ => None,
        });
        began.collect()
    }

    pub(super) fn registered(&self, number: u64) -> Option<Registration> {
        self.outputs.iter().find_map(|(of, output)| match output {
            Output::Registered(registration) if *of == number => Some(registration.clone()),
            _ => None,
        })
    }

    pub(super) fn call(&mut self, client: u64, procedure: &str, inputs: &[i64]) -> Vec<i64> {
        let number = self.begin(client, procedure, inputs);
        for _ in 0..100 {
            self.run(100);
            if let Some(outcome) = self.outcome(number) {
                let Outcome::Done(results) = outcome else { panic!("{outcome:?}") };
                let int = |datum: &Datum| match datum {
                    Datum::Int(int) => *int,
                    other => panic!("{other}"),
                };
                return results.data.iter().map(int).collect();
            }
        }
        panic!("{procedure} has not ended");
    }

    pub(super) fn register(&mut self, set: Arc<ProcedureSet>) {
        let number = self.operate(3, Operation::Register { set, replaces: None });
        for _ in 0..3000 {
            self.run(1);
            if self.registered(number).is_some() {
                return;
            }
        }
        panic!("the set is not registered");
    }

    /// The `number`-th row of a partition.
    pub(super) fn at(&self, partition: u16, number: usize) -> i64 {
        let is_there =
            |id: &i64| self.group.partition_of(&placement_key(&[Datum::Int(*id)])) == partition;
        (0..).filter(is_there).nth(number).unwrap()
    }
}

pub(super) fn r(partition: u16) -> NodeId {
    NodeId::replica(partition, 0)
}

pub(super) fn start_to(message: &Message) -> bool {
    matches!(message, Message::Request(Request::Start(_)))
}

pub(super) fn short() -> Settings {
    Settings {
        recovery_after_ms: 300,
        outcomes_ms: 500,
        truncation_lag_ms: 500,
        ..Settings::default()
    }
}

//! Active Quorum Systems, as far as is needed for what is wrong with them (001 §4.2.1, Fig. 4.3): reads and
//! writes go to registers at a quorum, and one primary orders read-modify-writes, but the place of a
//! read-modify-write is only later than that of the update which it was executed on. A write can come
//! between the two. The checker of linearizability has to find that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serried_actor::{Actor, Context, Coordinate, Group, NodeSet, Protocol, Settings, Timestamp};
use serried_history::{Budget, RegisterRecorder, RegisterVerdict, check_linearizable};
use serried_model::registers::{Offers, Operation, Outcome, Output};
use serried_model::{
    Access, Accessed, Carstamp, Change, Geography, Guarantee, Key, NodeId, Registers, TxnId, Value,
    Version,
};
use serried_parts::Stamped;
use serried_protocols::abd::{Message, Replica};
use serried_sim::{Cluster, Configuration};
use serried_workload::{RegisterLoop, RegisterMix};

struct Aqs;

impl Protocol for Aqs {
    const NAME: &'static str = "aqs";
    const SUMMARY: &'static str =
        "registers with an order of read-modify-writes that is not stable";
    const GUARANTEE: Guarantee = Guarantee::Linearizable;
    type Family = Registers;
    const OFFERS: Offers = Offers { rmws: true };
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, _: &Settings) -> Coordinator {
        Coordinator { group, latest: 0, operations: BTreeMap::new() }
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings)
    }
}

/// A client; the one whose read-modify-writes there are is the primary, too. The network loses nothing, so
/// nothing is repeated.
struct Coordinator {
    group: Group,
    /// The latest timestamp that an update was given.
    latest: u64,
    operations: BTreeMap<TxnId, Running>,
}

struct Running {
    key: Key,
    access: Access,
    phase: Phase,
    replied: NodeSet,
}

enum Phase {
    /// What do replicas hold?
    First(Vec<Stamped>),
    /// Do they hold nothing later than the base?
    Prepare { base: Stamped, unchanged: bool },
    /// They are to hold the second; what is found is the first.
    Apply(Option<Value>, Stamped),
}

type Cx<'a> = Context<'a, Coordinator>;

impl Coordinator {
    fn ask(&mut self, txn: TxnId, phase: Phase, cx: &mut Cx<'_>) {
        let running = self.operations.get_mut(&txn).expect("an operation that goes on");
        let (request, key) = (txn.0, running.key.clone());
        let message = match &phase {
            Phase::First(_) => Message::Read1 { request, key },
            Phase::Prepare { .. } => Message::Write1 { request, key },
            Phase::Apply(_, stamped) => Message::Apply { request, key, stamped: stamped.clone() },
        };
        (running.phase, running.replied) = (phase, NodeSet::EMPTY);
        cx.broadcast(0, self.group.all(), message);
    }

    fn next(&mut self, after: Carstamp, cx: &Cx<'_>) -> Carstamp {
        self.latest = self.latest.max(after.timestamp) + 1;
        Carstamp { timestamp: self.latest, writer: cx.id(), rmwc: 0 }
    }

    fn on_majority(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let running = &mut self.operations.get_mut(&txn).expect("as before");
        match core::mem::replace(&mut running.phase, Phase::First(Vec::new())) {
            Phase::First(mut held) => {
                held.sort_by_key(|held| held.carstamp);
                let latest = held.pop().expect("a majority has replied");
                match running.access.clone() {
                    Access::Read => {
                        self.ask(txn, Phase::Apply(latest.value.clone(), latest), cx);
                    }
                    Access::Write(value) => {
                        let carstamp = self.next(latest.carstamp, cx);
                        self.ask(txn, Phase::Apply(None, Stamped { value, carstamp }), cx);
                    }
                    Access::Modify(_) => {
                        self.ask(txn, Phase::Prepare { base: latest, unchanged: true }, cx);
                    }
                }
            }
            Phase::Prepare { unchanged: false, .. } => self.ask(txn, Phase::First(Vec::new()), cx),
            Phase::Prepare { base, .. } => {
                let Access::Modify(modification) = &running.access else { unreachable!() };
                let found = base.value.clone();
                let Ok(Change::To(value)) = modification.apply(found.as_ref()) else {
                    return self.ask(txn, Phase::Apply(found, base), cx);
                };
                let carstamp = self.next(base.carstamp, cx);
                self.ask(txn, Phase::Apply(found, Stamped { value, carstamp }), cx);
            }
            Phase::Apply(found, Stamped { carstamp, .. }) => {
                self.operations.remove(&txn);
                let accessed = Accessed { found, carstamp };
                cx.output((txn, Output::Outcome(Outcome::Done(accessed))));
            }
        }
    }
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = ();
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        let txn = TxnId(match message {
            Message::Read1Reply { request, .. }
            | Message::Write1Reply { request, .. }
            | Message::Applied { request, .. } => request,
            _ => return,
        });
        let Some(running) = self.operations.get_mut(&txn) else { return };
        match (&mut running.phase, message) {
            (Phase::First(found), Message::Read1Reply { held, .. }) => found.push(held),
            (Phase::Prepare { base, unchanged }, Message::Write1Reply { carstamp, .. }) => {
                *unchanged &= carstamp <= base.carstamp;
            }
            (Phase::Apply(..), Message::Applied { .. }) => {}
            _ => return, // Of an earlier phase.
        }
        if running.replied.insert(from) && running.replied.len() == self.group.majority() {
            self.on_majority(txn, cx);
        }
    }

    fn on_timer(&mut self, (): (), _: &mut Cx<'_>) {}
}

impl Coordinate<Registers> for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        let Operation::Access { key, access, .. } = operation else { return };
        if access != Access::Read {
            cx.output((txn, Output::Began(Version::at(txn.0))));
        }
        let (phase, replied) = (Phase::First(Vec::new()), NodeSet::EMPTY);
        self.operations.insert(txn, Running { key, access, phase, replied });
        self.ask(txn, Phase::First(Vec::new()), cx);
    }
}

/// Why a run is not linearizable: one client modifies, the others read and write one key.
fn violation(seed: u64, modify: bool) -> Option<String> {
    let clients = 4;
    let configuration = Configuration {
        seed,
        replicas: 5,
        clients,
        geography: Geography::named("gryff-5").unwrap(),
        ..Configuration::default()
    };
    let mut cluster = Cluster::<Aqs>::new(configuration);
    let recorder = Arc::new(RegisterRecorder::new());
    for client in 0..clients {
        let (reads, writes) = if client == 0 && modify { (0.0, 0.0) } else { (0.5, 0.5) };
        let client_loop = RegisterLoop {
            registers: cluster.keyspace(client),
            mix: RegisterMix { keys: 1, reads, writes, adds: true },
            recorder: recorder.clone(),
            client: client as u64,
            seed,
            stop: Timestamp(0) + Duration::from_secs(10),
        };
        cluster.spawn(client, client_loop.run());
    }
    cluster.run_until_done(Timestamp(60_000_000_000)).expect("nothing is lost");
    drop(cluster);
    let history = Arc::into_inner(recorder).expect("all clients are done").into_history();
    match check_linearizable(&history, &Budget::default()) {
        RegisterVerdict::Violation(violation) => Some(violation.to_string()),
        _ => None,
    }
}

#[test]
fn a_write_between_a_read_modify_write_and_what_it_was_executed_on_is_found() {
    let found = (0..50).find_map(|seed| violation(seed, true));
    let text = found.expect("the execution of Figure 4.3 within 50 seeds");
    assert!(text.contains("add"), "a read-modify-write is part of it: {text}");
}

#[test]
fn without_read_modify_writes_its_registers_are_linearizable() {
    for seed in 0..20 {
        assert_eq!(violation(seed, false), None);
    }
}

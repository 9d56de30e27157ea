//! Single rules, with messages that are delivered by hand.

mod broken;
mod cycles;
mod damaged;
mod fetching;
mod finishing;
mod replicated;

use core::time::Duration;
use std::sync::Arc;

use serried_actor::{Group, Recover, Settings, Standing};
use serried_model::NodeId;
use serried_procedures::{
    Datum, Operation, Outcome, Output, PieceId, ProcedureSet, Registration, placement_key, row_key,
};

use super::in_use::InUse;
use super::message::{CallOf, Message, Reply, Request};
use super::{Coordinator, Members, Replica};
use crate::Mutated;
use crate::testing::{self, Envelope, client_id};

type Net = testing::Net<Replica, Coordinator>;

/// `both` appends to two texts. `chain` appends to one text, and then to the one that has the place of its length.
const FILE: &str = r#"
[tables.list]
key = { id = "int" }
columns = { text = "string(400)" }

[procedures.both]
inputs = { a = "int", b = "int", x = "int" }
returns = { a = "one.text", b = "two.text" }
[procedures.both.pieces.one]
rows = { row = { table = "list", key = ["a"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 400)"
outputs.text = "row.text"
[procedures.both.pieces.two]
rows = { row = { table = "list", key = ["b"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 400)"
outputs.text = "row.text"

[procedures.chain]
inputs = { a = "int", x = "int" }
returns = { first = "first.text", next = "next.text" }
[procedures.chain.pieces.first]
rows = { row = { table = "list", key = ["a"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 400)"
outputs.text = "row.text"
[procedures.chain.pieces.next]
rows = { row = { table = "list", key = ["size(first.text)"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 400)"
outputs.text = "row.text"
"#;

fn set() -> Arc<ProcedureSet> {
    Arc::new(serried_chop::compile(FILE).unwrap_or_else(|mistake| panic!("{mistake}")))
}

fn group(members: usize) -> Group {
    Group::new(members, Duration::from_millis(1)).with_partitions(2)
}

fn fresh(id: NodeId) -> Replica {
    Replica::new(id, Members::alone(group(1)), &Settings::default(), Mutated::NONE)
}

/// Two partitions, and three clients that know the set.
fn world() -> Net {
    let settings = Settings::default();
    let mut net = Net::new(2, 1, fresh)
        .with_clients(3, |_| Coordinator::new(Members::alone(group(1)), &settings));
    net.set_clock_us(1_000_000_000);
    net.tick = 1;
    net.start();
    assert_eq!(register(&mut net, set()), Registration::InUse { version: 1 });
    for client in 1..3 {
        // It asks for the set.
        call(&mut net, client, 1, "both", &[500, 500, 0]);
        net.settle();
    }
    net.outputs.clear();
    net
}

fn register(net: &mut Net, set: Arc<ProcedureSet>) -> Registration {
    net.operate(0, 0, Operation::Register { set, replaces: None });
    net.pass(Duration::from_millis(200));
    let registered = net.outputs.drain(..).find_map(|(_, (_, output))| match output {
        Output::Registered(registration) => Some(registration),
        _ => None,
    });
    registered.expect("the registration has ended")
}

fn call(net: &mut Net, client: u64, txn: u64, procedure: &str, inputs: &[i64]) {
    let inputs = inputs.iter().copied().map(Datum::Int).collect();
    net.operate(client, txn, Operation::Call { procedure: procedure.into(), inputs, age: None });
}

/// The partition of a text.
fn place(id: i64) -> u16 {
    group(1).partition_of(&placement_key(&[Datum::Int(id)]))
}

/// A text at this partition.
fn at(partition: u16) -> i64 {
    (0..).find(|id| place(*id) == partition).expect("there is one")
}

/// A text at the partition where text 0 is not. It is empty, so a chain goes from there to text 0.
fn elsewhere() -> i64 {
    at(1 - place(0))
}

/// Lets a call append 9 to two texts, and counts how often 7 was appended to each.
fn sevens(net: &mut Net, a: i64, b: i64) -> Vec<usize> {
    call(net, 2, 99, "both", &[a, b, 9]);
    net.pass(Duration::from_secs(1));
    let (txn, found) = results(net).pop().expect("it has ended");
    assert_eq!(txn, 99);
    found.iter().map(|text| text.matches('7').count()).collect()
}

fn is_report((_, _, message): &Envelope<Message>) -> bool {
    matches!(message, Message::Reply(Reply::Results { .. }))
}

/// What calls have returned.
fn results(net: &Net) -> Vec<(u64, Vec<String>)> {
    let text = |datum: &Datum| match datum {
        Datum::String(text) => text.to_string(),
        other => panic!("{other}"),
    };
    let all = net.outputs.iter().filter_map(|(_, (txn, output))| match output {
        Output::Outcome(Outcome::Done(results)) => {
            Some((txn.0, results.data.iter().map(text).collect()))
        }
        _ => None,
    });
    all.collect()
}

fn name(message: &Message) -> &'static str {
    match message {
        Message::Request(request) => match request {
            Request::PreAccept(_) => "PreAccept",
            Request::Accept(_) => "Accept",
            Request::Commit(_) => "Commit",
            Request::Void { .. } => "Void",
            Request::Results { .. } => "Results?",
            Request::Ask { .. } => "Ask",
            Request::Fetch { .. } => "Fetch",
            Request::Compare(_) => "Compare",
            Request::Report(_) => "Report",
            Request::Over { .. } => "Over",
            Request::Set => "Set?",
            Request::Copy { .. } => "Copy",
            Request::Join { .. } => "Join",
        },
        Message::Reply(reply) => match reply {
            Reply::PreAccepted(_) => "PreAccepted",
            Reply::NotAccepted { .. } => "NotAccepted",
            Reply::Promised { .. } => "Promised",
            Reply::Accepted { .. } => "Accepted",
            Reply::Replaced { .. } => "Replaced",
            Reply::Committed { .. } => "Committed",
            Reply::Executed { .. } => "Executed",
            Reply::Status { .. } => "Status",
            Reply::Fetched { .. } => "Fetched",
            Reply::Have { .. } => "Have",
            Reply::Results { .. } => "Results",
            Reply::Set { .. } => "Set",
            Reply::Copied { .. } => "Copied",
            Reply::Joined { .. } => "Joined",
        },
    }
}

/// Delivers everything, and returns what was delivered.
fn trace(net: &mut Net) -> Vec<String> {
    let node = |id: &NodeId| match id.is_coordinator() {
        true => "client".to_owned(),
        false => format!("p{}", id.partition()),
    };
    let mut trace = Vec::new();
    while let Some(envelope) = net.take_first(|_| true) {
        let (from, to, message) = &envelope;
        trace.push(format!("{} -> {}: {}", node(from), node(to), name(message)));
        net.deliver(envelope);
    }
    trace
}

#[test]
fn a_call_takes_two_rounds() {
    let mut net = world();
    call(&mut net, 1, 2, "both", &[at(0), at(1), 7]);
    let golden = [
        "client -> p0: PreAccept",
        "client -> p1: PreAccept",
        "p0 -> client: PreAccepted",
        "p1 -> client: PreAccepted",
        "client -> p0: Commit",
        "client -> p1: Commit",
        "p0 -> client: Executed",
        "p1 -> client: Executed",
    ];
    assert_eq!(trace(&mut net), golden);
    assert_eq!(results(&net).len(), 1);
}

#[test]
fn calls_on_a_cycle_are_executed_in_one_order_at_both_servers() {
    let mut net = world();
    call(&mut net, 1, 2, "both", &[at(0), at(1), 7]);
    call(&mut net, 2, 3, "both", &[at(0), at(1), 8]);
    // The servers take them on in opposite orders.
    for (client, partition) in [(1, 0), (2, 0), (2, 1), (1, 1)] {
        let sent = net
            .take_first(|(from, to, _)| *from == client_id(client) && to.partition() == partition);
        net.deliver(sent.expect("it is under way"));
    }
    net.settle();
    let mut found = results(&net);
    found.sort();
    let ends = |text: &str, with: &str| text.ends_with(with);
    assert!(found[0].1.iter().all(|text| !ends(text, "8 ")), "{found:?}");
    assert!(found[1].1.iter().all(|text| ends(text, "7 ")), "{found:?}");
}

#[test]
fn a_call_that_waits_for_outputs_holds_its_place() {
    let mut net = world();
    call(&mut net, 1, 2, "chain", &[elsewhere(), 7]);
    net.settle_where(|envelope| !is_report(envelope));
    let waits = |at| net.gauge(NodeId::replica(at, 0), "waiting_groups");
    assert_eq!((waits(place(0)), waits(place(elsewhere()))), (1, 0));
    call(&mut net, 2, 3, "both", &[0, 0, 8]);
    net.settle_where(|envelope| !is_report(envelope));
    assert!(results(&net).is_empty(), "it comes after the other call");
    net.settle();
    let found = results(&net);
    assert_eq!(found.iter().map(|(txn, _)| *txn).collect::<Vec<_>>(), [2, 3]);
    assert!(found[1].1[0].contains('7'));
}

#[test]
fn a_lost_report_of_outputs_is_asked_for() {
    let mut net = world();
    call(&mut net, 1, 2, "chain", &[elsewhere(), 7]);
    net.settle_where(|envelope| !is_report(envelope));
    assert!(!net.take(is_report).is_empty());
    net.pass(Duration::from_millis(500));
    assert_eq!(results(&net).len(), 1);
}

#[test]
fn a_restart_resumes_what_was_executed_in_part() {
    let mut net = world();
    call(&mut net, 1, 2, "chain", &[elsewhere(), 7]);
    net.settle_where(|envelope| !is_report(envelope));
    for partition in 0..2 {
        let id = NodeId::replica(partition, 0);
        net.crash(id);
        net.restart(id, fresh(id));
    }
    net.pass(Duration::from_secs(5));
    assert_eq!(results(&net).len(), 1);
    assert_eq!(sevens(&mut net, elsewhere(), 0), [1, 1]);
}

/// The set, with its procedures in another order.
fn other_set() -> Arc<ProcedureSet> {
    let mut other = (*set()).clone();
    other.procedures.swap(0, 1);
    Arc::new(other)
}

#[test]
fn a_call_of_a_former_set_is_started_again_under_the_new_one() {
    let mut net = world();
    assert_eq!(register(&mut net, other_set()), Registration::InUse { version: 2 });
    call(&mut net, 1, 2, "both", &[at(0), at(1), 7]);
    net.pass(Duration::from_secs(1));
    assert_eq!(results(&net).len(), 1);
    assert_eq!(sevens(&mut net, at(0), at(1)), [1, 1]);
}

#[test]
fn a_procedure_that_was_registered_later_is_known_to_a_client_with_the_former_set() {
    let mut net = world();
    let mut larger = (*set()).clone();
    let both = larger.procedures.iter().find(|procedure| procedure.name == "both");
    let mut new = both.expect("the set has it").clone();
    new.name = "new".into();
    larger.procedures.push(new);
    assert_eq!(register(&mut net, Arc::new(larger)), Registration::InUse { version: 2 });
    call(&mut net, 1, 2, "new", &[at(0), at(1), 7]);
    net.pass(Duration::from_secs(1));
    assert_eq!(results(&net).len(), 1);
    // What no set has is refused once a server has said that there is no later set.
    call(&mut net, 1, 3, "none", &[7]);
    net.pass(Duration::from_secs(1));
    let refused = net.outputs.iter().find_map(|(_, (txn, output))| match output {
        Output::Outcome(Outcome::NoSuchProcedure { version, .. }) => Some((txn.0, *version)),
        _ => None,
    });
    assert_eq!(refused, Some((3, 2)));
}

#[test]
fn a_call_is_ordered_before_or_after_a_registration_at_all_servers() {
    for is_call_older in [true, false] {
        let mut net = world();
        net.operate(0, 9, Operation::List); // It asks for the set.
        net.settle();
        let register = Operation::Register { set: other_set(), replaces: None };
        if !is_call_older {
            net.operate(0, 0, register.clone());
        }
        call(&mut net, 1, 2, "both", &[at(0), at(1), 7]);
        if is_call_older {
            net.operate(0, 0, register);
        }
        // One server takes the call on first, the other one the registration.
        for (client, partition) in [(1, 0), (0, 0), (0, 1), (1, 1)] {
            let sent = net.take_first(|(from, to, _)| {
                *from == client_id(client) && to.partition() == partition
            });
            net.deliver(sent.expect("it is under way"));
        }
        net.pass(Duration::from_secs(1));
        assert_eq!(results(&net).len(), 1);
        let begun = net
            .outputs
            .iter()
            .filter(|(id, (_, output))| *id == client_id(1) && matches!(output, Output::Began(_)));
        assert_eq!(begun.count(), if is_call_older { 1 } else { 2 });
        assert_eq!(sevens(&mut net, at(0), at(1)), [1, 1]);
    }
}

#[test]
fn a_set_whose_pieces_wait_for_each_other_is_refused() {
    let mut net = world();
    let mut other = (*set()).clone();
    let chain = other.procedures.iter_mut().find(|procedure| procedure.name == "chain").unwrap();
    chain.pieces[0].after = vec![PieceId(1)];
    let end = register(&mut net, Arc::new(other));
    assert!(matches!(&end, Registration::Unfit(why) if why.contains("`chain`")), "{end:?}");
}

#[test]
fn a_server_whose_disk_was_lost_answers_nothing_even_after_a_restart() {
    let mut net = world();
    let id = NodeId::replica(1, 0);
    net.crash(id);
    net.replace(id, fresh(id));
    net.crash(id);
    net.restart(id, fresh(id));
    let standing = net.act(id, |replica, _| replica.standing());
    assert_eq!(standing, Standing::Rejoining { keys: 0 });
    call(&mut net, 1, 2, "both", &[at(1), at(1), 7]);
    net.pass(Duration::from_secs(1));
    assert!(results(&net).is_empty());
}

/// The place of a procedure in its set.
fn place_of(set: &InUse, name: &str) -> u16 {
    let procedures = &set.set().procedures;
    procedures.iter().position(|one| one.name == name).expect("the set has it") as u16
}

#[test]
fn a_key_that_depends_on_outputs_may_be_any_at_all_partitions() {
    let set = InUse::new(1, set());
    let inputs = vec![Datum::Int(at(1)), Datum::Int(7)];
    let chain = CallOf { set: 1, procedure: place_of(&set, "chain"), inputs };
    assert_eq!(*set.participants(&chain, &group(1)), [0, 1]);
    let rows = set.rows(&chain, 0, &group(1));
    let rows: Vec<_> = rows.iter().map(|(row, _)| (row.key.clone(), row.is_whole)).collect();
    assert_eq!(rows, [(row_key(0, &[]), false)]);
    let inputs = vec![Datum::Int(at(1)), Datum::Int(at(1)), Datum::Int(7)];
    let both = CallOf { set: 1, procedure: place_of(&set, "both"), inputs };
    assert_eq!(*set.participants(&both, &group(1)), [1]);
    assert!(set.rows(&both, 0, &group(1)).is_empty());
    assert!(set.rows(&both, 1, &group(1)).iter().all(|(row, _)| row.is_whole));
}

/// `spread` appends to the first texts, to more of them the longer another text is.
const SPREAD: &str = r#"
[procedures.spread]
inputs = { a = "int", x = "int" }
[procedures.spread.pieces.first]
rows = { row = { table = "list", key = ["a"] } }
reads = ["row.text"]
outputs.numbers = "range(0, size(row.text), 8)"
[procedures.spread.pieces.each]
for_each = { number = "first.numbers" }
rows = { row = { table = "list", key = ["index"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x + number) + ' ', 400)"
"#;

#[test]
fn the_place_in_a_list_of_outputs_may_be_any_at_all_partitions() {
    let set = serried_chop::compile(&format!("{FILE}{SPREAD}"));
    let set = InUse::new(1, Arc::new(set.unwrap_or_else(|mistake| panic!("{mistake}"))));
    let inputs = vec![Datum::Int(0), Datum::Int(7)];
    let spread = CallOf { set: 1, procedure: place_of(&set, "spread"), inputs };
    assert_eq!(*set.participants(&spread, &group(1)), [0, 1]);
    let rows = set.rows(&spread, 1 - place(0), &group(1));
    let rows: Vec<_> = rows.iter().map(|(row, _)| (row.key.clone(), row.is_whole)).collect();
    assert_eq!(rows, [(row_key(0, &[]), false)]);
}

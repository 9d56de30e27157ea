//! Questions about transactions that have committed under another version than they began with.

use serried_model::transactions::{Ending, Operation, Outcome, Output};
use serried_model::{TxnId, Write};

use super::*;
use crate::frameworks::replicated_log::Message as LogMessage;
use crate::frameworks::shard::Coordinator;
use crate::testing::client_id;

type Net = testing::Net<Replica<Queues<false>>, Coordinator<Queues<false>>>;

/// Three replicas of each of two shards, and three clients. The first replicas lead.
fn net() -> Net {
    let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
    let settings = Settings::default();
    let replica = |id| Replica::new(id, group.clone(), &settings, Mutated::NONE);
    let mut net: Net = testing::Net::new(2, 3, replica)
        .with_clients(3, |_| Coordinator::new(group.clone(), &settings));
    net.now = 1;
    net.set_clock_us(NOW_US + 1);
    net.start();
    net.pass(Duration::from_secs(3));
    net
}

/// Writes a key in each of two shards.
fn write(net: &mut Net, client: u64, txn: u64) {
    let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
    let key = |shard| {
        let mut keys = (0..).map(|number| Key::from(format!("x{number}")));
        keys.find(|key| group.partition_of(key) == shard).expect("some key is there")
    };
    let write = |shard| Write { key: key(shard), value: Some(Value::from("new")) };
    net.operate(client, txn, Operation::Begin { only_reads: false, age: None });
    let writes = vec![write(0), write(1)];
    net.operate(client, txn, Operation::Commit { reads: Vec::new(), writes, modifies: Vec::new() });
}

/// What client `number` has told its session about an operation.
fn told(net: &Net, number: u64, txn: u64) -> Vec<Output> {
    let all = net.outputs.iter().filter(|(id, _)| *id == client_id(number));
    all.filter(|(_, (of, _))| *of == TxnId(txn)).map(|(_, (_, output))| output.clone()).collect()
}

#[test]
fn a_moved_transaction_that_is_ending_is_not_reported_as_aborted() {
    let mut net = net();
    // The first client's clock is ahead, so the second writes later than its own time.
    net.ahead_us.insert(client_id(0), 50_000);
    write(&mut net, 0, 1);
    net.pass(Duration::from_millis(100));
    assert!(told(&net, 0, 1).contains(&Output::Outcome(Outcome::Committed)));
    net.ahead_us.insert(client_id(1), -80_000);
    write(&mut net, 1, 2);
    // The parts are chosen, and the client has committed; its `End` arrives, but the followers do not get its entry yet.
    let is_end = |message: &Message| matches!(message, Message::Request(Request::End { .. }));
    for _ in 0..10 {
        net.settle_where(|(.., message)| !is_end(message));
        let flush = Timer::Log(replicated_log::Timer::Flush);
        for leader in net.ids() {
            if net.nodes[leader].timers.contains_key(&flush) {
                net.fire(leader, flush);
            }
        }
    }
    net.settle_where(|(_, to, message)| *to == NodeId(0) && is_end(message));
    let outputs = told(&net, 1, 2);
    assert!(outputs.contains(&Output::Outcome(Outcome::Committed)), "{outputs:?}");
    let versions: Vec<Version> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Began(version) => Some(*version),
            _ => None,
        })
        .collect();
    let [began, committed] = versions[..] else { panic!("it was not moved: {outputs:?}") };
    assert_ne!(began, committed);
    let flush = Timer::Log(replicated_log::Timer::Flush);
    net.fire(0, flush);
    let accepts = net.take(|(.., message)| {
        matches!(message, Message::Log(LogMessage::Accept { entries, .. }) if !entries.is_empty())
    });
    assert!(!accepts.is_empty(), "its end is on its way into the log");
    // Another client asks how it has ended, by the version that its program was given.
    net.operate(2, 3, Operation::Inquire { version: committed });
    net.settle();
    net.network.extend(accepts);
    net.pass(Duration::from_secs(3));
    assert_eq!(told(&net, 2, 3), [Output::Ending(Ending::Committed)]);
}

#[test]
fn an_outcome_that_may_be_forgotten_is_not_reported_as_aborted_after_a_restart() {
    let mut bench = Bench::<Queues<false>>::new();
    assert!(matches!(bench.write(0)[..], [Reply::Executed(_)]));
    // It commits 64 microseconds later than it began.
    let at = stamp(2 * Stamp::LANES, 0);
    bench.commit(txn(0), at);
    // Long after that, outcomes are forgotten up to a time between the two.
    for _ in 0..40 {
        bench.wait(Duration::from_secs(60));
        let over = Message::Request(Request::Over { below_us: NOW_US + Stamp::LANES });
        bench.act(|replica, cx| replica.on_message(NodeId::replica(1, 0), over, cx));
    }
    let window = bench.window();
    assert_eq!(window.forget_us, NOW_US + Stamp::LANES);
    let before = bench.ask(Request::Resolve { txn: at.version() });
    assert!(
        matches!(before[..], [Reply::Decided { decision: Decision::Commit(_), .. }]),
        "{before:?}"
    );
    // What was applied is in the store by now, and the log is trimmed.
    for _ in 0..70 {
        bench.act(|replica, cx| replica.on_timer(Timer::Store, cx));
    }
    bench.restart();
    let after = bench.ask(Request::Resolve { txn: at.version() });
    let is_wrong = matches!(
        after[..],
        [Reply::Refused { reason: Refusal::Late { .. } | Refusal::Conflict { .. }, .. }]
    );
    assert!(!is_wrong, "the client takes this for an abort: {after:?}");
}

/// Three replicas of so many shards, and two clients. Member `p` leads shard `p`.
fn shards(partitions: u16) -> (Net, Group) {
    let group = Group::new(3, Duration::from_millis(1)).with_partitions(partitions);
    let settings = Settings::default();
    let replica = |id| Replica::new(id, group.clone(), &settings, Mutated::NONE);
    let mut net: Net = testing::Net::new(partitions, 3, replica)
        .with_clients(2, |_| Coordinator::new(group.clone(), &settings));
    net.now = 1;
    net.set_clock_us(NOW_US + 1);
    net.start();
    net.pass(Duration::from_secs(3));
    (net, group)
}

/// Everything happens of which `wanted` holds.
fn go_on(net: &mut Net, wanted: impl Fn(&testing::Envelope<Message>) -> bool) {
    for _ in 0..8 {
        net.settle_where(&wanted);
        net.fire_where_set(Timer::Log(replicated_log::Timer::Flush));
    }
    net.settle_where(&wanted);
}

/// Everything happens, but what is sent to clients stays under way.
fn go_on_without_clients(net: &mut Net) {
    go_on(net, |(_, to, _)| !to.is_coordinator());
}

fn leader(shard: u16) -> NodeId {
    NodeId::replica(shard, usize::from(shard))
}

/// A write of some key of a shard.
fn write_in(group: &Group, shard: u16) -> Write {
    let mut keys = (0_u64..).map(|number| Key::from(number.to_string().as_str()));
    let key = keys.find(|key| group.partition_of(key) == shard).expect("a key");
    Write { key, value: Some(Value::from("new")) }
}

fn version(net: &Net, number: u64, txn: u64) -> Version {
    let began = told(net, number, txn).into_iter().find_map(|output| match output {
        Output::Began(version) => Some(version),
        _ => None,
    });
    began.expect("it has begun")
}

/// How a shard says that a transaction has ended.
fn decision(net: &mut Net, shard: u16, txn: Version) -> Option<Decision> {
    net.delivered.clear();
    net.network.push_back((
        client_id(9),
        leader(shard),
        Message::Request(Request::Inspect { txn }),
    ));
    net.pass(Duration::from_millis(20));
    net.delivered.drain(..).find_map(|(.., message)| match message {
        Message::Reply(Reply::Decided { decision, .. }) => Some(decision),
        _ => None,
    })
}

#[test]
fn a_clients_own_inquiry_does_not_abort_its_transaction() {
    let (mut net, group) = shards(2);
    net.operate(0, 1, Operation::Begin { only_reads: false, age: None });
    let writes = vec![write_in(&group, 1)];
    net.operate(0, 1, Operation::Commit { reads: Vec::new(), writes, modifies: Vec::new() });
    let txn = version(&net, 0, 1);
    // Its only part is chosen. What the client is told of that is late.
    go_on_without_clients(&mut net);
    let late = net.take(|(_, to, _)| to.is_coordinator());
    assert!(!late.is_empty());
    // Another task of this client asks how it has ended. Shard 0 has no part in it, and answers first.
    net.operate(0, 2, Operation::Inquire { version: txn });
    let is_of_shard_0 = |node: &NodeId| !node.is_coordinator() && node.partition() == 0;
    go_on(&mut net, |(from, to, _)| is_of_shard_0(from) || is_of_shard_0(to));
    net.network.extend(late);
    net.pass(Duration::from_secs(3));
    let outcome = told(&net, 0, 1);
    let ending = told(&net, 0, 2);
    let shard = decision(&mut net, 1, txn);
    assert!(
        outcome.contains(&Output::Outcome(Outcome::Committed)),
        "{outcome:?}, though the inquiry says {ending:?}, and its shard {shard:?}"
    );
}

#[test]
fn an_inquiry_after_an_unknown_outcome_does_not_end_one_half_differently_from_the_other() {
    let (mut net, group) = shards(3);
    net.operate(0, 1, Operation::Begin { only_reads: false, age: None });
    let writes = vec![write_in(&group, 0), write_in(&group, 1)];
    net.operate(0, 1, Operation::Commit { reads: Vec::new(), writes, modifies: Vec::new() });
    let txn = version(&net, 0, 1);
    // Both parts are chosen. The client hears nothing of that, and its session's deadline passes: the session reports that
    // the outcome is unknown.
    go_on_without_clients(&mut net);
    let lost = net.take(|(_, to, _)| to.is_coordinator());
    assert!(!lost.is_empty());
    net.operate(0, 1, Operation::Rollback);
    // So the program asks for the outcome, through the same client.
    net.operate(0, 2, Operation::Inquire { version: txn });
    // Shard 0 is the backup coordinator, and finds both parts ready.
    let of_shard_1 = net.take(|(_, to, _)| to.partition() == 1);
    let of_shard_2 = net.take(|(_, to, _)| to.partition() == 2);
    let is_end = |(from, to, message): &testing::Envelope<Message>| {
        let ends = matches!(message, Message::Request(Request::End { .. }));
        ends && from.partition() == 0 && to.partition() == 1
    };
    go_on(&mut net, |envelope| !envelope.1.is_coordinator() && !is_end(envelope));
    let from_backup = net.take(is_end);
    assert_eq!(from_backup.len(), 1, "shard 0 has committed it, and tells shard 1");
    // Shard 2 has no part in it, and says so to the client. The client tells its shards.
    net.network.extend(of_shard_2);
    let is_of_shard_2 = |node: &NodeId| !node.is_coordinator() && node.partition() == 2;
    go_on(&mut net, |(from, to, _)| is_of_shard_2(from) || is_of_shard_2(to));
    go_on_without_clients(&mut net);
    // Everything else arrives now.
    net.network.extend(from_backup);
    net.network.extend(of_shard_1);
    net.pass(Duration::from_secs(3));
    let ending = told(&net, 0, 2);
    let halves = [decision(&mut net, 0, txn), decision(&mut net, 1, txn)];
    assert_eq!(halves[0], halves[1], "the inquiry says {ending:?}");
}

#[test]
fn a_shard_without_a_part_does_not_report_an_end() {
    let (mut net, group) = shards(2);
    let write = |net: &mut Net, txn: u64| {
        net.operate(0, txn, Operation::Begin { only_reads: false, age: None });
        let writes = vec![write_in(&group, 1)];
        net.operate(0, txn, Operation::Commit { reads: Vec::new(), writes, modifies: Vec::new() });
        net.pass(Duration::from_secs(3));
        told(net, 0, txn).contains(&Output::Outcome(Outcome::Committed))
    };
    // All clocks are ahead for a while, in which shard 1 is used and shard 0 is not, nor hears of shard 1.
    let members = || (0..3).map(|member| NodeId::replica(1, member));
    let links = members().flat_map(|from| (0..3).map(move |to| (from, NodeId::replica(0, to))));
    net.cut.extend(links);
    let ahead_us = 20 * Settings::default().clock_bound_ms as i64 * 1000;
    let all: Vec<NodeId> = net.ids().into_iter().chain([client_id(0), client_id(1)]).collect();
    net.ahead_us.extend(all.iter().map(|id| (*id, ahead_us)));
    net.pass(Duration::from_secs(3));
    assert!(write(&mut net, 1));
    let txn = version(&net, 0, 1);
    net.ahead_us.clear();
    net.pass(Duration::from_secs(3));
    for inquiry in 100..103 {
        net.operate(1, inquiry, Operation::Inquire { version: txn });
        // Shard 0 answers first.
        let is_of_shard_0 = |node: &NodeId| !node.is_coordinator() && node.partition() == 0;
        go_on(&mut net, |(from, to, _)| is_of_shard_0(from) || is_of_shard_0(to));
        net.pass(Duration::from_secs(3));
        let ending = told(&net, 1, inquiry);
        assert_eq!(ending, [Output::Ending(Ending::Committed)], "inquiry {inquiry}");
    }
}

#[test]
fn an_outcome_that_is_replayed_behind_a_later_window_is_not_reported_as_aborted() {
    let mut bench = Bench::<Queues<false>>::new();
    // Opens the window, so that its cell waits to be stored before that of the transaction.
    assert!(matches!(bench.write(0)[..], [Reply::Executed(_)]));
    bench.commit(txn(0), Stamp::assigned(txn(0)));
    for _ in 0..50 {
        bench.act(|replica, cx| replica.on_timer(Timer::Store, cx)); // 50 periods: nothing is old enough yet.
    }
    // `began` < what is forgotten < `at`.
    let (began, at) = (100, stamp(100 + 2 * Stamp::LANES, 100));
    assert!(matches!(bench.write(began)[..], [Reply::Executed(_)]));
    bench.commit(txn(began), at);
    for _ in 0..40 {
        bench.wait(Duration::from_secs(60));
        let over = Message::Request(Request::Over { below_us: NOW_US + began + Stamp::LANES });
        bench.act(|replica, cx| replica.on_message(NodeId::replica(1, 0), over, cx));
    }
    assert_eq!(bench.window().forget_us, NOW_US + began + Stamp::LANES);
    let is_commit = |replies: &[Reply]| {
        matches!(replies, [Reply::Decided { decision: Decision::Commit(_), .. }])
    };
    assert!(is_commit(&bench.ask(Request::Resolve { txn: at.version() })));
    // Stores what was changed before the 50 periods: the window, as it is now. Not the transaction's state.
    bench.act(|replica, cx| replica.on_timer(Timer::Store, cx));
    bench.restart();
    let after = bench.ask(Request::Resolve { txn: at.version() });
    assert!(is_commit(&after), "the client takes this for an abort: {after:?}");
}

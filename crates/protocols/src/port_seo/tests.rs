//! Replicas and clients whose messages are moved by hand.

use core::time::Duration;

use serried_actor::{Group, Settings};
use serried_model::snapshots::{Operation, Outcome, Output, Own, Read};
use serried_model::{Key, NodeId, Value, WriteToken};

use super::{
    Answer, Batch, Coordinator, Fate, Message, Mutation, Replica, Request, Sequenced, Timer, Write,
};
use crate::Mutated;
use crate::testing::{self, client_id};

type Net = testing::Net<Replica, Coordinator>;

const PARTITIONS: u16 = 3;

fn group(members: usize) -> Group {
    Group::new(members, Duration::from_millis(1)).with_partitions(PARTITIONS)
}

fn replica(id: NodeId, members: usize) -> Replica {
    Replica::new(id, group(members), &Settings::default(), Mutated::NONE)
}

/// So many replicas of each partition, and two clients. Member `p` leads partition `p`, if there is one.
fn net_of(members: usize, mutation: Mutated<Mutation>) -> Net {
    let (group, settings) = (group(members), Settings::default());
    let new = |id| Replica::new(id, group.clone(), &settings, mutation);
    let client = |_| Coordinator::new(group.clone(), &settings, mutation);
    let mut net: Net = testing::Net::new(PARTITIONS, members, new).with_clients(2, client);
    net.now = 1000;
    net.set_clock_us(1_000_000);
    net.start();
    net.pass(Duration::from_millis(50));
    for partition in 0..PARTITIONS {
        assert_eq!(net.gauge(leader(partition, members), "leads"), 1);
    }
    net
}

fn net(members: usize) -> Net {
    net_of(members, Mutated::NONE)
}

/// The replica that leads at first.
fn leader(partition: u16, members: usize) -> NodeId {
    NodeId::replica(partition, usize::from(partition) % members)
}

/// The replica that leads a partition now, among these members.
fn leader_now(net: &Net, partition: u16, members: &[usize]) -> NodeId {
    let mut ids = members.iter().map(|member| NodeId::replica(partition, *member));
    ids.find(|id| net.gauge(*id, "leads") == 1).expect("one leads")
}

/// A key of a partition.
fn key(partition: u16) -> Key {
    let mut keys = (0u32..).map(|number| Key::from(number.to_be_bytes()));
    keys.find(|key| group(1).partition_of(key) == partition).expect("each has keys")
}

fn begin_write(net: &mut Net, client: u64, txn: u64, partition: u16, value: &str) {
    let value = Some(Value::from(value));
    let writes = vec![serried_model::Write { key: key(partition), value }];
    net.operate(
        client,
        txn,
        Operation::Write { writes, session: 0, era: None, at: None, token: None },
    );
}

fn begin_read(net: &mut Net, client: u64, txn: u64, partitions: &[u16]) {
    let keys = partitions.iter().map(|partition| key(*partition)).collect();
    net.operate(client, txn, Operation::Read { keys, at: None, own: Own::default() });
}

/// How operations have ended, and what tokens writes have.
fn outcomes(net: &mut Net) -> (Vec<Outcome>, Vec<WriteToken>) {
    let (mut outcomes, mut tokens) = (Vec::new(), Vec::new());
    for (_, (_, output)) in net.outputs.drain(..) {
        match output {
            Output::Outcome(outcome) => outcomes.push(outcome),
            Output::Began(token) => tokens.push(token),
            Output::Era(_) => {}
        }
    }
    (outcomes, tokens)
}

/// Writes, and returns the number of the write.
fn write(net: &mut Net, client: u64, partition: u16, value: &str) -> u64 {
    begin_write(net, client, 900, partition, value);
    // A client that asks the wrong replica waits for a while.
    for _ in 0..3000 {
        net.pass(Duration::from_millis(1));
        match outcomes(net).0[..] {
            [] => {}
            [Outcome::Written(written)] => return written.stamp.0,
            ref other => panic!("{other:?}"),
        }
    }
    panic!("it does not end")
}

/// What a read has found, and its costs.
fn ended(net: &mut Net) -> Option<(Vec<Option<String>>, Read)> {
    let (outcomes, _) = outcomes(net);
    let [Outcome::Read(read)] = &outcomes[..] else { return None };
    let text = |value: &Option<Value>| value.as_ref().map(Value::to_string);
    Some((read.found.iter().map(|(value, _)| text(value)).collect(), read.clone()))
}

fn read(net: &mut Net, client: u64, partitions: &[u16]) -> (Vec<Option<String>>, Read) {
    begin_read(net, client, 901, partitions);
    net.pass(Duration::from_millis(1));
    ended(net).expect("it has ended")
}

fn some(text: &str) -> Option<String> {
    Some(text.to_string())
}

#[test]
fn a_read_finds_what_was_written_in_any_partition_in_one_round() {
    for members in [1, 3] {
        let mut net = net(members);
        assert_eq!(read(&mut net, 0, &[0, 1, 2]).0, [None, None, None]);
        for (number, partition) in [(1, 0), (2, 1), (3, 2), (4, 1)] {
            assert_eq!(write(&mut net, 1, partition, &number.to_string()), number);
        }
        let (values, read) = self::read(&mut net, 0, &[2, 0, 1, 1]);
        assert_eq!(values, [some("3"), some("1"), some("4"), some("4")]);
        let numbers: Vec<u64> = read.found.iter().map(|(_, stamp)| stamp.0).collect();
        assert_eq!((numbers, read.rounds), (vec![3, 1, 4, 4], 1));
        let sum = |name: &str| net.ids().into_iter().map(|id| net.gauge(id, name)).sum::<u64>();
        assert_eq!(sum("blocked_reads"), 0);
        assert_eq!(sum("confirmed_reads"), if members == 1 { 0 } else { 6 });
    }
}

/// A transaction that asks one partition long before the other. Both are written in between, one after the other.
fn read_at_different_times(mutation: Mutated<Mutation>) -> Vec<Option<String>> {
    let mut net = net_of(1, mutation);
    write(&mut net, 1, 1, "a");
    write(&mut net, 1, 2, "a");
    begin_read(&mut net, 0, 7, &[1, 2]);
    let reader = client_id(0);
    let of = |id: NodeId| move |(from, to, _): &(NodeId, NodeId, Message)| *from == id || *to == id;
    let late = net.take(|envelope| of(reader)(envelope) && of(leader(2, 1))(envelope));
    net.settle_where(of(reader));
    for value in ["b", "c"] {
        write(&mut net, 1, 1, value);
        write(&mut net, 1, 2, value);
    }
    net.network.extend(late);
    net.settle();
    let (values, read) = ended(&mut net).expect("it has ended");
    assert_eq!(read.rounds, 1);
    values
}

#[test]
fn a_read_returns_one_state_although_partitions_answer_at_different_times() {
    assert_eq!(read_at_different_times(Mutated::NONE), [some("a"), some("a")]);
    let broken = Mutated::by(Mutation::VectorsIgnored);
    assert_eq!(read_at_different_times(broken), [some("a"), some("c")]);
}

#[test]
fn a_batch_waits_until_the_one_before_is_applied_and_takes_all_that_have_come_meanwhile() {
    let mut net = net(1);
    begin_write(&mut net, 0, 1, 1, "a");
    let is_batch =
        |(_, _, message): &(NodeId, NodeId, Message)| matches!(message, Message::Batch(_));
    let is_other = |envelope: &(NodeId, NodeId, Message)| !is_batch(envelope);
    net.settle_where(is_other);
    for (txn, partition) in [(2, 2), (3, 1), (4, 1), (5, 0)] {
        begin_write(&mut net, 1, txn, partition, "b");
    }
    net.settle_where(is_other);
    assert_eq!(net.network.iter().filter(|envelope| is_batch(envelope)).count(), 1);
    assert_eq!(net.gauge(leader(0, 1), "queued_writes"), 5);
    assert_eq!(outcomes(&mut net).0, []);
    net.settle();
    assert_eq!(outcomes(&mut net).0.len(), 5);
    assert_eq!(net.gauge(leader(0, 1), "batches"), 4, "two writes have shared one");
    assert_eq!(net.gauge(leader(0, 1), "queued_writes"), 0);
}

/// The sequencer dies when it has logged a batch, and before it hands it out; the client dies, too. Whether the write
/// takes effect.
fn takes_effect_after_the_sequencer_died(mutation: Mutated<Mutation>) -> bool {
    let mut net = net_of(3, mutation);
    begin_write(&mut net, 0, 1, 1, "a");
    let is_batch =
        |(_, _, message): &(NodeId, NodeId, Message)| matches!(message, Message::Batch(_));
    for _ in 0..100 {
        net.settle_where(|envelope| !is_batch(envelope));
        net.fire_due(leader(0, 3));
    }
    assert_eq!(net.take(is_batch).len(), 1);
    net.leave(client_id(0));
    net.crash(leader(0, 3));
    net.pass(Duration::from_secs(2));
    assert_eq!(write(&mut net, 1, 2, "b"), 2, "the number of the other one was given");
    let (values, _) = read(&mut net, 1, &[1, 2]);
    values[0].is_some()
}

#[test]
fn a_new_sequencer_hands_out_the_last_batch_again() {
    assert!(takes_effect_after_the_sequencer_died(Mutated::NONE));
    assert!(!takes_effect_after_the_sequencer_died(Mutated::by(Mutation::NotHandedOutAgain)));
}

/// A write is applied, its acknowledgement is lost, and the sequencer dies. Another client overwrites it. What the key
/// has when the first client has tried again.
fn tried_again(mutation: Mutated<Mutation>) -> (Vec<Option<String>>, Vec<Outcome>) {
    let mut net = net_of(3, mutation);
    net.clients_idle = true;
    begin_write(&mut net, 0, 1, 1, "a");
    let to_client = |(_, to, _): &(NodeId, NodeId, Message)| *to == client_id(0);
    for _ in 0..200 {
        net.settle_where(|envelope| !to_client(envelope));
        net.ids().into_iter().for_each(|id| net.fire_due(id));
    }
    assert_eq!(net.take(to_client).len(), 1);
    net.crash(leader(0, 3));
    net.clients_idle = false;
    // The first client does not notice anything yet.
    let away: Vec<_> = net.clients[client_id(0)].timers.keys().copied().collect();
    net.clients[client_id(0)].timers.clear();
    net.pass(Duration::from_secs(2));
    write(&mut net, 1, 1, "b");
    away.into_iter().for_each(|timer| net.fire_client(client_id(0), timer));
    net.pass(Duration::from_secs(2));
    let (outcomes, _) = outcomes(&mut net);
    (read(&mut net, 1, &[1]).0, outcomes)
}

#[test]
fn a_write_that_is_tried_again_under_a_new_sequencer_takes_effect_once() {
    let (values, outcomes) = tried_again(Mutated::NONE);
    assert_eq!(values, [some("b")]);
    let [Outcome::Written(written)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!(written.stamp.0, 1, "its first number");
    let (values, _) = tried_again(Mutated::by(Mutation::ExecutedAgain));
    assert_eq!(values, [some("a")]);
}

#[test]
fn a_write_whose_outcome_is_unknown_takes_effect_once_if_another_client_tries_it_again() {
    let mut net = net(1);
    begin_write(&mut net, 0, 1, 1, "a");
    net.operate(0, 1, Operation::GiveUp);
    net.pass(Duration::from_millis(1));
    let (ended, tokens) = outcomes(&mut net);
    assert_eq!(ended, [Outcome::Unknown]);
    write(&mut net, 1, 1, "b");
    let writes = vec![serried_model::Write { key: key(1), value: Some(Value::from("a")) }];
    let again =
        Operation::Write { writes, session: 0, era: None, at: None, token: Some(tokens[0]) };
    net.operate(1, 2, again);
    net.pass(Duration::from_millis(1));
    let (ended, _) = outcomes(&mut net);
    let [Outcome::Written(written)] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!(written.stamp.0, 1);
    assert_eq!(read(&mut net, 0, &[1]).0, [some("b")]);
}

/// Whether a leader that was deposed, and does not know it, answers a read.
fn answers_after_it_was_deposed(mutation: Mutated<Mutation>) -> bool {
    let mut net = net_of(3, mutation);
    write(&mut net, 0, 1, "a");
    // The first client knows only this leader, and this leader nobody.
    let old = leader(1, 3);
    let others = [0, 2].map(|member| NodeId::replica(1, member));
    for other in others {
        net.cut.extend([(old, other), (other, old)]);
    }
    net.held = [old].into_iter().collect();
    net.pass(Duration::from_secs(3));
    leader_now(&net, 1, &[0, 2]);
    assert_eq!(net.gauge(old, "leads"), 1, "it does not know");
    write(&mut net, 1, 1, "b");
    net.held = testing::set(&[]);
    net.clients_idle = true;
    let request = Request::Read { since: 0, exact: false, keys: vec![key(1)], partitions: vec![1] };
    let stranger = client_id(77);
    net.deliver((stranger, old, Message::Request { number: 1, request }));
    net.settle_where(|(from, to, _)| *from == old || *to == old);
    !net.delivered.is_empty()
}

#[test]
fn a_deposed_leader_answers_no_read() {
    assert!(!answers_after_it_was_deposed(Mutated::NONE));
    assert!(answers_after_it_was_deposed(Mutated::by(Mutation::ReadsNotConfirmed)));
}

#[test]
fn a_client_that_has_heard_of_nothing_reads_in_one_round_and_one_that_finds_too_little_in_two() {
    let mut net = net(1);
    write(&mut net, 1, 1, "a");
    write(&mut net, 1, 2, "a");
    net.pass(Duration::from_secs(5));
    let (values, first) = read(&mut net, 0, &[1, 2]);
    assert_eq!((values, first.rounds), (vec![some("a"), some("a")], 1), "nothing is kept");
    // It asks one partition, and the other one so much later that nothing is kept from then.
    begin_read(&mut net, 0, 7, &[1, 2]);
    net.clients_idle = true;
    let late = net.take(|(_, to, _)| *to == leader(2, 1));
    net.settle();
    write(&mut net, 1, 1, "b");
    write(&mut net, 1, 2, "b");
    net.pass(Duration::from_secs(5));
    net.network.extend(late);
    net.settle();
    let (values, second) = ended(&mut net).expect("it has ended");
    assert_eq!((values, second.rounds), (vec![some("b"), some("b")], 2));
    assert_eq!(net.gauge(leader(2, 1), "cut_reads"), 2);
}

#[test]
fn a_restarted_replica_that_is_alone_knows_all_that_it_had_acknowledged() {
    let mut net = net(1);
    for (partition, value) in [(0, "a"), (1, "b"), (2, "c"), (1, "d")] {
        write(&mut net, 0, partition, value);
    }
    for stored in [false, true] {
        if stored {
            (0..100).for_each(|_| net.fire_where_set(Timer::Store));
        }
        for partition in 0..PARTITIONS {
            let id = leader(partition, 1);
            net.crash(id);
            net.restart(id, replica(id, 1));
        }
        net.pass(Duration::from_secs(1));
        let (values, _) = read(&mut net, 1, &[0, 1, 2]);
        assert_eq!(values, [some("a"), some("d"), some("c")]);
    }
    assert_eq!(write(&mut net, 1, 2, "e"), 5, "no number is given twice");
}

#[test]
fn a_partition_whose_leader_changes_loses_no_batch() {
    let mut net = net(3);
    write(&mut net, 0, 1, "a");
    net.crash(leader(1, 3));
    begin_write(&mut net, 0, 1, 1, "b");
    net.pass(Duration::from_secs(2));
    assert_eq!(outcomes(&mut net).0.len(), 1);
    assert_eq!(read(&mut net, 1, &[1]).0, [some("b")]);
}

#[test]
fn a_client_whose_clock_is_ahead_is_refused_for_good() {
    let mut net = net(3);
    net.ahead_us.insert(client_id(0), 3_600_000_000);
    begin_write(&mut net, 0, 1, 1, "a");
    net.pass(Duration::from_millis(1));
    let (ended, tokens) = outcomes(&mut net);
    assert!(matches!(ended[..], [Outcome::ClockSkew { ahead_us: 3_000_000_000.. }]), "{ended:?}");
    net.wait(Duration::from_secs(3600));
    let writes = vec![serried_model::Write { key: key(1), value: Some(Value::from("a")) }];
    let again =
        Operation::Write { writes, session: 0, era: None, at: None, token: Some(tokens[0]) };
    net.operate(1, 2, again);
    net.pass(Duration::from_secs(5));
    assert_eq!(outcomes(&mut net).0, [Outcome::Forgotten]);
    assert_eq!(read(&mut net, 1, &[1]).0, [None]);
}

#[test]
fn the_durable_log_is_trimmed() {
    let mut net = net(3);
    for number in 0..150_u16 {
        write(&mut net, 0, number % PARTITIONS, "a");
    }
    net.pass(Duration::from_secs(2));
    // A log to which nothing is added is not trimmed.
    (0..PARTITIONS).for_each(|partition| _ = write(&mut net, 0, partition, "b"));
    net.pass(Duration::from_secs(2));
    for id in net.ids() {
        let trimmed = net.nodes[id].trimmed.unwrap_or(0);
        let (end, unstored) = (net.nodes[id].log_position(), net.gauge(id, "unstored_keys"));
        assert!(end - trimmed < 20, "{id}: {trimmed} to {end}, {unstored} keys");
    }
}

/// A batch of one write for partition 1.
fn batch(first: u64, key: Key) -> Batch {
    let token = serried_model::Version { timestamp_us: 1_000_000, coordinator: client_id(0) };
    let write = Write { key, value: Some(Value::from("forged")), token, settled: token };
    let writes = vec![Sequenced { write, is_refused: false }];
    Batch { partition: 1, first, highest: vec![0, first, 0], writes }
}

#[test]
fn messages_that_nobody_can_have_sent_are_rejected() {
    let mut net = net(1);
    net.forged = true;
    write(&mut net, 1, 1, "a");
    let (sequencer, one, two) = (leader(0, 1), leader(1, 1), leader(2, 1));
    let good = batch(2, key(1));
    let wrong_vector = Batch { highest: vec![0, 3, 0], ..good.clone() };
    let short_vector = Batch { highest: vec![0, 2], ..good.clone() };
    let empty = Batch { writes: Vec::new(), ..good.clone() };
    let read = |keys, partitions| Request::Read { since: 0, exact: false, keys, partitions };
    let request = |request| Message::Request { number: 1, request };
    let forward = |batch| Message::ForwardBatch { sequencer, batch };
    let applied = |fates| Message::Applied { last: 2, fates };
    let write_of = good.writes[0].write.clone();
    let forged = [
        (client_id(5), one, Message::Batch(good.clone())),
        (two, one, Message::Batch(good.clone())),
        (two, one, forward(good.clone())),
        (sequencer, two, Message::Batch(good.clone())),
        (sequencer, one, Message::Batch(batch(2, key(2)))),
        (sequencer, one, Message::Batch(batch(u64::MAX, key(1)))),
        (sequencer, one, Message::Batch(batch(0, key(1)))),
        (sequencer, one, Message::Batch(wrong_vector)),
        (sequencer, one, Message::Batch(short_vector)),
        (sequencer, one, Message::Batch(empty)),
        (sequencer, sequencer, Message::Batch(Batch { partition: 0, ..batch(2, key(0)) })),
        (client_id(5), sequencer, applied(vec![Fate::Forgotten])),
        (two, one, applied(vec![Fate::Forgotten])),
        (client_id(5), one, request(Request::Write(write_of))),
        (client_id(5), one, request(read(vec![key(2)], vec![1, 2]))),
        (client_id(5), one, request(read(vec![key(1)], vec![2]))),
        (client_id(5), one, request(read(vec![key(1)], vec![1, 9]))),
        (client_id(5), one, request(read(vec![key(1)], vec![2, 1]))),
        (client_id(5), one, request(read(Vec::new(), vec![1]))),
        (client_id(5), one, Message::Reply { number: 1, answer: Answer::Forgotten }),
    ];
    for (from, to, message) in forged {
        let before = net.nodes[to].rejected;
        let shown = format!("{message:?}");
        net.deliver((from, to, message));
        net.settle();
        assert_eq!(net.nodes[to].rejected, before + 1, "{shown}");
    }
    // An acknowledgement of another partition, or of other writes.
    begin_write(&mut net, 1, 1, 1, "b");
    net.settle_where(|(_, _, message)| !matches!(message, Message::Batch(_)));
    for (from, fates) in
        [(two, vec![Fate::Done(2)]), (one, vec![Fate::Done(2); 2]), (one, vec![Fate::Done(3)])]
    {
        let before = net.nodes[sequencer].rejected;
        net.deliver((from, sequencer, applied(fates)));
        assert_eq!(net.nodes[sequencer].rejected, before + 1);
    }
    assert_eq!(outcomes(&mut net).0, []);
    net.settle();
    assert_eq!(outcomes(&mut net).0.len(), 1);
    assert_eq!(self::read(&mut net, 0, &[0, 1, 2]).0, [None, some("b"), None]);
}

#[test]
fn a_client_believes_only_answers_to_what_it_has_asked() {
    let mut net = net(1);
    net.forged = true;
    write(&mut net, 1, 1, "a");
    begin_read(&mut net, 0, 7, &[1, 2]);
    let client = client_id(0);
    net.settle_where(|(_, to, _)| *to != client);
    let (from, _, reply) =
        net.take_first(|(from, _, _)| *from == leader(1, 1)).expect("partition 1 has answered");
    let Message::Reply { number, answer: Answer::Found(found) } = reply else {
        panic!("{reply:?}")
    };
    let mut late = found.clone();
    late.versions[0][0].number = late.complete_from + 1;
    let wrong = [
        (leader(2, 1), Answer::Found(found.clone())),
        (client_id(9), Answer::Found(found.clone())),
        (from, Answer::Written { number: 1 }),
        (from, Answer::Found(super::Found { versions: Vec::new(), ..found.clone() })),
        (from, Answer::Found(super::Found { last: u64::MAX, ..found.clone() })),
        (from, Answer::Found(late)),
    ];
    for (from, answer) in wrong {
        let before = net.clients[client].rejected;
        let shown = format!("{answer:?}");
        net.deliver((from, client, Message::Reply { number, answer }));
        assert_eq!(net.clients[client].rejected, before + 1, "{shown}");
    }
    net.deliver((from, client, Message::Reply { number, answer: Answer::Found(found) }));
    net.settle();
    assert_eq!(ended(&mut net).expect("it has ended").0, [some("a"), None]);
}

#[test]
fn a_read_that_finds_no_common_state_asks_for_one_and_no_later_one() {
    let mut net = net(1);
    net.forged = true;
    begin_read(&mut net, 0, 7, &[1, 2]);
    let client = client_id(0);
    // Partition 2 answers so much later that it does not go back to what partition 1 has answered.
    let found = |last, complete_from, highest: [u64; 2]| super::Found {
        last,
        complete_from,
        versions: vec![vec![super::message::Version::default()]],
        marks: vec![super::message::Mark { last, highest: highest.to_vec() }],
    };
    for (partition, found) in [(1, found(3, 0, [3, 2])), (2, found(90, 80, [88, 90]))] {
        net.settle_where(|(_, to, _)| *to != leader(1, 1) && *to != leader(2, 1));
        let asked = net.take_first(|(_, to, _)| *to == leader(partition, 1));
        let Some((_, to, Message::Request { number, request })) = asked else {
            panic!("{asked:?}")
        };
        assert!(matches!(request, Request::Read { since: 0, exact: false, .. }), "{request:?}");
        let answer = Answer::Found(found);
        if partition == 2 {
            // Meanwhile a write of the client has ended, in the middle of a batch.
            begin_write(&mut net, 0, 8, 1, "a");
            let written = net.take_first(|(_, to, _)| *to == leader(0, 1));
            let Some((to, Message::Request { number, .. })) =
                written.map(|(_, to, message)| (to, message))
            else {
                panic!("it is sent to the sequencer")
            };
            let answer = Answer::Written { number: 95 };
            net.deliver((to, client, Message::Reply { number, answer }));
        }
        net.deliver((to, client, Message::Reply { number, answer }));
    }
    let is_second = |(_, _, message): &(NodeId, NodeId, Message)| {
        let Message::Request { request, .. } = message else { return false };
        matches!(request, Request::Read { since: 90, exact: true, .. })
    };
    assert_eq!(net.take(is_second).len(), 2);
}

#[test]
fn a_write_that_was_given_up_is_remembered_until_it_is_tried_again() {
    let mut net = net(1);
    write(&mut net, 0, 1, "before");
    begin_write(&mut net, 0, 1, 1, "a");
    let client = client_id(0);
    net.settle_where(|(_, to, _)| *to != client);
    net.operate(0, 1, Operation::GiveUp);
    let (ended, tokens) = outcomes(&mut net);
    assert_eq!(ended, [Outcome::Unknown]);
    // The answer comes after that, and the same client writes the key again.
    net.settle();
    write(&mut net, 0, 1, "b");
    let writes = vec![serried_model::Write { key: key(1), value: Some(Value::from("a")) }];
    let again =
        Operation::Write { writes, session: 0, era: None, at: None, token: Some(tokens[0]) };
    net.operate(0, 2, again);
    net.settle();
    let (ended, _) = outcomes(&mut net);
    assert!(matches!(ended[..], [Outcome::Written(_)]), "{ended:?}");
    assert_eq!(read(&mut net, 0, &[1]).0, [some("b")], "it took effect before");
}

#[test]
fn a_batch_ends_although_the_leader_that_has_applied_it_cannot_reach_the_sequencer() {
    let mut net = net(3);
    write(&mut net, 0, 1, "a");
    let (sequencer, leader) = (leader(0, 3), leader(1, 3));
    net.cut.extend([(sequencer, leader), (leader, sequencer)]);
    write(&mut net, 0, 1, "b");
    write(&mut net, 0, 1, "c");
    assert_eq!(net.gauge(leader, "leads"), 1, "its own replicas reach it");
    assert_eq!(read(&mut net, 0, &[1]).0, [some("c")]);
}

#[test]
fn a_read_waits_for_a_slot_that_was_proposed_after_it_came() {
    let mut net = net(3);
    write(&mut net, 0, 1, "a");
    let old = leader(1, 3);
    let others = [0, 2].map(|member| NodeId::replica(1, member));
    let ask = |net: &mut Net, number| {
        let request =
            Request::Read { since: 0, exact: false, keys: vec![key(1)], partitions: vec![1] };
        net.deliver((client_id(77), old, Message::Request { number, request }));
    };
    net.clients_idle = true;
    ask(&mut net, 1);
    net.fire_due(old);
    net.settle_where(|(from, to, _)| *from == old && others.contains(to));
    let accepted = net.take(|(_, to, _)| *to == old);
    assert!(!accepted.is_empty());
    for other in others {
        net.cut.extend([(old, other), (other, old)]);
    }
    net.held = [old].into_iter().collect();
    net.clients_idle = false;
    net.pass(Duration::from_secs(3));
    leader_now(&net, 1, &[0, 2]);
    write(&mut net, 1, 1, "b");
    net.take(|(from, to, _)| *to == old || *from == old);
    net.held = testing::set(&[]);
    net.clients_idle = true;
    net.delivered.clear();
    ask(&mut net, 2);
    accepted.into_iter().for_each(|envelope| net.deliver(envelope));
    net.settle_where(|(from, to, _)| *from == old || *to == old);
    let number = |(_, _, message): &(NodeId, NodeId, Message)| match message {
        Message::Reply { number, .. } => *number,
        other => panic!("{other:?}"),
    };
    assert_eq!(net.delivered.iter().map(number).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_batch_whose_slot_another_leader_has_taken_is_proposed_again() {
    let mut net = net(3);
    write(&mut net, 0, 1, "a");
    let (old, sequencer) = (leader(1, 3), leader(0, 3));
    let others = [0, 2].map(|member| NodeId::replica(1, member));
    for other in others {
        net.cut.extend([(old, other), (other, old), (sequencer, other)]);
    }
    begin_write(&mut net, 0, 1, 1, "b");
    net.pass(Duration::from_millis(2));
    net.held = [old].into_iter().collect();
    net.pass(Duration::from_secs(3));
    let between = leader_now(&net, 1, &[0, 2]);
    net.crash(between);
    net.cut.retain(|(from, _)| *from == sequencer);
    net.held = testing::set(&[]);
    let mut was_deposed = false;
    for _ in 0..5000 {
        net.wait(Duration::from_millis(1));
        net.fire_due(old);
        net.fire_due(sequencer);
        net.settle();
        was_deposed |= net.gauge(old, "leads") == 0;
    }
    assert!(was_deposed && net.gauge(old, "leads") == 1);
    assert_eq!(outcomes(&mut net).0.len(), 1, "the batch is applied");
}

#[test]
fn a_read_does_not_wait_until_a_batch_is_chosen_before_it_is_confirmed() {
    let mut net = net(3);
    write(&mut net, 0, 1, "a");
    let old = leader(1, 3);
    begin_write(&mut net, 0, 1, 1, "b");
    for _ in 0..20 {
        net.settle_where(|(from, _, _)| *from != old);
        net.ids().into_iter().for_each(|id| net.fire_due(id));
    }
    assert!(!net.take(|(from, _, _)| *from == old).is_empty(), "it has proposed the batch");
    let request = Request::Read { since: 0, exact: false, keys: vec![key(1)], partitions: vec![1] };
    net.deliver((client_id(77), old, Message::Request { number: 1, request }));
    net.fire_due(old);
    assert!(!net.take(|(from, _, _)| *from == old).is_empty(), "it has itself confirmed");
}

#[test]
fn a_write_waits_while_the_clocks_of_a_majority_disagree_whether_its_client_is_ahead() {
    let (group, settings) = (group(3), Settings::default());
    let mut net: Net = testing::Net::new(PARTITIONS, 3, |id| replica(id, 3))
        .with_clients(2, |_| Coordinator::new(group.clone(), &settings, Mutated::NONE));
    net.now = 1000;
    net.set_clock_us(1_000_000);
    // The sequencer hears of one other clock, which is ahead by more than that of the client.
    let [sequencer, ahead, unheard] = [0, 1, 2].map(|member| NodeId::replica(0, member));
    net.cut.extend([(sequencer, unheard), (unheard, sequencer)]);
    net.ahead_us.insert(ahead, 3_600_000_000);
    net.ahead_us.insert(client_id(0), 1_800_000_000);
    net.start();
    net.pass(Duration::from_millis(50));
    assert_eq!(net.gauge(sequencer, "leads"), 1);
    assert_eq!(write(&mut net, 1, 1, "a"), 1, "nobody doubts this one");
    begin_write(&mut net, 0, 1, 1, "b");
    net.pass(Duration::from_secs(5));
    assert_eq!(outcomes(&mut net).0, []);
    net.cut.clear();
    net.pass(Duration::from_secs(5));
    let (ended, _) = outcomes(&mut net);
    assert!(matches!(ended[..], [Outcome::ClockSkew { .. }]), "{ended:?}");
}

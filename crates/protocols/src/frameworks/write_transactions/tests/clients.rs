//! Clients, which put the answers of partitions together.

use super::*;

fn outcome(net: &mut Net) -> Outcome {
    net.pass(Duration::from_secs(1));
    let outputs: Vec<Output> = net.outputs.drain(..).map(|(_, (_, output))| output).collect();
    let Some(Output::Outcome(outcome)) = outputs.last() else { panic!("{outputs:?}") };
    outcome.clone()
}

fn operate_write(net: &mut Net, txn: u64, token: Option<WriteToken>) {
    let writes = vec![write(key(0, 0), "a"), write(key(1, 0), "b")];
    net.operate(0, txn, Operation::Write { writes, at: None, session: SESSION, era: None, token });
}

#[test]
fn a_client_writes_keys_together_and_reads_them_in_one_round() {
    for reads in [Reads::AtSafeTime, Reads::Optimistically] {
        let mut net = net_of(3, reads, Mutated::NONE);
        operate_write(&mut net, 1, None);
        let Outcome::Written(Written { stamp, .. }) = outcome(&mut net) else { panic!("written") };
        let own = Own { session: SESSION, written: stamp, ..Own::default() };
        let keys = vec![key(1, 0), key(0, 0), key(0, 1), key(1, 0)];
        for txn in [2, 3] {
            let read = Operation::Read { keys: keys.clone(), at: None, own };
            net.operate(0, txn, read);
            let Outcome::Read(Read { found, rounds, .. }) = outcome(&mut net) else {
                panic!("a read")
            };
            let values: Vec<_> =
                found.iter().map(|(value, _)| value.as_ref().map(Value::to_string)).collect();
            assert_eq!(values, [some("b"), some("a"), None, some("b")]);
            assert_eq!(rounds, 1);
        }
    }
}

#[test]
fn a_write_is_tried_again_with_its_token_and_takes_effect_once() {
    let mut net = net(3);
    operate_write(&mut net, 1, None);
    let Outcome::Written(first) = outcome(&mut net) else { panic!("written") };
    operate_write(&mut net, 2, None);
    let Outcome::Written(second) = outcome(&mut net) else { panic!("written") };
    assert!(first.stamp < second.stamp);
    let token = WriteToken::OfSession(Versionstamp(9 << 10), SESSION);
    operate_write(&mut net, 3, Some(token));
    let Outcome::Written(third) = outcome(&mut net) else { panic!("written") };
    operate_write(&mut net, 4, Some(token));
    let Outcome::Written(fourth) = outcome(&mut net) else { panic!("written") };
    assert_eq!(third.stamp, fourth.stamp);
    for token in [WriteToken::Requested(Versionstamp(5)), token] {
        net.pass(Duration::from_secs(60));
        operate_write(&mut net, 5, Some(token));
        assert_eq!(outcome(&mut net), Outcome::Forgotten);
    }
}

#[test]
fn a_transaction_that_is_undone_is_begun_again_unless_it_has_a_token() {
    for has_token in [false, true] {
        let mut net = net(3);
        let to_second = |envelope: &Envelope<Message>| {
            matches!(&envelope.2, Message::Request { request: Request::Write { .. }, .. })
                && envelope.1.partition() == 1
        };
        let token = WriteToken::OfSession(Versionstamp(9 << 10), SESSION);
        operate_write(&mut net, 1, Some(token).filter(|_| has_token));
        // What it sends to the second partition is lost for long.
        net.clients_idle = true;
        for _ in 0..30 {
            while let Some(envelope) = net.network.pop_front() {
                if !to_second(&envelope) {
                    net.deliver(envelope);
                }
            }
            net.wait(Duration::from_millis(100));
            net.ids().into_iter().for_each(|id| net.fire_due(id));
        }
        net.clients_idle = false;
        match (has_token, outcome(&mut net)) {
            (false, Outcome::Written(_)) | (true, Outcome::NoEffect) => {}
            (_, other) => panic!("{other:?}"),
        }
    }
}

/// A client reads a key of each of these partitions for some time, while the answers of the second one say that its site
/// was rebuilt so often. Returns how many requests the client has sent, and the values, if it has found any.
fn read_beside(
    era: u32,
    partitions: &[u16],
    net: &mut Net,
) -> (usize, Option<Vec<Option<String>>>) {
    let keys = partitions.iter().map(|partition| key(*partition, 0)).collect();
    net.operate(0, 9, Operation::Read { keys, at: None, own: Own::default() });
    let (mut requests, mut values) = (0, None);
    for _ in 0..100 {
        while let Some(mut envelope) = net.network.pop_front() {
            requests += usize::from(matches!(envelope.2, Message::Request { .. }));
            assert!(requests < 1000, "it does not wait between two requests");
            if let Message::Reply { answer, .. } = &mut envelope.2
                && envelope.0.partition() == 1
                && let Answer::Values { clock, .. } | Answer::Clock(clock) = answer
            {
                clock.era = era;
            }
            net.deliver(envelope);
        }
        for (_, (_, output)) in net.outputs.drain(..) {
            if let Output::Outcome(Outcome::Read(Read { found, .. })) = output {
                let all = found.iter().map(|(value, _)| value.as_ref().map(Value::to_string));
                values = Some(all.collect());
            }
        }
        net.wait(Duration::from_millis(1));
        net.ids().into_iter().for_each(|id| net.fire_due(id));
        net.fire_due_clients();
    }
    (requests, values)
}

#[test]
fn a_reader_asks_again_with_pauses_while_leaders_are_of_different_eras() {
    let mut net = net(1);
    operate_write(&mut net, 1, None);
    outcome(&mut net);
    // It hears of another era, and then reads where nobody has heard of it.
    let (requests, values) = read_beside(1, &[1], &mut net);
    assert!(requests < 10 && values == Some(vec![some("b")]), "{requests}, {values:?}");
    let (requests, values) = read_beside(1, &[0], &mut net);
    assert!((3..100).contains(&requests) && values.is_none(), "{requests}, {values:?}");
}

#[test]
fn an_era_that_no_site_can_have_reached_is_refused() {
    let mut net = net(1);
    operate_write(&mut net, 1, None);
    outcome(&mut net);
    net.forged = true;
    assert_eq!(read_beside(u32::MAX, &[0, 1], &mut net).1, None);
    // A leader that says the truth is believed.
    net.operate(0, 9, Operation::GiveUp);
    let (_, values) = read_beside(0, &[0, 1], &mut net);
    assert_eq!(values, Some(vec![some("a"), some("b")]));
}

#[test]
fn answers_of_different_eras_are_not_put_together() {
    let mut net = net(1);
    operate_write(&mut net, 1, None);
    outcome(&mut net);
    let (requests, values) = read_beside(1, &[0, 1], &mut net);
    assert!(requests > 3 && values.is_none(), "{requests}, {values:?}");
}

#[test]
fn a_write_that_has_committed_before_its_site_was_rebuilt_is_not_refused() {
    let mut net = net(1);
    let writes = vec![write(key(0, 0), "a"), write(key(1, 0), "b")];
    let (at, token) = (None, None);
    net.operate(0, 1, Operation::Write { writes, at, session: SESSION, era: Some(0), token });
    let mut rebuilt = false;
    let mut outcomes = Vec::new();
    for _ in 0..100 {
        while let Some(mut envelope) = net.network.pop_front() {
            if let Message::Reply { answer: Answer::Committed { clock, .. }, .. } = &mut envelope.2
            {
                // The second answer is of a later era.
                clock.era = u32::from(core::mem::replace(&mut rebuilt, true));
            }
            net.deliver(envelope);
        }
        outcomes.extend(net.outputs.drain(..).map(|(_, (_, output))| output));
        net.wait(Duration::from_millis(1));
        net.ids().into_iter().for_each(|id| net.fire_due(id));
    }
    assert!(rebuilt && matches!(outcomes.last(), Some(Output::Outcome(Outcome::Written(_)))));
}

#[test]
fn a_write_that_is_refused_as_too_late_is_begun_again_only_if_it_is_certain_that_it_never_was() {
    // Outcomes are kept for 30 s.
    for (seconds, is_certain) in [(7, true), (8, false)] {
        let mut net = net(1);
        operate_write(&mut net, 1, None);
        net.clients_idle = true;
        let is_write = |(_, _, message): &Envelope<Message>| {
            matches!(message, Message::Request { request: Request::Write { .. }, .. })
        };
        net.settle_where(|envelope| !is_write(envelope));
        let sent = net.take(is_write);
        assert_eq!(sent.len(), 2);
        net.outputs.clear();
        // Both are accepted, for all that the client knows, and the answers are lost.
        net.wait(Duration::from_secs(seconds));
        let Some((from, to, Message::Request { number, .. })) = sent.into_iter().next() else {
            panic!("it was sent")
        };
        let answer = Answer::Outdated { clock: Clock::default() };
        net.deliver((to, from, Message::Reply { number, answer }));
        let begun_again = !net.take(is_write).is_empty();
        assert_eq!(begun_again, is_certain, "after {seconds} s");
    }
}

//! What a site that has lost its disks asks of others, and what is left of its former life. The test plays the other site.

use serried_actor::{Actor, NodeSet};

use super::super::message::{Across, Outgoing, Run};
use super::*;

/// Two partitions of so many replicas, at the first of two sites.
fn site(members: usize) -> Net {
    let mut net: Net = testing::Net::new(2, members, |id| replica_of_site(id, members));
    net.now = 1000;
    net.start();
    net.pass(Duration::from_millis(20));
    net
}

fn replica_of_site(id: NodeId, members: usize) -> Replica {
    let group = group(members).at_site(0, 2);
    Replica::new(id, group, &Settings::default(), Mutated::NONE)
}

/// The same partition at the other site.
fn counterpart(partition: u16) -> NodeId {
    NodeId::replica(partition + 2, 0)
}

fn across(from: NodeId, to: NodeId, eras: [u32; 2], across: Across) -> Envelope<Message> {
    (from, to, Message::Across { origin: from, eras: eras.to_vec(), across })
}

/// Whether the other site was told something since the last call.
fn has_told(net: &mut Net) -> bool {
    let is_told = |message| matches!(message, Message::Across { across: Across::Told { .. }, .. });
    core::mem::take(&mut net.delivered).into_iter().any(|(_, _, message)| is_told(message))
}

#[test]
fn a_leader_that_was_perhaps_deposed_does_not_tell_a_lost_site_what_its_era_was() {
    let mut net = site(3);
    let leader = leader(&net, 0);
    let ask = |number| across(counterpart(0), leader, [0, 0], Across::Ask { number });
    let others = net.ids().into_iter().filter(|id| id.partition() == 0 && *id != leader);
    // Its followers hear nothing of it any more. So it does not know whether one of them leads.
    net.held = others.collect();
    net.deliver(ask(1));
    net.pass(Duration::from_millis(100));
    assert_eq!(net.gauge(leader, "leads"), 1);
    assert!(!has_told(&mut net));
    net.held = NodeSet::EMPTY;
    net.pass(Duration::from_millis(100));
    assert!(has_told(&mut net), "it was not deposed");
    // Leaders that change often have no time to wait for a timer.
    net.deliver(ask(2));
    net.pass(Duration::ZERO);
    assert!(has_told(&mut net));
}

/// What the second partition has voted for a transaction.
fn vote(id: TransactionId, era: u32) -> Envelope<Message> {
    let peer = Peer::Vote { id, pending: id.requested.next(), overdue: false };
    (NodeId::replica(1, 0), NodeId::replica(0, 0), Message::Peer { era, peer })
}

/// Whether a transaction commits that only the first partition has been sent.
fn commits(net: &mut Net, id: TransactionId) -> bool {
    answers(net);
    send(net, 0, 1, part(id, 0, "half"));
    net.pass(Duration::from_millis(20));
    !answers(net).is_empty()
}

#[test]
fn votes_of_another_era_do_not_count() {
    for (era, counts) in [(0, true), (1, false)] {
        let mut net = site(1);
        net.deliver(vote(id(1), era));
        assert_eq!(commits(&mut net, id(1)), counts);
    }
}

/// A site that has lost its disks is rebuilt. The other site has admitted nothing of it. What else it is sent, and what it
/// answers and in which era of the lost site, is up to `answer`.
fn rebuilt(mut answer: impl FnMut(&mut Net, &Across) -> Option<(u32, Across)>) -> Net {
    let mut net = site(1);
    for id in net.ids() {
        net.replace(id, replica_of_site(id, 1));
    }
    let latest = Versionstamp(5);
    for _ in 0..300 {
        net.pass(Duration::from_millis(10));
        for (from, to, message) in core::mem::take(&mut net.delivered) {
            let Message::Across { eras, across: asked, .. } = message else { continue };
            let usual = |asked| match asked {
                Across::Ask { number } => Some(Across::Told { number, latest }),
                Across::Restore { after } => {
                    let (next, versions) = (Vec::new(), Vec::new());
                    let needs = vec![Versionstamp::ZERO; 2];
                    Some(Across::Restored { after, next, versions, is_last: true, latest, needs })
                }
                _ => None,
            };
            let answer = answer(&mut net, &asked);
            if let Some((era, answer)) = answer.or_else(|| Some((eras[0], usual(asked)?))) {
                net.deliver(across(to, from, [era, 0], answer));
            }
        }
    }
    assert_eq!(net.gauge(NodeId::replica(0, 0), "site_rebuilding"), 0);
    net
}

#[test]
fn votes_of_a_former_life_do_not_count_even_if_they_come_before_the_next_one_begins() {
    let late = TransactionId { requested: Versionstamp(1 << 50), session: SESSION };
    let mut has_voted = false;
    let mut net = rebuilt(|net, asked| {
        if let Across::Ask { .. } = asked {
            net.deliver(vote(late, 0));
            has_voted = true;
        }
        None
    });
    assert!(has_voted);
    assert_eq!(clock(&mut net, 0).era, 1);
    assert!(!commits(&mut net, late));
    net.deliver(vote(late, 1));
    net.pass(Duration::from_millis(20));
    let answers = answers(&mut net);
    assert!(matches!(answers[..], [(1, Answer::Committed { .. })]), "{answers:?}");
}

#[test]
fn an_acknowledgement_of_a_former_life_does_not_count() {
    for (era, counts) in [(1, true), (0, false)] {
        let (mut copies, to) = (false, Versionstamp(1 << 20));
        rebuilt(|_, asked| match asked {
            Across::Ship { epoch, .. } => {
                Some((era, Across::Shipped { epoch: *epoch, to, is_gap: false }))
            }
            Across::Part { .. } => {
                copies = true;
                None
            }
            _ => None,
        });
        assert_eq!(copies, counts, "what the other site has is known, or not");
    }
}

#[test]
fn a_session_of_an_era_that_is_not_known_here_waits_until_it_is() {
    let mut net = site(1);
    let ship = |net: &mut Net, era: u32| {
        for partition in [0, 1] {
            let (to, after) = (Versionstamp(1 << 20), Versionstamp::ZERO);
            let (runs, cut) = (Vec::new(), vec![Versionstamp::ZERO; 2]);
            let ship = Across::Ship { epoch: 1, after, to, runs, cut };
            let own = NodeId::replica(partition, 0);
            net.deliver(across(counterpart(partition), own, [0, era], ship));
        }
        net.pass(Duration::from_millis(50));
    };
    ship(&mut net, 0);
    answers(&mut net);
    send(&mut net, 0, 5, Request::Reach { site: 1, stamp: Versionstamp(9), era: Some(1) });
    ship(&mut net, 0);
    assert_eq!(answers(&mut net), []);
    ship(&mut net, 1);
    ship(&mut net, 1);
    assert!(matches!(answers(&mut net)[..], [(5, Answer::Clock(_))]));
}

#[test]
fn what_a_site_had_sent_in_a_former_life_is_not_received() {
    let mut net = site(1);
    let place = |number: u64| Versionstamp(number << 20);
    // Up to where the first partition then says it has received what the other site has sent.
    let mut ship = |era: u32, after: u64| {
        for partition in [0, 1] {
            let (runs, cut) = (Vec::new(), vec![Versionstamp::ZERO; 2]);
            let (after, to) = (place(after), place(after + 1));
            let ship = Across::Ship { epoch: 1, after, to, runs, cut };
            let own = NodeId::replica(partition, 0);
            net.deliver(across(counterpart(partition), own, [0, era], ship));
        }
        net.pass(Duration::from_millis(50));
        let told = core::mem::take(&mut net.delivered).into_iter().filter_map(|told| match told {
            (_, to, Message::Across { across: Across::Shipped { to: received, .. }, .. }) => {
                (to == counterpart(0)).then_some(received)
            }
            _ => None,
        });
        told.max()
    };
    // The first message of a new era has the loss noted.
    ship(1, 0);
    assert_eq!(ship(1, 0), Some(place(1)));
    assert_eq!(ship(0, 1), None);
    assert_eq!(ship(1, 1), Some(place(2)));
}

#[test]
fn nobody_is_told_that_a_write_of_a_former_life_never_commits() {
    let mut net = rebuilt(|_, _| None);
    // What the other site has seen of the former life ends here.
    let latest = TransactionId { requested: Versionstamp(5), session: SESSION };
    let answer = ask(&mut net, 0, alone(latest, 0, "a"));
    assert!(matches!(answer, Answer::Forgotten { .. }), "{answer:?}");
}

#[test]
fn a_site_that_is_being_rebuilt_answers_no_reads_although_nothing_is_written_for_them() {
    let reads = |net: &mut Net| {
        let request = read(Versionstamp::ZERO, Versionstamp::ZERO, 0);
        let message = Message::Request { number: 1, clock: Versionstamp::ZERO, request };
        net.act(NodeId::replica(0, 0), |replica, cx| {
            replica.on_message_read_only(STRANGER, message, cx)
        })
    };
    let mut asked = 0;
    let mut net = rebuilt(|net, it| {
        if let Across::Restore { .. } = it {
            assert!(!reads(net));
            asked += 1;
        }
        None
    });
    assert!(asked > 0 && reads(&mut net));
}

/// A site of two partitions that has received a transaction of the other site, and has prepared to admit it. The second
/// partition's vote is on its way.
fn admitting() -> Net {
    let mut net = site(1);
    let (commit, to) = (Versionstamp(1 << 20).next_of(2), Versionstamp(2 << 20));
    for partition in [0, 1] {
        let transactions = vec![Outgoing { commit, writes: vec![write(key(partition, 0), "a")] }];
        let runs = vec![Run { needs: vec![Versionstamp::ZERO; 2], transactions }];
        let (after, cut) = (Versionstamp::ZERO, vec![Versionstamp::ZERO; 2]);
        let ship = Across::Ship { epoch: 1, after, to, runs, cut };
        let own = NodeId::replica(partition, 0);
        net.deliver(across(counterpart(partition), own, [0, 0], ship));
    }
    pass_without_votes(&mut net, 100);
    assert!(net.network.iter().any(is_vote), "it is prepared");
    net
}

fn is_vote(envelope: &Envelope<Message>) -> bool {
    is_peer(envelope, |peer| matches!(peer, Peer::Vote { .. }))
}

/// Lets so many milliseconds pass. Votes stay under way.
fn pass_without_votes(net: &mut Net, ms: u64) {
    for _ in 0..ms {
        net.settle_where(|envelope| !is_vote(envelope));
        net.wait(Duration::from_millis(1));
        net.ids().into_iter().for_each(|id| net.fire_due(id));
    }
}

#[test]
fn a_partition_that_hears_of_a_lost_site_while_it_admits_admits_what_the_others_do() {
    let mut net = admitting();
    let (runs, cut) = (Vec::new(), vec![Versionstamp::ZERO; 2]);
    let (after, to) = (Versionstamp::ZERO, Versionstamp::ZERO);
    let ship = Across::Ship { epoch: 1, after, to, runs, cut };
    net.deliver(across(counterpart(1), NodeId::replica(1, 0), [0, 1], ship));
    net.pass(Duration::from_millis(500));
    let at = [0, 1].map(|partition| clock(&mut net, partition).safe);
    let at = at[0].min(at[1]);
    let found =
        [0, 1].map(|partition| ask(&mut net, partition, read(at, Versionstamp::ZERO, partition)));
    assert_eq!(found.map(|found| value(&found)), [some("a"), some("a")]);
}

#[test]
fn a_new_leader_has_reads_wait_for_an_admission_that_a_former_one_has_prepared() {
    let mut net = admitting();
    let second = NodeId::replica(1, 0);
    net.crash(second);
    net.restart(second, replica_of_site(second, 1));
    pass_without_votes(&mut net, 400);
    assert_eq!(net.gauge(second, "pending_transactions"), 1);
    answers(&mut net);
    send(&mut net, 1, 3, Request::ReadClock);
    pass_without_votes(&mut net, 1);
    let at = match &answers(&mut net)[..] {
        [(3, Answer::Clock(clock))] => clock.shown,
        answers => panic!("{answers:?}"),
    };
    send(&mut net, 1, 4, Request::ReadAt { at, keys: vec![key(1, 0)] });
    pass_without_votes(&mut net, 20);
    assert_eq!(answers(&mut net), [], "it may be admitted by then");
    net.pass(Duration::from_millis(500));
    assert_eq!(answers(&mut net).len(), 1, "it is admitted later");
}

//! Recovery of transactions that may have committed with a fast quorum of which too few members are up, and late votes.

use super::*;

/// The first replica recovers a transaction, for as long as it takes. Those that are not `up` receive nothing.
pub(super) fn recover(world: &mut World, txn: Version, up: &[usize]) {
    let is_up = |to: NodeId| to.is_coordinator() || up.contains(&to.member());
    world.deliver((NodeId(99), n(0), Message::Request(Request::Inquire { version: txn })));
    for _ in 0..40 {
        world.settle(|(_, to, _)| !to.is_coordinator() && is_up(*to));
        world.network.clear();
        world.now += 500_000;
        for member in up {
            world.fire_due(n(*member));
        }
    }
}

pub(super) fn settled(world: &mut World, member: usize, txn: Version) -> Option<Settlement> {
    let inquire = Message::Request(Request::Inquire { version: txn });
    let answers = world.tell(NodeId(99), n(member), inquire);
    let settlement = answers.iter().find_map(|(_, to, message)| match message {
        Message::Status(Status::Settled { settlement, .. }) if *to == NodeId(99) => {
            Some(*settlement)
        }
        _ => None,
    });
    world.network.clear();
    settlement
}

/// A key in each of two partitions.
fn key_of_each(group: &Group) -> [String; 2] {
    [0, 1].map(|partition| {
        let mut names = (0..).map(|number| format!("k{number}"));
        names.find(|name| group.partition_of(&Key::from(&**name)) == partition).unwrap()
    })
}

pub(super) const COMMITTED: Option<Settlement> = Some(Settlement::Committed { eid: 0 });

/// The first has two votes, the second three, and commits slowly. A recoverer of the first hears from its two voters, and
/// from one of the second's.
fn too_few_votes(mutation: Mutated<Mutation>) -> [Option<Settlement>; 2] {
    let (mut world, [t, u]) = (five(mutation), conflicting());
    assert_eq!(ask(&mut world, &[0, 1], &t), [Vote::Commit; 2]);
    assert_eq!(ask(&mut world, &[2, 3, 4], &u), [Vote::Commit; 3]);
    assert_eq!(ask(&mut world, &[2], &t), [Vote::AbandonTentative]);
    for member in [2, 3, 4] {
        world.tell(u.0.coordinator, n(member), finalize(u.0, 0, Proposal::Commit));
    }
    recover(&mut world, t.0, &[0, 1, 2]);
    recover(&mut world, u.0, &[0, 1, 2]);
    [t, u].map(|(txn, _)| settled(&mut world, 0, txn))
}

#[test]
fn too_few_votes_commit_nothing_that_conflicts_with_what_has_committed() {
    assert_eq!(too_few_votes(Mutated::NONE), [Some(Settlement::Aborted), COMMITTED]);
    let broken = too_few_votes(Mutated::by(Mutation::RecoveryTrustsFewVotes));
    assert_eq!(broken, [COMMITTED, COMMITTED], "both have committed");
}

#[test]
fn a_fast_decision_is_found_although_too_few_of_its_voters_are_left() {
    for (third, expected) in [(true, COMMITTED), (false, Some(Settlement::Aborted))] {
        let (mut world, [_, u]) = (five(Mutated::NONE), conflicting());
        // A fast quorum, if two that are down have voted as well.
        assert_eq!(ask(&mut world, &[0, 1], &u), [Vote::Commit; 2]);
        if third {
            assert_eq!(ask(&mut world, &[3, 4], &u), [Vote::Commit; 2]);
        }
        match third {
            // The one that has not voted does so now.
            true => recover(&mut world, u.0, &[0, 1, 2]),
            // Two are known to be against it.
            false => recover(&mut world, u.0, &[0, 1, 2, 3]),
        }
        assert_eq!(settled(&mut world, 0, u.0), expected);
    }
}

#[test]
fn a_late_vote_is_durable_and_its_coordinator_does_not_receive_it() {
    let (mut world, [t, u]) = (five(Mutated::NONE), conflicting());
    assert_eq!(ask(&mut world, &[0, 1], &t), [Vote::Commit; 2]);
    let view = View { round: 1, recoverer: n(0) };
    let asks =
        |vote_on| Message::Recovering(Recovering::PaxosPrepare { version: t.0, view, vote_on });
    let late = LateVote { eid: 0, contents: t.1.clone(), missed_nothing_below: 0, cleared: None };
    let answers = world.tell(n(0), n(2), asks(Some(late)));
    let vote = |answers: &[Envelope]| match answers {
        [
            (_, to, Message::Recovering(Recovering::PaxosPrepareReply { known: Some(known), .. })),
        ] => {
            assert_eq!(*to, n(0));
            known.execution.as_ref().and_then(|(_, vote, _)| *vote)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(vote(&answers), Some(Vote::Commit));
    world.restart(n(2));
    assert_eq!(vote(&world.tell(n(0), n(2), asks(None))), Some(Vote::Commit));
    assert_eq!(ask(&mut world, &[2], &u), [Vote::AbandonTentative], "what it has prepared is kept");
}

#[test]
fn a_replica_that_has_entered_a_recoverers_view_does_not_vote_for_the_coordinator() {
    for (mutation, expected) in
        [(Mutated::NONE, vec![]), (Mutated::by(Mutation::LatePrepare), vec![Vote::Commit])]
    {
        let (mut world, [t, _]) = (five(mutation), conflicting());
        let view = View { round: 1, recoverer: n(0) };
        let asks = Recovering::PaxosPrepare { version: t.0, view, vote_on: None };
        world.tell(n(0), n(2), Message::Recovering(asks));
        assert_eq!(ask(&mut world, &[2], &t), expected);
    }
}

#[test]
fn a_replica_that_has_accepted_to_abandon_a_transaction_does_not_vote_for_it_later() {
    let (mut world, [t, _]) = (five(Mutated::NONE), conflicting());
    world.tell(t.0.coordinator, n(2), finalize(t.0, 0, Proposal::Abandon));
    assert_eq!(vote_late(&mut world, 2, 1, &t), None);
}

#[test]
fn a_replica_that_has_stopped_for_a_truncation_does_not_vote_late_below_it() {
    let (mut world, [t, _]) = (five(Mutated::NONE), conflicting());
    world.now = 20_000_000;
    let (upto, merges) = (4_000_000, View { round: 1, recoverer: n(1) });
    let stops = Truncating::TruncationPaxosPrepare { ballot: Ballot { upto, view: merges } };
    world.tell(n(1), n(2), Message::Truncating(stops));
    assert_eq!(vote_late(&mut world, 2, 1, &t), None);
    assert_eq!(vote_late(&mut world, 3, 1, &t), Some(Vote::Commit));
}

/// The first replica asks a member to vote on a transaction in a view of its own.
fn vote_late(
    world: &mut World,
    member: usize,
    round: u32,
    (txn, what): &(Version, Arc<Contents>),
) -> Option<Vote> {
    let view = View { round, recoverer: n(0) };
    let vote_on =
        Some(LateVote { eid: 0, contents: what.clone(), missed_nothing_below: 0, cleared: None });
    let asks = Recovering::PaxosPrepare { version: *txn, view, vote_on };
    let answers = world.tell(n(0), n(member), Message::Recovering(asks));
    match &answers[..] {
        [(.., Message::Recovering(Recovering::PaxosPrepareReply { known: Some(known), .. }))] => {
            known.execution.as_ref().and_then(|(_, vote, _)| *vote)
        }
        other => panic!("{other:?}"),
    }
}

/// It may have made the decision durable, so it is not taken back when less is known.
#[test]
fn a_replica_that_has_voted_to_commit_does_not_vote_again() {
    let mut world = five(Mutated::NONE);
    world.now = 100 * SECOND;
    let u = (version(world.now, 5), reads_nothing_as_of(10));
    assert_eq!(ask(&mut world, &[2], &u), [Vote::Commit]);
    let (executions, readable_from) = (vec![], 80 * SECOND);
    let fetched = Message::CatchingUp(CatchingUp::Fetched { executions, readable_from });
    world.tell(n(1), n(2), fetched);
    let unseen = (version(world.now, 6), reads_nothing_as_of(10));
    assert_eq!(ask(&mut world, &[2], &unseen), [Vote::AbandonTentative], "deletes may be missing");
    assert_eq!(vote_late(&mut world, 2, 1, &u), Some(Vote::Commit));
}

/// A transaction that writes in two partitions, each of five replicas, and what it writes in the second one. All have voted
/// for it at the first, and two at the second.
pub(super) fn doubtful_elsewhere() -> (World, Version, String) {
    let group = Group::new(5, Duration::from_millis(1)).with_partitions(2);
    let keys = key_of_each(&group);
    let mut world = World::of_options(group, OPTIONS);
    world.now = 2_000_200;
    let txn = version(2_000_000, 0);
    for (partition, voters) in [(0, 5), (1, 2)] {
        let participants = [0, 1].into_iter().collect();
        let writes = contents(&[], &[(&keys[usize::from(partition)], "1")]);
        let part = Arc::new(Contents { participants, ..Contents::clone(&writes) });
        for member in 0..voters {
            let to = NodeId::replica(partition, member);
            let answers = world.tell(txn.coordinator, to, prepare(txn, 0, &part));
            assert_eq!(votes(&answers), [Vote::Commit]);
        }
    }
    let [_, second] = keys;
    (world, txn, second)
}

#[test]
fn what_is_in_doubt_in_another_partition_than_home_is_voted_on_once_more() {
    let (mut world, txn, key) = doubtful_elsewhere();
    recover(&mut world, txn, &[0, 1, 2]);
    assert_eq!(settled(&mut world, 0, txn), COMMITTED);
    for member in 0..3 {
        let found = world.read(NodeId::replica(1, member), &key);
        assert_eq!(found, Some(Value::from("1")), "{member}");
    }
}

/// Two transactions conflict in both partitions. Each is in doubt at its home, over the other, and has too few votes at the
/// other's.
#[test]
fn two_that_are_in_doubt_in_different_partitions_are_decided() {
    let group = Group::new(5, Duration::from_millis(1)).with_partitions(2);
    let [x, y] = key_of_each(&group);
    let mut world = World::of_options(group, OPTIONS);
    world.now = 2_000_200;
    world.start();
    world.network.clear();
    let [t, u] = [version(2_000_000, 0), version(2_000_100, 1)];
    let part = |participants: [u16; 2], what: Arc<Contents>| {
        let participants = participants.into_iter().collect();
        Arc::new(Contents { participants, ..Contents::clone(&what) })
    };
    let absent = Version::INITIAL;
    let of_t = [&x, &y].map(|key| part([0, 1], contents(&[], &[(key, "t")])));
    let of_u = [&x, &y].map(|key| part([1, 0], contents(&[(key, absent)], &[])));
    for partition in 0..2 {
        let here = usize::from(partition);
        for member in 0..3 {
            let mut both = [(t, &of_t[here]), (u, &of_u[here])];
            if (member == 2) != (partition == 1) {
                both.reverse();
            }
            let to = NodeId::replica(partition, member);
            let told = both
                .map(|(txn, what)| votes(&world.tell(txn.coordinator, to, prepare(txn, 0, what))));
            assert_eq!(told, [[Vote::Commit], [Vote::AbandonTentative]]);
        }
    }
    let up: Vec<NodeId> =
        (0..2).flat_map(|p| (0..3).map(move |member| NodeId::replica(p, member))).collect();
    for (partition, version) in [(0, t), (1, u)] {
        let inquire = Message::Request(Request::Inquire { version });
        world.deliver((NodeId(99), NodeId::replica(partition, 0), inquire));
    }
    for _ in 0..200 {
        world.settle(|(_, to, _)| up.contains(to));
        world.network.clear();
        world.now += 100_000;
        up.iter().for_each(|id| world.fire_due(*id));
    }
    for id in up {
        assert_eq!(world.gauge(id, "undecided_transactions"), 0, "{id}");
        assert!(world.gauge(id, "truncated_below_us") > u.timestamp_us, "{id}");
    }
}

#[test]
fn a_late_vote_that_is_repeated_is_not_logged_again() {
    let (mut world, [t, u]) = (five(Mutated::NONE), conflicting());
    ask(&mut world, &[2], &u);
    assert_eq!(vote_late(&mut world, 2, 1, &t), Some(Vote::AbandonTentative));
    let logged = world.nodes[n(2)].log_position();
    for round in 2..5 {
        assert_eq!(vote_late(&mut world, 2, round, &t), Some(Vote::AbandonTentative));
    }
    // A promise for each view, and nothing else.
    assert_eq!(world.nodes[n(2)].log_position(), logged + 3);
    world.tell(u.0.coordinator, n(2), finalize(u.0, 0, Proposal::Abandon));
    assert_eq!(vote_late(&mut world, 2, 5, &t), Some(Vote::Commit));
    world.restart(n(2));
    assert_eq!(ask(&mut world, &[2], &u), [], "it has accepted to abandon that");
    let other = (version(2_000_200, 2), u.1);
    assert_eq!(ask(&mut world, &[2], &other), [Vote::AbandonTentative], "what it has prepared");
}

#[test]
fn a_repeated_prepare_is_not_answered_with_a_late_vote() {
    let (mut world, [t, _]) = (five(Mutated::NONE), conflicting());
    assert_eq!(vote_late(&mut world, 2, 1, &t), Some(Vote::Commit));
    assert_eq!(ask(&mut world, &[2], &t), []);
}

/// What is in doubt is decided with late votes, long before a truncation stops above it.
#[test]
fn truncations_go_on_although_something_was_in_doubt() {
    let (mut world, [_, u]) = (five(Mutated::NONE), conflicting());
    assert_eq!(ask(&mut world, &[0, 1, 3, 4], &u), [Vote::Commit; 4]);
    world.start();
    let up = [0, 1, 2];
    let is_up = |to: NodeId| !to.is_coordinator() && up.contains(&to.member());
    for _ in 0..300 {
        world.settle(|(_, to, _)| is_up(*to));
        world.network.clear();
        world.now += 100_000;
        up.into_iter().for_each(|member| world.fire_due(n(member)));
    }
    for member in up {
        assert!(world.gauge(n(member), "truncated_below_us") > u.0.timestamp_us);
        assert_eq!(settled(&mut world, member, u.0), COMMITTED, "n{member}");
    }
}

/// Home is in doubt, and the other participant has forgotten the transaction. Nobody is told that it is forgotten.
#[test]
fn what_is_in_doubt_at_home_goes_on_although_another_partition_has_forgotten_it() {
    let group = Group::new(5, Duration::from_millis(1)).with_partitions(2);
    let [x, _] = key_of_each(&group);
    let mut world = World::of_options(group, OPTIONS);
    world.now = 2_000_200;
    let [t, u] = [version(2_000_000, 0), version(2_000_100, 1)];
    let participants = [0, 1].into_iter().collect();
    let of_t = Contents { participants, ..Contents::clone(&contents(&[], &[(&x, "t")])) };
    let of_u = contents(&[(&x, Version::INITIAL)], &[]);
    let of_t = Arc::new(of_t);
    assert_eq!(ask(&mut world, &[2], &(u, of_u)), [Vote::Commit]);
    assert_eq!(ask(&mut world, &[0, 1], &(t, of_t)), [Vote::Commit; 2]);
    world.deliver((NodeId(99), n(0), Message::Request(Request::Inquire { version: t })));
    for _ in 0..40 {
        let elsewhere = NodeId::replica(1, 0);
        world.settle(|(_, to, _)| [0, 1, 2].map(n).contains(to));
        for (from, to, message) in world.network.drain(..).collect::<Vec<_>>() {
            assert_ne!(to, NodeId(99), "{message:?}");
            if let (Message::Recovering(Recovering::PaxosPrepare { version, view, .. }), true) =
                (message, to == elsewhere)
            {
                let settlement = Some(Settlement::Forgotten);
                let known = Some(Box::new(Known { settlement, ..Known::default() }));
                let reply = Recovering::PaxosPrepareReply { version, view, known };
                world.deliver((elsewhere, from, Message::Recovering(reply)));
            }
        }
        world.now += 500_000;
        world.fire_due(n(0));
    }
    assert_eq!(world.gauge(n(0), "recoveries_in_progress"), 1);
}

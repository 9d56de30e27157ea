//! Three replicas of a shard. The tests move the messages between them.

use serried_actor::NodeSet;

use super::*;
use crate::frameworks::shard::Mutation;

/// The replicas of shard 0, in a group of two shards.
pub(super) struct Trio<C: Control>(testing::Net<Replica<C>>);

derefs_to_net!([C: Control] Trio<C>, 0: testing::Net<Replica<C>>);

impl<C: Control> Trio<C> {
    /// Creates three replicas. The first leads and admits transactions.
    pub(super) fn new() -> Trio<C> {
        Trio::mutated(Mutated::NONE)
    }

    /// The same with a mistake.
    pub(super) fn mutated(mutation: Mutated<Mutation>) -> Trio<C> {
        Trio::started(mutation, |_| {})
    }

    /// The same with a change of the replicas before they start.
    pub(super) fn started(
        mutation: Mutated<Mutation>,
        change: impl FnOnce(&mut testing::Net<Replica<C>>),
    ) -> Trio<C> {
        let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
        let settings = Settings::default();
        let replica = |id| Replica::new(id, group.clone(), &settings, mutation);
        let mut trio = Trio(testing::Net::new(1, 3, replica));
        trio.now = 1;
        trio.set_clock_us(NOW_US + 1);
        change(&mut trio);
        trio.start();
        trio.pass(Duration::from_secs(3));
        assert_eq!(trio.leader(), 0);
        trio
    }

    /// The time since the beginning, in microseconds.
    pub(super) fn after_us(&self) -> u64 {
        self.now
    }

    /// Sends a client's request to a replica. Returns the replies of the next two milliseconds.
    pub(super) fn ask(&mut self, member: u64, request: Request) -> Vec<Reply> {
        self.delivered.clear();
        self.network.push_back((CLIENT, NodeId(member), Message::Request(request)));
        self.pass(Duration::from_millis(2));
        self.told()
    }

    /// The replies to the client since the last call.
    pub(super) fn told(&mut self) -> Vec<Reply> {
        let told = self.delivered.drain(..).filter(|(_, to, _)| *to == CLIENT);
        told.filter_map(reply).collect()
    }

    /// Sends the last shot of the transaction that begins at `after_us` and writes `key`.
    fn write(&mut self, member: u64, after_us: u64, key: &str) -> Vec<Reply> {
        self.ask(member, Request::Shot(shot(txn(after_us), &[], &[key], &[0, 1])))
    }

    pub(super) fn commit(&mut self, member: u64, after_us: u64) -> Vec<Reply> {
        let (txn, at) = (txn(after_us), Stamp::assigned(txn(after_us)));
        self.ask(member, Request::End { txn, decision: Decision::Commit(at) })
    }

    fn gauge(&self, member: u64, wanted: &str) -> u64 {
        self.nodes[NodeId(member)].gauge(wanted)
    }

    /// The replica that leads, among those that are not away.
    pub(super) fn leader(&self) -> u64 {
        let leads =
            |member: &u64| !self.away.contains(NodeId(*member)) && self.gauge(*member, "leads") > 0;
        (0..3).find(leads).expect("somebody leads")
    }

    /// Cuts all links of a replica.
    fn isolate(&mut self, member: u64) {
        let others = (0..3).filter(|other| *other != member);
        let links = others.flat_map(|other| [(member, other), (other, member)]);
        self.cut.extend(links.map(|(from, to)| (NodeId(from), NodeId(to))));
    }

    /// Cuts the links to the first replica.
    pub(super) fn first_is_deaf(&mut self) {
        self.cut.extend([1, 2].map(|from| (NodeId(from), NodeId(0))));
    }
}

#[test]
fn a_third_leader_drops_entries_that_the_second_has_superseded() {
    const MORE: u64 = 40;
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    assert!(matches!(trio.write(0, us, "x")[..], [Reply::Executed(_)]));
    // Only the first has these parts, in more slots than its successor fills before the third
    // leads.
    trio.isolate(0);
    for more in 1..=MORE {
        assert_eq!(trio.write(0, us + more, &more.to_string()), []);
    }
    trio.pass(Duration::from_secs(4));
    let second = (1..3).find(|member| trio.gauge(*member, "leads") > 0).expect("another leads");
    for more in 1..=MORE {
        let replies = trio.ask(second, Request::Inspect { txn: txn(us + more) });
        assert!(matches!(replies[..], [Reply::Refused { .. }]), "{replies:?}");
    }
    // The second dies, and the third needs the first.
    trio.cut.clear();
    trio.away.insert(NodeId(second));
    trio.pass(Duration::from_secs(6));
    let third = trio.leader();
    for more in 1..=MORE {
        let replies = trio.ask(third, Request::Inspect { txn: txn(us + more) });
        assert!(matches!(replies[..], [Reply::Refused { .. }]), "{replies:?}");
    }
    let replies = trio.ask(third, Request::Inspect { txn: txn(us) });
    assert!(matches!(replies[..], [Reply::Prepared { .. } | Reply::Decided { .. }]), "{replies:?}");
}

#[test]
fn a_deposed_leader_answers_no_snapshot() {
    let mut trio = Trio::<Versions>::new();
    let us = trio.after_us();
    assert!(matches!(trio.write(0, us, "x")[..], [Reply::Executed(_)]));
    trio.commit(0, us);
    // It is away while another leads and a transaction commits there.
    trio.away.insert(NodeId(0));
    trio.pass(Duration::from_secs(4));
    let second = trio.leader();
    let later_us = trio.after_us();
    assert!(matches!(trio.write(second, later_us, "x")[..], [Reply::Executed(_)]));
    trio.commit(second, later_us);
    // It returns, and gets the request before it learns of the new leader.
    trio.away = NodeSet::EMPTY;
    trio.first_is_deaf();
    let read = |us| {
        let keys = vec![Key::from("x")];
        Request::Snapshot { number: 7, as_of: AsOf::Time(txn(us)), keys }
    };
    assert_eq!(trio.gauge(0, "leads"), 1, "it still believes that it leads");
    // The transaction began within the window that the first knows, so the reply waits for a
    // confirmation that never comes.
    for us in [us + 1, later_us + 1] {
        let replies = trio.ask(0, read(us));
        assert!(
            !replies.iter().any(|reply| matches!(reply, Reply::Snapshot { .. })),
            "{replies:?}"
        );
    }
    let replies = trio.ask(second, read(later_us + 1));
    assert_eq!(found(&replies), Some(txn(later_us)), "{replies:?}");
}

#[test]
fn a_move_is_acknowledged_once_it_is_chosen() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    assert!(matches!(trio.write(0, us, "x")[..], [Reply::Executed(_)]));
    trio.first_is_deaf();
    let to = stamp(us + Stamp::LANES, us);
    assert_eq!(trio.ask(0, Request::Move { txn: txn(us), to }), []);
    trio.cut.clear();
    trio.pass(Duration::from_millis(400));
    assert_eq!(trio.told(), [Reply::Moved { txn: txn(us) }]);
    trio.away.insert(NodeId(0));
    trio.pass(Duration::from_secs(4));
    let second = trio.leader();
    match &trio.ask(second, Request::Inspect { txn: txn(us) })[..] {
        [Reply::Prepared { validity, .. }] => assert!(validity.holds_at(to), "{validity:?}"),
        replies => panic!("{replies:?}"),
    }
}

#[test]
fn a_refusal_for_clock_skew_is_chosen_before_it_is_sent() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us() + too_far_ahead_us();
    trio.first_is_deaf();
    assert_eq!(trio.write(0, us, "x"), []);
    trio.cut.clear();
    trio.pass(Duration::from_millis(400));
    let told = trio.told();
    assert!(
        matches!(told[..], [Reply::Refused { reason: Refusal::ClockSkew { .. }, .. }]),
        "{told:?}"
    );
    trio.away.insert(NodeId(0));
    trio.pass(Duration::from_secs(4));
    let second = trio.leader();
    let replies = trio.write(second, us, "x");
    assert!(
        matches!(replies[..], [Reply::Decided { decision: Decision::Abort, .. }]),
        "{replies:?}"
    );
}

#[test]
fn requests_wait_in_bounded_number_if_the_log_is_full() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    assert!(matches!(trio.write(0, us, "x")[..], [Reply::Executed(_)]));
    trio.first_is_deaf();
    for more in 1..15_000 {
        let write = Write { key: Key::from(more.to_string().as_str()), value: None };
        let shot = Shot { writes: vec![write], ..shot(txn(us + more), &[], &[], &[0, 1]) };
        trio.network.push_back((CLIENT, NodeId(0), Message::Request(Request::Shot(shot))));
        trio.settle();
        assert!(trio.gauge(0, "unproposed") <= 1);
    }
    assert!(trio.gauge(0, "open") < 10_000);
    assert!(trio.nodes[0].pending.len() <= super::super::PENDING_AT_MOST);
    assert_eq!(trio.told(), []);
    trio.cut.clear();
    trio.pass(Duration::from_millis(500));
    let told = trio.told();
    let executed = told.iter().filter(|reply| matches!(reply, Reply::Executed(_))).count();
    assert_eq!((executed > 8000, executed), (true, told.len()), "all admitted transactions");
}

#[test]
fn a_repeated_shot_is_not_admitted_while_its_refusal_is_on_its_way() {
    let mut trio = Trio::<Queues<false>>::new();
    trio.ahead_us.extend([(NodeId(1), -100_000), (NodeId(2), 100_000)]);
    trio.pass(Duration::from_secs(3));
    let bound_us = Settings::default().clock_bound_ms * 1000;
    let txn = txn(trio.after_us() + bound_us - 20_000);
    let shot = Message::Request(Request::Shot(shot(txn, &[], &["x"], &[0, 1])));
    let flush = Timer::Log(replicated_log::Timer::Flush);
    // The leader has proposed a window that reaches the transaction's time. One replica has
    // accepted it.
    trio.deliver((CLIENT, NodeId(0), shot.clone()));
    trio.fire(0, flush);
    for (from, to, message) in core::mem::take(&mut trio.network) {
        if to.0 == 1 {
            trio.deliver((from, NodeId(1), message));
        }
    }
    let accepted = core::mem::take(&mut trio.network);
    // The leader's clock is set back a little. So the transaction, which still waits, is refused in
    // the log.
    trio.ahead_us.insert(NodeId(0), -50_000);
    let alive = Message::Request(Request::Alive(Vec::new()));
    trio.deliver((CLIENT, NodeId(0), alive));
    trio.fire(0, flush);
    trio.network.clear();
    // The window is chosen. The client's repeated shot arrives now.
    trio.network = accepted;
    trio.settle();
    assert!(trio.told().is_empty());
    trio.deliver((CLIENT, NodeId(0), shot));
    trio.pass(Duration::from_millis(500));
    let told = trio.told();
    let refused = told.iter().any(|reply| matches!(reply, Reply::Refused { .. }));
    let ready = told.iter().any(|reply| matches!(reply, Reply::Executed(_)));
    // If the first answer says that it is ready, the client may commit it. A later answer must not
    // say that it is aborted.
    let before = trio.ask(0, Request::Inspect { txn });
    let at = Stamp::assigned(txn);
    trio.ask(0, Request::End { txn, decision: Decision::Commit(at) });
    let after = trio.ask(0, Request::Inspect { txn });
    assert!(!(refused && ready), "{told:?}, then {before:?}, then {after:?}");
}

/// Otherwise a transaction could count as silent while the log is slow.
#[test]
fn a_sign_of_life_does_not_wait_behind_other_requests() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    assert!(matches!(trio.write(0, us, "x")[..], [Reply::Executed(_)]));
    trio.first_is_deaf();
    let after_us = trio.nodes[0].shard.window().to_us - NOW_US;
    assert_eq!(trio.write(0, after_us, "y"), [], "the window is not extended yet");
    let alive = Message::Request(Request::Alive(vec![txn(us)]));
    trio.deliver((CLIENT, NodeId(0), alive));
    assert_eq!(trio.nodes[0].pending.len(), 1, "the write alone waits");
}

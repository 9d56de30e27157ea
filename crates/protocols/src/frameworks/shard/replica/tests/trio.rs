//! Three replicas of a shard, with the messages between them moved by hand.

use serried_actor::NodeSet;

use super::*;

/// The replicas of shard 0, of two.
struct Trio<C: Control>(testing::Net<Replica<C>>);

derefs_to_net!([C: Control] Trio<C>, 0: testing::Net<Replica<C>>);

impl<C: Control> Trio<C> {
    /// The first of them leads, and takes transactions.
    fn new() -> Trio<C> {
        let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
        let settings = Settings::default();
        let replica = |id| Replica::new(id, group.clone(), &settings, Mutated::NONE);
        let mut trio = Trio(testing::Net::new(1, 3, replica));
        trio.now = 1;
        trio.set_clock_us(NOW_US + 1);
        trio.start();
        trio.pass(Duration::from_secs(3));
        assert_eq!(trio.leader(), 0);
        trio
    }

    /// So many microseconds after the beginning.
    fn after_us(&self) -> u64 {
        self.now
    }

    /// The client wants something of a replica: what it is told within two milliseconds.
    fn ask(&mut self, member: u64, request: Request) -> Vec<Reply> {
        self.delivered.clear();
        self.network.push_back((CLIENT, NodeId(member), Message::Request(request)));
        self.pass(Duration::from_millis(2));
        self.told()
    }

    /// What the client was told since it last asked.
    fn told(&mut self) -> Vec<Reply> {
        let told = self.delivered.drain(..).filter(|(_, to, _)| *to == CLIENT);
        told.filter_map(reply).collect()
    }

    /// The last shot of the transaction that began then, and writes that key.
    fn write(&mut self, member: u64, after_us: u64, key: &str) -> Vec<Reply> {
        let write = Write { key: Key::from(key), value: Some(Value::from("new")) };
        let participants: Option<Arc<[u16]>> = Some(Arc::new([0, 1]));
        let (txn, reads, writes) = (txn(after_us), Vec::new(), vec![write]);
        self.ask(member, Request::Shot(Shot { txn, number: 1, reads, writes, participants }))
    }

    fn commit(&mut self, member: u64, after_us: u64) -> Vec<Reply> {
        let (txn, at) = (txn(after_us), Stamp::assigned(txn(after_us)));
        self.ask(member, Request::End { txn, decision: Decision::Commit(at) })
    }

    fn gauge(&self, member: u64, wanted: &str) -> u64 {
        self.nodes[NodeId(member)].gauge(wanted)
    }

    /// Who leads, of those that are not away.
    fn leader(&self) -> u64 {
        let leads =
            |member: &u64| !self.away.contains(NodeId(*member)) && self.gauge(*member, "leads") > 0;
        (0..3).find(leads).expect("somebody leads")
    }

    /// Nothing gets from one to the others, or to it from them.
    fn isolate(&mut self, member: u64) {
        let others = (0..3).filter(|other| *other != member);
        let links = others.flat_map(|other| [(member, other), (other, member)]);
        self.cut.extend(links.map(|(from, to)| (NodeId(from), NodeId(to))));
    }

    /// The first hears nothing from the others.
    fn first_is_deaf(&mut self) {
        self.cut.extend([1, 2].map(|from| (NodeId(from), NodeId(0))));
    }
}

#[test]
fn what_a_former_leader_told_to_few_is_not_in_the_log_though_a_third_leader_finds_it() {
    const MORE: u64 = 40;
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    assert!(matches!(trio.write(0, us, "x")[..], [Reply::Executed(_)]));
    // The first has parts that nobody else has, in more slots than its successor fills before the third leads.
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
fn who_leads_no_more_and_does_not_know_it_answers_no_reader_without_a_part() {
    let mut trio = Trio::<Versions>::new();
    let us = trio.after_us();
    assert!(matches!(trio.write(0, us, "x")[..], [Reply::Executed(_)]));
    trio.commit(0, us);
    // It sleeps while another leads and a transaction commits there.
    trio.away.insert(NodeId(0));
    trio.pass(Duration::from_secs(4));
    let second = trio.leader();
    let later_us = trio.after_us();
    assert!(matches!(trio.write(second, later_us, "x")[..], [Reply::Executed(_)]));
    trio.commit(second, later_us);
    // It wakes up, and is asked before it hears of that.
    trio.away = NodeSet::EMPTY;
    trio.first_is_deaf();
    let read = |us| {
        let keys = vec![Key::from("x")];
        Request::Snapshot { number: 7, as_of: AsOf::Time(txn(us)), keys }
    };
    assert_eq!(trio.gauge(0, "leads"), 1, "it thinks so");
    // It began within the window that the first knows of, so it has to be confirmed, and never is.
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
fn a_part_is_told_to_have_moved_once_that_is_chosen() {
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
fn who_is_refused_for_its_clock_is_told_once_that_is_chosen_and_refused_by_the_next_leader() {
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
fn what_the_log_has_no_room_for_waits_as_requests_in_bounded_number() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    assert!(matches!(trio.write(0, us, "x")[..], [Reply::Executed(_)]));
    trio.first_is_deaf();
    for more in 1..15_000 {
        let write = Write { key: Key::from(more.to_string().as_str()), value: None };
        let participants: Option<Arc<[u16]>> = Some(Arc::new([0, 1]));
        let (reads, writes) = (Vec::new(), vec![write]);
        let shot = Shot { txn: txn(us + more), number: 1, reads, writes, participants };
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
    assert_eq!((executed > 8000, executed), (true, told.len()), "all that was taken");
}

#[test]
fn who_is_about_to_be_refused_in_the_log_is_not_taken_if_it_comes_again() {
    let mut trio = Trio::<Queues<false>>::new();
    trio.ahead_us.extend([(NodeId(1), -100_000), (NodeId(2), 100_000)]);
    trio.pass(Duration::from_secs(3));
    let bound_us = Settings::default().clock_bound_ms * 1000;
    let txn = txn(trio.after_us() + bound_us - 20_000);
    let write = Write { key: Key::from("x"), value: Some(Value::from("new")) };
    let shot = Shot {
        txn,
        number: 1,
        reads: Vec::new(),
        writes: vec![write],
        participants: Some(Arc::new([0, 1])),
    };
    let shot = Message::Request(Request::Shot(shot));
    let flush = Timer::Log(replicated_log::Timer::Flush);
    // The window is about to be extended to the transaction's time. One replica has accepted that.
    trio.deliver((CLIENT, NodeId(0), shot.clone()));
    trio.fire(0, flush);
    for (from, to, message) in core::mem::take(&mut trio.network) {
        if to.0 == 1 {
            trio.deliver((from, NodeId(1), message));
        }
    }
    let accepted = core::mem::take(&mut trio.network);
    // The leader's clock is set back a little. So the transaction, which still waits, is refused in the log.
    trio.ahead_us.insert(NodeId(0), -50_000);
    let alive = Message::Request(Request::Alive(Vec::new()));
    trio.deliver((CLIENT, NodeId(0), alive));
    trio.fire(0, flush);
    trio.network.clear();
    // The window is chosen. The client has sent the shot again, which comes now.
    trio.network = accepted;
    trio.settle();
    assert!(trio.told().is_empty());
    trio.deliver((CLIENT, NodeId(0), shot));
    trio.pass(Duration::from_millis(500));
    let told = trio.told();
    let refused = told.iter().any(|reply| matches!(reply, Reply::Refused { .. }));
    let ready = told.iter().any(|reply| matches!(reply, Reply::Executed(_)));
    // Whoever hears first that it is ready commits it; whoever asks is told that it is aborted.
    let before = trio.ask(0, Request::Inspect { txn });
    let at = Stamp::assigned(txn);
    trio.ask(0, Request::End { txn, decision: Decision::Commit(at) });
    let after = trio.ask(0, Request::Inspect { txn });
    assert!(!(refused && ready), "{told:?}, then {before:?}, then {after:?}");
}

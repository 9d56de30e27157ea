//! Three replicas of a shard, with the messages between them moved by hand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::Mutated;

struct Node<C: Control> {
    replica: Replica<C>,
    store: MemoryStore,
    records: Vec<Record>,
    timers: BTreeMap<Timer, Timestamp>,
}

/// The replicas of shard 0, of two.
struct Trio<C: Control> {
    nodes: Vec<Node<C>>,
    network: VecDeque<(NodeId, NodeId, Message)>,
    /// What the client was told since it last asked, and by whom.
    told: Vec<(NodeId, Reply)>,
    /// Messages from the first to the second are lost.
    cut: BTreeSet<(u64, u64)>,
    /// These do nothing.
    paused: BTreeSet<u64>,
    now: Timestamp,
    /// By how much each clock is ahead, in microseconds.
    ahead_us: [i64; 3],
    random: Pcg64Mcg,
}

impl<C: Control> Trio<C> {
    /// The first of them leads, and takes transactions.
    fn new() -> Trio<C> {
        let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
        let node = |member| Node {
            replica: Replica::new(
                NodeId(member),
                group.clone(),
                &Settings::default(),
                Mutated::NONE,
            ),
            store: MemoryStore::default(),
            records: Vec::new(),
            timers: BTreeMap::new(),
        };
        let mut trio = Trio {
            nodes: (0..3).map(node).collect(),
            network: VecDeque::new(),
            told: Vec::new(),
            cut: BTreeSet::new(),
            paused: BTreeSet::new(),
            now: Timestamp(1),
            ahead_us: [0; 3],
            random: Pcg64Mcg::new(1),
        };
        for member in 0..3 {
            trio.act(member, |replica, cx| replica.on_start(cx));
        }
        trio.run(Duration::from_secs(3));
        assert_eq!(trio.leader(), 0);
        trio
    }

    /// So many microseconds after the beginning.
    fn after_us(&self) -> u64 {
        self.now.0 / 1000
    }

    fn act(
        &mut self,
        member: u64,
        act: impl FnOnce(&mut Replica<C>, &mut Context<'_, Replica<C>>),
    ) {
        let us = (NOW_US + self.after_us()).saturating_add_signed(self.ahead_us[member as usize]);
        let clock = ClockInterval { earliest_us: us, latest_us: us };
        let mut effects = Vec::new();
        let node = &mut self.nodes[member as usize];
        let log_position = node.records.len() as u64;
        let durable = Durable { store: &mut node.store, log_position, durable_position: u64::MAX };
        let (id, random) = (NodeId(member), &mut self.random);
        let mut cx = Context::new(id, self.now, clock, random, &mut effects, durable);
        act(&mut node.replica, &mut cx);
        for effect in effects {
            match effect {
                Effect::Send { to, message } | Effect::SendBeforeDurable { to, message } => {
                    self.network.push_back((id, to, message));
                }
                Effect::Broadcast { partition, to, message } => {
                    for member in to.members() {
                        let to = NodeId::replica(partition, member);
                        self.network.push_back((id, to, message.clone()));
                    }
                }
                Effect::Append(record) => node.records.push(record),
                Effect::SetTimer { timer, after } => {
                    node.timers.insert(timer, self.now + after);
                }
                Effect::CancelTimer(timer) => drop(node.timers.remove(&timer)),
                Effect::TrimLog(_) | Effect::Output(()) => {}
            }
        }
    }

    /// Delivers what is under way, and what that leads to.
    fn settle(&mut self) {
        while let Some((from, to, message)) = self.network.pop_front() {
            if to == CLIENT {
                if let Message::Reply(reply) = message {
                    self.told.push((from, reply));
                }
                continue;
            }
            let is_lost = self.cut.contains(&(from.0, to.0)) || self.paused.contains(&to.0);
            if to.0 < 3 && !is_lost {
                self.act(to.0, |replica, cx| replica.on_message(from, message, cx));
            }
        }
    }

    /// Time passes.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let timers = (0..).zip(&self.nodes).filter(|(member, _)| !self.paused.contains(member));
            let due = timers.flat_map(|(member, node)| {
                node.timers.iter().map(move |(timer, at)| (*at, member, *timer))
            });
            let Some((at, member, timer)) = due.min().filter(|(at, ..)| *at <= end) else { break };
            self.now = self.now.max(at);
            self.nodes[member as usize].timers.remove(&timer);
            self.act(member, |replica, cx| replica.on_timer(timer, cx));
        }
        self.now = end;
    }

    /// The client wants something of a replica: what it is told within two milliseconds.
    fn ask(&mut self, member: u64, request: Request) -> Vec<Reply> {
        self.told.clear();
        self.network.push_back((CLIENT, NodeId(member), Message::Request(request)));
        self.run(Duration::from_millis(2));
        self.told()
    }

    fn told(&mut self) -> Vec<Reply> {
        self.told.drain(..).map(|(_, reply)| reply).collect()
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
        let (mut found, replica) = (None, &self.nodes[member as usize].replica);
        replica.gauges(&mut |name, value| found = found.or((name == wanted).then_some(value)));
        found.expect("a gauge of that name")
    }

    /// Who leads, of those that are not paused.
    fn leader(&self) -> u64 {
        let leads =
            |member: &u64| !self.paused.contains(member) && self.gauge(*member, "leads") > 0;
        (0..3).find(leads).expect("somebody leads")
    }

    /// Nothing gets from one to the others, or to it from them.
    fn isolate(&mut self, member: u64) {
        let others = (0..3).filter(|other| *other != member);
        self.cut.extend(others.flat_map(|other| [(member, other), (other, member)]));
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
    trio.run(Duration::from_secs(4));
    let second = (1..3).find(|member| trio.gauge(*member, "leads") > 0).expect("another leads");
    for more in 1..=MORE {
        let replies = trio.ask(second, Request::Inspect { txn: txn(us + more) });
        assert!(matches!(replies[..], [Reply::Refused { .. }]), "{replies:?}");
    }
    // The second dies, and the third needs the first.
    trio.cut.clear();
    trio.paused.insert(second);
    trio.run(Duration::from_secs(6));
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
    trio.paused.insert(0);
    trio.run(Duration::from_secs(4));
    let second = trio.leader();
    let later_us = trio.after_us();
    assert!(matches!(trio.write(second, later_us, "x")[..], [Reply::Executed(_)]));
    trio.commit(second, later_us);
    // It wakes up, and is asked before it hears of that.
    trio.paused.clear();
    trio.cut.extend([(1, 0), (2, 0)]);
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
    trio.cut.extend([(1, 0), (2, 0)]);
    let to = stamp(us + Stamp::LANES, us);
    assert_eq!(trio.ask(0, Request::Move { txn: txn(us), to }), []);
    trio.cut.clear();
    trio.run(Duration::from_millis(400));
    assert_eq!(trio.told(), [Reply::Moved { txn: txn(us) }]);
    trio.paused.insert(0);
    trio.run(Duration::from_secs(4));
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
    trio.cut.extend([(1, 0), (2, 0)]);
    assert_eq!(trio.write(0, us, "x"), []);
    trio.cut.clear();
    trio.run(Duration::from_millis(400));
    let told = trio.told();
    assert!(
        matches!(told[..], [Reply::Refused { reason: Refusal::ClockSkew { .. }, .. }]),
        "{told:?}"
    );
    trio.paused.insert(0);
    trio.run(Duration::from_secs(4));
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
    trio.cut.extend([(1, 0), (2, 0)]);
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
    assert!(trio.nodes[0].replica.pending.len() <= super::super::PENDING_AT_MOST);
    assert_eq!(trio.told(), []);
    trio.cut.clear();
    trio.run(Duration::from_millis(500));
    let told = trio.told();
    let executed = told.iter().filter(|reply| matches!(reply, Reply::Executed(_))).count();
    assert_eq!((executed > 8000, executed), (true, told.len()), "all that was taken");
}

#[test]
fn who_is_about_to_be_refused_in_the_log_is_not_taken_if_it_comes_again() {
    let mut trio = Trio::<Queues<false>>::new();
    trio.ahead_us = [0, -100_000, 100_000];
    trio.run(Duration::from_secs(3));
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
    trio.act(0, |replica, cx| replica.on_message(CLIENT, shot.clone(), cx));
    trio.act(0, |replica, cx| replica.on_timer(flush, cx));
    for (from, to, message) in core::mem::take(&mut trio.network) {
        if to.0 == 1 {
            trio.act(1, |replica, cx| replica.on_message(from, message, cx));
        }
    }
    let accepted = core::mem::take(&mut trio.network);
    // The leader's clock is set back a little. So the transaction, which still waits, is refused in the log.
    trio.ahead_us[0] = -50_000;
    let alive = Message::Request(Request::Alive(Vec::new()));
    trio.act(0, |replica, cx| replica.on_message(CLIENT, alive, cx));
    trio.act(0, |replica, cx| replica.on_timer(flush, cx));
    trio.network.clear();
    // The window is chosen. The client has sent the shot again, which comes now.
    trio.network = accepted;
    trio.settle();
    assert!(trio.told().is_empty());
    trio.act(0, |replica, cx| replica.on_message(CLIENT, shot, cx));
    trio.run(Duration::from_millis(500));
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

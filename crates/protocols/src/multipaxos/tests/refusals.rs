//! Updates that are refused for their clients' clocks, where a request comes twice and another leads meanwhile.

use std::collections::VecDeque;

use super::super::message::Update;
use super::super::replica::Timer;
use super::*;
use crate::Mutated;

/// What the clocks say that are right, in microseconds.
const NOW_US: u64 = 100_000_000;
/// What a clock says that is too far behind for a client whose clock is right.
const BEHIND_US: u64 = NOW_US - 30_000_000;

/// Three replicas and the messages between them.
struct Trio {
    replicas: Vec<(Replica, MemoryStore, bool)>,
    network: VecDeque<(NodeId, NodeId, Message)>,
    /// Messages to and from this one are lost.
    away: Option<NodeId>,
    told: Vec<Answer>,
    now: Timestamp,
    /// What the replicas' clocks say.
    clock_us: u64,
    /// The clock of this one is far behind.
    behind: Option<u64>,
    random: Pcg64Mcg,
}

impl Trio {
    /// The first of them leads. All clocks are right.
    fn new() -> Trio {
        Trio::at(NOW_US)
    }

    /// The same, when their clocks say this.
    fn at(clock_us: u64) -> Trio {
        Trio::start(clock_us, None, None)
    }

    /// The same, when nobody has heard of `away`, and the clock of `behind` is far behind.
    fn start(clock_us: u64, away: Option<NodeId>, behind: Option<u64>) -> Trio {
        let group = Group::new(3, Duration::from_millis(1));
        let replica = |member| {
            Replica::new(NodeId(member), group.clone(), &Settings::default(), Mutated::NONE)
        };
        let mut trio = Trio {
            replicas: (0..3).map(|at| (replica(at), MemoryStore::default(), false)).collect(),
            network: VecDeque::new(),
            away,
            told: Vec::new(),
            now: Timestamp(1),
            clock_us,
            behind,
            random: Pcg64Mcg::new(1),
        };
        (0..3).for_each(|member| trio.act(member, |replica, cx| replica.on_start(cx)));
        trio.settle();
        assert!(trio.leads(0));
        trio
    }

    fn act(&mut self, member: u64, act: impl FnOnce(&mut Replica, &mut Context<'_, Replica>)) {
        let (replica, store, flush) = &mut self.replicas[member as usize];
        let us = if self.behind == Some(member) { BEHIND_US } else { self.clock_us };
        let clock = ClockInterval { earliest_us: us, latest_us: us };
        let durable = Durable { store, log_position: 0, durable_position: u64::MAX };
        let (id, mut effects) = (NodeId(member), Vec::new());
        let mut cx = Context::new(id, self.now, clock, &mut self.random, &mut effects, durable);
        act(replica, &mut cx);
        for effect in effects {
            match effect {
                Effect::Send { to, message } | Effect::SendBeforeDurable { to, message } => {
                    self.network.push_back((id, to, message));
                }
                Effect::Broadcast { to, message, .. } => {
                    let each = to.members().map(|to| (id, NodeId(to as u64), message.clone()));
                    self.network.extend(each);
                }
                Effect::SetTimer { timer: Timer::Log(replicated_log::Timer::Flush), .. } => {
                    *flush = true;
                }
                _ => {}
            }
        }
    }

    /// Delivers one message; false if there is none.
    fn deliver(&mut self) -> bool {
        let Some((from, to, message)) = self.network.pop_front() else { return false };
        match message {
            Message::Reply { answer, .. } if to == CLIENT => self.told.push(answer),
            _ if self.away.is_some_and(|away| away == from || away == to) => {}
            message => self.act(to.0, |replica, cx| replica.on_message(from, message, cx)),
        }
        true
    }

    /// Has a leader propose what waits for that.
    fn flush(&mut self) {
        for member in 0..3 {
            if core::mem::take(&mut self.replicas[member as usize].2) {
                self.timer(member, replicated_log::Timer::Flush);
            }
        }
    }

    fn settle(&mut self) {
        self.flush();
        while self.deliver() {
            self.flush();
        }
    }

    fn timer(&mut self, member: u64, timer: replicated_log::Timer) {
        self.act(member, |replica, cx| replica.on_timer(Timer::Log(timer), cx));
    }

    /// Nobody hears of the first any more, until the second leads.
    fn fail_over(&mut self) {
        (self.away, self.now) = (Some(NodeId(0)), self.now + Duration::from_secs(3));
        self.timer(1, replicated_log::Timer::Elect);
        while !self.leads(1) {
            assert!(self.deliver(), "the second can lead");
        }
    }

    fn leads(&self, member: usize) -> bool {
        let mut leads = 0;
        self.replicas[member].0.gauges(&mut |name, value| {
            leads += u64::from(name == "leads") * value;
        });
        leads == 1
    }

    fn request(&mut self, member: u64, request: &Request) {
        self.network.push_back((CLIENT, NodeId(member), Message::Request(request.clone())));
    }

    /// What the client is told of a request that it sends to a replica now.
    fn ask(&mut self, member: u64, request: &Request) -> Vec<Answer> {
        self.request(member, request);
        self.settle();
        core::mem::take(&mut self.told)
    }
}

fn add() -> Request {
    request(1, NOW_US, Access::Modify(Modification::add(1)))
}

fn read() -> Request {
    request(2, NOW_US, Access::Read)
}

#[test]
fn an_update_that_the_log_may_have_is_not_refused() {
    let mut trio = Trio::new();
    // The second accepts it, and the leader does not hear of that.
    trio.request(0, &add());
    trio.deliver();
    trio.flush();
    trio.network.retain(|(_, to, _)| *to == NodeId(1));
    while trio.deliver() {
        trio.network.clear();
    }
    // The copy comes to the next leader before that knows that it is chosen.
    trio.clock_us = BEHIND_US;
    trio.fail_over();
    let told = trio.ask(1, &add());
    assert!(matches!(told[..], [Answer::Done(_)]), "{told:?}");
    assert_eq!(found(&trio.ask(1, &read())[0]).as_deref(), Some("1"));
}

#[test]
fn an_update_that_one_leader_has_refused_takes_effect_at_no_other() {
    let mut trio = Trio::at(BEHIND_US);
    let told = trio.ask(0, &add());
    assert!(matches!(told[..], [Answer::ClockSkew { ahead_us: 30_000_000 }]), "{told:?}");
    trio.clock_us = NOW_US;
    trio.fail_over();
    let told = trio.ask(1, &add());
    assert!(!matches!(told[..], [Answer::Done(_)]), "{told:?}");
    assert_eq!(found(&trio.ask(1, &read())[0]), None);
}

#[test]
fn a_refusal_is_not_told_before_it_is_chosen() {
    let mut trio = Trio::at(BEHIND_US);
    trio.away = Some(NodeId(0));
    assert_eq!(trio.ask(0, &add()), []);
}

#[test]
fn a_leader_whose_clock_alone_is_behind_refuses_nobody_whose_clock_is_right() {
    let mut trio = Trio::new();
    trio.behind = Some(0);
    let told = trio.ask(0, &add());
    assert!(matches!(told[..], [Answer::Done(_)]), "{told:?}");
    // The others don't help as long as it leads.
    let told = trio.ask(1, &request(3, NOW_US + 1, Access::Modify(Modification::add(1))));
    assert!(matches!(told[..], [Answer::Done(_)]), "{told:?}");
}

#[test]
fn clocks_that_were_ahead_close_no_key() {
    const HOUR_US: u64 = 3_600_000_000;
    let add = || Access::Modify(Modification::add(1));
    let mut trio = Trio::at(NOW_US + HOUR_US);
    let told = trio.ask(0, &request(1, NOW_US + HOUR_US, add()));
    assert!(matches!(told[..], [Answer::Done(_)]), "{told:?}");
    // All clocks are set right.
    trio.clock_us = NOW_US;
    trio.fail_over();
    let mut other = request(2, NOW_US, add());
    other.token.coordinator = NodeId(CLIENT.0 + 1);
    other.settled = other.token;
    let told = trio.ask(1, &other);
    assert!(matches!(told[..], [Answer::Done(_)]), "{told:?}");
}

#[test]
fn who_does_not_lead_any_more_answers_nobody_with_what_its_successor_has_put_in_the_same_place() {
    let mut trio = Trio::new();
    // n0 has proposed a read, of which nobody hears, and hears of its successor only when that has had something else chosen.
    trio.request(0, &request(1, NOW_US, Access::Read));
    trio.deliver();
    trio.flush();
    let proposed = trio.network.drain(..).find_map(|(_, _, message)| match message {
        Message::Log(replicated_log::Message::Accept { first, .. }) => Some(first),
        _ => None,
    });
    let first = proposed.expect("a proposal");
    let Request { key, token, settled, access, .. } = add();
    let entries = [Some(Update { key, token, settled, access })].into_iter().collect();
    let (ballot, chosen) = (Ballot { round: 9, member: 1 }, first + 1);
    let accept = replicated_log::Message::Accept { ballot, first, chosen, entries };
    trio.network.push_back((NodeId(1), NodeId(0), Message::Log(accept)));
    trio.deliver();
    assert!(trio.network.iter().all(|(_, to, _)| *to != CLIENT), "{:?}", trio.network);
    // The successor is asked instead.
    let forwards = |message: &Message| matches!(message, Message::Forward { .. });
    assert!(trio.network.iter().any(|(_, to, message)| *to == NodeId(1) && forwards(message)));
}

#[test]
fn an_update_that_one_of_two_known_clocks_would_refuse_gets_no_answer_until_the_third_is_known() {
    let mut trio = Trio::start(NOW_US, Some(NodeId(2)), Some(1));
    assert_eq!(trio.ask(0, &add()), [], "it is not clear whose clock is wrong");
    trio.away = None;
    trio.now = trio.now + Duration::from_secs(1);
    trio.act(0, |replica, cx| replica.on_timer(Timer::Store, cx));
    trio.settle();
    let told = trio.ask(0, &add());
    assert!(matches!(told[..], [Answer::Done(_)]), "{told:?}");
}

#[test]
fn a_replica_that_takes_over_the_state_is_shown_what_the_store_does_not_have_yet() {
    let mut trio = Trio::new();
    let told = trio.ask(0, &add());
    assert!(matches!(told[..], [Answer::Done(_)]), "{told:?}");
    let scan = Message::Log(replicated_log::Message::Scan { after: None });
    trio.network.push_back((NodeId(2), NodeId(0), scan));
    trio.deliver();
    let shown = trio.network.iter().find_map(|(_, _, message)| match message {
        Message::Log(replicated_log::Message::Scanned { entries, .. }) => Some(entries),
        _ => None,
    });
    let keys: Vec<_> = shown.expect("an answer").iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(keys, [add().key]);
}

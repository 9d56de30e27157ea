//! Updates that are refused for their clients' clocks, where a request comes twice and another leads meanwhile.

use serried_actor::NodeSet;

use super::super::message::Update;
use super::*;
use crate::testing::{derefs_to_net, set};

/// What the clocks say that are right, in microseconds.
pub(super) const NOW_US: u64 = 100_000_000;
/// What a clock says that is too far behind for a client whose clock is right.
const BEHIND_US: u64 = NOW_US - 30_000_000;
/// By how much such a clock is ahead of one that is right.
const BEHIND: i64 = -30_000_000;

/// Three replicas and the messages between them.
pub(super) struct Trio(testing::Net<Replica>);

derefs_to_net!([] Trio, 0: testing::Net<Replica>);

impl Trio {
    /// The first of them leads. All clocks are right.
    pub(super) fn new() -> Trio {
        Trio::at(NOW_US)
    }

    /// The same, when their clocks say this.
    fn at(clock_us: u64) -> Trio {
        Trio::start(clock_us, NodeSet::EMPTY, None)
    }

    /// The same, when nobody has heard of those that are `away`, and the clock of `behind` is far behind.
    fn start(clock_us: u64, away: NodeSet, behind: Option<u64>) -> Trio {
        let mut trio = Trio(replicas(3));
        trio.away = away;
        trio.ahead_us.extend(behind.map(|member| (NodeId(member), BEHIND)));
        trio.set_clock_us(clock_us);
        trio.0.start();
        trio.settle();
        assert!(trio.leads(0));
        trio
    }

    /// Has a leader propose what waits for that.
    pub(super) fn flush(&mut self) {
        self.fire_where_set(Timer::Log(replicated_log::Timer::Flush));
    }

    fn settle(&mut self) {
        self.flush();
        while self.step() {
            self.flush();
        }
    }

    /// Nobody hears of the first any more, until the second leads.
    pub(super) fn fail_over(&mut self) {
        self.away = set(&[0]);
        self.wait_with_clocks_stopped(Duration::from_secs(3));
        self.fire(1, Timer::Log(replicated_log::Timer::Elect));
        while !self.leads(1) {
            assert!(self.step(), "the second can lead");
        }
    }

    fn leads(&self, member: usize) -> bool {
        self.nodes[member].gauge("leads") == 1
    }

    pub(super) fn request(&mut self, member: u64, request: &Request) {
        self.network.push_back((CLIENT, NodeId(member), Message::Request(request.clone())));
    }

    /// What the client is told of a request that it sends to a replica now.
    pub(super) fn ask(&mut self, member: u64, request: &Request) -> Vec<Answer> {
        self.request(member, request);
        self.settle();
        let told = self.delivered.drain(..).filter_map(|(_, to, message)| match message {
            Message::Reply { answer, .. } if to == CLIENT => Some(answer),
            _ => None,
        });
        told.collect()
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
    trio.step();
    trio.flush();
    trio.network.retain(|(_, to, _)| *to == NodeId(1));
    while trio.step() {
        trio.network.clear();
    }
    // The copy comes to the next leader before that knows that it is chosen.
    trio.set_clock_us(BEHIND_US);
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
    trio.set_clock_us(NOW_US);
    trio.fail_over();
    let told = trio.ask(1, &add());
    assert!(!matches!(told[..], [Answer::Done(_)]), "{told:?}");
    assert_eq!(found(&trio.ask(1, &read())[0]), None);
}

#[test]
fn a_refusal_is_not_told_before_it_is_chosen() {
    let mut trio = Trio::at(BEHIND_US);
    trio.away = set(&[0]);
    assert_eq!(trio.ask(0, &add()), []);
}

#[test]
fn a_leader_whose_clock_alone_is_behind_refuses_nobody_whose_clock_is_right() {
    let mut trio = Trio::new();
    trio.ahead_us.insert(NodeId(0), BEHIND);
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
    trio.set_clock_us(NOW_US);
    trio.fail_over();
    let mut other = request(2, NOW_US, add());
    other.token.coordinator = NodeId(CLIENT.0 + 1);
    other.settled = other.token;
    let told = trio.ask(1, &other);
    assert!(matches!(told[..], [Answer::Done(_)]), "{told:?}");
}

#[test]
fn a_former_leader_does_not_answer_with_its_successors_entry() {
    let mut trio = Trio::new();
    // n0 has proposed a read, of which nobody hears, and hears of its successor only when that has had something else chosen.
    trio.request(0, &request(1, NOW_US, Access::Read));
    trio.step();
    trio.flush();
    let proposed = trio.network.drain(..).find_map(|(_, _, message)| match message {
        Message::Log(replicated_log::Message::Accept { first, .. }) => Some(first),
        _ => None,
    });
    let first = proposed.expect("a proposal");
    let Request { key, token, settled, operation, .. } = add();
    let entries = [Some(Update { key, token, settled, operation })].into_iter().collect();
    let (ballot, chosen) = (Ballot { round: 9, member: 1 }, first + 1);
    let accept = replicated_log::Message::Accept { ballot, first, chosen, entries };
    trio.network.push_back((NodeId(1), NodeId(0), Message::Log(accept)));
    trio.step();
    assert!(trio.network.iter().all(|(_, to, _)| *to != CLIENT), "{:?}", trio.network);
    // The successor is asked instead.
    let forwards = |message: &Message| matches!(message, Message::Forward { .. });
    assert!(trio.network.iter().any(|(_, to, message)| *to == NodeId(1) && forwards(message)));
}

#[test]
fn an_update_waits_for_the_third_clock_if_two_disagree() {
    let mut trio = Trio::start(NOW_US, set(&[2]), Some(1));
    assert_eq!(trio.ask(0, &add()), [], "it is not clear whose clock is wrong");
    trio.away = NodeSet::EMPTY;
    trio.wait_with_clocks_stopped(Duration::from_secs(1));
    trio.fire(0, Timer::Store);
    trio.settle();
    let told = trio.ask(0, &add());
    assert!(matches!(told[..], [Answer::Done(_)]), "{told:?}");
}

#[test]
fn a_state_that_is_taken_over_includes_unstored_keys() {
    let mut trio = Trio::new();
    let told = trio.ask(0, &add());
    assert!(matches!(told[..], [Answer::Done(_)]), "{told:?}");
    let scan = Message::Log(replicated_log::Message::Scan { after: None });
    trio.network.push_back((NodeId(2), NodeId(0), scan));
    trio.step();
    let shown = trio.network.iter().find_map(|(_, _, message)| match message {
        Message::Log(replicated_log::Message::Scanned { entries, .. }) => Some(entries),
        _ => None,
    });
    let keys: Vec<_> = shown.expect("an answer").iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(keys, [add().key]);
}

//! A coordinator whose transaction spans two partitions, answered by hand.

use super::*;
use crate::morty::message::Contents;

struct Client {
    net: Actors,
    group: Group,
    began: Version,
}

impl Client {
    /// Has asked to commit a write in each of two partitions, the first of which is home.
    fn committing() -> Client {
        let group = Group::new(3, Duration::from_millis(1)).with_partitions(2);
        let mut net = actors(&group, Options::default(), 1);
        net.now = 1_000_000;
        let mut client = Client { net, group, began: Version::INITIAL };
        let writes = vec![client.write_in(0), client.write_in(1)];
        let commit = Operation::Commit { reads: Vec::new(), writes, modifies: Vec::new() };
        for operation in [Operation::Begin { only_reads: false, age: None }, commit] {
            client.net.operate(0, 0, operation);
        }
        let began = client.net.outputs.iter().find_map(|(_, (_, output))| match output {
            Output::Began(version) => Some(*version),
            _ => None,
        });
        client.began = began.expect("it has begun");
        let partitions: Vec<_> = client.messages().into_iter().map(|(to, _)| to).collect();
        assert_eq!(partitions, [0, 1], "both are to vote");
        client
    }

    fn write_in(&self, partition: u16) -> Write {
        let mut names = (0..).map(|number| format!("k{number}"));
        let there = |name: &String| self.group.partition_of(&Key::from(&**name)) == partition;
        write(&names.find(there).unwrap(), "1")
    }

    /// What was sent since the last call, to which partition. Each message goes to all its replicas.
    fn messages(&mut self) -> Vec<(u16, Message)> {
        let sent: Vec<_> = self.net.network.drain(..).collect();
        assert_eq!(sent.len() % 3, 0, "{sent:?}");
        let to_first = sent.into_iter().filter(|(_, to, _)| to.member() == 0);
        to_first.map(|(_, to, message)| (to.partition(), message)).collect()
    }

    fn outcome(&self) -> Option<Outcome> {
        self.net.outputs.iter().find_map(|(_, (_, output))| match output {
            Output::Outcome(outcome) => Some(outcome.clone()),
            _ => None,
        })
    }

    fn repeat(&mut self) {
        self.net.fire_client(coordinator_id(0), Timer::Repeat(self.began));
    }

    fn tell(&mut self, partition: u16, member: usize, message: Message) {
        let from = NodeId::replica(partition, member);
        self.net.deliver((from, coordinator_id(0), message));
    }

    fn votes(&mut self, partition: u16, votes: &[Vote]) {
        for (member, vote) in votes.iter().enumerate() {
            let (version, eid, conflict) = (self.began, 0, None);
            let reply = Message::Reply(Reply::PrepareReply { version, eid, vote: *vote, conflict });
            self.tell(partition, member, reply);
        }
    }

    fn accepts(&mut self, partition: u16, member: usize, decision: Proposal) {
        let (version, eid, view) = (self.began, 0, View::OWN);
        self.tell(
            partition,
            member,
            Message::Status(Status::FinalizeReply { version, eid, view, decision }),
        );
    }

    /// What was sent since the last call.
    fn sent(&mut self) -> Vec<String> {
        let lines = self.messages().into_iter();
        lines.map(|(partition, message)| format!("p{partition} {}", name(&message))).collect()
    }
}

const SLOW: [Vote; 3] = [Vote::Commit, Vote::Commit, Vote::AbandonTentative];
const FAST: [Vote; 3] = [Vote::Commit; 3];

#[test]
fn what_several_partitions_vote_on_commits_when_it_is_durable_in_each() {
    for (first, second) in [(SLOW, SLOW), (SLOW, FAST), (FAST, SLOW)] {
        let mut client = Client::committing();
        client.votes(0, &first);
        assert_eq!(client.sent(), [] as [&str; 0], "the other has not voted");
        client.votes(1, &second);
        let slow: Vec<u16> = [(0, first), (1, second)]
            .into_iter()
            .filter_map(|(partition, votes)| (votes == SLOW).then_some(partition))
            .collect();
        let asked: Vec<_> = slow.iter().map(|p| format!("p{p} Finalize 0 Commit")).collect();
        assert_eq!(client.sent(), asked, "where the votes are no durable decision");
        for partition in &slow {
            assert_eq!(client.outcome(), None, "before p{partition} has accepted");
            client.accepts(*partition, 0, Proposal::Commit);
            client.accepts(*partition, 0, Proposal::Commit);
            client.accepts(*partition, 2, Proposal::Abandon);
            assert_eq!(client.outcome(), None, "one of p{partition} has accepted");
            client.accepts(*partition, 1, Proposal::Commit);
        }
        assert_eq!(client.outcome(), Some(Outcome::Committed));
        assert_eq!(client.sent(), ["p0 Decide 0 Commit", "p1 Decide 0 Commit"]);
    }
}

/// The time for missing votes of one partition is over before the other one has voted.
#[test]
fn missing_votes_are_waited_for_again_if_another_partition_has_voted_later() {
    let mut client = Client::committing();
    client.votes(0, &[Vote::AbandonTentative, Vote::Commit]);
    client.votes(0, &[Vote::AbandonTentative, Vote::Commit, Vote::Commit]);
    let wait = Timer::FastPath(client.began);
    client.net.fire_client(coordinator_id(0), wait);
    assert_eq!(client.sent(), [] as [&str; 0]);
    client.votes(1, &FAST[..2]);
    assert!(client.net.clients[coordinator_id(0)].timers.contains_key(&wait));
    client.net.fire_client(coordinator_id(0), wait);
    assert_eq!(client.sent(), ["p0 Finalize 0 Commit", "p1 Finalize 0 Commit"]);
}

#[test]
fn what_one_of_several_partitions_votes_down_for_good_commits_in_none() {
    let mut client = Client::committing();
    client.votes(0, &FAST);
    client.votes(1, &[Vote::Commit, Vote::AbandonFinal]);
    assert!(matches!(client.outcome(), Some(Outcome::Aborted { .. })), "{:?}", client.outcome());
    assert_eq!(client.sent(), ["p0 Decide 0 Abort", "p1 Decide 0 Abort"]);
}

#[test]
fn each_partition_is_told_what_it_is_to_do_and_who_takes_part() {
    let mut client = Client::committing();
    client.repeat();
    client.net.now += 10_000_000;
    client.repeat();
    let contents = |(partition, message): (u16, Message)| match message {
        Message::Request(Request::Prepare { contents, .. }) => (partition, contents),
        other => panic!("{other:?}"),
    };
    let parts: Vec<_> = client.messages().into_iter().map(contents).collect();
    for (partition, contents) in parts {
        let Contents { participants, writes, .. } = &*contents;
        assert_eq!(participants[..], [0, 1]);
        assert_eq!(writes.len(), 1);
        assert_eq!(client.group.partition_of(&writes[0].key), partition);
    }
}

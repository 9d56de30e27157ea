//! The agreement on which replicas of the partition are counted.
//!
//! A transaction has ended when all replicas that are counted have executed it. Then it is forgotten. So replicas must not
//! disagree on who is counted: otherwise each might forget what another one lacks.
//!
//! There is a sequence of configurations. Each one names the replicas that are counted, and with which copy of the data.
//! In the first one all are counted. A replica knows the last configurations that it has heard of, and forgets a transaction
//! only if all replicas of that one have executed it, and have reported so under the same one.
//!
//! - A replica that was silent for [`serried_actor::Settings::outcomes_ms`] is left out, if a majority stays.
//! - A replica that is left out copies the data of one that is counted. Its source has it counted again, under the number of
//!   this copy, before it sends the last part. So whatever the source executes after that is kept until the copying replica
//!   has executed it, too.
//! - A replica that has lost its disk is no longer the one that is counted: its copy has another number.
//!
//! The next configuration is chosen by consensus (Paxos, one decree for each number). All replicas vote, also those that are
//! not counted. Reports carry the whole state of a voter: what it has promised and accepted. A proposer raises its own
//! promise, and others follow. One that has lost its disk votes again when it knows a configuration that counts its new copy.
//! Its predecessor has voted for none of those that come after that one, as it cannot have known it.

use core::time::Duration;

use serried_actor::Timestamp;
use serried_model::NodeId;

use super::super::message::{Ballot, Configuration, Entry, Part, Report, Vote};
use super::{Cx, Replica, WATCH};

/// What a replica does for the next configuration.
#[derive(Debug, Default)]
pub(super) struct Configuring {
    /// What it proposes, and in which ballot.
    proposed: Option<(Ballot, Configuration)>,
    /// When it promised to take part in the proposal of another one.
    promised_at: Option<Timestamp>,
    /// The replica that copies from here and is to be counted, and the number of its copy; until it is sent the last part.
    adds: Option<(NodeId, u64)>,
}

impl Configuring {
    /// Has a replica that copies from here counted; or none any more.
    pub(super) fn add(&mut self, adds: Option<(NodeId, u64)>) {
        self.adds = adds;
    }
}

impl Replica {
    pub(super) fn on_report(&mut self, from: NodeId, report: Report, cx: &mut Cx<'_>) {
        self.learn_incarnations(&report.incarnations, cx);
        let mut is_news = false;
        if report.vote.chosen.number > self.table.vote().chosen.number {
            self.adopt(&report.vote.chosen, cx);
            is_news = true;
        }
        if self.votes_on_configurations()
            && report.vote.chosen.number == self.table.vote().chosen.number
        {
            is_news |= self.follow(&report.vote, cx);
        }
        self.peers.on_report(from, report, cx.now());
        if self.advance(cx) || is_news {
            self.send_reports(cx);
        }
    }

    /// Whether it votes for configurations.
    pub(super) fn votes_on_configurations(&self) -> bool {
        self.table.part() != Part::Lost
    }

    /// Follows another voter.
    fn follow(&mut self, other: &Vote, cx: &mut Cx<'_>) -> bool {
        let known = self.table.vote();
        let mut vote = known.clone();
        if other.promised > vote.promised {
            vote.promised = other.promised;
            self.configuring.promised_at = Some(cx.now());
            self.configuring.proposed = None;
        }
        if let Some((ballot, configuration)) = &other.accepted {
            let is_later = vote.accepted.as_ref().is_none_or(|(accepted, _)| accepted < ballot);
            if *ballot >= vote.promised && is_later {
                vote.promised = *ballot;
                vote.accepted = Some((*ballot, configuration.clone()));
            }
        }
        let is_news = vote != *known;
        if is_news {
            self.record(Entry::Vote(vote), cx);
        }
        is_news
    }

    /// Goes on with the next configuration. Returns whether others have to know.
    fn advance(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.votes_on_configurations() {
            return false;
        }
        let majority = self.members.majority();
        let mut is_news = false;
        let own = self.table.vote().clone();
        if let Some((ballot, proposed)) = &self.configuring.proposed
            && own.promised == *ballot
            && own.accepted.as_ref().is_none_or(|(accepted, _)| accepted < ballot)
        {
            let promises = || self.peers.voters().filter(|vote| vote.promised == *ballot);
            if 1 + promises().count() >= majority {
                let value = choice(proposed, promises().chain([&own])).clone();
                let accepted = Some((*ballot, value));
                self.record(Entry::Vote(Vote { accepted, ..own }), cx);
                is_news = true;
            }
        }
        if let Some((ballot, value)) = self.table.vote().accepted.clone() {
            let has_accepted = |vote: &&Vote| {
                vote.accepted.as_ref().is_some_and(|(accepted, _)| *accepted == ballot)
            };
            if 1 + self.peers.voters().filter(has_accepted).count() >= majority {
                self.adopt(&value, cx);
                is_news = true;
            }
        }
        is_news
    }

    /// A configuration was chosen.
    pub(super) fn adopt(&mut self, chosen: &Configuration, cx: &mut Cx<'_>) {
        let promised = self.table.vote().promised;
        let vote = Vote { chosen: chosen.clone(), promised, accepted: None };
        self.record(Entry::Vote(vote), cx);
        self.configuring.proposed = None;
        self.peers.configure(chosen.clone(), cx.now());
        self.drop_uncounted_copy(chosen);
        let copy = self.table.copy();
        if chosen.copy_of(self.id) == Some(copy) {
            return;
        }
        let part = match self.table.part() {
            Part::Full => Part::Behind,
            Part::Restored => Part::Lost,
            Part::Behind | Part::Lost => return,
        };
        self.stand(part, copy, cx);
        // What is executed in part begins again when the data was copied.
        self.running.clear();
        self.groups.clear();
        self.blocked.clear();
    }

    /// Proposes another configuration, if that is necessary.
    pub(super) fn propose(&mut self, cx: &mut Cx<'_>) {
        let known = self.table.vote();
        let is_counted = known.chosen.copy_of(self.id) == Some(self.table.copy());
        if !self.executes() || !is_counted || self.configuring.proposed.is_some() {
            return;
        }
        let now = cx.now();
        // Another one proposes something at this time.
        let patience = WATCH * (2 + 2 * self.id.member() as u32);
        if self.configuring.promised_at.is_some_and(|promised| now.since(promised) < patience) {
            return;
        }
        let Some(next) = self.next_configuration(now) else { return };
        let vote = self.table.vote().clone();
        let promised = Ballot { number: vote.promised.number + 1, by: self.id };
        self.configuring.proposed = Some((promised, next));
        self.record(Entry::Vote(Vote { promised, ..vote }), cx);
    }

    /// The configuration that should come next, if it is another one.
    fn next_configuration(&self, now: Timestamp) -> Option<Configuration> {
        let chosen = &self.table.vote().chosen;
        let all = || (0..self.members.count()).map(|at| NodeId::replica(self.partition(), at));
        let now_counted: Vec<Option<u64>> = all().map(|node| chosen.copy_of(node)).collect();
        let after = Duration::from_millis(self.settings.outcomes_ms).max(10 * WATCH);
        let is_silent = |node: NodeId| node != self.id && self.peers.is_silent(node, now, after);
        // One that is counted and has not received the last part of its copy can't stand in for others.
        let stays =
            |node: NodeId| !is_silent(node) && (node == self.id || self.peers.is_whole(node));
        let may_leave_out = all().filter(|node| stays(*node)).count() >= self.members.majority();
        let of = |node| chosen.copy_of(node).filter(|_| !(may_leave_out && is_silent(node)));
        let mut counted: Vec<Option<u64>> = all().map(of).collect();
        if let Some((node, copy)) = self.configuring.adds
            && chosen.copy_of(node).is_none_or(|known| known < copy)
        {
            counted[node.member()] = Some(copy);
        }
        let number = chosen.number + 1;
        (counted != now_counted).then_some(Configuration { number, counted })
    }
}

/// What a proposer proposes after these votes of a majority, which has promised to vote in no earlier ballot: what was
/// accepted in the latest ballot, as it may be chosen. If nothing was accepted, it is what the proposer wants.
fn choice<'v>(
    wanted: &'v Configuration,
    votes: impl Iterator<Item = &'v Vote>,
) -> &'v Configuration {
    let accepted = votes.filter_map(|vote| vote.accepted.as_ref());
    accepted.max_by_key(|(ballot, _)| *ballot).map_or(wanted, |(_, accepted)| accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(member: usize) -> Configuration {
        let counted = (0..3).map(|at| (at != member).then_some(0)).collect();
        Configuration { number: 1, counted }
    }

    fn accepted(number: u64, configuration: Configuration) -> Vote {
        let ballot = Ballot { number, by: NodeId(1) };
        Vote { accepted: Some((ballot, configuration)), ..Vote::default() }
    }

    #[test]
    fn what_was_accepted_in_the_latest_ballot_is_proposed() {
        let wanted = without(0);
        let (none, early) = (Vote::default(), accepted(3, without(1)));
        let late = accepted(4, without(2));
        for votes in [[&none, &early, &late], [&late, &none, &early]] {
            assert_eq!(*choice(&wanted, votes.into_iter()), without(2));
        }
        assert_eq!(*choice(&wanted, [&none, &none].into_iter()), wanted);
    }
}

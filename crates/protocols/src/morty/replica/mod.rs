//! The server side: validates executions against each other (000 §4.2), finishes what dead clients have
//! left (§4.3), and truncates what is old (001 §3.3.4).
//!
//! A replica consists of components. Each has fields of its own, and its methods are given what else they need:
//! - [`Setup`]: who the replica is, and how it is configured;
//! - [`State`]: what is settled, in memory and in the store;
//! - [`Transactions`]: what is open, and which transactions wait for which;
//! - [`Recoveries`]: the transactions that this replica tries to finish;
//! - [`Truncation`]: what it has promised and accepted about truncations, and the one that it coordinates;
//! - [`CatchUp`]: what it gets from other replicas;
//! - [`Rejoin`]: whether it takes part, if it replaces a replica whose disk was lost;
//! - [`LogMarks`]: the log; [`Acknowledgements`]: decisions to be acknowledged.
//!
//! This module receives messages and hands them over. What crosses most components is done by the replica itself:
//! `execute` reads and writes, `vote` votes, `accept` takes part in the consensus on a transaction, `decide` carries out
//! decisions, `finish` recovers transactions, and `truncate` raises the watermark.

mod accept;
mod acknowledgements;
mod catch_up;
mod decide;
mod execute;
mod finish;
mod key_record;
mod keys;
mod log_marks;
mod merge;
mod progress;
mod recovery;
mod rejoin;
mod settled;
mod setup;
mod state;
mod transactions;
mod truncate;
mod truncation;
mod uncommitted_writes;
mod validate;
mod validate_committed;
mod vote;
mod watch;

use std::sync::Arc;

use serried_actor::{Actor, Context, Group, Recover, Settings, Standing, Store, Timestamp};
use serried_model::{NodeId, Value, Version};
use serried_parts::{Committed, WriteId, encode_versions};

use self::acknowledgements::Acknowledgements;
use self::catch_up::{CatchUp, List, Page};
#[cfg(test)]
pub(in crate::morty) use self::key_record::COUNTED_WHEN_FULL;
#[cfg(test)]
use self::key_record::KeyRecord;
use self::log_marks::LogMarks;
use self::recovery::Recoveries;
use self::rejoin::Rejoin;
use self::setup::Setup;
use self::state::State;
use self::transactions::{End, Transactions};
use self::truncation::Truncation;
use self::watch::look_every;
use super::Options;
use super::message::{
    CatchingUp, Contents, Message, Recovering, Rejoining, Request, Settlement, Status, Truncating,
};
use super::record::Record;

/// A replica of Morty; with [`Options::re_execution`] off, one of MVTSO; with [`Control::Validation`](super::Control), one of
/// TAPIR.
#[derive(Debug)]
pub struct Replica {
    setup: Setup,
    state: State,
    transactions: Transactions,
    recoveries: Recoveries,
    truncation: Truncation,
    log: LogMarks,
    catch_up: CatchUp,
    rejoin: Rejoin,
    acknowledgements: Acknowledgements,
}

/// What a replica does by the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Send the acknowledgements that are due.
    Acknowledge,
    /// Look after undecided transactions.
    Watch,
    /// Go on with the recovery of a transaction.
    Recovery(Version),
    /// Begin a truncation, or go on with one.
    Truncation,
    /// Move on with putting into the store what was settled.
    Settle,
    /// Go on catching up.
    CatchUp,
    /// Ask again how far the predecessor had come.
    Floor,
}

type Cx<'a> = Context<'a, Replica>;

impl Replica {
    /// An empty replica.
    pub fn new(id: NodeId, group: Group, settings: &Settings, options: Options) -> Replica {
        let setup = Setup { id, group, options, settings: *settings };
        Replica {
            state: State::new(&setup),
            transactions: Transactions::default(),
            recoveries: Recoveries::default(),
            truncation: Truncation::default(),
            log: LogMarks::default(),
            catch_up: CatchUp::default(),
            rejoin: Rejoin::default(),
            acknowledgements: Acknowledgements::default(),
            setup,
        }
    }

    /// How the transaction ended, as far as this replica knows and remembers.
    fn settlement(&self, version: Version) -> Option<Settlement> {
        self.transactions.settlement(version, &self.state)
    }

    /// Puts some of what is settled into the store, if it is time.
    fn settle(&mut self, cx: &mut Cx) {
        if self.catch_up.is_copying() {
            return; // It continues when the watermark is raised.
        }
        let may_trim = self.rejoin.is_floor_known();
        self.state.settle(&self.setup, &mut self.log, may_trim, cx);
    }

    fn on_request(&mut self, from: NodeId, request: Request, cx: &mut Cx) {
        if !self.rejoin.takes_part() && self.is_for_those_who_take_part(&request) {
            return;
        }
        match request {
            Request::Get { version, key } => self.on_get(version, key, cx),
            Request::Put { version, key, tag, rests_on, value } => {
                self.on_put(version, key, (tag, rests_on), value, cx);
            }
            Request::AskAdmission { version } => self.on_ask_admission(version, cx),
            Request::Prepare { version, eid, next_tag, contents } => {
                self.on_prepare(version, eid, next_tag, contents, cx);
            }
            Request::Finalize { version, eid, view, decision } => {
                self.on_finalize(from, (version, eid, view), decision, cx);
            }
            Request::Decide { version, eid, decision, contents } => {
                self.on_decide(from, (version, eid), decision, contents, cx);
            }
            Request::Inquire { version } => self.on_inquire(from, version, cx),
            Request::GetAt { request, key, at } => self.on_get_at(from, request, key, at, cx),
        }
    }

    /// Whether only a replica that takes part may handle a request.
    fn is_for_those_who_take_part(&self, request: &Request) -> bool {
        match request {
            Request::Get { .. }
            | Request::Put { .. }
            | Request::AskAdmission { .. }
            | Request::Prepare { .. }
            | Request::Finalize { .. } => true,
            Request::Inquire { version } => self.state.settled.get(*version).is_none(),
            Request::Decide { .. } | Request::GetAt { .. } => false,
        }
    }

    /// A replica answers this one, which recovers a transaction.
    fn on_status(&mut self, from: NodeId, status: Status, cx: &mut Cx) {
        match status {
            Status::FinalizeReply { version, eid, view, decision } => {
                let (asked, proposed) = ((version, view), (eid, decision));
                self.recoveries.on_finalize_reply(from, asked, proposed, &self.setup, cx);
            }
            Status::Settled { version, settlement } => {
                self.recoveries.on_settled(from, version, settlement, &self.setup, cx);
            }
        }
    }

    fn on_recovering(&mut self, from: NodeId, message: Recovering, cx: &mut Cx) {
        match message {
            Recovering::PaxosPrepare { .. } if !self.rejoin.takes_part() => {}
            Recovering::PaxosPrepare { version, view, vote_on } => {
                self.on_paxos_prepare(from, (version, view), vote_on, cx);
            }
            Recovering::PaxosPrepareReply { version, view, known } => {
                let asked = (version, view);
                self.recoveries.on_paxos_prepare_reply(from, asked, known, &self.setup, cx);
            }
        }
    }

    fn on_truncating(&mut self, from: NodeId, message: Truncating, cx: &mut Cx) {
        match message {
            // A snapshot covers everything below the truncation, and this replica lacks what is below the floor. The
            // next in turn need not wait for it.
            Truncating::Truncate { ballot, .. } if !self.rejoin.takes_part() => {
                let upto = ballot.upto;
                cx.send(from, Message::Truncating(Truncating::CannotMerge { upto }));
            }
            Truncating::TruncationPaxosPrepare { .. } if !self.rejoin.takes_part() => {}
            Truncating::Truncate { ballot, snapshot } => {
                self.on_truncate(from, ballot, snapshot, cx);
            }
            Truncating::TruncationPaxosPrepare { ballot } => {
                self.on_truncation_paxos_prepare(from, ballot, cx);
            }
            Truncating::ProposeMerge { ballot, .. } if !self.rejoin.may_accept(ballot.upto) => {}
            Truncating::Clear { .. } if !self.rejoin.takes_part() => {}
            Truncating::ProposeMerge { ballot, merged } => {
                self.on_propose_merge(from, ballot, merged, cx);
            }
            Truncating::Clear { ballot, watermark } => self.on_clear(from, ballot, watermark, cx),
            Truncating::ProposeMergeReply { ballot, merged } => {
                self.on_propose_merge_reply(from, ballot, merged, cx);
            }
            Truncating::BallotIsOver { ballot } => self.truncation.on_ballot_is_over(ballot),
            Truncating::TruncationFinished { upto, merged } => {
                self.on_truncation_finished(from, upto, merged, cx);
            }
            Truncating::CannotMerge { upto } => self.on_cannot_merge(from, upto, cx),
        }
    }

    fn on_catching_up(&mut self, from: NodeId, message: CatchingUp, cx: &mut Cx) {
        match message {
            // The asker would take what this replica has for everything.
            CatchingUp::GetCommitted { .. } | CatchingUp::Scan { .. }
                if !self.rejoin.takes_part() => {}
            CatchingUp::GetCommitted { since, run } => {
                self.catch_up.on_get_committed(from, (since, run), &self.state, cx);
            }
            CatchingUp::Committed { since, run, versions, more, reaches, behind } => {
                let list = List { since, run, versions, more, reaches, behind };
                let (setup, state) = (&self.setup, &mut self.state);
                let peer = self.catch_up.on_committed(from, list, setup, state, cx);
                self.has_everything_of(peer, cx);
            }
            CatchingUp::Fetch { versions } => {
                self.catch_up.on_fetch(from, versions, &self.setup, &mut self.state, cx);
            }
            CatchingUp::Fetched { mut executions, readable_from } => {
                let own = self.setup.id.partition();
                let before = executions.len();
                executions.retain(|(version, _, contents)| {
                    self.setup.can_be_fetched(*version, own, contents)
                });
                if executions.len() < before {
                    reject(from, "executions that can't be", cx);
                }
                self.on_fetched(from, executions, readable_from, cx);
            }
            CatchingUp::Scan { after, since, run } => {
                self.catch_up.on_scan(from, after, (since, run), &mut self.state, cx);
            }
            CatchingUp::Scanned { after, since, run, entries, next, holds } => {
                self.on_scanned(from, Page { after, since, run, entries, next, holds }, cx);
            }
        }
    }

    /// A peer has sent executions that have committed.
    fn on_fetched(
        &mut self,
        from: NodeId,
        executions: Vec<(Version, u32, Arc<Contents>)>,
        readable_from: u64,
        cx: &mut Cx,
    ) {
        self.state.raise_readable_from(readable_from, &mut self.log, cx);
        let (before, nothing) = (self.catch_up.fetching(&self.state), executions.is_empty());
        for (version, eid, contents) in executions {
            if self.settlement(version).is_none() {
                // If this replica has voted on the execution, it knows its reads too.
                let voted_on = self.transactions.voted_on(version, eid);
                let logged = voted_on.is_some();
                self.commit(version, eid, voted_on.unwrap_or(contents), logged, cx);
            }
        }
        let state = (&self.setup, &mut self.state);
        let peer = self.catch_up.on_fetched(from, before, nothing, state, cx);
        self.has_everything_of(peer, cx);
    }

    /// A peer has sent a page of its store. If that was the last, everything below the copy's watermark is settled.
    fn on_scanned(&mut self, from: NodeId, page: Page, cx: &mut Cx) {
        let state = (&self.setup, &mut self.state, &mut self.log);
        let Some((upto, digest)) = self.catch_up.on_scanned(from, page, state, cx) else { return };
        if Version::at(upto) > self.state.progress.watermark() {
            self.raise_watermark(upto, digest, true, cx);
        }
        self.catch_up.list_the_rest(&self.setup, &self.state, cx);
    }

    /// This replica has everything that `peer` had when it was asked, if there is such a peer. What waited for that
    /// continues, and if something is still missing, another peer is asked.
    fn has_everything_of(&mut self, peer: Option<NodeId>, cx: &mut Cx) {
        let Some(peer) = peer else { return };
        self.has_caught_up_with(peer, cx);
        let next = match self.catch_up.is_behind() {
            true => Some(self.setup.peer_at(peer.member() + 1)),
            false => self.truncation.take_announced_by(),
        };
        if let Some(next) = next {
            self.catch_up.begin(next, &self.setup, &mut self.state, cx);
        }
    }

    fn on_rejoining(&mut self, from: NodeId, message: Rejoining, cx: &mut Cx) {
        match message {
            // It does not know up to which version its own predecessor has taken part.
            Rejoining::Replaced { .. } if !self.rejoin.takes_part() => {}
            Rejoining::Replaced { question } => {
                self.rejoin.on_replaced(from, question, &self.log, cx);
            }
            Rejoining::ReplacedReply { question, reached } => {
                let answer = (question, reached);
                self.rejoin.on_replaced_reply(from, answer, &self.setup, &mut self.log, cx);
            }
        }
    }
}

/// Reports a message that no correct sender sends. The caller drops it.
fn reject(from: NodeId, what: impl core::fmt::Display, cx: &mut Cx) {
    cx.reject(|| format!("{from} has sent {what}"));
}

#[cfg(test)]
impl Replica {
    pub(super) fn undecided(&self) -> usize {
        self.transactions.len()
    }

    /// The transactions whose decisions others wait for.
    pub(super) fn waited_for(&self) -> Vec<Version> {
        self.transactions.waited_for()
    }

    pub(super) fn record(&self, key: &serried_model::Key) -> Option<&KeyRecord> {
        self.state.keys.get(key)
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = Timer;
    type Record = Record;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        self.start_truncation(cx);
        self.transactions.start_watch(cx.now(), &self.setup);
        cx.set_timer(Timer::Watch, look_every(&self.setup));
        if self.catch_up.is_behind() {
            self.catch_up.start(&self.setup, &mut self.state, cx);
        }
        self.rejoin.ask(&self.setup, cx);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        match message {
            Message::Request(request) => self.on_request(from, request, cx),
            Message::Status(status) if self.setup.group.contains(from) => {
                self.on_status(from, status, cx);
            }
            Message::Recovering(message) if self.setup.group.contains(from) => {
                self.on_recovering(from, message, cx);
            }
            Message::Truncating(message) if self.setup.is_peer(from) => {
                self.on_truncating(from, message, cx);
            }
            Message::CatchingUp(message) if self.setup.is_peer(from) => {
                self.on_catching_up(from, message, cx);
            }
            Message::Rejoining(message) if self.setup.is_peer(from) => {
                self.on_rejoining(from, message, cx);
            }
            Message::Watermark { upto } if self.setup.is_on_same_machine(from) => {
                self.state.progress.heard_of(from.partition(), upto);
            }
            Message::Status(_)
            | Message::Recovering(_)
            | Message::Truncating(_)
            | Message::CatchingUp(_)
            | Message::Rejoining(_)
            | Message::Watermark { .. } => reject(from, "what it is not to send", cx),
            Message::Reply(_) => reject(from, "what only coordinators receive", cx),
        }
    }

    /// Answers only reads of the past and questions about outcomes. Other reads would have to register here, and the state
    /// they read would soon be old, so transactions use other replicas.
    fn on_message_read_only(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) -> bool {
        let request = match message {
            Message::Request(request) => request,
            Message::Reply(_)
            | Message::Status(_)
            | Message::Recovering(_)
            | Message::Truncating(_)
            | Message::CatchingUp(_)
            | Message::Rejoining(_)
            | Message::Watermark { .. } => return false,
        };
        match request {
            Request::GetAt { request, key, at } => self.on_get_at(from, request, key, at, cx),
            // A decision is durable before a replica learns of it, if perhaps not here.
            Request::Inquire { version } => {
                let Some(settlement) = self.state.settled.get(version) else { return false };
                let settled = Message::Status(Status::Settled { version, settlement });
                cx.send_before_durable(from, settled);
            }
            Request::Get { .. }
            | Request::Put { .. }
            | Request::AskAdmission { .. }
            | Request::Prepare { .. }
            | Request::Finalize { .. }
            | Request::Decide { .. } => return false,
        }
        true
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Acknowledge => self.acknowledgements.send(cx),
            Timer::Watch => self.look_after(cx),
            Timer::Recovery(version) => self.go_on_recovering(version, cx),
            Timer::Truncation => self.truncate(cx),
            Timer::Settle => self.settle(cx),
            Timer::CatchUp => self.catch_up.go_on(&self.setup, &mut self.state, cx),
            Timer::Floor => self.rejoin.ask(&self.setup, cx),
        }
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("undecided_transactions", self.transactions.len() as u64);
        each("remembered_transactions", self.state.settled.len() as u64);
        each("recoveries_in_progress", self.recoveries.len() as u64);
        each("resident_keys", self.state.keys.resident() as u64);
        each("truncated_below_us", self.state.progress.watermark().timestamp_us);
        // It lies in the past unless a clock was ahead.
        each("stopped_below_us", self.truncation.stopped().timestamp_us);
        let catching_up = self.catch_up.may_lack_something() || !self.rejoin.takes_part();
        each("catching_up", u64::from(catching_up));
    }
}

impl Recover for Replica {
    fn replay(&mut self, record: Record, store: &mut dyn Store) {
        self.log.note(&record);
        self.catch_up.set_behind();
        match record {
            Record::Voted { version, eid, next_tag, vote, contents } => {
                let execution = (version, eid, next_tag);
                let (keys, setup) = (&mut self.state.keys, (&self.setup, &*store));
                self.transactions.replay_vote(execution, vote, contents, keys, setup);
            }
            // The vote may have been trimmed. Then it is below the horizon, like this record, and its effects are in
            // the store.
            Record::Confirmed { version, eid, vote } => {
                if self.transactions.voted_on(version, eid).is_some() {
                    let keys = &mut self.state.keys;
                    self.transactions.settle_vote(version, eid, vote, None, keys);
                }
            }
            Record::Waits { version, eid, sources } => {
                self.transactions.replay_waits(version, eid, sources)
            }
            Record::Promised { version, view } => {
                self.transactions.open(version, Timestamp::default(), &self.setup).view = view;
            }
            Record::Accepted { version, accepted } => {
                self.transactions.accept(version, accepted, &mut self.state.keys, &self.setup);
            }
            Record::Committed { version, eid, contents } => {
                // Transactions that waited for it have a later record in the log, or are looked at again at the start.
                let contents = contents.or_else(|| self.transactions.voted_on(version, eid));
                let end = match &contents {
                    Some(contents) => End::Committed(eid, contents),
                    None => End::Unknown,
                };
                self.transactions.carry_out(version, end, &mut self.state);
            }
            Record::Aborted { version } => {
                self.transactions.carry_out(version, End::Aborted, &mut self.state);
            }
            Record::Stopped { upto } => self.truncation.replay_stopped(upto),
            Record::Merging { ballot, accepted } => {
                self.truncation.replay_merging(ballot, accepted);
            }
            Record::Truncated { upto, horizon, digest, copied, readable_from } => {
                self.replay_truncated((upto, horizon, readable_from), digest, copied);
            }
            Record::Floor { floor } => self.rejoin.replay_floor(floor),
            Record::Replaces => self.rejoin.replay_replaces(),
            Record::Forgotten { horizon } => self.state.rely_on_the_store(Version::at(horizon)),
            Record::Copying { upto, digest } => drop(self.state.progress.begin_copy(upto, digest)),
        }
        assert!(
            !self.state.keys.have_notices(),
            "no uncommitted read survives a crash, so no reader can be told anything"
        );
    }

    fn stored(value: &Value) -> Vec<u8> {
        encode_versions(&[Committed::put(WriteId::LOADED, Some(value.clone()))])
    }

    fn standing(&self) -> Standing {
        let keys = self.catch_up.copied();
        match (self.rejoin.takes_part(), self.catch_up.is_behind()) {
            (false, _) => Standing::Rejoining { keys },
            (true, true) => Standing::CatchingUp { keys },
            (true, false) => Standing::Full,
        }
    }

    fn rejoin(&mut self, cx: &mut Cx<'_>) {
        if self.setup.group.size() == 1 {
            return; // No other replica has counted its votes, and none has the data.
        }
        self.catch_up.set_behind();
        self.rejoin.begin(&mut self.log, cx);
    }
}

//! The server side: validates executions against each other (000 §4.2), finishes what dead clients have
//! left (§4.3), and truncates what is old (001 §3.3.4).

mod accept;
mod acknowledgements;
mod catch_up;
mod decide;
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
mod validate;
mod vote;
mod watch;

use std::sync::Arc;

use serried_actor::{
    Actor, Context, Group, Observation, Recover, Settings, Standing, Store, Timestamp,
};
use serried_model::{Key, NodeId, Value, Version};
use serried_parts::{Committed, WriteId, encode_versions};

use self::acknowledgements::Acknowledgements;
use self::catch_up::{CatchUp, List, Page};
#[cfg(test)]
use self::key_record::KeyRecord;
use self::key_record::Notice;
use self::log_marks::LogMarks;
use self::recovery::{Next, Recoveries};
use self::rejoin::Rejoin;
use self::setup::Setup;
use self::state::State;
use self::transactions::{End, Look, Transactions};
use self::truncation::Truncation;
use self::watch::look_every;
use super::message::{
    CatchingUp, Contents, Message, Past, Record, Recovering, Refusal, Rejoining, Reply, Request,
    Settlement, Status, Truncating, View,
};
use super::{Mutation, Options};

/// A replica of Morty; with [`Options::re_execution`] off, one of MVTSO.
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

    /// Whether this replica takes part in a transaction; if not, its coordinator is told why.
    fn admits(&mut self, version: Version, prepare: bool, cx: &mut Cx) -> bool {
        let late = self.setup.options.mutation.is(Mutation::LatePrepare) && prepare;
        if let Some(settlement) = self.transactions.remembered(version, &self.state)
            && !(late && settlement == Settlement::Aborted)
        {
            cx.send(version.coordinator, Message::Status(Status::Settled { version, settlement }));
            return false;
        }
        if version < self.truncation.stopped() {
            let clock_us = cx.clock().midpoint_us();
            refuse(version, Refusal::Truncated { clock_us }, cx);
            return false;
        }
        if self.setup.is_too_far_ahead(version, cx) {
            let clock_us = cx.clock().midpoint_us();
            refuse(version, Refusal::Ahead { clock_us }, cx);
            return false;
        }
        true
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
            Recovering::PaxosPrepare { version, view } => {
                self.on_paxos_prepare(from, version, view, cx);
            }
            Recovering::PaxosPrepareReply { version, view, known } => {
                let asked = (version, view);
                self.recoveries.on_paxos_prepare_reply(from, asked, known, &self.setup, cx);
            }
        }
    }

    fn on_truncating(&mut self, from: NodeId, message: Truncating, cx: &mut Cx) {
        match message {
            // A snapshot tells of everything below the truncation, and this replica lacks what is below the floor. The
            // next in turn need not wait for it.
            Truncating::Truncate { upto, .. } if !self.rejoin.takes_part() => {
                cx.send(from, Message::Truncating(Truncating::CannotMerge { upto }));
            }
            Truncating::TruncationPaxosPrepare { .. } if !self.rejoin.takes_part() => {}
            Truncating::Truncate { upto, view, snapshot } => {
                self.on_truncate(from, upto, view, snapshot, cx);
            }
            Truncating::TruncationPaxosPrepare { upto, view } => {
                self.on_truncation_paxos_prepare(from, upto, view, cx);
            }
            Truncating::ProposeMerge { upto, .. } if !self.rejoin.may_accept(upto) => {}
            Truncating::ProposeMerge { upto, view, merged } => {
                self.on_propose_merge(from, upto, view, merged, cx);
            }
            Truncating::ProposeMergeReply { upto, view } => {
                self.truncation.on_propose_merge_reply(from, (upto, view), &self.setup, cx);
            }
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
                executions
                    .retain(|(version, _, contents)| self.setup.is_sound(*version, own, contents));
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

    /// Nothing is kept of it: it tells the coordinator what a Prepare would come to now.
    fn on_ask_admission(&mut self, version: Version, cx: &mut Cx) {
        if self.admits(version, false, cx) {
            let clock_us = cx.clock().latest_us;
            cx.send_before_durable(
                version.coordinator,
                Message::Reply(Reply::Admitted { version, clock_us }),
            );
        }
    }

    fn on_get(&mut self, version: Version, key: Key, cx: &mut Cx) {
        if self.catch_up.is_behind() || !self.admits(version, false, cx) {
            return;
        }
        let place = self.state.keys.loaded(&key, cx.store());
        let (_, record) = self.state.keys.at(place);
        let (write, value) = record.find_for(version, self.state.progress.watermark());
        let found = write.version;
        cx.observe(|| Observation::Read { key: key.clone(), reader: version, found });
        if self.setup.options.re_execution && record.add_read(version, write) {
            self.transactions.open(version, cx.now(), &self.setup).reads.push(place);
        }
        let reply =
            Message::Reply(Reply::GetReply { version, key, write, value, instead_of: None });
        cx.send_before_durable(version.coordinator, reply);
    }

    fn on_put(
        &mut self,
        version: Version,
        key: Key,
        (tag, rests_on): (u32, Option<WriteId>),
        value: Option<Value>,
        cx: &mut Cx,
    ) {
        if !self.admits(version, false, cx) {
            return;
        }
        let undecided = self.transactions.open(version, cx.now(), &self.setup);
        if tag < undecided.next_tag {
            return; // An execution that was prepared since writes something else, or nothing.
        }
        cx.observe(|| Observation::Written { key: key.clone(), version, revision: tag });
        let place = self.state.keys.place(&key);
        let written = (WriteId { version, tag }, rests_on);
        if self.state.keys.add_write(place, written, &value) {
            undecided.writes.push(place);
        }
        self.notify(cx);
    }

    fn on_get_at(&mut self, from: NodeId, request: u64, key: Key, at: Version, cx: &mut Cx) {
        let found = if at > self.state.progress.watermark() {
            Past::NotSettled
        } else if at < self.state.progress.readable_from() {
            Past::Forgotten
        } else {
            match self.state.keys.load(&key, cx.store()).committed.latest_before(at) {
                Some(Committed { id, value }) => Past::Value(*id, value.clone()),
                None => Past::Value(WriteId::INITIAL, None),
            }
        };
        cx.send_before_durable(from, Message::Reply(Reply::GetAtReply { request, found }));
    }

    /// Recovers the transactions that should have been decided by now, or that others wait for. The replicas do so one after
    /// the other, so that they do not disturb each other.
    fn look_after(&mut self, cx: &mut Cx) {
        let now = cx.now();
        while let Some((due, version)) = self.transactions.next_due(now) {
            let due = match self.transactions.look_at(version, due, &self.state, &self.setup) {
                Look::Recover(due) => due,
                Look::Settled(waiters) => {
                    waiters.into_iter().for_each(|waiter| self.confirm(waiter, cx));
                    continue;
                }
                Look::Forget => continue,
            };
            if self.recoveries.contains(version) {
                continue;
            }
            // A replica that replaces a lost disk does not know which views its predecessor has used.
            let may_recover = self.rejoin.takes_part() && !self.recoveries.are_full();
            if due <= now && may_recover {
                self.recover(version, None, cx);
            } else {
                self.transactions.look_again(version, due.max(now + look_every(&self.setup)));
            }
        }
        cx.set_timer(Timer::Watch, look_every(&self.setup));
    }

    /// `from` asks how the transaction ends.
    fn on_inquire(&mut self, from: NodeId, version: Version, cx: &mut Cx) {
        match self.settlement(version) {
            Some(settlement) => {
                cx.send(from, Message::Status(Status::Settled { version, settlement }))
            }
            // It was not admitted, and may be later.
            None if self.setup.is_too_far_ahead(version, cx) => {}
            None if self.recoveries.are_full() => {} // `from` will ask again.
            None => self.recover(version, Some(from), cx),
        }
    }

    /// Finishes a transaction.
    fn recover(&mut self, version: Version, inquirer: Option<NodeId>, cx: &mut Cx) {
        let undecided = self.transactions.get(version);
        let execution = undecided.and_then(|undecided| undecided.execution.as_ref());
        let contents = execution.map(|execution| &*execution.contents);
        if self.recoveries.add(version, contents, inquirer, &self.setup) {
            self.begin_view(version, View::OWN, cx);
        }
    }

    /// Begins to recover in a view of this replica's own that is later than `last`. The view is logged as a promise before
    /// any message names it.
    fn begin_view(&mut self, version: Version, last: View, cx: &mut Cx) {
        let undecided = self.transactions.open(version, cx.now(), &self.setup);
        let view = undecided.view.max(last).next(self.setup.id);
        undecided.view = view;
        self.log.append(Record::Promised { version, view }, cx);
        self.recoveries.begin(version, view, &self.setup, cx);
    }

    /// The timer of a recovery has fired.
    fn go_on_recovering(&mut self, version: Version, cx: &mut Cx) {
        match self.recoveries.go_on(version, &self.setup, cx) {
            Next::Wait => {}
            Next::NewView(last) => self.begin_view(version, last, cx),
            Next::GiveUp(peer) => {
                if let Some(peer) = peer {
                    self.catch_up.begin(peer, &self.setup, &mut self.state, cx);
                }
            }
        }
    }

    /// A transaction was decided that may have been recovered.
    fn recovered(&mut self, version: Version, cx: &mut Cx) {
        let (transactions, state) = (&self.transactions, &self.state);
        let settlement =
            || transactions.settlement(version, state).expect("a transaction that was decided");
        if self.recoveries.end(version, settlement, cx) {
            self.merge(cx);
        }
    }

    /// Tells readers what they would now find. Without re-execution nobody is told, since a reader could
    /// not use it. A replica that is behind tells nobody either, since what it holds may have been deleted.
    fn notify(&mut self, cx: &mut Cx) {
        if !self.setup.options.re_execution || self.catch_up.is_behind() {
            self.state.keys.forget_notices();
        }
        for Notice { reader, key, write, value, instead_of } in self.state.keys.take_notices() {
            let found = write.version;
            cx.observe(|| Observation::Read { key: key.clone(), reader, found });
            let reply =
                Message::Reply(Reply::GetReply { version: reader, key, write, value, instead_of });
            cx.send_before_durable(reader.coordinator, reply);
        }
    }
}

/// Reports a message that no correct sender sends. The caller drops it.
fn reject(from: NodeId, what: impl core::fmt::Display, cx: &mut Cx) {
    cx.reject(|| format!("{from} has sent {what}"));
}

/// Tells the coordinator that this replica takes no part in a transaction.
fn refuse(version: Version, refusal: Refusal, cx: &mut Cx) {
    cx.send(version.coordinator, Message::Reply(Reply::Refused { version, refusal }));
}

/// Reports to watchers that the writes of an execution can be read from now on.
fn observe_writes(version: Version, contents: &Contents, cx: &mut Cx) {
    for write in &contents.writes {
        let revision = write.tag;
        cx.observe(|| Observation::Written { key: write.key.clone(), version, revision });
    }
}

#[cfg(test)]
impl Replica {
    pub(super) fn undecided(&self) -> usize {
        self.transactions.len()
    }

    /// The transactions whose decisions final votes wait for.
    pub(super) fn waited_for(&self) -> Vec<Version> {
        self.transactions.waited_for()
    }

    pub(super) fn record(&self, key: &Key) -> Option<&KeyRecord> {
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
            // A decision is durable before it is told, if not here.
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
            Record::Waits { version, eid, reads } => {
                self.transactions.replay_waits(version, eid, reads)
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
            Record::Merging { upto, view, accepted } => {
                self.truncation.replay_merging(upto, view, accepted);
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
        encode_versions(&[Committed { id: WriteId::LOADED, value: Some(value.clone()) }])
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

//! The server side: validates executions against each other (000 §4.2), finishes what dead clients have
//! left (§4.3), and truncates what is old (001 §3.3.4).

mod accept;
mod catch_up;
mod decide;
mod key_record;
mod keys;
mod log_marks;
mod merge;
mod progress;
mod recovery;
mod rejoin;
mod settle;
mod settled;
mod truncation;
mod validate;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use serried_actor::{
    Actor, Context, Group, Observation, Recover, Settings, Standing, Store, Timestamp,
};
use serried_model::{Key, NodeId, Value, Version};
use serried_parts::{Committed, Map, Place, WriteId, encode_versions};
use smallvec::SmallVec;

use self::catch_up::{Asked, CatchUp};
#[cfg(test)]
use self::key_record::KeyRecord;
use self::key_record::Notice;
use self::keys::Keys;
use self::log_marks::LogMarks;
use self::merge::Merge;
use self::progress::Progress;
use self::recovery::Recovery;
use self::rejoin::Floor;
use self::settle::Settling;
use self::settled::Settled;
use self::truncation::Truncation;
use self::watch::Watch;
use super::message::{Accepted, Contents, Message, Past, Record, Refusal, Settlement, View, Vote};
use super::{Mutation, Options};

/// A replica of Morty; with [`Options::re_execution`] off, one of MVTSO.
#[derive(Debug)]
pub struct Replica {
    id: NodeId,
    group: Group,
    options: Options,
    settings: Settings,
    /// `vstore`.
    keys: Keys,
    /// Transactions that are not decided, as far as this replica knows, with their `erecord`.
    transactions: Map<Version, Undecided>,
    /// `decision_log`, as far back as it is kept.
    settled: Settled,
    /// The transactions whose final votes are still to come, by the transaction whose decision they wait for.
    waiting: BTreeMap<Version, SmallVec<[Version; 2]>>,
    /// Undecided transactions to be looked after.
    watch: Watch,
    recoveries: BTreeMap<Version, Recovery>,
    truncation: Truncation,
    /// The truncation that it coordinates.
    merge: Option<Merge>,
    /// How far what is old is settled.
    progress: Progress,
    log_marks: LogMarks,
    settling: Settling,
    catch_up: Option<CatchUp>,
    /// How many keys it has copied from others since it started.
    copied: u64,
    /// It has just come back, and its state may be too old to answer reads.
    behind: bool,
    /// Whom it has asked since.
    asked: Asked,
    /// Up to where its predecessor may have taken part, if it replaces a replica whose disk was lost.
    floor: Floor,
    /// Decisions carried out and not acknowledged yet, by coordinator.
    acknowledgements: BTreeMap<NodeId, Vec<Version>>,
    acknowledge_set: bool,
    /// Readers to be told that they would now find something else; empty between events.
    notices: Vec<Notice>,
}

/// A transaction in progress. Of its executions only the latest that was prepared is kept: a Prepare
/// abandons all earlier ones.
#[derive(Debug, Default)]
struct Undecided {
    /// The records in which it has an uncommitted read.
    reads: Places,
    /// Those in which it has an uncommitted write; first those of the execution.
    writes: Places,
    /// Puts with smaller tags are superseded.
    next_tag: u32,
    /// Executions before this one are abandoned.
    abandoned_before: u32,
    /// The view below which no decision is accepted.
    view: View,
    accepted: Option<Accepted>,
    execution: Option<Execution>,
    /// It is looked after.
    watched: bool,
    /// When its coordinator was last heard of.
    heard: Timestamp,
}

impl Undecided {
    /// Somebody else than its coordinator decides on it.
    fn is_superseded(&self) -> bool {
        self.view > View::OWN
    }

    /// Whether it may have got so far that it commits.
    fn may_commit(&self) -> bool {
        self.execution.is_some() || self.accepted.is_some()
    }
}

/// Where records are.
type Places = SmallVec<[Place; 6]>;

/// An `erecord` entry.
#[derive(Debug)]
struct Execution {
    eid: u32,
    contents: Arc<Contents>,
    /// The records of what it has read, while its reads are prepared.
    reads: Places,
    /// `None` while it waits for the transactions that it read from, if votes are not provisional.
    vote: Option<Vote>,
    /// The key over which it was not to commit.
    conflict: Option<Key>,
    /// What a provisional vote waits for: the reads that are not known to be committed as they were read.
    unconfirmed: validate::Reads,
}

impl Execution {
    fn new(eid: u32, contents: Arc<Contents>) -> Execution {
        let (reads, unconfirmed) = Default::default();
        Execution { eid, contents, reads, vote: None, conflict: None, unconfirmed }
    }

    /// Whether its reads are prepared.
    fn is_prepared(&self) -> bool {
        matches!(self.vote, Some(Vote::Commit | Vote::Provisional))
    }
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug)]
enum End<'a> {
    /// As this execution.
    Committed(u32, &'a Contents),
    Aborted,
    /// Unknown here. Its effects, if it has any, are in state that was copied from another replica.
    Unknown,
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
        Replica {
            id,
            options,
            settings: *settings,
            keys: Keys::new(settings.resident_keys),
            transactions: Map::default(),
            settled: Settled::default(),
            waiting: BTreeMap::new(),
            watch: Watch::default(),
            recoveries: BTreeMap::new(),
            truncation: Truncation::new(settings),
            merge: None,
            progress: Progress::new(settings, id.partition(), group.partitions()),
            log_marks: LogMarks::default(),
            settling: Settling::default(),
            catch_up: None,
            copied: 0,
            behind: false,
            asked: Asked::default(),
            floor: Floor::None,
            acknowledgements: BTreeMap::new(),
            acknowledge_set: false,
            notices: Vec::new(),
            group,
        }
    }

    /// How the transaction ended, as far as this replica knows and remembers.
    fn settlement(&self, version: Version) -> Option<Settlement> {
        self.remembered(version).or_else(|| {
            if version >= self.progress.watermark() {
                None
            } else if version >= self.progress.horizon() {
                Some(Settlement::Aborted) // What committed, it knows of.
            } else {
                Some(Settlement::Forgotten)
            }
        })
    }

    /// The same, of what is kept of every transaction for a while.
    fn remembered(&self, version: Version) -> Option<Settlement> {
        // Most messages are about transactions that are open.
        let open = self.transactions.contains_key(&version);
        if open { None } else { self.settled.get(version) }
    }

    /// Whether this replica takes part in a transaction; if not, its coordinator is told why.
    fn admits(&mut self, version: Version, prepare: bool, cx: &mut Cx) -> bool {
        let late = self.options.mutation.is(Mutation::LatePrepare) && prepare;
        if let Some(settlement) = self.remembered(version)
            && !(late && settlement == Settlement::Aborted)
        {
            cx.send(version.coordinator, Message::Settled { version, settlement });
            return false;
        }
        if version < self.truncation.stopped() {
            let clock_us = cx.clock().midpoint_us();
            self.refuse(version, Refusal::Truncated { clock_us }, cx);
            return false;
        }
        if self.is_too_far_ahead(version, cx) {
            let clock_us = cx.clock().midpoint_us();
            self.refuse(version, Refusal::Ahead { clock_us }, cx);
            return false;
        }
        true
    }

    fn is_too_far_ahead(&self, version: Version, cx: &Cx) -> bool {
        let bound_us = self.settings.clock_bound_ms.saturating_mul(1000);
        version.timestamp_us > cx.clock().latest_us.saturating_add(bound_us)
    }

    /// Whether a message comes from a sender that may send it. Messages about truncations and catching up come from
    /// replicas of the same partition, watermarks from replicas of the same machine, and messages of recoverers from any
    /// replica.
    fn may_send(&self, from: NodeId, message: &Message) -> bool {
        match message {
            Message::Truncate { .. }
            | Message::TruncationPaxosPrepare { .. }
            | Message::ProposeMerge { .. }
            | Message::ProposeMergeReply { .. }
            | Message::TruncationFinished { .. }
            | Message::CannotMerge { .. }
            | Message::GetCommitted { .. }
            | Message::Committed { .. }
            | Message::Fetch { .. }
            | Message::Fetched { .. }
            | Message::Scan { .. }
            | Message::Scanned { .. }
            | Message::Replaced { .. }
            | Message::ReplacedReply { .. } => {
                self.group.contains(from) && from.partition() == self.id.partition()
            }
            Message::Watermark { .. } => {
                self.group.contains(from) && from.member() == self.id.member()
            }
            Message::PaxosPrepare { .. }
            | Message::PaxosPrepareReply { .. }
            | Message::FinalizeReply { .. }
            | Message::Settled { .. } => self.group.contains(from),
            _ => true,
        }
    }

    /// Whether a transaction can read and write this in `partition`. A correct coordinator sends nothing else, and the
    /// code behind relies on it.
    fn is_sound(&self, version: Version, partition: u16, contents: &Contents) -> bool {
        let (participants, most) = (&contents.participants, self.group.partitions());
        participants.len() <= usize::from(most)
            && participants.contains(&partition)
            && participants.iter().enumerate().all(|(i, participant)| {
                *participant < most && !participants[..i].contains(participant)
            })
            // Nobody reads from its own future.
            && contents.reads.iter().all(|read| read.write.version < version)
    }

    /// Reports a message that no correct sender sends. The caller drops it.
    fn reject(&self, from: NodeId, what: impl core::fmt::Display, cx: &mut Cx) {
        cx.reject(|| format!("{from} has sent {what}"));
    }

    fn refuse(&self, version: Version, refusal: Refusal, cx: &mut Cx) {
        cx.send(version.coordinator, Message::Refused { version, refusal });
    }

    /// A transaction that is not decided, from its first message on.
    fn open(&mut self, version: Version, now: Timestamp) -> &mut Undecided {
        let undecided = self.transactions.get_or_default(&version);
        if !core::mem::replace(&mut undecided.watched, true) {
            undecided.heard = now;
            self.watch.add(version, now + self.settings.recovery_after());
        }
        undecided
    }

    /// Makes a record durable, and remembers how far versions in the log go.
    fn append(&mut self, record: Record, cx: &mut Cx) {
        self.log_marks.note(&record);
        cx.append(record);
    }

    /// Nothing is kept of it: it tells the coordinator what a Prepare would come to now.
    fn on_ask_admission(&mut self, version: Version, cx: &mut Cx) {
        if self.admits(version, false, cx) {
            let clock_us = cx.clock().latest_us;
            cx.send_before_durable(version.coordinator, Message::Admitted { version, clock_us });
        }
    }

    fn on_get(&mut self, version: Version, key: Key, cx: &mut Cx) {
        if self.behind || !self.admits(version, false, cx) {
            return;
        }
        let place = self.keys.loaded(&key, cx.store());
        let (_, record) = self.keys.at(place);
        let (write, value) = record.find_for(version, self.progress.watermark());
        let found = write.version;
        cx.observe(|| Observation::Read { key: key.clone(), reader: version, found });
        if self.options.re_execution && record.add_read(version, write) {
            self.open(version, cx.now()).reads.push(place);
        }
        let reply = Message::GetReply { version, key, write, value, instead_of: None };
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
        let undecided = self.open(version, cx.now());
        if tag < undecided.next_tag {
            return; // An execution that was prepared since writes something else, or nothing.
        }
        cx.observe(|| Observation::Written { key: key.clone(), version, revision: tag });
        let place = self.keys.place(&key);
        let (key, record) = self.keys.at(place);
        let written = (WriteId { version, tag }, rests_on);
        if record.add_write(key, written, &value, &mut self.notices) {
            self.transactions.get_or_default(&version).writes.push(place);
        }
        self.notify(cx);
    }

    fn on_get_at(&mut self, from: NodeId, request: u64, key: Key, at: Version, cx: &mut Cx) {
        let found = if at > self.progress.watermark() {
            Past::NotSettled
        } else if at < self.progress.readable_from() {
            Past::Forgotten
        } else {
            match self.keys.load(&key, cx.store()).committed.latest_before(at) {
                Some(Committed { id, value }) => Past::Value(*id, value.clone()),
                None => Past::Value(WriteId::INITIAL, None),
            }
        };
        cx.send_before_durable(from, Message::GetAtReply { request, found });
    }

    /// Tells the readers in `notices` what they would now find. Without re-execution nobody is told, since a reader could
    /// not use it. A replica that is behind tells nobody either, since what it holds may have been deleted.
    fn notify(&mut self, cx: &mut Cx) {
        if !self.options.re_execution || self.behind {
            self.notices.clear();
        }
        for Notice { reader, key, write, value, instead_of } in self.notices.drain(..) {
            let found = write.version;
            cx.observe(|| Observation::Read { key: key.clone(), reader, found });
            let reply = Message::GetReply { version: reader, key, write, value, instead_of };
            cx.send_before_durable(reader.coordinator, reply);
        }
    }
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
        self.waiting.keys().copied().collect()
    }

    pub(super) fn record(&self, key: &Key) -> Option<&KeyRecord> {
        self.keys.get(key)
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = Timer;
    type Record = Record;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        self.start_truncation(cx);
        self.start_watch(cx);
        if self.behind {
            self.start_catch_up(cx);
        }
        self.ask_for_the_floor(cx);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        if !self.may_send(from, &message) {
            return self.reject(from, "what it is not to send", cx);
        }
        if !self.takes_part() && self.is_for_those_who_take_part(&message) {
            return self.declines(from, &message, cx);
        }
        match message {
            Message::Get { version, key } => self.on_get(version, key, cx),
            Message::Put { version, key, tag, rests_on, value } => {
                self.on_put(version, key, (tag, rests_on), value, cx);
            }
            Message::AskAdmission { version } => self.on_ask_admission(version, cx),
            Message::Prepare { version, eid, next_tag, contents } => {
                self.on_prepare(version, eid, next_tag, contents, cx);
            }
            Message::Finalize { version, eid, view, decision } => {
                self.on_finalize(from, (version, eid, view), decision, cx);
            }
            Message::Decide { version, eid, decision, contents } => {
                self.on_decide(from, (version, eid), decision, contents, cx);
            }
            Message::Inquire { version } => self.on_inquire(from, version, cx),
            Message::PaxosPrepare { version, view } => {
                self.on_paxos_prepare(from, version, view, cx);
            }
            Message::PaxosPrepareReply { version, view, known } => {
                self.on_paxos_prepare_reply(from, version, view, known, cx);
            }
            Message::FinalizeReply { version, eid, view, decision } => {
                self.on_finalize_reply(from, version, view, (eid, decision), cx);
            }
            Message::Settled { version, settlement } => {
                self.on_settled(from, version, settlement, cx);
            }
            Message::Truncate { upto, view, snapshot } => {
                self.on_truncate(from, upto, view, snapshot, cx);
            }
            Message::TruncationPaxosPrepare { upto, view } => {
                self.on_truncation_paxos_prepare(from, upto, view, cx);
            }
            Message::ProposeMerge { upto, view, merged } => {
                self.on_propose_merge(from, upto, view, merged, cx);
            }
            Message::ProposeMergeReply { upto, view } => {
                self.on_propose_merge_reply(from, upto, view, cx);
            }
            Message::TruncationFinished { upto, merged } => {
                self.on_truncation_finished(from, upto, merged, cx);
            }
            Message::CannotMerge { upto } => self.on_cannot_merge(from, upto, cx),
            Message::Watermark { upto } => self.progress.heard_of(from.partition(), upto),
            Message::GetCommitted { since, run } => self.on_get_committed(from, since, run, cx),
            Message::Committed { since, run, versions, more, reaches, behind } => {
                self.on_committed((from, run), since, versions, (more, reaches, behind), cx);
            }
            Message::Fetch { versions } => self.on_fetch(from, versions, cx),
            Message::Fetched { mut executions, readable_from } => {
                let own = self.id.partition();
                let before = executions.len();
                executions.retain(|(version, _, contents)| self.is_sound(*version, own, contents));
                if executions.len() < before {
                    self.reject(from, "executions that can't be", cx);
                }
                self.on_fetched(from, executions, readable_from, cx);
            }
            Message::Scan { after, since, run } => self.on_scan(from, after, since, run, cx),
            Message::Scanned { after, since, run, entries, next, holds } => {
                self.on_scanned((from, run), (after, since), entries, next, holds, cx);
            }
            Message::Replaced { question } => self.on_replaced(from, question, cx),
            Message::ReplacedReply { question, reached } => {
                self.on_replaced_reply(from, question, reached, cx);
            }
            Message::GetAt { request, key, at } => self.on_get_at(from, request, key, at, cx),
            // For coordinators.
            Message::GetReply { .. }
            | Message::Admitted { .. }
            | Message::PrepareReply { .. }
            | Message::Acknowledge { .. }
            | Message::Refused { .. }
            | Message::GetAtReply { .. } => {}
        }
    }

    /// Answers only reads of the past and questions about outcomes. Other reads would have to register here, and the state
    /// they read would soon be old, so transactions use other replicas.
    fn on_message_read_only(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) -> bool {
        match message {
            Message::GetAt { request, key, at } => self.on_get_at(from, request, key, at, cx),
            // A decision is durable before it is told, if not here.
            Message::Inquire { version } => {
                let Some(settlement) = self.settled.get(version) else { return false };
                cx.send_before_durable(from, Message::Settled { version, settlement });
            }
            _ => return false,
        }
        true
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Acknowledge => self.send_acknowledgements(cx),
            Timer::Watch => self.look_after(cx),
            Timer::Recovery(version) => self.go_on_recovering(version, cx),
            Timer::Truncation => self.truncate(cx),
            Timer::Settle => self.settle(cx),
            Timer::CatchUp => self.go_on_catching_up(cx),
            Timer::Floor => self.ask_for_the_floor(cx),
        }
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("undecided_transactions", self.transactions.len() as u64);
        each("remembered_transactions", self.settled.len() as u64);
        each("recoveries_in_progress", self.recoveries.len() as u64);
        each("resident_keys", self.keys.resident() as u64);
        each("truncated_below_us", self.progress.watermark().timestamp_us);
        // It lies in the past unless a clock was ahead.
        each("stopped_below_us", self.truncation.stopped().timestamp_us);
        let catching_up = self.catch_up.is_some() || self.behind || !self.takes_part();
        each("catching_up", u64::from(catching_up));
    }
}

impl Recover for Replica {
    fn replay(&mut self, record: Record, store: &mut dyn Store) {
        self.log_marks.note(&record);
        self.behind = true;
        match record {
            Record::Voted { version, eid, next_tag, vote, contents } => {
                self.replay_vote((version, eid, next_tag), vote, contents, store);
            }
            // The vote may have been trimmed. Then it is below the horizon, like this record, and its effects are in
            // the store.
            Record::Confirmed { version, eid, vote } => {
                if self.voted_on(version, eid).is_some() {
                    self.settle_vote(version, eid, vote, None);
                }
            }
            Record::Waits { version, eid, reads } => self.replay_waits(version, eid, reads),
            Record::Promised { version, view } => {
                self.open(version, Timestamp::default()).view = view;
            }
            Record::Accepted { version, accepted } => self.accept(version, accepted),
            Record::Committed { version, eid, contents } => {
                // Transactions that waited for it have a later record in the log, or are looked at again at the start.
                match contents.or_else(|| self.voted_on(version, eid)) {
                    Some(contents) => self.carry_out(version, End::Committed(eid, &contents)),
                    None => self.carry_out(version, End::Unknown),
                };
            }
            Record::Aborted { version } => drop(self.carry_out(version, End::Aborted)),
            Record::Stopped { upto } => self.truncation.stop(upto),
            Record::Merging { upto, view, accepted } => {
                self.truncation.promise(upto, view, accepted);
            }
            Record::Truncated { upto, horizon, digest, copied, readable_from } => {
                self.replay_truncated((upto, horizon, readable_from), digest, copied);
            }
            Record::Floor { floor } => self.floor = Floor::At(floor),
            Record::Replaces => self.floor = Floor::unknown(),
            Record::Forgotten { horizon } => self.rely_on_the_store(Version::at(horizon)),
            Record::Copying { upto, digest } => drop(self.progress.begin_copy(upto, digest)),
        }
        assert!(
            self.notices.is_empty(),
            "no uncommitted read survives a crash, so no reader can be told anything"
        );
    }

    fn stored(value: &Value) -> Vec<u8> {
        encode_versions(&[Committed { id: WriteId::LOADED, value: Some(value.clone()) }])
    }

    fn standing(&self) -> Standing {
        let keys = self.copied;
        match (self.takes_part(), self.behind) {
            (false, _) => Standing::Rejoining { keys },
            (true, true) => Standing::CatchingUp { keys },
            (true, false) => Standing::Full,
        }
    }

    fn rejoin(&mut self, cx: &mut Cx<'_>) {
        if self.group.size() == 1 {
            return; // No other replica has counted its votes, and none has the data.
        }
        self.behind = true;
        self.floor = Floor::unknown();
        self.append(Record::Replaces, cx);
    }
}

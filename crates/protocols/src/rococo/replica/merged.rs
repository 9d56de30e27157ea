//! The rows that a leader holds for merged pieces ([`super::super::merged`]), and the requests that wait for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serried_model::{NodeId, Version};
use serried_procedures::{KnownRow, RowUse};

use super::super::Mutation;
use super::super::merged::{HeldPieces, Hold, HoldEnd, HoldEntry, HoldReply, has_some, is_same};
use super::super::message::{
    CallOf, Entry, NotStarted, Occurrence, Reply, Request, Start, StartedPiece,
};
use super::super::registered::Registered;
use super::Cx;
use super::leader::{Common, Leader};
use super::live::Live;
use super::rows::{Rows, Tried};

/// How many requests wait for rows that are held. Others are dropped, and their senders repeat them.
const WAITING_AT_MOST: usize = 4096;

/// A merged piece of a transaction.
type Name = (Version, u16);

/// The rows that are held at a leader.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// By merged piece that is not started, its last attempt.
    held: BTreeMap<Name, Held>,
    /// The requests that wait for some of the rows, the oldest first.
    waiting: VecDeque<(NodeId, Request)>,
    /// Whether rows were released since these have been tried.
    has_released: bool,
}

/// The last attempt of a merged piece.
#[derive(Debug, Default)]
struct Held {
    attempt: u64,
    /// The pieces; none if the attempt has failed.
    pieces: Vec<Occurrence>,
    /// The rows that they use.
    uses: Vec<(KnownRow, RowUse)>,
    /// The rows that an older transaction has held, so that an attempt failed here. Several nodes may coordinate the
    /// call, and those that have not got as far do not know that these are wanted.
    wanted: Vec<(KnownRow, RowUse)>,
}

impl Holds {
    /// How many merged pieces hold rows.
    pub(super) fn len(&self) -> usize {
        self.held.values().filter(|held| !held.pieces.is_empty()).count()
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Goes on with what a former leader has held for a transaction.
    pub(super) fn inherit(
        &mut self,
        txn: Version,
        call: &CallOf,
        holds: Vec<HeldPieces>,
        set: &Registered,
    ) {
        for HeldPieces { group, attempt, pieces } in holds {
            let uses = uses(set, call, &pieces);
            self.held.insert((txn, group), Held { attempt, pieces, uses, ..Held::default() });
        }
    }

    /// The transactions that hold rows for which these uses have to wait. `own` is the merged piece whose uses they are.
    fn holders(
        &self,
        own: Option<Name>,
        uses: &[(KnownRow, RowUse)],
    ) -> impl Iterator<Item = Version> {
        let others = self.held.iter().filter(move |(name, _)| own != Some(**name));
        let conflict = |held: &Held| {
            held.uses.iter().any(|held| uses.iter().any(|wanted| conflicts(held, wanted)))
        };
        others.filter(move |(_, held)| conflict(held)).map(|((txn, _), _)| *txn)
    }

    fn wait(&mut self, from: NodeId, request: Request) {
        let waits = self.waiting.iter().any(|(of, other)| *of == from && *other == request);
        if !waits && self.waiting.len() < WAITING_AT_MOST {
            self.waiting.push_back((from, request));
        }
    }

    /// Like [`Self::wait`], but the same request waits only once: if it comes again, it returns false.
    fn waits_once(&mut self, from: NodeId, request: Request) -> bool {
        let count = self.waiting.len();
        self.waiting.retain(|(of, other)| *of != from || *other != request);
        let waits = self.waiting.len() == count && count < WAITING_AT_MOST;
        if waits {
            self.waiting.push_back((from, request));
        }
        waits
    }

    /// A merged piece of which some pieces are named: which one, its attempt and its pieces. They are held no more.
    fn take(&mut self, txn: Version, pieces: &[Occurrence]) -> Option<(u16, u64, Vec<Occurrence>)> {
        let mut all = self.held.range((txn, 0)..=(txn, u16::MAX));
        let name = *all.find(|(_, held)| has_some(&held.pieces, pieces))?.0;
        self.has_released = true;
        let Held { attempt, pieces, .. } = self.held.remove(&name)?;
        Some((name.1, attempt, pieces))
    }

    /// A transaction was executed, so that none of its attempts can succeed.
    pub(super) fn end(&mut self, txn: Version) {
        let names: Vec<Name> =
            self.held.range((txn, 0)..=(txn, u16::MAX)).map(|(name, _)| *name).collect();
        for name in names {
            self.held.remove(&name);
            self.has_released = true;
        }
    }
}

impl Leader {
    /// Tries again what has waited for rows that are held no more. Returns whether there was anything to try.
    pub(super) fn resume_held(&mut self, common: &mut Common, cx: &mut Cx<'_>) -> bool {
        if !core::mem::take(&mut self.holds.has_released) {
            return false;
        }
        for (from, request) in core::mem::take(&mut self.holds.waiting) {
            self.on_request(from, request, common, cx);
        }
        true
    }

    /// Starts the merged piece to which some of these pieces belong, if it is held.
    pub(super) fn start_held(
        &mut self,
        txn: Version,
        call: &Arc<CallOf>,
        pieces: &[Occurrence],
        set: &Registered,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        let Some((group, attempt, held)) = self.holds.take(txn, pieces) else { return };
        self.start_pieces((txn, call), held, set, common, cx);
        if let Some(live) = self.live.get_mut(&txn) {
            live.attempts.push((group, attempt));
        }
    }

    /// Whether one of these pieces uses a row that is held. Then the request waits.
    pub(super) fn waits_for_held(
        &mut self,
        from: NodeId,
        start: &Start,
        set: &Registered,
        common: &Common,
    ) -> bool {
        if self.holds.held.is_empty() || common.mutation.is(Mutation::HoldsNothing) {
            return false;
        }
        let live = self.live.get(&start.txn);
        let is_new = |piece: &&Occurrence| live.is_none_or(|live| !live.has(piece));
        let new: Vec<Occurrence> = start.pieces.iter().filter(is_new).cloned().collect();
        let uses = uses(set, &start.call, &new);
        let waits = self.holds.holders(None, &uses).next().is_some();
        if waits {
            self.holds.wait(from, Request::Start(start.clone()));
        }
        waits
    }

    pub(super) fn on_hold(
        &mut self,
        from: NodeId,
        hold: Hold,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        let Some(set) = self.admit_hold(from, &hold, common, cx) else { return };
        let Hold { start: Start { txn, call, pieces, .. }, group, attempt } = &hold;
        let (name, attempt) = ((*txn, *group), *attempt);
        let is_started = |live: &Live| live.has_some(*group, pieces);
        if self.live.get(txn).is_some_and(is_started) || !self.is_open(*txn, common) {
            return self.answer_start(from, *txn, common, cx);
        }
        let none = Held::default();
        let last = self.holds.held.get(&name).unwrap_or(&none);
        if attempt < last.attempt || (attempt == last.attempt && last.pieces.is_empty()) {
            let failed = if last.pieces.is_empty() { last.attempt } else { last.attempt - 1 };
            return self.answer_hold(from, name, failed, HoldEnd::NotHeld);
        }
        let has = |piece: &Occurrence| last.pieces.iter().any(|held| is_same(held, piece));
        let is_held = attempt == last.attempt && pieces.iter().all(has);
        if !is_held {
            let uses = uses(&set, call, pieces);
            let holds_nothing = common.mutation.is(Mutation::HoldsNothing);
            let oldest = self.holds.holders(Some(name), &uses).min();
            if let Some(oldest) = oldest.filter(|_| !holds_nothing) {
                if *txn <= oldest {
                    return self.holds.wait(from, Request::Hold(hold));
                }
                self.record_attempt(
                    name,
                    call,
                    Held { attempt, wanted: uses, ..Held::default() },
                    cx,
                );
                return self.answer_hold(from, name, attempt, HoldEnd::NotHeld);
            }
            let held = Held { attempt, pieces: pieces.clone(), uses, ..Held::default() };
            self.record_attempt(name, call, held, cx);
        }
        let outcomes = self.try_held(name, call, &set, common, cx);
        self.answer_hold(from, name, attempt, HoldEnd::Held(outcomes));
    }

    pub(super) fn on_release(
        &mut self,
        from: NodeId,
        hold: Hold,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        let Some(set) = self.admit_hold(from, &hold, common, cx) else { return };
        let Hold { start: Start { txn, call, pieces, .. }, group, attempt } = &hold;
        let (name, attempt) = ((*txn, *group), *attempt);
        let is_started = |live: &Live| live.has_some(*group, pieces);
        if self.live.get(txn).is_some_and(is_started) || !self.is_open(*txn, common) {
            return self.answer_hold(from, name, attempt, HoldEnd::Released);
        }
        let last = self.holds.held.get(&name);
        let is_new = last.is_none_or(|last| {
            attempt > last.attempt || (attempt == last.attempt && !last.pieces.is_empty())
        });
        if is_new {
            self.fail_attempt(name, attempt, call, cx);
        }
        // The next attempt would fail while an older transaction holds these rows. But if the sender asks again, it has
        // waited for a while: perhaps another coordinator has begun an attempt, and the older transaction waits for it.
        let mut wanted = uses(&set, call, pieces);
        wanted.extend(self.holds.held.get(&name).into_iter().flat_map(|held| held.wanted.clone()));
        let is_older = self.holds.holders(Some(name), &wanted).any(|holder| holder < *txn);
        if is_older
            && !common.mutation.is(Mutation::HoldsNothing)
            && self.holds.waits_once(from, Request::Release(hold))
        {
            return;
        }
        self.answer_hold(from, name, attempt, HoldEnd::Released);
    }

    /// The set of the call, if the request is in order. Otherwise answers it, if an answer is due.
    fn admit_hold(
        &mut self,
        from: NodeId,
        Hold { start, group, .. }: &Hold,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) -> Option<Arc<Registered>> {
        let txn = start.txn;
        if let Err(why) = self.admit(start, common) {
            self.proposals.confirm(from, Reply::NotStarted { txn, why });
            return None;
        }
        let set = common.table.set().filter(|set| set.version() == start.call.set).cloned()?;
        let is_same = self.live.get(&txn).is_none_or(|live| live.call == start.call);
        let merged = set.merged(start.call.procedure).get(usize::from(*group));
        let is_right = is_same
            && set.accepts(start.call.procedure, &start.pieces, false)
            && merged.is_some_and(|merged| {
                start.pieces.iter().all(|piece| merged.pieces.contains(&piece.piece))
            });
        if !is_right {
            cx.reject(|| format!("{from} wants to hold rows for pieces that {txn} does not have"));
            return None;
        }
        Some(set)
    }

    /// Whether a transaction has not been executed here.
    fn is_open(&self, txn: Version, common: &Common) -> bool {
        self.live.contains_key(&txn) || !common.table.has_started(txn)
    }

    fn answer_hold(&mut self, to: NodeId, (txn, group): Name, attempt: u64, end: HoldEnd) {
        self.proposals.confirm(to, Reply::Hold(HoldReply { txn, group, attempt, end }));
    }

    /// Another partition has answered a call that this one coordinates: the attempt has failed there.
    pub(super) fn on_failed_elsewhere(&mut self, reply: &HoldReply, cx: &mut Cx<'_>) {
        let name = (reply.txn, reply.group);
        let holds = self
            .holds
            .held
            .get(&name)
            .is_some_and(|held| !held.pieces.is_empty() && held.attempt <= reply.attempt);
        let call = self.live.get(&reply.txn).map(|live| live.call.clone());
        if let Some(call) = call.filter(|_| holds && reply.end == HoldEnd::NotHeld) {
            self.fail_attempt(name, reply.attempt, &call, cx);
        }
    }

    /// Holds nothing any more for an attempt that has failed.
    fn fail_attempt(&mut self, name: Name, attempt: u64, call: &Arc<CallOf>, cx: &mut Cx<'_>) {
        let wanted = self.holds.held.get(&name).map(|held| held.wanted.clone()).unwrap_or_default();
        self.record_attempt(name, call, Held { attempt, wanted, ..Held::default() }, cx);
    }

    /// Logs an attempt that holds rows or has failed.
    fn record_attempt(
        &mut self,
        (txn, group): Name,
        call: &Arc<CallOf>,
        held: Held,
        cx: &mut Cx<'_>,
    ) {
        let now = cx.now();
        cx.charge(1);
        let live = self.live.entry(txn).or_insert_with(|| Live::new(call.clone(), Vec::new(), now));
        live.heard = now;
        let (call, attempt, pieces) = (call.clone(), held.attempt, held.pieces.clone());
        let entry = HoldEntry { txn, call, group, attempt, pieces };
        let last = self.holds.held.insert((txn, group), held);
        self.holds.has_released |= last.is_some_and(|last| !last.pieces.is_empty());
        self.proposals.put(Entry::Hold(Arc::new(entry)), Vec::new());
    }

    /// Executes the pieces of a merged piece without an effect.
    fn try_held(
        &mut self,
        name: Name,
        call: &CallOf,
        set: &Registered,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) -> Vec<StartedPiece> {
        let Some(held) = self.holds.held.get(&name) else { return Vec::new() };
        cx.charge(held.pieces.len());
        let entry = self.proposals.next();
        let rows = Rows::new(&mut common.table, &mut self.unapplied, cx.store(), entry);
        let mut rows = Tried::new(rows);
        let outcome = |Occurrence { piece, number, arguments }: &Occurrence| {
            let declared = set.piece(call.procedure, *piece).expect("it was checked");
            let outcome = Some(declared.execute(set.tables(), arguments, &mut rows));
            StartedPiece { piece: *piece, number: *number, outcome }
        };
        held.pieces.iter().map(outcome).collect()
    }
}

impl Leader {
    /// Why a transaction of which nothing is known here is not started, if it is not.
    pub(super) fn admit(
        &self,
        Start { txn, call, insist, .. }: &Start,
        common: &Common,
    ) -> Result<(), NotStarted> {
        if self.live.contains_key(txn) || common.table.has_started(*txn) {
            return Ok(());
        }
        let window = common.table.window().and(self.horizon.proposed());
        let from_us = window.from_us;
        if txn.timestamp_us < window.forget_us {
            // Whether a read-only call was started does not matter to its client.
            let late = NotStarted::Late { from_us };
            return Err(if call.is_read() && !insist { late } else { NotStarted::Forgotten });
        }
        let version = common.table.set().map_or(0, |set| set.version());
        if call.set < version || (self.is_draining(common) && !insist) {
            return Err(NotStarted::OtherSet { version });
        }
        if txn.timestamp_us < from_us && !insist {
            return Err(NotStarted::Late { from_us });
        }
        Ok(())
    }
}

fn uses(set: &Registered, call: &CallOf, pieces: &[Occurrence]) -> Vec<(KnownRow, RowUse)> {
    pieces.iter().flat_map(|piece| set.rows(call.procedure, piece)).collect()
}

/// Whether two uses may be of one row, and conflict.
pub(super) fn conflicts(
    (one, used): &(KnownRow, RowUse),
    (other, uses): &(KnownRow, RowUse),
) -> bool {
    let begins = |row: &KnownRow, with: &KnownRow| {
        !with.is_whole && row.key.as_bytes().starts_with(with.key.as_bytes())
    };
    (one.key == other.key || begins(one, other) || begins(other, one)) && used.conflicts(uses)
}

//! An attempt to execute a call: its pieces go to the shards in shots, and then its parts are prepared.
//!
//! Pieces for one shard that can be started together are one shot. A shard has one shot of a call at a time, so it executes the
//! pieces in the order in which they were started.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::{Group, Timestamp};
use serried_model::Version;
use serried_procedures::{Call, Datum, Procedure, Refused, placement_key};

use super::super::super::calls::{CallOf, InUse, Occurrence, Ran};
use super::super::super::control::Rounds;
use super::super::super::message::{self, Executed, Request, Shot};
use super::super::super::stamp::{Stamp, Validity};
use super::super::super::verdict::{Verdict, verdict};

/// An attempt.
#[derive(Debug)]
pub(super) struct Run {
    /// Its version, once it has one.
    pub(super) version: Option<Version>,
    /// The version of the call's first attempt, if this is another one.
    age: Option<Version>,
    pub(super) began: Timestamp,
    of: Arc<CallOf>,
    set: Arc<InUse>,
    call: Call,
    phase: Phase,
    parts: BTreeMap<u16, Part>,
    refused: Option<Refused>,
}

/// How far an attempt has got.
#[derive(Debug)]
enum Phase {
    /// Its pieces are executed.
    Running,
    /// Its last shots are under way.
    Preparing,
    /// Its parts are being moved to this moment. Those of these shards hold at it already.
    Moving(Stamp, BTreeSet<u16>),
}

/// A shard's part in an attempt.
#[derive(Debug, Default)]
struct Part {
    /// How many shots it was sent.
    shots: u16,
    /// The pieces that wait until the shot under way is answered.
    queued: Vec<Occurrence>,
    asked: Option<Asked>,
    validity: Option<Validity>,
}

/// A shot under way.
#[derive(Debug)]
struct Asked {
    run: message::Run,
    /// The client's clock when it was sent, in microseconds.
    sent_us: u64,
}

/// What a shard's answer leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing yet.
    Wait,
    /// Further shots may be sent.
    Shoot,
    /// All parts hold at this moment.
    Holds(Stamp),
    /// The parts have to be moved to this moment.
    Move(Stamp),
}

/// How an attempt ends whose parts hold at one moment.
#[derive(Debug)]
pub(super) enum End {
    /// It commits with these results.
    Done(Vec<Datum>),
    /// It must not commit.
    Refused(Refused),
    /// The results of some pieces are unknown. No correct shard leaves any out.
    Unclear,
}

impl Run {
    pub(super) fn new(
        of: Arc<CallOf>,
        set: Arc<InUse>,
        call: Call,
        age: Option<Version>,
        began: Timestamp,
    ) -> Run {
        Run {
            version: None,
            age,
            began,
            of,
            set,
            call,
            phase: Phase::Running,
            parts: BTreeMap::new(),
            refused: None,
        }
    }

    pub(super) fn set(&self) -> &Arc<InUse> {
        &self.set
    }

    /// The place of the procedure in its set.
    pub(super) fn procedure(&self) -> u16 {
        self.of.procedure
    }

    /// The shards that have something of it, or will.
    pub(super) fn shards(&self) -> impl Iterator<Item = u16> {
        self.parts.keys().copied()
    }

    /// Whether a shard has something of it.
    pub(super) fn concerns(&self, shard: u16) -> bool {
        self.parts.contains_key(&shard)
    }

    /// Whether shards may commit it without its client.
    pub(super) fn is_preparing(&self) -> bool {
        !matches!(self.phase, Phase::Running)
    }

    /// Whether a piece has refused it.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Starts all pieces that can be started. They wait to be sent.
    pub(super) fn start(&mut self, group: &Group) {
        if self.is_refused() || self.is_preparing() {
            return;
        }
        let set = self.set.clone();
        let procedure = procedure(&set, &self.of);
        match self.call.start(procedure) {
            Ok(started) => {
                for start in started {
                    let piece = &procedure.pieces[usize::from(start.piece.0)];
                    let leading = piece.placement(&set.set.tables, &start.arguments);
                    let shard = group.partition_of(&placement_key(&leading));
                    self.parts.entry(shard).or_default().queued.push(Occurrence {
                        piece: start.piece,
                        number: start.occurrence,
                        arguments: start.arguments,
                    });
                }
            }
            Err(refused) => self.refused = Some(refused),
        }
    }

    /// The shots that can be sent now. They are the last ones if nothing follows them. If `rounds` combines both, the last
    /// shots have pieces; otherwise all pieces have been executed by then.
    pub(super) fn shoot(&mut self, rounds: Rounds, sent_us: u64) -> Vec<(u16, Request)> {
        let (Some(txn), Phase::Running) = (self.version, &self.phase) else { return Vec::new() };
        if self.is_refused() {
            self.parts.values_mut().for_each(|part| part.queued.clear());
        }
        let is_idle = self.parts.values().all(|part| part.asked.is_none());
        let is_complete = self.is_refused() || self.call.has_started_all();
        let is_executed = self.parts.values().all(|part| part.queued.is_empty());
        let is_last = is_idle && is_complete && (rounds == Rounds::Combined || is_executed);
        let participants: Option<Arc<[u16]>> = is_last.then(|| self.shards().collect());
        if is_last {
            self.phase = Phase::Preparing;
        }
        let mut requests = Vec::new();
        for (shard, part) in &mut self.parts {
            if part.asked.is_some() || (part.queued.is_empty() && !is_last) {
                continue;
            }
            part.shots += 1;
            let shot = Shot {
                txn,
                age: self.age.filter(|age| *age < txn),
                number: part.shots,
                reads: Vec::new(),
                for_update: 0,
                writes: Vec::new(),
                modifies: Vec::new(),
                participants: participants.clone(),
            };
            let run = message::Run {
                shot,
                call: self.of.clone(),
                pieces: core::mem::take(&mut part.queued),
                is_refused: is_last && self.refused.is_some(),
            };
            part.asked = Some(Asked { run: run.clone(), sent_us });
            requests.push((*shard, Request::Run(run)));
        }
        requests
    }

    /// The requests to shards that were not answered.
    pub(super) fn unanswered(&self) -> Vec<(u16, Request)> {
        let mut requests = Vec::new();
        for (shard, part) in &self.parts {
            if let Some(asked) = &part.asked {
                requests.push((*shard, Request::Run(asked.run.clone())));
            }
            if let (Phase::Moving(to, moved), Some(txn)) = (&self.phase, self.version)
                && !moved.contains(shard)
            {
                requests.push((*shard, Request::Move { txn, to: *to }));
            }
        }
        requests
    }

    /// A shard has executed a shot. Returns what follows, and when the shot was sent by the client's clock. `None` if it is
    /// not an answer to the shot under way.
    pub(super) fn on_ran(
        &mut self,
        shard: u16,
        executed: &Executed,
        ran: Ran,
    ) -> Option<(Next, u64)> {
        let set = self.set.clone();
        let procedure = procedure(&set, &self.of);
        let part = self.parts.get_mut(&shard)?;
        let asked = part.asked.as_ref()?;
        let is_last = asked.run.shot.participants.is_some();
        if asked.run.shot.number != executed.number || executed.validity.is_some() != is_last {
            return None; // Late, or no correct shard answers so.
        }
        for piece in ran.pieces {
            let at = (piece.piece, piece.number);
            if self.call.executed(procedure, at, piece.outputs).is_err() {
                return None; // No correct shard returns this.
            }
        }
        let sent_us = asked.sent_us;
        part.asked = None;
        part.validity = executed.validity;
        if self.refused.is_none() {
            self.refused = ran.refused;
        }
        Some((self.next(), sent_us))
    }

    fn next(&mut self) -> Next {
        match &self.phase {
            Phase::Running => Next::Shoot,
            Phase::Moving(..) => Next::Wait,
            Phase::Preparing => self.check(),
        }
    }

    /// The safeguard (003 Algorithm 5.1, "SafeguardCheck").
    fn check(&mut self) -> Next {
        let parts: Option<Vec<Validity>> = self.parts.values().map(|part| part.validity).collect();
        let (Some(parts), Some(version)) = (parts, self.version) else { return Next::Wait };
        match verdict(version, parts.iter().copied()) {
            Verdict::Commit(at) => Next::Holds(at),
            Verdict::Move(to) => {
                let there = self.parts.keys().zip(&parts).filter(|(_, part)| part.holds_at(to));
                self.phase = Phase::Moving(to, there.map(|(shard, _)| *shard).collect());
                Next::Move(to)
            }
        }
    }

    /// A shard's part holds at the requested moment.
    pub(super) fn on_moved(&mut self, shard: u16) -> Next {
        let Phase::Moving(to, moved) = &mut self.phase else { return Next::Wait };
        if self.parts.contains_key(&shard) {
            moved.insert(shard);
        }
        match moved.len() == self.parts.len() {
            true => Next::Holds(*to),
            false => Next::Wait,
        }
    }

    /// The end, once all parts hold.
    pub(super) fn end(&self) -> End {
        if let Some(refused) = &self.refused {
            return End::Refused(refused.clone());
        }
        if !self.call.has_executed_all() {
            return End::Unclear;
        }
        match self.call.results(procedure(&self.set, &self.of)) {
            Ok(results) => End::Done(results),
            Err(refused) => End::Refused(refused),
        }
    }
}

fn procedure<'s>(set: &'s InUse, of: &CallOf) -> &'s Procedure {
    set.procedure(of.procedure).expect("the call was checked")
}

//! The coordination of a merged piece ([`super::super::merged`]): attempts to hold the rows of all of its pieces.

use std::collections::{BTreeMap, BTreeSet};

use serried_procedures::{Call, Datum, PieceId, Procedure, Refused, Start as Begun};

use super::super::merged::MergedPiece;
use super::super::message::{Occurrence, StartedPiece};

/// The outcomes of pieces that are held, by piece and occurrence.
type Outcomes = BTreeMap<(PieceId, u32), Result<Vec<Datum>, Refused>>;

/// An attempt to execute a merged piece.
#[derive(Debug)]
pub(super) struct Holding {
    /// The merged piece: its place among those of its procedure.
    pub(super) group: u16,
    pub(super) attempt: u64,
    phase: Phase,
    /// The call before the merged piece, and the pieces with which this begins.
    before: Call,
    first: Vec<(u16, Occurrence)>,
    /// The call with what is held.
    call: Call,
    /// Pieces outside the merged piece that its pieces have made possible.
    later: Vec<Begun>,
    /// By partition, all pieces of this attempt, in the order of their rounds.
    pieces: BTreeMap<u16, Vec<Occurrence>>,
    /// The partitions that have not answered.
    open: BTreeSet<u16>,
    /// The outcomes of the round.
    outcomes: Outcomes,
}

/// What partitions are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// To hold rows.
    Holds,
    /// To release them, as the attempt has failed.
    Releases,
}

/// What an attempt asks of a partition.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) at: u16,
    pub(super) releases: bool,
    pub(super) pieces: Vec<Occurrence>,
}

/// What follows from an answer.
#[derive(Debug)]
pub(super) enum Next {
    /// These partitions are to be asked; mostly none.
    Ask(Vec<Ask>),
    /// All rows are held, so the pieces can be started.
    Held(Box<HeldAll>),
}

/// A merged piece whose rows are held.
#[derive(Debug)]
pub(super) struct HeldAll {
    /// The call, as it is once the pieces are started.
    pub(super) call: Call,
    /// By partition, the pieces.
    pub(super) pieces: BTreeMap<u16, Vec<Occurrence>>,
    /// The pieces that can be started after these.
    pub(super) later: Vec<Begun>,
    /// Why the call is refused, if it is.
    pub(super) refused: Option<Refused>,
}

impl Holding {
    /// The first attempt of a merged piece. `call` has started these pieces of it.
    pub(super) fn new(group: u16, call: Call, first: Vec<(u16, Occurrence)>) -> Holding {
        let mut holding = Holding {
            group,
            attempt: 0,
            phase: Phase::Holds,
            before: call.clone(),
            first,
            call,
            later: Vec::new(),
            pieces: BTreeMap::new(),
            open: BTreeSet::new(),
            outcomes: BTreeMap::new(),
        };
        holding.attempt_again();
        holding
    }

    fn attempt_again(&mut self) {
        self.attempt += 1;
        self.phase = Phase::Holds;
        self.call = self.before.clone();
        self.later.clear();
        self.pieces.clear();
        self.outcomes.clear();
        for (at, piece) in &self.first {
            self.pieces.entry(*at).or_default().push(piece.clone());
        }
        self.open = self.pieces.keys().copied().collect();
    }

    /// What was not answered.
    pub(super) fn unanswered(&self) -> Vec<Ask> {
        let releases = self.phase == Phase::Releases;
        let ask = |at: &u16| Ask { at: *at, releases, pieces: self.pieces[at].clone() };
        self.open.iter().map(ask).collect()
    }

    /// A partition holds the rows of these pieces for an attempt, or has started them in it.
    pub(super) fn on_held(
        &mut self,
        at: u16,
        attempt: u64,
        found: Vec<StartedPiece>,
        (procedure, merged): (&Procedure, &MergedPiece),
        place: impl Fn(Begun) -> (u16, Occurrence),
    ) -> Next {
        let is_due = self.phase == Phase::Holds && self.open.contains(&at);
        if !is_due || attempt != self.attempt {
            return Next::Ask(Vec::new());
        }
        let found: Outcomes = found
            .into_iter()
            .filter_map(|piece| Some(((piece.piece, piece.number), piece.outcome?)))
            .collect();
        let asked = &self.pieces[&at];
        if !asked.iter().all(|piece| found.contains_key(&(piece.piece, piece.number))) {
            return Next::Ask(Vec::new());
        }
        let is_asked = |(piece, number): &(PieceId, u32)| {
            asked.iter().any(|asked| (asked.piece, asked.number) == (*piece, *number))
        };
        self.outcomes.extend(found.into_iter().filter(|(name, _)| is_asked(name)));
        self.open.remove(&at);
        match self.open.is_empty() {
            true => self.end_round(procedure, merged, place),
            false => Next::Ask(Vec::new()),
        }
    }

    /// All pieces of the round are held.
    fn end_round(
        &mut self,
        procedure: &Procedure,
        merged: &MergedPiece,
        place: impl Fn(Begun) -> (u16, Occurrence),
    ) -> Next {
        let mut refused = None;
        for (name, outcome) in core::mem::take(&mut self.outcomes) {
            match outcome {
                // Pieces of former rounds are known. No correct server sends outputs that do not fit.
                Ok(outputs) => drop(self.call.executed(procedure, name, outputs)),
                Err(why) => drop(refused.get_or_insert(why)),
            }
        }
        let mut round = Vec::new();
        if refused.is_none() {
            match self.call.start(procedure) {
                Ok(begun) => {
                    let (own, others): (Vec<Begun>, Vec<Begun>) =
                        begun.into_iter().partition(|begun| merged.pieces.contains(&begun.piece));
                    round = own;
                    self.later.extend(others);
                }
                Err(why) => refused = Some(why),
            }
        }
        if round.is_empty() {
            let call = self.call.clone();
            let pieces = core::mem::take(&mut self.pieces);
            let later = core::mem::take(&mut self.later);
            return Next::Held(Box::new(HeldAll { call, pieces, later, refused }));
        }
        for begun in round {
            let (at, piece) = place(begun);
            self.pieces.entry(at).or_default().push(piece);
            self.open.insert(at);
        }
        Next::Ask(self.unanswered())
    }

    /// An attempt has failed.
    pub(super) fn on_failed(&mut self, attempt: u64) -> Vec<Ask> {
        let is_known = self.phase == Phase::Releases && attempt == self.attempt;
        if attempt < self.attempt || is_known {
            return Vec::new();
        }
        self.attempt = attempt;
        self.phase = Phase::Releases;
        self.open = self.pieces.keys().copied().collect();
        self.unanswered()
    }

    /// A partition holds nothing in an attempt that has failed.
    pub(super) fn on_released(&mut self, at: u16, attempt: u64) -> Vec<Ask> {
        if self.phase != Phase::Releases || attempt != self.attempt || !self.open.remove(&at) {
            return Vec::new();
        }
        if !self.open.is_empty() {
            return Vec::new();
        }
        self.attempt_again();
        self.unanswered()
    }

    /// Whether a partition is asked for a piece.
    pub(super) fn asks(&self, at: u16) -> bool {
        self.pieces.contains_key(&at)
    }
}

//! The execution of a call at one server.
//!
//! The server knows the whole call. It executes the pieces that are placed at it, in the order in which outputs that they
//! need become known. Other servers report outputs of theirs.

use std::collections::{BTreeMap, BTreeSet};

use serried_actor::Group;
use serried_procedures::{Call, PieceId, Refused, RowStore};

use super::in_use::InUse;
use super::message::{CallOf, Outcome, PieceResult, Results};

/// An occurrence of a piece.
type Place = (PieceId, u32);

/// How far a call has come at a server.
#[derive(Debug, Default)]
pub(super) struct Execution {
    /// None until its turn has come.
    call: Option<Call>,
    /// What pieces here have returned.
    own: BTreeMap<Place, Outcome>,
    /// What pieces elsewhere have returned, as far as others have reported.
    elsewhere: BTreeMap<Place, Outcome>,
    /// The pieces elsewhere that could be executed by now, and whose outcome is not known.
    waits: BTreeSet<Place>,
    refused: Option<Refused>,
}

impl Execution {
    /// Goes on with a call of which some pieces have been executed before a restart.
    pub(super) fn resumed(results: Results) -> Execution {
        let own = results.pieces.into_iter();
        let own = own.map(|result| ((result.piece, result.number), result.outcome)).collect();
        Execution { own, refused: results.refused, ..Execution::default() }
    }

    /// What pieces here have returned.
    pub(super) fn results(&self) -> Results {
        let pieces = self.own.iter().map(|((piece, number), outcome)| PieceResult {
            piece: *piece,
            number: *number,
            outcome: outcome.clone(),
        });
        Results { pieces: pieces.collect(), refused: self.refused.clone() }
    }

    /// Why it is refused, if it is.
    pub(super) fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    /// Another server has reported these results. They were checked to be results of this call.
    pub(super) fn receive(&mut self, results: Results) {
        for PieceResult { piece, number, outcome } in results.pieces {
            self.elsewhere.entry((piece, number)).or_insert(outcome);
        }
        if self.refused.is_none() {
            self.refused = results.refused;
        }
    }

    /// Executes all pieces that can be executed here. Returns what they have returned, and whether none are left.
    pub(super) fn proceed(
        &mut self,
        of: &CallOf,
        set: &InUse,
        (own, group): (u16, &Group),
        rows: &mut dyn RowStore,
    ) -> (Vec<PieceResult>, bool) {
        let mut new = Vec::new();
        let Some(procedure) = set.procedure(of.procedure) else { return (new, true) };
        let mut call = match self.call.take().or_else(|| set.call(of)) {
            Some(call) => call,
            None => return (new, true),
        };
        let mut has_moved = true;
        while has_moved && self.refused.is_none() {
            has_moved = self.take_reported(&mut call, set, of);
            if self.refused.is_some() {
                break;
            }
            let started = match call.start(procedure) {
                Ok(started) => started,
                Err(refused) => {
                    self.refused = Some(refused);
                    break;
                }
            };
            for start in started {
                has_moved = true;
                let piece = &procedure.pieces[usize::from(start.piece.0)];
                let place = (start.piece, start.occurrence);
                if set.place(piece, &start.arguments, group) != own {
                    self.waits.insert(place);
                    continue;
                }
                let outcome = match self.own.get(&place) {
                    // It was executed before a restart.
                    Some(outcome) => outcome.clone(),
                    None => {
                        let tables = &set.set().tables;
                        let outcome = piece.execute(tables, &start.arguments, rows);
                        self.own.insert(place, outcome.clone());
                        let (piece, number) = place;
                        new.push(PieceResult { piece, number, outcome: outcome.clone() });
                        outcome
                    }
                };
                let refused = match outcome {
                    Ok(outputs) => {
                        let wrong = call.executed(procedure, place, outputs).err();
                        // No compiler has made a set in which this happens.
                        wrong.map(|wrong| {
                            Refused::Failure(wrong.to_string()).of("piece", &piece.name)
                        })
                    }
                    Err(refused) => Some(refused),
                };
                if self.refused.is_none() {
                    self.refused = refused;
                }
            }
        }
        let is_over = self.refused.is_some() || call.has_started_all();
        self.call = Some(call);
        (new, is_over)
    }

    /// Passes what others have reported on to the call. Returns whether there was anything that it waits for.
    fn take_reported(&mut self, call: &mut Call, set: &InUse, of: &CallOf) -> bool {
        let Some(procedure) = set.procedure(of.procedure) else { return false };
        let known: Vec<Place> =
            self.waits.iter().filter(|place| self.elsewhere.contains_key(place)).copied().collect();
        let mut has_moved = false;
        for place in known {
            match self.elsewhere[&place].clone() {
                Ok(outputs) => {
                    if call.executed(procedure, place, outputs).is_err() {
                        // No correct server reports this. Perhaps another report comes.
                        self.elsewhere.remove(&place);
                        continue;
                    }
                }
                Err(refused) => {
                    self.refused.get_or_insert(refused);
                }
            }
            self.waits.remove(&place);
            has_moved = true;
        }
        has_moved
    }
}

//! Read-only calls that are ordered among those that write.
//!
//! Under contention a call may read for long until nothing changes. If the offline checker has found that this is sound
//! (`readers.rs` of `serried-chop`), it neither pauses nor reads a third round. It is ordered among those that write (`run.rs`):
//! a transaction starts all of its pieces, and commits. So they read at one place of the serial order, whatever is under way.
//!
//! Other pieces follow from the outputs of some pieces. An immediate piece returns its outputs when it is started, so these are
//! started first. What a deferred one will find is not known before the commit. Here it is predicted to find what it has found
//! last. If it was never read, its leader is asked for a prediction. In the end, the call is gone through by what the transaction
//! has found. If it has other pieces than those that were started, a prediction was wrong, and another transaction follows.
//!
//! A leader that is asked for a prediction does not wait. It tries the deferred pieces that it has started, and the piece after
//! them. So it knows what calls that come before this one will write. If a leader does not answer in time, the transaction
//! starts the piece itself and ends, and the next one knows what it has found.
//!
//! The partitions of a transaction are chosen at its beginning: those of all pieces that are known then. If it needs another
//! one, it ends with what it has started, and another transaction follows, too.
//!
//! Such a transaction costs entries in logs, and others wait for it. So a call first tries to read the same twice, unless this
//! was in vain for another call of the procedure a short time ago (`coordinator.rs`).

use std::collections::BTreeMap;

use serried_actor::{Group, Timestamp};
use serried_parts::Map;

use super::super::message::{Found, Occurrence, Versions};
use super::super::run::FoundPieces;
use super::{Asked, Next, Numbers, PieceRead, Reading};

/// How far the call is with being ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ordering {
    /// It reads in rounds.
    No,
    /// It reads what other pieces need, and no more, to find out which partitions a transaction will have.
    Predicts,
    /// It finds out which pieces are to be started next, and reads what it needs to predict.
    Prepares,
    /// Pieces are being started.
    Starts {
        /// Whether no other pieces follow.
        is_last: bool,
    },
    /// All pieces are started.
    Started,
    /// The transaction commits.
    Commits,
    /// It goes through the call by what the transaction has found.
    Checks,
}

impl Reading {
    /// Gives up reading the same twice.
    pub(super) fn begin_to_order(&mut self) {
        self.ordering = Ordering::Predicts;
        self.later.clear();
        self.is_spoiled = false;
        // The first round reads equal occurrences each.
        let mut known = Map::default();
        self.pieces.retain(|piece| known.insert(piece.asked.clone(), ()).is_none());
        self.go_through_again();
    }

    /// Begins another transaction.
    pub(in super::super) fn begin_transaction(&mut self) {
        self.ordering = Ordering::Prepares;
        // Those of former transactions, too: if each needs another partition, there will be no other some time.
        self.reads.extend(self.pieces.iter().map(|piece| piece.at));
        self.numbers = Numbers::default();
        self.is_lacking = false;
        self.gave_up = false;
        for piece in &mut self.pieces {
            piece.started = None;
            piece.ordered = None;
        }
        self.go_through_again();
    }

    /// Goes through the call from its beginning.
    fn go_through_again(&mut self) {
        self.is_again = false;
        self.places = None;
        self.next = 0;
        self.walk = None;
        self.due.clear();
        self.pieces.iter_mut().for_each(|piece| piece.is_used = false);
    }

    /// Reads what other pieces need, and begins a transaction when all pieces are known.
    pub(super) fn predict(
        &mut self,
        group: &Group,
        number: &mut impl FnMut() -> u64,
        now: Timestamp,
    ) -> Next {
        if !self.go_on(group) {
            self.due = self.places(|piece| piece.is_needed && piece.found.is_none());
            return Next::Read(self.request(number, now));
        }
        if self.pieces.is_empty()
            && let Some(results) = self.walk(group)
        {
            return Next::End(results);
        }
        self.begin_transaction();
        self.prepare(group, number, now)
    }

    /// What the transaction has to start next, or what has to be read before.
    pub(super) fn prepare(
        &mut self,
        group: &Group,
        number: &mut impl FnMut() -> u64,
        now: Timestamp,
    ) -> Next {
        if self.is_lacking {
            return self.start(Vec::new(), true);
        }
        let is_complete = self.go_on(group);
        let immediate = self.places(|piece| piece.is_immediate && piece.started.is_none());
        if !is_complete && !immediate.is_empty() {
            return self.start(immediate, false);
        }
        if is_complete || self.gave_up {
            return self.start(self.places(|piece| piece.started.is_none()), true);
        }
        self.due =
            self.places(|piece| !piece.is_immediate && piece.is_needed && piece.found.is_none());
        Next::Read(self.request(number, now))
    }

    /// The pieces that the call uses and that are `wanted`.
    fn places(&self, wanted: impl Fn(&PieceRead) -> bool) -> Vec<usize> {
        let all = self.pieces.iter().enumerate();
        all.filter(|(_, piece)| piece.is_used && wanted(piece)).map(|(at, _)| at).collect()
    }

    /// Has pieces started. After the last ones, each partition of the transaction has started some, or knows that it starts
    /// none.
    fn start(&mut self, mut places: Vec<usize>, mut is_last: bool) -> Next {
        let begins = self.pieces.iter().all(|piece| piece.started.is_none());
        if begins && !self.is_lacking {
            let used = self.pieces.iter().filter(|piece| piece.is_used);
            self.reads.extend(used.map(|piece| piece.at));
        }
        if places.iter().any(|at| !self.reads.contains(&self.pieces[*at].at)) {
            self.is_lacking = true;
        }
        if self.is_lacking {
            places.clear();
            is_last = true;
        }
        let mut pieces: BTreeMap<u16, Vec<Occurrence>> = BTreeMap::new();
        if is_last {
            pieces.extend(self.reads.iter().map(|at| (*at, Vec::new())));
            let started = self.pieces.iter().filter(|piece| piece.started.is_some());
            started.for_each(|piece| drop(pieces.remove(&piece.at)));
        }
        for at in places {
            let PieceRead { asked, at, started, .. } = &mut self.pieces[at];
            let Asked { piece, arguments } = asked.clone();
            let number = self.numbers.next(piece);
            *started = Some(number);
            pieces.entry(*at).or_default().push(Occurrence { piece, number, arguments });
        }
        if pieces.is_empty() {
            self.ordering = Ordering::Commits;
            return Next::Commit;
        }
        self.ordering = Ordering::Starts { is_last };
        let reads = self.reads.iter().copied().collect();
        Next::Start { reads, pieces: pieces.into_iter().collect() }
    }

    /// All pieces are started that were to be started. Returns whether there is something to do, which [`Self::proceed`] says.
    pub(in super::super) fn on_started(&mut self, found: &FoundPieces) -> bool {
        let Ordering::Starts { is_last } = self.ordering else { return false };
        for piece in self.pieces.iter_mut().filter(|piece| piece.is_immediate) {
            let Some(number) = piece.started else { continue };
            piece.ordered = found.get(&(piece.asked.piece, number)).cloned();
            // A server has finished the transaction, because this client was silent.
            self.is_lacking |= piece.ordered.is_none();
        }
        self.ordering = if is_last { Ordering::Started } else { Ordering::Prepares };
        true
    }

    /// A server does not answer what has to be predicted, and others wait for this transaction. So it ends. It starts the
    /// pieces that were to be predicted, so that the next one knows what they have found. Returns whether this is so.
    pub(in super::super) fn gives_up_predicting(&mut self) -> bool {
        let predicts = self.ordering == Ordering::Prepares && !self.open.is_empty();
        let gives_up = predicts && self.pieces.iter().any(|piece| piece.started.is_some());
        if gives_up {
            self.open.clear();
            self.gave_up = true;
        }
        gives_up
    }

    /// The transaction is over.
    pub(in super::super) fn on_ordered(&mut self, mut found: FoundPieces) {
        for piece in &mut self.pieces {
            piece.was_used = piece.is_used;
            let number = piece.started;
            piece.ordered = number.and_then(|number| found.remove(&(piece.asked.piece, number)));
        }
        self.ordering = Ordering::Checks;
        self.go_through_again();
    }

    /// The transaction had other pieces than the call has by what these have found. The next one is predicted to find that.
    pub(super) fn keep_what_was_found(&mut self) {
        self.pieces.retain(|piece| piece.is_used || piece.was_used);
        for piece in &mut self.pieces {
            if let Some(outcome) = piece.ordered.take() {
                piece.found = Some(Box::new(Found { outcome, versions: Versions::default() }));
            }
        }
        self.begin_transaction();
    }
}

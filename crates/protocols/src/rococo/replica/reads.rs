//! The reads of read-only calls (002 §4.1).
//!
//! If a request waits, each piece is executed when no transaction conflicts with it any more, whatever the other pieces
//! wait for. If all had to be free of conflicts at one moment, a request of many pieces might wait for ever. A request that
//! does not wait is executed at once, or not at all. If it is only to be predicted what a piece will find, the leader tries
//! the deferred pieces that conflict with it, in the order of their transactions, and then the piece.
//!
//! A leader remembers the pieces of its last answers and the versions that they have read, so that a call which reads them
//! again need not send them. Only the client that has got an answer knows its name. So what is remembered under the name is
//! what that client knows, even if a request was repeated, and its two answers differ.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_model::{NodeId, Version};
use serried_procedures::{KnownRow, RowUse};
use smallvec::SmallVec;

use super::super::message::{
    Again, AnswerName, Found, Message, NotStarted, Occurrence, OnConflict, Read, Reply, Versions,
    data_size,
};
use super::super::registered::Registered;
use super::Cx;
use super::leader::{Common, Leader};
use super::merged::conflicts;
use super::rows::{Rows, Tried};

/// How many pieces wait for transactions. A request that would exceed this is dropped, and the client sends it again.
const PARKED_AT_MOST: usize = 16_384;

/// How many deferred pieces a leader looks at to predict what the pieces of a request will find. If more conflict, it tries
/// the oldest ones, and the prediction may be wrong. Then the client orders its call once more.
const TRIED_AT_MOST: usize = 4096;

/// How many bytes the answers take up that are remembered, as an estimate. The oldest are forgotten.
const REMEMBERED_AT_MOST: usize = 2 << 20;

/// The client and the number of a request.
type Name = (NodeId, u64);

/// The requests that wait, and the answers that are remembered.
#[derive(Debug)]
pub(super) struct Reads {
    open: BTreeMap<Name, OpenRead>,
    /// By transaction, the pieces that wait for it, each with its request and its place in that.
    parked: BTreeMap<Version, Vec<(Name, usize)>>,
    /// How many pieces wait.
    parked_len: usize,
    remembered: Remembered,
}

/// A request of which not all pieces were executed.
#[derive(Debug)]
struct OpenRead {
    of: Asked,
    /// By piece, what it has found. `None` if it waits.
    found: Vec<Option<Option<Box<Found>>>>,
    /// How many pieces wait.
    waiting: usize,
}

/// The pieces of a request.
#[derive(Debug)]
struct Asked {
    set: Arc<Registered>,
    procedure: u16,
    pieces: Vec<PieceRead>,
}

/// A piece of a request.
#[derive(Debug)]
struct PieceRead {
    occurrence: Occurrence,
    /// All rows that it uses.
    rows: SmallVec<[(KnownRow, RowUse); 1]>,
    /// The versions that its client knows, if it does. Once it was executed, those that it has read.
    known: Option<Versions>,
}

/// The last answers of a leader.
#[derive(Debug)]
struct Remembered {
    /// The slot of the entry with which the leader has begun to serve.
    leader: u64,
    /// How many answers it has given.
    number: u64,
    /// By number, the client that has got the answer, and the pieces.
    answers: BTreeMap<u64, (NodeId, Asked)>,
    bytes: usize,
}

impl Reads {
    /// None, for the leader that has begun to serve with the entry of this slot.
    pub(super) fn new(leader: u64) -> Reads {
        let remembered = Remembered { leader, number: 0, answers: BTreeMap::new(), bytes: 0 };
        Reads { open: BTreeMap::new(), parked: BTreeMap::new(), parked_len: 0, remembered }
    }

    /// How many pieces wait.
    pub(super) fn len(&self) -> usize {
        self.parked_len
    }

    /// About how many bytes are remembered.
    pub(super) fn remembered_bytes(&self) -> usize {
        self.remembered.bytes
    }
}

impl Asked {
    /// About how many bytes it takes up.
    fn bytes(&self) -> usize {
        let key = |(row, _): &(KnownRow, RowUse)| size_of::<(KnownRow, RowUse)>() + row.key.len();
        let piece = |piece: &PieceRead| {
            let rows = piece.rows.iter().map(key).sum::<usize>();
            size_of::<PieceRead>() + data_size(&piece.occurrence.arguments) + rows
        };
        size_of::<(u64, NodeId, Asked)>() + self.pieces.iter().map(piece).sum::<usize>()
    }
}

impl Remembered {
    /// Remembers an answer, and returns its name.
    fn put(&mut self, of: NodeId, asked: Asked) -> Option<AnswerName> {
        let bytes = asked.bytes();
        if bytes > REMEMBERED_AT_MOST {
            return None;
        }
        while self.bytes + bytes > REMEMBERED_AT_MOST {
            let (_, (_, oldest)) = self.answers.pop_first().expect("what is remembered has bytes");
            self.bytes -= oldest.bytes();
        }
        self.bytes += bytes;
        self.number += 1;
        self.answers.insert(self.number, (of, asked));
        Some(AnswerName { leader: self.leader, number: self.number })
    }

    /// Adds the pieces that a client has named, and forgets the answer. Returns false if it is not known.
    #[must_use]
    fn take(&mut self, of: NodeId, Again { name, kept }: &Again, asked: &mut Asked) -> bool {
        let is_known = |(client, answer): &(NodeId, Asked)| {
            let is_same_set = answer.set.version() == asked.set.version();
            *client == of && is_same_set && answer.procedure == asked.procedure
        };
        let is_known = self.answers.get(&name.number).is_some_and(is_known);
        if name.leader != self.leader || !is_known {
            return false;
        }
        let (_, answer) = self.answers.remove(&name.number).expect("it is known");
        self.bytes -= answer.bytes();
        let mut pieces = answer.pieces.into_iter();
        let mut next = 0;
        for (from, to) in kept.iter().map(|(from, to)| (*from as usize, *to as usize)) {
            if from < next || to <= from || to - next > pieces.len() {
                return false; // No correct client names these.
            }
            asked.pieces.extend(pieces.by_ref().skip(from - next).take(to - from));
            next = to;
        }
        true
    }
}

impl Leader {
    pub(super) fn on_read(
        &mut self,
        from: NodeId,
        read: Read,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        let name = (from, read.number);
        if self.reads.open.contains_key(&name) {
            return; // It is repeated because it waits.
        }
        let version = common.table.set().map_or(0, |set| set.version());
        if read.set != version {
            let (number, found) = (read.number, Err(NotStarted::OtherSet { version }));
            return self.proposals.confirm(from, Reply::Read { number, found, name: None });
        }
        let Some(set) = common.table.set().cloned() else { return };
        let Read { number, procedure, pieces, known, again, on_conflict, .. } = read;
        let names_only = pieces.is_empty() && !again.is_empty();
        let is_right =
            known.len() == pieces.len() && (names_only || set.accepts(procedure, &pieces, true));
        if !is_right {
            return cx
                .reject(|| format!("{from} has sent pieces that the procedure does not have"));
        }
        let piece = |(occurrence, known)| {
            let rows = set.all_rows(procedure, &occurrence).collect();
            PieceRead { occurrence, rows, known }
        };
        let pieces = pieces.into_iter().zip(known).map(piece).collect();
        let mut asked = Asked { set, procedure, pieces };
        if !again.iter().all(|again| self.reads.remembered.take(from, again, &mut asked)) {
            return self.proposals.confirm(from, Reply::ReadForgotten { number });
        }
        let occurrences = asked.pieces.iter().map(|piece| &piece.occurrence);
        if !again.is_empty() && !asked.set.may_have(procedure, occurrences) {
            return cx.reject(|| format!("{from} wants to read pieces more often than they occur"));
        }
        let fails = on_conflict == OnConflict::Fail;
        if fails && asked.pieces.iter().any(|piece| self.conflict(piece).is_some()) {
            let name = self.reads.remembered.put(from, asked);
            return cx.send(from, Message::Reply(Reply::ReadConflict { number, name }));
        }
        cx.charge(asked.pieces.len());
        let found = vec![None; asked.pieces.len()];
        let mut open = OpenRead { found, of: asked, waiting: 0 };
        let mut conflicting = Vec::new();
        let mut to_try = TRIED_AT_MOST;
        for at in 0..open.found.len() {
            // If it would fail, nothing conflicts.
            let conflict = if fails { None } else { self.conflict(&open.of.pieces[at]) };
            match conflict {
                Some(_) if on_conflict == OnConflict::Predict => {
                    self.predict(&mut open, at, &mut to_try, common, cx);
                }
                Some(txn) => conflicting.push((txn, at)),
                None => self.read_piece(&mut open, at, common, cx),
            }
        }
        if conflicting.is_empty() {
            return self.answer_read(name, open);
        }
        if self.reads.parked_len + conflicting.len() > PARKED_AT_MOST {
            return;
        }
        self.reads.parked_len += conflicting.len();
        open.waiting = conflicting.len();
        for (txn, at) in conflicting {
            self.reads.parked.entry(txn).or_default().push((name, at));
        }
        self.reads.open.insert(name, open);
    }

    /// A transaction that conflicts with a piece.
    fn conflict(&self, piece: &PieceRead) -> Option<Version> {
        piece.rows.iter().find_map(|(row, used)| self.accesses.conflict(row, *used))
    }

    /// Executes a piece with which nothing conflicts.
    fn read_piece(&mut self, open: &mut OpenRead, at: usize, common: &mut Common, cx: &mut Cx<'_>) {
        let OpenRead { of: Asked { set, procedure, pieces }, found, .. } = open;
        let PieceRead { occurrence, rows: used_rows, known } = &mut pieces[at];
        let entry = self.proposals.next();
        let mut rows = Rows::new(&mut common.table, &mut self.unapplied, cx.store(), entry);
        // If it reads rows of the versions that it has read before, it finds the same.
        let mut is_known = known.is_some();
        let mut versions = known.iter().flatten();
        for (row, used) in used_rows {
            if is_known && used.looks() {
                is_known = row.is_whole && versions.next() == Some(&rows.version(&row.key));
            }
        }
        if is_known && versions.next().is_none() {
            found[at] = Some(None);
            return;
        }
        let piece = set.piece(*procedure, occurrence.piece).expect("it was checked");
        let outcome = piece.execute(set.tables(), &occurrence.arguments, &mut rows);
        let versions = Some(rows.read);
        let is_same = *known == versions;
        *known = versions;
        let versions = known.clone().unwrap_or_default();
        found[at] = Some((!is_same).then(|| Box::new(Found { outcome, versions })));
    }

    /// Predicts what a piece will find when the transactions are executed that conflict with it. Looks at no more than
    /// `to_try` deferred pieces, and reduces this by those that it has looked at.
    fn predict(
        &mut self,
        open: &mut OpenRead,
        at: usize,
        to_try: &mut usize,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) {
        let OpenRead { of: Asked { set, procedure, pieces }, found, .. } = open;
        let PieceRead { occurrence, rows: used_rows, known } = &mut pieces[at];
        let conflict = |(row, used): &(KnownRow, RowUse)| self.accesses.all_conflicts(row, *used);
        let before: BTreeSet<Version> = used_rows.iter().flat_map(conflict).collect();
        let entry = self.proposals.next();
        let rows = Rows::new(&mut common.table, &mut self.unapplied, cx.store(), entry);
        let mut tried = Tried::new(rows);
        let live = before.iter().filter_map(|txn| self.live.get(txn));
        let deferred = live
            .flat_map(|live| live.deferred.iter().map(|deferred| (live.call.procedure, deferred)));
        let mut looked_at = 0;
        for (procedure, deferred) in deferred.take(*to_try) {
            looked_at += 1;
            let mut rows = set.all_rows(procedure, deferred);
            if !rows.any(|row| used_rows.iter().any(|used| conflicts(&row, used))) {
                continue;
            }
            let Some(piece) = set.piece(procedure, deferred.piece) else { continue };
            // Only a set that the compiler has not made has deferred pieces that fail. Then the prediction is less good.
            drop(piece.execute(set.tables(), &deferred.arguments, &mut tried));
        }
        *to_try -= looked_at;
        let piece = set.piece(*procedure, occurrence.piece).expect("it was checked");
        let outcome = piece.execute(set.tables(), &occurrence.arguments, &mut tried);
        cx.charge(looked_at);
        *known = None;
        found[at] = Some(Some(Box::new(Found { outcome, versions: Versions::default() })));
    }

    fn answer_read(&mut self, (to, number): Name, open: OpenRead) {
        let found = open.found.into_iter().map(|found| found.expect("no piece waits")).collect();
        let name = self.reads.remembered.put(to, open.of);
        self.proposals.confirm(to, Reply::Read { number, found: Ok(found), name });
    }

    /// Goes on with the reads that waited for a transaction, which was executed.
    pub(super) fn resume_reads(&mut self, txn: Version, common: &mut Common, cx: &mut Cx<'_>) {
        let parked = self.reads.parked.remove(&txn).unwrap_or_default();
        for (name, at) in parked {
            let mut open = self.reads.open.remove(&name).expect("a piece of it waits");
            if let Some(txn) = self.conflict(&open.of.pieces[at]) {
                self.reads.parked.entry(txn).or_default().push((name, at));
            } else {
                self.read_piece(&mut open, at, common, cx);
                self.reads.parked_len -= 1;
                open.waiting -= 1;
                if open.waiting == 0 {
                    self.answer_read(name, open);
                    continue;
                }
            }
            self.reads.open.insert(name, open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_procedures::{Datum, PieceId};

    const CLIENT: NodeId = NodeId(1 << 40);

    fn asked(pieces: u32, bytes: usize) -> Asked {
        let arguments: Arc<[Datum]> = [Datum::String("x".repeat(bytes).into())].into();
        let piece = |number| PieceRead {
            occurrence: Occurrence { piece: PieceId(0), number, arguments: arguments.clone() },
            rows: SmallVec::new(),
            known: None,
        };
        let set = Arc::new(Registered::new(1, Arc::default()));
        Asked { set, procedure: 0, pieces: (0..pieces).map(piece).collect() }
    }

    fn remembered() -> Remembered {
        Reads::new(7).remembered
    }

    #[test]
    fn the_oldest_answers_are_forgotten_when_memory_is_short() {
        let mut remembered = remembered();
        let names: Vec<AnswerName> =
            (0..1000).map(|_| remembered.put(CLIENT, asked(4, 5000)).unwrap()).collect();
        assert!(remembered.bytes <= REMEMBERED_AT_MOST);
        let mut all = asked(0, 0);
        let mut takes = |remembered: &mut Remembered, at: usize| {
            let again = Again { name: names[at], kept: vec![(0, 4)] };
            remembered.take(CLIENT, &again, &mut all)
        };
        assert!(!takes(&mut remembered, 0) && takes(&mut remembered, 999));
        assert!(!takes(&mut remembered, 999), "it was taken");
        let known = (0..999).filter(|at| takes(&mut remembered, *at)).count();
        assert!(known > 50, "{known}");
        assert_eq!((remembered.bytes, remembered.answers.len()), (0, 0));
        assert_eq!(remembered.put(CLIENT, asked(1, REMEMBERED_AT_MOST)), None);
    }

    #[test]
    fn an_answer_is_known_to_the_client_that_has_got_it_from_this_leader() {
        let mut remembered = remembered();
        let name = remembered.put(CLIENT, asked(4, 5)).unwrap();
        let mut all = asked(0, 0);
        let again = Again { name, kept: vec![(0, 4)] };
        let of_other = Again { name: AnswerName { leader: 6, ..name }, kept: vec![(0, 4)] };
        assert!(!remembered.take(CLIENT, &of_other, &mut all));
        assert!(!remembered.take(NodeId(CLIENT.0 + 1), &again, &mut all));
        let mut of_other_procedure = asked(0, 0);
        of_other_procedure.procedure = 1;
        assert!(!remembered.take(CLIENT, &again, &mut of_other_procedure));
        assert!(remembered.take(CLIENT, &again, &mut all) && all.pieces.len() == 4);
    }

    #[test]
    fn only_ranges_of_places_are_taken() {
        let wrong: [&[(u32, u32)]; 6] =
            [&[(0, 5)], &[(2, 2)], &[(3, 2)], &[(0, 2), (1, 3)], &[(0, u32::MAX)], &[(4, 5)]];
        for kept in wrong {
            let mut remembered = remembered();
            let name = remembered.put(CLIENT, asked(4, 5)).unwrap();
            let again = Again { name, kept: kept.to_vec() };
            assert!(!remembered.take(CLIENT, &again, &mut asked(0, 0)), "{kept:?}");
        }
        let mut remembered = remembered();
        let name = remembered.put(CLIENT, asked(6, 5)).unwrap();
        let mut all = asked(0, 0);
        let again = Again { name, kept: vec![(0, 1), (2, 4), (5, 6)] };
        assert!(remembered.take(CLIENT, &again, &mut all));
        let numbers: Vec<u32> = all.pieces.iter().map(|piece| piece.occurrence.number).collect();
        assert_eq!(numbers, [0, 2, 3, 5]);
    }

    #[test]
    fn answers_without_pieces_take_up_memory() {
        let mut remembered = remembered();
        for _ in 0..100_000 {
            let name = remembered.put(CLIENT, asked(1, 5)).unwrap();
            let mut none = asked(0, 0);
            assert!(remembered.take(CLIENT, &Again { name, kept: Vec::new() }, &mut none));
            remembered.put(CLIENT, none);
        }
        assert!(remembered.answers.len() < 50_000, "{}", remembered.answers.len());
    }

    #[test]
    fn rows_of_pieces_are_counted() {
        let row = || KnownRow { key: serried_model::Key::from([7; 40]), is_whole: true };
        let mut of = asked(1, 0);
        of.pieces[0].rows = (0..64).map(|_| (row(), RowUse::default())).collect();
        let least = 64 * size_of::<(KnownRow, RowUse)>();
        assert!(
            of.bytes() >= least,
            "{} of {least}, {} of a piece",
            of.bytes(),
            size_of::<PieceRead>()
        );
    }
}

//! The reads of read-only calls (002 §4.1).
//!
//! Each piece is executed when no transaction conflicts with it any more, whatever the other pieces of the request wait
//! for. If all had to be free of conflicts at one moment, a request of many pieces might wait for ever.

use std::collections::BTreeMap;
use std::sync::Arc;

use serried_model::{NodeId, Version};

use super::super::message::{Found, NotStarted, Read, Reply};
use super::super::registered::Registered;
use super::Cx;
use super::leader::{Common, Leader};
use super::rows::Rows;

/// How many pieces wait for transactions. A request that would exceed this is dropped, and the client sends it again.
const PARKED_AT_MOST: usize = 16_384;

/// The client and the number of a request.
type Name = (NodeId, u64);

/// The requests that wait.
#[derive(Debug, Default)]
pub(super) struct Reads {
    open: BTreeMap<Name, OpenRead>,
    /// By transaction, the pieces that wait for it, each with its request and its place in that.
    parked: BTreeMap<Version, Vec<(Name, usize)>>,
    /// How many pieces wait.
    parked_len: usize,
}

/// A request of which not all pieces were executed.
#[derive(Debug)]
struct OpenRead {
    read: Read,
    set: Arc<Registered>,
    /// By piece, what it has found. `None` if it waits.
    found: Vec<Option<Option<Box<Found>>>>,
}

impl Reads {
    /// How many pieces wait.
    pub(super) fn len(&self) -> usize {
        self.parked_len
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
            return self.proposals.confirm(from, Reply::Read { number, found });
        }
        let Some(set) = common.table.set().cloned() else { return };
        let is_right = read.known.len() == read.pieces.len()
            && set.accepts(read.procedure, &read.pieces, true);
        if !is_right {
            return cx
                .reject(|| format!("{from} has sent pieces that the procedure does not have"));
        }
        cx.charge(read.pieces.len());
        let mut open = OpenRead { found: vec![None; read.pieces.len()], read, set };
        let mut waits = Vec::new();
        for at in 0..open.found.len() {
            if let Some(txn) = self.read_piece(&mut open, at, common, cx) {
                waits.push((txn, at));
            }
        }
        if waits.is_empty() {
            return self.answer_read(name, open);
        }
        if self.reads.parked_len + waits.len() > PARKED_AT_MOST {
            return;
        }
        self.reads.parked_len += waits.len();
        for (txn, at) in waits {
            self.reads.parked.entry(txn).or_default().push((name, at));
        }
        self.reads.open.insert(name, open);
    }

    /// Executes a piece, or returns a transaction for which it has to wait.
    fn read_piece(
        &mut self,
        open: &mut OpenRead,
        at: usize,
        common: &mut Common,
        cx: &mut Cx<'_>,
    ) -> Option<Version> {
        let OpenRead { read, set, found } = open;
        let occurrence = &read.pieces[at];
        let entry = self.proposals.next();
        let mut rows = Rows::new(&mut common.table, &mut self.unapplied, cx.store(), entry);
        // If it reads rows of the versions that it has read before, it finds the same.
        let mut is_known = read.known[at].is_some();
        let mut known = read.known[at].iter().flatten();
        for (row, used) in set.all_rows(read.procedure, occurrence) {
            if let Some(txn) = self.accesses.conflict(&row, used) {
                return Some(txn);
            }
            if is_known && used.looks() {
                is_known = row.is_whole && known.next() == Some(&rows.version(&row.key));
            }
        }
        if is_known && known.next().is_none() {
            found[at] = Some(None);
            return None;
        }
        let piece = set.piece(read.procedure, occurrence.piece).expect("it was checked");
        let outcome = piece.body.execute(set.tables(), &occurrence.arguments, &mut rows);
        let versions = rows.read;
        let is_known = read.known[at].as_ref() == Some(&versions);
        found[at] = Some((!is_known).then(|| Box::new(Found { outcome, versions })));
        None
    }

    fn answer_read(&mut self, (to, number): Name, open: OpenRead) {
        let found = open.found.into_iter().map(|found| found.expect("no piece waits"));
        self.proposals.confirm(to, Reply::Read { number, found: Ok(found.collect()) });
    }

    /// Goes on with the reads that waited for a transaction, which was executed.
    pub(super) fn resume_reads(&mut self, txn: Version, common: &mut Common, cx: &mut Cx<'_>) {
        let parked = self.reads.parked.remove(&txn).unwrap_or_default();
        for (name, at) in parked {
            let mut open = self.reads.open.remove(&name).expect("a piece of it waits");
            match self.read_piece(&mut open, at, common, cx) {
                Some(txn) => {
                    self.reads.parked.entry(txn).or_default().push((name, at));
                    self.reads.open.insert(name, open);
                }
                None => {
                    self.reads.parked_len -= 1;
                    if open.found.iter().all(Option::is_some) {
                        self.answer_read(name, open);
                    } else {
                        self.reads.open.insert(name, open);
                    }
                }
            }
        }
    }
}

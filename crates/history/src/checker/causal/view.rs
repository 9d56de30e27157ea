//! Causal memory: an order of the writes for each process.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::causes::{Before, Causes};
use super::facts::Read;
use super::{Edges, Step};
use crate::digraph::Edge;

/// What must come before what, so that the reads of one process have an explanation. It can be used for one process
/// after the other.
pub(super) struct View<'c> {
    causes: &'c Causes,
    before: Before,
    /// The place of each transaction in the order of [`Causes::order`].
    places: Vec<u32>,
    /// For each transaction, those that come after it by arbitration.
    after: Vec<Vec<u32>>,
    /// Whether more must come before a transaction than was known at the beginning of the round.
    changed: Vec<bool>,
    /// How many more entries of vectors may be compared.
    work: u64,
}

/// Judging took too long.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct TooLong;

impl<'c> View<'c> {
    /// No more than `work` entries of vectors are compared.
    pub(super) fn new(causes: &'c Causes, work: u64) -> Self {
        let count = causes.order.len();
        let mut places = vec![0; count];
        for (place, &transaction) in (0..).zip(&causes.order) {
            places[transaction as usize] = place;
        }
        View {
            causes,
            before: causes.before.clone(),
            places,
            after: vec![Vec::new(); count],
            changed: vec![false; count],
            work,
        }
    }

    /// The edges that the reads of one process require, if they and the causal order have a cycle. No single read
    /// contradicts the causal order.
    ///
    /// The rank of an arbitration is the round in which it was found. It follows from those of earlier rounds.
    pub(super) fn contradiction(&mut self, reads: &[Read]) -> Result<Option<Edges>, TooLong> {
        let mut found = Vec::new();
        let mut more = Vec::new();
        let result = self.search(reads, &mut found, &mut more);
        for edge in found.iter() {
            self.after[edge.from as usize].clear();
        }
        for &transaction in &more {
            self.before.copy(&self.causes.before, transaction);
        }
        Ok(result?.then_some(found))
    }

    /// Adds what the reads require to `found`, until nothing is new. Returns whether there is a cycle. `more` are the
    /// transactions before which more must come than in the causal order.
    fn search(
        &mut self,
        reads: &[Read],
        found: &mut Edges,
        more: &mut Vec<u32>,
    ) -> Result<bool, TooLong> {
        let mut is_open = vec![true; reads.len()];
        for rank in 1.. {
            let start = found.len();
            for (read, _) in reads.iter().zip(&is_open).filter(|(_, is_open)| **is_open) {
                if self.require(read, rank, found) {
                    return Ok(true);
                }
            }
            if found.len() == start {
                break;
            }
            let mut changed = Vec::new();
            let is_cycle = self.add(&found[start..], &mut changed);
            for (read, is_open) in reads.iter().zip(&mut is_open) {
                *is_open = self.changed[read.reader as usize];
            }
            for &transaction in &changed {
                self.changed[transaction as usize] = false;
            }
            more.extend(changed);
            if is_cycle? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds the edges that a read requires and that do not follow from what is known. Returns whether a writer comes
    /// before a read of what was there before the history.
    fn require(&self, read: &Read, rank: u32, found: &mut Edges) -> bool {
        let before = &self.before;
        for (writers, from) in self.causes.writers_before(before, read.key, read.reader) {
            let Some(to) = read.writer else {
                let (from, to) = (read.reader, writers.first());
                found.push(Edge { from, to, label: Step::initial(read.key) });
                return true;
            };
            if from != to && !before.is_before(&self.causes.chains, from, to) {
                found.push(Edge { from, to, label: Step::arbitration(read.key, rank) });
            }
        }
        false
    }

    /// Adds arbitrations, and everything that follows from them. Returns whether there is a cycle. `changed` are the
    /// transactions before which more must come than was known.
    fn add(
        &mut self,
        arbitrations: &[Edge<Step>],
        changed: &mut Vec<u32>,
    ) -> Result<bool, TooLong> {
        let Causes { chains, graph, .. } = self.causes;
        let mut queue = BinaryHeap::new();
        for edge in arbitrations {
            self.after[edge.from as usize].push(edge.to);
            self.come_before(edge.from, edge.to, &mut queue, changed)?;
        }
        while let Some(first) = queue.pop() {
            while queue.peek() == Some(&first) {
                queue.pop();
            }
            let Reverse((_, first)) = first;
            if let Some((chain, place)) = chains.of(first)
                && self.before.count(first, chain) > place
            {
                return Ok(true);
            }
            for edge in graph.edges_from(first) {
                self.come_before(first, edge.to, &mut queue, changed)?;
            }
            for at in 0..self.after[first as usize].len() {
                self.come_before(first, self.after[first as usize][at], &mut queue, changed)?;
            }
        }
        Ok(false)
    }

    fn come_before(
        &mut self,
        first: u32,
        second: u32,
        queue: &mut BinaryHeap<Reverse<(u32, u32)>>,
        changed: &mut Vec<u32>,
    ) -> Result<(), TooLong> {
        let chains = &self.causes.chains;
        self.work = self.work.checked_sub(chains.count() as u64).ok_or(TooLong)?;
        if self.before.add(chains, first, second) {
            queue.push(Reverse((self.places[second as usize], second)));
            if !std::mem::replace(&mut self.changed[second as usize], true) {
                changed.push(second);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::transaction::Context;
    use super::super::super::{Options, TransactionGuarantee};
    use super::super::facts::Facts;
    use super::*;
    use crate::{EventKind, History, MicroOperation, ReadResult, Recorder};

    /// Two processes write one key. The second one then finds the first one's write.
    fn overwritten() -> History {
        let write = |value| MicroOperation::Write { key: 1, value: Some(value) };
        let found = MicroOperation::Read { key: 1, result: ReadResult::Register(Some(1)) };
        let recorder = Recorder::new();
        for (process, operation) in [(0, write(1)), (1, write(2)), (1, found)] {
            recorder.invoke(process, 0, vec![operation.clone()]);
            let operations = vec![operation];
            recorder.complete(process, 0, EventKind::Ok, operations, None, Vec::new(), None);
        }
        recorder.into_history()
    }

    #[test]
    fn work_has_a_bound() {
        let history = overwritten();
        let guarantee = TransactionGuarantee::Causal;
        let context = Context::new(&history, &Options::default(), guarantee).expect("a context");
        let facts = Facts::new(&context, &context.accesses()).expect("facts");
        let causes = Causes::new(&context, &facts).expect("few enough transactions");
        let judge = |work| View::new(&causes, work).contradiction(&facts.reads);
        // The second write comes before the first one, and so before its reader. That one is the last of its process.
        // For each of these two steps, the entries of two processes are compared.
        assert_eq!(judge(3).err(), Some(TooLong));
        assert_eq!(judge(4).map(|found| found.is_some()), Ok(false));
    }
}

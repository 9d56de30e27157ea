//! What the leader of the first partition has in memory to give numbers to writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serried_model::NodeId;

use super::message::{Batch, Mark, Sequenced, Write};

/// How many writes wait at most. Others are dropped, and clients send them again.
pub(super) const QUEUED_AT_MOST: usize = 4096;
/// How many bytes they take up at most.
const QUEUED_BYTES_AT_MOST: usize = 64 << 20;
/// How many writes a batch has at most.
pub(super) const BATCHED_AT_MOST: usize = 1024;
/// How many bytes they take up at most, unless it is a single write.
const BATCHED_BYTES_AT_MOST: usize = 1 << 20;

/// A client that waits for its write.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) node: NodeId,
    /// Names the request at the client.
    pub(super) number: u64,
    /// By how much its clock is ahead, in microseconds, if the write is refused for that.
    pub(super) ahead_us: Option<i64>,
}

/// The batch that is under way. There is only one.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) batch: Batch,
    pub(super) phase: Phase,
    /// By write, who waits for it. Nobody does if a former leader has begun the batch.
    pub(super) writers: Vec<Writer>,
}

/// How far a batch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// It has numbers, but there was no room for it in the log.
    Begun,
    /// It is in the log, and perhaps not chosen.
    Logged,
    /// It was handed to its partition, which has not acknowledged it.
    HandedOut {
        /// How often it was repeated.
        repeated: u32,
    },
}

/// The writes that wait for numbers, and the batch that is under way.
#[derive(Debug, Default)]
pub(super) struct Sequencer {
    /// By partition, in the order of their arrival.
    queues: BTreeMap<u16, VecDeque<(Writer, Write)>>,
    bytes: usize,
    /// The requests that are in the queues or under way.
    known: BTreeSet<(NodeId, u64)>,
    /// The partition of the last batch.
    turn: u16,
    pub(super) out: Option<Out>,
    /// By partition, the replica that has answered last: it leads.
    pub(super) leaders: BTreeMap<u16, NodeId>,
    /// Only with a mistake: batches that are not acknowledged, although others have begun.
    pub(super) early: Vec<Out>,
}

impl Sequencer {
    /// A sequencer whose predecessor has perhaps not handed out its last batch.
    pub(super) fn after(handed_out: Option<Batch>) -> Sequencer {
        let phase = Phase::HandedOut { repeated: 0 };
        let out = handed_out.map(|batch| Out { batch, phase, writers: Vec::new() });
        Sequencer { out, ..Sequencer::default() }
    }

    /// A client writes a key of `partition`. Does nothing if the request is here already, or if there is no room.
    pub(super) fn take_in(&mut self, partition: u16, writer: Writer, write: Write) {
        let size = write.size();
        let has_room =
            self.known.len() < QUEUED_AT_MOST && self.bytes + size <= QUEUED_BYTES_AT_MOST;
        if has_room && self.known.insert((writer.node, writer.number)) {
            self.bytes += size;
            self.queues.entry(partition).or_default().push_back((writer, write));
        }
    }

    /// How many writes are here.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Gives numbers to the writes that wait for the next partition whose turn it is, after those of `last`. Returns
    /// false if there are none, or if a batch is under way.
    pub(super) fn begin(&mut self, last: &Mark, partitions: u16) -> bool {
        if self.out.is_some() {
            return false;
        }
        let later = self.queues.range(self.turn.saturating_add(1)..).next();
        let Some((&partition, _)) = later.or_else(|| self.queues.iter().next()) else {
            return false;
        };
        let queue = self.queues.get_mut(&partition).expect("it was found");
        let (mut writers, mut writes, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some((_, write)) = queue.front() {
            let size = write.size();
            let is_full = writes.len() == BATCHED_AT_MOST || bytes + size > BATCHED_BYTES_AT_MOST;
            if is_full && !writes.is_empty() {
                break;
            }
            let (writer, write) = queue.pop_front().expect("there is one");
            bytes += size;
            writes.push(Sequenced { write, is_refused: writer.ahead_us.is_some() });
            writers.push(writer);
        }
        if queue.is_empty() {
            self.queues.remove(&partition);
        }
        self.bytes -= bytes;
        self.turn = partition;
        let mut highest = last.highest.clone();
        highest.resize(usize::from(partitions), 0);
        highest[usize::from(partition)] = last.last.saturating_add(writes.len() as u64);
        let batch = Batch { partition, first: last.last.saturating_add(1), highest, writes };
        self.out = Some(Out { batch, phase: Phase::Begun, writers });
        true
    }

    /// A batch has ended: nobody waits for it any more.
    pub(super) fn end(&mut self, out: &Out) {
        for Writer { node, number, .. } in &out.writers {
            self.known.remove(&(*node, *number));
        }
    }

    /// All writes that clients wait for, when it does not lead any more. They may have taken effect, or not.
    pub(super) fn into_writes(self) -> Vec<(Writer, Write)> {
        let mut all = Vec::new();
        for Out { batch, writers, .. } in self.early.into_iter().chain(self.out) {
            let writes = batch.writes.into_iter().map(|sequenced| sequenced.write);
            all.extend(writers.into_iter().zip(writes));
        }
        all.extend(self.queues.into_values().flatten());
        all
    }
}

#[cfg(test)]
mod tests {
    use serried_model::{Key, Value, Version};

    use super::*;

    fn writer(number: u64) -> Writer {
        Writer { node: NodeId(NodeId::FIRST_COORDINATOR), number, ahead_us: None }
    }

    fn write(bytes: usize) -> Write {
        let value = Some(Value::from(vec![7; bytes].as_slice()));
        let token = Version { timestamp_us: 1, coordinator: NodeId(NodeId::FIRST_COORDINATOR) };
        Write { key: Key::from("x"), value, token, settled: token }
    }

    /// Begins a batch and ends it: its partition, the number of its first write and that of its last.
    fn next(sequencer: &mut Sequencer, last: &mut Mark) -> Option<(u16, u64, u64)> {
        sequencer.begin(last, 3).then(|| {
            let out = sequencer.out.take().expect("it has begun");
            sequencer.end(&out);
            let batch = out.batch;
            *last = Mark { last: batch.last(), highest: batch.highest.clone() };
            (batch.partition, batch.first, batch.last())
        })
    }

    #[test]
    fn partitions_take_turns_and_numbers_are_consecutive() {
        let (mut sequencer, mut last) = (Sequencer::default(), Mark::default());
        for (number, partition) in (0..).zip([1, 0, 1, 2, 1]) {
            sequencer.take_in(partition, writer(number), write(1));
        }
        assert_eq!(next(&mut sequencer, &mut last), Some((1, 1, 3)));
        sequencer.take_in(1, writer(9), write(1));
        assert_eq!(next(&mut sequencer, &mut last), Some((2, 4, 4)));
        assert_eq!(next(&mut sequencer, &mut last), Some((0, 5, 5)));
        assert_eq!(next(&mut sequencer, &mut last), Some((1, 6, 6)));
        assert_eq!(next(&mut sequencer, &mut last), None);
        assert_eq!(last.highest, [5, 6, 4]);
        assert_eq!((sequencer.len(), sequencer.bytes), (0, 0));
    }

    #[test]
    fn a_batch_begins_when_the_one_before_has_ended() {
        let (mut sequencer, last) = (Sequencer::default(), Mark::default());
        sequencer.take_in(1, writer(1), write(1));
        sequencer.take_in(2, writer(2), write(1));
        assert!(sequencer.begin(&last, 3) && !sequencer.begin(&last, 3));
        assert_eq!(sequencer.into_writes().len(), 2);
    }

    #[test]
    fn a_request_that_is_here_is_not_taken_in_again_and_batches_and_queues_have_bounds() {
        let (mut sequencer, mut last) = (Sequencer::default(), Mark::default());
        for number in 0..2 * QUEUED_AT_MOST as u64 {
            sequencer.take_in(1, writer(number), write(1));
            sequencer.take_in(1, writer(number), write(1));
        }
        assert_eq!(sequencer.len(), QUEUED_AT_MOST);
        let of = |batch: Option<(u16, u64, u64)>| batch.map(|(_, first, last)| last - first + 1);
        assert_eq!(of(next(&mut sequencer, &mut last)), Some(BATCHED_AT_MOST as u64));
        while next(&mut sequencer, &mut last).is_some() {}
        for number in 0..100 {
            sequencer.take_in(1, writer(number), write(1 << 20));
        }
        assert!(sequencer.bytes <= QUEUED_BYTES_AT_MOST && sequencer.len() > 60);
        assert_eq!(of(next(&mut sequencer, &mut last)), Some(1));
    }
}

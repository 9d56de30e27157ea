//! A node's durable log, and the messages that it holds back.

use core::time::Duration;
use std::collections::VecDeque;

use serried_actor::NodeSet;
use serried_model::NodeId;

use crate::Disk;

/// Write-ahead before reply: a message that follows a record waits here until the record is durable.
pub(crate) struct SimulatedLog<R, M> {
    disk: Disk,
    /// The records from `first` on, if the disk keeps records.
    records: VecDeque<R>,
    first: u64,
    /// Trims that wait for durable records: how many must be durable, and the position to trim to.
    trims: VecDeque<(u64, u64)>,
    /// By which factor the disk is slower than usual.
    slower: u32,
    appended: u64,
    durable: u64,
    /// How many records are durable once the flush in progress is done.
    flushing: Option<u64>,
    held: VecDeque<Held<M>>,
}

struct Held<M> {
    /// How many records must be durable.
    after: u64,
    receivers: Receivers,
    message: M,
}

/// The receivers of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Receivers {
    One(NodeId),
    All(u16, NodeSet),
}

impl<R: Clone, M> SimulatedLog<R, M> {
    pub(crate) fn new(disk: Disk) -> SimulatedLog<R, M> {
        SimulatedLog {
            disk,
            records: VecDeque::new(),
            first: 0,
            trims: VecDeque::new(),
            slower: 1,
            appended: 0,
            durable: 0,
            flushing: None,
            held: VecDeque::new(),
        }
    }

    pub(crate) fn append(&mut self, record: R) {
        self.appended += 1;
        if self.disk.keep_records {
            self.records.push_back(record);
        }
        if self.disk.append.is_zero() && self.disk.flush.is_zero() {
            self.durable = self.appended;
        }
    }

    /// Whether everything appended so far is durable, so that a message may leave at once.
    pub(crate) fn is_durable(&self) -> bool {
        self.durable == self.appended
    }

    /// Holds a message until everything appended so far is durable.
    pub(crate) fn hold(&mut self, receivers: Receivers, message: M) {
        self.held.push_back(Held { after: self.appended, receivers, message });
    }

    /// Removes the first held message that may leave now.
    pub(crate) fn release(&mut self) -> Option<(Receivers, M)> {
        if self.held.front()?.after > self.durable {
            return None;
        }
        self.held.pop_front().map(|held| (held.receivers, held.message))
    }

    /// Starts a flush if there is something to flush and no flush is in progress. Returns how long it takes.
    pub(crate) fn start_flush(&mut self) -> Option<Duration> {
        if self.flushing.is_some() || self.is_durable() {
            return None;
        }
        let records = u32::try_from(self.appended - self.durable).unwrap_or(u32::MAX);
        self.flushing = Some(self.appended);
        Some((self.disk.append * records + self.disk.flush) * self.slower)
    }

    /// Makes the disk slower by `factor` from now on.
    pub(crate) fn slow_down(&mut self, factor: u32) {
        self.slower = factor.max(1);
    }

    /// Forgets the records before `position` as soon as everything appended so far is durable.
    pub(crate) fn trim(&mut self, position: u64) {
        self.trims.push_back((self.appended, position));
    }

    /// Carries out the trims that are due. Returns whether there were any.
    pub(crate) fn trim_what_is_due(&mut self) -> bool {
        let mut any = false;
        while let Some(&(after, position)) = self.trims.front() {
            if after > self.durable {
                break;
            }
            self.trims.pop_front();
            let count = position.saturating_sub(self.first).min(self.records.len() as u64);
            self.records.drain(..count as usize);
            self.first += count;
            any = true;
        }
        any
    }

    /// Ends the flush in progress.
    pub(crate) fn end_flush(&mut self) {
        self.durable = self.flushing.take().expect("a flush that ends was started");
    }

    /// How many appended records are not durable yet.
    pub(crate) fn unflushed(&self) -> u64 {
        self.appended - self.durable
    }

    /// Loses every held message and all records that were not durable, except the first `kept` of them, which the disk may
    /// have written already.
    pub(crate) fn crash(&mut self, kept: u64) {
        self.durable += kept.min(self.unflushed());
        self.records.truncate((self.durable - self.first.min(self.durable)) as usize);
        self.appended = self.durable;
        self.flushing = None;
        self.held.clear();
        self.trims.clear();
    }

    /// Loses everything.
    pub(crate) fn lose(&mut self) {
        self.crash(0);
        self.records.clear();
        (self.first, self.appended, self.durable) = (0, 0, 0);
    }

    /// The records before this position are durable. `u64::MAX` if records are durable as soon as they are appended.
    pub(crate) fn durable_position(&self) -> u64 {
        match self.disk.append.is_zero() && self.disk.flush.is_zero() {
            true => u64::MAX,
            false => self.durable,
        }
    }

    /// How many records are durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// How many records were ever appended. A crash reduces it to the records that are left.
    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// The records in the order in which they were appended. After a crash these are the ones that are left.
    pub(crate) fn records(&self) -> impl Iterator<Item = &R> {
        self.records.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Disk = Disk {
        append: Duration::from_micros(1),
        flush: Duration::from_micros(100),
        keep_records: true,
    };

    fn released<R: Clone>(log: &mut SimulatedLog<R, char>) -> String {
        core::iter::from_fn(|| log.release()).map(|(_, message)| message).collect()
    }

    #[test]
    fn a_record_appended_during_a_flush_is_part_of_the_next() {
        let mut log = SimulatedLog::new(DISK);
        let receivers = Receivers::One(NodeId(0));
        log.append(1);
        log.hold(receivers, 'a');
        assert_eq!(log.start_flush(), Some(Duration::from_micros(101)));
        log.append(2);
        log.append(3);
        log.hold(receivers, 'b');
        assert_eq!(log.start_flush(), None);
        log.end_flush();
        assert_eq!(released(&mut log), "a");
        assert_eq!(log.start_flush(), Some(Duration::from_micros(102)));
        log.end_flush();
        assert_eq!(released(&mut log), "b");
        assert!(log.is_durable() && log.start_flush().is_none());
    }

    #[test]
    fn a_crash_keeps_durable_records_and_those_already_written() {
        let mut log = SimulatedLog::new(DISK);
        log.append(1);
        log.start_flush();
        log.append(2);
        log.end_flush();
        log.append(3);
        log.hold(Receivers::One(NodeId(0)), 'a');
        log.crash(1);
        assert_eq!(released(&mut log), "");
        assert_eq!(log.records().collect::<Vec<_>>(), [&1, &2]);
        assert!(log.is_durable());
        log.append(4);
        log.crash(0);
        assert_eq!(log.records().collect::<Vec<_>>(), [&1, &2]);
    }

    #[test]
    fn a_trim_waits_for_what_was_appended_before_it() {
        let mut log: SimulatedLog<i32, char> = SimulatedLog::new(DISK);
        log.append(1);
        log.start_flush();
        log.end_flush();
        log.append(2);
        log.trim(1);
        assert!(!log.trim_what_is_due());
        log.start_flush();
        log.append(3);
        log.end_flush();
        assert!(log.trim_what_is_due());
        assert_eq!(log.records().collect::<Vec<_>>(), [&2, &3]);
        log.crash(0);
        assert_eq!((log.records().collect::<Vec<_>>(), log.appended()), (vec![&2], 2));
    }
}

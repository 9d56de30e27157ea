//! Programs under the queues: pieces of stored procedures.
//!
//! A program is executed when it arrives, at the tails of the queues of the rows that it reaches. What it reads and writes of a
//! row is one logical request (003 §5.1). If what it has read is aborted, what it has written and returned is wrong as well.
//! Then the whole transaction is withdrawn and executed again at the tails of the queues, before anything of it was
//! answered (003 §5.2, "fixing reads locally"). So are those that have read what it had written, directly or through others.
//! All are withdrawn before the first is executed again, so that no two of them go on reading what the other one gives up.
//! If a response of a transaction was sent, the transaction is refused instead.

use std::collections::BTreeSet;

use serried_model::{Key, Value, Version};
use smallvec::SmallVec;

use super::chain::Origin;
use super::queues::{Access, Queues, Txn};
use crate::frameworks::shard::{Desk, Program, RunsCalls, Stamp, run};

impl<const READ_ONLY: bool> Queues<READ_ONLY> {
    /// Runs the program of a shot; else the key at which that can't be done.
    pub(super) fn run_program(
        &mut self,
        txn: Version,
        number: u16,
        program: &dyn Program,
        desk: &mut Desk<'_>,
    ) -> Result<(), Key> {
        let mut obstacle = None;
        let done = run(program, &mut |key, _| {
            desk.read_row();
            let value = self.read_row(txn, number, key, desk);
            if value.is_none() {
                obstacle = Some(key.clone());
            }
            value
        });
        let Some((ran, writes)) = done else {
            return Err(obstacle.expect("a read has ended the run"));
        };
        for (key, value) in writes {
            self.write_row(txn, number, &key, value, desk).ok_or(key)?;
        }
        self.txns.get_or_default(&txn).results.set(number, ran);
        Ok(())
    }

    /// Reads a row for a program. `None` if that might wait for one who waits for this transaction.
    fn read_row(
        &mut self,
        txn: Version,
        number: u16,
        key: &Key,
        desk: &mut Desk<'_>,
    ) -> Option<Option<Value>> {
        let before = self.txns.get_or_default(&txn).access(key).and_then(|access| access.version());
        let stamp = match before {
            Some(stamp) => stamp,
            None => {
                let read = self.read(txn, key, desk)?;
                let stamp = read.stamp;
                let own = self.txns.get_or_default(&txn);
                let access = own.access_at(key, number);
                access.read = Some(read);
                stamp
            }
        };
        match self.chain(key, desk).of(stamp) {
            Some(link) => Some(link.value.clone()),
            // It was committed, and nothing has come after it.
            None => {
                let newest = desk.row(key).newest();
                (newest.stamp == stamp).then(|| newest.value.clone())
            }
        }
    }

    /// Writes a row that the transaction has read.
    fn write_row(
        &mut self,
        txn: Version,
        number: u16,
        key: &Key,
        value: Option<Value>,
        desk: &mut Desk<'_>,
    ) -> Option<()> {
        let written = self.txns.get_or_default(&txn).access(key).and_then(|access| access.written);
        let written = match written {
            Some(stamp) => {
                // Another transaction may have read what an earlier shot has written.
                let link = self.chain(key, desk).of(stamp)?;
                if !link.readers.is_empty() {
                    return None;
                }
                link.value = value;
                stamp
            }
            None => self.write(txn, key, (value, Origin::Given), desk)?,
        };
        let access = self.txns.get_or_default(&txn).access_at(key, number);
        access.written = Some(written);
        access.released = false;
        access.shot = number;
        Some(())
    }

    /// A transaction that has run programs is over.
    pub(super) fn end_call(
        &mut self,
        txn: Version,
        mut own: Txn,
        committed: Option<Stamp>,
        desk: &mut Desk<'_>,
    ) {
        let mut readers = Vec::new();
        for access in &mut own.accesses {
            let Some(chain) = self.chains.get_mut(&access.key) else { continue };
            if let (Some(_), Some(at)) = (access.written, committed) {
                chain.remove_reader(txn);
                chain.commit(txn, at);
                self.place(txn, &access.key, true);
            } else {
                if committed.is_some() {
                    self.place(txn, &access.key, false);
                }
                readers.extend(self.withdraw_access(txn, access));
            }
        }
        let mut keys: BTreeSet<Key> = own.accesses.into_iter().map(|access| access.key).collect();
        self.execute_again(readers, &mut keys, desk);
        self.tidy(keys, desk);
    }

    /// Withdraws what a transaction has done to a row. Returns those who have read what it had written there.
    fn withdraw_access(&mut self, txn: Version, access: &mut Access) -> SmallVec<[Version; 2]> {
        let (read, written) = (access.read.take(), access.written.take());
        access.released = false;
        let Some(chain) = self.chains.get_mut(&access.key) else { return SmallVec::new() };
        if read.is_some() {
            chain.remove_reader(txn);
        }
        let aborted = written.and_then(|_| chain.abort(txn));
        aborted.map_or_else(SmallVec::new, |(readers, _)| readers)
    }

    /// Executes transactions again of which a read was aborted, and those that have read what they have written. Adds the
    /// rows that they leave to `keys`.
    fn execute_again(
        &mut self,
        mut readers: Vec<Version>,
        keys: &mut BTreeSet<Key>,
        desk: &mut Desk<'_>,
    ) {
        let mut all = BTreeSet::new();
        while let Some(txn) = readers.pop() {
            if !all.insert(txn) {
                continue;
            }
            let Some(mut own) = self.txns.remove(&txn) else { continue };
            for access in &mut own.accesses {
                keys.insert(access.key.clone());
                readers.extend(self.withdraw_access(txn, access));
            }
            own.is_withdrawn = true;
            self.txns.insert(txn, own);
        }
        // The oldest first, so that fewer would wait for younger ones.
        for txn in &all {
            self.run_again(*txn, keys, desk);
        }
        for txn in all {
            self.release(txn, desk);
        }
    }

    fn run_again(&mut self, txn: Version, keys: &mut BTreeSet<Key>, desk: &mut Desk<'_>) {
        let Some(own) = self.txns.get(&txn) else { return };
        let programs = own.programs.clone();
        let mut obstacle = None;
        if own.was_released || own.is_inherited {
            obstacle = own.accesses.first().map(|access| access.key.clone());
            obstacle.get_or_insert_with(|| Key::from(""));
        }
        for (number, program) in programs {
            if obstacle.is_none() {
                obstacle = self.run_program(txn, number, &*program, desk).err();
            }
        }
        let Some(own) = self.txns.get_mut(&txn) else { return };
        own.is_withdrawn = false;
        let has_part = own.has_part;
        keys.extend(own.accesses.iter().map(|access| access.key.clone()));
        match obstacle {
            None if has_part => desk.executed(txn),
            None => {}
            Some(key) => {
                // Nobody has read yet what it may have written.
                if let Some(mut own) = self.txns.remove(&txn) {
                    for access in &mut own.accesses {
                        self.withdraw_access(txn, access);
                    }
                }
                desk.refused(txn, vec![key]);
            }
        }
    }

    /// Forgets rows whose transactions are all over, and answers what can be answered at the others.
    pub(super) fn tidy(&mut self, keys: BTreeSet<Key>, desk: &mut Desk<'_>) {
        for key in keys {
            let Some(chain) = self.chains.get(&key) else { continue };
            if chain.is_over() {
                self.chains.remove(&key);
                continue;
            }
            for next in chain.first_in_line() {
                self.release(next, desk);
            }
        }
    }
}

impl RunsCalls for Queues<false> {
    const NAME: &'static str = "ncc-procedures";
    const SUMMARY: &'static str = "procedures whose pieces are executed at once in the order of arrival, and answered when that is safe";
}

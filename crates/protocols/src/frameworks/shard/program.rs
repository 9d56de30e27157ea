//! Programs: what a leader executes for a transaction beside reads and writes of known keys.
//!
//! A program reads rows, and writes some of them. The leader runs it where the rows are, so reading and writing takes one round
//! trip. The concurrency control says what each read finds, and takes the writes. So every control runs programs under its
//! own rules. A control may run a program again from its start: because it has waited for the lock of a row, or because what
//! the program has read was aborted. A run that is not the last has no effect.

use core::fmt;
use std::collections::BTreeMap;

use serried_model::{Key, Value};
use smallvec::SmallVec;

use super::calls::Ran;

#[cfg(test)]
mod tests;

/// Code that a leader runs. It depends on its rows alone.
pub trait Program: fmt::Debug + Send + Sync {
    /// The rows that it uses, whatever they hold; each once.
    fn known(&self) -> &[Use];

    /// Runs on these rows.
    fn run(&self, rows: &mut Rows<'_>) -> Ran;
}

/// The use of a row by a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Use {
    /// The row.
    pub key: Key,
    /// Whether the program may write it.
    pub writes: bool,
}

/// What a control answers to a read: the value, which is `None` for an absent row. No answer ends the run.
pub type Answer = Option<Option<Value>>;

/// The rows as a program sees them, with what it has written.
pub struct Rows<'a> {
    read: &'a mut dyn FnMut(&Key, bool) -> Answer,
    seen: BTreeMap<Key, Seen>,
    is_stopped: bool,
}

struct Seen {
    value: Option<Value>,
    may_write: bool,
    is_written: bool,
}

impl Rows<'_> {
    /// Whether the control has given no answer. Then the run has no effect, however it goes on.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Reads a row. `may_write` is whether the program may write it later. After the control has given no answer, every row
    /// is absent, and the run has no effect.
    pub fn read(&mut self, key: &Key, may_write: bool) -> Option<Value> {
        // A row that is to be written may have been read by a piece that only reads.
        if let Some(seen) = self.seen.get(key).filter(|seen| seen.may_write || !may_write) {
            return seen.value.clone();
        }
        if self.is_stopped {
            return None;
        }
        let Some(value) = (self.read)(key, may_write) else {
            self.is_stopped = true;
            return None;
        };
        let seen = Seen { value: value.clone(), may_write, is_written: false };
        self.seen.insert(key.clone(), seen);
        value
    }

    /// Writes or deletes a row. It is read first, so that a read and a write are one request of the row.
    pub fn write(&mut self, key: Key, value: Option<Value>) {
        self.read(&key, true);
        if !self.is_stopped {
            self.seen.insert(key, Seen { value, may_write: true, is_written: true });
        }
    }
}

/// What a program does to rows: a value for each, or `None` if it deletes the row.
pub type Writes = Vec<(Key, Option<Value>)>;

/// Runs a program. `read` answers its reads. It is called once for each row, and once more if a row that was only read is to
/// be written. Returns what the program returns, and what it writes: nothing if it refuses. Returns `None` if `read` gave no answer.
pub fn run(
    program: &dyn Program,
    read: &mut dyn FnMut(&Key, bool) -> Answer,
) -> Option<(Ran, Writes)> {
    let mut rows = Rows { read, seen: BTreeMap::new(), is_stopped: false };
    let ran = program.run(&mut rows);
    if rows.is_stopped {
        return None;
    }
    let written = rows.seen.into_iter().filter(|(_, seen)| seen.is_written);
    let writes = match ran.refused {
        None => written.map(|(key, seen)| (key, seen.value)).collect(),
        Some(_) => Writes::new(),
    };
    Some((ran, writes))
}

/// What the programs of a transaction have returned, by the numbers of their shots.
#[derive(Debug, Default)]
pub struct Results(SmallVec<[(u16, Ran); 1]>);

impl Results {
    /// The program of a shot has returned this; in place of what it had returned before.
    pub fn set(&mut self, shot: u16, ran: Ran) {
        self.0.retain(|(number, _)| *number != shot);
        self.0.push((shot, ran));
    }

    /// What the program of a shot has returned, or what all programs have.
    pub fn of(&self, shot: Option<u16>) -> Ran {
        let mut all = Ran::default();
        for (_, ran) in self.0.iter().filter(|(number, _)| shot.is_none_or(|shot| shot == *number))
        {
            all.add(ran);
        }
        all
    }
}

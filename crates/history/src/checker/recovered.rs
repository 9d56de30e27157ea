//! The recovered history of one key: its versions in order, and the readers of each.

use super::transaction::{Access, Context};
use super::{Installed, Violation};
use crate::{MicroOperation, ReadResult};

/// Why a key's history could not be recovered.
pub(super) enum Problem {
    /// No order of versions explains what was read.
    Violation(Box<Violation>),
    /// The history has too little information. This says what is missing.
    Unknown(String),
}

/// One version of a key.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) transaction: u32,
    pub(super) installed: Installed,
}

/// A committed transaction that read the key before it wrote to it.
#[derive(Clone, Copy)]
pub(super) struct Reader {
    pub(super) transaction: u32,
    /// It found the version before this slot, or a later one. Slot 0 comes after the initial version.
    pub(super) earliest: u32,
    /// It found the version before this slot, or an earlier one. Equal to `earliest` if the version is certain.
    pub(super) latest: u32,
}

impl Reader {
    /// A reader that found the version before `slot`.
    pub(super) fn at(transaction: u32, slot: u32) -> Reader {
        Reader { transaction, earliest: slot, latest: slot }
    }
}

/// One key's part of Adya's history: the version order, and the reads-from relation.
pub(super) struct KeyHistory {
    pub(super) key: u64,
    /// The versions. Those from `ordered` on come after all before `ordered`, but their own order is not known.
    pub(super) slots: Vec<Slot>,
    pub(super) ordered: usize,
    pub(super) readers: Vec<Reader>,
    /// Transactions of unknown outcome that took effect, because a committed one has read from them.
    pub(super) observed: Vec<u32>,
    /// Writers whose place among the versions is not known.
    pub(super) unplaced: Vec<u32>,
}

impl KeyHistory {
    /// Drops the versions of transactions that may never have taken effect.
    pub(super) fn settle(&mut self, included: &[bool]) {
        let mut kept_before = Vec::with_capacity(self.slots.len() + 1);
        let mut kept = 0;
        kept_before.push(0);
        for slot in &self.slots {
            kept += u32::from(included[slot.transaction as usize]);
            kept_before.push(kept);
        }
        for reader in &mut self.readers {
            reader.earliest = kept_before[reader.earliest as usize];
            reader.latest = kept_before[reader.latest as usize];
        }
        self.ordered = kept_before[self.ordered] as usize;
        self.slots.retain(|slot| included[slot.transaction as usize]);
    }
}

/// What a key holds.
pub(super) enum Kind {
    List,
    Register,
}

/// The kind of a key, derived from the operations on it. A key that was always absent may be either.
pub(super) fn kind(context: &Context<'_>, accesses: &[Access]) -> Result<Kind, Problem> {
    let (mut list, mut register) = (false, false);
    for access in accesses {
        match context.operation(access) {
            MicroOperation::Append { .. } => list = true,
            MicroOperation::Write { .. } => register = true,
            MicroOperation::Read { result, .. } => match result {
                ReadResult::List(_) => list = true,
                ReadResult::Register(Some(_)) => register = true,
                ReadResult::Register(None) | ReadResult::Pending => {}
            },
        }
    }
    match (list, register) {
        (true, true) => Err(Problem::Unknown(format!(
            "key {} is used both as a list and as a register: use separate keys",
            accesses[0].key
        ))),
        (true, false) => Ok(Kind::List),
        (false, _) => Ok(Kind::Register),
    }
}

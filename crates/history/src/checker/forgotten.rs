//! Reads of deleted keys, if the database has forgotten the version of the delete.
//!
//! Such a read found nothing, and has no version. It comes after the latest delete below its own version, and before
//! the next write. A delete is certain if its transaction took effect. A transaction of unknown outcome may have taken
//! effect too, at the version with which it began or a later one. Then it is not known which delete was the latest, and
//! the read comes before all writes above its own version ([`super::Deletes`]).

use serried_model::Version;

use super::recovered::{Reader, Slot};
use super::transaction::Context;

/// The transactions that may have deleted a register.
#[derive(Default)]
pub(super) struct Deletes {
    /// The versions of all writers, in order. A writer may be without a version only if it is the only one.
    versions: Vec<Option<Version>>,
    /// The certain deletes: their versions, and the slots after theirs.
    certain: Vec<(Version, u32)>,
    /// The versions of the uncertain deletes, if they have one.
    uncertain: Vec<Option<Version>>,
}

/// The effect of a transaction that may have written to a register.
pub(super) enum Effect {
    /// It left a value there, if it took effect.
    Value,
    /// It deleted the register for certain.
    Deleted,
    /// It may have deleted the register.
    MayHaveDeleted,
}

impl Deletes {
    /// `slots` are the register's slots in order. `others` are further transactions that may have written to it.
    /// `effect` returns the effect of each.
    pub(super) fn new(
        context: &Context<'_>,
        slots: &[Slot],
        others: impl Iterator<Item = u32>,
        effect: impl Fn(u32) -> Effect,
    ) -> Deletes {
        let mut deletes = Deletes::default();
        for (next, slot) in (1..).zip(slots) {
            let version = context.at(slot.transaction).version;
            deletes.versions.push(version);
            match (effect(slot.transaction), version) {
                (Effect::Value, _) => {}
                (Effect::Deleted, Some(version)) => deletes.certain.push((version, next)),
                (Effect::Deleted | Effect::MayHaveDeleted, version) => {
                    deletes.uncertain.push(version);
                }
            }
        }
        let others = others.filter(|&other| !matches!(effect(other), Effect::Value));
        deletes.uncertain.extend(others.map(|other| context.at(other).version));
        deletes
    }

    /// The position of a reader that found a forgotten delete.
    pub(super) fn reader(&self, transaction: u32, version: Option<Version>) -> Reader {
        let Some(version) = version else {
            let is_unclear = !self.certain.is_empty() || !self.uncertain.is_empty();
            let latest = if is_unclear { self.versions.len() as u32 } else { 0 };
            return Reader { transaction, earliest: 0, latest };
        };
        let before = self.certain.partition_point(|&(delete, _)| delete < version);
        let earliest = before.checked_sub(1).map_or(0, |last| self.certain[last].1);
        let latest = match self.is_uncertain_below(Some(version)) {
            true => self.count_below(version),
            false => earliest,
        };
        Reader { transaction, earliest, latest }
    }

    /// Whether any transaction may have deleted the register below `version`, or at all if there is no version.
    pub(super) fn is_any_below(&self, version: Option<Version>) -> bool {
        let is_below = |delete: Version| version.is_none_or(|version| delete < version);
        self.certain.first().is_some_and(|&(delete, _)| is_below(delete))
            || self.is_uncertain_below(version)
    }

    fn count_below(&self, version: Version) -> u32 {
        let is_below = |writer: &Option<Version>| writer.is_none_or(|writer| writer < version);
        self.versions.partition_point(is_below) as u32
    }

    fn is_uncertain_below(&self, version: Option<Version>) -> bool {
        let mut uncertain = self.uncertain.iter();
        uncertain.any(|delete| delete.zip(version).is_none_or(|(delete, version)| delete < version))
    }
}

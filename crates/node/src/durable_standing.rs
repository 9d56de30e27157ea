//! How far a replica takes part, as far as that is durable.

use serried_actor::Standing;

/// No flush has this number.
const NEVER: u64 = u64::MAX;

/// How far a replica takes part. A replica that replaces a lost disk notes in its log that it takes part fully. Before
/// that note is durable it does not count as taking part, because after a crash it would have to rejoin again. If an
/// operator gave up another disk meanwhile, because this replica seemed to take part, too many disks would be lost.
#[derive(Debug)]
pub(crate) struct DurableStanding {
    /// How far it took part when it last did not fully.
    partial: Standing,
    /// The flush that makes everything durable that it had appended when it began to take part fully.
    full_after: u64,
}

impl DurableStanding {
    /// That of a replica that has not started yet.
    pub(crate) fn new() -> DurableStanding {
        DurableStanding { partial: Standing::CatchingUp { keys: 0 }, full_after: NEVER }
    }

    /// It takes part so far now. Everything that it has appended is durable with the flush `after`.
    pub(crate) fn note(&mut self, standing: Standing, after: u64) {
        match standing {
            Standing::Full if self.full_after != NEVER => {}
            Standing::Full => self.full_after = after,
            partial => *self = DurableStanding { partial, full_after: NEVER },
        }
    }

    /// How far it takes part, after so many flushes.
    pub(crate) fn get(&self, flushed: u64) -> Standing {
        if self.full_after <= flushed { Standing::Full } else { self.partial }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_takes_part_fully_once_that_is_durable_and_as_long_as_it_does() {
        let (some, more) = (Standing::Rejoining { keys: 1 }, Standing::Rejoining { keys: 2 });
        let mut standing = DurableStanding::new();
        assert_eq!(standing.get(9), Standing::CatchingUp { keys: 0 });
        standing.note(some, 3);
        standing.note(more, 4);
        assert_eq!(standing.get(9), more);
        standing.note(Standing::Full, 5);
        assert_eq!((standing.get(4), standing.get(5)), (more, Standing::Full));
        // What it appends later does not matter.
        standing.note(Standing::Full, 7);
        assert_eq!(standing.get(5), Standing::Full);
        standing.note(some, 8);
        assert_eq!(standing.get(9), some);
    }

    #[test]
    fn where_nothing_is_appended_there_is_nothing_to_wait_for() {
        let mut standing = DurableStanding::new();
        standing.note(Standing::Full, 0);
        assert_eq!(standing.get(0), Standing::Full);
    }
}

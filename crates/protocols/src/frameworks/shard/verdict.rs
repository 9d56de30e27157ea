//! The outcome of a transaction whose parts are all ready. Every node that knows the parts comes to
//! the same result.

use serried_model::Version;

use super::stamp::{Stamp, Validity};

/// The outcome of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All parts hold at this moment, and the transaction commits at it.
    Commit(Stamp),
    /// The parts do not hold at a common moment. If all of them can be moved to this one, the
    /// transaction commits at it; otherwise it aborts (003 §5.4).
    Move(Stamp),
}

/// Decides on a transaction from the intervals in which its parts hold (003 Algorithm 5.1,
/// "SafeguardCheck").
pub fn verdict(txn: Version, parts: impl Iterator<Item = Validity>) -> Verdict {
    let all = parts.fold(Validity::ALWAYS, Validity::and);
    match all.exists() {
        true => Verdict::Commit(all.from),
        false => Verdict::Move(all.from.next_of(txn)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::NodeId;

    fn txn(us: u64) -> Version {
        Version { timestamp_us: us, coordinator: NodeId(70_000) }
    }

    fn stamp(us: u64) -> Stamp {
        Stamp { us, txn: txn(us) }
    }

    #[test]
    fn parts_that_hold_together_commit_at_the_first_such_moment() {
        let read = Validity { from: stamp(2), until: Some(stamp(9)) };
        let parts = [read, Validity::at(stamp(4))];
        assert_eq!(verdict(txn(4), parts.into_iter()), Verdict::Commit(stamp(4)));
    }

    #[test]
    fn a_verdict_after_some_parts_moved_is_the_same() {
        let own = |us| Stamp { us, txn: txn(4) };
        let parts = [Validity::at(own(4)), Validity::at(own(7))];
        let to = own(7);
        assert_eq!(verdict(txn(4), parts.into_iter()), Verdict::Move(to));
        // Of a read and a write, the write must be later than the version that was read.
        let read = Validity { from: stamp(7), until: Some(stamp(7)) };
        let parts = [read, Validity::at(own(4))];
        let to = Stamp { us: 4 + 32, txn: txn(4) };
        assert_eq!(verdict(txn(4), parts.into_iter()), Verdict::Move(to));
        let read_moved = Validity { until: Some(to), ..read };
        assert_eq!(verdict(txn(4), [read_moved, parts[1]].into_iter()), Verdict::Move(to));
        let write_moved = Validity::at(to);
        assert_eq!(verdict(txn(4), [read, write_moved].into_iter()), Verdict::Move(to));
        assert_eq!(verdict(txn(4), [read_moved, write_moved].into_iter()), Verdict::Commit(to));
    }
}

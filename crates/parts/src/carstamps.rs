//! The rules for carstamps (001 §4.2.2): which carstamp an update gets, and which of two values stays.
//!
//! A register protocol orders the updates of a key without agreeing on the order first. So two replicas that have received
//! the same updates in different orders must end with the same value, and nothing may come between a read-modify-write and
//! the update that it has read. A logical timestamp alone gives only the first. A [`Carstamp`] gives both, if everybody
//! follows the same four rules:
//!
//! | Who | Rule | 001 |
//! |---|---|---|
//! | a replica | keeps the later of two values | Algorithm 2, `APPLY`: [`Stamped::hold`] |
//! | a reader | returns the latest value of a majority | Algorithm 1, lines 4 and 5: [`Stamped::hear`] |
//! | a write | takes a greater timestamp than those of a majority | Algorithm 1, lines 14 and 15: [`WriteStamps`] |
//! | a read-modify-write | raises the `rmwc` of the latest update before it | Algorithm 4, `EXECUTE`: [`Stamped::modify`] |
//!
//! The update before a read-modify-write is the later of two: its base, on which the replicas agree
//! ([`Stamped::raise_base`]), and the result of the read-modify-write that was executed before it.

use core::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serried_model::{Carstamp, Change, Modification, NodeId, Value};

/// Above any timestamp or count that a correct participant reaches. Sums of smaller numbers do not overflow.
const NEVER: u64 = 1 << 62;

/// What a register holds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stamped {
    /// The value, or `None` where it is absent.
    pub value: Option<Value>,
    /// The place of the update that it is from.
    pub carstamp: Carstamp,
}

impl Stamped {
    /// Whether `other` is later.
    pub fn is_before(&self, other: &Stamped) -> bool {
        self.carstamp < other.carstamp
    }

    /// Holds `other` instead if that is later. Returns whether it is (001 Algorithm 2, lines 12 to 15).
    pub fn hold(&mut self, other: &Stamped) -> bool {
        self.hear(other).is_gt()
    }

    /// Takes in what a replica has replied to a reader: the later of the two stays (001 Algorithm 1, lines 4 and 5). Returns
    /// how `reply` compares with what was the latest so far. A read may end after one round if all replies were equal.
    pub fn hear(&mut self, reply: &Stamped) -> Ordering {
        let order = reply.carstamp.cmp(&self.carstamp);
        if order.is_gt() {
            *self = reply.clone();
        }
        order
    }

    /// Raises the base of a read-modify-write to `other` if that is later (001 Algorithm 4, line 5).
    pub fn raise_base(base: &mut Option<Stamped>, other: &Option<Stamped>) {
        let carstamp = |of: &Option<Stamped>| of.as_ref().map(|of| of.carstamp);
        if carstamp(base) < carstamp(other) {
            base.clone_from(other);
        }
    }

    /// Executes a read-modify-write with this base. Here is the result of the one before, and afterwards its own: `prev` in
    /// 001 Algorithm 4, lines 14 to 19. Returns the value that it found, and the carstamp that it made.
    ///
    /// If it changes nothing, it makes no carstamp of its own. The result is then the update that it has read.
    pub fn modify(&mut self, base: &Stamped, modification: &Modification) -> Stamped {
        if self.carstamp <= base.carstamp {
            *self = base.clone();
        }
        let found = self.value.clone();
        if let Ok(Change::To(value)) = modification.apply(found.as_ref()) {
            *self = Stamped { value, carstamp: self.carstamp.next_rmw() };
        }
        Stamped { value: found, carstamp: self.carstamp }
    }
}

/// The carstamps that one client gives to its writes.
#[derive(Debug, Default)]
pub struct WriteStamps {
    /// The latest timestamp that was given.
    latest: u64,
}

impl WriteStamps {
    /// The carstamp of a write by `writer`. `latest` is the latest carstamp of a majority (001 Algorithm 1, lines 14 and 15).
    ///
    /// A client may have several writes under way. If two of them find the same, they must not get the same carstamp, so
    /// the timestamps that a client gives always rise.
    pub fn after(&mut self, latest: Carstamp, writer: NodeId) -> Carstamp {
        self.latest = self.latest.max(latest.timestamp) + 1;
        Carstamp { timestamp: self.latest, writer, rmwc: 0 }
    }
}

/// Whether a correct participant can have sent a carstamp.
pub fn is_sound(carstamp: &Carstamp) -> bool {
    carstamp.timestamp < NEVER && carstamp.rmwc < NEVER
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(value: &str, timestamp: u64, rmwc: u64) -> Stamped {
        let carstamp = Carstamp { timestamp, writer: NodeId(7), rmwc };
        Stamped { value: Some(Value::from(value)), carstamp }
    }

    #[test]
    fn replicas_hold_the_same_in_whatever_order_updates_arrive() {
        let updates = [stamped("a", 1, 0), stamped("b", 1, 2), stamped("c", 2, 0)];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut held = Stamped::default();
            let changed = order.map(|at: usize| held.hold(&updates[at]));
            assert_eq!((&held, changed[0]), (&updates[2], true), "{order:?}");
            assert!(!held.hold(&updates[2]));
        }
    }

    #[test]
    fn a_reader_keeps_the_latest_reply_and_sees_how_each_compares() {
        let mut latest = stamped("b", 2, 0);
        assert_eq!(latest.hear(&stamped("a", 1, 0)), Ordering::Less);
        assert_eq!(latest.hear(&stamped("b", 2, 0)), Ordering::Equal);
        assert_eq!(latest.hear(&stamped("c", 2, 1)), Ordering::Greater);
        assert_eq!(latest, stamped("c", 2, 1));
    }

    #[test]
    fn a_write_is_later_than_what_a_majority_holds_and_than_its_clients_others() {
        let mut stamps = WriteStamps::default();
        let found = stamped("a", 3, 9).carstamp;
        let first = stamps.after(found, NodeId(1));
        let second = stamps.after(found, NodeId(1));
        assert!(found < first && first < second);
        assert_eq!((first.rmwc, stamps.after(Carstamp::INITIAL, NodeId(1)).timestamp), (0, 6));
    }

    #[test]
    fn a_read_modify_write_follows_the_later_of_its_base_and_the_one_before() {
        let add = Modification::add(1);
        let mut previous = Stamped::default();
        let base = stamped("10", 3, 0);
        assert_eq!(previous.modify(&base, &add), stamped("10", 3, 1));
        assert_eq!(previous.modify(&base, &add), stamped("11", 3, 2));
        let later = stamped("50", 4, 0);
        assert_eq!(previous.modify(&later, &add), stamped("50", 4, 1));
        assert_eq!(previous, stamped("51", 4, 1));
        let swap = Modification::CompareAndSwap { expected: None, new: None };
        assert_eq!(previous.modify(&base, &swap), stamped("51", 4, 1));
        assert_eq!(previous, stamped("51", 4, 1), "it changes nothing");
    }

    #[test]
    fn a_base_is_only_raised_and_any_is_later_than_none() {
        let (earlier, later) = (Some(stamped("a", 1, 0)), Some(stamped("b", 1, 1)));
        let mut base = None;
        for (other, expected) in
            [(&None, &None), (&earlier, &earlier), (&later, &later), (&earlier, &later)]
        {
            Stamped::raise_base(&mut base, other);
            assert_eq!(&base, expected);
        }
    }

    #[test]
    fn a_carstamp_that_leaves_no_room_for_the_next_is_not_sound() {
        assert!(is_sound(&stamped("", NEVER - 1, NEVER - 1).carstamp));
        assert!(!is_sound(&stamped("", NEVER, 0).carstamp));
        assert!(!is_sound(&stamped("", 0, NEVER).carstamp));
    }
}

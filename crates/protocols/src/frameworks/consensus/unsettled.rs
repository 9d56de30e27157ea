//! Values that a client has read and that a majority may not hold yet (001 §4.6.2).
//!
//! The client sends each such value to a majority in the background. [`gryff`](crate::gryff)
//! explains why operations on other keys wait for this.
//!
//! # Bounds
//! There are at most two values for each key: the one that is being sent to a majority, and the
//! latest one that was read since. The number of keys is at most the number of operations that the
//! client has had under way at once. While there is a value, operations that begin on other keys
//! wait and read nothing. So all keys here were read by operations that were under way when the
//! oldest value was read.

use std::collections::BTreeMap;

use serried_model::Key;
use serried_parts::{Asked, Quorums, Stamped};

/// A point in time, as the number of values that had been entered until then.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Moment(u64);

/// The values that one client has read, and that less than a majority may hold.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    values: BTreeMap<Key, Unheld>,
    now: Moment,
    requests: u64,
}

/// The values of one key.
#[derive(Debug)]
struct Unheld {
    settling: Settling,
    /// A later value that was read since, if any.
    next: Option<Entered>,
}

/// A value, and when it was entered. If it has replaced earlier values, this is when the first of
/// them was entered.
#[derive(Debug)]
struct Entered {
    stamped: Stamped,
    since: Moment,
}

/// A value that is being sent to a majority.
#[derive(Debug)]
pub(super) struct Settling {
    /// Identifies the request.
    pub(super) request: u64,
    pub(super) asked: Asked,
    entered: Entered,
}

impl Settling {
    /// The value.
    pub(super) fn stamped(&self) -> &Stamped {
        &self.entered.stamped
    }
}

/// The consequences of values being held by a majority.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Settled {
    /// Requests that need no further answers.
    pub(super) over: Vec<u64>,
    /// Requests to send now.
    pub(super) begun: Vec<u64>,
}

impl Unsettled {
    /// The current moment.
    pub(super) fn now(&self) -> Moment {
        self.now
    }

    /// Enters a value that the client has read and that less than a majority may hold. Returns the
    /// request to send, unless the value has to wait for an earlier one of its key.
    pub(super) fn enter(&mut self, key: Key, stamped: Stamped, quorums: &Quorums) -> Option<u64> {
        let since = self.now;
        self.now.0 += 1;
        let Some(unheld) = self.values.get_mut(&key) else {
            let settling = settling(&mut self.requests, &key, Entered { stamped, since }, quorums);
            let request = settling.request;
            self.values.insert(key, Unheld { settling, next: None });
            return Some(request);
        };
        if stamped.carstamp <= unheld.settling.stamped().carstamp {
            return None; // A majority that holds the later one is enough.
        }
        let next = unheld.next.get_or_insert_with(|| Entered { stamped: stamped.clone(), since });
        if next.stamped.carstamp < stamped.carstamp {
            next.stamped = stamped;
        }
        None
    }

    /// Whether a value of another key was entered before `before`.
    pub(super) fn has_other(&self, key: &Key, before: Moment) -> bool {
        let is_other = |(other, unheld): (&Key, &Unheld)| {
            other != key && unheld.settling.entered.since < before
        };
        self.values.iter().any(is_other)
    }

    /// The latest value of a key.
    pub(super) fn of(&self, key: &Key) -> Option<&Stamped> {
        let unheld = self.values.get(key)?;
        Some(unheld.next.as_ref().map_or(unheld.settling.stamped(), |next| &next.stamped))
    }

    /// The latest values of all keys.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, &Stamped)> {
        self.values.keys().filter_map(|key| Some((key, self.of(key)?)))
    }

    /// Records that a majority holds these values.
    pub(super) fn are_held(&mut self, held: &[(Key, Stamped)], quorums: &Quorums) -> Settled {
        let mut settled = Settled::default();
        for (key, stamped) in held {
            let Some(unheld) = self.values.get_mut(key) else { continue };
            if stamped.carstamp < unheld.settling.stamped().carstamp {
                continue;
            }
            settled.over.push(unheld.settling.request);
            let next = unheld.next.take();
            match next.filter(|next| stamped.carstamp < next.stamped.carstamp) {
                Some(next) => {
                    unheld.settling = settling(&mut self.requests, key, next, quorums);
                    settled.begun.push(unheld.settling.request);
                }
                None => drop(self.values.remove(key)),
            }
        }
        settled
    }

    /// The key and the value of a request, if the request is open.
    pub(super) fn settling(&mut self, request: u64) -> Option<(&Key, &mut Settling)> {
        let mut all = self.values.iter_mut().map(|(key, unheld)| (key, &mut unheld.settling));
        all.find(|(_, settling)| settling.request == request)
    }
}

/// A new request that sends a value to a majority of its key's replicas.
fn settling(requests: &mut u64, key: &Key, entered: Entered, quorums: &Quorums) -> Settling {
    // These requests count down from the greatest number, so they share no number with an
    // operation.
    *requests += 1;
    let request = u64::MAX - *requests;
    let asked = quorums.ask(quorums.group().partition_of(key), serried_actor::NodeSet::EMPTY);
    Settling { request, asked, entered }
}

#[cfg(test)]
mod tests {
    use serried_actor::Group;
    use serried_model::{Carstamp, NodeId, Value};

    use super::*;

    fn quorums() -> Quorums {
        Quorums::new(Group::new(3, core::time::Duration::ZERO), false)
    }

    fn stamped(timestamp: u64) -> Stamped {
        let carstamp = Carstamp { timestamp, writer: NodeId(0), rmwc: 0 };
        Stamped { value: Some(Value::from("v")), carstamp }
    }

    fn key(name: &str) -> Key {
        Key::from(name)
    }

    #[test]
    fn an_operation_waits_until_earlier_values_of_other_keys_are_held() {
        let (mut unsettled, quorums) = (Unsettled::default(), quorums());
        let before = unsettled.now();
        unsettled.enter(key("x"), stamped(5), &quorums).expect("a request");
        let after = unsettled.now();
        assert!(!unsettled.has_other(&key("y"), before) && unsettled.has_other(&key("y"), after));
        assert!(!unsettled.has_other(&key("x"), after));
        assert!(unsettled.are_held(&[(key("x"), stamped(4))], &quorums) == Settled::default());
        assert!(unsettled.has_other(&key("y"), after));
        assert_eq!(unsettled.are_held(&[(key("x"), stamped(6))], &quorums).over.len(), 1);
        assert!(!unsettled.has_other(&key("y"), after) && unsettled.of(&key("x")).is_none());
    }

    #[test]
    fn of_each_key_two_values_are_kept_however_many_are_read() {
        let (mut unsettled, quorums) = (Unsettled::default(), quorums());
        let first = unsettled.enter(key("x"), stamped(5), &quorums).expect("a request");
        for timestamp in [4, 6, 9, 8] {
            assert_eq!(unsettled.enter(key("x"), stamped(timestamp), &quorums), None);
        }
        let after = unsettled.now();
        assert_eq!(unsettled.of(&key("x")), Some(&stamped(9)));
        assert_eq!(unsettled.settling(first).map(|(_, s)| s.stamped().clone()), Some(stamped(5)));
        let settled = unsettled.are_held(&[(key("x"), stamped(5))], &quorums);
        assert_eq!((settled.over, settled.begun.len()), (vec![first], 1));
        let second = settled.begun[0];
        assert_eq!(unsettled.settling(second).map(|(_, s)| s.stamped().clone()), Some(stamped(9)));
        // 6 was entered before `after`. An operation that began at `after` waits for 9, which has
        // replaced it.
        assert!(unsettled.has_other(&key("y"), after));
        assert_eq!(unsettled.are_held(&[(key("x"), stamped(9))], &quorums).over, [second]);
        assert_eq!(unsettled.all().count(), 0);
    }

    #[test]
    fn a_later_value_blocks_what_the_one_that_it_replaces_blocked() {
        let (mut unsettled, quorums) = (Unsettled::default(), quorums());
        unsettled.enter(key("x"), stamped(5), &quorums).expect("a request");
        unsettled.enter(key("x"), stamped(6), &quorums);
        let after = unsettled.now();
        unsettled.enter(key("x"), stamped(9), &quorums);
        // 5 is held. 6, which was read before that operation began, is covered once 9 is held.
        assert_eq!(unsettled.are_held(&[(key("x"), stamped(5))], &quorums).begun.len(), 1);
        assert!(unsettled.has_other(&key("y"), after));
        unsettled.are_held(&[(key("x"), stamped(9))], &quorums);
        assert!(!unsettled.has_other(&key("y"), after));
    }
}

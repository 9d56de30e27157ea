//! Gryff-RSC: reads end after one round (001 §4.6, Algorithms 8 to 10).
//!
//! A read returns the latest value of a majority, even if few hold it, and does not wait for a second round.
//! Such a value is *unsettled* for the client that has read it until the client knows that a majority holds it
//! or a later one.
//!
//! # The paper's way is not regular sequential across keys
//! In Algorithm 8 the client brings an unsettled value `d` along with the first phase of its next operation,
//! whatever its key is, and clears it when that phase ends. A majority does hold `d` then. But the phase has
//! read the other key before, replica by replica. This is an execution of Algorithms 8 and 9 with replicas 1, 2
//! and 3; `x` and `y` are absent at first:
//!
//! ```text
//! W writes x      Write2 has reached replica 2, and no other
//! A reads x       1 and 2 answer: A finds W's value, and d = x
//! A reads y       Read(y, d) has reached replica 2, which answers that y is absent
//! B writes y      Write1 at 1 and 3, Write2 at 2 and 3; B's write ends
//! B reads x       1 and 3 answer: B finds x absent
//! A reads y       Read(y, d) reaches replica 1, which takes d and answers that y is absent; A's read ends
//! ```
//!
//! W's write comes before A's read of `x`, which found it. That comes before A's read of `y`, by A's process
//! order. That comes before B's write of `y`, which it did not find. That comes before B's read of `x`, by B's
//! process order. And that comes before W's write, which it did not find. No order of all operations exists. With
//! a write of `y` in the place of A's second operation, and with read-modify-writes, it is the same.
//! `tests/rsc_exploration.rs` finds these executions, among all of a model of the algorithms.
//!
//! # What is done here
//! - A client has a majority hold an unsettled value *in the background*: it sends `Apply`, and repeats it until
//!   a majority has answered.
//! - An operation *on another key*, of any kind and in any partition, sends nothing before a majority holds all
//!   values that were unsettled when it began.
//! - An operation *on the same key* goes at once and brings the value, as printed. When its first phase has
//!   ended, or when its read-modify-write has been executed by a majority, the value is settled as well.
//!
//! So a read sends one round of its own. It may have to wait before, if its client has read another key shortly
//! before and found what few held.
//!
//! ```text
//! client              proxy                 others
//!   | Request(read x) -->| Read1(held) -------->|
//!   |                    |<-- Read1Reply(held) -|  a majority with the proxy, few of which hold the latest
//!   |<---- Unsettled ----|
//!   | Apply(x, latest) ------------------------>|  in the background
//!   |                                           |  an operation on x goes at once, bringing the latest
//!   |<------------------------------- Applied --|  from a majority
//!   | Request(read y) -->|                      |  what began on another key meanwhile goes now
//! ```
//!
//! # Process order
//! A client is one process, however many operations it has under way: an operation comes after all that had
//! ended at this client when it began. Who shares a client shares its order.
//!
//! # Why this is regular sequential
//! For a version `v` of a key, `t(v)` is the moment from which on a majority holds `v` or a later version of that
//! key; it may never come. Each operation `o` is given a point `p(o)`:
//!
//! - an update that makes `v` has `p = t(v)`;
//! - a read that finds `v`, or a read-modify-write that changes nothing, has `p = max(b, t(v))`, where `b` is the
//!   moment when it sends its first message.
//!
//! Operations are ordered by their points. Those of one key that have the same point are ordered by their
//! versions, each update before those who read it, and these by when they began. Operations on different keys
//! have the same point only if they began together or never took effect at a majority: any order will do.
//!
//! - *Each operation finds the version before it.* `t` does not decrease with the versions of a key. A read
//!   that finds `v` has `b < t(v')` for each later `v'`: if a majority had held `v'` at `b`, one of those who
//!   answered would have, as two majorities meet. So it comes before the update that makes `v'`, and not before
//!   the one that made `v`. The base of a read-modify-write is the version right before its own (001 §4.3.3).
//! - *Real time.* An update that has ended was applied or executed by a majority: `p` is not after its end. And
//!   `p` is not before `b`, for any operation. So a completed update comes before all that begins later, on any
//!   key: more than is promised.
//! - *Process order.* Let `o` end before `o'` of the same client begins. If `p(o)` is not after the end of `o`,
//!   it is before `p(o')`. Otherwise `o` has read an unsettled `v`. If `o'` is on another key, it sent nothing
//!   before the client knew that a majority held `v`: `p(o) = t(v) <= b' <= p(o')`. If it is on the same key, all
//!   who answer its first phase hold `v` before they answer, so it finds `v` or something later or makes
//!   something later: `p(o) <= p(o')` as `t` does not decrease.
//! - *Who finds what an update wrote* comes after it, as said first.
//!
//! Each relation is contained in the order, so together they have no cycle.
//!
//! # What it costs
//! An operation that waits takes up to one more round trip to a majority of the other key's partition. If that
//! partition has no majority, the client's operations on all other keys wait until they are given up: without
//! knowing what has become of the value there is no place for them in the order.
//!
//! # Where this differs from the paper
//! - *Operations on other keys wait*, as said above.
//! - *A dependency travels in the command of a read-modify-write*, not in PreAccept alone: whoever recovers
//!   the command has it held, too.
//! - *A client may have many operations under way*, and have read several unsettled values.

use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId};

use crate::consensus::{Coordinator, Message, Replica, Rules, Variant};

/// Gryff-RSC (001 §4.6): reads send one round, and what they find is given to a majority in the background.
#[derive(Debug)]
pub struct GryffRsc;

impl Protocol for GryffRsc {
    const NAME: &'static str = "gryff-rsc";
    const SUMMARY: &'static str = "regular sequential registers, whose reads send one round";
    const GUARANTEE: Guarantee = Guarantee::RegularSequential;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings, Rules::of(Variant::GryffRsc))
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Rules::of(Variant::GryffRsc))
    }
}

//! Gryff-RSC: reads end after one round (001 §4.6, Algorithms 8 to 10).
//!
//! A read returns the latest value of a majority, even if few replicas hold it, and does not wait for a second round. The
//! value is then *unsettled* for its client until the client knows that a majority holds it, or a later one.
//!
//! # The algorithms as printed are not regular sequential across keys
//! In Algorithm 8, a client sends an unsettled value `d` along with the first phase of its next operation, whatever the key
//! of that operation is. It clears `d` when the phase ends. A majority does hold `d` then. But the phase has already read
//! the other key, replica by replica. The following is an execution of Algorithms 8 and 9 with replicas 1, 2 and 3.
//! Initially `x` and `y` are absent:
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
//! No order of all operations is possible, because each of these comes before the next:
//!
//! 1. W's write of `x`;
//! 2. A's read of `x`, which found that write;
//! 3. A's read of `y`, by A's process order;
//! 4. B's write of `y`, which A's read did not find;
//! 5. B's read of `x`, by B's process order;
//! 6. W's write of `x` again, which B's read did not find.
//!
//! The same happens if A's second operation is a write of `y`, and with read-modify-writes. `tests/rsc_exploration` finds
//! these executions by exploring a model of the algorithms exhaustively.
//!
//! # The change
//! - A client gives an unsettled value to a majority *in the background*: it sends `Apply`, and repeats it until a majority
//!   has answered.
//! - An operation *on another key*, of any kind and in any partition, sends nothing until a majority holds all values that
//!   were unsettled when the operation began.
//! - An operation *on the same key* starts at once and brings the value along, as printed. When its first phase has ended, or
//!   a majority has executed its read-modify-write, the value is settled as well.
//!
//! So a read still needs one round of its own. It may have to wait before that round, if its client has just read another
//! key and found a value that few replicas hold.
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
//! A client is one process, however many operations it has under way: an operation comes after all operations that had
//! ended at this client when it began. All that share a client share its order.
//!
//! # Why this is regular sequential
//! For a version `v` of a key, let `t(v)` be the moment from which on a majority holds `v` or a later version of that key.
//! It may never come. Each operation `o` gets a point `p(o)`:
//!
//! - an update that makes `v` has `p = t(v)`;
//! - a read that finds `v`, or a read-modify-write that changes nothing, has `p = max(b, t(v))`, where `b` is the moment when
//!   it sends its first message.
//!
//! Operations are ordered by their points. Operations on one key with the same point are ordered by their versions: each
//! update comes before the operations that read it, and these are ordered by when they began. Operations on different
//! keys have the same point only if they began together or never took effect at a majority. Any order of these will do.
//!
//! - *Each operation finds the version before it.* `t` does not decrease with the versions of a key. A read that finds `v` has
//!   `b < t(v')` for each later `v'`: if a majority had held `v'` at `b`, one of the replicas that answered would have
//!   held it, because two majorities meet. So the read comes before the update that makes `v'`. It does not come before
//!   the one that made `v`. The base of a read-modify-write is the version right before its own (001 §4.3.3).
//! - *Real time.* When an update ends, a majority has applied or executed it, so `p` is not after its end. For every operation,
//!   `p` is not before `b`. So a completed update comes before every operation that begins later, on any key. This is more
//!   than regular sequential consistency requires.
//! - *Process order.* Let `o` end before `o'` of the same client begins. If `p(o)` is not after the end of `o`, it is before
//!   `p(o')`. Otherwise `o` has read an unsettled `v`. If `o'` is on another key, it sent nothing before the client knew
//!   that a majority held `v`, so `p(o) = t(v) <= b' <= p(o')`. If `o'` is on the same key, all replicas that answer its
//!   first phase hold `v` before they answer. So it finds `v` or a later version, or makes a later one, and
//!   `p(o) <= p(o')`, as `t` does not decrease.
//! - *Reads-from.* An operation that finds what an update wrote comes after it, by the first item.
//!
//! The order contains each of these relations, so together they have no cycle.
//!
//! # Cost
//! An operation that waits takes up to one more round trip, to a majority of the other key's partition. If that partition
//! has no majority, the client's operations on all other keys wait until they are given up. Without knowing whether a
//! majority holds the value, there is no place for them in the order.
//!
//! # Where this differs from the paper
//! - *Operations on other keys wait*, as said above.
//! - *A dependency travels in the command of a read-modify-write*, not only in PreAccept. So a replica that recovers the
//!   command gives the dependency to a majority, too.
//! - *A client may have many operations under way*, and may have read several unsettled values.

use serried_actor::{Group, Protocol, Settings};
use serried_model::registers::Offers;
use serried_model::{Guarantee, NodeId, Registers};

use crate::frameworks::consensus::{Coordinator, Message, Replica, Rules, Variant};

/// Gryff-RSC (001 §4.6): reads take one round, and clients give what they have read to a majority in the background.
#[derive(Debug)]
pub struct GryffRsc;

impl Protocol for GryffRsc {
    const NAME: &'static str = "gryff-rsc";
    const SUMMARY: &'static str = "regular sequential registers, whose reads send one round";
    const GUARANTEE: Guarantee = Guarantee::RegularSequential;
    type Family = Registers;
    const OFFERS: Offers = Offers { rmws: true };
    const FORGETS_BY_CLIENT_CLOCKS: bool = true;
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

//! A replicated log: multi-decree Paxos with a stable leader, sans I/O, on the seam of the drivers.
//!
//! ```text
//! leader                                     followers
//!   | Accept(b, first, chosen, entries) -------->|   appended to the durable log on both sides before
//!   |<------------------- Accepted(b, matched) --|   it leaves; chosen once a majority has it
//!
//! candidate                                  all others
//!   | Prepare(b, from) ------------------------->|
//!   |<--- Promise(b, applied, accepted) ---------|   from a majority, itself included: it proposes what was
//!   | Accept(b, ...) --------------------------->|   accepted in the highest ballot of each open slot anew
//!
//! one that lost its disk                     all others
//!   | Rejoin(nonce) ---------------------------->|   who leads, or means to, takes a higher ballot
//!   |<------------- Standing(nonce, promised) ---|   from all; the highest is its floor
//! ```
//!
//! A [`Log`] belongs to an actor, its [`Host`], which has a variant for its messages, records and timers,
//! and to the [`Machine`] to which it hands the entries, each once and in their order. What a machine keeps
//! lies in its store in the end; a replica that lacks more than others keep of the log takes that over key by
//! key, from states of different slots: so each key's state has to say which slot it is as of, and a
//! machine passes over what it already has.
//!
//! # Invariants
//! - *One value a slot*: a leader proposes in its ballot one entry for each slot, and where a majority has told
//!   of entries accepted in lower ballots, that of the highest.
//! - *What counts is durable*: a promise and an acceptance are appended before the message that tells of them
//!   leaves.
//! - *Matched is a prefix*: `Accepted` tells of all slots below, not of single ones, so that lost, repeated and
//!   reordered messages do no harm; a later one makes up for all before.
//! - *Below `base` lies all that a lower ballot can have chosen*: the end of what a leader found when it was
//!   elected.
//! - *Found late is not chosen early*: what few have accepted can be found by a leader after the next one, and then
//!   follows that one's entries in the log. A machine to which that matters takes it out ([`Machine::revise`]).
//! - *A lost disk breaks no promise.* A replica that lost its disk answers no `Prepare`, and accepts only in
//!   ballots above the floor. Every ballot that another had begun when it answered `Rejoin` is at or below the
//!   floor, and whoever was leading or about to has abandoned that ballot: what the predecessor had promised or
//!   accepted counts nowhere any more, nor is anything accepted against it. It answers `Prepare` again when it
//!   has accepted, or taken over, all below the `base` of a leader above the floor. That leader was elected
//!   without it, by `f + 1` others, and of any entry that was chosen with the predecessor's help one of those
//!   has known; so from then on it knows all that its predecessor's vote has helped to choose.
//!
//! # What it does in time
//! A follower that has not heard of a leader for [`serried_actor::Settings::recovery_after_ms`] and two round
//! trips becomes a candidate, the lower members earlier; one that has, ignores candidates. A leader that does not
//! hear of a majority for as long gives up. In a new group member 0 is a candidate at once. A leader beats, tells
//! followers once more what they have not accepted, and with `thrifty` set sends to the nearest `f` followers alone
//! while none of them is slow; the others are told with the beats.
//!
//! # Bounds
//! A leader has 8192 entries and 4 MiB that are not chosen, at most (`OPEN_ENTRIES`, `OPEN_BYTES`), and an entry at
//! least. Of those that were applied a replica keeps 32,768 and 4 MiB, and no more than it has keys in memory
//! (`KEPT_ENTRIES`, `KEPT_BYTES`), whoever is dead; more, up to 64 MiB, only while somebody takes over its state
//! (`HELD_BYTES`). The durable log is trimmed as the machine's state gets into the store.
//!
//! # Why not a library
//! `omnipaxos` 0.2.4 needs links that are FIFO and lose only what is at their end. An `AcceptSync` does not say
//! which `Promise` it answers: one that arrives again after the follower has prepared once more in the same ballot,
//! as it does when it notices a gap, cuts off entries that it has acknowledged (its `sync_log`). The
//! leader having decided entry 7 in slot 0 with that follower's vote dies, and the other two decide another there.
//! Besides, it trims only what every replica has accepted, and else hands over the state as one message; and its
//! leader sends to all followers or to none.

mod elect;
mod lead;
mod log;
mod lost;
mod message;
mod restore;
mod slots;
#[cfg(test)]
mod tests;

pub use log::{Chosen, Host, Log, Machine};
pub use message::{Accepted, Ballot, Entries, Entry, Message, Record, Timer};

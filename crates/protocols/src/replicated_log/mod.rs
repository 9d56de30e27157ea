//! A replicated log: multi-decree Paxos with a stable leader, sans I/O, on the seam of the drivers.
//!
//! ```text
//! leader                                     followers
//!   | Accept(b, first, chosen, entries) -------->|   appended to the durable log on both sides before
//!   |<------------------- Accepted(b, matched) --|   it leaves; chosen once a majority has it
//!
//! one that hears of no leader                all others
//!   | Canvass ---------------------------------->|
//!   |<-------------------------------- Willing --|   those that hear of none either; with a majority it is a candidate
//!
//! leader that hands over                     the one that is to lead
//!   | HandOver(b) ------------------------------>|   once it has all that was proposed in b; it is a candidate
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
//! - *Matched is of one run*: `Accepted` names the run of the follower that says it and the last beat which that run has
//!   heard. A run that has heard a beat which was sent after another run was last heard of is the later one. The leader
//!   then goes by what the later one has, though it be less, and counts nothing that the former one said: a
//!   follower that has lost the end of its log is sent it again.
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
//! No promise rests on time: what follows decides who leads when, and never what is chosen.
//!
//! A leader beats, four times in the time after which it is given up: [`serried_actor::Settings::election_timeout_ms`]
//! and two round trips. A follower that has not heard of it for so long asks the others whether they have, and is
//! a candidate if a majority has not (a *pre-vote*). So one that was cut off or paused takes no ballot, and
//! the leader goes on in its own. Whoever hears of a leader ignores candidates; one that has missed three beats does
//! not. A leader that does not hear of a majority for twice that time gives up. It also tells followers once more
//! what they have not accepted, and with `thrifty` set sends to the nearest `f` followers alone while none of them is
//! slow; the others are told with the beats.
//!
//! Member `p mod n` is preferred to lead partition `p`, so that leaders are spread. In a new group it is a candidate at
//! once, and later it is the first to look for a leader. A leader that is another member hands over to it
//! when it has kept up, in one run, for 25 times as long as a leader may be silent.
//!
//! A leader *hands over* by proposing nothing more, and sending the other all that it has; then the other is a
//! candidate in a ballot of its own, as any other would be. It names the ballot of the leader that handed over, so
//! that those who hear of that leader do not ignore it. Nothing else is different: the leader leads until it promises
//! the higher ballot, and goes on to propose in its own if that does not come in time. A replica whose node is
//! about to stop hands over, or tries one after the other, and takes no ballot any more.
//!
//! # What is not believed
//! Messages that no replica can have sent are dropped (`sound.rs`): those of another member's ballot, of slots or ballots
//! that are out of reach, promises that do not show what they have to. A replica that lies within these bounds is not
//! guarded against.
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

mod canvass;
mod elect;
mod follower;
mod hand_over;
mod lead;
mod log;
mod lost;
mod message;
mod restore;
mod slots;
mod sound;
#[cfg(test)]
mod tests;

pub use log::{Chosen, Host, Log, Machine};
pub use message::{Accepted, Ballot, Entries, Entry, Message, Record, Timer};

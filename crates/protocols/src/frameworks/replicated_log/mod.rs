//! A replicated log: multi-decree Paxos with a stable leader. It is sans I/O: drivers do its input
//! and output.
//!
//! ```text
//! leader                                     followers
//!   | Accept(b, first, chosen, entries) -------->|   appended to the durable log on both sides before
//!   |<------------------- Accepted(b, matched) --|   it leaves; chosen once a majority has it
//!
//! replica without a leader                   all others
//!   | Canvass ---------------------------------->|
//!   |<-------------------------------- Willing --|   from those without a leader; with a majority it is a candidate
//!
//! leader that hands over                     its successor
//!   | HandOver(b) ------------------------------>|   once it has all that was proposed in b; it is a candidate
//!
//! candidate                                  all others
//!   | Prepare(b, from) ------------------------->|
//!   |<--- Promise(b, applied, accepted) ---------|   from a majority, itself included: for each open slot it proposes
//!   | Accept(b, ...) --------------------------->|   again what was accepted in the highest ballot
//!
//! replica that lost its disk                 all others
//!   | Rejoin(nonce) ---------------------------->|   leaders and candidates take a higher ballot
//!   |<------------- Standing(nonce, promised) ---|   from all; the highest is its floor. They also say whether they
//!   |                                            |   have lost their disks
//! ```
//!
//! A [`ReplicatedLog`] belongs to an actor, its [`Host`], which has a variant for the log's messages, records and timers. The log
//! hands its entries to a [`StateMachine`], each once and in order. The state of the machine ends up in its store. A replica that
//! lacks more of the log than the others keep copies the state key by key. Pages of the copy are from different slots. So
//! each key's state says which slot it is as of, and a machine skips entries that a state already contains.
//!
//! # Invariants
//! - *One value per slot.* A leader proposes one entry for each slot in its ballot. If a majority has reported entries that
//!   were accepted in lower ballots, it proposes the one of the highest.
//! - *Promises are durable.* A promise or an acceptance is appended before the message that reports
//!   it leaves.
//! - *Applied entries are durable here.* A replica applies a chosen entry after its own record of
//!   the entry is durable. The machine's writes to the store can survive a crash that the log's
//!   last records do not. The store would then be ahead of the log, and a replica that is alone
//!   would use the slots again.
//! - *Matched is a prefix.* `Accepted` covers all slots below `matched`, not single ones. So lost, repeated and reordered
//!   messages do no harm, and a later message makes up for all earlier ones.
//! - *Matched belongs to one run.* `Accepted` names the run of the follower, from its start to its
//!   end, and the last beat that this run has received. If a run has received a beat that was sent
//!   after another run's last answer, it is the later one of the two. Then the leader relies on the
//!   later run's progress, even if that is less, and ignores the earlier run. So the leader sends a
//!   follower the end of its log again if the follower has lost it.
//! - *`base` bounds lower ballots.* Everything that a lower ballot can have chosen lies below `base`, the end of what the
//!   leader found when it was elected.
//! - *An entry that is found late is not chosen early.* An entry that a few replicas have accepted may be found only by a leader
//!   after the next one. It then follows the entries of the leader in between. A machine to which that matters removes it
//!   ([`StateMachine::revise`]).
//! - *What is found behind a gap was not chosen.* A replica accepts entries although it lacks some before them, so the next
//!   leader may find only the later ones. They are chosen then, unless the machine removes them too. Machines whose entries
//!   rely on each other do both with [`Led`] and [`Last`].
//! - *A lost disk breaks no promise.* A replica that lost its disk answers no `Prepare`, and accepts only in ballots above the
//!   floor. Every ballot that another replica had begun when it answered `Rejoin` is at or below the floor, and leaders
//!   and candidates have abandoned these ballots. So what the predecessor has promised or accepted does not count any
//!   more, and nothing is accepted that contradicts it. The replica answers `Prepare` again when it has accepted, or
//!   taken over, everything below the `base` of a leader above the floor. That leader was elected by `f + 1` others. If an
//!   entry was chosen with the predecessor's help, one of these knew of it. So the replica then knows everything that its
//!   predecessor has helped to choose.
//! - *A group begins anew only if nothing is left.* If its host allows it, a replica that lost its disk takes full part
//!   with an empty log once all others have reported that they are blank: they have lost their disks, or have begun
//!   anew, and have accepted nothing since. A replica is not blank as soon as it has helped to choose an entry, nor is
//!   that entry's leader. So if an entry was chosen in the new log, a later replica that lost its disk hears of it, and
//!   rejoins as usual. Rounds continue above the wall clock, so ballots of the former log, which may still be on their
//!   way, are too low.
//!
//! # Timing
//! No promise depends on time. The following rules decide which replica leads when, but never which
//! entries are chosen.
//!
//! *Beats.* A follower gives up a leader after [`serried_actor::Settings::election_timeout_ms`] and
//! two round trips without a message. A leader sends four beats in that time.
//!
//! *Elections.* A follower without a leader asks the others whether they have one, and becomes a
//! candidate if a majority has none (a *pre-vote*). So a replica that was cut off or paused does
//! not take a ballot, and the leader continues in its own. A replica that has a leader ignores
//! candidates, unless it has missed three beats of the leader. A leader steps down if it has
//! received no answers from a majority for twice the time-out.
//!
//! *Repetition.* The leader repeats entries that followers have not accepted. With `thrifty` set,
//! it sends entries only to the nearest `f` followers while none of them is slow; the others get
//! them with the beats.
//!
//! *Preferred leaders.* Member `p mod n` is preferred as leader of partition `p`, so that leaders are spread over the nodes. In
//! a new group it becomes a candidate at once. Later it is the first to look for a leader. If another member leads, that
//! one hands over when the preferred member has kept up, in one run, for 25 time-outs.
//!
//! *Handing over.* The leader stops proposing and sends its successor everything that it has
//! proposed. Then the successor becomes a candidate in a ballot of its own, as any other would. Its
//! `Prepare` names the ballot of the leader that hands over, so replicas that follow this leader do
//! not ignore it. The leader leads until it promises the higher ballot. If that does not come in
//! time, it proposes again in its own ballot. A replica whose node is about to stop hands over, if
//! necessary to several others in turn, and takes no more ballots.
//!
//! # Messages that are dropped
//! Messages that no replica can have sent are dropped (`sound.rs`): those in another member's
//! ballot, slots or ballots that are out of reach, and promises that do not show what they must.
//! There is no protection from a replica that sends false messages within these bounds.
//!
//! # Bounds
//! A leader has at most 8192 entries and 4 MiB that are not chosen (`OPEN_ENTRIES`, `OPEN_BYTES`),
//! but at least one entry. A replica keeps at most 32,768 applied entries and 4 MiB of them, and no
//! more than it has keys in memory (`KEPT_ENTRIES`, `KEPT_BYTES`), whichever other replicas are
//! down. It keeps more only while another replica copies its state, up to 64 MiB (`HELD_BYTES`).
//! The durable log is trimmed as the machine's state gets into the store.
//!
//! # Why not a library
//! `omnipaxos` 0.2.4 needs links that are FIFO and lose messages only at their end. An `AcceptSync` does not say which
//! `Promise` it answers. A follower that notices a gap prepares once more in the same ballot. If an earlier `AcceptSync`
//! arrives again after that, it cuts off entries that the follower has acknowledged (its `sync_log`). Suppose that the
//! leader had decided entry 7 in slot 0 with that follower's vote, and dies. The other two then decide another entry in
//! slot 0. Besides, `omnipaxos` trims only what every replica has accepted, or else hands over the state in one message.
//! And its leader sends to all followers or to none.

mod acceptor;
mod candidate;
mod canvass;
mod clocks;
mod election;
mod failure_detector;
mod follower;
mod hand_over;
mod host;
mod leader;
mod led;
mod log;
mod lost;
mod members;
mod message;
mod recovery;
mod restore;
mod slots;
mod sound;
#[cfg(test)]
mod tests;
mod undurable;
mod write_back;

pub use candidate::SHOWN_BYTES;
pub use clocks::{Clocks, Span, Time};
pub use host::{Chosen, Host, StateMachine};
pub use led::{Last, Led};
pub use log::ReplicatedLog;
pub use message::{Accepted, Ballot, Entries, Entry, Message, Record, Timer};
pub use write_back::WriteBack;

/// The first format of data directories with the present [`Record`] and [`Led`]: see
/// [`serried_actor::Protocol::FIRST_FORMAT`]. Both have changed within format 3.
pub const FIRST_FORMAT: u32 = 4;

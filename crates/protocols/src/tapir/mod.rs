//! TAPIR: optimistic transactions over inconsistent replication (000 §5, "Baselines"; 003 §4).
//!
//! ```text
//! coordinator                      nearest replica        all replicas of each participant
//!   | Get(key) ------------------------>|                      |
//!   |<---------- GetReply(ver', val) ---|                      |   the latest value that is committed
//!   | Prepare(ver, reads, writes) ---------------------------->|   each replica validates for itself
//!   |<------------------------------- PrepareReply(vote) ------|
//!   | Finalize(ver, view, decision) -------------------------->|   only where fewer than ⌈3f/2⌉ + 1 vote to commit
//!   |<------------------- FinalizeReply(ver, view, decision) --|   the published protocol calls this Confirm
//!   | Decide(ver, decision) ---------------------------------->|
//! ```
//!
//! Replicas execute nothing in an agreed order. A replica that is asked to prepare a transaction checks it against what it
//! has committed and prepared itself, and votes. The votes of a partition's replicas are one operation of consensus: its
//! result is to commit or to abandon. A transaction commits if that is the result in each partition that it takes part in.
//!
//! None of our papers specifies TAPIR. 000 and 003 measure against it. What its authors have published is adapted here to
//! the replicas of [`morty`](crate::morty), whose replication descends from it: the record of votes, durable before they
//! are sent; consensus in views on each transaction in each partition; recovery; truncation; catching up; lost disks.
//! [`Options`] turn Morty's concurrency control off and TAPIR's on.
//!
//! # Validation
//! A transaction chooses its version when it commits: from its client's clock, and later than all versions that it has
//! read. It takes effect at that version. A replica votes
//! - *AbandonFinal* if a committed write lies between what a read has found and the transaction, or if a committed
//!   transaction has read past one of its writes (published as ABORT, and as RETRY if only its writes are too late);
//! - *AbandonTentative* if a prepared transaction stands in the way in one of these ways (published as ABSTAIN or RETRY);
//! - *Commit* otherwise. Until the decision its reads and writes are prepared.
//!
//! *Two transactions conflict if one has missed a write of the other.* All replicas judge alike whether two conflict, and
//! in which order they hear of them does not matter. So of two that conflict a replica prepares at most one at a time. For
//! that a read must say exactly what it has found. If it has found nothing, it says from which version on nothing was there,
//! since replicas forget deletes at different times. A replica that has forgotten too much to judge a read votes
//! AbandonTentative (`replica/validate_committed.rs` in `morty`).
//!
//! If all that is in the way are readers, the same reads and writes may hold at a later version, after these readers. The
//! coordinator then prepares the transaction once more there: that is the *retry at a proposed timestamp*
//! (`coordinator/versions.rs` in `morty`). The program does not run again.
//!
//! # Guarantee
//! Serializable. The order of versions explains what all transactions have read. It need not agree with real time, as
//! clients' clocks differ: `tests/inversion.rs` has the execution of 003 Fig. 3, with replicas.
//!
//! # Quorums
//! A partition has `n = 2f + 1` replicas. The result "commit" is durable there
//! - *fast*, if `F = ⌈3f/2⌉ + 1` replicas vote to commit: one round trip;
//! - *slow*, if at least `f + 1` vote to commit, and `f + 1` have accepted the coordinator's Finalize.
//!
//! "Abandon" is durable if `f + 1` replicas of the transaction's home partition have accepted it, or on a single
//! AbandonFinal vote (`morty` has the argument: it needs that a transaction with which this one conflicts has committed
//! with `f + 1` votes, from replicas that keep it prepared until they learn that it has committed).
//!
//! *No two transactions that conflict both commit.* Each needs `f + 1` votes in the partition where they conflict, fast or
//! slow, and whoever commits it knows of so many. A replica that has voted for both has had one of them prepared when it
//! was asked about the other, or has released it before. It releases only what its coordinator has abandoned.
//!
//! *A recoverer sees a fast decision.* It asks until `f + 1` replicas have entered its view. Of `F` that have voted to
//! commit, at least `F - f = ⌈f/2⌉ + 1` are among any `f + 1`, and no more than `n - F = ⌊f/2⌋` of all replicas are against
//! it.
//!
//! # Recovery
//! Any replica that has voted on a transaction, and hears nothing of its coordinator for a while, finishes it by asking the
//! participants. First the home partition, then each other one, decides in a view of the recoverer's
//! (`replica/recovery` in `morty`). With the answers of `f + 1` replicas or more, the recoverer proposes
//! 1. what was accepted in the highest view, if anything was;
//! 2. else to abandon, if one has voted AbandonFinal or has accepted to abandon it, or if more than `⌊f/2⌋` are against it:
//!    it has not committed fast, and not slowly either, as nothing was accepted;
//! 3. else to commit, if `f + 1` have voted to commit;
//! 4. else it is *in doubt*: it may have committed fast, but fewer than `f + 1` are known to have voted for it. With 3
//!    replicas this does not happen.
//!
//! *What is in doubt is neither committed nor abandoned.* To abandon it would lose a fast decision. To commit it, as a merge
//! does that goes by the number of votes among `f + 1` records alone, may commit two that conflict: with five replicas,
//! two have voted for `t` and three for `u`; `u` commits slowly, and a recoverer of `t` that hears from both of `t`'s
//! voters and one of `u`'s sees what it would see if all but that one had voted for `t`. The published merge checks such
//! transactions against each other again. Here the replicas do: the recoverer asks those that are against it to vote once
//! more ([`LateVote`](crate::morty::LateVote)). A replica that has `u` prepared looks after it meanwhile, as after
//! everything that is prepared. If `u` commits, the replica votes AbandonFinal, and rule 2 applies. If `u` aborts, it can
//! vote to commit `t`, until rule 3 applies.
//! - A late vote is safe. Rule 3 needs `f + 1` votes as ever, and a late one binds its replica like any other: it is durable,
//!   and what it prepares keeps others out. The coordinator does not receive it, and can't count it in its own view.
//!   For that, a replica does not answer the coordinator's Prepare any more once it has entered a recoverer's view.
//! - A replica that has stopped for a truncation above `t` does not vote for it: its record may have been merged without `t`.
//!   Recoverers ask at once when they are in doubt, and truncations stop above `t` much later
//!   ([`Settings::truncation_lag_ms`]). If no majority was up meanwhile, `t` may still be in doubt then, and the truncation
//!   waits for it. So its coordinator has the replicas agree that no merge from before counts any more. Then those that
//!   have stopped vote late (`replica/truncation.rs` in `morty`, "Votes below a truncation").
//! - It ends. Suppose that `t` and `u` conflict and that both are in doubt, with the answers of the same `a >= f + 1`
//!   replicas. At most `⌊f/2⌋` of these are against `t`, so at least `a - ⌊f/2⌋` have voted for it, and as many for `u`.
//!   No replica has both prepared, so `2a - 2⌊f/2⌋ <= a`, which contradicts `a >= f + 1`. So once all replicas that are up
//!   have answered both recoverers, one of the two is decided.
//! - It ends if they conflict in several partitions, too, and `t` is in doubt in one and `u` in another. While home is in
//!   doubt, the recoverer asks the other participants. One of them that has to abandon decides that in the recoverer's view,
//!   and the transaction aborts, whatever home would choose. Where `t` is in doubt with the answers of `a` replicas, at most
//!   `⌊f/2⌋` of them have voted for `u`, so more than `⌊f/2⌋` are against it, and `u` is abandoned there.
//! - A replica can be against `t` without a conflict. It has forgotten deletes that `t` may have missed, or it copies, or has
//!   copied, what lies below them. It votes to commit nevertheless if another replica, which remembers all of that, says that
//!   `t` has missed nothing there. A replica that has voted for `t` remembers it until `t` is decided, unless it copies. And if
//!   it has learned since that a delete has committed which `t` has missed, it says so, and rule 2 applies. So `t` remains in
//!   doubt only if all that are up and have voted for it have copied since, or fetched what they lacked from one that has,
//!   until one more is up. With three replicas this does not happen.
//!
//! # Views, and the merge of records
//! In the published protocol a view is one of the whole group. A view change stops all replicas, merges the records of
//! `f + 1` of them, and gives each replica the merged record. Here two things do that, and neither stops the group:
//! - *Consensus on one transaction* has views of its own, and recovery changes them.
//! - *The record as a whole* is merged in each truncation (`replica/truncation.rs` and `replica/merge.rs` in `morty`). The
//!   replicas stop voting below a version. A coordinator that changes from view to view collects the records of `f + 1`,
//!   recovers all that is undecided in them, and proposes what has committed. All adopt that, and drop their records below.
//!   Whatever may have committed has a vote in the records of every `f + 1`, and so is decided before the merge.
//!
//! Published TAPIR can lose decisions where views change. Each way to do so has an invariant here, and a mutant in
//! `tests/suite` or a test by hand that fails without it:
//! - *A decision counts votes, or acceptances, of one view only.* An acceptance names its view. A replica that has entered a
//!   recoverer's view neither votes for the coordinator nor accepts from it (`LatePrepare`).
//! - *What was accepted in a view is proposed in all later ones* (`RecoveryIgnoresFinalize`).
//! - *A prepared transaction is in the record that is merged,* though nobody has accepted a decision on it
//!   (`TruncationIgnoresVotes`).
//! - *A fast quorum has enough members in every majority* (`FastQuorumOneShort`).
//! - *Too few votes commit nothing* (`RecoveryTrustsFewVotes`).
//! - *No replica votes below a truncation that may have been merged without the vote* (`LateVotesWithoutClearing`).
//! - *Votes are durable before they are sent* (`VotesBeforeDurable`). A replica that has lost its disk takes part again
//!   when everything is settled on which it may have voted (`replica/rejoin.rs` in `morty`).
//!
//! # Where this differs from what was published
//! - *Whether a transaction commits is the only question of consensus.* The published results are four, and votes count as
//!   equal only if they are the same result. Here what is in the way is advice to the coordinator.
//! - *A write below a later write is not too late.* Published TAPIR has it retried, since its version would not be the
//!   latest. Nothing has missed it, so the order of versions remains a serial order.
//! - *A retry is a new transaction to the replicas.* So it is not made before the old one has been abandoned durably.
//! - *A single AbandonFinal vote ends a transaction* without Finalize. Where it is published, ABORT is confirmed.
//! - *The coordinator waits for a missing vote* for as long as the votes that it has took to arrive, before it takes the slow
//!   path. As in Morty, this costs at most twice the best choice.
//! - *Read-only transactions are validated like all others,* as is published.

use serried_actor::{Group, Protocol, Settings};
use serried_model::transactions::Offers;
use serried_model::{Guarantee, NodeId, Transactions};

use crate::Mutated;
use crate::morty::{Checks, Control, Coordinator, Crowds, FastQuorum, Message, Options, Replica};

/// What makes a replica of Morty one of TAPIR.
pub const OPTIONS: Options = Options {
    control: Control::Validation,
    fast_quorum: FastQuorum::ThreeQuarters,
    re_execution: false,
    provisional_votes: false,
    checks: Checks::ALL,
    crowds: Crowds::USUAL,
    mutation: Mutated::NONE,
};

/// The protocol.
#[derive(Debug)]
pub struct Tapir;

impl Protocol for Tapir {
    const NAME: &'static str = "tapir";
    const SUMMARY: &'static str =
        "optimistic validation at every replica, without a leader: aborts over conflicts";
    const GUARANTEE: Guarantee = Guarantee::Serializable;
    type Family = Transactions;
    const OFFERS: Offers = Offers { one_shots: false, past: true, modifies: false };
    const FIRST_FORMAT: u32 = 4;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings, OPTIONS)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, OPTIONS)
    }
}

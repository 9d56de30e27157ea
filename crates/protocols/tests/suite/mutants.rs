//! Protocols of which something is missing: the suite has to notice.

use std::fmt::Write;

use serried_actor::{Group, Protocol, Settings};
use serried_model::transactions::Offers;
use serried_model::{Guarantee, NodeId, Transactions, Version};
use serried_protocols::Mutated;
use serried_protocols::frameworks::shard::{self, Sharded};
use serried_protocols::frameworks::validation::{Holder, Rule, Validation};
use serried_protocols::morty::{Checks, Morty, Mutation, Options};
use serried_protocols::mvto::{Mvto, Versions};
use serried_protocols::ncc::{Ncc, Queues};
use serried_protocols::occ::Locks;
use serried_protocols::spanner::{Spanner, Timestamping};
use serried_protocols::tapir::{self, Tapir};
use serried_protocols::tapir_cc::Timestamps;
use serried_protocols::two_phase_locking::{Locking, TwoPhaseLockingWoundWait};

use crate::mixed::{CrowdedMorty, crowded};
use crate::support::seeds;
use crate::{Faults, Trial};

/// Declares a Morty of which something is missing, or a TAPIR.
macro_rules! broken {
    ($name:ident, $options:expr) => {
        broken!($name, Options::default(), $options);
    };
    ($name:ident, $coordinator:expr, $replica:expr) => {
        variant!($name, "broken on purpose", $coordinator, $replica);
    };
}

fn unchecked(checks: Checks) -> Options {
    Options { checks, ..Options::default() }
}

fn mutated(mutation: Mutation) -> Options {
    Options { mutation: Mutated::by(mutation), ..Options::default() }
}

broken!(WithoutCheck1, unchecked(Checks { missed_by_reads: false, ..Checks::ALL }));
broken!(WithoutCheck2, unchecked(Checks { missed_by_others: false, ..Checks::ALL }));
broken!(WithoutCheck3, unchecked(Checks { dirty_reads: false, ..Checks::ALL }));
broken!(VotesBeforeDurable, mutated(Mutation::VotesBeforeDurable));
broken!(ConfirmsBeforeDurable, mutated(Mutation::ConfirmsBeforeDurable));
broken!(RecoveryIgnoresFinalize, mutated(Mutation::RecoveryIgnoresFinalize));
broken!(TruncationIgnoresVotes, mutated(Mutation::TruncationIgnoresVotes));
broken!(LatePrepare, mutated(Mutation::LatePrepare));
broken!(MergesAcrossReads, mutated(Mutation::MergesAcrossReads));
broken!(
    ExecutesBeforeCommit,
    Options { mutation: Mutated::by(Mutation::ExecutesBeforeCommit), ..crowded(true) }
);

fn tapir(mutation: Mutation) -> Options {
    Options { mutation: Mutated::by(mutation), ..tapir::OPTIONS }
}

fn tapir_unchecked(checks: Checks) -> Options {
    Options { checks, ..tapir::OPTIONS }
}

broken!(TapirFastQuorumOneShort, tapir(Mutation::FastQuorumOneShort), tapir::OPTIONS);
broken!(TapirVotesBeforeDurable, tapir::OPTIONS, tapir(Mutation::VotesBeforeDurable));
broken!(TapirRecoveryIgnoresFinalize, tapir::OPTIONS, tapir(Mutation::RecoveryIgnoresFinalize));
broken!(TapirMergeDropsPrepared, tapir::OPTIONS, tapir(Mutation::TruncationIgnoresVotes));
broken!(TapirLatePrepare, tapir::OPTIONS, tapir(Mutation::LatePrepare));
broken!(
    TapirReadsUnvalidated,
    tapir::OPTIONS,
    tapir_unchecked(Checks { missed_by_reads: false, ..Checks::ALL })
);
broken!(
    TapirWritesUnvalidated,
    tapir::OPTIONS,
    tapir_unchecked(Checks { missed_by_others: false, ..Checks::ALL })
);

/// Declares a system of shards of which something is missing.
macro_rules! broken_shards {
    ($name:ident, $control:ty, $mutation:expr) => {
        struct $name;

        impl Protocol for $name {
            const NAME: &'static str = stringify!($name);
            const SUMMARY: &'static str = "broken on purpose";
            const GUARANTEE: Guarantee = <$control as shard::Control>::GUARANTEE;
            type Family = Transactions;
            const OFFERS: Offers = shard::offers::<$control>();
            const RELIES_ON_CLOCKS: bool = <$control as shard::Control>::GROUPS_DECIDE;
            type Message = shard::Message;
            type Coordinator = shard::Coordinator<$control>;
            type Replica = shard::Replica<$control>;

            fn coordinator(group: Group, settings: &Settings) -> Self::Coordinator {
                shard::Coordinator::new(group, settings)
            }

            fn replica(id: NodeId, group: Group, settings: &Settings) -> Self::Replica {
                shard::Replica::new(id, group, settings, $mutation)
            }
        }
    };
}

/// Declares a rule that is another one but for what it checks.
macro_rules! broken_rule {
    ($name:ident, $sound:ident, $check:expr) => {
        #[derive(Debug)]
        struct $name;

        impl Rule for $name {
            const NAME: &'static str = stringify!($name);
            const SUMMARY: &'static str = "broken on purpose";
            const GUARANTEE: Guarantee = $sound::GUARANTEE;
            const ROUNDS: shard::Rounds = $sound::ROUNDS;

            fn check(
                txn: Version,
                access: &shard::Access,
                row: &shard::Row,
                others: &[Holder],
            ) -> Result<(), u64> {
                let check: fn(_, &shard::Access, _, &[Holder]) -> Result<(), u64> = $check;
                check(txn, access, row, others)
            }

            fn validity(txn: Version, latest: shard::Stamp) -> shard::Validity {
                $sound::validity(txn, latest)
            }
        }
    };
}

fn not_reading(others: &[Holder]) -> Vec<Holder> {
    others.iter().map(|other| Holder { reads: false, ..*other }).collect()
}

fn not_writing(others: &[Holder]) -> Vec<Holder> {
    others.iter().map(|other| Holder { writes: false, ..*other }).collect()
}

broken_shards!(
    AnswersBeforeDurable,
    Queues<false>,
    Mutated::by(shard::Mutation::AnswersBeforeDurable)
);
broken_shards!(EndsForgotten, Queues<false>, Mutated::by(shard::Mutation::ForgetsPlaced));
broken_shards!(SnapshotsUnchecked, Queues<true>, Mutated::by(shard::Mutation::SnapshotsUnchecked));
broken_shards!(
    NoResponseTimingControl,
    Queues<false>,
    Mutated::by(shard::Mutation::NoResponseTimingControl)
);
broken_shards!(
    KeepsOldModifications,
    Queues<false>,
    Mutated::by(shard::Mutation::KeepsOldModifications)
);
broken_shards!(ModifiesTwice, Queues<false>, Mutated::by(shard::Mutation::ModifiesTwice));
broken_shards!(MovesUnchecked, Queues<false>, Mutated::by(shard::Mutation::MovesUnchecked));

broken_rule!(ReadsUnvalidated, Locks, |txn, access, row, others| {
    let (key, write) = (access.key.clone(), access.write.clone());
    Locks::check(txn, &shard::Access { key, read: None, write }, row, others)
});
broken_rule!(ReadsUnlocked, Locks, |txn, access, row, others| {
    Locks::check(txn, access, row, &not_reading(others))
});
broken_rule!(WritesUnlocked, Locks, |txn, access, row, others| {
    Locks::check(txn, access, row, &not_writing(others))
});
broken_rule!(PreparedReadsIgnored, Timestamps, |txn, access, row, others| {
    Timestamps::check(txn, access, row, &not_reading(others))
});
broken_rule!(PreparedWritesIgnored, Timestamps, |txn, access, row, others| {
    Timestamps::check(txn, access, row, &not_writing(others))
});
broken_shards!(ReadsUnmarked, Versions, Mutated::by(shard::Mutation::ReadsUnmarked));
broken_shards!(SnapshotsUnmarked, Versions, Mutated::by(shard::Mutation::SnapshotsUnchecked));
broken_shards!(ReadsAnsweredAtOnce, Versions, Mutated::by(shard::Mutation::ReadsAnsweredAtOnce));
broken_shards!(WaitingReadsUnlocked, Locking<true>, Mutated::by(shard::Mutation::ReadsUnlocked));
broken_shards!(ReadsWithoutLock, Locking<false>, Mutated::by(shard::Mutation::ReadsUnlocked));
broken_shards!(NoCommitWait, Timestamping, Mutated::by(shard::Mutation::NoCommitWait));
broken_shards!(
    SafeTimeIgnoresPrepared,
    Timestamping,
    Mutated::by(shard::Mutation::SafeTimeIgnoresPrepared)
);
broken_shards!(
    DecidesBeforeDurable,
    Timestamping,
    Mutated::by(shard::Mutation::AnswersBeforeDurable)
);
broken_shards!(TimestampingUnlocked, Timestamping, Mutated::by(shard::Mutation::ReadsUnlocked));
broken_shards!(WoundsPrepared, Locking<true>, Mutated::by(shard::Mutation::WoundsPrepared));
broken_shards!(
    LocksReportedBeforeDurable,
    Locking<true>,
    Mutated::by(shard::Mutation::AnswersBeforeDurable)
);
broken_shards!(LockedEndsForgotten, Locking<true>, Mutated::by(shard::Mutation::ForgetsPlaced));

/// The first seed under which fault is found with `P`, and none with a sound `S`: by the checker, or by the
/// protocol itself, which stops where two replicas learn different decisions.
fn caught<P: Protocol<Family = Transactions>, S: Protocol<Family = Transactions>>(
    workload: &'static str,
    faults: Faults,
) -> Option<(u64, String)> {
    seeds(3000).find_map(|seed| {
        let trial = Trial::new(seed, workload, faults);
        let run = || trial.run::<P>().violation;
        let violation = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Ok(violation) => violation?,
            Err(panic) => *panic.downcast::<String>().expect("a panic that says why"),
        };
        assert_eq!(trial.run::<S>().violation, None);
        Some((seed, violation))
    })
}

fn morty_caught<P: Protocol<Family = Transactions>>(faults: Faults) -> Option<(u64, String)> {
    caught::<P, Morty>("list-append", faults)
}

#[test]
fn an_ncc_of_which_something_is_missing_is_caught() {
    fn ncc_caught<P: Protocol<Family = Transactions>>(
        workload: &'static str,
        faults: Faults,
    ) -> Option<(u64, String)> {
        caught::<P, Ncc>(workload, faults)
    }
    let found = [
        (
            "a part is told of before it is durable",
            ncc_caught::<AnswersBeforeDurable>("bank", Faults::All),
        ),
        (
            "others do not see an end that is not in the rows yet",
            ncc_caught::<EndsForgotten>("bank", Faults::Network),
        ),
        (
            "snapshots are not checked",
            ncc_caught::<SnapshotsUnchecked>("list-append", Faults::Network),
        ),
        (
            "responses leave at once",
            ncc_caught::<NoResponseTimingControl>("blind", Faults::Network),
        ),
        (
            "smart retries look at no later version",
            ncc_caught::<MovesUnchecked>("blind", Faults::All),
        ),
        (
            "modifications stay as they are when what they follow from is aborted",
            ncc_caught::<KeepsOldModifications>("appends", Faults::Network),
        ),
        (
            "modifications that are made anew are made twice",
            ncc_caught::<ModifiesTwice>("appends", Faults::Network),
        ),
    ];
    all_caught(&found);
}

#[test]
fn controls_that_validate_or_order_by_timestamps_are_caught_if_they_leave_out_a_check() {
    fn rule_caught<R: Rule, S: Rule>(faults: Faults) -> Option<(u64, String)> {
        caught::<Sharded<Validation<R>>, Sharded<Validation<S>>>("list-append", faults)
    }
    fn mvto_caught<P: Protocol<Family = Transactions>>() -> Option<(u64, String)> {
        caught::<P, Mvto>("list-append", Faults::Network)
    }
    let found = [
        ("reads are not validated", rule_caught::<ReadsUnvalidated, Locks>(Faults::Network)),
        // In one shard whoever reads what is being written is aborted.
        ("what was read is not locked", rule_caught::<ReadsUnlocked, Locks>(Faults::All)),
        ("what is written is not locked", rule_caught::<WritesUnlocked, Locks>(Faults::Network)),
        (
            "prepared reads keep no write off",
            rule_caught::<PreparedReadsIgnored, Timestamps>(Faults::Network),
        ),
        (
            "prepared writes keep no read off",
            rule_caught::<PreparedWritesIgnored, Timestamps>(Faults::Network),
        ),
        ("reads leave no mark", mvto_caught::<ReadsUnmarked>()),
        ("reads without parts leave no mark", mvto_caught::<SnapshotsUnmarked>()),
        ("reads are answered before they are committed", mvto_caught::<ReadsAnsweredAtOnce>()),
    ];
    all_caught(&found);
}

#[test]
fn two_phase_locking_of_which_something_is_missing_is_caught() {
    fn locking_caught<P: Protocol<Family = Transactions>>(
        workload: &'static str,
    ) -> Option<(u64, String)> {
        caught::<P, TwoPhaseLockingWoundWait>(workload, Faults::Network)
    }
    let found = [
        (
            "a part is reported before it is durable",
            caught::<LocksReportedBeforeDurable, TwoPhaseLockingWoundWait>("bank", Faults::All),
        ),
        ("who waits reads without a lock", locking_caught::<WaitingReadsUnlocked>("list-append")),
        (
            "who does not wait reads without a lock",
            locking_caught::<ReadsWithoutLock>("list-append"),
        ),
        (
            // In a keyspace of one shard, a transaction ends together with its part.
            "who is ready to commit is wounded",
            caught::<WoundsPrepared, TwoPhaseLockingWoundWait>("list-append", Faults::All),
        ),
        (
            "who gets a lock does not see an end that is not in the rows yet",
            locking_caught::<LockedEndsForgotten>("bank"),
        ),
    ];
    all_caught(&found);
}

#[test]
fn a_spanner_of_which_something_is_missing_is_caught() {
    fn spanner_caught<P: Protocol<Family = Transactions>>(
        workload: &'static str,
        faults: Faults,
    ) -> Option<(u64, String)> {
        caught::<P, Spanner>(workload, faults)
    }
    let found = [
        (
            "a commit does not wait for its moment",
            spanner_caught::<NoCommitWait>("list-append", Faults::Network),
        ),
        (
            "reads at a timestamp do not wait for what is prepared",
            spanner_caught::<SafeTimeIgnoresPrepared>("list-append", Faults::Network),
        ),
        (
            "a part is reported before it is durable",
            spanner_caught::<DecidesBeforeDurable>("bank", Faults::All),
        ),
        (
            "reads take no locks",
            spanner_caught::<TimestampingUnlocked>("list-append", Faults::Network),
        ),
    ];
    all_caught(&found);
}

#[test]
fn a_morty_with_a_check_switched_off_is_caught() {
    let found = [
        ("without check 1", morty_caught::<WithoutCheck1>(Faults::Network)),
        ("without check 2", morty_caught::<WithoutCheck2>(Faults::Network)),
        ("without check 3", morty_caught::<WithoutCheck3>(Faults::Network)),
    ];
    all_caught(&found);
}

#[test]
fn a_morty_that_modifies_what_was_read_is_caught() {
    let merged = caught::<MergesAcrossReads, Morty>("mixed", Faults::Network);
    let executed = caught::<ExecutesBeforeCommit, CrowdedMorty>("mixed", Faults::Network);
    let found = [
        ("a modification is merged across a read", merged),
        ("modifications are executed before a read of them commits", executed),
    ];
    all_caught(&found);
}

#[test]
fn a_morty_that_breaks_its_promises_is_caught() {
    let found = [
        (
            "votes are sent before they are durable",
            morty_caught::<VotesBeforeDurable>(Faults::Disks),
        ),
        (
            "votes are confirmed before they are durable",
            morty_caught::<ConfirmsBeforeDurable>(Faults::Disks),
        ),
        ("recovery ignores Finalize", morty_caught::<RecoveryIgnoresFinalize>(Faults::All)),
        ("truncation ignores votes", morty_caught::<TruncationIgnoresVotes>(Faults::All)),
        ("a late Prepare is voted on", morty_caught::<LatePrepare>(Faults::All)),
    ];
    all_caught(&found);
}

#[test]
fn a_tapir_of_which_something_is_missing_is_caught() {
    fn tapir_caught<P: Protocol<Family = Transactions>>(faults: Faults) -> Option<(u64, String)> {
        caught::<P, Tapir>("list-append", faults)
    }
    let found = [
        ("a fast quorum is one short", tapir_caught::<TapirFastQuorumOneShort>(Faults::All)),
        (
            "votes are sent before they are durable",
            tapir_caught::<TapirVotesBeforeDurable>(Faults::Disks),
        ),
        ("recovery ignores Finalize", tapir_caught::<TapirRecoveryIgnoresFinalize>(Faults::All)),
        ("what is prepared is not merged", tapir_caught::<TapirMergeDropsPrepared>(Faults::All)),
        ("a late Prepare is voted on", tapir_caught::<TapirLatePrepare>(Faults::All)),
        ("reads are not validated", tapir_caught::<TapirReadsUnvalidated>(Faults::Network)),
        ("writes are not validated", tapir_caught::<TapirWritesUnvalidated>(Faults::Network)),
    ];
    all_caught(&found);
}

fn all_caught(found: &[(&str, Option<(u64, String)>)]) {
    let mut report = String::new();
    for (what, found) in found {
        let (seed, why) = found.as_ref().unwrap_or_else(|| panic!("nobody noticed: {what}"));
        let first = why.lines().next().unwrap_or_default();
        writeln!(report, "{what}: seed {seed}: {first}").unwrap();
    }
    println!("{report}");
}

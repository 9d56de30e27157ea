//! Protocols with deliberate mistakes. The suite finds each.

use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId};
use serried_procedures::{Offers, Procedures};
use serried_protocols::frameworks::shard;
use serried_protocols::frameworks::validation::Validation;
use serried_protocols::ncc::Queues;
use serried_protocols::occ::Locks;
use serried_protocols::two_phase_locking::Locking;
use serried_protocols::{Mutated, janus};

use crate::trial::{Faults, Trial};
use crate::twins::run_twins;

/// Janus with a deliberate mistake, or Janus-CC if the members of a partition are `alone`.
macro_rules! broken {
    ($name:ident, $mutation:ident) => {
        broken!($name, $mutation, alone, false);
    };
    ($name:ident, $mutation:ident, $members:ident, $keeps_copies:literal) => {
        struct $name;

        impl Protocol for $name {
            const NAME: &'static str = stringify!($name);
            const SUMMARY: &'static str = "broken";
            const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
            type Family = Procedures;
            const OFFERS: Offers = Offers { merged: true };
            const KEEPS_COPIES: bool = $keeps_copies;
            type Message = janus::Message;
            type Coordinator = janus::Coordinator;
            type Replica = janus::Replica;

            fn coordinator(group: Group, settings: &Settings) -> janus::Coordinator {
                janus::Coordinator::new(janus::Members::$members(group), settings)
            }

            fn replica(id: NodeId, group: Group, settings: &Settings) -> janus::Replica {
                let mutation = Mutated::by(janus::Mutation::$mutation);
                janus::Replica::new(id, janus::Members::$members(group), settings, mutation)
            }
        }
    };
}

broken!(JanusForgetsEdges, ForgetsEdges);
broken!(JanusIgnoresOtherServers, IgnoresOtherServers);
broken!(JanusExecutesByArrival, ExecutesByArrival);
broken!(JanusHoldsNoPlace, HoldsNoPlace);
broken!(JanusCoversByUnexecuted, CoversByUnexecuted, replicated, true);
broken!(JanusForgetsExecuted, ForgetsExecuted, replicated, true);

/// Whether the suite catches what is wrong with `P`.
fn is_caught<P: Protocol<Family = Procedures>>(workload: &'static str) -> bool {
    let caught = (0..400).find_map(|seed| {
        let trial = Trial { seed, workload, faults: Faults::Network, replicas: None };
        let ran = std::panic::catch_unwind(|| trial.run::<P>().wrong);
        let wrong = ran.unwrap_or(Some("a server panicked".to_owned()));
        wrong.filter(|wrong| !wrong.starts_with("the checker gave up")).map(|wrong| (seed, wrong))
    });
    println!("{}: {caught:?}", P::NAME);
    caught.is_some()
}

#[test]
fn a_janus_that_forgets_which_transactions_came_before_is_caught() {
    assert!(is_caught::<JanusForgetsEdges>("list-append-calls"));
}

#[test]
fn a_janus_that_does_not_wait_for_ancestors_elsewhere_is_caught() {
    assert!(is_caught::<JanusIgnoresOtherServers>("list-append-calls"));
}

#[test]
fn a_janus_that_executes_a_cycle_in_the_order_of_arrival_is_caught() {
    assert!(is_caught::<JanusExecutesByArrival>("list-append-calls"));
}

#[test]
fn a_janus_whose_transactions_lose_their_places_while_they_wait_for_outputs_is_caught() {
    assert!(is_caught::<JanusHoldsNoPlace>("bank-calls"));
}

#[test]
fn a_janus_whose_edges_cover_others_before_execution_is_caught() {
    assert!(is_caught::<JanusCoversByUnexecuted>("list-append-calls"));
}

#[test]
fn a_janus_that_forgets_what_others_have_not_executed_is_caught() {
    assert!(is_caught::<JanusForgetsExecuted>("list-append-calls"));
}

/// Declares procedures on shards of which something is missing.
macro_rules! broken_calls {
    ($name:ident, $control:ty, $mutation:ident) => {
        struct $name;

        impl Protocol for $name {
            const NAME: &'static str = stringify!($name);
            const SUMMARY: &'static str = "broken on purpose";
            const GUARANTEE: Guarantee = <$control as shard::Control>::GUARANTEE;
            type Family = Procedures;
            const OFFERS: Offers = shard::CALL_OFFERS;
            type Message = shard::Message;
            type Coordinator = shard::CallCoordinator<$control>;
            type Replica = shard::Replica<$control>;

            fn coordinator(group: Group, settings: &Settings) -> Self::Coordinator {
                let mutation = Mutated::by(shard::Mutation::$mutation);
                shard::CallCoordinator::new(group, settings, mutation)
            }

            fn replica(id: NodeId, group: Group, settings: &Settings) -> Self::Replica {
                let mutation = Mutated::by(shard::Mutation::$mutation);
                shard::Replica::running_calls(id, group, settings, mutation)
            }
        }
    };
}

broken_calls!(ProgramsWithoutReadLocks, Locking<false>, ReadsUnlocked);
broken_calls!(WaitingProgramsWithoutReadLocks, Locking<true>, ReadsUnlocked);
broken_calls!(ReExecutionKeepsWrites, Queues<false>, KeepsOldWrites);
broken_calls!(RefusalsAreNotValidated, Validation<Locks>, RefusalsUnvalidated);

/// The first of some seeds with which the checkers or a server find a mistake.
fn caught<P: Protocol<Family = Procedures>>(workload: &'static str, faults: Faults) -> Option<u64> {
    let is_wrong = |seed: &u64| {
        let trial = Trial { seed: *seed, workload, faults, replicas: None };
        // A server that panics has noticed a contradiction.
        std::panic::catch_unwind(|| trial.run::<P>().wrong).map_or(true, |wrong| wrong.is_some())
    };
    let found = (0..60).find(is_wrong);
    println!("{}, {workload}: caught by seed {found:?}", P::NAME);
    found
}

#[test]
fn programs_whose_reads_are_not_locked_are_caught() {
    assert!(caught::<ProgramsWithoutReadLocks>("list-append-calls", Faults::Network).is_some());
    let waiting = caught::<WaitingProgramsWithoutReadLocks>("list-append-calls", Faults::Network);
    assert!(waiting.is_some());
}

#[test]
fn a_re_execution_that_keeps_the_old_writes_is_caught() {
    assert!(caught::<ReExecutionKeepsWrites>("list-append-calls", Faults::All).is_some());
}

#[test]
fn a_refusal_that_is_not_validated_is_caught() {
    let found = (0..20).find_map(run_twins::<RefusalsAreNotValidated>);
    assert!(found.is_some_and(|wrong| wrong.contains("the twins differ")));
}

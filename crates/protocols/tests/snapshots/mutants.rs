//! Protocols with something done wrong on purpose.

use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId, Snapshots};
use serried_protocols::{Mutated, eiger, eiger_port, port, scylla_occ};

use super::trial::Trial;

/// PORT with a mistake, and a test that finds it.
macro_rules! broken {
    ($name:ident, $mutation:ident, $crashes:literal, $test:ident) => {
        struct $name;

        impl Protocol for $name {
            const NAME: &'static str = stringify!($name);
            const SUMMARY: &'static str = "broken";
            const GUARANTEE: Guarantee = Guarantee::ProcessOrdered;
            type Family = Snapshots;
            const OFFERS: serried_model::snapshots::Offers = port::Port::OFFERS;
            type Message = port::Message;
            type Coordinator = port::Coordinator;
            type Replica = port::Replica;

            fn coordinator(group: Group, _: &Settings) -> port::Coordinator {
                port::Coordinator::new(group, Mutated::by(port::Mutation::$mutation))
            }

            fn replica(id: NodeId, group: Group, settings: &Settings) -> port::Replica {
                port::Replica::new(id, group, settings, Mutated::by(port::Mutation::$mutation))
            }
        }

        #[test]
        fn $test() {
            assert!(is_caught::<$name>($crashes));
        }
    };
}

/// Whether the suite catches what is wrong with `P`.
fn is_caught<P: Protocol<Family = Snapshots>>(crashes: bool) -> bool {
    let caught = (0..1000).find(|&seed| {
        let wrong = Trial { seed, crashes }.run::<P>().wrong;
        wrong.is_some_and(|wrong| !wrong.starts_with("the checker gave up"))
    });
    println!("{} is caught with seed {caught:?}", P::NAME);
    caught.is_some()
}

broken!(NoPromotion, PromotionLeftOut, false, a_port_that_promotes_nothing_is_caught);
broken!(
    OmitsForPending,
    OmittedForPending,
    true,
    a_port_that_omits_writes_for_others_that_are_not_chosen_is_caught
);
broken!(
    DoesNotAdopt,
    HigherStampNotAdopted,
    false,
    a_port_whose_client_does_not_adopt_the_higher_versionstamp_is_caught
);
broken!(
    AcknowledgesAlone,
    AcknowledgedByLeaderAlone,
    true,
    a_port_whose_leader_acknowledges_what_it_alone_has_is_caught
);
broken!(
    RejoinsAtOnce,
    RejoinsAtOnce,
    true,
    a_port_whose_replica_forgets_that_it_has_lost_its_disk_is_caught
);

/// Scylla-OCC that does not validate.
struct DoesNotValidate;

impl Protocol for DoesNotValidate {
    const NAME: &'static str = "DoesNotValidate";
    const SUMMARY: &'static str = "broken";
    const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
    type Family = Snapshots;
    const OFFERS: serried_model::snapshots::Offers = scylla_occ::ScyllaOcc::OFFERS;
    type Message = scylla_occ::Message;
    type Coordinator = scylla_occ::Coordinator;
    type Replica = scylla_occ::Replica;

    fn coordinator(group: Group, settings: &Settings) -> scylla_occ::Coordinator {
        let mutation = Mutated::by(scylla_occ::Mutation::ValidationLeftOut);
        scylla_occ::Coordinator::new(group, settings, mutation)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> scylla_occ::Replica {
        scylla_occ::ScyllaOcc::replica(id, group, settings)
    }
}

#[test]
fn a_scylla_occ_that_does_not_validate_is_caught() {
    assert!(is_caught::<DoesNotValidate>(false));
}

/// Eiger or Eiger-PORT with a mistake, and a test that finds it.
macro_rules! broken_causal {
    ($module:ident, $reads:ident, $mutation:ident, $crashes:literal, $test:ident) => {
        #[test]
        fn $test() {
            struct Broken;

            impl Protocol for Broken {
                const NAME: &'static str = stringify!($mutation);
                const SUMMARY: &'static str = "broken";
                const GUARANTEE: Guarantee = Guarantee::Causal;
                type Family = Snapshots;
                const OFFERS: serried_model::snapshots::Offers = eiger::Eiger::OFFERS;
                type Message = $module::Message;
                type Coordinator = $module::Coordinator;
                type Replica = $module::Replica;

                fn coordinator(group: Group, settings: &Settings) -> $module::Coordinator {
                    let mutation = Mutated::by($module::Mutation::$mutation);
                    $module::Coordinator::new(group, settings, $module::Reads::$reads, mutation)
                }

                fn replica(id: NodeId, group: Group, settings: &Settings) -> $module::Replica {
                    let mutation = Mutated::by($module::Mutation::$mutation);
                    $module::Replica::new(id, group, settings, mutation)
                }
            }

            assert!(is_caught::<Broken>($crashes));
        }
    };
}

broken_causal!(
    eiger_port,
    AtSafeTime,
    PendingNotCounted,
    false,
    an_eiger_port_whose_pending_transactions_do_not_hold_the_safe_time_back_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    SearchStopsEarly,
    false,
    an_eiger_port_that_does_not_look_for_own_versions_below_the_latest_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    OwnPendingIgnored,
    true,
    an_eiger_port_that_does_not_wait_for_what_is_pending_of_the_own_session_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    SafeAsMaximum,
    false,
    an_eiger_port_whose_client_takes_the_highest_safe_time_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    BoundForgotten,
    true,
    an_eiger_port_whose_new_leader_does_not_begin_at_the_bound_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    VotesIgnored,
    false,
    an_eiger_port_whose_coordinator_ignores_the_times_of_votes_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    UndoneAlone,
    true,
    an_eiger_port_whose_cohorts_undo_without_asking_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    OutcomesForgotten,
    false,
    an_eiger_port_that_does_not_remember_outcomes_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    AcknowledgedByLeaderAlone,
    true,
    an_eiger_port_whose_leader_acknowledges_what_it_alone_has_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    RejoinsAtOnce,
    true,
    an_eiger_port_whose_replica_forgets_that_it_has_lost_its_disk_is_caught
);
broken_causal!(
    eiger,
    Optimistically,
    PendingNotChecked,
    false,
    an_eiger_that_does_not_ask_about_pending_transactions_is_caught
);
broken_causal!(
    eiger,
    Optimistically,
    CheckedWithoutClock,
    false,
    an_eiger_whose_coordinator_does_not_move_its_clock_when_it_is_asked_is_caught
);
broken_causal!(
    eiger,
    Optimistically,
    VotesIgnored,
    false,
    an_eiger_whose_coordinator_ignores_the_times_of_votes_is_caught
);

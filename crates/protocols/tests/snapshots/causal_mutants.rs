//! Eiger and Eiger-PORT with something done wrong on purpose. Mistakes that only a rare moment shows have tests beside
//! the protocols' own (`frameworks/write_transactions/tests.rs`).

use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId, Snapshots};
use serried_protocols::{Mutated, eiger, eiger_port};

use super::mutants::{
    is_caught, is_caught_around, is_caught_copying, is_caught_rebuilding, is_caught_with_sites,
};

/// Eiger or Eiger-PORT with a mistake, and a test that finds it.
macro_rules! broken_causal {
    ($module:ident, $reads:ident, $mutation:ident, $crashes:literal, $test:ident) => {
        broken_causal!($module, $reads, $mutation, is_caught, $crashes, $test);
    };
    ($module:ident, $reads:ident, $mutation:ident, $caught:ident, $crashes:literal, $test:ident) => {
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

            assert!($caught::<Broken>($crashes));
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
    SafeAsMaximum,
    false,
    an_eiger_port_whose_client_takes_the_highest_safe_time_is_caught
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
    eiger,
    Optimistically,
    PendingNotChecked,
    false,
    an_eiger_that_does_not_ask_about_pending_transactions_is_caught
);
broken_causal!(
    eiger,
    Optimistically,
    VotesIgnored,
    false,
    an_eiger_whose_coordinator_ignores_the_times_of_votes_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    DependenciesIgnored,
    is_caught_with_sites,
    false,
    an_eiger_port_that_admits_what_depends_on_something_that_is_not_here_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    DeletesForgotten,
    is_caught_with_sites,
    false,
    an_eiger_port_that_forgets_a_delete_before_a_site_has_it_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    CutAsMaximum,
    is_caught_with_sites,
    false,
    an_eiger_port_that_admits_what_not_all_partitions_have_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    ShippedUnsafe,
    is_caught_with_sites,
    false,
    an_eiger_port_that_tells_other_sites_that_they_have_what_may_still_commit_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    CopyInParts,
    is_caught_copying,
    false,
    an_eiger_port_that_admits_a_part_of_a_copy_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    UnadmittedKept,
    is_caught_rebuilding,
    true,
    an_eiger_port_that_keeps_what_a_lost_site_has_sent_in_part_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    ErasNotChecked,
    is_caught_rebuilding,
    true,
    an_eiger_port_whose_sessions_go_on_after_their_site_was_rebuilt_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    RebuiltAtOnce,
    is_caught_rebuilding,
    true,
    an_eiger_port_that_serves_clients_before_its_site_is_rebuilt_is_caught
);
broken_causal!(
    eiger,
    Optimistically,
    LaterThanLatestAwaited,
    is_caught_around,
    true,
    an_eiger_whose_second_round_waits_only_for_what_is_later_than_the_latest_version_is_caught
);
broken_causal!(
    eiger_port,
    AtSafeTime,
    NotWhole,
    is_caught_rebuilding,
    true,
    an_eiger_port_that_sends_what_it_has_got_back_before_it_is_whole_is_caught
);

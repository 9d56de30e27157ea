//! Protocols with something done wrong on purpose.

use std::time::Duration;

use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId, Snapshots};
use serried_protocols::{Mutated, port, port_seo, scylla_occ};
use serried_sim::Scheduled;

use super::cut_off::{in_turn, step_by_step};
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
pub(crate) fn is_caught<P: Protocol<Family = Snapshots>>(crashes: bool) -> bool {
    is_caught_with::<P>(crashes, false, |_, _| Vec::new())
}

/// Whether the suite catches it if there are several sites.
pub(crate) fn is_caught_with_sites<P: Protocol<Family = Snapshots>>(crashes: bool) -> bool {
    is_caught_with::<P>(crashes, true, |_, _| Vec::new())
}

/// Whether the suite catches it if a site is lost and rebuilt.
pub(crate) fn is_caught_rebuilding<P: Protocol<Family = Snapshots>>(crashes: bool) -> bool {
    is_caught_of::<P>(
        0,
        |seed| Trial { seed, crashes, sites: true, loses: true },
        |_, _| Vec::new(),
    )
}

/// The same with seeds from 230 on. Not many have a write that commits while an admission is pending and is read around
/// it.
pub(crate) fn is_caught_around<P: Protocol<Family = Snapshots>>(crashes: bool) -> bool {
    is_caught_from::<P>(230, crashes, true, |_, _| Vec::new())
}

/// The same with seeds from 100 on. Not many make a site copy while others have what depends on a part of the copy.
pub(crate) fn is_caught_copying<P: Protocol<Family = Snapshots>>(crashes: bool) -> bool {
    is_caught_from::<P>(100, crashes, true, |_, _| Vec::new())
}

/// The same with more faults.
fn is_caught_with<P: Protocol<Family = Snapshots>>(
    crashes: bool,
    sites: bool,
    more: fn(usize, Duration) -> Vec<Scheduled>,
) -> bool {
    is_caught_from::<P>(0, crashes, sites, more)
}

/// The same with seeds from `first` on.
fn is_caught_from<P: Protocol<Family = Snapshots>>(
    first: u64,
    crashes: bool,
    sites: bool,
    more: fn(usize, Duration) -> Vec<Scheduled>,
) -> bool {
    is_caught_of::<P>(first, |seed| Trial { seed, crashes, sites, loses: false }, more)
}

/// Whether a trial catches it, with a seed from `first` on.
fn is_caught_of<P: Protocol<Family = Snapshots>>(
    first: u64,
    trial: impl Fn(u64) -> Trial,
    more: fn(usize, Duration) -> Vec<Scheduled>,
) -> bool {
    let caught = (first..1000).find(|&seed| {
        let wrong = trial(seed).run_with::<P>(more).wrong;
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

/// PORT-SEO with a mistake, and a test that finds it.
macro_rules! broken_seo {
    ($name:ident, $mutation:ident, $caught:expr, $test:ident) => {
        struct $name;

        impl Protocol for $name {
            const NAME: &'static str = stringify!($name);
            const SUMMARY: &'static str = "broken";
            const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
            type Family = Snapshots;
            const OFFERS: serried_model::snapshots::Offers = port_seo::PortSeo::OFFERS;
            type Message = port_seo::Message;
            type Coordinator = port_seo::Coordinator;
            type Replica = port_seo::Replica;

            fn coordinator(group: Group, settings: &Settings) -> port_seo::Coordinator {
                let mutation = Mutated::by(port_seo::Mutation::$mutation);
                port_seo::Coordinator::new(group, settings, mutation)
            }

            fn replica(id: NodeId, group: Group, settings: &Settings) -> port_seo::Replica {
                let mutation = Mutated::by(port_seo::Mutation::$mutation);
                port_seo::Replica::new(id, group, settings, mutation)
            }
        }

        #[test]
        fn $test() {
            assert!($caught);
        }
    };
}

broken_seo!(
    BeginsEarly,
    NextBegunEarly,
    is_caught::<BeginsEarly>(false),
    a_port_seo_that_begins_a_batch_before_the_last_is_applied_is_caught
);
broken_seo!(
    IgnoresVectors,
    VectorsIgnored,
    is_caught::<IgnoresVectors>(false),
    a_port_seo_whose_client_chooses_the_highest_number_is_caught
);
broken_seo!(
    DoesNotConfirm,
    ReadsNotConfirmed,
    is_caught_with::<DoesNotConfirm>(false, false, in_turn),
    a_port_seo_whose_leaders_do_not_confirm_reads_is_caught
);
broken_seo!(
    DoesNotHandOutAgain,
    NotHandedOutAgain,
    is_caught_with::<DoesNotHandOutAgain>(false, false, step_by_step),
    a_port_seo_whose_new_sequencer_does_not_hand_out_the_last_batch_again_is_caught
);
broken_seo!(
    ExecutesAgain,
    ExecutedAgain,
    is_caught::<ExecutesAgain>(true),
    a_port_seo_that_executes_a_write_again_is_caught
);
broken_seo!(
    SeoAcknowledgesAlone,
    AcknowledgedByLeaderAlone,
    is_caught::<SeoAcknowledgesAlone>(true),
    a_port_seo_whose_leader_acknowledges_what_it_alone_has_is_caught
);
broken_seo!(
    SeoRejoinsAtOnce,
    RejoinsAtOnce,
    is_caught::<SeoRejoinsAtOnce>(true),
    a_port_seo_whose_replica_forgets_that_it_has_lost_its_disk_is_caught
);

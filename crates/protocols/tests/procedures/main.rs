//! What every protocol of stored procedures has to pass in simulation: its guarantee under faults, liveness once they
//! have healed, and determinism; and what shows that the suite would notice.
//!
//! Each test goes through some seeds. `SERRIED_SEEDS=2000 cargo test --release -p serried-protocols --test procedures`
//! goes through more, and `SERRIED_FIRST_SEED=17 SERRIED_SEEDS=1` through a single one; `SERRIED_PROTOCOL=rococo` leaves
//! out the other protocols. With `SERRIED_TRACE=text` it prints each message of which `text` is a part, and with
//! `SERRIED_ALWAYS=1` all kinds of faults occur in every trial.

mod mutants;
#[path = "../support/mod.rs"]
mod support;
mod trial;
mod twins;

use serried_actor::Protocol;
use serried_model::FamilyName;
use serried_procedures::Procedures;
use serried_protocols::frameworks::shard::ShardedCalls;
use serried_protocols::frameworks::validation::Validation;
use serried_protocols::janus;
use serried_protocols::occ::Locks;
use serried_protocols::rehearsal::{Forgetting, Rehearsal};
use serried_protocols::two_phase_locking::Locking;
use serried_protocols::{Visitor, promising, visit};
use support::seeds;
use trial::{Faults, Trial};

/// Runs trials of one protocol.
struct Trials {
    workload: &'static str,
    faults: Faults,
    replicas: Option<usize>,
    /// How many trials there are, if the environment does not say.
    trials: u64,
}

impl Visitor<Procedures> for Trials {
    type Output = ();

    fn visit<P: Protocol<Family = Procedures>>(self) {
        let Trials { workload, faults, replicas, trials } = self;
        if faults == Faults::Absences && !P::KEEPS_COPIES {
            return;
        }
        let mut committed = 0;
        for seed in seeds(trials) {
            let trial = Trial { seed, workload, faults, replicas };
            let outcome = trial.run::<P>();
            if let Some(wrong) = outcome.wrong {
                panic!("{wrong}\n{}", trial.replay::<P>());
            }
            committed += outcome.committed;
        }
        let runs = seeds(trials).count() as u64;
        println!("{}, {workload}: {committed} calls in {runs} runs", P::NAME);
        assert!(committed > 10 * runs, "{}: {committed} calls in {runs} runs", P::NAME);
    }
}

fn try_all(workload: &'static str, faults: Faults) {
    let only = std::env::var("SERRIED_PROTOCOL").ok();
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    let (replicas, trials) = match faults {
        Faults::Absences => (Some(3), 3),
        _ => (None, 10),
    };
    let mut wanted = promising(FamilyName::Procedures).filter(|known| is_wanted(known.name));
    let first = wanted.next().expect("SERRIED_PROTOCOL is the name of a protocol of procedures");
    for protocol in core::iter::once(first).chain(wanted) {
        visit(protocol.name, Trials { workload, faults, replicas, trials }).unwrap();
    }
}

#[test]
fn lists_keep_their_guarantee_and_everything_finishes_under_network_faults_and_pauses() {
    try_all("list-append-calls", Faults::Network);
}

#[test]
fn lists_keep_their_guarantee_and_everything_finishes_whatever_goes_wrong() {
    try_all("list-append-calls", Faults::All);
}

#[test]
fn lists_keep_their_guarantee_when_replicas_are_away_again_and_again() {
    try_all("list-append-calls", Faults::Absences);
}

#[test]
fn no_increment_is_lost_or_counted_twice_whatever_goes_wrong() {
    try_all("counter-calls", Faults::All);
}

#[test]
fn the_banks_total_is_conserved_and_no_account_is_overdrawn_under_network_faults_and_pauses() {
    try_all("bank-calls", Faults::Network);
}

#[test]
fn the_banks_total_is_conserved_and_no_account_is_overdrawn_whatever_goes_wrong() {
    try_all("bank-calls", Faults::All);
}

#[test]
fn tpcc_stays_consistent_under_network_faults_and_pauses() {
    try_all("tpcc-calls", Faults::Network);
}

#[test]
fn tpcc_stays_consistent_whatever_goes_wrong() {
    try_all("tpcc-calls", Faults::All);
}

/// The suite itself, with the simplest protocol that there is.
#[test]
fn procedures_on_one_replica_pass() {
    for workload in ["list-append-calls", "counter-calls", "bank-calls", "tpcc-calls"] {
        for faults in [Faults::Network, Faults::All] {
            Trials { workload, faults, replicas: Some(1), trials: 5 }.visit::<Rehearsal>();
        }
    }
}

#[test]
fn a_replica_that_forgets_writes_is_caught() {
    for workload in ["list-append-calls", "counter-calls", "bank-calls", "tpcc-calls"] {
        let wrong = |seed| {
            let faults = Faults::Network;
            Trial { seed, workload, faults, replicas: Some(1) }.run::<Forgetting>().wrong
        };
        let caught = (0..20).find_map(wrong);
        // A transfer that is forgotten as a whole leaves the total as it is.
        assert_eq!(caught.is_some(), workload != "bank-calls", "{workload}: {caught:?}");
    }
}

struct Twice;

impl Visitor<Procedures> for Twice {
    type Output = ();

    fn visit<P: Protocol<Family = Procedures>>(self) {
        for seed in 0..4 {
            let (workload, faults) = ("list-append-calls", Faults::All);
            let trial = Trial { seed, workload, faults, replicas: None };
            let (first, second) = (trial.run::<P>(), trial.run::<P>());
            assert_eq!(first.hash, second.hash, "{}", trial.replay::<P>());
            assert_eq!(first.history, second.history);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for protocol in promising(FamilyName::Procedures) {
        visit(protocol.name, Twice).unwrap();
    }
}

/// In these trials a call that loads rows was waiting for a lock while another client registered the set that follows.
#[test]
fn calls_under_a_former_set_end_before_one_under_the_next_takes_effect() {
    let trial = Trial { seed: 1036, workload: "tpcc-calls", faults: Faults::All, replicas: None };
    for trial in [trial, Trial { seed: 1086, faults: Faults::Network, ..trial }] {
        let wrong = trial.run::<ShardedCalls<Locking<true>>>().wrong;
        assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    }
}

/// In this trial a replica replayed the registration from its log, and then copied the same set from another replica.
#[test]
fn a_set_that_was_replayed_before_a_copy_is_there_after_a_restart() {
    let (workload, faults) = ("list-append-calls", Faults::All);
    let trial = Trial { seed: 3559, workload, faults, replicas: None };
    let wrong = trial.run::<ShardedCalls<Validation<Locks>>>().wrong;
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
}

/// In the first trial a late question left a promise at a replica, about a call that the others had settled. In the second
/// one a replica coordinated so many calls that it never came to the one for which they waited.
#[test]
fn a_call_that_nobody_has_taken_on_does_not_hold_up_others() {
    for seed in [1325, 2878] {
        let (workload, faults) = ("list-append-calls", Faults::All);
        let trial = Trial { seed, workload, faults, replicas: None };
        let wrong = trial.run::<janus::Janus>().wrong;
        assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    }
}

/// In this trial a replica that lagged behind learned that a call was executed alone, which others have executed on a cycle.
/// A client had asked about the call where it has no pieces, so it was void there.
#[test]
fn a_call_that_is_void_where_it_has_no_pieces_stays_on_its_cycle() {
    let (workload, faults) = ("list-append-calls", Faults::Network);
    let trial = Trial { seed: 60_004, workload, faults, replicas: None };
    let wrong = trial.run::<janus::Janus>().wrong;
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
}

//! What every protocol of snapshots has to pass in simulation: its guarantee under faults, liveness once they have
//! healed, and determinism; and what shows that the suite would notice.
//!
//! Each test goes through some seeds. `SERRIED_SEEDS=2000 cargo test --release -p serried-protocols --test snapshots`
//! goes through more, and `SERRIED_FIRST_SEED=17 SERRIED_SEEDS=1` through a single one; `SERRIED_PROTOCOL=port`
//! leaves out the other protocols.

mod causal_mutants;
mod cut_off;
mod mutants;
mod optimal;
mod sites;
#[path = "../support/mod.rs"]
mod support;
mod trial;

use serried_actor::Protocol;
use serried_model::{FamilyName, Snapshots};
use serried_protocols::{Visitor, info, promising, visit};
use support::seeds;
use trial::Trial;

/// How many requests a trial has on average, at least. If there are fewer, something waits for time-outs.
const LEAST_REQUESTS: usize = 500;
/// Fewer trials say nothing of that.
const MANY: usize = 10;

/// Runs trials of one protocol.
struct Trials {
    crashes: bool,
    /// Whether there are several sites.
    sites: bool,
    /// Whether one of them loses all its disks.
    loses: bool,
}

impl Visitor<Snapshots> for Trials {
    type Output = ();

    fn visit<P: Protocol<Family = Snapshots>>(self) {
        if self.sites && !P::OFFERS.sites {
            return;
        }
        let (mut trials, mut operations, mut omitted) = (0, 0, 0);
        for seed in seeds(if self.sites { 12 } else { 40 }) {
            let Trials { crashes, sites, loses } = self;
            let trial = Trial { seed, crashes, sites, loses };
            let outcome = trial.run::<P>();
            if let Some(wrong) = outcome.wrong {
                panic!("seed {seed} under {}\n{wrong}", trial.replay::<P>());
            }
            trials += 1;
            operations += outcome.history.events.len() / 2;
            omitted += outcome.omitted;
        }
        let least = if trials < MANY { 1 } else { trials * LEAST_REQUESTS };
        assert!(operations >= least, "only {operations} requests under {}", P::NAME);
        println!("{}: {operations} requests, {omitted} writes omitted", P::NAME);
    }
}

fn try_all(crashes: bool, sites: bool, loses: bool) {
    let only = std::env::var("SERRIED_PROTOCOL").ok();
    if let Some(only) = &only {
        let family = info(only).map(|info| info.family);
        assert_eq!(family, Some(FamilyName::Snapshots), "`{only}` is no protocol of snapshots");
    }
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    for protocol in promising(FamilyName::Snapshots).filter(|protocol| is_wanted(protocol.name)) {
        visit(protocol.name, Trials { crashes, sites, loses }).unwrap();
    }
}

#[test]
fn snapshots_keep_their_guarantee_and_everything_finishes_under_network_faults_and_pauses() {
    try_all(false, false, false);
}

#[test]
fn snapshots_keep_their_guarantee_and_everything_finishes_whatever_goes_wrong() {
    try_all(true, false, false);
}

#[test]
fn sites_keep_their_guarantee_and_converge_under_network_faults_and_pauses() {
    try_all(false, true, false);
}

#[test]
fn sites_keep_their_guarantee_and_converge_whatever_goes_wrong() {
    try_all(true, true, false);
}

#[test]
fn sites_keep_their_guarantee_and_converge_although_one_is_lost_and_rebuilt() {
    try_all(true, true, true);
}

struct Twice;

impl Visitor<Snapshots> for Twice {
    type Output = ();

    fn visit<P: Protocol<Family = Snapshots>>(self) {
        for seed in 0..4 {
            let trial = Trial { seed, crashes: true, sites: false, loses: false };
            let sites = P::OFFERS.sites;
            let with_sites = Trial { sites, ..trial };
            let trials = [trial, with_sites, Trial { loses: sites, ..with_sites }];
            for trial in trials {
                let (first, second) = (trial.run::<P>(), trial.run::<P>());
                assert_eq!(first.hash, second.hash, "{}", trial.replay::<P>());
                assert_eq!(first.history, second.history);
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for protocol in serried_protocols::of(FamilyName::Snapshots) {
        visit(protocol.name, Twice).unwrap();
    }
}

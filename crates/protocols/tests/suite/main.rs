//! What every protocol has to pass in simulation: its guarantee under faults, liveness once they have
//! healed, and determinism; and what shows that the suite would notice.
//!
//! With `SERRIED_TRACE=text` it prints each message of which `text` is a part, such as the timestamp of a
//! transaction's version.
//!
//! Each test goes through some seeds. `SERRIED_SEEDS=2000 cargo test --release -p serried-protocols
//! --test suite` goes through more, `SERRIED_FIRST_SEED=17 SERRIED_SEEDS=1` through a single one, and
//! `SERRIED_PROTOCOL=ncc` through those of one protocol. A seed chooses which kinds of fault occur; with
//! `SERRIED_ALWAYS=1` all do, lost disks too.

#[macro_use]
mod variant;

#[path = "../support/blind.rs"]
mod blind;
mod chase;
mod choices;
mod mixed;
mod mutants;
mod returning;
#[path = "../support/scene.rs"]
mod scene;
#[path = "../support/mod.rs"]
mod support;
mod trial;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use choices::Choices;
use mixed::{CrowdedMorty, CrowdedMvtso};
use serried_actor::{Protocol, Timestamp};
use serried_model::{FamilyName, Geography, Transactions};
use serried_protocols::{ProtocolInfo, Visitor, promising, visit};
use serried_session::TransactionError;
use serried_sim::{Cluster, Configuration, Disk};
use serried_workload::{ClosedLoop, Measurement, Parameters, Window, named};
use support::seeds;
use trial::{Faults, Trial};

/// By then everything has to have finished.
const LIMIT: Timestamp = Timestamp(120_000_000_000);

/// The protocols whose serial order is that of the versions, with the usual crowds and with crowds of few.
fn mixed(faults: Faults, seeds: u64) {
    let wanted = |name: &str| protocols().any(|protocol| protocol.name == name);
    for name in ["morty", "mvtso"].into_iter().filter(|name| wanted(name)) {
        let suite = || Suite { workload: "mixed", faults, seeds };
        visit(name, suite()).unwrap();
        match name {
            "morty" => suite().visit::<CrowdedMorty>(),
            _ => suite().visit::<CrowdedMvtso>(),
        }
    }
}

#[test]
fn what_is_read_follows_from_what_was_done_before_under_network_faults_pauses_and_skew() {
    mixed(Faults::Network, 60);
}

#[test]
fn what_is_read_follows_from_what_was_done_before_whatever_goes_wrong() {
    mixed(Faults::All, 100);
}

#[test]
fn what_is_read_follows_from_what_was_done_before_while_now_these_and_now_those_are_cut_off() {
    mixed(Faults::Minorities, 30);
}

struct Suite {
    workload: &'static str,
    faults: Faults,
    seeds: u64,
}

impl Visitor<Transactions> for Suite {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let (mut committed, mut looked, mut losses) = (0, 0, 0);
        for seed in seeds(self.seeds) {
            let trial = Trial::new(seed, self.workload, self.faults);
            let outcome = trial.run::<P>();
            if let Some(wrong) = outcome.violation.or(outcome.wrong) {
                panic!("{wrong}\n{}", trial.replay::<P>());
            }
            committed += outcome.committed;
            looked += outcome.looked;
            losses += u64::from(outcome.loses_disks);
        }
        let runs = seeds(self.seeds).count() as u64;
        println!("{}, {}: {runs} runs, {losses} with lost disks", P::NAME, self.workload);
        assert!(committed > 20 * runs, "{}: {committed} commits in {runs} runs", P::NAME);
        // Most reads of the past are in few of the runs, so fewer runs may have none.
        if self.workload == "mixed" && self.faults.are_all() && runs >= self.seeds {
            assert!(looked > runs, "{}: {looked} reads of the past in {runs} runs", P::NAME);
        }
    }
}

/// Those with transactions that promise something, or the one of them that was asked for.
fn protocols() -> impl Iterator<Item = &'static ProtocolInfo> {
    let wanted = std::env::var("SERRIED_PROTOCOL").ok();
    promising(FamilyName::Transactions)
        .filter(move |protocol| wanted.as_deref().is_none_or(|name| name == protocol.name))
}

fn every_protocol(workload: &'static str, faults: Faults, seeds: u64) {
    for protocol in protocols() {
        // Those with leaders are the shards with different concurrency controls. Together they have as many as another.
        let seeds = if protocol.has_leaders { seeds.div_ceil(4) } else { seeds };
        visit(protocol.name, Suite { workload, faults, seeds }).unwrap();
    }
}

#[test]
fn lists_stay_serializable_and_everything_finishes_under_network_faults_pauses_and_skew() {
    every_protocol("list-append", Faults::Network, 150);
}

#[test]
fn the_banks_total_is_conserved_and_everything_finishes_under_network_faults_pauses_and_skew() {
    every_protocol("bank", Faults::Network, 150);
}

#[test]
fn transactions_whose_keys_depend_on_what_they_read_stay_serializable() {
    every_protocol("chase", Faults::Network, 100);
}

#[test]
fn what_is_written_unread_is_serializable_under_network_faults_pauses_and_skew() {
    every_protocol("blind", Faults::Network, 100);
}

#[test]
fn what_is_written_unread_is_serializable_whatever_goes_wrong() {
    every_protocol("blind", Faults::All, 60);
}

#[test]
fn tpcc_stays_serializable_and_consistent_under_network_faults_pauses_and_skew() {
    every_protocol("tpcc", Faults::Network, 20);
}

#[test]
fn tpcc_stays_serializable_and_consistent_whatever_goes_wrong() {
    every_protocol("tpcc", Faults::All, 40);
}

#[test]
fn modifications_are_serializable_and_made_once_under_network_faults_pauses_and_skew() {
    every_protocol("appends", Faults::Network, 100);
}

#[test]
fn modifications_are_serializable_and_made_once_whatever_goes_wrong() {
    every_protocol("appends", Faults::All, 60);
}

#[test]
fn modifications_are_serializable_and_made_once_while_now_these_and_now_those_are_cut_off() {
    every_protocol("appends", Faults::Minorities, 40);
}

/// One replica is down for good, from the start.
struct OneDown;

impl Visitor<Transactions> for OneDown {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let committed = |down: bool| {
            let configuration = Configuration {
                clients: 6,
                geography: Geography::named("reg").unwrap(),
                disk: Disk { keep_records: true, ..Disk::MEMORY },
                ..Configuration::default()
            };
            let mut cluster = Cluster::<P>::new(configuration);
            if down {
                cluster.crash(2);
            }
            let parameters =
                Parameters { keys: Some(64), theta: Some(0.0), ..Parameters::default() };
            let workload = named("list-append", &parameters).unwrap();
            let window =
                Window::new(Timestamp(0), Duration::ZERO, Duration::from_secs(10), Duration::ZERO);
            let measurement = Arc::new(Measurement::new(window));
            for client in 0..6 {
                let client_loop = ClosedLoop {
                    keyspace: cluster.keyspace(client),
                    workload: workload.clone(),
                    measurement: measurement.clone(),
                    recorder: None,
                    client: client as u64,
                    seed: 1,
                };
                cluster.spawn(client, client_loop.run());
            }
            cluster.run_until_done(LIMIT).unwrap();
            assert_eq!(measurement.report().failed, 0, "{}", P::NAME);
            measurement.committed_so_far()
        };
        let (all, fewer) = (committed(false), committed(true));
        assert!(
            fewer * 10 > all,
            "{}: {fewer} commits with a replica down, {all} without",
            P::NAME
        );
    }
}

#[test]
fn with_a_replica_down_for_good_everything_goes_on_at_a_tenth_of_the_speed_or_more() {
    for protocol in protocols() {
        visit(protocol.name, OneDown).unwrap();
    }
}

/// Two of three replicas are down for good.
struct NoMajority;

impl Visitor<Transactions> for NoMajority {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let disk = Disk { keep_records: true, ..Disk::MEMORY };
        let mut cluster = Cluster::<P>::new(Configuration { disk, ..Configuration::default() });
        cluster.crash(1);
        cluster.crash(2);
        let keyspace = cluster.keyspace(0);
        let checked = Arc::new(AtomicU64::new(0));
        let (done, deadline) = (checked.clone(), keyspace.options().deadline);
        cluster.spawn(0, async move {
            let begun = keyspace.now();
            let read = keyspace.get("a").await;
            assert!(matches!(read, Err(TransactionError::Unavailable { .. })), "{read:?}");
            let written = keyspace.put("a", "1").await;
            assert!(matches!(written, Err(TransactionError::Unknown { .. })), "{written:?}");
            assert!(keyspace.now().since(begun) <= 2 * deadline + Duration::from_millis(1));
            done.fetch_add(1, Ordering::Relaxed);
        });
        cluster.run_until_done(LIMIT).unwrap();
        assert_eq!(checked.load(Ordering::Relaxed), 1, "{}", P::NAME);
    }
}

#[test]
fn without_a_majority_nothing_succeeds_and_everything_ends_by_its_deadline() {
    for protocol in protocols() {
        visit(protocol.name, NoMajority).unwrap();
    }
}

#[test]
fn lists_stay_serializable_when_replicas_crash_and_forget_what_they_had_not_flushed() {
    every_protocol("list-append", Faults::Crashes, 60);
}

#[test]
fn lists_stay_serializable_and_everything_finishes_whatever_goes_wrong() {
    every_protocol("list-append", Faults::All, 60);
}

#[test]
fn the_banks_total_is_conserved_and_everything_finishes_whatever_goes_wrong() {
    every_protocol("bank", Faults::All, 60);
}

#[test]
fn what_is_written_unread_is_serializable_while_now_these_and_now_those_are_cut_off() {
    every_protocol("blind", Faults::Minorities, 40);
}

#[test]
fn lists_stay_serializable_while_now_these_and_now_those_are_cut_off() {
    every_protocol("list-append", Faults::Minorities, 40);
}

/// A trial that once failed.
struct Regression {
    seed: u64,
    workload: &'static str,
    faults: Faults,
    choices: Choices,
}

impl Visitor<Transactions> for Regression {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let Regression { seed, workload, faults, choices } = self;
        let trial = Trial { choices, ..Trial::new(seed, workload, faults) };
        let outcome = trial.run::<P>();
        assert_eq!(
            outcome.violation.or(outcome.wrong),
            None,
            "{} under {workload}, regression of seed {seed}",
            P::NAME
        );
    }
}

fn regression(seed: u64, workload: &'static str) {
    regression_with(seed, workload, Choices::by_remainders(seed));
}

fn regression_with(seed: u64, workload: &'static str, choices: Choices) {
    regression_under(Faults::All, seed, workload, choices);
}

fn regression_under(faults: Faults, seed: u64, workload: &'static str, choices: Choices) {
    for protocol in protocols() {
        visit(protocol.name, Regression { seed, workload, faults, choices }).unwrap();
    }
}

#[test]
fn regression_what_was_open_when_a_store_was_copied_is_not_taken_for_aborted() {
    regression(410, "list-append");
    regression(641, "bank");
}

#[test]
fn regression_a_replica_that_lacks_a_commit_is_not_asked_again_though_it_votes_last() {
    regression(111_033, "tpcc");
}

/// Five replicas, of which two lose their disks. Another one has stopped voting before it hears of a transaction, or has
/// forgotten the deletes that the transaction may have missed.
#[test]
fn regression_what_is_in_doubt_below_a_truncation_is_decided() {
    regression_with(11_877, "blind", Choices::drawn(11_877));
    regression_with(13_690, "blind", Choices::drawn(13_690));
}

/// The nearest replica has settled so little that another one has forgotten more.
#[test]
fn regression_a_client_leaves_a_replica_that_has_settled_less_than_another_has_forgotten() {
    regression_with(12_955, "tpcc", Choices::drawn(12_955));
}

#[test]
fn regression_a_recoverer_does_not_take_forgotten_for_aborted() {
    regression(4367, "list-append");
    regression(5519, "bank");
}

#[test]
fn regression_who_is_over_and_forgotten_is_not_taken_for_ready_by_a_leader_that_had_lagged() {
    regression(63_389, "list-append");
}

#[test]
fn regression_what_was_refused_by_a_leader_is_not_taken_for_ready_when_the_next_one_finds_it() {
    regression(64_233, "bank");
}

#[test]
fn regression_an_audit_ends_before_truncations_take_it_for_too_old() {
    regression(1049, "list-append");
    regression(2873, "list-append");
}

#[test]
fn regression_a_client_never_gives_two_transactions_one_version() {
    regression(2319, "blind");
    regression(3027, "bank");
}

/// The simulator once lost a disk while another's replacement was not durable yet.
#[test]
fn regression_a_majority_of_disks_is_never_lost() {
    regression(10_510, "list-append");
}

/// All that a transaction had read from was forgotten before everybody had said whether it may commit.
#[test]
fn regression_no_provisional_vote_stays_one_for_good() {
    for (seed, workload) in
        [(20_954, "bank"), (21_512, "list-append"), (24_024, "bank"), (92_731, "bank")]
    {
        regression_with(seed, workload, Choices::drawn(seed));
    }
}

/// Two replicas took turns at a truncation in rounds that never met, and one of them asked for ever about what the other
/// had forgotten.
#[test]
fn regression_what_others_have_forgotten_is_not_open_for_ever() {
    regression_with(25_315, "bank", Choices::drawn(25_315));
}

/// A leader took its clock for wrong, because the answers of the others had been slow.
#[test]
fn regression_a_clock_is_known_to_within_the_time_that_the_answer_has_taken() {
    regression_under(Faults::Network, 1214, "blind", Choices::drawn(1214));
}

/// What had committed was forgotten while it waited for its moment.
#[test]
fn regression_no_outcome_is_forgotten_before_it_may_be_reported() {
    regression_with(3451, "tpcc", Choices::drawn(3451));
}

/// A client that had measured a long delay began far in the future, although nothing depends on delays under Spanner.
#[test]
fn regression_no_delay_takes_a_transaction_out_of_the_bound_of_clocks() {
    regression_with(197, "tpcc", Choices::drawn(197));
}

struct Determinism;

impl Visitor<Transactions> for Determinism {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let mut hashes = Vec::new();
        for seed in [1, 2] {
            let trial = Trial::new(seed, "list-append", Faults::Network);
            let (once, again) = (trial.run::<P>(), trial.run::<P>());
            assert_eq!(once.hash, again.hash, "{}", trial.replay::<P>());
            assert_eq!(once.history, again.history, "{}", trial.replay::<P>());
            hashes.push(once.hash);
        }
        assert_ne!(hashes[0], hashes[1], "{}: the hash does not depend on the seed", P::NAME);
    }
}

#[test]
fn the_same_seed_gives_the_same_events_and_the_same_history() {
    for protocol in protocols() {
        visit(protocol.name, Determinism).unwrap();
    }
}

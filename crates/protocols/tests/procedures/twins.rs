//! Two rows that are always equal, under a change of the set of procedures and fail-over.

use std::sync::{Arc, Mutex};

use serried_actor::{Protocol, Timestamp};
use serried_chop::compile;
use serried_procedures::{Datum, ProcedureSet, Procedures};
use serried_protocols::frameworks::shard::ShardedCalls;
use serried_protocols::frameworks::validation::Validation;
use serried_protocols::ncc::Queues;
use serried_protocols::occ::Locks;
use serried_protocols::two_phase_locking::Locking;
use serried_sim::{Cluster, Configuration, Disk, Fault, Scheduled};

use crate::support::seeds;
use crate::trial::LIMIT;

/// Two rows that are always equal, and a procedure that insists on that.
const TWINS: &str = r#"
[tables.twin]
key = { id = "int" }
columns = { value = "int" }

[procedures.bump]
inputs = { one = "int", other = "int" }

[procedures.bump.pieces.first]
rows = { twin = ["one"] }
reads = ["twin.value"]
writes.twin.value = "twin.value + 1"

[procedures.bump.pieces.second]
rows = { twin = ["other"] }
reads = ["twin.value"]
writes.twin.value = "twin.value + 1"

[procedures.compare]
inputs = { one = "int", other = "int" }
returns = { value = "second.value" }

[procedures.compare.pieces.first]
rows = { twin = ["one"] }
reads = ["twin.value"]
outputs.value = "twin.value"

[procedures.compare.pieces.second]
rows = { twin = ["other"] }
reads = ["twin.value"]
checks = [{ that = "twin.value == first.value", otherwise = "the twins differ" }]
outputs.value = "twin.value"
"#;

/// The same, and one more procedure.
fn more_than_twins() -> ProcedureSet {
    let more = r#"
[procedures.look]
inputs = { one = "int" }
returns = { value = "look.value" }

[procedures.look.pieces.look]
rows = { twin = ["one"] }
reads = ["twin.value"]
outputs.value = "twin.value"
"#;
    compile(&format!("{TWINS}{more}")).expect("it has no mistakes")
}

/// How often each client calls.
const CALLS: i64 = 40;

/// Some clients bump pairs of rows, and others compare them. Meanwhile a leader crashes, and the set of procedures is
/// replaced. Returns what is wrong.
pub(crate) fn run_twins<P: Protocol<Family = Procedures>>(seed: u64) -> Option<String> {
    let mut cluster = Cluster::<P>::new(Configuration {
        seed,
        partitions: 4,
        clients: 5,
        disk: Disk { keep_records: true, ..Disk::MEMORY },
        ..Configuration::default()
    });
    let [begins, ends] = [2, 30].map(|ms| Timestamp(1_000_000_000 + ms * 1_000_000));
    let fault = Fault::Crash((seed % 3) as usize);
    cluster.schedule(Scheduled { begins, ends, fault });
    let wrong: Arc<Mutex<Option<String>>> = Arc::default();
    let bumped = Arc::new(Mutex::new(0_i64));
    for client in 0..4 {
        let (twins, wrong, bumped) = (cluster.keyspace(client), wrong.clone(), bumped.clone());
        cluster.spawn(client, async move {
            let set = compile(TWINS).expect("it has no mistakes");
            // The set may be registered already, or have been replaced by the other one.
            let _ = twins.register_in_place_of(0, set).await;
            twins.sleep_until(Timestamp(1_000_000_000)).await;
            let procedure = if client < 2 { "bump" } else { "compare" };
            for _ in 0..CALLS {
                match twins.call(procedure, [Datum::Int(1), Datum::Int(2)]).await {
                    Ok(_) if client < 2 => *bumped.lock().unwrap() += 1,
                    Ok(_) => {}
                    Err(error) => drop(wrong.lock().unwrap().insert(error.to_string())),
                }
            }
        });
    }
    let (twins, failed) = (cluster.keyspace(4), wrong.clone());
    cluster.spawn(4, async move {
        twins.sleep_until(Timestamp(1_005_000_000)).await;
        if let Err(error) = twins.register(more_than_twins()).await {
            *failed.lock().unwrap() = Some(error.to_string());
        }
    });
    if let Err(stalled) = cluster.run_until_done(LIMIT) {
        return Some(stalled.to_string());
    }
    let (twins, found) = (cluster.keyspace(4), Arc::new(Mutex::new(None)));
    let look = found.clone();
    cluster.spawn(4, async move {
        let listed = twins.procedures().await.map(|registered| registered.version);
        let looked = twins.call("look", [Datum::Int(2)]).await;
        let looked = looked.map(|results| results.get("value").cloned());
        *look.lock().unwrap() = Some((listed, looked));
    });
    if let Err(stalled) = cluster.run_until_done(LIMIT) {
        return Some(stalled.to_string());
    }
    let Some((listed, looked)) = found.lock().unwrap().take() else {
        return Some("the client has not looked".to_owned());
    };
    let bumped = *bumped.lock().unwrap();
    if !matches!((&listed, &looked), (Ok(2), Ok(Some(Datum::Int(value)))) if *value == bumped) {
        let told = wrong.lock().unwrap().take();
        return Some(format!("{listed:?}, {looked:?} after {bumped} bumps; {told:?}"));
    }
    wrong.lock().unwrap().take()
}

fn twins_never_differ<P: Protocol<Family = Procedures>>() {
    for seed in seeds(10) {
        let wrong = run_twins::<P>(seed);
        assert!(wrong.is_none(), "{}, seed {seed}: {}", P::NAME, wrong.unwrap_or_default());
    }
}

#[test]
fn refusals_are_consistent_and_sets_are_replaced_under_load_and_through_fail_over() {
    twins_never_differ::<ShardedCalls<Locking<true>>>();
    twins_never_differ::<ShardedCalls<Locking<false>>>();
    twins_never_differ::<ShardedCalls<Validation<Locks>>>();
    twins_never_differ::<ShardedCalls<Queues<false>>>();
}

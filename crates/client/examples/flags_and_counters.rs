//! Registers: keys that are read and updated one by one, without transactions.
//!
//! It shows
//! - `increment`, with which no count is lost;
//! - `compare_and_swap` as a lease, which one of several workers gets;
//! - `rmw` with a bound: seats are reserved while there are any;
//! - what to do about [`RegisterError::Unknown`]: the update is tried again with its token, and takes effect once.
//!
//! Run it with a cluster in this process, or with one that you have:
//!
//! ```sh
//! cargo run -p serried --example flags_and_counters
//! cargo run -p serried --example flags_and_counters -- serried://127.0.0.1:7400
//! ```

use std::error::Error;
use std::time::Duration;

use serried::{Access, Key, Modification, RegisterError, RegisterKeyspace, RegisterOptions, Value};
use tokio::task::JoinSet;

mod support;

const WORKERS: i64 = 8;
const SEATS: usize = 5;

/// Adds one with an update that is tried until it is known to have taken effect. The first deadline is over at once, and
/// each one after it is longer. Returns how often it was tried.
async fn add_one_in_haste(flags: &RegisterKeyspace, key: &Key) -> Result<u32, RegisterError> {
    let (mut token, mut tries) = (None, 0);
    loop {
        let deadline = Duration::from_millis(100) * tries;
        let hasty = flags.with_options(RegisterOptions { deadline });
        let update = Access::Modify(Modification::add(1));
        tries += 1;
        match hasty.access(key.clone(), update, token).await {
            Ok(_) => return Ok(tries),
            // It may have taken effect. With the token it does not do so twice.
            Err(RegisterError::Unknown { token: named, .. }) => token = Some(named),
            // Nothing took effect, so there is no new token.
            Err(RegisterError::Unavailable { .. }) if tries < 20 => {}
            Err(error) => return Err(error),
        }
    }
}

/// What the example does.
pub(crate) async fn run(address: Option<String>) -> Result<(), Box<dyn Error>> {
    let (db, _cluster) = support::open(address, Default::default()).await?;
    let flags = db.registers("flags").await?;
    for key in ["example/visits", "example/leader", "example/taken", "example/orders"] {
        flags.delete(key).await?;
    }

    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let flags = flags.clone();
        workers.spawn(async move {
            let visits = flags.increment("example/visits", 1).await?;
            // The first worker finds no leader, and becomes the leader.
            let me = Value::from(format!("worker-{worker}"));
            let leads = flags.compare_and_swap("example/leader", None, Some(me)).await?;
            // The sum stays as it is if it would be above the number of seats.
            let reserve = Modification::Add { delta: 1, least: 0, most: SEATS as i64 };
            let seat = flags.rmw("example/taken", reserve).await?;
            Ok::<_, RegisterError>((worker, visits, leads, seat.applied))
        });
    }
    let (mut visits, mut leaders, mut seats) = (Vec::new(), Vec::new(), 0);
    for worked in workers.join_all().await {
        let (worker, visit, leads, has_seat) = worked?;
        visits.push(visit.ok_or("the count of visits does not fit into 64 bits")?);
        leaders.extend(leads.then_some(worker));
        seats += usize::from(has_seat);
    }

    visits.sort();
    println!("the visits were counted as {visits:?}");
    if !visits.into_iter().eq(1..=WORKERS) {
        return Err("a visit is missing, or was counted twice".into());
    }
    println!("{seats} of {WORKERS} workers have a seat");
    if seats != SEATS {
        return Err(format!("there are {SEATS} seats").into());
    }
    let &[leader] = leaders.as_slice() else {
        return Err(format!("these workers lead: {leaders:?}").into());
    };
    println!("worker {leader} holds the lease");
    // It gives the lease back, unless somebody else has it by now.
    let me = Value::from(format!("worker-{leader}"));
    if !flags.compare_and_swap("example/leader", Some(me), None).await? {
        return Err("the lease was lost".into());
    }

    let (orders, mut tries) = (Key::from("example/orders"), 0);
    for _ in 0..10 {
        tries += add_one_in_haste(&flags, &orders).await?;
    }
    println!("10 orders were counted, in {tries} tries");
    let counted = flags.read(orders).await?;
    if counted != Some(Value::from("10")) {
        return Err(format!("{counted:?} orders were counted instead of 10").into());
    }
    db.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(std::env::args().nth(1)).await
}

//! A client that runs one transaction after the other.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serried_history::Recorder;
use serried_model::{Key, Value, Version};
use serried_session::{TransactionError, TransactionKeyspace};

use crate::transactor::Transactor;
use crate::{Measurement, Workload};

/// The random numbers of a client in a run with this seed.
pub(crate) fn generator(seed: u64, client: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed ^ client.wrapping_mul(0x9e37_79b9))
}

/// One client in a closed loop.
pub struct ClosedLoop {
    /// The keyspace.
    pub keyspace: TransactionKeyspace,
    /// The workload.
    pub workload: Arc<dyn Workload>,
    /// The measurement of its results.
    pub measurement: Arc<Measurement>,
    /// The recorder of its history, if one is kept.
    pub recorder: Option<Arc<Recorder>>,
    /// Its number, which is its process in the history.
    pub client: u64,
    /// The seed of the run. Each client has a random generator of its own.
    pub seed: u64,
}

impl ClosedLoop {
    /// Runs transactions until the window's stop.
    pub async fn run(self) {
        let ClosedLoop { keyspace, workload, measurement, recorder, client, seed } = self;
        let transactor = Transactor { keyspace, workload, measurement, recorder };
        let mut random = generator(seed, client);
        let mut pause = Pause::default();
        // The window may be moved in the meantime.
        while transactor.keyspace.now() < transactor.measurement.window().stop {
            let plan = transactor.workload.plan(client, &mut random);
            pause.add(transactor.workload.think(&plan));
            if let Some(due) = pause.due() {
                let now = transactor.keyspace.now();
                let (begins, stop) = (now + due, transactor.measurement.window().stop);
                transactor.keyspace.sleep_until(begins.min(stop)).await;
                if begins >= stop {
                    break;
                }
                pause.took(transactor.keyspace.now().since(now));
            }
            let begun = transactor.keyspace.now();
            // The measurement has its outcome.
            let _ = transactor.transact(client, &plan, begun).await;
        }
    }
}

/// How fine the timers of a real runtime are. A shorter pause would last as long as this.
const TIMER: Duration = Duration::from_millis(1);

/// The pauses of a client, which timers make longer than they should be. Short ones are made together, and what a pause has
/// lasted too long is taken from later ones. So they have the right length on average.
#[derive(Default)]
struct Pause {
    /// What is still to be waited. Below zero if pauses have lasted too long.
    owed_ns: i64,
}

impl Pause {
    /// The client pauses.
    fn add(&mut self, pause: Duration) {
        let ns = i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX);
        self.owed_ns = self.owed_ns.saturating_add(ns);
    }

    /// How long to wait now, if it is worth it.
    fn due(&self) -> Option<Duration> {
        let owed = Duration::from_nanos(self.owed_ns.try_into().ok()?);
        (owed >= TIMER).then_some(owed)
    }

    /// It has lasted so long. A process that has stood still does not catch up.
    fn took(&mut self, time: Duration) {
        let ns = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let least = -(2 * TIMER.as_nanos() as i64);
        self.owed_ns = self.owed_ns.saturating_sub(ns).max(least);
    }
}

/// Keys loaded per transaction at most.
const LOADED_AT_ONCE: u64 = 1000;
/// Bytes of keys and values loaded per transaction at most, unless a single pair has more: a quarter of the usual limit.
const BYTES_AT_ONCE: usize = 4 << 20;

/// Loads the share of a workload's initial keys that belongs to `loader` of `loaders`, which may load at the same time.
/// Calls `progress` from time to time with the number of keys loaded. Returns the latest version loaded.
///
/// # Errors
/// As [`TransactionKeyspace::transact`].
pub async fn preload(
    keyspace: &TransactionKeyspace,
    workload: &dyn Workload,
    loader: u64,
    loaders: u64,
    progress: impl Fn(u64),
) -> Result<Version, TransactionError> {
    let mut latest = Version::INITIAL;
    for batch in (loader..).step_by(loaders as usize) {
        let keys = batch * LOADED_AT_ONCE..(batch + 1) * LOADED_AT_ONCE;
        let mut pairs = keys.map_while(|i| workload.initial(i)).peekable();
        if pairs.peek().is_none() {
            break;
        }
        while let Some(first) = pairs.next() {
            let mut bytes = pair_bytes(&first);
            let mut part = vec![first];
            while let Some(next) = pairs.next_if(|next| bytes + pair_bytes(next) <= BYTES_AT_ONCE) {
                bytes += pair_bytes(&next);
                part.push(next);
            }
            let part = &part;
            let load = keyspace.transact(|tx| async move {
                for (key, value) in part {
                    tx.put(key, value);
                }
                Ok(())
            });
            latest = latest.max(load.await?.version);
            progress(part.len() as u64);
        }
    }
    Ok(latest)
}

fn pair_bytes((key, value): &(Key, Value)) -> usize {
    key.len() + value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pauses_are_made_together_and_what_was_too_long_is_made_up_for() {
        let us = Duration::from_micros;
        let mut pause = Pause::default();
        pause.add(us(600));
        assert_eq!(pause.due(), None);
        pause.add(us(600));
        assert_eq!(pause.due(), Some(us(1200)));
        pause.took(us(2000));
        pause.add(us(1700));
        assert_eq!(pause.due(), None, "900 are owed");
        pause.add(us(100));
        assert_eq!(pause.due(), Some(us(1000)));
        // The process stands still for a second, and begins anew: two milliseconds are made up for.
        pause.took(us(1_000_000));
        pause.add(us(2999));
        assert_eq!(pause.due(), None);
        pause.add(us(1));
        assert_eq!(pause.due(), Some(us(1000)));
        pause.add(Duration::MAX);
        assert!(pause.due() > Some(us(1_000_000_000)));
    }
}

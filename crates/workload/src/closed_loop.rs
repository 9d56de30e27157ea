//! A client that runs one transaction after the other.

use std::sync::Arc;

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
        // The window may be moved in the meantime.
        while transactor.keyspace.now() < transactor.measurement.window().stop {
            let plan = transactor.workload.plan(client, &mut random);
            let think = transactor.workload.think(&plan);
            if !think.is_zero() {
                let begins = transactor.keyspace.now() + think;
                let stop = transactor.measurement.window().stop;
                transactor.keyspace.sleep_until(begins.min(stop)).await;
                if begins >= stop {
                    break;
                }
            }
            let begun = transactor.keyspace.now();
            // The measurement has its outcome.
            let _ = transactor.transact(client, &plan, begun).await;
        }
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

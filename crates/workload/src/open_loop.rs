//! A client that begins transactions as they arrive, whether or not earlier ones have ended.

use core::pin::pin;
use core::task::Poll;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp};
use rand_pcg::Pcg64Mcg;
use serried_actor::Timestamp;
use serried_history::Recorder;
use serried_session::{ProcedureKeyspace, TransactionKeyspace};

use crate::closed_loop::generator;
use crate::transactor::Transactor;
use crate::{Arrival, Measurement, Plan, Workload};

/// One client in an open loop (003 §6.1): transactions arrive as a Poisson process.
///
/// Each is begun when it arrives, unless [`OpenLoop::most_open`] transactions of this client are open: then it is
/// dropped, and counted as dropped. So a client backs off from an overloaded system: the number of waiting transactions
/// and the client's memory are bounded, while the offered load stays the same. (The paper says that its clients back
/// off, but not how.) Latencies count from the arrival, so that they include every delay, also those of the client
/// itself.
///
/// In every run with the same seed, a client's n-th transaction arrives at the same time after the first and has the
/// same plan, whatever the outcomes of earlier ones. So several protocols can be offered exactly the same load.
pub struct OpenLoop {
    /// The keyspace.
    pub keyspace: TransactionKeyspace,
    /// The workload.
    pub workload: Arc<dyn Workload>,
    /// The measurement of its results.
    pub measurement: Arc<Measurement>,
    /// The recorder of its history, if one is kept.
    pub recorder: Option<Arc<Recorder>>,
    /// Its number. In a history it has as many processes as it may have transactions open.
    pub client: u64,
    /// The seed of the run. Each client has a random generator of its own.
    pub seed: u64,
    /// How many transactions arrive per second, above 0.
    pub rate_per_s: f64,
    /// How many may be open, above 0.
    pub most_open: usize,
}

impl OpenLoop {
    /// Begins transactions until the window's stop, and ends when all of them have ended.
    ///
    /// # Panics
    /// If the rate is not above 0.
    pub async fn run(self) {
        let OpenLoop { keyspace, workload, measurement, recorder, client, seed, .. } = self;
        let transactor = Transactor { keyspace, workload, measurement, recorder };
        let Transactor { keyspace, workload, measurement, .. } = &transactor;
        let doors = Doors { rate_per_s: self.rate_per_s, most_open: self.most_open, client, seed };
        let begin = |Arrived { process, mut random, at, late }| {
            let plan = workload.plan(client, &mut random);
            serve(&transactor, process, plan, at, late)
        };
        doors.let_in(keyspace, measurement, begin).await;
    }
}

/// A keyspace's time.
pub(crate) trait Clock {
    fn now(&self) -> Timestamp;
    fn sleep_until(&self, at: Timestamp) -> impl Future<Output = ()> + Send + 'static;
}

impl Clock for TransactionKeyspace {
    fn now(&self) -> Timestamp {
        TransactionKeyspace::now(self)
    }

    fn sleep_until(&self, at: Timestamp) -> impl Future<Output = ()> + Send + 'static {
        TransactionKeyspace::sleep_until(self, at)
    }
}

impl Clock for ProcedureKeyspace {
    fn now(&self) -> Timestamp {
        ProcedureKeyspace::now(self)
    }

    fn sleep_until(&self, at: Timestamp) -> impl Future<Output = ()> + Send + 'static {
        ProcedureKeyspace::sleep_until(self, at)
    }
}

/// Where what arrives in an open loop comes in.
pub(crate) struct Doors {
    /// How many arrive per second, above 0.
    pub(crate) rate_per_s: f64,
    /// How many may be inside.
    pub(crate) most_open: usize,
    /// The number of the client.
    pub(crate) client: u64,
    /// The seed of the run.
    pub(crate) seed: u64,
}

/// Something that has arrived.
pub(crate) struct Arrived {
    /// The process that has it, which no other has that is open.
    pub(crate) process: u64,
    /// To plan it with.
    pub(crate) random: Pcg64Mcg,
    /// When it arrived.
    pub(crate) at: Timestamp,
    /// How long ago that is.
    pub(crate) late: Duration,
}

impl Doors {
    /// Begins what arrives until the window's stop, and ends when all of it has ended. What is begun returns its process,
    /// which can then run something else. What finds too many inside is dropped.
    pub(crate) async fn let_in<F: Future<Output = u64>>(
        self,
        clock: &impl Clock,
        measurement: &Measurement,
        mut begin: impl FnMut(Arrived) -> F,
    ) {
        let Doors { rate_per_s, most_open, client, seed } = self;
        let mut arrivals = Arrivals::new(rate_per_s, clock.now(), seed, client);
        let first_process = client * most_open as u64;
        let mut free: Vec<u64> = (first_process..).take(most_open).collect();
        free.reverse();
        let mut open = FuturesUnordered::new();
        loop {
            let now = clock.now();
            // The window may be moved in the meantime.
            let stop = measurement.window().stop;
            while arrivals.next <= now && arrivals.next < stop {
                let (at, random) = arrivals.take();
                let late = now.since(at);
                let Some(process) = free.pop() else {
                    measurement.enter_arrival(at, late, Arrival::Dropped);
                    continue;
                };
                open.push(begin(Arrived { process, random, at, late }));
            }
            if arrivals.next >= stop || now >= stop {
                break;
            }
            let is_behind = clock.now() >= arrivals.next;
            let next_arrival = pin!(clock.sleep_until(arrivals.next));
            if open.is_empty() {
                next_arrival.await;
            } else if let Either::Left((Some(process), _)) = select(open.next(), next_arrival).await
            {
                free.push(process);
            }
            if is_behind {
                // Arrivals come faster than they can be begun. Let other tasks run.
                step_back().await;
            }
        }
        while open.next().await.is_some() {}
    }
}

/// Runs a transaction that has arrived. Returns its process, which can then run another one.
async fn serve(
    transactor: &Transactor,
    process: u64,
    plan: Plan,
    arrived: Timestamp,
    late: Duration,
) -> u64 {
    let how = transactor.transact(process, &plan, arrived).await;
    transactor.measurement.enter_arrival(arrived, late, how);
    process
}

/// Lets every other ready task run first.
async fn step_back() {
    let mut has_stepped_back = false;
    core::future::poll_fn(|cx| {
        if core::mem::replace(&mut has_stepped_back, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The arrival times. The time between two arrivals is exponentially distributed.
struct Arrivals {
    next: Timestamp,
    begun: Timestamp,
    /// The time from the start to the next arrival. It is not rounded, because a sum of rounded times would change the
    /// rate.
    elapsed_s: f64,
    gap_s: Exp<f64>,
    random: Pcg64Mcg,
}

impl Arrivals {
    fn new(rate_per_s: f64, begun: Timestamp, seed: u64, client: u64) -> Arrivals {
        let gap_s = Exp::new(rate_per_s).expect("a rate above 0");
        let random = generator(seed, client);
        let mut arrivals = Arrivals { next: begun, begun, elapsed_s: 0.0, gap_s, random };
        arrivals.take();
        arrivals
    }

    /// Takes the next arrival, and the random generator to plan its transaction with. Each transaction has a generator
    /// of its own, so that a dropped one need not be planned.
    fn take(&mut self) -> (Timestamp, Pcg64Mcg) {
        let arrived = self.next;
        let plan = Pcg64Mcg::seed_from_u64(self.random.next_u64());
        // The bound ensures that it can be added to a time.
        self.elapsed_s = (self.elapsed_s + self.gap_s.sample(&mut self.random)).min(LATEST_S);
        self.next = self.begun + Duration::from_secs_f64(self.elapsed_s);
        (arrived, plan)
    }
}

/// No run lasts that long: a year, in seconds.
const LATEST_S: f64 = 365.0 * 24.0 * 3600.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64, client: u64) -> Vec<f64> {
        let mut arrivals = Arrivals::new(2000.0, Timestamp(0), seed, client);
        let times = (0..20_000).map(|_| arrivals.take().0.0 as f64 / 1e9);
        times.collect()
    }

    #[test]
    fn arrivals_have_their_rate_and_exponential_gaps() {
        let times = drawn(1, 0);
        assert!((9.7..10.3).contains(&times[19_999]), "{}", times[19_999]);
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.95..1.05).contains(&(variance.sqrt() / mean)));
    }

    #[test]
    fn a_seed_decides_when_a_clients_transactions_arrive() {
        assert_eq!(drawn(1, 0), drawn(1, 0));
        assert_ne!(drawn(1, 0), drawn(1, 1));
        assert_ne!(drawn(1, 0), drawn(2, 0));
    }
}

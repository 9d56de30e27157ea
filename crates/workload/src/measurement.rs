//! Measuring a run.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serried_actor::Timestamp;
use serried_model::{ReadValue, Version};
use serried_session::{Committed, Footprint, TransactionError};

use crate::RolledBack;

/// The longest latency that is distinguished from longer ones: an hour.
const LONGEST_US: u64 = 3_600_000_000;

/// The times at which the measurement of a run begins and ends, and at which clients stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Commits from this time on count.
    pub from: Timestamp,
    /// Commits from this time on no longer count.
    pub until: Timestamp,
    /// Clients begin nothing new from this time on.
    pub stop: Timestamp,
}

impl Window {
    /// A warm-up from `now`, then the measured time, then a cool-down.
    pub fn new(now: Timestamp, warm_up: Duration, measured: Duration, cool_down: Duration) -> Self {
        let from = now + warm_up;
        let until = from + measured;
        Window { from, until, stop: until + cool_down }
    }

    fn contains(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.until
    }
}

/// A committed transaction, as its client knows it.
#[derive(Clone, Copy, Debug)]
pub struct Witnessed<'a> {
    /// When its first attempt began.
    pub begun: Timestamp,
    /// When its client learned that it has committed.
    pub ended: Timestamp,
    /// Its kind.
    pub kind: &'static str,
    /// Its version.
    pub version: Version,
    /// How many attempts it took.
    pub attempts: u32,
    /// What it read and wrote.
    pub footprint: &'a Footprint,
}

/// Receives committed transactions.
pub type Witness = Box<dyn Fn(Witnessed<'_>) + Send + Sync>;

/// An error of an operation. Each family has its own.
pub trait Failure: core::fmt::Display {
    /// Whether the outcome is unknown: the operation may have taken effect all the same.
    fn is_unknown(&self) -> bool;

    /// Whether the operation was refused as its workload planned. It is then no failure.
    fn is_planned(&self) -> bool {
        false
    }
}

/// An operation of a request, and how it ended.
#[derive(Debug)]
pub struct Part<E> {
    /// Its kind.
    pub kind: &'static str,
    /// When it ended.
    pub ended: Timestamp,
    /// Whether it took effect.
    pub result: Result<(), E>,
}

/// How a transaction that arrived in an open loop ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It committed, or gave up as its workload planned.
    Done,
    /// It ended with an error.
    Failed,
    /// It was not begun, because its client had too many others open.
    Dropped,
}

/// The results of a run, which all its clients enter.
pub struct Measurement {
    counts: Mutex<Counts>,
    witness: Option<Witness>,
}

#[derive(Debug)]
struct Counts {
    window: Window,
    committed: u64,
    attempts: u64,
    re_executions: u64,
    re_executed: u64,
    reads_sent_by_re_executions: u64,
    rolled_back: u64,
    failed: u64,
    unknown: u64,
    last_error: Option<String>,
    latency_us: Histogram<u64>,
    kinds: BTreeMap<Cow<'static, str>, KindCounts>,
    all_committed: u64,
    latest: Version,
    windows: Windows,
    arrivals: ArrivalCounts,
    /// How long what was open at the end of the window had been so, if that was at least half of its length.
    waiting_us: Vec<u64>,
    /// By name, the sum and the number of what was noted.
    noted: BTreeMap<&'static str, (f64, u64)>,
}

/// The outcomes of the transactions that arrived within the window.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
struct ArrivalCounts {
    done: u64,
    failed: u64,
    dropped: u64,
    late_ns: u64,
}

/// The results of one kind of transaction.
#[derive(Debug)]
struct KindCounts {
    committed: u64,
    rolled_back: u64,
    failed: u64,
    latency_us: Histogram<u64>,
}

impl Default for KindCounts {
    fn default() -> Self {
        KindCounts { committed: 0, rolled_back: 0, failed: 0, latency_us: latencies() }
    }
}

impl KindCounts {
    fn committed(&mut self, latency_us: u64) {
        self.committed += 1;
        self.latency_us.saturating_record(latency_us);
    }
}

fn microseconds(begun: Timestamp, ended: Timestamp) -> u64 {
    ended.since(begun).as_micros() as u64
}

/// The values at these quantiles. `None` if the histogram is empty.
fn values(histogram: &Histogram<u64>, quantiles: &[f64]) -> Option<Vec<u64>> {
    let value = |quantile: &f64| histogram.value_at_quantile(*quantile);
    (!histogram.is_empty()).then(|| quantiles.iter().map(value).collect())
}

fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are good")
}

/// What a process has measured, for another one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    committed: u64,
    attempts: u64,
    re_executions: u64,
    re_executed: u64,
    reads_sent_by_re_executions: u64,
    rolled_back: u64,
    failed: u64,
    unknown: u64,
    last_error: Option<String>,
    /// How often each latency was measured.
    latencies_us: Vec<(u64, u64)>,
    kinds: BTreeMap<String, KindResults>,
    all_committed: u64,
    latest: Version,
    arrivals: ArrivalCounts,
    waiting_us: Vec<u64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct KindResults {
    committed: u64,
    rolled_back: u64,
    failed: u64,
    latencies_us: Vec<(u64, u64)>,
}

fn recorded(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let recorded = histogram.iter_recorded();
    recorded.map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
}

fn record(histogram: &mut Histogram<u64>, latencies_us: &[(u64, u64)]) {
    for (latency_us, count) in latencies_us {
        histogram.saturating_record_n(*latency_us, *count);
    }
}

/// The serialization windows of committed transactions (000 §2.1): from the write that a transaction has read to its
/// own write of the same key.
#[derive(Debug, Default)]
struct Windows {
    /// When recent writes were made, by their versions.
    written: BTreeMap<Version, Timestamp>,
    total_ns: u64,
    count: u64,
}

/// How many writes are kept for their readers.
const REMEMBERED_WRITES: usize = 4096;

impl Windows {
    /// Enters a committed transaction, and its windows if it counts.
    fn enter(&mut self, version: Version, footprint: &Footprint, counts: bool) {
        if footprint.writes.is_empty() {
            return;
        }
        let rewritten = |read: &ReadValue| footprint.writes.iter().any(|w| w.key == read.key);
        for read in footprint.reads.iter().filter(|_| counts) {
            // Most writes are old and forgotten. This check is faster than whether the transaction writes the key
            // itself, so it comes first.
            let begun = self.written.get(&read.version).filter(|_| rewritten(read));
            if let Some(begun) = begun {
                self.total_ns += footprint.written_at.since(*begun).as_nanos() as u64;
                self.count += 1;
            }
        }
        self.written.insert(version, footprint.written_at);
        if self.written.len() > REMEMBERED_WRITES {
            self.written.pop_first();
        }
    }
}

/// What has been open for this many times the median latency waits. Less may be usual.
const WAITS: u64 = 10;

impl Counts {
    /// Notes something that did not end within the window, if it was open for long when the window ended.
    fn note_waiting(&mut self, begun: Timestamp, ended: Timestamp) {
        let Window { from, until, .. } = self.window;
        let was_open = begun < until && until <= ended;
        if was_open && until.since(begun) * 2 >= until.since(from) {
            self.waiting_us.push(microseconds(begun, until));
        }
    }

    /// How many were left waiting when the window ended.
    fn waiting(&self) -> u64 {
        let usual_us = self.latency_us.value_at_quantile(0.5);
        let waits = |open_us: &&u64| **open_us >= usual_us.saturating_mul(WAITS);
        self.waiting_us.iter().filter(waits).count() as u64
    }
}

impl Measurement {
    /// A measurement without results.
    pub fn new(window: Window) -> Measurement {
        let counts = Counts {
            window,
            committed: 0,
            attempts: 0,
            re_executions: 0,
            re_executed: 0,
            reads_sent_by_re_executions: 0,
            rolled_back: 0,
            failed: 0,
            unknown: 0,
            last_error: None,
            latency_us: latencies(),
            kinds: BTreeMap::new(),
            all_committed: 0,
            latest: Version::INITIAL,
            windows: Windows::default(),
            arrivals: ArrivalCounts::default(),
            waiting_us: Vec::new(),
            noted: BTreeMap::new(),
        };
        Measurement { counts: Mutex::new(counts), witness: None }
    }

    /// Passes every committed transaction to `witness`.
    #[must_use]
    pub fn with_witness(self, witness: Witness) -> Measurement {
        Measurement { witness: Some(witness), ..self }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("nobody panics while entering")
    }

    /// Changes the window. Results so far are kept, so the window may only be moved before it begins, or end earlier.
    pub fn move_window(&self, window: Window) {
        self.lock().window = window;
    }

    /// The window.
    pub fn window(&self) -> Window {
        self.lock().window
    }

    /// Enters a transaction of this kind with these times of beginning and end.
    pub fn enter<T>(
        &self,
        kind: &'static str,
        begun: Timestamp,
        ended: Timestamp,
        result: &Result<(Committed<T>, Footprint), TransactionError>,
    ) {
        if let (Some(witness), Ok((committed, footprint))) = (&self.witness, result) {
            let (version, attempts) = (committed.version, committed.attempts);
            witness(Witnessed { begun, ended, kind, version, attempts, footprint });
        }
        let counts = &mut *self.lock();
        let measured = counts.window.contains(ended);
        if let Ok((committed, footprint)) = result {
            counts.all_committed += 1;
            counts.latest = counts.latest.max(committed.version);
            counts.windows.enter(committed.version, footprint, measured);
        }
        if let Err(TransactionError::Unknown { txn, .. }) = result {
            counts.latest = counts.latest.max(*txn);
        }
        let planned = |error: &TransactionError| error.application::<RolledBack>().is_some();
        if let Err(error) = result
            && !planned(error)
        {
            counts.last_error = Some(error.to_string());
        }
        if !measured {
            return counts.note_waiting(begun, ended);
        }
        let of_kind = counts.kinds.entry(kind.into()).or_default();
        match result {
            Ok((committed, footprint)) => {
                counts.committed += 1;
                counts.attempts += u64::from(committed.attempts);
                counts.re_executions += u64::from(committed.re_executions);
                counts.re_executed += u64::from(committed.re_executions > 0);
                counts.reads_sent_by_re_executions +=
                    u64::from(footprint.reads_sent_by_re_executions);
                let latency_us = microseconds(begun, ended);
                counts.latency_us.saturating_record(latency_us);
                of_kind.committed(latency_us);
            }
            Err(error) if planned(error) => {
                counts.rolled_back += 1;
                of_kind.rolled_back += 1;
            }
            Err(error) => {
                counts.failed += 1;
                of_kind.failed += 1;
                counts.unknown += u64::from(matches!(error, TransactionError::Unknown { .. }));
                counts.attempts += match error {
                    TransactionError::Conflict { attempts, .. }
                    | TransactionError::TooLong { attempts, .. }
                    | TransactionError::Deadline { attempts, .. } => u64::from(*attempts),
                    _ => 1,
                };
            }
        }
    }

    /// Enters the outcome of a transaction of an open loop. `late` is the time from its arrival until it was begun or
    /// dropped. Its commit and its latency are entered separately, by [`Measurement::enter`].
    pub fn enter_arrival(&self, arrived: Timestamp, late: Duration, how: Arrival) {
        let counts = &mut *self.lock();
        if !counts.window.contains(arrived) {
            return;
        }
        let arrivals = &mut counts.arrivals;
        arrivals.late_ns += late.as_nanos() as u64;
        *match how {
            Arrival::Done => &mut arrivals.done,
            Arrival::Failed => &mut arrivals.failed,
            Arrival::Dropped => &mut arrivals.dropped,
        } += 1;
    }

    /// Enters a request of single operations. It ends with the last of them, and has failed if one of them has. The
    /// operations are counted by their kinds.
    pub fn enter_request<E: Failure>(&self, begun: Timestamp, parts: &[Part<E>]) {
        let ended = parts.iter().map(|part| part.ended).max().unwrap_or(begun);
        let error = parts.iter().find_map(|part| part.result.as_ref().err());
        let counts = &mut *self.lock();
        match error {
            None => counts.all_committed += 1,
            Some(error) if error.is_planned() => {}
            Some(error) => counts.last_error = Some(error.to_string()),
        }
        if !counts.window.contains(ended) {
            return counts.note_waiting(begun, ended);
        }
        for part in parts {
            let of_kind = counts.kinds.entry(part.kind.into()).or_default();
            match &part.result {
                Ok(()) => of_kind.committed(microseconds(begun, part.ended)),
                Err(error) if error.is_planned() => of_kind.rolled_back += 1,
                Err(_) => of_kind.failed += 1,
            }
        }
        counts.attempts += 1;
        match error {
            None => {
                counts.committed += 1;
                counts.latency_us.saturating_record(microseconds(begun, ended));
            }
            Some(error) if error.is_planned() => counts.rolled_back += 1,
            Some(_) => {
                counts.failed += 1;
                let mut errors = parts.iter().filter_map(|part| part.result.as_ref().err());
                counts.unknown += u64::from(errors.any(E::is_unknown));
            }
        }
    }

    /// Enters attempts of a request that met conflicts, beside its last attempt.
    pub fn enter_retries(&self, ended: Timestamp, retries: u32) {
        let counts = &mut *self.lock();
        if counts.window.contains(ended) {
            counts.attempts += u64::from(retries);
        }
    }

    /// Enters numbers that a family has beside the common ones, by name. The report has their means.
    pub fn note(&self, at: Timestamp, numbers: &[(&'static str, f64)]) {
        let counts = &mut *self.lock();
        if !counts.window.contains(at) {
            return;
        }
        for (name, number) in numbers {
            let (sum, count) = counts.noted.entry(name).or_default();
            *sum += number;
            *count += 1;
        }
    }

    /// The latencies of the transactions or operations of a kind at these quantiles, in microseconds. `None` if there
    /// were none.
    pub fn quantiles_us(&self, kind: &str, quantiles: &[f64]) -> Option<Vec<u64>> {
        values(&self.lock().kinds.get(kind)?.latency_us, quantiles)
    }

    /// The latencies of all transactions or requests at these quantiles, in microseconds.
    pub fn request_quantiles_us(&self, quantiles: &[f64]) -> Option<Vec<u64>> {
        values(&self.lock().latency_us, quantiles)
    }

    /// How many transactions have committed so far, whether measured or not.
    pub fn committed_so_far(&self) -> u64 {
        self.lock().all_committed
    }

    /// The latest version of a transaction that has committed, or may have, whether measured or not.
    pub fn latest(&self) -> Version {
        self.lock().latest
    }

    /// The results so far, to be added to those of another process ([`Measurement::add`]).
    pub fn results(&self) -> Results {
        let counts = &*self.lock();
        let of_kind = |(kind, counts): (&Cow<'static, str>, &KindCounts)| {
            let KindCounts { committed, rolled_back, failed, latency_us } = counts;
            let latencies_us = recorded(latency_us);
            let results = KindResults {
                committed: *committed,
                rolled_back: *rolled_back,
                failed: *failed,
                latencies_us,
            };
            (kind.to_string(), results)
        };
        Results {
            committed: counts.committed,
            attempts: counts.attempts,
            re_executions: counts.re_executions,
            re_executed: counts.re_executed,
            reads_sent_by_re_executions: counts.reads_sent_by_re_executions,
            rolled_back: counts.rolled_back,
            failed: counts.failed,
            unknown: counts.unknown,
            last_error: counts.last_error.clone(),
            latencies_us: recorded(&counts.latency_us),
            kinds: counts.kinds.iter().map(of_kind).collect(),
            all_committed: counts.all_committed,
            latest: counts.latest,
            arrivals: counts.arrivals,
            waiting_us: counts.waiting_us.clone(),
        }
    }

    /// Adds the results of another process, which has measured for the same time. Serialization windows and the means of
    /// further numbers are not among them.
    pub fn add(&self, results: Results) {
        let counts = &mut *self.lock();
        counts.committed += results.committed;
        counts.attempts += results.attempts;
        counts.re_executions += results.re_executions;
        counts.re_executed += results.re_executed;
        counts.reads_sent_by_re_executions += results.reads_sent_by_re_executions;
        counts.rolled_back += results.rolled_back;
        counts.failed += results.failed;
        counts.unknown += results.unknown;
        counts.last_error = results.last_error.or(counts.last_error.take());
        record(&mut counts.latency_us, &results.latencies_us);
        for (kind, results) in results.kinds {
            let of_kind = counts.kinds.entry(kind.into()).or_default();
            of_kind.committed += results.committed;
            of_kind.rolled_back += results.rolled_back;
            of_kind.failed += results.failed;
            record(&mut of_kind.latency_us, &results.latencies_us);
        }
        counts.all_committed += results.all_committed;
        counts.latest = counts.latest.max(results.latest);
        counts.arrivals.done += results.arrivals.done;
        counts.arrivals.failed += results.arrivals.failed;
        counts.arrivals.dropped += results.arrivals.dropped;
        counts.arrivals.late_ns += results.arrivals.late_ns;
        counts.waiting_us.extend(results.waiting_us);
    }

    /// The report of the results.
    pub fn report(&self) -> Report {
        let counts = &*self.lock();
        let seconds = counts.window.until.since(counts.window.from).as_secs_f64();
        let per = |count: u64, of: u64| if of == 0 { 0.0 } else { count as f64 / of as f64 };
        let quantile = |q| counts.latency_us.value_at_quantile(q);
        let of_kind = |(kind, counts): (&Cow<'static, str>, &KindCounts)| KindReport {
            kind: kind.clone(),
            committed: counts.committed,
            rolled_back: counts.rolled_back,
            failed: counts.failed,
            goodput_per_s: counts.committed as f64 / seconds,
            latency_us_mean: counts.latency_us.mean(),
            latency_us_p50: counts.latency_us.value_at_quantile(0.5),
            latency_us_p90: counts.latency_us.value_at_quantile(0.9),
            latency_us_p99: counts.latency_us.value_at_quantile(0.99),
            latency_us_p999: counts.latency_us.value_at_quantile(0.999),
        };
        Report {
            seconds,
            committed: counts.committed,
            rolled_back: counts.rolled_back,
            failed: counts.failed,
            unknown: counts.unknown,
            goodput_per_s: counts.committed as f64 / seconds,
            commit_rate: per(counts.committed, counts.attempts),
            attempts_per_txn: per(counts.attempts, counts.committed),
            re_executions_per_txn: per(counts.re_executions, counts.committed),
            re_executed_share: per(counts.re_executed, counts.committed),
            round_trips_per_re_execution: per(
                counts.reads_sent_by_re_executions,
                counts.re_executions,
            ),
            serialization_window_us: match counts.windows.count {
                0 => None,
                count => Some(counts.windows.total_ns as f64 / count as f64 / 1e3),
            },
            latency_us_mean: counts.latency_us.mean(),
            latency_us_p50: quantile(0.5),
            latency_us_p90: quantile(0.9),
            latency_us_p99: quantile(0.99),
            latency_us_p999: quantile(0.999),
            last_error: counts.last_error.clone(),
            waiting: counts.waiting(),
            kinds: counts.kinds.iter().map(of_kind).collect(),
            arrivals: counts.arrivals.report(seconds),
            means: counts
                .noted
                .iter()
                .map(|(name, (sum, count))| (*name, sum / *count as f64))
                .collect(),
        }
    }
}

impl ArrivalCounts {
    /// `None` if nothing arrived: then the loop was a closed one.
    fn report(&self, seconds: f64) -> Option<ArrivalReport> {
        let ArrivalCounts { done, failed, dropped, late_ns } = *self;
        let offered = done + failed + dropped;
        (offered > 0).then(|| ArrivalReport {
            offered,
            done,
            failed,
            dropped,
            offered_per_s: offered as f64 / seconds,
            late_us_mean: late_ns as f64 / offered as f64 / 1e3,
        })
    }
}

/// The outcomes of the transactions that arrived in an open loop within its window. Each was done, failed or dropped,
/// perhaps after the window.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ArrivalReport {
    /// How many there were.
    pub offered: u64,
    /// Those that committed, or gave up as their workload planned.
    pub done: u64,
    /// Those that ended with an error.
    pub failed: u64,
    /// Those that were not begun, because their client had too many others open.
    pub dropped: u64,
    /// How many arrived per second.
    pub offered_per_s: f64,
    /// The average time from an arrival until the transaction was begun or dropped, in microseconds. It shows how far
    /// the clients themselves are behind. It is part of every latency.
    pub late_us_mean: f64,
}

/// The results of a run for one kind of transaction, within the window.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KindReport {
    /// The kind, as its workload calls it.
    pub kind: Cow<'static, str>,
    /// Transactions committed.
    pub committed: u64,
    /// Transactions that gave up as their workload planned.
    pub rolled_back: u64,
    /// Transactions that ended with an error.
    pub failed: u64,
    /// Committed transactions per second.
    pub goodput_per_s: f64,
    /// Mean latency, from the first attempt, or in an open loop from the arrival, to the commit, in
    /// microseconds.
    pub latency_us_mean: f64,
    /// Median latency.
    pub latency_us_p50: u64,
    /// 90th percentile.
    pub latency_us_p90: u64,
    /// 99th percentile.
    pub latency_us_p99: u64,
    /// 99.9th percentile.
    pub latency_us_p999: u64,
}

/// The results of a run, within its window.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The length of the window in seconds.
    pub seconds: f64,
    /// Transactions committed.
    pub committed: u64,
    /// Transactions that gave up as their workload planned.
    pub rolled_back: u64,
    /// Transactions that ended with an error.
    pub failed: u64,
    /// Those of them whose outcome is unknown.
    pub unknown: u64,
    /// Committed transactions per second.
    pub goodput_per_s: f64,
    /// Committed transactions per attempt.
    pub commit_rate: f64,
    /// Attempts per committed transaction.
    pub attempts_per_txn: f64,
    /// Re-executions per committed transaction, in its last attempt.
    pub re_executions_per_txn: f64,
    /// The share of committed transactions that were re-executed at all.
    pub re_executed_share: f64,
    /// Reads that a re-execution had to request, on average: an upper bound on its round trips.
    pub round_trips_per_re_execution: f64,
    /// The mean length of the serialization windows whose beginning is known, in microseconds. A key's goodput is at
    /// most one over the mean length of its windows. With a single key, this is that mean.
    pub serialization_window_us: Option<f64>,
    /// Mean latency, from the first attempt, or in an open loop from the arrival, to the commit, in
    /// microseconds.
    pub latency_us_mean: f64,
    /// Median latency.
    pub latency_us_p50: u64,
    /// 90th percentile.
    pub latency_us_p90: u64,
    /// 99th percentile.
    pub latency_us_p99: u64,
    /// 99.9th percentile.
    pub latency_us_p999: u64,
    /// The last error, if there was any.
    pub last_error: Option<String>,
    /// How many were open when the window ended, and had been for at least half of its length, and ten times as long as
    /// the median latency. No latency includes them: some clients may have to wait while others go on.
    pub waiting: u64,
    /// The results by kind of transaction, in the order of their names.
    pub kinds: Vec<KindReport>,
    /// The outcomes of arrivals, if clients were in an open loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<ArrivalReport>,
    /// The means of further numbers, by name. Empty for most families.
    #[serde(skip)]
    pub means: BTreeMap<&'static str, f64>,
}

#[cfg(test)]
mod tests;

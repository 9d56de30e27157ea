//! A run of read-only transactions that contend with writes, under a protocol of any family.
//!
//! Some clients only read, others only write. Computing takes no time, and each message takes the same time. So the
//! latency of a transaction is a round trip for each of its rounds, unless a server has waited for something before it
//! has answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::seq::index::sample;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use serried_actor::{Protocol, Timestamp};
use serried_model::{FamilyName, Geography, Key, Limits, Snapshots, Transactions, Value, Write};
use serried_procedures::{Datum, Procedures};
use serried_protocols::Visitor;
use serried_session::{
    Backoff, CallOptions, ProcedureKeyspace, Session, SnapshotKeyspace, TransactOptions,
    TransactionKeyspace,
};
use serried_sim::{Cluster, Configuration, CostModel, Traffic};

use super::Setting;
use crate::Error;
use crate::figure::{Contended, Parameter};
use crate::measured::ReadOnlyMeasured;

/// How many clients only read.
const READERS: usize = 4;
/// How long a client waits between requests, in round trips, at least and at most. What a reader sends after a transaction
/// has ended still belongs to it. The wait is drawn, so that clients do not go on in step.
const PAUSE: (f64, f64) = (5.0, 15.0);
/// How many bytes a key and a value have.
const KEY_BYTES: usize = 8;
const VALUE_BYTES: usize = 8;
/// Requests end by then.
const DEADLINE: Duration = Duration::from_secs(3600);

/// Rows of numbers that are read, and written, together.
const PROCEDURES: &str = r#"
[tables.cells]
key = { cell = "int" }
columns = { value = "int" }

[procedures.read]
inputs = { cells = { list = "int", max = 16 } }
returns = { values = "read.value" }

[procedures.read.pieces.read]
for_each = { cell = "cells" }
rows = { row = { table = "cells", key = ["cell"] } }
reads = ["row.value"]
outputs.value = "row.value"

[procedures.write]
inputs = { cells = { list = "int", max = 16 }, value = "int" }

[procedures.write.pieces.write]
for_each = { cell = "cells" }
rows = { row = { table = "cells", key = ["cell"] } }
writes.row.value = "value"
"#;

/// One run. Together with the build, this determines its result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct ReadOnlyPoint {
    /// The protocol, by its name in the registry.
    protocol: String,
    /// How many keys there are.
    keys: u64,
    /// How many of them a transaction reads.
    read: usize,
    /// How many of them are written together at most.
    written: usize,
    /// How many clients write.
    writers: usize,
    /// The sites of the replicas and clients.
    geography: &'static str,
    /// How many servers there are, each with a partition that is not replicated.
    servers: u16,
    /// [`crate::Effort::warm_up_s`].
    warm_up_s: f64,
    /// [`crate::Effort::measured_s`].
    measured_s: f64,
    /// The seed.
    seed: u64,
}

/// What the readers have measured.
#[derive(Default)]
struct Tally {
    done: u64,
    failed: u64,
    rounds: u64,
    most_rounds: u64,
    /// Of those with one attempt: clients wait between attempts.
    at_once: u64,
    blocked: u64,
    metadata_bytes: u64,
    latency: Duration,
}

/// What a reader has seen of a transaction that has ended.
struct Ended {
    latency: Duration,
    /// How many rounds of messages its client has sent.
    rounds: u64,
    /// What its client has sent and was sent, but for one copy of its keys and values.
    metadata_bytes: u64,
}

impl Tally {
    /// Counts a transaction, where a message to a server and its answer take `round_trip`.
    fn count(&mut self, read: Result<Read, String>, ended: &Ended, round_trip: Duration) {
        let Ok(Read { rounds: own, attempts }) = read else {
            self.failed += 1;
            return;
        };
        let rounds = own.map_or(ended.rounds, |own| ended.rounds.max(u64::from(own)));
        self.done += 1;
        self.rounds += rounds;
        self.most_rounds = self.most_rounds.max(rounds);
        let is_blocked = ended.latency > round_trip * rounds as u32;
        self.at_once += u64::from(attempts == 1);
        self.blocked += u64::from(attempts == 1 && is_blocked);
        self.metadata_bytes += ended.metadata_bytes;
        self.latency += ended.latency;
    }

    /// The means that there are.
    fn means(&self) -> BTreeMap<String, f64> {
        let done = self.done as f64;
        let means = [
            ("rounds", self.rounds as f64 / done),
            ("most_rounds", self.most_rounds as f64),
            ("blocked_share", self.blocked as f64 / self.at_once as f64),
            ("metadata_bytes", self.metadata_bytes as f64 / done),
        ];
        // Without any transaction there is nothing to tell.
        let means = means.into_iter().filter(|(_, mean)| self.done > 0 && mean.is_finite());
        means.map(|(name, mean)| (name.to_string(), mean)).collect()
    }
}

/// How a session has read.
struct Read {
    /// The number of rounds, if the protocol tells it.
    rounds: Option<u32>,
    attempts: u32,
}

/// A session of any family.
trait Contender: Clone + Send + Sync + 'static {
    /// The same session, which tries until it succeeds.
    fn persistent(self) -> Self;

    /// What is done before all else.
    fn begin(&self) -> impl Future<Output = Result<(), String>> + Send {
        async { Ok(()) }
    }

    /// Reads cells in one transaction.
    fn read(&self, cells: Vec<u64>) -> impl Future<Output = Result<Read, String>> + Send;

    /// Writes cells, together if that is possible.
    fn write(&self, cells: Vec<u64>, value: u64)
    -> impl Future<Output = Result<(), String>> + Send;

    /// Whether it is possible.
    fn writes_together(&self) -> bool {
        true
    }

    /// The present moment.
    fn now(&self) -> Timestamp;

    /// Waits until then.
    fn wait_until(&self, at: Timestamp) -> impl Future<Output = ()> + Send;
}

fn key(cell: u64) -> Key {
    Key::from(cell.to_be_bytes())
}

fn value(number: u64) -> Value {
    Value::from(number.to_be_bytes().as_slice())
}

/// One round trip at first.
const BACKOFF: Backoff =
    Backoff::Exponential { first: Duration::from_micros(100), most: Duration::from_millis(10) };

impl Contender for SnapshotKeyspace {
    fn persistent(self) -> Self {
        let options = *self.options();
        self.with_options(serried_session::SnapshotOptions { deadline: DEADLINE, ..options })
    }

    async fn read(&self, cells: Vec<u64>) -> Result<Read, String> {
        let read = self.read_only_recorded(cells.into_iter().map(key).collect()).await;
        let read = read.map_err(|error| error.to_string())?;
        Ok(Read { rounds: Some(read.rounds), attempts: 1 })
    }

    async fn write(&self, cells: Vec<u64>, number: u64) -> Result<(), String> {
        let writes =
            cells.into_iter().map(|cell| Write { key: key(cell), value: Some(value(number)) });
        if self.has_write_transactions() {
            return self.write_all(writes).await.map(drop).map_err(|error| error.to_string());
        }
        for Write { key, .. } in writes {
            self.write(key, value(number)).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn writes_together(&self) -> bool {
        self.has_write_transactions()
    }

    fn now(&self) -> Timestamp {
        self.now()
    }

    async fn wait_until(&self, at: Timestamp) {
        self.sleep_until(at).await;
    }
}

impl Contender for TransactionKeyspace {
    fn persistent(self) -> Self {
        let (deadline, attempts) = (DEADLINE, u32::MAX);
        self.with_options(TransactOptions { deadline, attempts, backoff: BACKOFF })
    }

    async fn read(&self, cells: Vec<u64>) -> Result<Read, String> {
        let keys: &Vec<Key> = &cells.into_iter().map(key).collect();
        let read = self.read_only(|snapshot| async move { snapshot.get_many(keys.clone()).await });
        let read = read.await.map_err(|error| error.to_string())?;
        Ok(Read { rounds: None, attempts: read.attempts })
    }

    async fn write(&self, cells: Vec<u64>, number: u64) -> Result<(), String> {
        let cells = &cells;
        let written = self.transact(|transaction| async move {
            cells.iter().for_each(|cell| transaction.put(key(*cell), value(number)));
            Ok(())
        });
        written.await.map(drop).map_err(|error| error.to_string())
    }

    fn now(&self) -> Timestamp {
        self.now()
    }

    async fn wait_until(&self, at: Timestamp) {
        self.sleep_until(at).await;
    }
}

impl Contender for ProcedureKeyspace {
    fn persistent(self) -> Self {
        self.with_options(CallOptions { deadline: DEADLINE, backoff: BACKOFF })
    }

    async fn begin(&self) -> Result<(), String> {
        let set = serried_chop::compile(PROCEDURES).map_err(|mistake| mistake.to_string())?;
        self.register(set).await.map(drop).map_err(|error| error.to_string())
    }

    async fn read(&self, cells: Vec<u64>) -> Result<Read, String> {
        let (attempts, called) = self.call_counted("read", [list(cells)]).await;
        called.map_err(|error| error.to_string())?;
        Ok(Read { rounds: None, attempts })
    }

    async fn write(&self, cells: Vec<u64>, number: u64) -> Result<(), String> {
        let called = self.call("write", [list(cells), Datum::Int(number as i64)]).await;
        called.map(drop).map_err(|error| error.to_string())
    }

    fn now(&self) -> Timestamp {
        self.now()
    }

    async fn wait_until(&self, at: Timestamp) {
        self.sleep_until(at).await;
    }
}

fn list(cells: Vec<u64>) -> Datum {
    Datum::List(cells.into_iter().map(|cell| Datum::Int(cell as i64)).collect())
}

impl ReadOnlyPoint {
    pub(super) fn new(setting: &Setting<'_>, work: Contended) -> ReadOnlyPoint {
        let Setting { figure, effort, panel, x, .. } = *setting;
        let Contended { keys, read, written } = work;
        ReadOnlyPoint {
            protocol: setting.protocol.to_string(),
            keys: effort.size.unwrap_or(keys).max(read as u64),
            read,
            written,
            writers: figure.value(Parameter::Writers, panel, x).unwrap_or_default() as usize,
            geography: setting.geography(),
            servers: figure.servers_at(panel, x),
            warm_up_s: effort.warm_up_s,
            measured_s: effort.measured_s,
            seed: setting.seed,
        }
    }

    /// The name of the file with its result.
    pub(super) fn file(&self) -> String {
        format!("{}-writers{}.json", self.protocol, self.writers)
    }

    /// Runs it.
    pub(super) fn run(&self) -> Result<ReadOnlyMeasured, Error> {
        let run = || Run { point: self };
        let name = &self.protocol;
        match serried_protocols::info(name).map(|info| info.family) {
            Some(FamilyName::Procedures) => serried_protocols::visit::<Procedures, _>(name, run()),
            Some(FamilyName::Snapshots) => serried_protocols::visit::<Snapshots, _>(name, run()),
            _ => serried_protocols::visit::<Transactions, _>(name, run()),
        }?
    }
}

struct Run<'a> {
    point: &'a ReadOnlyPoint,
}

/// A client that reads until the end.
struct Reader<K> {
    session: K,
    traffic: Arc<Traffic>,
    tally: Arc<Mutex<Tally>>,
    round_trip: Duration,
    keys: u64,
    read: usize,
    random: Pcg64Mcg,
    /// What begins between these counts.
    from: Timestamp,
    until: Timestamp,
}

fn cells(count: usize, keys: u64, random: &mut Pcg64Mcg) -> Vec<u64> {
    sample(random, keys as usize, count.min(keys as usize)).iter().map(|i| i as u64).collect()
}

fn pause(round_trip: Duration, random: &mut Pcg64Mcg) -> Duration {
    round_trip.mul_f64(random.random_range(PAUSE.0..PAUSE.1))
}

impl<K: Contender> Reader<K> {
    async fn run(mut self) {
        while self.session.now() < self.until {
            let cells = cells(self.read, self.keys, &mut self.random);
            let expected = cells.len() * (KEY_BYTES + VALUE_BYTES);
            let begun = self.session.now();
            let (rounds, bytes) = (self.traffic.rounds_before(begun), self.traffic.bytes());
            let read = self.session.read(cells).await;
            let ended = self.session.now();
            let counted = self.traffic.rounds_before(ended) - rounds;
            self.session.wait_until(ended + pause(self.round_trip, &mut self.random)).await;
            let bytes = (self.traffic.bytes() - bytes) as usize;
            if begun < self.from {
                continue;
            }
            let metadata_bytes = bytes.saturating_sub(expected) as u64;
            let ended = Ended { latency: ended.since(begun), rounds: counted, metadata_bytes };
            self.tally.lock().expect("nobody panics").count(read, &ended, self.round_trip);
        }
    }
}

impl<F> Visitor<F> for Run<'_>
where
    F: Session,
    F::Keyspace: Contender,
{
    type Output = Result<ReadOnlyMeasured, Error>;

    fn visit<P: Protocol<Family = F>>(self) -> Self::Output {
        let point = self.point;
        let geography = Geography::named(point.geography)?;
        let mut cluster = Cluster::<P>::new(Configuration {
            seed: point.seed,
            replicas: 1,
            partitions: point.servers,
            clients: READERS + point.writers,
            geography,
            costs: CostModel::FREE,
            // Messages are encoded, so their bytes are known.
            hash_contents: true,
            limits: Limits::default(),
            ..Configuration::default()
        });
        let begun = Arc::new(Mutex::new(None));
        let (first, tell) = (cluster.keyspace(0).persistent(), begun.clone());
        let writes_together = first.writes_together();
        cluster.spawn(0, async move {
            let result = first.begin().await;
            *tell.lock().expect("nobody panics") = Some(result);
        });
        while begun.lock().expect("nobody panics").is_none() {
            cluster.run_until(cluster.now() + Duration::from_millis(1));
        }
        begun.lock().expect("nobody panics").take().expect("it has begun").expect("nothing fails");
        let from = cluster.now().max(Timestamp(0) + Duration::from_secs_f64(point.warm_up_s));
        let until = from + Duration::from_secs_f64(point.measured_s);
        let (keys, written) = (point.keys, point.written);
        let round_trip = geography.round_trip(0, 0);
        let tally: Arc<Mutex<Tally>> = Arc::default();
        let failed: Arc<Mutex<u64>> = Arc::default();
        for client in 0..READERS + point.writers {
            let session = cluster.keyspace(client).persistent();
            let mut random = Pcg64Mcg::seed_from_u64(point.seed ^ (client as u64) << 32);
            if client < READERS {
                let (traffic, tally) = (cluster.count_traffic(client), tally.clone());
                let read = point.read;
                let reader =
                    Reader { session, traffic, tally, round_trip, keys, read, random, from, until };
                cluster.spawn(client, reader.run());
                continue;
            }
            let failed = failed.clone();
            cluster.spawn(client, async move {
                while session.now() < until {
                    let cells = cells(written, keys, &mut random);
                    if session.write(cells, random.random()).await.is_err() {
                        *failed.lock().expect("nobody panics") += 1;
                    }
                    session.wait_until(session.now() + pause(round_trip, &mut random)).await;
                }
            });
        }
        cluster.run_until(from);
        let before = cluster.statistics();
        cluster.run_until(until);
        let after = cluster.statistics();
        let tally = tally.lock().expect("nobody panics");
        let done = tally.done.max(1) as f64;
        let seconds = until.since(from).as_secs_f64();
        let failed = tally.failed + *failed.lock().expect("nobody panics");
        Ok(ReadOnlyMeasured {
            readers: READERS,
            writers: point.writers,
            done: tally.done,
            failed,
            per_s: tally.done as f64 / seconds,
            latency_ms_mean: tally.latency.as_secs_f64() * 1e3 / done,
            messages_each: (after.messages.total() - before.messages.total()) as f64 / done,
            seconds,
            guarantee: P::GUARANTEE.to_string(),
            write_transactions: writes_together,
            means: tally.means(),
            event_hash: format!("{:016x}", cluster.event_hash()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_attempts_of_a_transaction_count_and_waits_are_those_of_transactions_with_one() {
        let (mut tally, round_trip) = (Tally::default(), Duration::from_micros(100));
        let mut count = |rounds, attempts, latency_us, metadata_bytes| {
            let read = Read { rounds: None, attempts };
            let latency = Duration::from_micros(latency_us);
            tally.count(Ok(read), &Ended { latency, rounds, metadata_bytes }, round_trip);
        };
        count(1, 1, 100, 30);
        // It has waited.
        count(1, 1, 130, 30);
        // Between its attempts its client has waited.
        count(4, 2, 700, 120);
        tally.count(
            Err("cut off".to_string()),
            &Ended { latency: round_trip, rounds: 9, metadata_bytes: 9 },
            round_trip,
        );
        let means = tally.means();
        assert_eq!((tally.done, tally.failed), (3, 1));
        assert_eq!([means["rounds"], means["most_rounds"]], [2.0, 4.0]);
        assert_eq!([means["blocked_share"], means["metadata_bytes"]], [0.5, 60.0]);
        assert!(Tally::default().means().is_empty());
    }
}

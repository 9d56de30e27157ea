//! A client process of a torture, which writes down what it does as it does it.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use serried::{
    CallOptions, ConnectError, Database, Procedures, RegisterOptions, SnapshotOptions, Snapshots,
    TransactOptions,
};
use serried_history::{CallRecorder, Recorder, RegisterRecorder};
use serried_model::{Registers, Transactions};
use serried_session::{Driver, Session};
use serried_workload::{
    Bank, ClosedLoop, Measurement, Parameters, RegisterClient, SnapshotClient, Window, Workload,
};

use super::Kind;
use super::calls::{self, CallTorture};
use super::lists::SharedLists;
use super::registers::SharedRegisters;
use super::settling::{self, Notes};
use super::snapshots;
use super::timeline::epoch_ns;
use crate::Ended;
use crate::load::Client;
use crate::serve::input_ended;

/// How many transactions a client process has open at a time, each a process of the history.
pub(super) const LOOPS: u64 = 4;
/// The longest that a transaction may take, all attempts included.
const DEADLINE: Duration = Duration::from_secs(5);
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// Longer than any torture.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Run transactions until standard input ends.
#[derive(Args)]
pub(crate) struct TortureClient {
    #[arg(long)]
    connect: String,
    #[arg(long, value_enum)]
    workload: Kind,
    /// Where to write the history
    #[arg(long)]
    history: PathBuf,
    /// The first of its processes' numbers
    #[arg(long)]
    first_process: u64,
    /// When the torture began, in milliseconds since the Unix epoch
    #[arg(long)]
    begun_ms: u64,
    #[arg(long)]
    seed: u64,
    /// Histories of clients that were killed. Their calls of unknown outcome are settled
    #[arg(long)]
    settles: Vec<PathBuf>,
}

impl TortureClient {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.torture())
    }

    async fn torture(self) -> anyhow::Result<Ended> {
        let name = self.history.display();
        let file = File::create(&self.history).with_context(|| format!("can't write {name}"))?;
        let stopped = input_ended();
        let database = connect(&self.connect, CONNECT_WITHIN).await?;
        let (clients, driver, measurement) = match self.workload {
            Kind::Bank | Kind::ListAppend => self.transactions(&database, file).await?,
            Kind::Register => self.registers(&database, file).await?,
            Kind::BankCalls | Kind::CounterCalls | Kind::ListAppendCalls => {
                self.procedures(&database, file).await?
            }
            Kind::Snapshot => self.snapshots(&database, file).await?,
        };
        let clients: Vec<_> = clients.into_iter().map(tokio::spawn).collect();
        let _ = stopped.await;
        let none = Duration::ZERO;
        measurement.move_window(Window::new(driver.now(), none, none, none));
        for client in clients {
            client.await.context("a client panicked")?;
        }
        Ok(Ended::Well)
    }

    /// Clients that run transactions, whose history goes into `file`.
    async fn transactions(&self, database: &Database, file: File) -> anyhow::Result<Started> {
        let keyspace = database.keyspace(self.workload.name()).await?;
        let options = TransactOptions { deadline: DEADLINE, ..TransactOptions::default() };
        let keyspace = keyspace.with_options(options);
        let driver = Transactions::driver(&keyspace);
        let recorder = Recorder::writing_to(file).counting_from(epoch_ns(&*driver));
        let recorder = Arc::new(recorder);
        let workload = workload(self.workload, self.begun_ms);
        let workload = workload.expect("a workload of transactions");
        let measurement = measurement(&*driver);
        let client = |number| ClosedLoop {
            keyspace: keyspace.clone(),
            workload: workload.clone(),
            measurement: measurement.clone(),
            recorder: Some(recorder.clone()),
            client: self.first_process + number,
            seed: self.seed,
        };
        let clients = (0..LOOPS).map(|number| Box::pin(client(number).run()) as Client);
        Ok((clients.collect(), driver, measurement))
    }

    /// Clients with sessions in snapshots, which move between front ends. Their history goes into `file`.
    async fn snapshots(&self, database: &Database, file: File) -> anyhow::Result<Started> {
        let front_end = database.snapshots(self.workload.name()).await?;
        let options = SnapshotOptions { deadline: DEADLINE, ..SnapshotOptions::default() };
        let front_end = front_end.with_options(options);
        let driver = Snapshots::driver(&front_end);
        let recorder = Recorder::writing_to(file).counting_from(epoch_ns(&*driver));
        let recorder = Arc::new(recorder);
        let workload = Arc::new(snapshots::workload(&front_end));
        let measurement = measurement(&*driver);
        let has_clocks = front_end.has_version_clocks();
        let client = |number| SnapshotClient {
            session: front_end.session(),
            workload: workload.clone(),
            measurement: measurement.clone(),
            recorder: Some(recorder.clone()),
            staleness: None,
            front_ends: Some(front_end.clone()).filter(|_| has_clocks).into_iter().collect(),
            client: self.first_process + number,
            seed: self.seed,
            ended_sessions: 0,
        };
        let clients = (0..LOOPS).map(|number| Box::pin(client(number).run()) as Client);
        Ok((clients.collect(), driver, measurement))
    }

    /// Clients of registers, whose history goes into `file`.
    async fn registers(&self, database: &Database, file: File) -> anyhow::Result<Started> {
        let registers = database.registers(self.workload.name()).await?;
        let registers = registers.with_options(RegisterOptions { deadline: DEADLINE });
        let driver = Registers::driver(&registers);
        let recorder = Arc::new(RegisterRecorder::writing_to(file));
        let keyspaces = database.keyspaces();
        let info = keyspaces.iter().find(|info| info.name == self.workload.name());
        let protocol = info.map_or("", |info| &info.protocol);
        let workload = Arc::new(SharedRegisters::new(protocol, self.begun_ms));
        let epoch_ns = epoch_ns(&*driver);
        let measurement = measurement(&*driver);
        let client = |number| RegisterClient {
            registers: registers.clone(),
            workload: workload.clone(),
            measurement: measurement.clone(),
            recorder: Some(recorder.clone()),
            epoch_ns,
            client: self.first_process + number,
            seed: self.seed,
        };
        let clients = (0..LOOPS).map(|number| Box::pin(client(number).run()) as Client);
        Ok((clients.collect(), driver, measurement))
    }
}

impl TortureClient {
    /// Clients that call procedures, whose history goes into `file`.
    async fn procedures(&self, database: &Database, file: File) -> anyhow::Result<Started> {
        let keyspace = database.procedures(self.workload.name()).await?;
        let keyspace =
            keyspace.with_options(CallOptions { deadline: DEADLINE, ..CallOptions::default() });
        let driver = Procedures::driver(&keyspace);
        let recorder = CallRecorder::writing_to(file).counting_from(epoch_ns(&*driver));
        let (recorder, notes) = (Arc::new(recorder), Arc::new(Notes::create(&self.history)?));
        let merged = calls::merges(database, self.workload);
        let workload = calls::workload(self.workload, merged, self.begun_ms, self.first_process);
        calls::prepare(&keyspace, &*workload, CONNECT_WITHIN).await?;
        let measurement = measurement(&*driver);
        let client = |number| CallTorture {
            procedures: keyspace.clone(),
            workload: workload.clone(),
            measurement: measurement.clone(),
            recorder: recorder.clone(),
            notes: notes.clone(),
            process: self.first_process + number,
            seed: self.seed,
        };
        let clients = (0..LOOPS).map(|number| Box::pin(client(number).run()) as Client);
        let settling = settling::settle(keyspace.clone(), self.settles.clone());
        let clients = clients.chain([Box::pin(settling) as Client]);
        Ok((clients.collect(), driver, measurement))
    }
}

/// The clients of a process, their time, and what they do.
type Started = (Vec<Client>, Arc<dyn Driver>, Arc<Measurement>);

/// A measurement that lasts until its window is moved.
fn measurement(driver: &dyn Driver) -> Arc<Measurement> {
    let window = Window::new(driver.now(), Duration::ZERO, FOR_EVER, Duration::ZERO);
    Arc::new(Measurement::new(window))
}

/// Connects as soon as enough of the cluster is there.
pub(super) async fn connect(address: &str, within: Duration) -> Result<Database, ConnectError> {
    let until = Instant::now() + within;
    loop {
        match Database::connect(address).await {
            Err(_) if Instant::now() < until => tokio::time::sleep(super::TICK).await,
            ended => return ended,
        }
    }
}

/// What clients of `kind` do, if it is transactions.
pub(super) fn workload(kind: Kind, begun_ms: u64) -> Option<Arc<dyn Workload>> {
    match kind {
        Kind::Bank => Some(Arc::new(Bank::new(&Parameters::default()))),
        Kind::ListAppend => Some(Arc::new(SharedLists::new(begun_ms))),
        _ => None,
    }
}

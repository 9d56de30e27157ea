//! A client process of a torture, which writes down what it does as it does it.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use serried::{ConnectError, Database, TransactOptions};
use serried_history::Recorder;
use serried_workload::{Bank, ClosedLoop, Measurement, Parameters, Window, Workload};

use super::Kind;
use super::lists::SharedLists;
use crate::Ended;

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
}

impl TortureClient {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.torture())
    }

    async fn torture(self) -> anyhow::Result<Ended> {
        let name = self.history.display();
        let file = File::create(&self.history).with_context(|| format!("can't write {name}"))?;
        let recorder = Arc::new(Recorder::writing_to(file));
        let (stop, stopped) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            // An error is an end too.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            let _ = stop.send(());
        });
        let database = connect(&self.connect, CONNECT_WITHIN).await?;
        let keyspace = database.keyspace(self.workload.name()).await?;
        let options = TransactOptions { deadline: DEADLINE, ..TransactOptions::default() };
        let keyspace = keyspace.with_options(options);
        let workload = workload(self.workload, self.begun_ms);
        let now = keyspace.now();
        let window = Window::new(now, Duration::ZERO, FOR_EVER, Duration::ZERO);
        let measurement = Arc::new(Measurement::new(window));
        let client = |number| ClosedLoop {
            keyspace: keyspace.clone(),
            workload: workload.clone(),
            measurement: measurement.clone(),
            recorder: Some(recorder.clone()),
            client: self.first_process + number,
            seed: self.seed,
        };
        let clients: Vec<_> = (0..LOOPS).map(|number| tokio::spawn(client(number).run())).collect();
        let _ = stopped.await;
        let none = Duration::ZERO;
        measurement.move_window(Window::new(keyspace.now(), none, none, none));
        for client in clients {
            client.await.context("a client panicked")?;
        }
        Ok(Ended::Well)
    }
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

/// What clients of `kind` do.
pub(super) fn workload(kind: Kind, begun_ms: u64) -> Arc<dyn Workload> {
    match kind {
        Kind::Bank => Arc::new(Bank::new(&Parameters::default())),
        Kind::ListAppend => Arc::new(SharedLists::new(begun_ms)),
    }
}

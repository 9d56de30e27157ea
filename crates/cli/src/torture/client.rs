//! A client process of a torture, which writes down what it does as it does it.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use serried::{ConnectError, Database, KeyspaceInfo, TransactOptions};
use serried_history::{Recorder, RegisterRecorder};
use serried_workload::{
    Bank, ClosedLoop, Measurement, Parameters, RegisterClient, Window, Workload,
};

use super::Kind;
use super::lists::SharedLists;
use super::registers::SharedRegisters;
use super::timeline::epoch_ns;
use crate::Ended;
use crate::family::Place;
use crate::load::Client;

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
        let (stop, stopped) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            // An error is an end too.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            let _ = stop.send(());
        });
        let database = connect(&self.connect, CONNECT_WITHIN).await?;
        let place = Place::open(&database, self.workload.name()).await?;
        let options = TransactOptions { deadline: DEADLINE, ..TransactOptions::default() };
        let place = place.with_options(options);
        let window = Window::new(place.now(), Duration::ZERO, FOR_EVER, Duration::ZERO);
        let measurement = Arc::new(Measurement::new(window));
        let clients = self.clients(&database, &place, &measurement, file);
        let clients: Vec<_> = clients.into_iter().map(tokio::spawn).collect();
        let _ = stopped.await;
        let none = Duration::ZERO;
        measurement.move_window(Window::new(place.now(), none, none, none));
        for client in clients {
            client.await.context("a client panicked")?;
        }
        Ok(Ended::Well)
    }

    /// The clients of this process, whose history goes into `file`.
    fn clients(
        &self,
        database: &Database,
        place: &Place,
        measurement: &Arc<Measurement>,
        file: File,
    ) -> Vec<Client> {
        let (seed, first) = (self.seed, self.first_process);
        match place {
            Place::Keyspace(keyspace) => {
                let recorder = Recorder::writing_to(file).counting_from(epoch_ns(place));
                let recorder = Arc::new(recorder);
                let workload = workload(self.workload, self.begun_ms);
                let workload = workload.expect("it has a keyspace with transactions");
                let client = |number| ClosedLoop {
                    keyspace: keyspace.clone(),
                    workload: workload.clone(),
                    measurement: measurement.clone(),
                    recorder: Some(recorder.clone()),
                    client: first + number,
                    seed,
                };
                (0..LOOPS).map(|number| Box::pin(client(number).run()) as Client).collect()
            }
            Place::Registers(registers) => {
                let recorder = Arc::new(RegisterRecorder::writing_to(file));
                let of_kind = |info: &&KeyspaceInfo| info.name == self.workload.name();
                let keyspaces = database.keyspaces();
                let protocol = keyspaces.iter().find(of_kind);
                let protocol = protocol.map_or("", |info| &info.protocol);
                let workload = Arc::new(SharedRegisters::new(protocol, self.begun_ms));
                let epoch_ns = epoch_ns(place);
                let client = |number| RegisterClient {
                    registers: registers.clone(),
                    workload: workload.clone(),
                    measurement: measurement.clone(),
                    recorder: Some(recorder.clone()),
                    epoch_ns,
                    client: first + number,
                    seed,
                };
                (0..LOOPS).map(|number| Box::pin(client(number).run()) as Client).collect()
            }
        }
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

/// What clients of `kind` do, if it is transactions.
pub(super) fn workload(kind: Kind, begun_ms: u64) -> Option<Arc<dyn Workload>> {
    match kind {
        Kind::Bank => Some(Arc::new(Bank::new(&Parameters::default()))),
        Kind::ListAppend => Some(Arc::new(SharedLists::new(begun_ms))),
        Kind::Register => None,
    }
}

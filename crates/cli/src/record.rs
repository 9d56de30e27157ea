//! `serried record`: a trace of what the clients of a running keyspace do.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serried::{Database, FamilyName, RecordError, Recording, RecordingEvent};
use serried_workload::{Bound, Trace, TraceBounds, TraceBuilder, TraceHeader};

use crate::Ended;
use crate::misuse::{number, time};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  serried record serried://127.0.0.1:7400 --keyspace accounts --output accounts.trace
  serried record serried://127.0.0.1:7400 --for 60s --transactions 100000 --hash-keys --output default.trace
  serried compare --trace accounts.trace
  serried bench --trace accounts.trace --protocol morty,ncc";

/// The longest recording, in seconds: what a node allows.
const MOST_SECONDS: f64 = 600.0;
/// How long the node may take to say that the time is over.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most transactions that a trace can have.
const MOST_TRANSACTIONS: usize = 100_000_000;
/// The largest trace, in MiB.
const MOST_MIB: usize = 1 << 10;
/// What the file of such a trace has at most beside its transactions, in bytes.
const MOST_OTHER_BYTES: u64 = 64 << 20;

/// Record what the clients of a running keyspace do, to compare protocols with it.
///
/// For a while, all clients of the keyspace report each transaction that they commit to one node, which
/// passes the reports on. The trace has the keys that a transaction reads and writes, in which rounds it
/// has requested them and which of them for update, the lengths of values, and the time between the
/// transactions of a client. It has no values. Attempts that were aborted are part of their transaction.
/// Transactions that fail are not recorded.
///
/// The recording ends with the first bound that is reached, or with Ctrl-C. If the connection to the node is
/// lost, what came before is written, and the command fails. While nobody records, clients report nothing.
/// Only keyspaces of transactions can be recorded.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Record {
    /// The cluster's address: serried://host:port,host:port
    address: String,
    /// The keyspace
    #[arg(long, default_value = "default")]
    keyspace: String,
    /// How long to record, in ms or s
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = time(MOST_SECONDS))]
    lasts: Duration,
    /// How many transactions to record at most
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000, value_parser = number(1..=MOST_TRANSACTIONS))]
    transactions: usize,
    /// How large the trace may become, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = number(1..=MOST_MIB))]
    size: usize,
    /// Put hashes in place of keys. Equal keys have equal hashes, and the secret of the hashes is forgotten
    #[arg(long)]
    hash_keys: bool,
    /// Where to write the trace
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Print what was recorded as JSON
    #[arg(long)]
    json: bool,
}

/// What was recorded, for machines.
#[derive(Serialize)]
struct Summary<'a> {
    #[serde(flatten)]
    header: &'a TraceHeader,
    transactions: usize,
    clients: usize,
    keys: usize,
    bytes: usize,
}

impl Record {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // If the file can't be written, it is better to know that before the recording.
        let mut output = NewFile::create(&self.output)?;
        let trace = runtime.block_on(self.record())?;
        let file = trace.encode();
        output.finish(&file)?;
        self.print(&trace, file.len());
        anyhow::ensure!(
            trace.header().bound != Bound::Lost,
            "the connection to the node was lost before the end: {} has what came until then",
            self.output.display()
        );
        Ok(Ended::Well)
    }

    async fn record(&self) -> anyhow::Result<Trace> {
        let database = Database::connect(&self.address).await?;
        let client = database.client();
        let family = client.family(&self.keyspace)?;
        anyhow::ensure!(
            family == FamilyName::Transactions,
            "keyspace `{}` is one of {family}, and only transactions can be recorded: choose a keyspace of these",
            self.keyspace
        );
        let known = database.keyspaces().into_iter().find(|info| info.name == self.keyspace);
        let recorded_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let recording = client.record(&self.keyspace, self.lasts).await?;
        let begun = Instant::now();
        let (transactions, bytes, lasts) = (self.transactions, self.size << 20, self.lasts);
        let bounds = TraceBounds { transactions, bytes, lasts };
        let builder = TraceBuilder::new(bounds, self.hash_keys);
        let (builder, bound, missed, lasted) = self.receive(recording, builder, begun).await?;
        let is_empty = builder.transactions() == 0;
        let trace = builder.finish(TraceHeader {
            family: family.to_string(),
            cluster: client.cluster().to_string(),
            keyspace: self.keyspace.clone(),
            protocol: known.map_or(String::new(), |info| info.protocol),
            recorded_at_s: recorded_at.as_secs(),
            lasted_ns: u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX),
            bound,
            missed,
            hashed_keys: self.hash_keys,
        });
        database.close().await;
        anyhow::ensure!(
            !is_empty,
            "no client has begun and committed a transaction in keyspace `{}` within {lasted:.1?}: \
             nothing is written",
            self.keyspace
        );
        trace.map_err(|wrong| anyhow::anyhow!("what clients have reported is no trace: {wrong}"))
    }

    /// Receives until the recording ends: what was reported, why it ended, how much was missed, and how long it lasted.
    async fn receive(
        &self,
        mut recording: Recording,
        mut builder: TraceBuilder,
        begun: Instant,
    ) -> anyhow::Result<(TraceBuilder, Bound, u64, Duration)> {
        let progress = Progress::new(self.json);
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        let mut ended: Option<(Bound, Duration)> = None;
        // What was begun before Ctrl-C still counts.
        let is_full = |ended: &Option<(Bound, Duration)>| {
            ended.as_ref().is_some_and(|(bound, _)| *bound != Bound::Stopped)
        };
        let mut said = begun;
        loop {
            let patience = match ended {
                None => self.lasts.saturating_sub(begun.elapsed()) + PATIENCE,
                Some(_) => PATIENCE,
            };
            let recorded = tokio::select! {
                recorded = recording.next(patience) => match recorded {
                    Err(RecordError::Lost { .. }) => {
                        let (_, lasted) = ended.unwrap_or((Bound::Lost, begun.elapsed()));
                        return Ok((builder, Bound::Lost, recording.dropped(), lasted));
                    }
                    recorded => recorded?,
                },
                _ = &mut interrupted, if ended.is_none() => {
                    recording.stop();
                    ended = Some((Bound::Stopped, begun.elapsed()));
                    continue;
                }
            };
            match recorded {
                RecordingEvent::Transactions(..) if is_full(&ended) => {}
                RecordingEvent::Transactions(connection, reports) => {
                    let mut reports = reports.into_iter();
                    let bound = reports.find_map(|report| builder.add(connection, report));
                    if let Some(bound) = bound {
                        recording.stop();
                        ended = Some((bound, begun.elapsed()));
                    }
                }
                RecordingEvent::Ended { missed } => {
                    let (bound, lasted) = ended.unwrap_or((Bound::Time, self.lasts));
                    return Ok((builder, bound, missed, lasted));
                }
            }
            if said.elapsed() > Duration::from_millis(200) {
                said = Instant::now();
                let (count, seconds) = (builder.transactions(), begun.elapsed().as_secs_f64());
                progress
                    .say(format!("{}: {count} transactions in {seconds:.1} s", recording.node()));
            }
        }
    }

    fn print(&self, trace: &Trace, bytes: usize) {
        let header = trace.header();
        let (transactions, clients) = (trace.transactions().len(), trace.clients());
        let keys = trace.keys().len();
        if self.json {
            let summary = Summary { header, transactions, clients, keys, bytes };
            let text = serde_json::to_string(&summary).expect("a summary can be written as JSON");
            return println!("{text}");
        }
        println!("{}: {}, {bytes} bytes", self.output.display(), describe(trace));
        println!("it ended because {}", header.bound);
        if header.missed > 0 {
            println!(
                "{} transactions are missing, because there was no room for reports of them, or reports were not true",
                header.missed
            );
        }
    }
}

/// Reads a trace from a file.
pub(crate) fn read(file: &Path) -> anyhow::Result<Trace> {
    let unread = || format!("can't read {}", file.display());
    let mut input = File::open(file).with_context(unread)?;
    let mut bytes = Vec::new();
    let most = ((MOST_MIB as u64) << 20) + MOST_OTHER_BYTES;
    // Most files that are no traces show it at once.
    for part in [Trace::BEGIN_BYTES, most] {
        let read = Read::by_ref(&mut input).take(part).read_to_end(&mut bytes);
        read.with_context(unread)?;
        if !Trace::may_begin(&bytes) {
            break;
        }
    }
    anyhow::ensure!(
        (bytes.len() as u64) < most,
        "{}: it is longer than any trace: {most} bytes",
        file.display()
    );
    Trace::decode(&bytes).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))
}

/// A file that takes its name when it is complete.
struct NewFile {
    file: File,
    name: PathBuf,
    /// Where it is until then, if it is another place.
    temporary: Option<PathBuf>,
}

impl NewFile {
    fn create(name: &Path) -> anyhow::Result<NewFile> {
        // What is no usual file, such as a pipe, can't be replaced.
        let is_special = fs::metadata(name).is_ok_and(|found| !found.is_file());
        let mut temporary = name.as_os_str().to_os_string();
        temporary.push(format!(".{}.partial", std::process::id()));
        let temporary = (!is_special).then(|| PathBuf::from(temporary));
        let unwritten = || format!("can't write {}", name.display());
        let file = File::create(temporary.as_deref().unwrap_or(name)).with_context(unwritten)?;
        Ok(NewFile { file, name: name.to_path_buf(), temporary })
    }

    fn finish(&mut self, content: &[u8]) -> anyhow::Result<()> {
        let unwritten = || format!("can't write {}", self.name.display());
        self.file.write_all(content).with_context(unwritten)?;
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, &self.name).with_context(unwritten)?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // There is nothing in it.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// What is in a trace.
pub(crate) fn describe(trace: &Trace) -> String {
    let TraceHeader { keyspace, protocol, hashed_keys, .. } = trace.header();
    format!(
        "{} transactions of {} clients in {:.1} s, of {}{}{}, in keyspace `{keyspace}` under {protocol}",
        trace.transactions().len(),
        trace.clients(),
        trace.header().lasted().as_secs_f64(),
        trace.keys().len(),
        if *hashed_keys { " hashed" } else { "" },
        if trace.keys().len() == 1 { " key" } else { " keys" },
    )
}

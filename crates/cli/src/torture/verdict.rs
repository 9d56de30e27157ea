//! What a torture has left behind, and whether that is all right.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use serried::{Database, TransactionKeyspace, Version};
use serried_history::{Event, EventKind, History, MicroOperation, ReadResult};
use serried_model::{FamilyName, Guarantee};
use serried_workload::{Plan, Workload};

use super::client::{connect, workload};
use super::timeline::merged;

/// A site that is this little behind the others has caught up: what is on its way takes some time.
const CAUGHT_UP: Duration = Duration::from_secs(1);
use super::{Kind, TICK, call_verdict, registers, snapshots};
use crate::Ended;
use crate::wing::transactions::judge_transactions;
use serried_protocols::info;

/// How many keys are read at once in the end.
const READ_AT_ONCE: usize = 64;

/// Reads all that the clients of `kind` may have written, and judges it and their histories.
pub(super) async fn judge(
    kind: Kind,
    (addresses, sites): (&[String], u16),
    files: &[PathBuf],
    within: Duration,
) -> anyhow::Result<(Ended, String)> {
    let address = format!("serried://{}", addresses.join(","));
    let database = connect(&address, within).await?;
    if kind.family() == FamilyName::Procedures {
        return call_verdict::judge(kind, &database, files, within).await;
    }
    if kind.family() == FamilyName::Snapshots {
        let mut databases = vec![database];
        if sites > 1 {
            databases.clear();
            for home in 0..sites {
                databases.push(connect(&format!("{address}?home={home}"), within).await?);
            }
        }
        return snapshots::judge(&databases, files, within).await;
    }
    let Some(workload) = workload(kind, 0) else {
        return registers::judge(&database, files, within).await;
    };
    let mut history = history_of_all(files)?;
    let keyspace = database.keyspace(kind.name()).await?;
    let keys: BTreeSet<u64> = match kind {
        Kind::Bank => (0..).map_while(|i| workload.initial(i).map(|_| i)).collect(),
        _ => all_operations(&history).map(MicroOperation::key).collect(),
    };
    let keys: Vec<u64> = keys.into_iter().collect();
    let latest = history.events.iter().filter_map(|event| event.version).max();
    let mut found = Vec::new();
    for keys in keys.chunks(READ_AT_ONCE) {
        let pending = |key: &u64| MicroOperation::Read { key: *key, result: ReadResult::Pending };
        let plan: Plan = keys.iter().map(pending).collect::<Vec<_>>().into();
        let (version, operations) = read(&keyspace, &*workload, &plan, latest, within).await?;
        let process = 1 + history.events.iter().map(|event| event.process).max().unwrap_or(0);
        append(&mut history, process, EventKind::Invoke, plan.operations().to_vec(), None);
        append(&mut history, process, EventKind::Ok, operations.clone(), Some(version));
        found.extend(operations);
    }
    let committed = count(&history, EventKind::Ok);
    if let Some(wrong) = lost(&history, &found) {
        return Ok((Ended::Violation, wrong));
    }
    if let Err(wrong) = workload.check(&history) {
        return Ok((Ended::Violation, wrong));
    }
    Ok(match kind {
        // Nobody knows the versions of transactions whose clients were killed, so that histories of
        // registers can't be checked as a whole; the final read was checked like any other audit.
        Kind::Bank => {
            let audits = format!("{committed} committed transactions, every audit finds the total");
            (Ended::Well, audits)
        }
        _ => {
            let guarantee = promised(&database, kind).unwrap_or(Guarantee::Serializable);
            let (ended, _, text) = judge_transactions(&history, guarantee, None);
            (ended, text)
        }
    })
}

/// Waits until all nodes serve.
pub(super) async fn all_serve(addresses: &[String], within: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + within;
    let database = connect(&format!("serried://{}", addresses.join(",")), within).await?;
    loop {
        let replies = database.client().node_replies().await;
        let obstacle = |reply: &Option<serried::NodeReply>| match reply {
            Some(reply) => reply.status.serves().err(),
            None => Some("it does not answer".to_string()),
        };
        let mut obstacles = replies.iter().map(obstacle).enumerate();
        let found = obstacles.find_map(|(node, obstacle)| Some((node, obstacle?)));
        let Some((node, obstacle)) = found else { return Ok(()) };
        anyhow::ensure!(Instant::now() < until, "node {node} does not serve: {obstacle}");
        tokio::time::sleep(TICK).await;
    }
}

/// Waits until no node says that another site lacks something.
pub(super) async fn all_sites_have_all(
    addresses: &[String],
    within: Duration,
) -> anyhow::Result<()> {
    let until = Instant::now() + within;
    let database = connect(&format!("serried://{}", addresses.join(",")), within).await?;
    loop {
        let replies = database.client().node_replies().await;
        let lags = |at: &&serried::AtSite| {
            let is_behind = at.behind.is_some_and(|behind| behind >= CAUGHT_UP);
            is_behind || at.without_backlog > 0 || at.backlog_bytes > 0
        };
        let lagging = |reply: &serried::NodeReply| {
            reply.status.sites.iter().find(lags).map(serried::AtSite::text)
        };
        let Some(lag) = replies.iter().flatten().find_map(lagging) else { return Ok(()) };
        anyhow::ensure!(Instant::now() < until, "sites do not catch up: a node {lag}");
        tokio::time::sleep(TICK).await;
    }
}

/// What the keyspace of `kind` promises, if this build knows its protocol.
pub(super) fn promised(database: &Database, kind: Kind) -> Option<Guarantee> {
    let keyspaces = database.keyspaces();
    let keyspace = keyspaces.iter().find(|keyspace| keyspace.name == kind.name())?;
    info(&keyspace.protocol).map(|info| info.guarantee)
}

/// Adds a read-only transaction of another process, after all others.
pub(super) fn append_read(
    history: &mut History,
    found: Vec<MicroOperation>,
    read_versions: Vec<Version>,
) {
    let process = 1 + history.events.iter().map(|event| event.process).max().unwrap_or(0);
    let pending = |operation: &MicroOperation| MicroOperation::Read {
        key: operation.key(),
        result: ReadResult::Pending,
    };
    let planned = found.iter().map(pending).collect();
    append(history, process, EventKind::Invoke, planned, None);
    append(history, process, EventKind::Ok, found, None);
    if let Some(event) = history.events.last_mut() {
        event.read_versions = read_versions;
    }
}

/// The histories of all clients as one. Their processes differ, and their times count from the same
/// instant.
pub(super) fn history_of_all(files: &[PathBuf]) -> anyhow::Result<History> {
    let histories = files.iter().map(|file| {
        let history = read_history(file);
        Ok(history.with_context(|| format!("can't read {}", file.display()))?.events)
    });
    let mut events = merged(histories.collect::<anyhow::Result<_>>()?);
    for (index, event) in events.iter_mut().enumerate() {
        event.index = index as u64;
    }
    Ok(History { events })
}

fn read_history(file: &Path) -> anyhow::Result<History> {
    Ok(History::read_json_lines(&whole_lines(file)?[..])?)
}

/// A history without the line that was being written when its client was killed. A client that was
/// killed early on has none.
pub(super) fn whole_lines(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = match std::fs::read(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    Ok(bytes)
}

/// Makes the reads of `plan` after everything up to `latest`. Returns their version.
async fn read(
    keyspace: &TransactionKeyspace,
    workload: &dyn Workload,
    plan: &Plan,
    latest: Option<Version>,
    within: Duration,
) -> anyhow::Result<(Version, Vec<MicroOperation>)> {
    let until = Instant::now() + within;
    loop {
        let read = keyspace.transact(|transaction| workload.run(plan, transaction, true)).await;
        match read {
            Ok(read) if Some(read.version) > latest => return Ok((read.version, read.value)),
            Err(error) if Instant::now() >= until => {
                return Err(error).context("what was written can't be read in the end");
            }
            // This client's clock is behind others', or the cluster still recovers.
            _ => tokio::time::sleep(TICK).await,
        }
    }
}

fn append(
    history: &mut History,
    process: u64,
    kind: EventKind,
    operations: Vec<MicroOperation>,
    version: Option<Version>,
) {
    history.events.push(Event {
        index: history.events.len() as u64,
        kind,
        process,
        time_ns: 0,
        operations,
        version,
        read_versions: Vec::new(),
        error: None,
    });
}

fn all_operations(history: &History) -> impl Iterator<Item = &MicroOperation> {
    history.events.iter().flat_map(|event| &event.operations)
}

fn count(history: &History, kind: EventKind) -> usize {
    history.events.iter().filter(|event| event.kind == kind).count()
}

/// An element whose append was acknowledged, and that is in no list that was `found` in the end.
fn lost(history: &History, found: &[MicroOperation]) -> Option<String> {
    let lists = found.iter().filter_map(|operation| match operation {
        MicroOperation::Read { key, result: ReadResult::List(list) } => {
            Some((*key, list.iter().copied().collect::<HashSet<u64>>()))
        }
        _ => None,
    });
    let lists: HashMap<u64, HashSet<u64>> = lists.collect();
    let acknowledged = history.events.iter().filter(|event| event.kind == EventKind::Ok);
    acknowledged.flat_map(|event| event.operations.iter().map(move |o| (event, o))).find_map(
        |(event, operation)| match operation {
            MicroOperation::Append { key, element }
                if !lists.get(key).is_some_and(|list| list.contains(element)) =>
            {
                let version = event.version.map_or(String::new(), |version| version.to_string());
                Some(format!(
                    "LOST: transaction {version} of process {} was acknowledged, and the \
                     {element} that it appended is not in list {key}",
                    event.process
                ))
            }
            _ => None,
        },
    )
}

//! Tortures of snapshots.

use std::path::PathBuf;
use std::time::Duration;

use serried::{Database, Key, ReadOnly, SnapshotKeyspace, SnapshotOptions};
use serried_history::{Deletes, EventKind, History, MicroOperation, Options, ReadResult};
use serried_model::Guarantee;
use serried_workload::{SnapshotMix, SnapshotParameters, SnapshotWorkload, Versions, attribute};

use super::Kind;
use super::verdict::{append_read, history_of_all, promised};
use crate::Ended;
use crate::wing::transactions::judge_with;

/// How long the last session waits, so that it sees everything: much longer than its freshness.
const SETTLED: Duration = Duration::from_secs(2);

/// What the clients of a keyspace do.
pub(super) fn workload(keyspace: &SnapshotKeyspace) -> SnapshotMix {
    let mix = SnapshotMix::new(&SnapshotParameters::default()).expect("the defaults are possible");
    match keyspace.has_write_transactions() {
        true => mix.writing_together(),
        false => mix,
    }
}

/// Reads all keys at each site, of which each database is a client of one, and judges them and the histories of all
/// clients.
pub(super) async fn judge(
    databases: &[Database],
    files: &[PathBuf],
    within: Duration,
) -> anyhow::Result<(Ended, String)> {
    let mut history = attribute(history_of_all(files)?);
    let mut last: Option<Vec<MicroOperation>> = None;
    let mut guarantee = Guarantee::ProcessOrdered;
    for database in databases {
        guarantee = promised(database, Kind::Snapshot).unwrap_or(guarantee);
        let (found, versions) = read(database, within).await?;
        for (operation, version) in found.iter().zip(&versions) {
            let key = operation.key();
            if let Some(lost) = latest(&history, key).filter(|latest| latest > version) {
                let text = format!(
                    "the write of key {key} at version {lost} was acknowledged and is lost: the key is as of {version}"
                );
                return Ok((Ended::Violation, text));
            }
        }
        if let Some(last) = last.filter(|last| *last != found) {
            let text = format!("sites do not end with the same: {last:?} and {found:?}");
            return Ok((Ended::Violation, text));
        }
        last = Some(found.clone());
        append_read(&mut history, found, versions);
    }
    let options = Options { deletes: Deletes::Remembered, ..Options::default() };
    let (ended, _, text) = judge_with(&attribute(history), guarantee, &options);
    Ok((ended, text))
}

/// Reads all keys, and their versions.
async fn read(
    database: &Database,
    within: Duration,
) -> anyhow::Result<(Vec<MicroOperation>, Vec<serried::Version>)> {
    let options = SnapshotOptions { deadline: within, ..SnapshotOptions::default() };
    let session = database.snapshots(Kind::Snapshot.name()).await?.with_options(options);
    let (workload, versions) = (workload(&session), Versions::of(&session));
    let keys: Vec<u64> = (0..workload.keys()).collect();
    let names = || keys.iter().map(|key| workload.key(*key)).collect::<Vec<Key>>();
    session.read_only(names()).await?;
    tokio::time::sleep(SETTLED).await;
    // A session may see only what it has heard of before. So the last read comes after one that hears of everything.
    session.read_only(names()).await?;
    let ReadOnly { values, stamps, .. } = session.read_only_recorded(names()).await?;
    let found = keys.iter().zip(&values).map(|(key, value)| {
        let value = value.as_ref().map(|value| workload.number(value));
        MicroOperation::Read { key: *key, result: ReadResult::Register(value) }
    });
    let found: Vec<MicroOperation> = found.collect();
    let places = keys.iter().zip(&stamps);
    let versions = places.map(|(key, stamp)| versions.placed(*key, *stamp)).collect();
    Ok((found, versions))
}

/// The latest version of a key that was acknowledged. A version with an odd number is that of a write that was omitted.
fn latest(history: &History, key: u64) -> Option<serried::Version> {
    let of_key = |operation: &MicroOperation| matches!(operation, MicroOperation::Write { key: written, .. } if *written == key);
    let acknowledged = history
        .events
        .iter()
        .filter(|event| event.kind == EventKind::Ok && event.operations.iter().any(of_key));
    let versions = acknowledged.filter_map(|event| event.version);
    versions.filter(|version| version.timestamp_us % 2 == 0).max()
}

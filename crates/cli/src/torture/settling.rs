//! Settles calls of clients that were killed: it finds out how they ended, and so ends them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context;
use serried::{CallError, CallOutcome, ProcedureKeyspace, Version};
use serried_history::{CallEnd, CallEvent, CallHistory, CallRecorder, EventKind};
use serried_procedures::Results;
use serried_session::Session;

use super::timeline::epoch_ns;
use super::{TICK, verdict};

/// How long to ask for the outcome of a call of a killed client.
const ASKED_FOR: Duration = Duration::from_secs(20);

/// The file with the ids of the calls of a history.
fn notes(history: &Path) -> PathBuf {
    history.with_extension("ids")
}

/// The file with the ends of a killed client's calls that another client has found out.
pub(super) fn settled(history: &Path) -> PathBuf {
    history.with_extension("settled")
}

/// The ids of a client's calls, in a file that is still there when the client has been killed.
pub(super) struct Notes(Mutex<File>);

impl Notes {
    /// An empty file beside the history.
    pub(super) fn create(history: &Path) -> anyhow::Result<Notes> {
        let file = notes(history);
        let created =
            File::create(&file).with_context(|| format!("can't write {}", file.display()));
        Ok(Notes(Mutex::new(created?)))
    }

    /// The `number`-th call of `process`, counted from 1, has this id.
    pub(super) fn note(&self, process: u64, number: u64, call: Version) {
        let mut file = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let line = format!("{process} {number} {call}\n");
        file.write_all(line.as_bytes()).expect("notes can be written");
    }
}

/// How a call ended. `None` if nobody knows any more, or there is no answer in time.
pub(super) async fn outcome(
    procedures: &ProcedureKeyspace,
    call: Version,
    within: Duration,
) -> Option<CallOutcome> {
    let until = Instant::now() + within;
    loop {
        match procedures.outcome(call).await {
            Ok(outcome) => return Some(outcome),
            Err(CallError::Forgotten { .. }) => return None,
            Err(_) if Instant::now() >= until => return None,
            Err(_) => tokio::time::sleep(TICK).await,
        }
    }
}

/// The end of a call with this outcome.
pub(super) fn end_of(outcome: CallOutcome, done: impl FnOnce(&Results) -> CallEnd) -> CallEnd {
    match outcome {
        CallOutcome::Done(results) => done(&results),
        CallOutcome::Refused(refused) => CallEnd::Refused(refused.to_string()),
        CallOutcome::NoEffect => CallEnd::Failed("it did not take effect".to_string()),
    }
}

/// Settles the calls that clients with these histories have left open, and writes their ends beside the histories.
pub(super) async fn settle(procedures: ProcedureKeyspace, histories: Vec<PathBuf>) {
    for history in histories {
        if let Err(error) = settle_one(&procedures, &history).await {
            // Its calls stay unknown.
            eprintln!("can't settle the calls of {}: {error:#}", history.display());
        }
    }
}

async fn settle_one(procedures: &ProcedureKeyspace, history: &Path) -> anyhow::Result<()> {
    let open = open(&CallHistory::read_json_lines(&verdict::whole_lines(history)?[..])?);
    let ids = ids(&verdict::whole_lines(&notes(history))?);
    let driver = serried::Procedures::driver(procedures);
    let recorder = CallRecorder::new().counting_from(epoch_ns(&*driver));
    for (process, (number, begun)) in open {
        // It was killed before it had an id, or before that was written.
        let Some(call) = ids.get(&(process, number)) else { continue };
        let Some(outcome) = outcome(procedures, *call, ASKED_FOR).await else { continue };
        let CallEvent { procedure, appends, .. } = begun;
        // Its results are not compared, because what it has read is not known.
        let end = end_of(outcome, |_| CallEnd::Done { reads: Vec::new() });
        recorder.complete(process, procedures.now().0, &procedure, appends, end);
    }
    let (file, partial) = (settled(history), history.with_extension("settling"));
    recorder.into_history().write_json_lines(File::create(&partial)?)?;
    // It is there as a whole or not at all.
    Ok(std::fs::rename(partial, file)?)
}

/// The calls that have no end, by their processes, each with its number among its process's calls.
fn open(history: &CallHistory) -> BTreeMap<u64, (u64, CallEvent)> {
    let (mut open, mut counts) = (BTreeMap::new(), BTreeMap::<u64, u64>::new());
    for event in &history.events {
        if event.kind != EventKind::Invoke {
            open.remove(&event.process);
            continue;
        }
        let count = counts.entry(event.process).or_default();
        *count += 1;
        open.insert(event.process, (*count, event.clone()));
    }
    open
}

/// The last id of each call, by process and number.
fn ids(notes: &[u8]) -> BTreeMap<(u64, u64), Version> {
    let text = String::from_utf8_lossy(notes);
    let id = |line: &str| {
        let mut words = line.split(' ');
        let (process, number) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(((process, number), words.next()?.parse().ok()?))
    };
    text.lines().filter_map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_call_that_has_no_end_is_open_and_has_its_own_id() {
        let recorder = CallRecorder::new();
        let done = || CallEnd::Done { reads: Vec::new() };
        recorder.invoke(4, 1, "append", vec![(1, 1)]);
        recorder.complete(4, 2, "append", vec![(1, 1)], done());
        recorder.invoke(4, 3, "append", vec![(1, 2)]);
        recorder.invoke(5, 3, "read", Vec::new());
        recorder.complete(5, 4, "read", Vec::new(), done());
        let open = open(&recorder.into_history());
        assert_eq!(open.keys().copied().collect::<Vec<_>>(), [4]);
        let (number, begun) = &open[&4];
        assert_eq!((*number, &begun.appends[..]), (2, &[(1, 2)][..]));
        let ids = ids(b"4 1 7.1\n5 1 8.1\n4 2 9.1\n4 2 10.1\n");
        assert_eq!(ids[&(4, 2)], "10.1".parse().unwrap(), "it was begun again");
        assert_eq!(ids.get(&(5, 2)), None, "another call's id is not taken");
    }
}

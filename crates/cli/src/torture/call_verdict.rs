//! What a torture of procedures has left behind, and whether that is all right.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use serried::{CallError, Database, ProcedureKeyspace};
use serried_history::{CallEnd, CallHistory, CallRecorder, EventKind};
use serried_model::Guarantee;
use serried_procedures::{Datum, Results};
use serried_workload::{InspectionError, ListCalls, PlannedCall, ProcedureWorkload};

use super::calls::{WRONG, merges, workload};
use super::settling::settled;
use super::timeline::merged;
use super::verdict::{promised, whole_lines};
use super::{Kind, TICK};
use crate::Ended;
use crate::wing::procedures::judge_calls;

/// How many counters there are, how many each call increments, and how many are added up at a time.
const COUNTERS: u64 = 1000;
const PER_CALL: u64 = 10;
const ADDED_AT_ONCE: u64 = 100;

/// Reads all that the clients of `kind` may have written, and judges it and their histories.
pub(super) async fn judge(
    kind: Kind,
    database: &Database,
    files: &[PathBuf],
    within: Duration,
) -> anyhow::Result<(Ended, String)> {
    let history = history_of_all(files)?;
    let errors = history.events.iter().filter_map(|event| event.error.as_deref());
    if let Some(wrong) = errors.into_iter().find(|error| error.starts_with(WRONG)) {
        return Ok((Ended::Violation, wrong.to_string()));
    }
    let keyspace = database.procedures(kind.name()).await?;
    let workload = workload(kind, merges(database, kind), 0, 0);
    let reader = Reader { keyspace, until: Instant::now() + within };
    match kind {
        Kind::BankCalls => reader.audit(&*workload).await,
        Kind::CounterCalls => reader.add_up(&history).await,
        _ => {
            let guarantee = promised(database, kind).unwrap_or(Guarantee::StrictSerializable);
            reader.read(history, guarantee, &*workload).await
        }
    }
}

/// Reads what is there in the end.
struct Reader {
    keyspace: ProcedureKeyspace,
    /// When everything must have been read.
    until: Instant,
}

impl Reader {
    /// Makes a call that only reads, until it succeeds.
    async fn call(&self, planned: &PlannedCall) -> anyhow::Result<Results> {
        loop {
            match self.keyspace.call(planned.procedure, planned.inputs.clone()).await {
                Ok(results) => return Ok(results),
                Err(error) => self.wait(error).await?,
            }
        }
    }

    /// Waits, unless the time is up: the cluster still recovers.
    async fn wait(&self, error: CallError) -> anyhow::Result<()> {
        if Instant::now() >= self.until {
            return Err(error).context("what was written can't be read in the end");
        }
        tokio::time::sleep(TICK).await;
        Ok(())
    }

    /// The bank's total is what it was.
    async fn audit(&self, bank: &dyn ProcedureWorkload) -> anyhow::Result<(Ended, String)> {
        loop {
            match bank.inspect(&self.keyspace).await {
                Ok(found) => return Ok((Ended::Well, found.unwrap_or_default())),
                Err(InspectionError::Broken(wrong)) => return Ok((Ended::Violation, wrong)),
                Err(InspectionError::Unanswered(error)) => self.wait(error).await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Each call that was acknowledged has incremented its counters once, and no call has done so twice.
    async fn add_up(&self, history: &CallHistory) -> anyhow::Result<(Ended, String)> {
        let mut sum = 0;
        for first in (0..COUNTERS).step_by(ADDED_AT_ONCE as usize) {
            let counters = (first..first + ADDED_AT_ONCE).map(|counter| Datum::Int(counter as i64));
            let planned = PlannedCall::new("sum", [Datum::list(counters)]);
            match self.call(&planned).await?.get("sum") {
                Some(Datum::Int(of_some)) => sum += of_some,
                other => anyhow::bail!("`sum` returned {other:?}"),
            }
        }
        Ok(added_up(sum, history))
    }

    /// Reads all lists, and judges the history with that.
    async fn read(
        &self,
        history: CallHistory,
        guarantee: Guarantee,
        lists: &dyn ProcedureWorkload,
    ) -> anyhow::Result<(Ended, String)> {
        let events = &history.events;
        let read = events.iter().flat_map(|event| event.reads.iter().map(|(key, _)| *key));
        let appended = events.iter().flat_map(|event| event.appends.iter().map(|(key, _)| *key));
        let keys: BTreeSet<u64> = read.chain(appended).collect();
        let process = 1 + events.iter().map(|event| event.process).max().unwrap_or(0);
        let recorder = CallRecorder::new();
        let mut twice = None;
        for planned in ListCalls::reads(keys) {
            recorder.invoke(process, 0, planned.procedure, Vec::new());
            let found = lists.observe(&planned, &self.call(&planned).await?);
            let reads = found.map_err(anyhow::Error::msg)?;
            twice = twice.or_else(|| reads.iter().find_map(|(key, list)| repeated(*key, list)));
            recorder.complete(process, 0, planned.procedure, Vec::new(), CallEnd::Done { reads });
        }
        if let Some(twice) = twice {
            return Ok((Ended::Violation, twice));
        }
        let mut all = CallHistory { events: history.events };
        all.events.extend(recorder.into_history().events);
        for (index, event) in all.events.iter_mut().enumerate() {
            event.index = index as u64;
        }
        let (ended, _, text) = judge_calls(&all, guarantee);
        Ok((ended, text))
    }
}

/// The verdict on the sum of all counters.
fn added_up(sum: i64, history: &CallHistory) -> (Ended, String) {
    let count = |kind| history.events.iter().filter(|event| event.kind == kind).count() as u64;
    let done = PER_CALL * count(EventKind::Ok);
    let unknown =
        PER_CALL * (count(EventKind::Invoke) - count(EventKind::Ok) - count(EventKind::Fail));
    let found = sum as u64;
    let fits = (done..=done + unknown).contains(&found) && found.is_multiple_of(PER_CALL);
    let text = format!(
        "the counters add up to {found}; {done} increments were acknowledged, and {unknown} are of unknown outcome"
    );
    (if fits { Ended::Well } else { Ended::Violation }, text)
}

/// An element that a list has twice: the call that appended it has run twice.
fn repeated(key: u64, list: &[u64]) -> Option<String> {
    let mut places: HashMap<u64, usize> = HashMap::new();
    list.iter().enumerate().find_map(|(place, element)| {
        let first = places.insert(*element, place)?;
        Some(format!("TWICE: list {key} has the element {element} at {first} and at {place}"))
    })
}

/// The histories of all clients as one, each with what others have found out of its calls.
fn history_of_all(files: &[PathBuf]) -> anyhow::Result<CallHistory> {
    let read = |file: &Path| {
        let bytes = [whole_lines(file)?, whole_lines(&settled(file))?].concat();
        anyhow::Ok(CallHistory::read_json_lines(&bytes[..])?.events)
    };
    let histories = files
        .iter()
        .map(|file| read(file).with_context(|| format!("can't read {}", file.display())));
    let mut events = merged(histories.collect::<anyhow::Result<_>>()?);
    for (index, event) in events.iter_mut().enumerate() {
        event.index = index as u64;
    }
    Ok(CallHistory { events })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history of calls that ended well, and one that did not end.
    fn history(done: u64) -> CallHistory {
        let recorder = CallRecorder::new();
        for process in 0..done {
            recorder.invoke(process, 0, "increment", Vec::new());
            let end = CallEnd::Done { reads: Vec::new() };
            recorder.complete(process, 1, "increment", Vec::new(), end);
        }
        recorder.invoke(done, 0, "increment", Vec::new());
        recorder.into_history()
    }

    #[test]
    fn an_increment_that_is_lost_or_made_twice_or_in_part_shows_in_the_sum() {
        let ended = |sum| matches!(added_up(sum, &history(3)).0, Ended::Well);
        assert!(ended(30) && ended(40), "the last call may have taken effect or not");
        assert!(!ended(20), "one was lost");
        assert!(!ended(50), "one was made twice");
        assert!(!ended(35), "one was made in part");
    }

    #[test]
    fn an_element_that_a_list_has_twice_is_found() {
        assert_eq!(repeated(7, &[1, 2, 3]), None);
        let wanted = "TWICE: list 7 has the element 2 at 1 and at 3";
        assert_eq!(repeated(7, &[1, 2, 3, 2]).as_deref(), Some(wanted));
    }
}

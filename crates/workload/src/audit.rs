//! Audits: compares the final contents of a database with what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serried_history::{Event, EventKind, History, MicroOperation, ReadResult, Recorder};
use serried_model::Version;
use serried_session::TransactionKeyspace;

use crate::Window;
use crate::transactor::Transactor;
use crate::{Arrival, Measurement, Plan, Workload};

/// The first and the longest wait until this client's clock has caught up with others'.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// How long an audit may take before it begins its last transaction, by the keyspace's clock.
pub const AUDIT_PATIENCE: Duration = Duration::from_secs(100);

/// An audit could not read the database.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "process {process} did not read {keys} keys at a version after {latest} within {patience:?}, in \
     {attempts} transactions, of which {committed} committed, the last at {last}: their errors are the last of \
     that process in the history; if there are none, its clock is too far behind",
    patience = AUDIT_PATIENCE
)]
pub struct Unanswered {
    process: u64,
    keys: usize,
    latest: Version,
    attempts: u32,
    committed: u32,
    last: Version,
}

/// How many keys a transaction reads at first, one after the other. This is enough for all accounts of a small bank,
/// whose total is checked.
const KEYS_AT_ONCE: usize = 6;

/// After this many transactions without a commit, transactions read half as many keys. They may have run for so long
/// that a truncation refused them.
const TRIES: u32 = 2;

/// Reads `keys` as `process` in a few recorded transactions. Each is repeated until it commits at a version after
/// `latest`. No other transactions may run. If transactions of several keys do not commit, each reads fewer keys.
///
/// With serializability, a client whose clock is behind may read the database as of a time before the others' last
/// transactions. Only a transaction with a later version than all others must find their writes.
///
/// # Errors
/// If none has committed within [`AUDIT_PATIENCE`].
pub async fn audit(
    keyspace: &TransactionKeyspace,
    workload: Arc<dyn Workload>,
    recorder: Arc<Recorder>,
    process: u64,
    keys: &BTreeSet<u64>,
    latest: Version,
) -> Result<(), Unanswered> {
    let read = |key: &u64| MicroOperation::Read { key: *key, result: ReadResult::Pending };
    let mut reads: Vec<MicroOperation> = keys.iter().map(read).collect();
    let now = keyspace.now();
    let window = Window { from: now, until: now, stop: now };
    let limit = now + AUDIT_PATIENCE;
    let mut at_once = KEYS_AT_ONCE;
    while !reads.is_empty() {
        let [mut pause, longest] = PAUSES;
        let last = Version::INITIAL;
        let mut unanswered =
            Unanswered { process, keys: 0, latest, attempts: 0, committed: 0, last };
        loop {
            at_once = at_once.min(reads.len());
            let plan = Plan::from(reads[..at_once].to_vec());
            // A measurement of its own reports its version.
            let measurement = Arc::new(Measurement::new(window));
            let transactor = Transactor {
                keyspace: keyspace.clone(),
                workload: workload.clone(),
                measurement: measurement.clone(),
                recorder: Some(recorder.clone()),
            };
            (unanswered.keys, unanswered.attempts) = (at_once, unanswered.attempts + 1);
            if transactor.transact(process, &plan, keyspace.now()).await == Arrival::Done {
                unanswered.committed += 1;
                unanswered.last = measurement.latest();
                if unanswered.last > latest {
                    reads.drain(..at_once);
                    break;
                }
            } else if unanswered.attempts.is_multiple_of(TRIES) {
                at_once = at_once.div_ceil(2);
            }
            if keyspace.now() >= limit {
                return Err(unanswered);
            }
            keyspace.sleep_until(keyspace.now() + pause).await;
            pause = longest.min(pause * 2);
        }
    }
    Ok(())
}

/// The keys that a history's transactions read or write.
pub fn touched(history: &History) -> BTreeSet<u64> {
    history.events.iter().flat_map(|event| &event.operations).map(MicroOperation::key).collect()
}

/// Checks that everything acknowledged in a history was found by its last transactions: those after the first `audited`
/// events, which only read. Only those count whose versions are later than all before.
///
/// # Errors
/// If something is missing. The error names the key, and what is missing.
pub fn check_nothing_is_lost(history: &History, audited: usize) -> Result<(), String> {
    let (before, audits) = history.events.split_at(audited);
    let acknowledged = Acknowledged::of(before);
    let latest = before.iter().filter_map(|event| event.version).max();
    let counts = |event: &&Event| event.kind == EventKind::Ok && event.version > latest;
    for event in audits.iter().filter(counts) {
        let reads = event.operations.iter().filter_map(|operation| match operation {
            MicroOperation::Read { key, result } => Some((*key, result)),
            _ => None,
        });
        for (number, (key, found)) in reads.enumerate() {
            let version = event.read_versions.get(number).copied();
            let missing = match found {
                ReadResult::List(list) => acknowledged.missing_in_list(key, list),
                ReadResult::Register(value) => acknowledged.missing(key, *value, version),
                ReadResult::Pending => None,
            };
            if let Some(missing) = missing {
                let Event { process, index, .. } = event;
                return Err(format!(
                    "lost: process {process} read key {key} at op {index}, when all was over, and {missing}"
                ));
            }
        }
    }
    Ok(())
}

/// What was acknowledged, by key.
#[derive(Default)]
struct Acknowledged {
    /// Elements of lists, each with the index of the event that acknowledged it.
    appended: BTreeMap<u64, Vec<(u64, u64)>>,
    /// The latest write to a register, and its event.
    written: BTreeMap<u64, (Version, Option<u64>, u64)>,
    /// The latest version at which a transaction may have deleted a register.
    deleted: BTreeMap<u64, Version>,
}

impl Acknowledged {
    fn of(events: &[Event]) -> Acknowledged {
        let mut acknowledged = Acknowledged::default();
        for event in events {
            for operation in &event.operations {
                acknowledged.add(event, operation);
            }
        }
        acknowledged
    }

    fn add(&mut self, event: &Event, operation: &MicroOperation) {
        if let MicroOperation::Write { key, value: None } = operation
            && event.kind != EventKind::Fail
        {
            let latest = self.deleted.entry(*key).or_default();
            *latest = event.version.map_or(*latest, |version| version.max(*latest));
        }
        if event.kind != EventKind::Ok {
            return;
        }
        match operation {
            MicroOperation::Append { key, element } => {
                self.appended.entry(*key).or_default().push((*element, event.index));
            }
            MicroOperation::Write { key, value } => {
                let version = event.version.unwrap_or(Version::INITIAL);
                let latest = self.written.entry(*key).or_insert((version, *value, event.index));
                if version >= latest.0 {
                    *latest = (version, *value, event.index);
                }
            }
            MicroOperation::Read { .. } => {}
        }
    }

    fn missing_in_list(&self, key: u64, list: &[u64]) -> Option<String> {
        let appended = self.appended.get(&key)?;
        let (element, index) = appended.iter().find(|(element, _)| !list.contains(element))?;
        Some(format!("did not find {element}, whose append was acknowledged at op {index}"))
    }

    fn missing(&self, key: u64, found: Option<u64>, at: Option<Version>) -> Option<String> {
        let (version, value, index) = self.written.get(&key)?;
        let at = at?;
        // The database may have forgotten which delete it was.
        let deleted = self.deleted.get(&key).is_some_and(|deleted| deleted >= version);
        let is_forgotten = found.is_none() && at == Version::INITIAL && deleted;
        let is_there = at > *version || at == *version && found == *value;
        let text = || {
            format!(
                "found {found:?} of {at}; {value:?} of {version} was acknowledged at op {index}"
            )
        };
        (!(is_there || is_forgotten)).then(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Version {
        Version::at(us)
    }

    fn recorded(
        events: Vec<(EventKind, MicroOperation, Option<u64>, Vec<Version>)>,
    ) -> (History, usize) {
        let (recorder, audited) = (Recorder::new(), 2 * (events.len() - 1));
        for (kind, operation, version, read_versions) in events {
            recorder.invoke(0, 0, Vec::new());
            let version = version.map(at);
            recorder.complete(0, 0, kind, vec![operation], version, read_versions, None);
        }
        (recorder.into_history(), audited)
    }

    fn write(value: Option<u64>) -> MicroOperation {
        MicroOperation::Write { key: 1, value }
    }

    fn append(element: u64) -> MicroOperation {
        MicroOperation::Append { key: 1, element }
    }

    fn found(value: Option<u64>) -> MicroOperation {
        MicroOperation::Read { key: 1, result: ReadResult::Register(value) }
    }

    fn list(elements: &[u64]) -> MicroOperation {
        MicroOperation::Read { key: 1, result: ReadResult::List(elements.to_vec()) }
    }

    fn check(
        before: &[(EventKind, MicroOperation, u64)],
        last: (MicroOperation, u64),
    ) -> Result<(), String> {
        let event = |(kind, operation, version): &(EventKind, MicroOperation, u64)| match version {
            0 => (*kind, operation.clone(), None, Vec::new()),
            version => (*kind, operation.clone(), Some(*version), Vec::new()),
        };
        let mut events: Vec<_> = before.iter().map(event).collect();
        events.push((EventKind::Ok, last.0, Some(1000), vec![at(last.1)]));
        let (history, audited) = recorded(events);
        check_nothing_is_lost(&history, audited)
    }

    use EventKind::{Fail, Info, Ok as Done};

    #[test]
    fn the_latest_acknowledged_write_must_be_found() {
        let writes = [(Done, write(Some(5)), 10), (Done, write(Some(4)), 9)];
        assert_eq!(check(&writes, (found(Some(5)), 10)), Ok(()));
        assert!(check(&writes, (found(Some(4)), 9)).is_err());
        assert!(check(&writes, (found(None), 0)).is_err());
    }

    #[test]
    fn a_later_write_of_unknown_outcome_may_be_found() {
        let writes = [(Done, write(Some(5)), 10), (Info, write(Some(6)), 20)];
        assert_eq!(check(&writes, (found(Some(6)), 20)), Ok(()));
        assert_eq!(check(&writes, (found(Some(5)), 10)), Ok(()));
    }

    #[test]
    fn deleted_keys_stay_deleted_and_the_version_may_be_forgotten() {
        let writes = [(Done, write(Some(5)), 10), (Done, write(None), 20)];
        assert_eq!(check(&writes, (found(None), 20)), Ok(()));
        assert_eq!(check(&writes, (found(None), 0)), Ok(()));
        assert!(check(&writes, (found(Some(5)), 10)).is_err());
        let written_again = [writes[0].clone(), writes[1].clone(), (Done, write(Some(6)), 30)];
        assert!(check(&written_again, (found(None), 0)).is_err());
        assert!(check(&written_again, (found(None), 20)).is_err());
    }

    #[test]
    fn a_delete_of_unknown_outcome_may_come_before_or_after_a_write() {
        let writes = |at| [(Done, write(Some(5)), 10), (Info, write(None), at)];
        assert_eq!(check(&writes(20), (found(None), 0)), Ok(()));
        assert!(check(&writes(5), (found(None), 0)).is_err());
    }

    #[test]
    fn a_delete_that_failed_explains_nothing() {
        let writes = [(Done, write(Some(5)), 10), (Fail, write(None), 0)];
        assert!(check(&writes, (found(None), 0)).is_err());
    }

    #[test]
    fn every_acknowledged_append_must_be_found() {
        let appends = [(Done, append(1), 10), (Info, append(2), 20), (Done, append(3), 30)];
        assert_eq!(check(&appends, (list(&[1, 3]), 30)), Ok(()));
        assert_eq!(check(&appends, (list(&[1, 2, 3]), 30)), Ok(()));
        assert!(check(&appends, (list(&[1, 2]), 20)).is_err());
    }
}

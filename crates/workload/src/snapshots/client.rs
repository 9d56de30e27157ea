//! A client of snapshots that makes one request after the other.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_actor::Timestamp;
use serried_history::{EventKind, MicroOperation, ReadResult, Recorder};
use serried_model::{Value, Version, Write};
use serried_session::{ReadOnly, SnapshotError, SnapshotKeyspace, WriteOutcome};

use super::versions::{Versions, omitted_for};
use super::{PlannedSnapshot, SnapshotMix, SnapshotWorkload, Staleness};
use crate::closed_loop::generator;
use crate::{Failure, Measurement, Part, Window};

/// One client in a closed loop.
pub struct SnapshotClient {
    /// The session.
    pub session: SnapshotKeyspace,
    /// The workload.
    pub workload: Arc<dyn SnapshotWorkload>,
    /// The measurement of its results.
    pub measurement: Arc<Measurement>,
    /// The recorder of its history, if one is kept.
    pub recorder: Option<Arc<Recorder>>,
    /// The measurement of the staleness of what it reads, if that is measured.
    pub staleness: Option<Arc<Staleness>>,
    /// Other front ends, to which it moves its session from time to time, by its token.
    pub front_ends: Vec<SnapshotKeyspace>,
    /// Its number. In a history it has as many processes as a request has writes.
    pub client: u64,
    /// The seed of the run. Each client has a random generator of its own.
    pub seed: u64,
    /// How often it had to begin another session. In a history that is another process.
    pub ended_sessions: u64,
}

/// How far the processes of a client's sessions are apart in a history. There are fewer clients.
const SESSIONS_APART: u64 = 1 << 32;

/// One of this many requests is followed by a move to another front end.
const MOVES_ONE_IN: u32 = 8;

impl SnapshotClient {
    /// Makes requests until the window's stop.
    pub async fn run(mut self) {
        let mut random = generator(self.seed, self.client);
        let mut parts = Vec::new();
        for number in 0.. {
            let begun = self.session.now();
            // The window may be moved in the meantime.
            if begun >= self.measurement.window().stop {
                return;
            }
            match self.workload.plan(self.client, number, &mut random) {
                PlannedSnapshot::Read(keys) => parts.push(self.read(&keys, begun).await),
                PlannedSnapshot::WriteTogether(writes) => {
                    parts.push(self.write(0, &writes, begun).await);
                }
                PlannedSnapshot::Write(writes) => {
                    let mut writing = (0..)
                        .zip(writes.chunks(1))
                        .map(|(i, write)| self.write(i, write, begun))
                        .collect::<FuturesUnordered<_>>();
                    while let Some(part) = writing.next().await {
                        parts.push(part);
                    }
                }
            }
            self.measurement.enter_request(begun, &parts);
            let ended =
                |part: &Part<_>| matches!(part.result, Err(SnapshotError::SiteRebuilt { .. }));
            if parts.iter().any(ended) {
                self.session = self.session.session();
                self.ended_sessions += 1;
            }
            parts.clear();
            self.move_on(&mut random).await;
        }
    }

    /// Moves the session to another front end, perhaps.
    async fn move_on(&mut self, random: &mut Pcg64Mcg) {
        if self.front_ends.is_empty() || !random.random_ratio(1, MOVES_ONE_IN) {
            return;
        }
        let front_end = &self.front_ends[random.random_range(0..self.front_ends.len())];
        let front_end = front_end.with_options(*self.session.options());
        let text = self.session.token().expect("the protocol has version clocks").to_string();
        let token = text.parse().expect("a token survives its text");
        if let Ok(session) = front_end.resume(token).await {
            self.session = session;
        }
    }

    fn process(&self, i: u64) -> u64 {
        (self.ended_sessions * SESSIONS_APART + self.client) * self.workload.width() + i
    }

    async fn read(&self, keys: &[u64], begun: Timestamp) -> Part<SnapshotError> {
        let planned = keys.iter().map(|key| read(*key, ReadResult::Pending)).collect();
        let open = Open::begin(self, self.process(0), planned, begun);
        let numbered = keys.iter().map(|key| self.workload.key(*key)).collect();
        let result = self.session.read_only_recorded(numbered).await;
        let ended = self.session.now();
        match &result {
            Ok(ReadOnly { values, stamps, rounds, metadata_bytes, .. }) => {
                let costs = [
                    ("rounds", f64::from(*rounds)),
                    ("metadata_bytes", f64::from(*metadata_bytes)),
                ];
                self.measurement.note(ended, &costs);
                let number = |value: &Value| self.workload.number(value);
                let found = keys.iter().zip(values).map(|(key, value)| {
                    read(*key, ReadResult::Register(value.as_ref().map(number)))
                });
                let versions = Versions::of(&self.session);
                let places = keys.iter().zip(stamps);
                let places = places.map(|(key, stamp)| versions.placed(*key, *stamp)).collect();
                open.end(ended, EventKind::Ok, Some(found.collect()), None, places, None);
                if let Some(staleness) = &self.staleness
                    && begun >= self.measurement.window().from
                {
                    for (key, stamp) in keys.iter().zip(stamps) {
                        staleness.read(*key, *stamp, begun);
                    }
                }
            }
            Err(error) => {
                let error = Some(error.to_string());
                open.end(ended, EventKind::Fail, None, None, Vec::new(), error);
            }
        }
        Part { kind: "read-only", ended, result: result.map(drop) }
    }

    /// Writes keys at once, at least one; several only if there are write transactions.
    async fn write(
        &self,
        i: u64,
        writes: &[(u64, Option<u64>)],
        begun: Timestamp,
    ) -> Part<SnapshotError> {
        let process = self.process(i);
        let planned = writes.iter().map(|&(key, value)| MicroOperation::Write { key, value });
        let open = Open::begin(self, process, planned.collect(), begun);
        let result = self.session.write_all(writes.iter().map(|(key, value)| Write {
            key: self.workload.key(*key),
            value: value.map(|value| self.workload.value(value)),
        }));
        let result = result.await.map(|outcome| outcome.expect("there are writes"));
        let ended = self.session.now();
        match &result {
            Ok(WriteOutcome { stamp, omitted }) => {
                let version = match omitted {
                    true => omitted_for(*stamp, process),
                    false => Versions::of(&self.session).placed(writes[0].0, *stamp),
                };
                let version = Some(version).filter(|version| *version != Version::INITIAL);
                open.end(ended, EventKind::Ok, None, version, Vec::new(), None);
                self.measurement.note(ended, &[("omitted_share", f64::from(u8::from(*omitted)))]);
                if let Some(staleness) = self.staleness.as_ref().filter(|_| !omitted) {
                    for (key, _) in writes {
                        staleness.wrote(*key, *stamp, ended);
                    }
                }
            }
            Err(error) => {
                let kind = if error.is_unknown() { EventKind::Info } else { EventKind::Fail };
                open.end(ended, kind, None, None, Vec::new(), Some(error.to_string()));
            }
        }
        Part { kind: "write", ended, result: result.map(drop) }
    }
}

fn read(key: u64, result: ReadResult) -> MicroOperation {
    MicroOperation::Read { key, result }
}

impl Failure for SnapshotError {
    fn is_unknown(&self) -> bool {
        matches!(
            self,
            SnapshotError::Unknown { .. }
                | SnapshotError::Forgotten { .. }
                | SnapshotError::SiteRebuilt { .. }
        )
    }
}

/// A request that has not ended. If its client dies, its outcome is recorded as unknown.
struct Open<'a> {
    client: &'a SnapshotClient,
    process: u64,
    planned: Vec<MicroOperation>,
    /// `None` if no history is kept, or the end is recorded.
    recorder: Option<&'a Recorder>,
}

impl<'a> Open<'a> {
    fn begin(
        client: &'a SnapshotClient,
        process: u64,
        planned: Vec<MicroOperation>,
        begun: Timestamp,
    ) -> Open<'a> {
        let recorder = client.recorder.as_deref();
        if let Some(recorder) = recorder {
            recorder.invoke(process, begun.0, planned.clone());
        }
        Open { client, process, planned, recorder }
    }

    fn end(
        mut self,
        at: Timestamp,
        kind: EventKind,
        done: Option<Vec<MicroOperation>>,
        version: Option<Version>,
        read_versions: Vec<Version>,
        error: Option<String>,
    ) {
        let Some(recorder) = self.recorder.take() else { return };
        let operations = done.unwrap_or_else(|| core::mem::take(&mut self.planned));
        recorder.complete(self.process, at.0, kind, operations, version, read_versions, error);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let Some(recorder) = self.recorder else { return };
        let (at, planned) = (self.client.session.now().0, core::mem::take(&mut self.planned));
        let error = Some("the client died".to_string());
        let kind = EventKind::Info;
        recorder.complete(self.process, at, kind, planned, None, Vec::new(), error);
    }
}

/// One client of a [`SnapshotMix`], which records a history and measures nothing.
pub struct SnapshotLoop {
    /// The session.
    pub session: SnapshotKeyspace,
    /// The mix of its requests.
    pub mix: SnapshotMix,
    /// The recorder of its history.
    pub recorder: Arc<Recorder>,
    /// Other front ends, to which it moves its session from time to time.
    pub front_ends: Vec<SnapshotKeyspace>,
    /// Its number, which is its process in the history.
    pub client: u64,
    /// The seed of the run. Each client has a random generator of its own.
    pub seed: u64,
    /// It begins nothing from this time on.
    pub stop: Timestamp,
}

impl SnapshotLoop {
    /// Makes requests until the stop.
    pub async fn run(self) {
        let SnapshotLoop { session, mix, recorder, front_ends, client, seed, stop } = self;
        let nothing = Window { from: stop, until: stop, stop };
        let client = SnapshotClient {
            session,
            workload: Arc::new(mix),
            measurement: Arc::new(Measurement::new(nothing)),
            recorder: Some(recorder),
            staleness: None,
            front_ends,
            client,
            seed,
            ended_sessions: 0,
        };
        client.run().await;
    }
}

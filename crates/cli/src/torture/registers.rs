//! Registers that several processes read and update, and a check of all they saw.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use rand_pcg::Pcg64Mcg;
use rustix::time::{ClockId, clock_gettime};
use serried::{Database, Registers};
use serried_history::{
    EventKind, RegisterEvent, RegisterHistory, RegisterOperation, RegisterValue,
};
use serried_model::{Guarantee, Key, Value};
use serried_workload::{Planned, RegisterMix, RegisterWorkload, Turn};

use super::{Kind, TICK, verdict};
use crate::family::{info, offers_rmws};
use crate::{Ended, judge};

/// How many registers are in use at a time.
const REGISTERS: u64 = 8;
/// For how long, in milliseconds; then others take their place, so that what is to be checked of each does
/// not grow without bounds.
const USED_FOR_MS: u64 = 500;

/// The operations of [`RegisterMix`], on registers that processes do not have to agree on: the time tells
/// which are in use.
pub(super) struct SharedRegisters {
    mix: RegisterMix,
    /// When the first registers came into use, in milliseconds since the Unix epoch.
    begun_ms: u64,
}

impl SharedRegisters {
    /// Reads, writes and, if the protocol has them, additions.
    pub(super) fn new(protocol: &str, begun_ms: u64) -> SharedRegisters {
        let writes = if offers_rmws(protocol) { 0.25 } else { 0.5 };
        let mix = RegisterMix { keys: REGISTERS, reads: 0.5, writes, adds: true };
        SharedRegisters { mix, begun_ms }
    }
}

impl RegisterWorkload for SharedRegisters {
    fn name(&self) -> &'static str {
        self.mix.name()
    }

    fn plan(&self, turn: Turn, random: &mut Pcg64Mcg) -> Vec<Planned> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let passed_ms = (now.as_millis() as u64).saturating_sub(self.begun_ms);
        let first = REGISTERS * (passed_ms / USED_FOR_MS);
        let mut plan = self.mix.plan(turn, random);
        plan.iter_mut().for_each(|planned| planned.key += first);
        plan
    }

    fn modifies(&self) -> bool {
        self.mix.modifies()
    }

    /// Those of the beginning: the others come and go.
    fn keys(&self, clients: u64) -> Box<dyn Iterator<Item = u64> + Send> {
        self.mix.keys(clients)
    }
}

/// The machine's monotonic time at a client's zero, in nanoseconds: what its history's times are counted
/// from, so that they can be compared with other processes'.
pub(super) fn epoch_ns(registers: &Registers) -> u64 {
    let monotonic_ns = || {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let reading = || {
        let (before, now, after) = (monotonic_ns(), registers.now(), monotonic_ns());
        (after - before, before.saturating_sub(now.0))
    };
    // The reading that took least is off by least: by far less than a message takes.
    let best = (0..100).map(|_| reading()).min();
    best.map_or(0, |(_, epoch_ns)| epoch_ns)
}

/// Reads all registers that clients may have written, and judges what they found with all their histories.
pub(super) async fn judge(
    database: &Database,
    files: &[PathBuf],
    within: Duration,
) -> anyhow::Result<(Ended, String)> {
    let histories = files.iter().map(|file| {
        let read = || {
            let bytes = verdict::whole_lines(file)?;
            anyhow::Ok(RegisterHistory::read_json_lines(&bytes[..])?.events)
        };
        read().with_context(|| format!("can't read {}", file.display()))
    });
    let mut events = merged(histories.collect::<anyhow::Result<_>>()?);
    let registers = database.registers(Kind::Register.name()).await?;
    let keys: BTreeSet<u64> = events.iter().map(|event| event.key).collect();
    let process = 1 + events.iter().map(|event| event.process).max().unwrap_or(0);
    for key in keys {
        let found = read(&registers, key, within).await?;
        for (kind, found) in [(EventKind::Invoke, None), (EventKind::Ok, Some(found))] {
            events.push(RegisterEvent {
                index: 0,
                kind,
                process,
                time_ns: 0,
                key,
                operation: RegisterOperation::Read,
                found,
                version: None,
                error: None,
            });
        }
    }
    for (index, event) in events.iter_mut().enumerate() {
        event.index = index as u64;
    }
    let keyspaces = database.keyspaces().iter();
    let protocol = keyspaces.filter(|keyspace| keyspace.name == Kind::Register.name());
    let guarantee = protocol.filter_map(|keyspace| info(&keyspace.protocol)).next();
    let guarantee = guarantee.map_or(Guarantee::Linearizable, |info| info.guarantee);
    let (ended, _, text) = judge::judge_registers(&RegisterHistory { events }, guarantee);
    Ok((ended, text))
}

/// One history in the order of time: each is in that order already, and of what happened at the same
/// moment, beginnings come first, as nothing is known to have ended before them.
fn merged(histories: Vec<Vec<RegisterEvent>>) -> Vec<RegisterEvent> {
    let mut histories: Vec<_> =
        histories.into_iter().map(|events| events.into_iter().peekable()).collect();
    let place = |event: &RegisterEvent, history: usize| {
        Reverse((event.time_ns, event.kind != EventKind::Invoke, history))
    };
    let mut next: BinaryHeap<_> = histories
        .iter_mut()
        .enumerate()
        .filter_map(|(number, events)| Some(place(events.peek()?, number)))
        .collect();
    let mut merged = Vec::new();
    while let Some(Reverse((_, _, number))) = next.pop() {
        merged.extend(histories[number].next());
        next.extend(histories[number].peek().map(|event| place(event, number)));
    }
    merged
}

/// What a register holds in the end.
async fn read(registers: &Registers, key: u64, within: Duration) -> anyhow::Result<RegisterValue> {
    let until = Instant::now() + within;
    let found = loop {
        match registers.read(Key::from(key.to_be_bytes())).await {
            Ok(found) => break found,
            Err(error) if Instant::now() >= until => {
                return Err(error).context("what was written can't be read in the end");
            }
            // The cluster still recovers.
            Err(_) => tokio::time::sleep(TICK).await,
        }
    };
    let number = |value: Value| -> anyhow::Result<i64> {
        let text = std::str::from_utf8(value.as_bytes()).ok();
        let number = text.and_then(|text| text.parse().ok());
        number.with_context(|| format!("register {key} holds `{value}`, which nobody wrote"))
    };
    found.map(number).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(process: u64, time_ns: u64, kind: EventKind) -> RegisterEvent {
        let (operation, key) = (RegisterOperation::Read, 0);
        let (found, version, error) = (None, None, None);
        RegisterEvent { index: 0, kind, process, time_ns, key, operation, found, version, error }
    }

    #[test]
    fn what_begins_at_the_moment_at_which_something_ends_elsewhere_did_not_begin_after_it() {
        let (invoke, ok) = (EventKind::Invoke, EventKind::Ok);
        let one = vec![event(1, 10, invoke), event(1, 20, ok), event(1, 20, invoke)];
        let two = vec![event(2, 20, invoke), event(2, 30, ok)];
        let merged = merged(vec![one, two, Vec::new()]);
        let order: Vec<_> = merged.iter().map(|event| (event.process, event.kind)).collect();
        assert_eq!(order, [(1, invoke), (2, invoke), (1, ok), (1, invoke), (2, ok)]);
    }
}

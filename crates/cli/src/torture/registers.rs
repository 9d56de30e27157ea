//! Registers that several processes read and update, and a check of all they saw.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use rand_pcg::Pcg64Mcg;
use serried::{Database, RegisterKeyspace};
use serried_history::{
    Budget, EventKind, RegisterEvent, RegisterHistory, RegisterOperation, RegisterValue,
};
use serried_model::{Guarantee, Key, Value};
use serried_workload::{Planned, RegisterMix, RegisterWorkload, Turn};

use super::timeline::merged;
use super::{Kind, TICK, verdict};
use crate::Ended;
use crate::wing::registers::{judge_registers, offers_rmws};

/// How many registers are in use at a time.
const REGISTERS: u64 = 8;
/// For how long, in milliseconds; then others take their place, so that what is to be checked of each does
/// not grow without bounds.
const USED_FOR_MS: u64 = 500;

/// The operations of [`RegisterMix`], for processes that do not talk to each other: the time determines which registers
/// are in use.
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
    let guarantee = verdict::promised(database, Kind::Register).unwrap_or(Guarantee::Linearizable);
    let history = RegisterHistory { events };
    let (ended, _, text) = judge_registers(&history, guarantee, &Budget::default());
    Ok((ended, text))
}

/// What a register holds in the end.
async fn read(
    registers: &RegisterKeyspace,
    key: u64,
    within: Duration,
) -> anyhow::Result<RegisterValue> {
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

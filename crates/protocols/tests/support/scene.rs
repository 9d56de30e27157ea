//! What scenes under simulated faults have in common.

use serried_actor::{Settings, Timestamp};
use serried_model::{FamilyName, Geography, Transactions, Value};
use serried_protocols::{Visitor, promising, visit};
use serried_sim::{Configuration, Disk, Fault, Scheduled};

/// When a scene has to be over, in simulated time.
pub(crate) const LIMIT: Timestamp = Timestamp(600_000_000_000);

/// Three sites and two clients. What is old is settled and forgotten within seconds.
pub(crate) fn configuration(partitions: u16) -> Configuration {
    Configuration {
        partitions,
        clients: 2,
        geography: Geography::named("reg").unwrap(),
        disk: Disk { keep_records: true, ..Disk::MEMORY },
        settings: Settings {
            truncation_every_ms: 200,
            truncation_lag_ms: 1000,
            outcomes_ms: 2000,
            recovery_after_ms: 200,
            ..Settings::default()
        },
        ..Configuration::default()
    }
}

/// So many milliseconds after the start.
pub(crate) fn ms(at: u64) -> Timestamp {
    Timestamp(at * 1_000_000)
}

/// A machine is down from one time to another, both in milliseconds after the start.
pub(crate) fn crash(member: usize, begins: u64, ends: u64) -> Scheduled {
    Scheduled { begins: ms(begins), ends: ms(ends), fault: Fault::Crash(member) }
}

/// The number in a value of 8 bytes; 0 if there is none.
pub(crate) fn number(value: Option<Value>) -> u64 {
    value.map_or(0, |value| u64::from_be_bytes(value.as_bytes().try_into().unwrap()))
}

/// Runs `scene` for the protocols whose partitions have no leaders: their replicas keep versions, tell a clock that is off
/// from the others, and can keep the past.
pub(crate) fn each_without_leaders<S: Visitor<Transactions, Output = ()> + Copy>(scene: S) {
    for protocol in promising(FamilyName::Transactions).filter(|protocol| !protocol.has_leaders) {
        visit(protocol.name, scene).unwrap();
    }
}

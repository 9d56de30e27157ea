//! Clients of registers: reads, writes and read-modify-writes of single keys, one after the other.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_actor::Timestamp;
use serried_history::{RegisterOperation, RegisterOutcome, RegisterRecorder, RegisterValue};
use serried_model::{Access, Accessed, Key, Modification, Value};
use serried_session::{Error, Registers};

/// What clients of registers do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RegisterMix {
    /// How many keys there are.
    pub keys: u64,
    /// The share of operations that read.
    pub reads: f64,
    /// The share that write; the others are read-modify-writes.
    pub writes: f64,
    /// Whether these add 1 to what is there, or swap it. Where they add, nothing is deleted: a history
    /// that begins to count again from nothing does not tell which of two equal sums was found.
    pub adds: bool,
}

impl RegisterMix {
    /// The next operation of `client`, its `number`-th. No two write the same value, but for sums.
    fn plan(&self, client: u64, number: u64, random: &mut Pcg64Mcg) -> (u64, RegisterOperation) {
        let key = random.random_range(0..self.keys);
        // Room for what is added to it.
        let new = (client << 40 | number << 16) as i64;
        let drawn: f64 = random.random();
        let operation = if drawn < self.reads {
            RegisterOperation::Read
        } else if drawn < self.reads + self.writes {
            let value = (self.adds || random.random_bool(0.9)).then_some(new);
            RegisterOperation::Write { value }
        } else if self.adds {
            RegisterOperation::Add { delta: 1 }
        } else {
            let expected = None;
            RegisterOperation::CompareAndSwap { expected, new: Some(new) }
        };
        (key, operation)
    }
}

/// One client in a closed loop.
pub struct RegisterLoop {
    /// Where its registers are.
    pub registers: Registers,
    /// What it does.
    pub mix: RegisterMix,
    /// Where its history goes.
    pub recorder: Arc<RegisterRecorder>,
    /// Its number, which is its process in the history.
    pub client: u64,
    /// The seed of the run; each client draws its own numbers from it.
    pub seed: u64,
    /// It begins nothing from then on.
    pub stop: Timestamp,
}

impl RegisterLoop {
    /// Runs operations until the stop.
    pub async fn run(self) {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed ^ self.client.wrapping_mul(0x9e37_79b9));
        let mut swapped = None;
        for number in 1.. {
            let now = self.registers.now();
            if now >= self.stop {
                return;
            }
            let (key, mut operation) = self.mix.plan(self.client, number, &mut random);
            if let RegisterOperation::CompareAndSwap { expected, .. } = &mut operation {
                // Mostly what was there is there no more; then it is only a read.
                *expected = swapped;
            }
            self.recorder.invoke(self.client, now.0, key, operation);
            let mut open = Open { client: &self, key, operation, ended: false };
            let access =
                self.registers.access(Key::from(key.to_be_bytes()), access(operation), None);
            let outcome = outcome(access.await);
            if let RegisterOutcome::Ok { found, .. } = outcome {
                swapped = operation.result(found);
            }
            open.end(outcome);
        }
    }
}

/// An operation that has not ended; if its client dies, that is unknown.
struct Open<'a> {
    client: &'a RegisterLoop,
    key: u64,
    operation: RegisterOperation,
    ended: bool,
}

impl Open<'_> {
    fn end(&mut self, outcome: RegisterOutcome) {
        self.ended = true;
        let RegisterLoop { recorder, registers, client, .. } = self.client;
        recorder.complete(*client, registers.now().0, self.key, self.operation, outcome);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(RegisterOutcome::Unknown("the client died".to_string()));
        }
    }
}

fn access(operation: RegisterOperation) -> Access {
    match operation {
        RegisterOperation::Read => Access::Read,
        RegisterOperation::Write { value: new } => Access::Write(value(new)),
        RegisterOperation::Add { delta } => Access::Modify(Modification::add(delta)),
        RegisterOperation::CompareAndSwap { expected, new } => {
            let (expected, new) = (value(expected), value(new));
            Access::Modify(Modification::CompareAndSwap { expected, new })
        }
    }
}

fn value(number: RegisterValue) -> Option<Value> {
    number.map(|number| Value::from(number.to_string()))
}

fn outcome(result: Result<Accessed, Error>) -> RegisterOutcome {
    match result {
        Ok(Accessed { found, carstamp }) => {
            let number = |value: Value| {
                let text = core::str::from_utf8(value.as_bytes()).ok();
                text.and_then(|text| text.parse().ok()).expect("what this workload writes")
            };
            let version = serried_history::Carstamp {
                timestamp: carstamp.timestamp,
                writer: carstamp.writer.0,
                rmw_count: carstamp.rmwc,
            };
            RegisterOutcome::Ok { found: found.map(number), version: Some(version) }
        }
        Err(error @ (Error::UnknownUpdate { .. } | Error::ForgottenUpdate { .. })) => {
            RegisterOutcome::Unknown(error.to_string())
        }
        Err(error) => RegisterOutcome::Failed(error.to_string()),
    }
}

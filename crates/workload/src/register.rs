//! Operations on registers for testing checkers: their values distinguish them.

use std::sync::Arc;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_actor::Timestamp;
use serried_history::{RegisterOperation, RegisterRecorder};
use serried_session::RegisterKeyspace;

use crate::registers::{Kind, Planned, RegisterClient, RegisterParameters, Shares, Turn};
use crate::{Measurement, RegisterWorkload, Window, WorkloadError};

/// The mix of operations of clients.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RegisterMix {
    /// How many keys there are.
    pub keys: u64,
    /// The share of operations that read.
    pub reads: f64,
    /// The share of operations that write. The others are read-modify-writes.
    pub writes: f64,
    /// Whether read-modify-writes add 1 to the value, or swap it. If they add, nothing is deleted: if counting began
    /// again from nothing, the history would not show which of two equal sums was found.
    pub adds: bool,
}

impl RegisterMix {
    /// By default half of the operations read, a quarter write, and there are eight keys.
    ///
    /// # Errors
    /// If the shares are not valid.
    pub fn new(parameters: &RegisterParameters) -> Result<RegisterMix, WorkloadError> {
        let Shares { reads, writes } = Shares { reads: 0.5, writes: 0.25 }.or(parameters)?;
        let (keys, adds) = (parameters.keys.unwrap_or(8).max(1), parameters.adds);
        Ok(RegisterMix { keys, reads, writes, adds })
    }

    fn shares(&self) -> Shares {
        Shares { reads: self.reads, writes: self.writes }
    }
}

impl RegisterWorkload for RegisterMix {
    fn name(&self) -> &'static str {
        "register"
    }

    /// No two operations write the same value, except for sums.
    fn plan(&self, turn: Turn, random: &mut Pcg64Mcg) -> Vec<Planned> {
        let key = random.random_range(0..self.keys);
        // The low bits are room for additions.
        let new = (turn.client << 40 | turn.number << 16) as i64;
        let operation = match self.shares().draw(random) {
            Kind::Read => RegisterOperation::Read,
            Kind::Write => {
                let value = (self.adds || random.random_bool(0.9)).then_some(new);
                RegisterOperation::Write { value }
            }
            Kind::Modify if self.adds => RegisterOperation::Add { delta: 1 },
            // Mostly the value has changed in the meantime. Then the swap is only a read.
            Kind::Modify => {
                RegisterOperation::CompareAndSwap { expected: turn.last, new: Some(new) }
            }
        };
        vec![Planned { key, operation }]
    }

    fn modifies(&self) -> bool {
        self.shares().modify()
    }

    fn keys(&self, _: u64) -> Box<dyn Iterator<Item = u64> + Send> {
        Box::new(0..self.keys)
    }
}

/// One client of a [`RegisterMix`], which records a history and measures nothing.
pub struct RegisterLoop {
    /// The keyspace.
    pub registers: RegisterKeyspace,
    /// The mix of its operations.
    pub mix: RegisterMix,
    /// The recorder of its history.
    pub recorder: Arc<RegisterRecorder>,
    /// Its number, which is its process in the history.
    pub client: u64,
    /// The seed of the run. Each client has a random generator of its own.
    pub seed: u64,
    /// It begins nothing from this time on.
    pub stop: Timestamp,
}

impl RegisterLoop {
    /// Runs operations until the stop.
    pub async fn run(self) {
        let RegisterLoop { registers, mix, recorder, client, seed, stop } = self;
        let nothing = Window { from: stop, until: stop, stop };
        let client = RegisterClient {
            registers,
            workload: Arc::new(mix),
            measurement: Arc::new(Measurement::new(nothing)),
            recorder: Some(recorder),
            epoch_ns: 0,
            client,
            seed,
        };
        client.run().await;
    }
}

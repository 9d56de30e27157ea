//! What checkers of registers are fed with: operations whose values tell them apart.

use std::sync::Arc;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_actor::Timestamp;
use serried_history::{RegisterOperation, RegisterRecorder};
use serried_session::RegisterKeyspace;

use crate::registers::{Kind, Planned, RegisterClient, RegisterParameters, Shares, Turn};
use crate::{Measurement, RegisterWorkload, Window, WorkloadError};

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
    /// Half of the operations read, a quarter write; eight keys, if nothing else is said.
    ///
    /// # Errors
    /// If the shares are none.
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

    /// No two operations write the same value, but for sums.
    fn plan(&self, turn: Turn, random: &mut Pcg64Mcg) -> Vec<Planned> {
        let key = random.random_range(0..self.keys);
        // Room for what is added to it.
        let new = (turn.client << 40 | turn.number << 16) as i64;
        let operation = match self.shares().draw(random) {
            Kind::Read => RegisterOperation::Read,
            Kind::Write => {
                let value = (self.adds || random.random_bool(0.9)).then_some(new);
                RegisterOperation::Write { value }
            }
            Kind::Modify if self.adds => RegisterOperation::Add { delta: 1 },
            // Mostly what was there is there no more; then it is only a read.
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

/// One client of a [`RegisterMix`] whose history alone is of interest.
pub struct RegisterLoop {
    /// Where its registers are.
    pub registers: RegisterKeyspace,
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

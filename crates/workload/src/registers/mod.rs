//! Workloads of registers: operations on single keys.

mod client;
mod ycsb;

use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use serried_history::{RegisterOperation, RegisterValue};
use serried_model::{Key, Value};

use crate::number;

pub use client::RegisterClient;
pub(crate) use ycsb::Kind;
pub use ycsb::{Shares, Ycsb};

/// A planned operation on a numbered key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Planned {
    /// The key.
    pub key: u64,
    /// The operation.
    pub operation: RegisterOperation,
}

impl Planned {
    /// The kind of operation: `read`, `write` or `rmw`. Results are reported per kind.
    pub fn kind(&self) -> &'static str {
        match self.operation {
            RegisterOperation::Read => "read",
            RegisterOperation::Write { .. } => "write",
            RegisterOperation::CompareAndSwap { .. } | RegisterOperation::Add { .. } => "rmw",
        }
    }
}

/// The turn of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The client.
    pub client: u64,
    /// The number of its request, from 1.
    pub number: u64,
    /// The value of the previous operation's key after it, as far as the client knows.
    pub last: RegisterValue,
}

/// A workload of registers: it plans requests, and maps numbers to keys and values.
pub trait RegisterWorkload: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The next request of a client: operations that are in progress at the same time, at least one and at most
    /// [`RegisterWorkload::width`]. It ends with the last of them.
    fn plan(&self, turn: Turn, random: &mut Pcg64Mcg) -> Vec<Planned>;

    /// The greatest number of operations of a request. In a history each has a process of its own, because a process
    /// can't have two open operations on a key.
    fn width(&self) -> u64 {
        1
    }

    /// Whether its operations include read-modify-writes, which not every protocol offers.
    fn modifies(&self) -> bool;

    /// All keys that `clients` clients may use.
    fn keys(&self, clients: u64) -> Box<dyn Iterator<Item = u64> + Send>;

    /// The key with this number.
    fn key(&self, number: u64) -> Key {
        number::key(number, 8)
    }

    /// The value that stands for a number: its digits, to which can be added.
    fn value(&self, number: i64) -> Value {
        Value::from(number.to_string())
    }
}

/// What workloads of registers can be told.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct RegisterParameters {
    /// The share of operations that read, and of those that write; the others are read-modify-writes. If one
    /// of the two is missing, there are none of these; if both are, the workload has its own shares.
    pub reads: Option<f64>,
    /// See `reads`.
    pub writes: Option<f64>,
    /// The share of a client's operations on the one key that all have in common; the others are on keys of
    /// its own. For `ycsb` and `tail-at-scale`, if there is no `theta`.
    pub conflicts: Option<f64>,
    /// The exponent of the Zipf distribution from which keys are drawn instead.
    pub theta: Option<f64>,
    /// How many keys there are; where only one is shared, how many each client has of its own.
    pub keys: Option<u64>,
    /// The length of a key in bytes, at least 8; 8 if `None`. For `ycsb` and `tail-at-scale`.
    pub key_bytes: Option<usize>,
    /// The length of a value in bytes, at least 8; 8 if `None`. For `ycsb` and `tail-at-scale`.
    pub value_bytes: Option<usize>,
    /// How many operations a request of `tail-at-scale` has.
    pub sub_requests: Option<u64>,
    /// Whether the read-modify-writes of `register` add 1 to what is there; they compare and swap
    /// otherwise.
    pub adds: bool,
}

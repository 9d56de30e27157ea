//! Which data a node has.

use serde::{Deserialize, Serialize};

/// Distinguishes the data of a node from other data that the node had before, such as that of a lost disk. Nodes exchange
/// it when they connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Provenance {
    /// When the data directory was created, in microseconds since the Unix epoch. Data that replaces other data has the
    /// greater number.
    pub incarnation: u64,
    /// The directory was created to replace a lost disk.
    pub rejoined: bool,
}

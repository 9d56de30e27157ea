//! The order of transactions that are chopped into pieces and reordered, as ROCOCO and Janus-CC order them (002 §3).
//!
//! - `Accesses` finds the transactions before a new one: those with conflicting pieces that came to a server earlier.
//! - `Graph` has what a server knows of transactions that commit, `Blocked` finds those that can be executed next, and `order`
//!   says in which order the members of a cycle are executed.
//! - `Horizon` says when transactions are forgotten.

/// About how many ancestors are sent with a transaction.
pub(crate) const ANCESTORS_AT_MOST: usize = 32;

/// About how many edges of ancestors are sent with a transaction.
pub(crate) const EDGES_AT_MOST: usize = 128;

mod accesses;
mod blocked;
mod graph;
mod horizon;
pub(crate) mod order;
mod vertex;

pub(crate) use accesses::Accesses;
pub(crate) use blocked::{Blocked, Missing, Next, View};
pub(crate) use graph::Graph;
pub(crate) use horizon::Horizon;
pub use vertex::{Ancestors, Commit, Edge, Kind, Vertex, Window};

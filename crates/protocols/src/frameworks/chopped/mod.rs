//! The order of transactions that are chopped into pieces and reordered, as ROCOCO and Janus-CC order them (002 §3).
//!
//! - `Accesses` finds the transactions before a new one: those with conflicting pieces that came to a server earlier.
//! - `Graph` has what a server knows of transactions that commit, `Blocked` finds those that can be executed next, and `order`
//!   says in which order the members of a cycle are executed.
//! - `Horizon` says when transactions are forgotten, and `names` what they are called in a store.

mod accesses;
mod blocked;
mod graph;
mod horizon;
pub(crate) mod names;
pub(crate) mod order;
mod vertex;

pub(crate) use accesses::Accesses;
pub(crate) use blocked::{Blocked, FAR, Missing, Next, View};
pub(crate) use graph::Graph;
pub(crate) use horizon::Horizon;
pub(crate) use vertex::{ANCESTORS_AT_MOST, EDGES_AT_MOST};
pub use vertex::{Ancestors, Commit, Edge, Kind, Vertex, Window};

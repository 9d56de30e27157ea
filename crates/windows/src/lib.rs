//! Serialization and validity windows (000 §2, 001 §A.3) of a cluster's hottest keys: what bounds the
//! throughput of a key, made visible.
//!
//! ```text
//! replicas ──Observation──▶ Collector ──Recording──▶ analyse ──▶ KeyWindows ──▶ text, JSON, timeline
//! ```
//!
//! A transaction that reads version k of a key and writes it again has a **serialization window** on
//! the key, from the write of version k to its own write, and a **validity window**, from the commit of
//! version k's writer to its own commit. No two windows of committed transactions overlap on a key, so
//! one over their mean length is a bound on how many of these transactions can commit per second.
//!
//! A node sends [`Observed`](serried_actor::Observed) events to a client that watches it. Their times are compared as
//! they come, so they must all be from one clock: on a real cluster one node is watched, in a simulation all of them.

mod analysis;
mod collector;
mod hottest;
mod report;
mod timeline;

pub use analysis::{Interval, KeyWindows, Mean, Window, analyse};
pub use collector::{Collector, Recording};
pub use hottest::Hottest;
pub use report::text;
pub use timeline::timeline;

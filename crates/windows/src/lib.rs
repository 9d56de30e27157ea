//! Serialization and validity windows (000 §2, 001 §A.3) of a cluster's hottest keys. They show what bounds the
//! throughput of a key.
//!
//! ```text
//! replicas ──Observation──▶ Collector ──Recording──▶ analyse ──▶ KeyWindows ──▶ text, JSON, timeline
//! ```
//!
//! A transaction that reads version k of a key and writes it again has a **serialization window** on the key, from the
//! write of version k to its own write, and a **validity window**, from the commit of version k's writer to its own
//! commit. No two windows of committed transactions on a key overlap, so at most one over their mean length of these
//! transactions can commit per second.
//!
//! A node sends [`Observed`](serried_actor::Observed) to its watchers. Times are compared without correction, so they
//! must all be from one clock. In a real cluster, watch only one of its replicas. In a simulation, watch all.

mod advice;
mod analysis;
mod collector;
mod hottest;
mod queueing;
mod report;
mod timeline;

pub use advice::{
    Advice, Candidate, Diagnosis, Limit, MANY_ATTEMPTS, Remedy, Setting, Trips, diagnose,
};
pub use analysis::{Interval, KeyWindows, Mean, Window, analyse};
pub use collector::{Collector, Recording};
pub use hottest::Hottest;
pub use report::text;
pub use timeline::timeline;

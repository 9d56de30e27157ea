//! Workloads: what clients do to a database, and how it is measured.
//!
//! A [`Workload`] plans transactions and runs them through the public session API, so the same code
//! drives a real cluster and a simulated one. [`ClosedLoop`] is the client that does one after the
//! other and keeps the books.

mod bank;
mod closed_loop;
mod counter;
mod list_append;
mod measurement;
mod number;
mod retwis;
mod workload;

pub use bank::Bank;
pub use closed_loop::{ClosedLoop, preload};
pub use counter::Counter;
pub use list_append::ListAppend;
pub use measurement::{Measurement, Report, Window, Witness};
pub use retwis::Retwis;
pub use workload::{Parameters, Plan, Run, UnknownWorkload, Workload, WorkloadInfo, list, named};

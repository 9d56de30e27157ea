//! Measures the cost of computing on this machine, for the simulator's cost model.
//!
//! A cost model charges a node for each event, each message sent and each unit of work. These costs are fitted to
//! measurements of a real cluster: a cluster on loopback runs loads that differ in how many keys a transaction reads
//! and writes, and so in the numbers of events, messages, units and system calls. System calls are the fourth kind of
//! work, and the most expensive. Messages that are sent together share them, so CPU time does not follow from messages
//! alone. The simulator has no system calls, so each event is charged for as many as it causes in a typical load. CPU
//! time comes from the threads' own clocks, and messages from the nodes' counters. The nodes do not count units
//! of work and a client's batches of operations. These come from a simulation of the same load, in which they are the
//! same for each transaction.
//!
//! Keys are drawn uniformly from many, so that transactions do not conflict. Each client has connections of its own, as
//! in the simulator, so that costs include their system calls. Further loads, which are not used for the fit, show how
//! good the fit is.

mod cpu;
mod fit;
mod load;
mod measure;
mod sample;

pub use fit::Fit;
pub use measure::{Calibrate, Calibration, Error, Side, TYPICAL};
pub use sample::{Sample, Work};

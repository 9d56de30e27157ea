//! What computing costs on this machine, in the terms of the simulator's cost model.
//!
//! A cost model charges a node for each event, each message sent and each unit of work. They are fitted
//! to what a real cluster takes: a cluster on loopback is put under loads that differ in how many keys
//! a transaction reads and writes, and so in how many events, messages, units and system calls share its
//! CPU time. System calls are the fourth kind of work, and the dearest: what is sent together shares
//! them, so that CPU time does not follow from messages alone. The simulator knows nothing of them, and
//! charges each event as many as it causes in a typical load. CPU time comes from the threads' own clocks, and messages
//! from the nodes' counters. What the nodes do not count (units of work, a client's batches of operations) comes from a
//! simulation of the same load, in which it is the same for each transaction.
//!
//! Keys are drawn uniformly from many, so that transactions do not meet; each client has connections of
//! its own, as it has in the simulator, so that costs include the system calls that this takes. Loads
//! that were not fitted to tell how good the fit is.

mod cpu;
mod fit;
mod load;
mod measure;
mod sample;

pub use fit::{Fit, fit};
pub use measure::{Calibrate, Calibration, Error, Side, TYPICAL};
pub use sample::{Sample, Work};

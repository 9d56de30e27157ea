//! The papers' experiments, repeated in simulation, and their numbers compared with ours.
//!
//! ```text
//! paper/     the figures of each paper as data: their set-up, and the numbers that the paper's text gives
//! figure     what such data consists of; claim: a number of the text
//! effort     how much effort is made
//! point/     one run: what it is determined by, and how it is made
//! search     the load of a system, run by run, until it is known what it can do
//! engine     all runs of a figure, one simulation per thread; points that are stored are not run again
//! sweep      the runs of a system at a place of the figure, and what they say of it
//! findings   the paper's numbers beside ours, and `report/` writes them: table, JSON, CSV, HTML
//! ```
//!
//! The output does not depend on timing or threads: the same seed gives the same files, byte for byte.

mod claim;
mod costs;
mod dip;
mod effort;
mod engine;
mod error;
mod fared;
mod figure;
mod findings;
mod measured;
mod note;
mod paper;
mod parallel;
mod point;
mod report;
mod search;
mod store;
mod sweep;

pub use costs::Costs;
pub use effort::{Deaths, Effort, Search};
pub use engine::Engine;
pub use error::Error;
pub use figure::Figure;
pub use findings::Findings;
pub use measured::{Measured, Summary};
pub use note::Note;
pub use paper::{figure, figures};
pub use report::{html, table, write};

//! The papers' experiments, run again in simulation, and their numbers beside ours.
//!
//! ```text
//! paper/      what a figure shows, how it was made, and the numbers that the paper's text gives
//! setup       one run: what is determined by it, and how much effort is made
//! sweep       one series of a figure: client counts from few to many, until goodput rises no more
//! engine      all series of a figure, one simulation per thread; points that are stored are not run again
//! registers/  the same for the figures of registers, which show latencies
//! load/       the same for the figures whose clients are in open loops
//! findings    what it comes to, and `report/` writes it: table, JSON, CSV, HTML
//! ```
//!
//! Nothing that is written depends on how long anything took or on which thread it ran: the same seed
//! gives the same files, byte for byte.

mod engine;
mod error;
mod findings;
mod load;
mod measured;
mod paper;
mod registers;
mod report;
mod run;
mod setup;
mod store;
mod sweep;
mod terminal;

pub use engine::{Engine, Note};
pub use error::Error;
pub use findings::Findings;
pub use load::{LoadEffort, LoadEngine, LoadFigure, LoadFindings, LoadNote, load_figures};
pub use measured::{Measured, OfKind, OpenMeasured};
pub use paper::{AnyFigure, Figure, all_figures, any_figure, figure, figures};
pub use registers::{
    KindMeasured, RegisterEffort, RegisterEngine, RegisterFigure, RegisterFindings, RegisterNote,
    RegisterPoint, RegistersMeasured, register_figures,
};
pub use report::{Reported, html, table, write};
pub use setup::{Costs, Deaths, Effort, OpenClients, Point};

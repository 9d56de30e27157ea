//! What several protocols own: values that a protocol holds and calls. There is no base class.

mod cells;
mod lock_table;
mod map;
mod pool;
mod quorums;
mod read_marks;
mod results;
mod version_clock;
mod versions;

pub use cells::{Cells, Stamped, decode_cell, encode_cell};
pub use lock_table::{Granted, LockMode, LockTable};
pub use map::Map;
pub use pool::{Place, Pool};
pub use quorums::{Asked, Quorums, patience_with_proxy};
pub use read_marks::ReadMarks;
pub use results::{Recalled, Refusals, Results, Tokens};
pub use version_clock::VersionClock;
pub use versions::{Committed, Versions, WriteId};

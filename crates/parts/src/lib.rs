//! What several protocols own: values that a protocol holds and calls. There is no base class.

#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

pub mod carstamps;
mod cells;
mod incarnations;
mod lock_table;
mod map;
mod pool;
mod quorums;
mod read_marks;
mod results;
mod stored_versions;
mod version_clock;
mod versions;

pub use carstamps::{Stamped, WriteStamps};
pub use cells::{Cells, decode_cell, decode_cell_of_another, encode_cell};
pub use incarnations::Incarnations;
pub use lock_table::{Granted, LockMode, LockTable};
pub use map::Map;
pub use pool::{Place, Pool};
pub use quorums::{Asked, Quorums, patience_with_leader, patience_with_proxy};
pub use read_marks::ReadMarks;
pub use results::{Recalled, Refusals, Results, Tokens};
pub use stored_versions::{StoredVersions, decode_versions, encode_versions, try_decode_versions};
pub use version_clock::VersionClock;
pub use versions::{Committed, Effect, Versions, WriteId};

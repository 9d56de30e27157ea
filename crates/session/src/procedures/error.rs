//! How a call of a procedure can fail, and what to do about it.

use std::time::Duration;

use serried_model::Version;
use serried_procedures::{InvalidInputs, Refused};

use crate::transactions::seconds;

/// Why a call did not take effect, or is not known to have; or why a set was not registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// A check of the procedure does not hold, or an expression failed. Nothing was written.
    #[error("`{procedure}` was refused: {refused}; nothing was written")]
    Refused {
        /// The procedure.
        procedure: String,
        /// Why.
        refused: Refused,
    },
    /// There is no such procedure in the set that is registered. Nothing was executed.
    #[error("there is no procedure `{procedure}`{}", instead(*version, known))]
    NoSuchProcedure {
        /// The procedure that was called.
        procedure: String,
        /// The version of the set that is registered; 0 if none is.
        version: u64,
        /// The procedures that there are.
        known: Vec<String>,
    },
    /// The procedure takes other inputs. Nothing was executed.
    #[error("{0}")]
    InvalidInputs(InvalidInputs),
    /// The inputs were over their limit. Nothing was sent.
    #[error("the inputs of `{procedure}` are too large: {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// The procedure.
        procedure: String,
        /// How large they were, in bytes.
        bytes: usize,
        /// How large they may be: the limit on transactions.
        limit: usize,
    },
    /// Too few servers answered in time. Nothing took effect. Check that a majority of each partition is up and can be
    /// reached.
    #[error(
        "too few servers answered within {deadline:?}, waiting for {waiting_for}; nothing took effect"
    )]
    Unavailable {
        /// What was asked for.
        waiting_for: String,
        /// The deadline that was set.
        deadline: Duration,
    },
    /// The call met conflicts with others until its deadline. Nothing took effect. Wait longer, or have fewer calls use the
    /// same rows at a time.
    #[error(
        "`{procedure}` met conflicts with other calls in all of its {attempts} attempts within {deadline:?}; nothing took effect"
    )]
    Conflict {
        /// The procedure.
        procedure: String,
        /// How many attempts there were.
        attempts: u32,
        /// The deadline that was set.
        deadline: Duration,
    },
    /// The client's clock is off by more than the keyspace allows. Nothing took effect. Synchronise the clock.
    #[error("this client's clock is {} s {} the nodes' clocks: synchronise it{}", seconds(.ahead_us), if *.ahead_us < 0 { "behind" } else { "ahead of" }, if *.ahead_us < 0 { "" } else { " and connect again" })]
    ClockSkew {
        /// By how much it is ahead, in microseconds; negative if it is behind.
        ahead_us: i64,
    },
    /// A majority of the nodes can't write, mostly because their disks are full. Nothing took effect.
    #[error("the keyspace is read-only: {reason}")]
    ReadOnly {
        /// Which nodes can't write, and why.
        reason: String,
    },
    /// The call has begun, and its outcome was not known in time. It may have taken effect, or may still take effect.
    /// [`crate::ProcedureKeyspace::outcome`] finds out, and ends it if it has not ended.
    #[error(
        "the call {call} of `{procedure}` may or may not have taken effect: its outcome was not known within {deadline:?}; ask for the outcome of {call}"
    )]
    Unknown {
        /// The procedure.
        procedure: String,
        /// The id of the call.
        call: Version,
        /// The deadline that was set.
        deadline: Duration,
    },
    /// The servers have forgotten whether and how the call took effect.
    #[error(
        "the servers no longer know whether the call {call} took effect: outcomes are kept for `outcomes_ms`; look at what it would have changed"
    )]
    Forgotten {
        /// The id of the call.
        call: Version,
    },
    /// Another set is registered than the one that was to be replaced, or another registration is under way. Nothing was
    /// changed.
    #[error(
        "another set of procedures was registered first: version {version} is in use or on its way; look at it, and register again"
    )]
    Superseded {
        /// The version of the set that is registered, or is being registered.
        version: u64,
    },
    /// The keyspace's protocol has no merged pieces. Nothing was sent.
    #[error(
        "`{procedure}` was not registered: it has merged pieces, and the protocol of this keyspace has none; let its pieces need fewer outputs of others"
    )]
    NoMergedPieces {
        /// The procedure.
        procedure: String,
    },
    /// The set can't replace the one that is registered. Nothing was changed.
    #[error("the procedures can't replace those that are registered: {0}")]
    Unfit(String),
    /// The registration has begun, and its end was not known in time.
    #[error(
        "the procedures may or may not have been registered: no answer within {deadline:?}; list them to see which version is in use"
    )]
    RegistrationUnknown {
        /// The deadline that was set.
        deadline: Duration,
    },
}

/// What can be called instead of a procedure that there is not.
fn instead(version: u64, known: &[String]) -> String {
    /// A longer list is cut.
    const SHOWN: usize = 20;
    if known.is_empty() {
        let why = if version == 0 { "none was ever registered" } else { "the set has none" };
        return format!(": {why}; register a set with it");
    }
    let names: Vec<String> = known.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = match known.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(" in version {version} of the set; there are {}{more}", names.join(", "))
}

//! Recorded histories, and the checkers that judge them.
//!
//! A [`History`] is the list of things that clients saw: when they began a transaction, when it
//! ended, how, and what its reads found. A [`Recorder`] collects one while a workload runs; it is
//! kept as JSON lines in Jepsen's form, so that other tools can read ours and the other way round
//! ([`History::write_json_lines`], [`History::read_json_lines`]).
//!
//! [`check_serializable`] decides whether a history could have come out of some serial execution. It
//! recovers the order of each key's versions and who read which of them, builds Adya's direct
//! serialization graph (001 Definition A.1.4), and looks for a cycle. It answers with a [`Verdict`]:
//! serializable, a [`Violation`] that a person can follow, or, where the history does not hold enough
//! to tell, an honest [`Verdict::Unknown`]. [`check_strict_serializable`] also asks whether that
//! execution can respect real time (003 §2.2), and shows where it can't. A transaction of unknown
//! outcome may have taken effect at a later version than the recorded one ([`Event::version`]).
//!
//! Databases of registers, single keys that are read, written and read-modified-written, have histories
//! of their own: a [`RegisterHistory`], which a [`RegisterRecorder`] collects and which is kept in the
//! same form. [`check_linearizable`] and [`check_regular_sequential`] judge them with a
//! [`RegisterVerdict`], and explain a violation by as few operations as make one.
//!
//! ```
//! use serried_history::{History, Verdict, check_serializable};
//!
//! let lines = concat!(
//!     r#"{"index":0,"type":"invoke","process":0,"time":1,"f":"txn","value":[["append",5,1]]}"#, "\n",
//!     r#"{"index":1,"type":"ok","process":0,"time":2,"f":"txn","value":[["append",5,1]]}"#, "\n",
//!     r#"{"index":2,"type":"invoke","process":1,"time":3,"f":"txn","value":[["r",5,null]]}"#, "\n",
//!     r#"{"index":3,"type":"ok","process":1,"time":4,"f":"txn","value":[["r",5,[1]]]}"#, "\n",
//! );
//! let history = History::read_json_lines(lines.as_bytes()).unwrap();
//! assert!(matches!(check_serializable(&history), Verdict::Holds(_)));
//! ```

mod checker;
mod cycle;
mod digraph;
mod event;
mod json;
mod log;
mod read_error;
mod recorder;
mod register;

pub use checker::{
    Conflict, ConflictKind, Deletes, Installed, Options, RealTime, Summary, TransactionGuarantee,
    Verdict, Violation, ViolationKind, Witness, check_serializable, check_serializable_with,
    check_strict_serializable, check_strict_serializable_with,
};
pub use event::{Event, EventKind, History, MicroOperation, ReadResult};
pub use read_error::ReadError;
pub use recorder::Recorder;
pub use register::{
    Budget, Precedence, PrecedenceReason, RegisterEvent, RegisterGuarantee, RegisterHistory,
    RegisterOperation, RegisterOutcome, RegisterRecorder, RegisterSummary, RegisterValue,
    RegisterVerdict, RegisterViolation, RegisterWitness, check_linearizable,
    check_regular_sequential,
};

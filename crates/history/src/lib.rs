//! Recorded histories, and the checkers that judge them.
//!
//! A [`History`] lists what clients saw: when a transaction began, when and how it ended, and what its reads found. A
//! [`Recorder`] collects a history while a workload runs. Files of histories are JSON lines in Jepsen's format, so that
//! other tools can read ours and we can read theirs ([`History::write_json_lines`], [`History::read_json_lines`]).
//!
//! [`check_serializable`] decides whether some serial execution explains a history. Trying all orders works only for
//! tiny histories. Instead, the checker recovers the order of each key's versions and the version that each transaction
//! read, builds Adya's direct serialization graph (001 Definition A.1.4), and looks for a cycle. It returns a
//! [`Verdict`]: serializable, a [`Violation`] with an explanation, or [`Verdict::Unknown`] if the history has too
//! little information. [`check_process_ordered`] also decides whether that execution can run each process's
//! transactions in the order in which the process ran them. [`check_strict_serializable`] also decides whether that
//! execution can respect real time (003 §2.2). A transaction of unknown outcome may have taken effect at a later
//! version than the recorded one ([`Event::version`]).
//!
//! Databases that need not agree on one order promise less. [`check_causal`] decides whether each process, on its own,
//! can have seen all writes in an order of causes before effects. A cause is what a transaction's process ran or read
//! before ([causal memory](TransactionGuarantee::Causal), with atomic transactions). [`check_causal_convergent`]
//! decides whether one order of all writes explains what transactions found among the writes that they had seen. Both
//! apply the rules of Bouajjani et al. (POPL 2017) until nothing is new, and then look for a cycle. They judge
//! registers, and need to know whose write each read found, but not the order of versions.
//!
//! Registers, single keys with reads, writes and read-modify-writes, have histories of their own. A
//! [`RegisterRecorder`] collects a [`RegisterHistory`], and its files have the same format. [`check_linearizable`] and
//! [`check_regular_sequential`] judge it with a [`RegisterVerdict`], and explain a violation with as few operations as
//! possible.
//!
//! Calls of stored procedures have histories of their own, too. A [`CallRecorder`] collects a [`CallHistory`] of what
//! calls appended to lists and found there. [`check_calls`] judges it as a history of transactions, names the
//! procedures, and says which appends were lost.
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
mod hostile;
mod json;
mod log;
mod procedures;
mod read_error;
mod recorder;
mod register;

/// A number with its noun, in the plural unless it is 1.
pub fn counted(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

pub use checker::{
    Conflict, ConflictKind, Deletes, Installed, Options, RealTime, Summary, TransactionGuarantee,
    Verdict, Violation, ViolationKind, Witness, check_causal, check_causal_convergent,
    check_causal_convergent_with, check_causal_with, check_process_ordered,
    check_process_ordered_with, check_serializable, check_serializable_with,
    check_strict_serializable, check_strict_serializable_with,
};
pub use event::{Event, EventKind, History, MicroOperation, ReadResult};
pub use hostile::{example_histories, read_hostile_history};
pub use procedures::{
    CallEnd, CallEvent, CallHistory, CallRecorder, CallSummary, CallVerdict, CallViolation,
    LostAppend, check_calls,
};
pub use read_error::ReadError;
pub use recorder::Recorder;
pub use register::{
    Budget, Precedence, PrecedenceReason, RegisterEvent, RegisterGuarantee, RegisterHistory,
    RegisterOperation, RegisterOutcome, RegisterRecorder, RegisterSummary, RegisterValue,
    RegisterVerdict, RegisterViolation, RegisterWitness, check_linearizable,
    check_regular_sequential,
};

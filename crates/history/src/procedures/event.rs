//! Histories of calls and their events.

use crate::EventKind;

/// One line of a history of calls: a call began or ended.
///
/// A call observes lists: it reads some, and then appends to some. A call that uses no lists has only a procedure, a
/// time and an outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallEvent {
    /// Its place in the history, counted from 0 by a [`crate::CallRecorder`].
    pub index: u64,
    /// What happened. [`EventKind::Fail`] is for calls that certainly took no effect: they were refused, or failed.
    pub kind: EventKind,
    /// The client, which is logically single-threaded: it has at most one open call.
    pub process: u64,
    /// When, in nanoseconds since any fixed instant. It is only shown to people. Real time is the order of the events.
    pub time_ns: u64,
    /// The procedure.
    pub procedure: String,
    /// In an [`EventKind::Ok`], the lists that the call read, as they were before its own appends.
    pub reads: Vec<(u64, Vec<u64>)>,
    /// The lists to which the call appends, and the elements. They are the same at its beginning and at its end. No two
    /// calls append the same element to one list.
    pub appends: Vec<(u64, u64)>,
    /// Whether the call failed because a check of the procedure refused it.
    pub refused: bool,
    /// Why it failed, or why its outcome is unknown.
    pub error: Option<String>,
}

/// What the clients of a database with stored procedures did and saw, in the order in which it happened. All lists are
/// empty at first.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CallHistory {
    /// Beginnings and ends of calls. The outcome of a call without an end is unknown.
    pub events: Vec<CallEvent>,
}

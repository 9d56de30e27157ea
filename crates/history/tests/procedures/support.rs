//! Histories written down as calls with a beginning and an end each.

use serried_history::{
    CallEvent, CallHistory, CallVerdict, EventKind, TransactionGuarantee, check_calls,
};

/// A call that begins and ends at these times.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// [`EventKind::Invoke`] if the call has no end.
    pub(crate) kind: EventKind,
    pub(crate) reads: Vec<(u64, Vec<u64>)>,
    pub(crate) appends: Vec<(u64, u64)>,
    pub(crate) refused: bool,
}

/// A call from `begin` to `end` that read these lists and appended these elements.
pub(crate) fn call(
    [begin, end]: [u64; 2],
    reads: &[(u64, &[u64])],
    appends: &[(u64, u64)],
) -> Called {
    let reads = reads.iter().map(|(key, found)| (*key, found.to_vec())).collect();
    Called { begin, end, kind: EventKind::Ok, reads, appends: appends.to_vec(), refused: false }
}

impl Called {
    pub(crate) fn unknown(mut self) -> Called {
        self.reads.clear();
        Called { kind: EventKind::Info, ..self }
    }

    pub(crate) fn refused(mut self) -> Called {
        self.reads.clear();
        Called { kind: EventKind::Fail, refused: true, ..self }
    }

    pub(crate) fn open(mut self) -> Called {
        self.reads.clear();
        Called { kind: EventKind::Invoke, ..self }
    }
}

/// The history of these calls, each by a process of its own.
pub(crate) fn history(calls: impl IntoIterator<Item = Called>) -> CallHistory {
    let mut events = Vec::new();
    for (process, call) in (0..).zip(calls) {
        let event = |kind: EventKind| CallEvent {
            index: 0,
            kind,
            process,
            time_ns: 0,
            procedure: format!("p{process}"),
            reads: if kind == EventKind::Ok { call.reads.clone() } else { Vec::new() },
            appends: call.appends.clone(),
            refused: call.refused && kind == EventKind::Fail,
            error: None,
        };
        events.push((call.begin, event(EventKind::Invoke)));
        if call.kind != EventKind::Invoke {
            events.push((call.end, event(call.kind)));
        }
    }
    events.sort_by_key(|(at, _)| *at);
    let mut events: Vec<CallEvent> = events.into_iter().map(|(_, event)| event).collect();
    for (index, event) in (0..).zip(&mut events) {
        event.index = index;
    }
    CallHistory { events }
}

pub(crate) fn strictly(calls: impl IntoIterator<Item = Called>) -> CallVerdict {
    check_calls(&history(calls), TransactionGuarantee::StrictlySerializable)
}

pub(crate) fn serializably(calls: impl IntoIterator<Item = Called>) -> CallVerdict {
    check_calls(&history(calls), TransactionGuarantee::Serializable)
}

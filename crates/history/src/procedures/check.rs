//! The checker of calls that read lists and append to them.
//!
//! A call is a transaction: it reads lists, and then appends to some. So the checker of transactions judges it. It
//! infers the order of each list's elements from the longest read, builds the graph of dependencies, looks for a
//! cycle, and then for conflicts that lead back in real time.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::event::CallHistory;
use super::lost;
use super::verdict::{CallSummary, CallVerdict, CallViolation};
use crate::{
    Event, EventKind, History, Options, TransactionGuarantee, Verdict,
    check_causal_convergent_with, check_causal_with, check_process_ordered_with,
    check_serializable_with, check_strict_serializable_with,
};

/// Decides whether the calls of a history could have run one after the other: those that took effect, and those of
/// unknown outcome whose appends were read. With [`TransactionGuarantee::ProcessOrderedSerializable`], the calls of
/// each process must come in the order in which it made them. With [`TransactionGuarantee::StrictlySerializable`],
/// each call must come after all that had ended before it began. Whether they are [causal](crate::check_causal) is not
/// known, because they use lists.
///
/// If the last event of each list is a read that began after all calls had ended, an append that was acknowledged and
/// is not there is found, too. Without real time it is none: the read could have come first.
pub fn check_calls(history: &CallHistory, guarantee: TransactionGuarantee) -> CallVerdict {
    let transactions = transactions(history);
    let verdict = match guarantee {
        TransactionGuarantee::Causal => check_causal_with(&transactions, &Options::default()),
        TransactionGuarantee::CausallyConvergent => {
            check_causal_convergent_with(&transactions, &Options::default())
        }
        TransactionGuarantee::Serializable => {
            check_serializable_with(&transactions, &Options::default())
        }
        TransactionGuarantee::ProcessOrderedSerializable => {
            check_process_ordered_with(&transactions, &Options::default())
        }
        TransactionGuarantee::StrictlySerializable => {
            check_strict_serializable_with(&transactions, &Options::default())
        }
    };
    match verdict {
        Verdict::Holds(summary) => {
            let refused = history.events.iter().filter(|event| event.refused).count() as u64;
            let calls = calls(history);
            CallVerdict::Holds(CallSummary {
                guarantee: summary.guarantee,
                done: calls.done,
                refused,
                failed: calls.failed - refused.min(calls.failed),
                unknown: calls.unknown,
                keys: summary.keys,
                edges: summary.edges,
            })
        }
        Verdict::Unknown { reason } => CallVerdict::Unknown { reason },
        Verdict::Violation(violation) => {
            let lost = match guarantee {
                TransactionGuarantee::StrictlySerializable => lost::find(history),
                _ => None,
            };
            let name = |index: u64| {
                let event = history.events.iter().find(|event| event.index == index);
                event.map_or_else(String::new, |event| event.procedure.clone())
            };
            let involved = violation.transactions.iter();
            let procedures = involved.map(|witness| name(witness.index)).collect();
            CallVerdict::Violation(Box::new(CallViolation { violation, procedures, lost }))
        }
    }
}

/// The calls that used lists, as transactions. The others conflict with none.
fn transactions(history: &CallHistory) -> History {
    let mut uses_lists = vec![false; history.events.len()];
    let mut begun: HashMap<u64, usize, FixedState> = HashMap::default();
    for (at, event) in history.events.iter().enumerate() {
        let uses = !event.reads.is_empty() || !event.appends.is_empty();
        if event.kind == EventKind::Invoke {
            begun.insert(event.process, at);
        } else if let Some(begun) = begun.remove(&event.process) {
            uses_lists[begun] |= uses;
            uses_lists[at] = uses_lists[begun];
        }
        uses_lists[at] |= uses;
    }
    let events = history.events.iter().zip(uses_lists).filter(|(_, uses)| *uses);
    let events = events.map(|(event, _)| Event {
        index: event.index,
        kind: event.kind,
        process: event.process,
        time_ns: event.time_ns,
        operations: event.operations(),
        version: None,
        read_versions: Vec::new(),
        error: event.error.clone(),
    });
    History { events: events.collect() }
}

/// How many calls ended how.
#[derive(Default)]
struct Calls {
    done: u64,
    failed: u64,
    unknown: u64,
}

fn calls(history: &CallHistory) -> Calls {
    let mut calls = Calls::default();
    let mut begun = 0;
    for event in &history.events {
        match event.kind {
            EventKind::Invoke => begun += 1,
            EventKind::Ok => calls.done += 1,
            EventKind::Fail => calls.failed += 1,
            EventKind::Info => calls.unknown += 1,
        }
    }
    let ended = calls.done + calls.failed + calls.unknown;
    calls.unknown += u64::saturating_sub(begun, ended);
    calls
}

//! Appends that were acknowledged and are lost.

use core::fmt;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

use super::event::{CallEvent, CallHistory};
use crate::EventKind;

/// An append of a call that took effect, which a later read of the list did not find.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostAppend {
    /// The list.
    pub key: u64,
    /// The element.
    pub element: u64,
    /// The procedure that appended it.
    pub procedure: String,
    /// The process that called it, and the index of the call's end.
    pub appended_by: (u64, u64),
    /// The process that read the list after that without finding the element, and the index of that call's end.
    pub missed_by: (u64, u64),
}

impl fmt::Display for LostAppend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostAppend { key, element, procedure, appended_by, missed_by } = self;
        let ((writer, appended), (reader, missed)) = (appended_by, missed_by);
        write!(
            f,
            "element {element} of key {key} is lost: `{procedure}` (process {writer}, op {appended}) appended it \
             and ended; then process {reader} read the list (op {missed}), and it was not there; no call has found it"
        )
    }
}

/// The first append that is lost: its call took effect, another one read the list that began after its end, and no call
/// has ever found the element.
pub(super) fn find(history: &CallHistory) -> Option<LostAppend> {
    let mut found: HashSet<(u64, u64), FixedState> = HashSet::default();
    // For each list the successful read that began last: where it began, and its end.
    let mut latest: HashMap<u64, (usize, &CallEvent), FixedState> = HashMap::default();
    let mut begun: HashMap<u64, usize, FixedState> = HashMap::default();
    let events = || history.events.iter().enumerate();
    for (at, event) in events() {
        if event.kind == EventKind::Invoke {
            begun.insert(event.process, at);
            continue;
        }
        let began = begun.remove(&event.process).unwrap_or(0);
        if event.kind != EventKind::Ok {
            continue;
        }
        for (key, elements) in &event.reads {
            found.extend(elements.iter().map(|element| (*key, *element)));
            let later = latest.get(key).is_none_or(|(other, _)| *other < began);
            if later {
                latest.insert(*key, (began, event));
            }
        }
    }
    events().filter(|(_, event)| event.kind == EventKind::Ok).find_map(|(at, event)| {
        event.appends.iter().find_map(|&(key, element)| {
            let (_, reader) = latest.get(&key).filter(|(began, _)| *began > at)?;
            (!found.contains(&(key, element))).then(|| LostAppend {
                key,
                element,
                procedure: event.procedure.clone(),
                appended_by: (event.process, event.index),
                missed_by: (reader.process, reader.index),
            })
        })
    })
}

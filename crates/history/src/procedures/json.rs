//! Histories of calls as JSON lines. The common fields are those of [`crate::History`].

use std::io::{self, BufRead, Write};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use serried_model::FamilyName;

use super::event::{CallEvent, CallHistory};
use crate::json::{Envelope, Line, for_each_line, shown};
use crate::{EventKind, MicroOperation, ReadError, ReadResult};

/// The `f` of every event.
const FUNCTION: &str = "call";

impl CallHistory {
    /// Writes one line of JSON per event. Absent fields are omitted.
    ///
    /// The `f` is `call`, `procedure` is the name, and `value` lists what the call read and appended, in the form of
    /// [`crate::History`]: `["r", key, [elements]]` and `["append", key, element]`. A `fail` of a call that was refused has
    /// `"refused": true`.
    ///
    /// # Errors
    ///
    /// The error of `out`.
    pub fn write_json_lines(&self, mut out: impl Write) -> io::Result<()> {
        for event in &self.events {
            serde_json::to_writer(&mut out, event)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    /// Reads a history that [`CallHistory::write_json_lines`] or another tool has written in this format. Unknown fields
    /// are ignored and empty lines are skipped. The index of a line without one is its line number.
    ///
    /// # Errors
    ///
    /// The first problem, with its line number.
    pub fn read_json_lines(mut input: impl BufRead) -> Result<CallHistory, ReadError> {
        let mut history = CallHistory::default();
        let mut open: HashMap<u64, (u64, usize), FixedState> = HashMap::default();
        for_each_line(&mut input, |line, value| {
            let mut event = line.call_event(value)?;
            let (line, process) = (line.line, event.process);
            match (event.kind, open.remove(&process)) {
                (EventKind::Invoke, Some((open_since, _))) => {
                    return Err(ReadError::StillOpen { what: FUNCTION, line, process, open_since });
                }
                (EventKind::Invoke, None) => {
                    open.insert(process, (line, history.events.len()));
                }
                (_, None) => {
                    return Err(ReadError::WithoutInvoke { what: FUNCTION, line, process });
                }
                (kind, Some((open_since, begun))) => {
                    let begun: &CallEvent = &history.events[begun];
                    // The end of a call without effect need not repeat what it would have appended.
                    if kind != EventKind::Ok && event.appends.is_empty() {
                        event.appends.clone_from(&begun.appends);
                    }
                    if event.appends != begun.appends {
                        return Err(ReadError::OtherAppends { line, process, open_since });
                    }
                }
            }
            history.events.push(event);
            Ok(())
        })?;
        Ok(history)
    }

    /// Whether a line of a history is about calls, by its `f`.
    pub fn recognises(line: &[u8]) -> bool {
        let event = serde_json::from_slice::<Value>(line).ok();
        let function = event.as_ref().and_then(|event| event.get("f")?.as_str());
        function == Some(FUNCTION)
    }
}

impl Line {
    fn call_event(self, value: &Value) -> Result<CallEvent, ReadError> {
        let fields = self.object(value)?;
        let Envelope { index, kind, process, time_ns, error } = self.envelope(fields)?;
        let nothing = Value::Null;
        let function = fields.get("f").unwrap_or(&nothing);
        if function.as_str() != Some(FUNCTION) {
            return Err(self.unknown_function(function, FamilyName::Procedures, "\"call\""));
        }
        let procedure = fields.get("procedure").unwrap_or(&nothing);
        let Some(name) = procedure.as_str() else {
            return Err(self.wrong("procedure", shown(procedure), "the name of the procedure"));
        };
        let refused = match fields.get("refused") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(refused)) => *refused,
            Some(other) => return Err(self.wrong("refused", shown(other), "true or false")),
        };
        let (mut reads, mut appends) = (Vec::new(), Vec::new());
        for operation in self.operations(fields, kind)? {
            let problem = match operation {
                MicroOperation::Append { key, element } => {
                    appends.push((key, element));
                    continue;
                }
                MicroOperation::Read { key, result: ReadResult::List(found) }
                    if kind == EventKind::Ok && appends.is_empty() =>
                {
                    reads.push((key, found));
                    continue;
                }
                MicroOperation::Read { result: ReadResult::Pending, .. } => continue,
                MicroOperation::Read { result: ReadResult::Register(_), .. } => {
                    "a call reads lists"
                }
                MicroOperation::Read { .. } if kind == EventKind::Ok => {
                    "a call reads before it appends"
                }
                MicroOperation::Read { .. } => "a call has read only what its ok says",
                MicroOperation::Write { .. } => "a call writes no registers",
            };
            let found = operation.to_string();
            return Err(ReadError::MicroOperation { line: self.line, found, problem });
        }
        let procedure = name.to_owned();
        Ok(CallEvent { index, kind, process, time_ns, procedure, reads, appends, refused, error })
    }
}

impl CallEvent {
    /// What the call read and appended, as operations of a transaction.
    pub(super) fn operations(&self) -> Vec<MicroOperation> {
        let reads = self.reads.iter().map(|(key, found)| MicroOperation::Read {
            key: *key,
            result: ReadResult::List(found.clone()),
        });
        let appends =
            self.appends.iter().map(|&(key, element)| MicroOperation::Append { key, element });
        reads.chain(appends).collect()
    }
}

impl Serialize for CallEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("index", &self.index)?;
        map.serialize_entry("type", self.kind.name())?;
        map.serialize_entry("process", &self.process)?;
        map.serialize_entry("time", &self.time_ns)?;
        map.serialize_entry("f", FUNCTION)?;
        map.serialize_entry("procedure", &self.procedure)?;
        map.serialize_entry("value", &self.operations())?;
        if self.refused {
            map.serialize_entry("refused", &true)?;
        }
        if let Some(error) = &self.error {
            map.serialize_entry("error", error)?;
        }
        map.end()
    }
}

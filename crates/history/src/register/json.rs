//! Histories of registers as JSON lines. The common fields are those of [`crate::History`].

use std::io::{self, BufRead, Write};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use serried_model::{Carstamp, FamilyName, NodeId};

use super::event::{RegisterEvent, RegisterHistory, RegisterOperation, RegisterValue};
use crate::json::{Envelope, Line, for_each_line, shown};
use crate::{EventKind, ReadError};

impl RegisterHistory {
    /// Writes one line of JSON per event. Absent fields are omitted.
    ///
    /// The `value` is `[key, value]` for a `read` or `write`, `[key, [expected, new]]` for a `cas`, and `[key, delta]`
    /// for an `add`. In an `ok` of the latter two, the value that was found is a third entry. A `version` is
    /// `[timestamp, writer, rmwc]`.
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

    /// Reads a history that [`RegisterHistory::write_json_lines`] or another tool has written in this format. Unknown
    /// fields are ignored and empty lines are skipped. The index of a line without one is its line number.
    ///
    /// # Errors
    ///
    /// The first problem, with its line number.
    pub fn read_json_lines(mut input: impl BufRead) -> Result<RegisterHistory, ReadError> {
        type Open = (u64, RegisterOperation);
        let mut history = RegisterHistory::default();
        let mut open: HashMap<(u64, u64), Open, FixedState> = HashMap::default();
        for_each_line(&mut input, |line, value| {
            let event = line.register_event(value)?;
            let (line, process, key) = (line.line, event.process, event.key);
            match (event.kind, open.remove(&(process, key))) {
                (EventKind::Invoke, Some((open_since, _))) => {
                    return Err(ReadError::KeyStillOpen { line, process, key, open_since });
                }
                (EventKind::Invoke, None) => {
                    open.insert((process, key), (line, event.operation));
                }
                (_, None) => return Err(ReadError::KeyWithoutInvoke { line, process, key }),
                (_, Some((open_since, operation))) if operation != event.operation => {
                    return Err(ReadError::OtherOperation { line, process, key, open_since });
                }
                (_, Some(_)) => {}
            }
            history.events.push(event);
            Ok(())
        })?;
        Ok(history)
    }

    /// Whether a line of a history is about registers, by its `f`.
    pub fn recognises(line: &[u8]) -> bool {
        let function = serde_json::from_slice::<Value>(line).ok();
        let function = function.as_ref().and_then(|event| event.get("f")?.as_str());
        matches!(function, Some("read" | "write" | "cas" | "add"))
    }
}

impl Line {
    fn register_event(self, value: &Value) -> Result<RegisterEvent, ReadError> {
        let fields = self.object(value)?;
        let Envelope { index, kind, process, time_ns, error } = self.envelope(fields)?;
        let (key, operation, found) = self.register_operation(fields, kind)?;
        let version = match fields.get("version") {
            None | Some(Value::Null) => None,
            Some(found) => Some(carstamp(found).ok_or_else(|| {
                self.wrong(
                    "version",
                    shown(found),
                    "[timestamp, writer, rmwc], three integers from 0 up",
                )
            })?),
        };
        Ok(RegisterEvent { index, kind, process, time_ns, key, operation, found, version, error })
    }

    fn register_operation(
        self,
        fields: &Map<String, Value>,
        kind: EventKind,
    ) -> Result<(u64, RegisterOperation, Option<RegisterValue>), ReadError> {
        let nothing = Value::Null;
        let function = fields.get("f").unwrap_or(&nothing);
        let (function, expected) = match function.as_str() {
            Some("read") => ("read", "[key, null], or [key, found] in an ok"),
            Some("write") => ("write", "[key, value or null]"),
            Some("cas") => ("cas", "[key, [expected, new]], with what was found third in an ok"),
            Some("add") => ("add", "[key, delta], with what was found third in an ok"),
            _ => {
                let expected = "\"read\", \"write\", \"cas\" or \"add\"";
                return Err(self.unknown_function(function, FamilyName::Registers, expected));
            }
        };
        let value = fields.get("value").unwrap_or(&nothing);
        let wrong = |problem| ReadError::Operation {
            line: self.line,
            function,
            found: shown(value),
            problem,
            expected,
        };
        let Some([key, argument, rest @ ..]) = value.as_array().map(Vec::as_slice) else {
            return Err(wrong("it is no list of two or three"));
        };
        let key = key.as_u64().ok_or_else(|| wrong("its key is no integer from 0 up"))?;
        let integer = "it holds something else than 64-bit integers and null";
        let register = |value: &Value| register_value(value).ok_or_else(|| wrong(integer));
        let ok = kind == EventKind::Ok;
        let operation = match (function, argument.as_array().map(Vec::as_slice)) {
            ("read", _) => {
                let found = register(argument)?;
                return Ok((key, RegisterOperation::Read, ok.then_some(found)));
            }
            ("write", _) => {
                return Ok((key, RegisterOperation::Write { value: register(argument)? }, None));
            }
            ("cas", Some([expected, new])) => RegisterOperation::CompareAndSwap {
                expected: register(expected)?,
                new: register(new)?,
            },
            ("cas", _) => return Err(wrong("its second entry is no list of two")),
            _ => match register(argument)? {
                Some(delta) => RegisterOperation::Add { delta },
                None => return Err(wrong("null can't be added")),
            },
        };
        match rest {
            [found] if ok => Ok((key, operation, Some(register(found)?))),
            _ if ok => Err(wrong("what was found is missing")),
            _ => Ok((key, operation, None)),
        }
    }
}

fn register_value(value: &Value) -> Option<RegisterValue> {
    if value.is_null() { Some(None) } else { value.as_i64().map(Some) }
}

fn carstamp(value: &Value) -> Option<Carstamp> {
    let [timestamp, writer, rmwc] = value.as_array()?.as_slice() else {
        return None;
    };
    Some(Carstamp {
        timestamp: timestamp.as_u64()?,
        writer: NodeId(writer.as_u64()?),
        rmwc: rmwc.as_u64()?,
    })
}

impl Serialize for RegisterEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("index", &self.index)?;
        map.serialize_entry("type", self.kind.name())?;
        map.serialize_entry("process", &self.process)?;
        map.serialize_entry("time", &self.time_ns)?;
        map.serialize_entry("f", self.operation.name())?;
        match (self.operation, self.found) {
            (RegisterOperation::Read, found) => {
                map.serialize_entry("value", &(self.key, found.flatten()))?;
            }
            (RegisterOperation::Write { value }, _) => {
                map.serialize_entry("value", &(self.key, value))?;
            }
            (RegisterOperation::CompareAndSwap { expected, new }, None) => {
                map.serialize_entry("value", &(self.key, (expected, new)))?;
            }
            (RegisterOperation::CompareAndSwap { expected, new }, Some(found)) => {
                map.serialize_entry("value", &(self.key, (expected, new), found))?;
            }
            (RegisterOperation::Add { delta }, None) => {
                map.serialize_entry("value", &(self.key, delta))?;
            }
            (RegisterOperation::Add { delta }, Some(found)) => {
                map.serialize_entry("value", &(self.key, delta, found))?;
            }
        }
        if let Some(Carstamp { timestamp, writer, rmwc }) = self.version {
            map.serialize_entry("version", &json!([timestamp, writer.0, rmwc]))?;
        }
        if let Some(error) = &self.error {
            map.serialize_entry("error", error)?;
        }
        map.end()
    }
}

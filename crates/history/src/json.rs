//! Histories as JSON lines, in the format of Jepsen's tools: one event per line.

use std::io::{self, BufRead, Write};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::ser::{Serialize, SerializeMap, SerializeTuple, Serializer};
use serde_json::{Map, Value};
use serried_model::{FamilyName, Version};

use crate::{Event, EventKind, History, MicroOperation, ReadError, ReadResult};

impl History {
    /// Writes one line of JSON per event. Absent fields are omitted.
    ///
    /// In an `ok`, `null` stands for an absent register. In other events it stands for an unknown result. So a
    /// [`ReadResult::Pending`] in an `ok` is read back as absent.
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

    /// Reads a history that [`History::write_json_lines`] or another tool has written in this format.
    ///
    /// Unknown fields are ignored. Empty lines, a byte-order mark and events of Jepsen's nemesis are skipped. The index of a line without one is its line number.
    ///
    /// # Errors
    ///
    /// The first problem, with its line number.
    pub fn read_json_lines(mut input: impl BufRead) -> Result<History, ReadError> {
        type Open = (u64, Vec<MicroOperation>);
        let mut history = History::default();
        let mut open: HashMap<u64, Open, FixedState> = HashMap::default();
        for_each_line(&mut input, |line, value| {
            let event = line.event(value)?;
            let (line, process) = (line.line, event.process);
            match (event.kind, open.remove(&process)) {
                (EventKind::Invoke, Some((open_since, _))) => {
                    return Err(ReadError::StillOpen {
                        what: "transaction",
                        line,
                        process,
                        open_since,
                    });
                }
                (EventKind::Invoke, None) => {
                    open.insert(process, (line, event.operations.clone()));
                }
                (_, None) => {
                    return Err(ReadError::WithoutInvoke { what: "transaction", line, process });
                }
                (_, Some((open_since, begun))) => {
                    if !are_ends_of(&event.operations, &begun) {
                        return Err(ReadError::OtherAppends { line, process, open_since });
                    }
                }
            }
            history.events.push(event);
            Ok(())
        })?;
        Ok(history)
    }
}

/// Whether a transaction that began with the operations `begun` can end with `operations`. Either may be empty, if they
/// were not recorded. Which keys it reads and what it writes to registers may depend on earlier reads. What it appends
/// to lists may not.
fn are_ends_of(operations: &[MicroOperation], begun: &[MicroOperation]) -> bool {
    fn appends(of: &[MicroOperation]) -> impl Iterator<Item = &MicroOperation> {
        of.iter().filter(|operation| matches!(operation, MicroOperation::Append { .. }))
    }
    operations.is_empty() || begun.is_empty() || appends(operations).eq(appends(begun))
}

/// Calls a function with each line that is not empty and not of Jepsen's nemesis, as JSON.
pub(crate) fn for_each_line(
    input: &mut impl BufRead,
    mut each: impl FnMut(Line, &Value) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let length =
            input.read_until(b'\n', &mut text).map_err(|source| ReadError::Io { line, source })?;
        if length == 0 {
            break;
        }
        // A byte-order mark.
        if line == 1 && text.starts_with(b"\xef\xbb\xbf") {
            text.drain(..3);
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let value: Value = serde_json::from_slice(&text).map_err(|error| {
            if error.is_eof() && text.last() != Some(&b'\n') {
                ReadError::Truncated { line }
            } else {
                ReadError::Malformed { line, problem: error.to_string() }
            }
        })?;
        // Jepsen notes in this way which faults it causes.
        if value.get("process").is_some_and(|process| process == "nemesis") {
            continue;
        }
        each(Line { line }, &value)?;
    }
    Ok(())
}

/// The line that is being read, for errors about it.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    pub(crate) line: u64,
}

/// The fields that every event has.
pub(crate) struct Envelope {
    pub(crate) index: u64,
    pub(crate) kind: EventKind,
    pub(crate) process: u64,
    pub(crate) time_ns: u64,
    pub(crate) error: Option<String>,
}

impl Line {
    fn event(self, value: &Value) -> Result<Event, ReadError> {
        let fields = self.object(value)?;
        let Envelope { index, kind, process, time_ns, error } = self.envelope(fields)?;
        if let Some(function) = fields.get("f")
            && function.as_str() != Some("txn")
        {
            return Err(self.unknown_function(function, FamilyName::Transactions, "\"txn\""));
        }
        let operations = self.operations(fields, kind)?;
        let read_versions = self.read_versions(fields)?;
        let reads = operations.iter().filter(|operation| operation.is_read()).count();
        if !read_versions.is_empty() && read_versions.len() != reads {
            return Err(self.wrong(
                "read_versions",
                format!("{} long for {reads} reads", read_versions.len()),
                "one version per \"r\", in order",
            ));
        }
        Ok(Event {
            index,
            kind,
            process,
            time_ns,
            operations,
            version: fields
                .get("version")
                .map(|found| self.version("version", found))
                .transpose()?,
            read_versions,
            error,
        })
    }

    pub(crate) fn object(self, value: &Value) -> Result<&Map<String, Value>, ReadError> {
        value.as_object().ok_or_else(|| ReadError::Malformed {
            line: self.line,
            problem: format!("{} is no object", shown(value)),
        })
    }

    pub(crate) fn envelope(self, fields: &Map<String, Value>) -> Result<Envelope, ReadError> {
        Ok(Envelope {
            index: self.number(fields, "index")?.unwrap_or(self.line),
            kind: self.kind(fields)?,
            process: self.number(fields, "process")?.ok_or_else(|| {
                self.wrong("process", "missing".to_owned(), "an integer that is not negative")
            })?,
            time_ns: self.number(fields, "time")?.unwrap_or(0),
            error: match fields.get("error") {
                None | Some(Value::Null) => None,
                Some(Value::String(error)) => Some(error.clone()),
                Some(other) => Some(other.to_string()),
            },
        })
    }

    fn kind(self, fields: &Map<String, Value>) -> Result<EventKind, ReadError> {
        let found = fields.get("type").unwrap_or(&Value::Null);
        let kinds = [EventKind::Invoke, EventKind::Ok, EventKind::Fail, EventKind::Info];
        kinds
            .into_iter()
            .find(|kind| found.as_str() == Some(kind.name()))
            .ok_or_else(|| ReadError::UnknownType { line: self.line, found: shown(found) })
    }

    pub(crate) fn operations(
        self,
        fields: &Map<String, Value>,
        kind: EventKind,
    ) -> Result<Vec<MicroOperation>, ReadError> {
        match fields.get("value") {
            Some(Value::Array(entries)) => {
                entries.iter().map(|entry| self.operation(entry, kind)).collect()
            }
            None | Some(Value::Null) if kind != EventKind::Ok => Ok(Vec::new()),
            other => Err(self.wrong(
                "value",
                other.map_or("missing".to_owned(), shown),
                "a list of micro-operations",
            )),
        }
    }

    fn operation(self, entry: &Value, kind: EventKind) -> Result<MicroOperation, ReadError> {
        let wrong =
            |problem| ReadError::MicroOperation { line: self.line, found: shown(entry), problem };
        let Some([name, key, value]) = entry.as_array().map(Vec::as_slice) else {
            return Err(wrong("it is no list of three"));
        };
        let key = key.as_u64().ok_or_else(|| wrong("its key is no integer from 0 up"))?;
        match name.as_str() {
            Some("append") => value
                .as_u64()
                .map(|element| MicroOperation::Append { key, element })
                .ok_or_else(|| wrong("its element is no integer from 0 up")),
            Some("w") => match (value, value.as_u64()) {
                (Value::Null, _) => Ok(MicroOperation::Write { key, value: None }),
                (_, Some(value)) => Ok(MicroOperation::Write { key, value: Some(value) }),
                _ => Err(wrong("its value is neither null nor an integer from 0 up")),
            },
            Some("r") => {
                let result = match value {
                    Value::Null if kind == EventKind::Ok => ReadResult::Register(None),
                    Value::Null => ReadResult::Pending,
                    Value::Array(elements) => elements
                        .iter()
                        .map(Value::as_u64)
                        .collect::<Option<Vec<u64>>>()
                        .map(ReadResult::List)
                        .ok_or_else(|| wrong("its list holds more than integers from 0 up"))?,
                    _ => ReadResult::Register(Some(value.as_u64().ok_or_else(|| {
                        wrong("its result is neither null, a list nor an integer from 0 up")
                    })?)),
                };
                Ok(MicroOperation::Read { key, result })
            }
            _ => Err(wrong("its name is unknown")),
        }
    }

    fn read_versions(self, fields: &Map<String, Value>) -> Result<Vec<Version>, ReadError> {
        match fields.get("read_versions") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(entries)) => {
                entries.iter().map(|entry| self.version("read_versions", entry)).collect()
            }
            Some(other) => Err(self.wrong("read_versions", shown(other), "a list of versions")),
        }
    }

    fn version(self, field: &'static str, found: &Value) -> Result<Version, ReadError> {
        found.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
            self.wrong(field, shown(found), "\"<microseconds>.<coordinator>\", two integers")
        })
    }

    fn number(
        self,
        fields: &Map<String, Value>,
        field: &'static str,
    ) -> Result<Option<u64>, ReadError> {
        let number = |found: &Value| {
            found
                .as_u64()
                .ok_or_else(|| self.wrong(field, shown(found), "an integer that is not negative"))
        };
        fields.get(field).map(number).transpose()
    }

    pub(crate) fn unknown_function(
        self,
        found: &Value,
        family: FamilyName,
        expected: &'static str,
    ) -> ReadError {
        ReadError::UnknownFunction { line: self.line, found: shown(found), family, expected }
    }

    pub(crate) fn wrong(
        self,
        field: &'static str,
        found: String,
        expected: &'static str,
    ) -> ReadError {
        ReadError::Field { line: self.line, field, found, expected }
    }
}

/// A value as in the file, shortened so that an error stays a readable line.
pub(crate) fn shown(value: &Value) -> String {
    const CHARACTERS: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("index", &self.index)?;
        map.serialize_entry("type", self.kind.name())?;
        map.serialize_entry("process", &self.process)?;
        map.serialize_entry("time", &self.time_ns)?;
        map.serialize_entry("f", "txn")?;
        map.serialize_entry("value", &self.operations)?;
        if let Some(version) = self.version {
            map.serialize_entry("version", &VersionText(version))?;
        }
        if !self.read_versions.is_empty() {
            let texts: Vec<_> = self.read_versions.iter().copied().map(VersionText).collect();
            map.serialize_entry("read_versions", &texts)?;
        }
        if let Some(error) = &self.error {
            map.serialize_entry("error", error)?;
        }
        map.end()
    }
}

struct VersionText(Version);

impl Serialize for VersionText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Serialize for MicroOperation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(3)?;
        match self {
            MicroOperation::Append { key, element } => {
                tuple.serialize_element("append")?;
                tuple.serialize_element(key)?;
                tuple.serialize_element(element)?;
            }
            MicroOperation::Read { key, result } => {
                tuple.serialize_element("r")?;
                tuple.serialize_element(key)?;
                match result {
                    ReadResult::Pending => tuple.serialize_element(&None::<u64>)?,
                    ReadResult::Register(value) => tuple.serialize_element(value)?,
                    ReadResult::List(elements) => tuple.serialize_element(elements)?,
                }
            }
            MicroOperation::Write { key, value } => {
                tuple.serialize_element("w")?;
                tuple.serialize_element(key)?;
                tuple.serialize_element(value)?;
            }
        }
        tuple.end()
    }
}

//! How the shell prints results.

use serried::{Key, Modified, Value};

use super::words::Quoted;

/// Prints results, as text or as JSON.
#[derive(Clone, Copy)]
pub(crate) struct Printer {
    pub(super) json: bool,
}

impl Printer {
    /// Whether it prints JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints what a key holds.
    pub(crate) fn show(&self, key: &Key, value: &Option<Value>) {
        if self.json {
            let key = json_bytes("key", key.as_bytes());
            let value = match value {
                Some(value) => json_bytes("value", value.as_bytes()),
                None => ("value".to_string(), serde_json::Value::Null),
            };
            println!("{}", serde_json::Value::Object([key, value].into_iter().collect()));
            return;
        }
        let key = Quoted(key.as_bytes());
        match value {
            Some(value) => println!("{key} = {}", Quoted(value.as_bytes())),
            None => println!("{key} is absent"),
        }
    }

    /// Prints what came of a read-modify-write.
    pub(crate) fn show_modified(&self, name: &str, key: &Key, modified: &Modified) {
        let Modified { found, value, applied } = modified;
        match (name, applied) {
            (_, false) => {
                self.report("unchanged", "its condition does not hold; what is there follows");
                self.show(key, found);
            }
            ("get-and-set" | "get-and-delete", true) => {
                self.report("changed", "and there was:");
                self.show(key, found);
            }
            (_, true) => self.show(key, value),
        }
    }

    /// Prints a result, or an error.
    pub(crate) fn report(&self, what: &str, detail: &str) {
        match (self.json, what) {
            (true, _) if detail.is_empty() => println!("{}", serde_json::json!({ "result": what })),
            (true, _) => println!("{}", serde_json::json!({ "result": what, "detail": detail })),
            (false, "error") => eprintln!("error: {detail}"),
            (false, _) if detail.is_empty() => println!("{what}"),
            (false, _) => println!("{what} {detail}"),
        }
    }
}

/// A key or a value as an entry of a JSON object: as text if it is, and in hexadecimal digits otherwise.
fn json_bytes(name: &str, bytes: &[u8]) -> (String, serde_json::Value) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (name.to_string(), text.into()),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            (format!("{name}_hex"), hex.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_text_is_in_json_as_hexadecimal_digits() {
        assert_eq!(json_bytes("key", b"a\n"), ("key".to_string(), "a\n".into()));
        assert_eq!(json_bytes("value", b"\xff\x00"), ("value_hex".to_string(), "ff00".into()));
    }
}

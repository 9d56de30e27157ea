//! Statements for keyspaces of stored procedures.

use anyhow::Context;
use serde_json::{Map, Value, json};
use serried::{CallError, CallOutcome, ProcedureKeyspace, RegisteredSet, Results, Version};
use serried_procedures::{Procedure, Type};

use crate::data;
use crate::procedure;
use crate::shell::{Printer, Quoted, Running, Statements, Word, braces};

const HELP: &str = "\
call NAME [INPUT=VALUE]...    call a procedure; a value is a text, or JSON
call NAME {INPUT: VALUE, ...} the same, with all inputs between braces, as in JSON
procedures                    list the procedures, with their inputs and results
register FILE                 add the procedures of a file to those that there are
outcome ID                    find out how a call ended, and end it if it has not
use KEYSPACE                  go to another keyspace
keyspaces                     list them
help, quit";

/// The statements for a keyspace of stored procedures.
pub(super) struct ProcedureStatements {
    pub(super) procedures: ProcedureKeyspace,
}

impl Statements for ProcedureStatements {
    fn help(&self) -> &'static str {
        HELP
    }

    fn run<'a>(
        &'a mut self,
        name: &'a str,
        arguments: &'a [Word],
        printer: Printer,
    ) -> Running<'a> {
        Box::pin(self.operate(name, arguments, printer))
    }

    /// The outcome of a call can be asked for by its id.
    fn advice(&self, error: &anyhow::Error, _: &[Word]) -> Option<String> {
        advice(error)
    }
}

fn advice(error: &anyhow::Error) -> Option<String> {
    match error.downcast_ref()? {
        CallError::Unknown { call, .. } => Some(format!("outcome {call}")),
        CallError::RegistrationUnknown { .. } => Some("procedures".to_string()),
        _ => None,
    }
}

impl ProcedureStatements {
    /// Runs a statement; `None` if it is none for procedures.
    async fn operate(
        &self,
        name: &str,
        arguments: &[Word],
        printer: Printer,
    ) -> anyhow::Result<Option<()>> {
        match (name, arguments) {
            ("call", [procedure, inputs @ ..]) => {
                self.call(&procedure.text(), inputs, printer).await?;
            }
            ("procedures", []) => {
                let RegisteredSet { version, set } = self.procedures.procedures().await?;
                procedure::print(version, &set, printer.is_json());
            }
            ("register", [file]) => {
                let added = procedure::read(file.text().as_ref(), false)?;
                let version = procedure::add(&self.procedures, &added, false).await?;
                printer.report("registered", &format!("version {version}"));
            }
            ("outcome", [call]) => {
                let call: Version = call.text().parse().map_err(anyhow::Error::msg)?;
                match self.procedures.outcome(call).await? {
                    CallOutcome::Done(results) => show(&results, printer),
                    CallOutcome::Refused(refused) => {
                        printer.report("refused", &refused.to_string());
                    }
                    CallOutcome::NoEffect => {
                        printer.report("no effect", "it did not take effect, and never will");
                    }
                }
            }
            ("begin" | "commit" | "rollback" | "get" | "put" | "set" | "delete", _) => {
                anyhow::bail!(
                    "this keyspace has stored procedures, and can't be read or written otherwise: try `procedures`, \
                     `use` another, or try `help`"
                )
            }
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    async fn call(&self, name: &str, words: &[Word], printer: Printer) -> anyhow::Result<()> {
        let RegisteredSet { version, set } = self.procedures.procedures().await?;
        let Some(procedure) = set.procedure(name) else {
            let known = set.procedures.iter().map(|procedure| procedure.name.clone()).collect();
            let procedure = name.to_string();
            return Err(CallError::NoSuchProcedure { procedure, version, known }.into());
        };
        let inputs = data::inputs(procedure, &object(procedure, words)?)?;
        show(&self.procedures.call(name, inputs).await?, printer);
        Ok(())
    }
}

/// The inputs that are typed, as a JSON object.
fn object(procedure: &Procedure, words: &[Word]) -> anyhow::Result<Map<String, Value>> {
    if let [json] = words
        && json.text().trim_start().starts_with('{')
    {
        let text = std::str::from_utf8(json.bytes()).context("the inputs are not UTF-8")?;
        return Ok(braces::read(text)?);
    }
    let mut inputs = Map::new();
    for word in words {
        let (name, value) = pair(procedure, word)?;
        if inputs.insert(name.clone(), value).is_some() {
            anyhow::bail!("the inputs of `{}`: `{name}` is there twice", procedure.name);
        }
    }
    Ok(inputs)
}

/// The name and the value of an input that is typed as INPUT=VALUE.
fn pair(procedure: &Procedure, word: &Word) -> anyhow::Result<(String, Value)> {
    let mut parts = word.bytes().splitn(2, |byte| *byte == b'=');
    let (Some(name), Some(typed)) = (parts.next(), parts.next()) else {
        let inputs = data::declared(&procedure.inputs);
        anyhow::bail!("`{word}` is no INPUT=VALUE: `{}` takes {inputs}", procedure.name);
    };
    let name = String::from_utf8_lossy(name).into_owned();
    let Some(field) = procedure.inputs.iter().find(|field| field.name == name) else {
        // It is refused with the others.
        return Ok((name, Value::Null));
    };
    let value = match (&field.of, std::str::from_utf8(typed)) {
        // Without an escape, bytes are typed as hexadecimal digits.
        (Type::Bytes { .. }, _) if word.has_byte() => Ok(Value::from(data::hexadecimal(typed))),
        (of, Ok(text)) => data::word(of, text),
        (of, Err(_)) => {
            Err(anyhow::anyhow!("wanted {of}, found {}, which is not UTF-8", Quoted(typed)))
        }
    };
    let value = value.with_context(|| format!("the inputs of `{}`: `{name}`", procedure.name))?;
    Ok((name, value))
}

fn show(results: &Results, printer: Printer) {
    if printer.is_json() {
        let results = data::object(&results.fields, &results.data);
        println!("{}", json!({ "result": "done", "results": results }));
        return;
    }
    if results.fields.is_empty() {
        println!("done");
    }
    for (field, datum) in results.fields.iter().zip(&results.data) {
        println!("{} = {}", field.name, data::value(&field.of, datum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::statements;

    fn procedure() -> Procedure {
        let text = r#"
            [tables.t]
            key = { id = "int" }
            columns = { note = "string(9)" }
            [procedures.p]
            inputs = { id = "int", note = "string(9)", ids = { list = "int", max = 3 }, code = "bytes(3)" }
            [procedures.p.pieces.write]
            rows = { row = { table = "t", key = ["id"] } }
            writes.row.note = "note"
        "#;
        serried_chop::compile(text).unwrap().procedures.remove(0)
    }

    fn typed(line: &str) -> anyhow::Result<Map<String, Value>> {
        let words = statements(&format!("call p {line}")).unwrap().remove(0);
        object(&procedure(), &words[2..])
    }

    #[test]
    fn inputs_are_typed_one_by_one_or_as_json() {
        let wanted = json!({ "id": 7, "note": "8 is", "ids": [1, 2] });
        assert_eq!(Value::Object(typed("id=7 note='8 is' ids=[1,2]").unwrap()), wanted);
        let json = r#"'{"id": 7, "note": "8 is", "ids": [1, 2]}'"#;
        assert_eq!(Value::Object(typed(json).unwrap()), wanted);
        assert!(
            typed("7")
                .unwrap_err()
                .to_string()
                .starts_with("`7` is no INPUT=VALUE: `p` takes id (int), note")
        );
        assert_eq!(Value::Object(typed("{id: 7, note: \"8 is\", ids: [1, 2]}").unwrap()), wanted);
        let misread = typed("{id: 7, note: 8 is}").unwrap_err().to_string();
        assert_eq!(misread, "line 1, column 17 of the inputs: wanted `,` or `}`, found `i`");
        for twice in ["id=7 note=a id=7", "{id: 7, note: 'a', id: 7}"] {
            let error = typed(twice).unwrap_err().to_string();
            assert!(error.ends_with("`id` is there twice"), "{error}");
        }
        let null = typed("{id: null, note: '', ids: []}").unwrap();
        let error = data::inputs(&procedure(), &null).unwrap_err();
        assert_eq!(format!("{error:#}"), "the inputs of `p`: `id`: wanted int, found null");
        let error = data::inputs(&procedure(), &typed("id=7 other=1").unwrap()).unwrap_err();
        assert!(
            format!("{error:#}").contains("the inputs of `p`: there is no `other`"),
            "{error:#}"
        );
    }

    #[test]
    fn only_bytes_can_be_typed_that_are_not_utf8() {
        let code = |line| typed(line).unwrap()["code"].clone();
        assert_eq!(code("code=00ff"), json!("00ff"));
        assert_eq!(code("code=\"\\x00\\xff\""), json!("00ff"));
        assert_eq!(code("code=\"1\\x32\""), json!("3132"), "with an escape, they are no digits");
        let refused = |line| format!("{:#}", typed(line).unwrap_err());
        assert_eq!(
            refused("note=\"\\xff\""),
            "the inputs of `p`: `note`: wanted string(9), found \"\\xff\", which is not UTF-8"
        );
        assert!(refused("\"{id: 7, note: '\\xff'}\"").contains("not UTF-8"));
        assert!(refused("{note: '\\xff'}").contains("there is no such escape, only \\n"));
    }

    #[test]
    fn an_unknown_outcome_comes_with_the_question() {
        let call: Version = "7.1".parse().unwrap();
        let deadline = std::time::Duration::from_secs(1);
        let unknown = CallError::Unknown { procedure: "p".into(), call, deadline };
        assert_eq!(advice(&unknown.into()).as_deref(), Some("outcome 7.1"));
        assert_eq!(advice(&anyhow::anyhow!("no answer")), None);
    }
}

//! Histories as JSON lines.

use proptest::prelude::*;
use serried_history::{Event, EventKind, History, MicroOperation, ReadError, ReadResult};
use serried_model::{NodeId, Version};

const INVOKE: &str = r#"{"index":0,"type":"invoke","process":3,"time":17,"f":"txn","value":[["append",12,7],["r",5,null],["r",6,null],["w",7,9]]}"#;
const OK: &str = r#"{"index":1,"type":"ok","process":3,"time":18,"f":"txn","value":[["append",12,7],["r",5,[1,2]],["r",6,null],["w",7,9]],"version":"12.65536","read_versions":["3.65537","0.0"]}"#;

fn read(lines: &[&str]) -> Result<History, ReadError> {
    History::read_json_lines((lines.join("\n") + "\n").as_bytes())
}

#[track_caller]
fn assert_error(lines: &[&str], expected: &str) {
    let error = read(lines).unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert!(expected.starts_with(&format!("line {}: ", error.line())));
}

#[test]
fn a_history_is_written_as_it_is_read() {
    let history = read(&[INVOKE, OK]).unwrap();
    assert_eq!(
        history.events[1].operations,
        [
            MicroOperation::Append { key: 12, element: 7 },
            MicroOperation::Read { key: 5, result: ReadResult::List(vec![1, 2]) },
            MicroOperation::Read { key: 6, result: ReadResult::Register(None) },
            MicroOperation::Write { key: 7, value: Some(9) },
        ]
    );
    let pending = MicroOperation::Read { key: 6, result: ReadResult::Pending };
    assert_eq!(history.events[0].operations[2], pending);
    let mut written = Vec::new();
    history.write_json_lines(&mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), format!("{INVOKE}\n{OK}\n"));
}

#[test]
fn histories_of_other_tools_may_have_more_or_fewer_fields() {
    let history = read(&[
        "",
        r#"{"type":"invoke","process":1,"f":"txn","value":[["w",1,null]],"node":"n1"}"#,
        r#"{"type":"info","process":1,"time":5,"value":null,"error":["timeout",3]}"#,
    ])
    .unwrap();
    assert_eq!((history.events[0].index, history.events[0].time_ns), (2, 0));
    assert_eq!(history.events[0].operations, [MicroOperation::Write { key: 1, value: None }]);
    assert_eq!(history.events[1].error.as_deref(), Some(r#"["timeout",3]"#));
}

#[test]
fn a_file_may_end_without_a_newline_but_not_inside_an_event() {
    let whole = format!("{INVOKE}\n{OK}");
    assert_eq!(History::read_json_lines(whole.as_bytes()).unwrap().events.len(), 2);
    let error = History::read_json_lines(&whole.as_bytes()[..whole.len() - 9]).unwrap_err();
    assert!(matches!(error, ReadError::Truncated { line: 2 }), "{error}");
    assert_eq!(
        error.to_string(),
        "line 2: the file ends inside this event; remove the line, or record again"
    );
}

#[test]
fn a_line_that_is_no_json_object_is_an_error() {
    assert_error(
        &[INVOKE, r#"{"index":1,"#, OK],
        "line 2: not JSON: EOF while parsing a value at line 2 column 0; put one event on each \
         line, as one JSON object",
    );
    assert_error(
        &["[1]"],
        "line 1: not JSON: [1] is no object; put one event on each line, as one JSON object",
    );
}

#[test]
fn an_unknown_type_or_f_is_an_error() {
    assert_error(
        &[INVOKE, &OK.replace("\"ok\"", "\"okay\"")],
        "line 2: unknown type \"okay\"; use \"invoke\", \"ok\", \"fail\" or \"info\"",
    );
    assert_error(
        &[r#"{"type":"info","process":0,"f":"kill"}"#],
        "line 1: unknown f \"kill\"; keep only events of transactions, whose f is \"txn\"",
    );
}

#[test]
fn a_wrong_micro_operation_is_an_error() {
    let expected = "; use [\"append\", key, element], [\"r\", key, null, value or list] or [\"w\", \
                    key, value or null]";
    for (operation, problem) in [
        (r#"["append",-1,7]"#, "its key is no integer from 0 up"),
        (r#"["append",1.5,7]"#, "its key is no integer from 0 up"),
        (r#"["append","x",7]"#, "its key is no integer from 0 up"),
        (r#"["append",1,null]"#, "its element is no integer from 0 up"),
        (r#"["r",1,[1,null]]"#, "its list holds more than integers from 0 up"),
        (r#"["r",1,"a"]"#, "its result is neither null, a list nor an integer from 0 up"),
        (r#"["w",1,-2]"#, "its value is neither null nor an integer from 0 up"),
        (r#"["cas",1,2]"#, "its name is unknown"),
        (r#"["r",1]"#, "it is no list of three"),
    ] {
        let line = format!(r#"{{"type":"invoke","process":0,"f":"txn","value":[{operation}]}}"#);
        assert_error(
            &[INVOKE, OK, &line],
            &format!("line 3: {operation} is no micro-operation: {problem}{expected}"),
        );
    }
}

#[test]
fn a_field_of_the_wrong_kind_is_an_error() {
    assert_error(
        &[r#"{"type":"invoke","process":-1,"value":[]}"#],
        "line 1: `process` is -1; make it an integer that is not negative",
    );
    assert_error(
        &[r#"{"type":"invoke","value":[]}"#],
        "line 1: `process` is missing; make it an integer that is not negative",
    );
    assert_error(
        &[INVOKE, r#"{"type":"ok","process":3}"#],
        "line 2: `value` is missing; make it a list of micro-operations",
    );
    assert_error(
        &[INVOKE, &OK.replace("12.65536", "12")],
        "line 2: `version` is \"12\"; make it \"<microseconds>.<coordinator>\", two integers",
    );
    assert_error(
        &[INVOKE, &OK.replace(",\"0.0\"", "")],
        "line 2: `read_versions` is 1 long for 2 reads; make it one version per \"r\", in order",
    );
}

#[test]
fn a_process_has_one_transaction_open_at_a_time() {
    assert_error(
        &[OK],
        "line 1: process 3 ends a transaction that it has not begun; restore its invoke, or remove \
         the line",
    );
    assert_error(
        &[INVOKE, OK, OK],
        "line 3: process 3 ends a transaction that it has not begun; restore its invoke, or remove \
         the line",
    );
    assert_error(
        &[INVOKE, INVOKE],
        "line 2: process 3 begins a transaction while its transaction of line 1 is open; end that \
         one first, with info if its outcome is unknown",
    );
}

#[test]
fn a_transaction_must_end_with_the_appends_that_it_began_with() {
    let line = |kind: &str, value: &str| {
        format!(r#"{{"type":"{kind}","process":3,"f":"txn","value":{value}}}"#)
    };
    let read = |begun: &str, ended: &str| {
        let lines = [line("invoke", begun), line("ok", ended)].join("\n");
        History::read_json_lines(lines.as_bytes())
    };
    let begun = r#"[["r",1,null],["append",2,7],["append",3,8]]"#;
    for ended in [
        r#"[["r",1,[3]],["append",2,7],["append",3,8]]"#,
        // Its next operations depended on what it found.
        r#"[["r",1,[3]],["append",2,7],["append",3,8],["r",4,1],["w",4,2]]"#,
        "[]", // Not recorded.
    ] {
        assert_eq!(read(begun, ended).map(|history| history.events.len()).ok(), Some(2), "{ended}");
    }
    for ended in [
        r#"[["r",1,[3]],["append",2,9],["append",3,8]]"#,
        r#"[["r",1,[3]],["append",1,7],["append",3,8]]"#,
        r#"[["r",1,[3]],["append",3,8],["append",2,7]]"#,
        r#"[["r",1,[3]],["append",2,7]]"#,
    ] {
        let error = read(begun, ended).expect_err(ended).to_string();
        let expected = "line 2: process 3 ends with other appends than it began with on line 1; ";
        assert!(error.starts_with(expected), "{error}");
    }
}

fn version() -> impl Strategy<Value = Version> {
    (any::<u64>(), any::<u64>()).prop_map(|(timestamp_us, coordinator)| Version {
        timestamp_us,
        coordinator: NodeId(coordinator),
    })
}

fn operation(kind: EventKind) -> impl Strategy<Value = MicroOperation> {
    let absent = match kind {
        EventKind::Ok => ReadResult::Register(None),
        _ => ReadResult::Pending,
    };
    let result = prop_oneof![
        Just(absent),
        any::<u64>().prop_map(|value| ReadResult::Register(Some(value))),
        proptest::collection::vec(any::<u64>(), 0..4).prop_map(ReadResult::List),
    ];
    prop_oneof![
        (any::<u64>(), any::<u64>())
            .prop_map(|(key, element)| MicroOperation::Append { key, element }),
        (any::<u64>(), any::<Option<u64>>())
            .prop_map(|(key, value)| MicroOperation::Write { key, value }),
        (any::<u64>(), result).prop_map(|(key, result)| MicroOperation::Read { key, result }),
    ]
}

fn event(kind: EventKind, process: u64) -> impl Strategy<Value = Event> {
    let operations = proptest::collection::vec(operation(kind), 0..5);
    let parts = (any::<u64>(), any::<u64>(), operations, any::<Option<String>>());
    (parts, proptest::option::of(version()), version(), any::<bool>()).prop_map(
        move |((index, time_ns, operations, error), version, read_version, with_versions)| {
            let reads = operations.iter().filter(|operation| operation.is_read()).count();
            let count = if with_versions { reads } else { 0 };
            let read_versions = vec![read_version; count];
            Event { index, kind, process, time_ns, operations, version, read_versions, error }
        },
    )
}

fn transaction(process: u64) -> impl Strategy<Value = [Event; 2]> {
    prop_oneof![Just(EventKind::Ok), Just(EventKind::Fail), Just(EventKind::Info)]
        .prop_flat_map(move |kind| [event(EventKind::Invoke, process), event(kind, process)])
        .prop_map(|[invoke, mut end]| {
            let is_append =
                |operation: &MicroOperation| matches!(operation, MicroOperation::Append { .. });
            end.operations.retain(|operation| !is_append(operation));
            end.operations.extend(invoke.operations.iter().filter(|o| is_append(o)).cloned());
            [invoke, end]
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn any_history_survives_its_json_lines(
        transactions in proptest::collection::vec((0u64..9).prop_flat_map(transaction), 0..5)
    ) {
        let history = History { events: transactions.into_iter().flatten().collect() };
        let mut lines = Vec::new();
        history.write_json_lines(&mut lines).unwrap();
        prop_assert_eq!(History::read_json_lines(lines.as_slice()).unwrap(), history);
    }
}

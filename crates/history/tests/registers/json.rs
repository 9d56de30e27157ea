//! Histories of registers as JSON lines.

use serried_history::{ReadError, RegisterHistory};

use crate::support::{add, cas, history, read, write};

#[test]
fn what_is_written_is_read_back() {
    let history = history([
        write(0, 1, 1).at(1, 2, 0),
        write(1, 2, None).on(2).failed(),
        read(2, 3, -4).on(3),
        read(2, 3, None).on(4).unknown(),
        cas(4, 5, None, 7, None).on(5),
        cas(6, 7, 1, 7, 2),
        cas(6, 8, 1, 7, 2).unknown(),
        add(8, 9, -3, i64::MIN).at(1, 2, 3),
        add(9, 10, 3, None),
    ]);
    let mut text = Vec::new();
    history.write_json_lines(&mut text).unwrap();
    assert_eq!(RegisterHistory::read_json_lines(text.as_slice()).unwrap(), history);
    let text = String::from_utf8(text).unwrap();
    assert!(text.lines().all(|line| RegisterHistory::recognises(line.as_bytes())));
    assert!(
        text.contains(r#""f":"add","value":[1,-3,-9223372036854775808],"version":[1,2,3]"#),
        "{text}"
    );
    assert!(text.contains(r#""f":"cas","value":[1,[1,7],2]"#), "{text}");
}

#[test]
fn a_history_of_transactions_is_not_one_of_registers() {
    let line = br#"{"type":"invoke","process":0,"f":"txn","value":[]}"#;
    assert!(!RegisterHistory::recognises(line));
    let error = RegisterHistory::read_json_lines(&line[..]).unwrap_err();
    assert!(matches!(error, ReadError::UnknownFunction { line: 1, .. }), "{error}");
}

fn error(lines: &[&str]) -> String {
    let text = lines.join("\n") + "\n";
    RegisterHistory::read_json_lines(text.as_bytes()).unwrap_err().to_string()
}

const OPEN: &str = r#"{"type":"invoke","process":3,"f":"add","value":[5,1]}"#;

#[test]
fn errors_name_the_line_and_what_to_do() {
    let again = error(&[OPEN, OPEN]);
    assert!(again.contains("line 2: process 3 begins an operation on key 5"), "{again}");
    assert!(again.contains("line 1"), "{again}");
    let other = error(&[OPEN, r#"{"type":"ok","process":3,"f":"add","value":[5,2,null]}"#]);
    assert!(other.contains("another operation"), "{other}");
    let without = error(&[OPEN, r#"{"type":"ok","process":3,"f":"read","value":[6,2]}"#]);
    assert!(without.contains("has not begun"), "{without}");
    for (value, problem) in [
        (r#""f":"add","value":[5,1]"#, "what was found is missing"),
        (r#""f":"add","value":[5,null,1]"#, "null can't be added"),
        (r#""f":"cas","value":[5,1,1]"#, "no list of two"),
        (r#""f":"read","value":[5,1.5]"#, "64-bit integers"),
        (r#""f":"read","value":[-5,1]"#, "integer from 0 up"),
        (r#""f":"write","value":5"#, "no list of two or three"),
        (r#""f":"append","value":[5,1]"#, "unknown f"),
        (r#""f":"write","value":[5,1],"version":[1,2]"#, "three integers"),
    ] {
        let text = error(&[OPEN, &format!(r#"{{"type":"ok","process":3,{value}}}"#)]);
        assert!(text.starts_with("line 2") && text.contains(problem), "{value}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

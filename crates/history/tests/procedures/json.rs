//! Histories of calls as JSON lines.

use serried_history::{CallHistory, History, RegisterHistory};

use crate::support::{call, history};

#[test]
fn what_is_written_is_read_back() {
    let history = history([
        call([0, 1], &[(1, &[]), (2, &[7])], &[(1, 10), (2, 10)]),
        call([2, 3], &[], &[(1, 11)]).refused(),
        call([4, 5], &[], &[(1, 12)]).unknown(),
        call([6, 7], &[], &[]),
        call([8, 8], &[], &[(3, 1)]).open(),
    ]);
    let mut text = Vec::new();
    history.write_json_lines(&mut text).unwrap();
    assert_eq!(CallHistory::read_json_lines(text.as_slice()).unwrap(), history);
    let text = String::from_utf8(text).unwrap();
    assert!(text.lines().all(|line| CallHistory::recognises(line.as_bytes())));
    assert!(!text.lines().any(|line| RegisterHistory::recognises(line.as_bytes())));
    let read = r#""value":[["r",1,[]],["r",2,[7]],["append",1,10],["append",2,10]]"#;
    assert!(text.contains(read), "{text}");
    assert!(text.contains(r#""f":"call","procedure":"p1""#) && text.contains(r#""refused":true"#));
    assert!(History::read_json_lines(text.as_bytes()).is_err());
}

fn error(lines: &[&str]) -> String {
    let text = lines.join("\n") + "\n";
    CallHistory::read_json_lines(text.as_bytes()).unwrap_err().to_string()
}

const OPEN: &str =
    r#"{"type":"invoke","process":3,"f":"call","procedure":"p","value":[["append",5,1]]}"#;

#[test]
fn errors_name_the_line_and_what_to_do() {
    let again = error(&[OPEN, OPEN]);
    let wanted = "line 2: process 3 begins a call while its call of line 1 is open";
    assert!(again.starts_with(wanted), "{again}");
    let ended = |rest: &str| {
        error(&[OPEN, &format!(r#"{{"type":"ok","process":3,"f":"call","procedure":"p",{rest}}}"#)])
    };
    assert!(ended(r#""value":[["append",5,2]]"#).contains("ends with other appends"));
    assert!(ended(r#""value":[["append",5,1],["r",5,[]]]"#).contains("reads before it appends"));
    assert!(ended(r#""value":[["r",5,7]]"#).contains("a call reads lists"));
    assert!(ended(r#""value":[["w",5,7]]"#).contains("writes no registers"));
    assert!(ended(r#""value":[],"refused":7"#).contains("`refused` is 7; make it true or false"));
    let nameless = error(&[r#"{"type":"invoke","process":3,"f":"call","value":[]}"#]);
    assert!(nameless.contains("`procedure` is null; make it the name"), "{nameless}");
    let other = error(&[r#"{"type":"invoke","process":3,"f":"txn","value":[]}"#]);
    assert!(other.contains("keep only events of procedures, whose f is \"call\""), "{other}");
    let without = error(&[r#"{"type":"ok","process":3,"f":"call","procedure":"p","value":[]}"#]);
    assert!(without.contains("process 3 ends a call that it has not begun"), "{without}");
}

/// The end of a call without effect need not repeat what it would have appended.
#[test]
fn a_failed_call_has_the_appends_of_its_beginning() {
    let end = r#"{"type":"fail","process":3,"f":"call","procedure":"p"}"#;
    let history = CallHistory::read_json_lines(format!("{OPEN}\n{end}\n").as_bytes()).unwrap();
    assert_eq!(history.events[1].appends, [(5, 1)]);
}

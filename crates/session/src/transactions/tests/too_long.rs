//! The errors of transactions that run for too long.

use super::*;

const REFUSED: Output = Output::Outcome(Outcome::TooLong { limit_ms: 5000 });
const LIMIT: Duration = Duration::from_secs(5);

#[test]
fn who_runs_for_too_long_is_tried_again_and_told_why_when_no_attempt_is_left() {
    let (script, keyspace) = Script::new();
    let options = TransactOptions { attempts: 2, ..TransactOptions::default() };
    let keyspace = keyspace.with_options(options);
    let mut program = Box::pin(keyspace.put("a", "1"));
    for attempt in 0..2 {
        assert!(poll(&mut program).is_pending());
        assert_eq!(script.asked(), ["commit [] [(\"a\", Some(\"1\"))]"], "attempt {attempt}");
        script.tell(attempt, REFUSED);
        if attempt == 0 {
            assert!(poll(&mut program).is_pending());
            script.advance(Duration::from_millis(1));
        }
    }
    let Poll::Ready(Err(error)) = poll(&mut program) else { panic!("an attempt is left") };
    assert!(matches!(error, TransactionError::TooLong { limit: LIMIT, attempts: 2 }), "{error}");
    let text = error.to_string();
    assert!(text.contains("longer than 5s, in attempt 2") && text.contains("`truncation_lag_ms`"));
}

#[test]
fn who_ran_for_too_long_is_told_so_if_the_deadline_comes_before_the_next_attempt() {
    for one_shot in [false, true] {
        let (script, keyspace) = Script::new();
        let options = TransactOptions { deadline: LIMIT, ..TransactOptions::default() };
        let keyspace = keyspace.with_options(options);
        let one = async || match one_shot {
            true => keyspace.one_shot(["a"], []).await.map(|_| ()),
            false => keyspace.put("a", "1").await.map(|_| ()),
        };
        let mut program = Box::pin(one());
        assert!(poll(&mut program).is_pending());
        script.advance(LIMIT - Duration::from_nanos(1));
        assert!(poll(&mut program).is_pending());
        script.tell(0, REFUSED);
        let Poll::Ready(Err(error)) = poll(&mut program) else { panic!("one shot: {one_shot}") };
        assert!(
            matches!(error, TransactionError::TooLong { limit: LIMIT, attempts: 1 }),
            "{error}"
        );
    }
}

#[test]
fn who_is_aborted_in_its_last_attempt_is_not_told_that_it_ran_for_too_long() {
    let (script, keyspace) = Script::new();
    let options = TransactOptions { attempts: 2, ..TransactOptions::default() };
    let keyspace = keyspace.with_options(options);
    let mut program = Box::pin(keyspace.put("a", "1"));
    assert!(poll(&mut program).is_pending());
    script.tell(0, REFUSED);
    assert!(poll(&mut program).is_pending());
    script.advance(Duration::from_millis(1));
    assert!(poll(&mut program).is_pending());
    script.tell(1, Output::Outcome(Outcome::Aborted { conflicts: vec![Key::from("a")] }));
    let Poll::Ready(Err(error)) = poll(&mut program) else { panic!("an attempt is left") };
    assert!(matches!(error, TransactionError::Conflict { attempts: 2, .. }), "{error}");
}

#[test]
fn who_was_aborted_since_is_not_told_that_it_ran_for_too_long() {
    let (script, keyspace) = Script::new();
    let options = TransactOptions { deadline: LIMIT, ..TransactOptions::default() };
    let keyspace = keyspace.with_options(options);
    let mut program = Box::pin(keyspace.put("a", "1"));
    assert!(poll(&mut program).is_pending());
    script.tell(0, REFUSED);
    assert!(poll(&mut program).is_pending());
    script.advance(Duration::from_millis(1));
    assert!(poll(&mut program).is_pending());
    script.advance(LIMIT - Duration::from_nanos(1_000_001));
    assert!(poll(&mut program).is_pending());
    script.tell(1, Output::Outcome(Outcome::Aborted { conflicts: vec![Key::from("a")] }));
    let Poll::Ready(Err(error)) = poll(&mut program) else { panic!("the deadline is over") };
    assert!(matches!(error, TransactionError::Deadline { .. }), "{error}");
}

//! What sessions report while a keyspace is recorded.

use serried_model::{Form, Modification, ReportedModification};

use super::*;

#[test]
fn a_transaction_is_reported_once_with_all_its_attempts_and_the_rounds_of_the_last_one() {
    let (script, keyspace) = Script::new();
    script.recorded.store(true, Ordering::Relaxed);
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        tx.get_many(["a", "b"]).for_update(1..).await?;
        tx.get("c").await?;
        tx.put("d", "12345");
        tx.delete("a");
        drop(tx.modify("n", Modification::add(1)));
        Ok(())
    }));
    script.advance(Duration::from_nanos(7));
    for attempt in 0..2 {
        assert!(poll(&mut transaction).is_pending());
        script.tell(attempt, Output::Began(version(9 + attempt)));
        script.tell(attempt, Output::Value(read("a", 1, "1")));
        script.tell(attempt, Output::Value(read("b", 1, "")));
        assert!(poll(&mut transaction).is_pending());
        script.tell(attempt, Output::Value(read("c", 1, "123")));
        assert!(poll(&mut transaction).is_pending());
        let committed = attempt == 1;
        script.tell(
            attempt,
            Output::Outcome(match committed {
                true => Outcome::Committed,
                false => Outcome::Aborted { conflicts: Vec::new() },
            }),
        );
        assert_eq!(poll(&mut transaction).is_ready(), committed);
        script.advance(Duration::from_millis(5));
    }
    let [report] = &script.take_reports()[..] else { panic!("it is one transaction") };
    assert_eq!((report.began_ns, report.ended_ns), (7, 5_000_007));
    assert_eq!((report.attempts, report.form), (2, Form::Program));
    let reads: Vec<_> = report
        .reads
        .iter()
        .map(|read| (read.key.to_string(), read.round, read.for_update, read.bytes))
        .collect();
    let expected = [("a", 0, false, Some(1)), ("b", 0, true, None), ("c", 1, false, Some(3))];
    let expected = expected.map(|(key, round, up, bytes)| (key.to_string(), round, up, bytes));
    assert_eq!(reads, expected);
    let writes: Vec<_> = report.writes.iter().map(|w| (w.key.to_string(), w.bytes)).collect();
    assert_eq!(writes, [("d".to_string(), Some(5)), ("a".to_string(), None)]);
    assert_eq!(report.modifies[0].modifications, [ReportedModification::Number]);
}

#[test]
fn a_key_that_is_first_read_by_a_re_execution_is_of_a_later_round() {
    let (script, keyspace) = Script::new();
    script.recorded.store(true, Ordering::Relaxed);
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        let a = text(tx.get("a").await?);
        tx.get(if a == "1" { "b" } else { "c" }).await
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Value(read("b", 1, "1")));
    script.tell(0, Output::Rewind(read("a", 2, "2")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Value(read("c", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Outcome(Outcome::Committed));
    assert!(poll(&mut transaction).is_ready());
    let report = script.take_reports().remove(0);
    let reads: Vec<_> = report.reads.iter().map(|r| (r.key.to_string(), r.round)).collect();
    assert_eq!(reads, [("a".to_string(), 0), ("c".to_string(), 2)], "b is not of the last run");
}

#[test]
fn batches_and_read_only_transactions_are_reported_as_such_and_nothing_is_while_nobody_records() {
    for one_shots in [true, false] {
        let offers = Offers { one_shots, past: false, modifies: true };
        let (script, keyspace) = Script::offering(offers);
        for recorded in [false, true] {
            script.recorded.store(recorded, Ordering::Relaxed);
            let mut batch = Box::pin(keyspace.one_shot(["a"], []));
            assert!(poll(&mut batch).is_pending());
            script.tell_last(Output::Began(version(9)));
            script.tell_last(Output::Value(read("a", 1, "1")));
            let _ = poll(&mut batch);
            script.tell_last(Output::Outcome(Outcome::Committed));
            assert!(poll(&mut batch).is_ready());
            let mut reads = Box::pin(keyspace.get("a"));
            assert!(poll(&mut reads).is_pending());
            script.tell_last(Output::Began(version(10)));
            script.tell_last(Output::Value(read("a", 1, "1")));
            assert!(poll(&mut reads).is_pending());
            script.tell_last(Output::Outcome(Outcome::Committed));
            assert!(poll(&mut reads).is_ready());
            let forms: Vec<Form> = script.take_reports().iter().map(|r| r.form).collect();
            let expected: &[Form] = if recorded { &[Form::Batch, Form::ReadOnly] } else { &[] };
            assert_eq!(forms, expected);
        }
    }
}

#[test]
fn what_the_session_reads_for_itself_makes_no_round_and_has_one_when_the_program_asks() {
    // The session executes modifications.
    let offers = Offers { one_shots: false, past: false, modifies: false };
    let (script, keyspace) = Script::offering(offers);
    script.recorded.store(true, Ordering::Relaxed);
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        drop(tx.modify("n", Modification::add(1)));
        tx.get("a").await?;
        tx.get("n").await?;
        tx.get("b").await
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("n", 1, "41")));
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Value(read("b", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Outcome(Outcome::Committed));
    assert!(poll(&mut transaction).is_ready());
    let report = script.take_reports().remove(0);
    let reads: Vec<_> = report.reads.iter().map(|r| (r.key.to_string(), r.round)).collect();
    let expected = [("a", 0), ("n", 1), ("b", 2)].map(|(key, round)| (key.to_string(), round));
    assert_eq!(reads, expected);
    assert!(report.modifies.is_empty() && report.writes[0].bytes == Some(2));
}

#[test]
fn a_key_that_is_read_again_for_update_is_reported_as_read_for_update() {
    let (script, keyspace) = Script::new();
    script.recorded.store(true, Ordering::Relaxed);
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        tx.get_many(["a", "b"]).await?;
        tx.get_for_update("a").await
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    script.tell(0, Output::Value(read("b", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Outcome(Outcome::Committed));
    assert!(poll(&mut transaction).is_ready());
    let report = script.take_reports().remove(0);
    let reads: Vec<_> = report.reads.iter().map(|r| (r.key.to_string(), r.for_update)).collect();
    assert_eq!(reads, [("a".to_string(), true), ("b".to_string(), false)]);
}

//! Modifications: what is asked of the coordinator, and what their results are.

use serried_model::{Limits, Modification, Modified, WrongType};

use super::*;
use crate::Batch;

/// Its servers execute no modifications.
fn without() -> (Arc<Script>, TransactionKeyspace) {
    Script::offering(Offers { one_shots: true, past: false, modifies: false })
}

fn value(text: &str) -> Option<Value> {
    Some(Value::from(text))
}

#[test]
fn what_nobody_looks_at_is_not_read() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact_recorded(|tx| async move {
        drop(tx.modify("a", Modification::add(1)));
        drop(tx.modify("a", Modification::add(2)));
        drop(tx.modify("b", Modification::Append(Value::from("x"))));
        tx.put("c", "1");
        Ok(())
    }));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["commit [] [(\"c\", Some(\"1\"))] a x2 b x1"]);
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok((_, footprint))) = poll(&mut transaction) else { panic!() };
    let [a, b] = &footprint.modifies[..] else { panic!("{:?}", footprint.modifies) };
    // The limit on values is 8 bytes.
    assert_eq!(a.modifications, [1, 2].map(|delta| Modification::add(delta).within(8)));
    assert_eq!(b.modifications, [Modification::Append(Value::from("x")).within(8)]);
}

#[test]
fn a_result_that_is_awaited_is_that_of_a_read_for_update_and_a_write() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        let first = tx.modify("a", Modification::add(1));
        let second = tx.modify("a", Modification::Add { delta: 5, least: 0, most: 9 });
        drop(tx.modify("a", Modification::add(2)));
        let second = second.await?;
        Ok((first.await?, second, text(tx.get("a").await?)))
    }));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["get a for update"]);
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "6")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["commit [\"a\"] [(\"a\", Some(\"9\"))]"]);
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok(committed)) = poll(&mut transaction) else { panic!() };
    let first = Modified { found: value("6"), value: value("7"), applied: true };
    let second = Modified { found: value("7"), value: value("7"), applied: false };
    assert_eq!(first.integer(), Some(7));
    assert_eq!(committed.value, (first, second, "9".to_string()));
}

#[test]
fn a_modification_of_a_known_value_is_a_write() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        tx.get("read").await?;
        let added = tx.modify("read", Modification::add(1)).await?;
        tx.put("put", "1");
        let appended = tx.modify("put", Modification::Append(Value::from("2"))).await?;
        drop(tx.modify("over", Modification::add(1)));
        tx.put("over", "7");
        drop(tx.modify("same", Modification::Set(None)));
        assert_eq!(tx.get("same").await?, None);
        Ok([added.value, appended.value])
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("read", 1, "4")));
    assert!(poll(&mut transaction).is_pending());
    script.asked();
    script.tell(0, Output::Value(read("same", 1, "")));
    assert!(poll(&mut transaction).is_pending());
    let writes = "[(\"read\", Some(\"5\")), (\"put\", Some(\"12\")), (\"over\", Some(\"7\"))]";
    assert_eq!(script.asked(), [format!("commit [\"read\", \"same\"] {writes}")]);
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok(committed)) = poll(&mut transaction) else { panic!() };
    assert_eq!(committed.value, [value("5"), value("12")]);
}

#[test]
fn another_type_is_an_error_for_a_program_that_waits_for_the_result() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        tx.put("b", "1");
        Ok(tx.modify("a", Modification::add(1)).await?.applied)
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "seven")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked().last().unwrap(), "commit [\"a\"] []", "it did find that");
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Err(error)) = poll(&mut transaction) else { panic!() };
    assert!(
        matches!(&error, TransactionError::WrongType { key, wrong: WrongType { .. } } if *key == Key::from("a"))
    );
    let message = "`a` was not modified: the value is text, and has to be an integer";
    assert_eq!(error.to_string(), message);
}

#[test]
fn without_servers_that_execute_it_the_session_does_and_no_program_runs_again() {
    let (script, keyspace) = without();
    let runs = AtomicU32::new(0);
    let mut transaction = Box::pin(keyspace.transact_recorded(|tx| {
        runs.fetch_add(1, Ordering::Relaxed);
        async move {
            drop(tx.modify("a", Modification::add(1)));
            drop(tx.modify("b", Modification::add(1)));
            tx.get("c").await
        }
    }));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["get a for update", "get b for update", "get c"], "at once");
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("c", 1, "")));
    script.tell(0, Output::Value(read("b", 1, "text")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), [""; 0], "the program has ended, and a value is missing");
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    let commit = |a: &str| format!("commit [\"c\", \"a\", \"b\"] [(\"a\", Some(\"{a}\"))]");
    assert_eq!(script.asked(), [commit("2")], "b is no number, and stays as it is");
    script.tell(0, Output::Rewind(read("a", 2, "4")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), [commit("5")]);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    // What the program has read is another matter.
    script.tell(0, Output::Rewind(read("c", 2, "1")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), [commit("5")]);
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok((committed, footprint))) = poll(&mut transaction) else { panic!() };
    assert_eq!(committed.re_executions, 1);
    assert_eq!(footprint.reads, [read("c", 2, "1")]);
}

#[test]
fn a_value_that_a_run_no_longer_modifies_is_not_awaited() {
    let (script, keyspace) = without();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        if tx.get("c").await?.is_none() {
            drop(tx.modify("a", Modification::add(1)));
        }
        drop(tx.modify("b", Modification::add(1)));
        tx.put("b", "7");
        Ok(())
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("c", 1, "")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Rewind(read("c", 2, "1")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked().last().unwrap(), "commit [\"c\"] [(\"b\", Some(\"7\"))]");
}

#[test]
fn a_value_that_is_missing_at_the_deadline_is_named() {
    let (script, keyspace) = without();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        drop(tx.modify("a", Modification::add(1)));
        Ok(())
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.advance(keyspace.options().deadline);
    let Poll::Ready(Err(error)) = poll(&mut transaction) else { panic!() };
    assert!(error.to_string().ends_with("waiting for the value of `a`"), "{error}");
}

#[test]
fn a_modification_is_subject_to_the_limits() {
    let (script, keyspace) = Script::new();
    let long = "x".repeat(9);
    for modification in [
        Modification::Append(Value::from(long.as_str())),
        Modification::SetIfAbsent(Value::from(long.as_str())),
        Modification::CompareAndSwap { expected: None, new: Some(Value::from(long.as_str())) },
        Modification::CompareAndSwap { expected: Some(Value::from(long.as_str())), new: None },
        Modification::Set(Some(Value::from(long.as_str()))),
    ] {
        let mut transaction = Box::pin(keyspace.transact(|tx| {
            let modification = modification.clone();
            async move { tx.modify("a", modification).await }
        }));
        let Poll::Ready(Err(error)) = poll(&mut transaction) else { panic!() };
        assert!(matches!(error, TransactionError::TooLarge(_)), "{error}");
        let mut batch = Box::pin(keyspace.batch(Batch::new().modify("a", modification.clone())));
        let Poll::Ready(Err(error)) = poll(&mut batch) else { panic!() };
        assert!(matches!(error, TransactionError::TooLarge(_)), "{error}");
    }
    let mut empty = Box::pin(keyspace.batch(Batch::new().modify("", Modification::add(1))));
    assert!(matches!(poll(&mut empty), Poll::Ready(Err(TransactionError::EmptyKey))));
    assert!(!script.asked().iter().any(|asked| asked.starts_with("commit")));
}

#[test]
fn who_may_only_read_does_not_modify() {
    let (_script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact_read_only_recorded(|tx| async move {
        drop(tx.modify("a", Modification::add(1)));
        Ok(())
    }));
    let Poll::Ready(Err(error)) = poll(&mut transaction) else { panic!() };
    assert!(matches!(error, TransactionError::OnlyReads { key } if key == Key::from("a")));
}

#[test]
fn steps_modify_and_continue_with_what_they_had_done() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact_in_steps(|step: &Step| {
        step.modify("a", Modification::add(1));
        step.get((), "c", |step, (), _| {
            step.modify("a", Modification::add(1));
            Next::Commit(())
        })
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("c", 1, "")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["get c", "commit [\"c\"] [] a x2"]);
    script.tell(0, Output::Rewind(read("c", 2, "1")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["commit [\"c\"] [] a x2"]);
}

#[test]
fn a_batch_goes_as_a_whole_if_the_servers_execute_modifications() {
    let batch = || {
        let modified = Batch::new().get("a").modify("a", Modification::add(1));
        let written = modified.put("b", "1").modify("b", Modification::Append(Value::from("2")));
        written.modify("c", Modification::add(1)).delete("c").get("c")
    };
    let (script, keyspace) = Script::new();
    let mut whole = Box::pin(keyspace.batch(batch()));
    assert!(poll(&mut whole).is_pending());
    let asked = "one shot [\"a\", \"c\"] [(\"b\", Some(\"12\")), (\"c\", None)] a x1";
    assert_eq!(script.asked(), [asked]);

    let (script, keyspace) = without();
    let mut transaction = Box::pin(keyspace.batch(batch()));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["get a for update", "get c for update"]);
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    script.tell(0, Output::Value(read("c", 1, "")));
    assert!(poll(&mut transaction).is_pending());
    let writes = "[(\"b\", Some(\"12\")), (\"c\", None), (\"a\", Some(\"2\"))]";
    let mut asked = script.asked();
    assert_eq!(asked.pop().unwrap(), format!("commit [\"a\", \"c\"] {writes}"));
}

#[test]
fn what_was_done_before_the_value_was_known_comes_first() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        let mut late = Box::pin(tx.modify("a", Modification::Append(Value::from("1"))));
        assert!(poll(&mut late).is_pending());
        tx.get("c").await?;
        // The value of `a` has come by now, and nobody has looked at it.
        let next = tx.modify("a", Modification::Append(Value::from("2"))).await?;
        Ok((late.await?.value, next.value))
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "0")));
    script.tell(0, Output::Value(read("c", 1, "")));
    assert!(poll(&mut transaction).is_pending());
    let commit = "commit [\"a\", \"c\"] [(\"a\", Some(\"012\"))]";
    assert_eq!(script.asked().last().unwrap(), commit);
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok(committed)) = poll(&mut transaction) else { panic!() };
    assert_eq!(committed.value, (value("01"), value("012")));
}

#[test]
fn what_the_session_makes_of_values_is_within_the_limits_too() {
    let offers = Offers { one_shots: false, past: false, modifies: false };
    let limits = Limits { value_bytes: 500, transaction_bytes: 600, ..Limits::default() };
    for (bytes, fits) in [(298, true), (299, false)] {
        let (script, keyspace) = Script::offering(offers);
        let keyspace = TransactionKeyspace { limits, ..keyspace };
        let mut transaction = Box::pin(keyspace.transact(|tx| async move {
            drop(tx.modify("a", Modification::Append(Value::from("x"))));
            drop(tx.modify("b", Modification::Append(Value::from("x"))));
            Ok(())
        }));
        assert!(poll(&mut transaction).is_pending());
        script.tell(0, Output::Began(version(9)));
        let found = |key, at, bytes| read(key, at, "v".repeat(bytes).as_str());
        script.tell(0, Output::Value(found("a", 1, 298)));
        script.tell(0, Output::Value(found("b", 1, bytes)));
        assert!(poll(&mut transaction).is_pending());
        let asked = script.asked();
        assert_eq!(asked.last().unwrap().ends_with("[]"), !fits, "{asked:?}");
        // The values that it rests on are confirmed in both cases, and it commits again when they change.
        let (at, bytes) = if fits { (2, 299) } else { (2, 298) };
        script.tell(0, Output::Rewind(found("b", at, bytes)));
        assert!(poll(&mut transaction).is_pending());
        let asked = script.asked();
        assert!(asked[0].starts_with("commit [\"a\", \"b\"]"), "{asked:?}");
        assert_eq!(asked[0].ends_with("[]"), fits, "{asked:?}");
        script.tell(0, Output::Outcome(Outcome::Committed));
        match poll(&mut transaction) {
            Poll::Ready(Err(error)) => {
                assert!(fits && matches!(error, TransactionError::TooLarge(_)), "{error}");
            }
            Poll::Ready(Ok(_)) => assert!(!fits),
            Poll::Pending => panic!("it has committed"),
        }
    }
}

#[test]
fn a_batch_executes_what_it_does_to_its_own_values_and_keeps_to_the_limit() {
    let (script, keyspace) = Script::new();
    let append = |text: &str| Modification::Append(Value::from(text));
    let batch = Batch::new().put("a", "1234567").modify("a", append("89")).modify("a", append("8"));
    let mut whole = Box::pin(keyspace.batch(batch));
    assert!(poll(&mut whole).is_pending());
    assert_eq!(script.asked(), ["one shot [] [(\"a\", Some(\"12345678\"))]"]);
}

#[test]
fn a_transaction_that_writes_too_much_with_what_it_modifies_fails_with_that() {
    for one_shot in [false, true] {
        let (script, keyspace) = Script::new();
        let add = || Modification::add(1);
        let mut transaction = Box::pin(async {
            if one_shot {
                return keyspace.batch(Batch::new().modify("a", add())).await.map(drop);
            }
            let program = |tx: Transaction| async move {
                drop(tx.modify("a", add()));
                Ok(())
            };
            keyspace.transact(program).await.map(drop)
        });
        assert!(poll(&mut transaction).is_pending());
        script.tell(0, Output::Began(version(9)));
        let outcome = Outcome::TooLarge { key: "a".into(), bytes: 9, limit: 8 };
        script.tell(0, Output::Outcome(outcome));
        let Poll::Ready(Err(error)) = poll(&mut transaction) else { panic!() };
        let message = "transaction too large at key `a`: 9 bytes, the limit is 8";
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn so_many_modifications_are_too_large_a_transaction() {
    let (script, keyspace) = Script::new();
    let limits = Limits { transaction_bytes: 600, ..Limits::default() };
    let keyspace = TransactionKeyspace { limits, ..keyspace };
    let add = || Modification::add(1);
    let mut batch = Box::pin(keyspace.batch(
        ["a", "b", "a"].into_iter().fold(Batch::new(), |batch, key| batch.modify(key, add())),
    ));
    let Poll::Ready(Err(error)) = poll(&mut batch) else { panic!() };
    assert!(matches!(error, TransactionError::TooLarge(_)), "{error}");
    assert_eq!(script.all_asked(), [""; 0]);
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        for key in ["a", "b", "a"] {
            drop(tx.modify(key, Modification::add(1)));
        }
        Ok(())
    }));
    let Poll::Ready(Err(error)) = poll(&mut transaction) else { panic!() };
    assert!(matches!(error, TransactionError::TooLarge(_)), "{error}");
    assert!(!script.asked().iter().any(|asked| asked.starts_with("commit")));
    // Those that the program has looked at are writes, and count as such.
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        for key in ["a", "b", "c"] {
            tx.modify(key, Modification::add(1)).await?;
        }
        Ok(())
    }));
    for key in ["a", "b", "c"] {
        assert!(poll(&mut transaction).is_pending());
        script.tell_last(Output::Began(version(9)));
        script.tell_last(Output::Value(read(key, 1, "1")));
    }
    assert!(poll(&mut transaction).is_pending());
    assert!(script.asked().last().unwrap().starts_with("commit"));
}

#[test]
fn a_get_of_what_is_modified_reads_for_update() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        drop(tx.modify("a", Modification::add(1)));
        tx.get("a").await
    }));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["get a for update"]);
}

#[test]
fn a_result_is_that_of_its_own_modification_however_late_it_is_awaited() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        let add = |delta| tx.modify("a", Modification::add(delta));
        let results = [add(1), add(10), add(100)];
        tx.put("a", "7");
        let mut values = Vec::new();
        for result in results.into_iter().rev() {
            values.push(result.await?.integer().unwrap());
        }
        values.push(add(1).await?.integer().unwrap());
        Ok(values)
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "5")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked().last().unwrap(), "commit [\"a\"] [(\"a\", Some(\"8\"))]");
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok(committed)) = poll(&mut transaction) else { panic!() };
    assert_eq!(committed.value, [116, 16, 6, 8]);
}

#[test]
fn steps_that_continue_keep_the_values_that_the_session_modifies() {
    let (script, keyspace) = without();
    let mut transaction = Box::pin(keyspace.transact_in_steps(|step: &Step| {
        step.modify("a", Modification::add(1));
        step.get((), "c", |step, (), _| {
            step.modify("b", Modification::add(1));
            Next::Commit(())
        })
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("c", 1, "")));
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Value(read("b", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    let commit = |a: &str| {
        let writes = format!("[(\"a\", Some(\"{a}\")), (\"b\", Some(\"2\"))]");
        format!("commit [\"c\", \"a\", \"b\"] {writes}")
    };
    assert_eq!(script.asked().last().unwrap(), &commit("2"));
    script.tell(0, Output::Rewind(read("c", 2, "1")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), [commit("2")]);
    script.tell(0, Output::Rewind(read("a", 2, "4")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), [commit("5")]);
}

#[test]
fn a_program_that_gives_up_commits_though_bases_of_its_modifications_are_still_on_their_way() {
    let (script, keyspace) = without();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        drop(tx.modify("a", Modification::add(1)));
        drop(tx.modify("b", Modification::add(1)));
        tx.get("c").await?;
        Err::<(), _>(Abort::new("no"))
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("c", 1, "x")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked().last().unwrap(), "commit [\"c\"] []");
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Outcome(Outcome::Committed));
    assert!(matches!(poll(&mut transaction), Poll::Ready(Err(TransactionError::Application(_)))));
}

//! Transactions that are known before they begin.

use serried_model::{Limits, Write};

use super::*;

fn put(key: &str, value: &str) -> Write {
    Write { key: Key::from(key), value: Some(Value::from(value)) }
}

#[test]
fn a_one_shot_transaction_is_asked_for_at_once_and_reads_in_the_order_of_its_keys() {
    let (script, keyspace) = Script::new();
    let begun = Mutex::new(Vec::new());
    let writes = [put("a", "0"), put("c", "1"), put("a", "2")];
    let mut transaction =
        Box::pin(keyspace.one_shot_recorded(["b", "a", "b"], writes, |attempt| {
            begun.lock().unwrap().push(attempt.clone());
        }));
    assert!(poll(&mut transaction).is_pending());
    let one_shot =
        "one shot [\"b\", \"a\"] [(\"a\", Some(\"2\")), (\"c\", Some(\"1\"))]".to_string();
    assert_eq!(script.all_asked(), ["begin".to_string(), one_shot]);
    script.tell(0, Output::Began(version(9)));
    assert_eq!(begun.lock().unwrap()[0].version(), Some(version(9)));
    script.tell(0, Output::Value(read("a", 1, "old")));
    script.tell(0, Output::Value(read("b", 2, "")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(12)));
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok((committed, footprint))) = poll(&mut transaction) else { panic!() };
    assert_eq!(committed.value, [None, Some(Value::from("old")), None]);
    assert_eq!((committed.version, committed.attempts), (version(12), 1));
    assert_eq!(footprint.reads, [read("b", 2, ""), read("a", 1, "old")]);
    assert_eq!(footprint.writes, [put("a", "2"), put("c", "1")]);
    assert_eq!(script.asked(), [] as [&str; 0]);
    assert_eq!(script.switchboard.lock().unwrap().open_recipients(), 0);
}

#[test]
fn a_one_shot_transaction_without_writes_is_announced_as_reading() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.one_shot(["a"], []));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.all_asked(), ["begin to read", "one shot [\"a\"] []"]);
    drop(transaction);
    assert_eq!(script.all_asked(), ["rollback"]);
}

#[test]
fn a_one_shot_transaction_over_a_limit_is_not_even_begun() {
    let (script, keyspace) = Script::new();
    let limits = Limits { key_bytes: 4, value_bytes: 8, transaction_bytes: 12 };
    let keyspace = TransactionKeyspace { limits, ..keyspace };
    for (reads, writes, error) in [
        (vec!["12345"], vec![], "key too large at key `12345`: 5 bytes, the limit is 4"),
        (vec![], vec![put("12345", "")], "key too large at key `12345`: 5 bytes, the limit is 4"),
        (
            vec![],
            vec![put("a", "123456789")],
            "value too large at key `a`: 9 bytes, the limit is 8",
        ),
        (
            vec!["a", "b"],
            vec![put("c", "12345678"), put("de", "")],
            "transaction too large at key `de`: 13 bytes, the limit is 12",
        ),
    ] {
        let mut transaction = Box::pin(keyspace.one_shot(reads, writes));
        let Poll::Ready(Err(found)) = poll(&mut transaction) else { panic!() };
        assert!(matches!(found, TransactionError::TooLarge(_)));
        assert_eq!(found.to_string(), error);
    }
    assert_eq!(script.all_asked(), [] as [&str; 0]);
    let mut at_the_limit = Box::pin(keyspace.one_shot(["a", "b"], [put("cd", "12345678")]));
    assert!(poll(&mut at_the_limit).is_pending());
}

#[test]
fn an_aborted_one_shot_transaction_is_tried_again_after_a_backoff_until_the_budget_is_spent() {
    let (script, keyspace) = Script::new();
    let options = TransactOptions { attempts: 2, ..TransactOptions::default() };
    let keyspace = keyspace.with_options(options);
    let mut transaction = Box::pin(keyspace.one_shot(["a"], [put("a", "1")]));
    for attempt in 0..2 {
        assert!(poll(&mut transaction).is_pending());
        assert_eq!(script.asked(), ["one shot [\"a\"] [(\"a\", Some(\"1\"))]"]);
        let conflicts = vec![Key::from("a")];
        script.tell(attempt, Output::Outcome(Outcome::Aborted { conflicts }));
        if attempt == 0 {
            assert!(poll(&mut transaction).is_pending());
            assert_eq!(script.asked(), [] as [&str; 0], "it waits");
            script.advance(Duration::from_millis(1));
        }
    }
    let Poll::Ready(Err(error)) = poll(&mut transaction) else { panic!() };
    assert_eq!(error.to_string(), "2 attempts were all aborted, in conflict over `a`");
}

#[test]
fn a_protocol_that_offers_no_one_shots_is_asked_for_gets_and_a_commit() {
    let (script, keyspace) =
        Script::offering(Offers { one_shots: false, past: true, modifies: false });
    let begun = AtomicU32::new(0);
    let has_begun = |_: &Transaction| {
        begun.fetch_add(1, Ordering::Relaxed);
    };
    let deleted = Write { key: Key::from("b"), value: None };
    let writes = [put("a", "new"), deleted];
    let mut transaction = Box::pin(keyspace.one_shot_recorded(["a"], writes, has_begun));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.all_asked(), ["begin", "get a for update"]);
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    let commit = "commit [\"a\"] [(\"a\", Some(\"new\")), (\"b\", None)]";
    assert_eq!(script.asked(), [commit]);
    // What it reads is never its own write, in whichever run.
    script.tell(0, Output::Rewind(read("a", 2, "2")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), [commit]);
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok((committed, _))) = poll(&mut transaction) else { panic!() };
    assert_eq!(committed.value, [Some(Value::from("2"))]);
    let Committed { version: at, attempts, re_executions, .. } = committed;
    assert_eq!((at, attempts, re_executions), (version(9), 1, 1));
    assert_eq!(begun.load(Ordering::Relaxed), 2, "two runs");

    let mut another = Box::pin(keyspace.one_shot(["a"], []));
    assert!(poll(&mut another).is_pending());
    assert_eq!(script.all_asked(), ["begin to read", "get a"]);
}

#[test]
fn past_the_deadline_a_one_shot_transaction_is_unknown_if_it_writes_and_else_unavailable() {
    let (script, keyspace) = Script::new();
    let deadline = keyspace.options().deadline;
    let mut reading = Box::pin(keyspace.one_shot(["a", "b"], []));
    assert!(poll(&mut reading).is_pending());
    script.tell(0, Output::Began(version(8)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    script.advance(deadline);
    let Poll::Ready(Err(error)) = poll(&mut reading) else { panic!() };
    assert!(matches!(error, TransactionError::Unavailable { .. }));
    assert!(error.to_string().contains("the value of `b`"), "{error}");

    let mut writing = Box::pin(keyspace.one_shot(["a"], [put("a", "1")]));
    assert!(poll(&mut writing).is_pending());
    script.tell(1, Output::Began(version(9)));
    script.advance(deadline);
    let Poll::Ready(Err(error)) = poll(&mut writing) else { panic!() };
    assert!(matches!(error, TransactionError::Unknown { txn, .. } if txn == version(9)));
    assert_eq!(script.asked().last().unwrap(), "rollback");
}

#[test]
fn a_one_shot_transaction_that_its_coordinator_has_not_begun_at_the_deadline_waits_for_its_version()
{
    let (script, keyspace) = Script::new();
    let mut writing = Box::pin(keyspace.one_shot(["a"], [put("a", "1")]));
    assert!(poll(&mut writing).is_pending());
    script.advance(keyspace.options().deadline);
    let woken = Arc::new(Counted::default());
    let waker = Waker::from(woken.clone());
    assert!(writing.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    script.tell(0, Output::Began(version(9)));
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let Poll::Ready(Err(error)) = poll(&mut writing) else { panic!() };
    assert!(matches!(error, TransactionError::Unknown { txn, .. } if txn == version(9)));
}

#[test]
fn a_one_shot_transaction_waits_for_a_place_and_is_unavailable_if_there_is_none_in_time() {
    let (script, keyspace) = Script::new();
    let mut open: Vec<_> = (0..2).map(|_| Box::pin(keyspace.get("a"))).collect();
    for transaction in &mut open {
        assert!(poll(transaction).is_pending());
    }
    script.asked();
    let mut waiting = Box::pin(keyspace.one_shot(["b"], [put("b", "1")]));
    assert!(poll(&mut waiting).is_pending());
    assert_eq!(script.all_asked(), [] as [&str; 0]);
    drop(open.pop());
    assert!(poll(&mut waiting).is_pending());
    assert_eq!(script.asked(), ["rollback", "one shot [\"b\"] [(\"b\", Some(\"1\"))]"]);

    let mut late = Box::pin(keyspace.one_shot(["b"], [put("b", "1")]));
    assert!(poll(&mut late).is_pending());
    script.advance(keyspace.options().deadline);
    let Poll::Ready(Err(error)) = poll(&mut late) else { panic!() };
    assert!(matches!(error, TransactionError::Unavailable { .. }), "{error}");
}

#[test]
fn transactions_that_are_announced_can_be_spawned_onto_any_thread() {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    let (_, keyspace) = Script::new();
    let owned = keyspace.clone();
    drop(sendable(async move { owned.one_shot(["a"], [put("a", "1")]).await }));
    drop(sendable(async move {
        let key = &Key::from("a");
        keyspace.read_only(|snapshot| async move { snapshot.get(key).await }).await
    }));
}

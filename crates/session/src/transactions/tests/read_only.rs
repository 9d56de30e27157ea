//! Transactions that only read.

use super::*;

#[test]
fn a_program_that_only_reads_is_announced_as_one() {
    let (script, keyspace) = Script::new();
    let mut read_only =
        Box::pin(keyspace.read_only(|snapshot| async move { snapshot.get_many(["a", "b"]).await }));
    assert!(poll(&mut read_only).is_pending());
    assert_eq!(script.all_asked(), ["begin to read", "get a", "get b"]);
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("b", 2, "2")));
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut read_only).is_pending());
    assert_eq!(script.all_asked(), ["commit [\"a\", \"b\"] []"]);
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok(committed)) = poll(&mut read_only) else { panic!() };
    assert_eq!(committed.value, [Some(Value::from("1")), Some(Value::from("2"))]);

    assert!(poll(&mut Box::pin(keyspace.get("a"))).is_pending());
    assert_eq!(script.all_asked()[0], "begin to read");
    assert!(poll(&mut Box::pin(keyspace.get_many(["a"]))).is_pending());
    assert_eq!(script.all_asked()[0], "begin to read");
    let recorded = keyspace.read_only_recorded(|snapshot| async move { snapshot.get("a").await });
    assert!(poll(&mut Box::pin(recorded)).is_pending());
    assert_eq!(script.all_asked()[0], "begin to read");
    let may_write = keyspace.transact(|tx| async move { tx.get("a").await });
    assert!(poll(&mut Box::pin(may_write)).is_pending());
    assert_eq!(script.all_asked()[0], "begin");
}

#[test]
fn a_write_where_only_reads_were_announced_ends_the_run_there_and_names_the_key() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact_read_only_recorded(|tx| async move {
        if tx.get("a").await?.is_some() {
            tx.put("b", "1");
            tx.delete("c");
        }
        tx.get("d").await
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    let Poll::Ready(Err(error)) = poll(&mut transaction) else { panic!() };
    assert!(matches!(&error, TransactionError::OnlyReads { key } if *key == Key::from("b")));
    assert!(error.to_string().contains("`b`"), "{error}");
    assert_eq!(script.asked(), ["get a", "rollback"]);
    assert_eq!(script.switchboard.lock().unwrap().open_recipients(), 0);
}

#[test]
fn the_last_version_that_a_transaction_is_given_is_its_own() {
    let (script, keyspace) = Script::new();
    let mut reading = Box::pin(keyspace.read_only(|snapshot| async move {
        let value = snapshot.get("a").await?;
        Ok((value, snapshot.version()))
    }));
    assert!(poll(&mut reading).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut reading).is_pending());
    script.tell(0, Output::Began(version(12)));
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok(committed)) = poll(&mut reading) else { panic!() };
    assert_eq!((committed.value.1, committed.version), (Some(version(9)), version(12)));

    let mut writing = Box::pin(keyspace.put("a", "1"));
    assert!(poll(&mut writing).is_pending());
    script.tell(1, Output::Began(version(20)));
    script.tell(1, Output::Began(version(21)));
    script.advance(keyspace.options().deadline);
    let Poll::Ready(Err(error)) = poll(&mut writing) else { panic!() };
    assert!(matches!(error, TransactionError::Unknown { txn, .. } if txn == version(21)));
}

#[test]
fn of_many_reads_at_once_only_the_first_that_is_missing_wakes_the_program() {
    let (script, keyspace) = Script::new();
    let keys: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
    let mut reading = Box::pin(keyspace.get_many(keys.iter().map(String::as_str)));
    let woken = Arc::new(Counted::default());
    let waker = Waker::from(woken.clone());
    let mut poll = || reading.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    assert_eq!(script.asked().len(), 1000, "each is asked for once, and all together");
    script.tell(0, Output::Began(version(9)));
    for key in keys[500..].iter().rev() {
        script.tell(0, Output::Value(read(key, 1, key)));
    }
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    for (i, key) in keys[..500].iter().enumerate() {
        script.tell(0, Output::Value(read(key, 1, key)));
        assert_eq!(woken.0.load(Ordering::Relaxed), i as u32 + 1);
        assert!(poll().is_pending());
    }
    assert_eq!(script.asked().len(), 1, "the commit");
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok(values)) = poll() else { panic!() };
    let expected = keys.iter().map(|key| Some(Value::from(key.as_str())));
    assert!(values.into_iter().eq(expected));
}

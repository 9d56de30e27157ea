//! Transactions. The tests play the coordinator.

mod modify;
mod one_shot;
mod read_only;
mod report;
mod too_long;
mod unknown;

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried_model::transactions::{Ending, Offers, Operation, Outcome, Output, Past};
use serried_model::{Key, Modify, ReadValue, Transactions, Value, Version};

use crate::script::version;
use crate::{
    Abort, Committed, Next, Step, TransactOptions, Transaction, TransactionError,
    TransactionKeyspace,
};

type Script = crate::script::Script<Transactions>;

impl Script {
    fn new() -> (Arc<Script>, TransactionKeyspace) {
        Script::offering(Offers { one_shots: true, past: true, modifies: true })
    }

    /// The operations since the last call except `Begin`, one line each.
    fn asked(&self) -> Vec<String> {
        self.all_asked().into_iter().filter(|line| !line.starts_with("begin")).collect()
    }

    /// The operations since the last call, one line each.
    fn all_asked(&self) -> Vec<String> {
        let line = |operation| match operation {
            Operation::Get { key, for_update: false } => format!("get {key}"),
            Operation::Get { key, for_update: true } => format!("get {key} for update"),
            Operation::Put(write) => format!("put {} {:?}", write.key, write.value),
            Operation::Commit { reads, writes, modifies } => {
                let reads: Vec<_> = reads.iter().map(|read| &read.key).collect();
                let writes: Vec<_> = writes.iter().map(|w| (&w.key, &w.value)).collect();
                format!("commit {reads:?} {writes:?}{}", modified(&modifies))
            }
            Operation::Inquire { version } => format!("inquire {version}"),
            Operation::GetAt { key, at } => format!("get {key} at {at}"),
            Operation::Rollback => "rollback".to_string(),
            Operation::OneShot { reads, writes, modifies } => {
                let writes: Vec<_> = writes.iter().map(|w| (&w.key, &w.value)).collect();
                format!("one shot {reads:?} {writes:?}{}", modified(&modifies))
            }
            Operation::Begin { only_reads: false, .. } => "begin".to_string(),
            Operation::Begin { only_reads: true, .. } => "begin to read".to_string(),
        };
        self.take_operations().into_iter().map(line).collect()
    }
}

/// The keys of modifications, and how many there are of each.
fn modified(modifies: &[Modify]) -> String {
    let one = |modify: &Modify| format!(" {} x{}", modify.key, modify.modifications.len());
    modifies.iter().map(one).collect()
}

fn read(key: &str, at: u64, value: &str) -> ReadValue {
    let value = (!value.is_empty()).then(|| Value::from(value));
    ReadValue { key: Key::from(key), version: version(at), value, stamp: at as u32 }
}

fn poll<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn text(value: Option<Value>) -> String {
    value.map_or("nothing".to_string(), |value| value.to_string())
}

#[test]
fn a_rewound_program_reads_from_memory_and_requests_only_new_keys() {
    let (script, keyspace) = Script::new();
    let runs = AtomicU32::new(0);
    let mut transaction = Box::pin(keyspace.transact_recorded(|tx| {
        runs.fetch_add(1, Ordering::Relaxed);
        async move {
            let a = text(tx.get("a").await?);
            let b = text(tx.get("b").await?);
            if a == "2" {
                tx.get("c").await?;
            }
            tx.put("b", "w");
            Ok(a + &b)
        }
    }));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["get a"]);
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Value(read("b", 2, "")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["get b", "commit [\"a\", \"b\"] [(\"b\", Some(\"w\"))]"]);

    script.tell(0, Output::Rewind(read("a", 3, "2")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["get c"]);
    script.tell(0, Output::Value(read("c", 1, "")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["commit [\"a\", \"b\", \"c\"] [(\"b\", Some(\"w\"))]"]);

    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok((committed, footprint))) = poll(&mut transaction) else { panic!() };
    assert_eq!(committed.value, "2nothing");
    assert_eq!(
        (committed.version, committed.attempts, committed.re_executions),
        (version(9), 1, 1)
    );
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    assert_eq!(footprint.reads[0], read("a", 3, "2"));
    assert_eq!(footprint.reads_sent_by_re_executions, 1);
}

#[test]
fn reads_for_update_are_requested_as_such_unless_the_transaction_has_read_the_key() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        tx.get("a").await?;
        let others = tx.get_many(["b", "c", "d", "e"]).for_update(1..2).for_update(3..);
        let first = tx.get_for_update("a");
        tx.put("w", "1");
        first.await?;
        tx.get_for_update("w").await?;
        others.await
    }));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["get a"]);
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    let gets = ["get b", "get c for update", "get d", "get e for update"];
    assert_eq!(script.asked()[1..], gets, "a was read, and w was written");
}

#[test]
fn several_reads_are_requested_together_or_one_by_one() {
    for one_by_one in [false, true] {
        let (script, keyspace) = Script::new();
        let mut transaction = Box::pin(keyspace.transact(|tx| async move {
            tx.get_many(["a", "b"]).one_by_one(one_by_one).for_update(1..).await
        }));
        assert!(poll(&mut transaction).is_pending());
        script.tell(0, Output::Began(version(9)));
        let all = ["get a", "get b for update"];
        assert_eq!(script.asked(), all[..if one_by_one { 1 } else { 2 }]);
        script.tell(0, Output::Value(read("a", 1, "1")));
        assert!(poll(&mut transaction).is_pending());
        assert_eq!(script.asked(), all[if one_by_one { 1 } else { 2 }..]);
        script.tell(0, Output::Value(read("b", 1, "2")));
        assert!(poll(&mut transaction).is_pending());
        assert_eq!(script.asked(), ["commit [\"a\", \"b\"] []"]);
    }
}

#[test]
fn a_read_becomes_one_for_update_as_long_as_it_is_not_requested() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        let mut plain = Box::pin(tx.get("a"));
        let other = Box::pin(tx.get("b"));
        assert!(poll(&mut plain).is_pending());
        tx.get_for_update("a").await?;
        other.await
    }));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["get a for update"]);
}

#[test]
fn a_new_version_of_the_same_value_commits_again_without_a_run() {
    let (script, keyspace) = Script::new();
    let runs = AtomicU32::new(0);
    let mut transaction = Box::pin(keyspace.transact(|tx| {
        runs.fetch_add(1, Ordering::Relaxed);
        async move { tx.get("a").await }
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.asked();
    script.tell(0, Output::Rewind(read("a", 2, "1")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["commit [\"a\"] []"]);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[test]
fn a_run_is_not_disturbed_by_changes_of_keys_it_has_not_read() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        if tx.get("a").await?.is_some() {
            tx.get("b").await?;
        }
        tx.get("c").await
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Rewind(read("a", 2, "")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["get a", "get b", "get c"]);
    script.tell(0, Output::Value(read("b", 1, "1")));
    script.tell(0, Output::Rewind(read("b", 2, "2")));
    script.tell(0, Output::Value(read("c", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["commit [\"a\", \"c\"] []"]);
}

#[test]
fn writes_are_announced_when_the_program_waits_and_can_be_read_before() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        tx.put("a", "1");
        tx.delete("b");
        tx.put("a", "2");
        assert_eq!(text(tx.get("a").await?), "2");
        assert_eq!(tx.get("b").await?, None);
        tx.get("c").await
    }));
    assert!(poll(&mut transaction).is_pending());
    let asked = script.asked();
    assert!(asked.contains(&"put a Some(\"2\")".to_string()), "{asked:?}");
    assert!(asked.contains(&"put b None".to_string()), "{asked:?}");
    assert_eq!(asked.last().unwrap(), "get c");
}

#[test]
fn an_aborted_attempt_is_tried_again_after_a_backoff_until_the_budget_is_spent() {
    let (script, keyspace) = Script::new();
    let options = TransactOptions { attempts: 2, ..TransactOptions::default() };
    let keyspace = keyspace.with_options(options);
    let mut transaction = Box::pin(keyspace.put("a", "1"));
    for attempt in 0..2 {
        assert!(poll(&mut transaction).is_pending());
        assert_eq!(script.asked(), ["commit [] [(\"a\", Some(\"1\"))]"]);
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

/// The ages with which attempts have begun since the last call.
fn ages(script: &Script) -> Vec<Option<Version>> {
    let age = |operation| match operation {
        Operation::Begin { age, .. } => Some(age),
        _ => None,
    };
    script.take_operations().into_iter().filter_map(age).collect()
}

#[test]
fn all_attempts_after_the_first_have_its_version_as_their_age() {
    let (script, keyspace) = Script::new();
    let aborted = || Output::Outcome(Outcome::Aborted { conflicts: Vec::new() });
    let second = Duration::from_secs(1);
    let mut transaction = Box::pin(keyspace.put("a", "1"));
    let mut one_shot = Box::pin(keyspace.one_shot(["a"], []));
    for expected in [None, Some(version(7)), Some(version(7))] {
        assert!(poll(&mut transaction).is_pending());
        assert_eq!(ages(&script), [expected]);
        let at = if expected.is_none() { 7 } else { 9 };
        script.tell_last(Output::Began(version(at)));
        script.tell_last(aborted());
        assert!(poll(&mut transaction).is_pending());
        script.advance(second);
    }
    for expected in [None, Some(version(8))] {
        assert!(poll(&mut one_shot).is_pending());
        assert_eq!(ages(&script), [expected]);
        script.tell_last(Output::Began(version(8)));
        script.tell_last(aborted());
        assert!(poll(&mut one_shot).is_pending());
        script.advance(second);
    }
}

#[test]
fn a_pause_follows_the_last_attempt_alone() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.put("a", "1"));
    assert!(poll(&mut transaction).is_pending());
    for pause_us in [400, 800] {
        assert_eq!(ages(&script).len(), 1);
        script.advance(Duration::from_micros(400));
        script.tell_last(Output::Outcome(Outcome::Aborted { conflicts: Vec::new() }));
        assert!(poll(&mut transaction).is_pending());
        assert_eq!(ages(&script), [], "it waits");
        script.advance(Duration::from_micros(pause_us));
        assert!(poll(&mut transaction).is_pending());
    }
    assert_eq!(ages(&script).len(), 1);
}

#[derive(Debug, thiserror::Error, PartialEq)]
#[error("only {0} left")]
struct Insufficient(u32);

#[test]
fn the_programs_error_is_returned_once_its_reads_are_committed() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        tx.put("a", "1");
        tx.get("a").await?;
        tx.get("b").await?;
        Err::<(), _>(Insufficient(3).into())
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("b", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked().last().unwrap(), "commit [\"b\"] []");
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Err(error)) = poll(&mut transaction) else { panic!() };
    assert_eq!(error.application::<Insufficient>(), Some(&Insufficient(3)));
}

#[test]
fn an_error_before_any_read_is_returned_at_once_and_rolls_back() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        tx.put("a", "1");
        Err::<(), _>(Abort::new("no"))
    }));
    assert!(matches!(poll(&mut transaction), Poll::Ready(Err(TransactionError::Application(_)))));
    assert_eq!(script.asked(), ["rollback"]);
    assert_eq!(script.switchboard.lock().unwrap().open_recipients(), 0);
}

#[test]
fn a_transaction_that_is_dropped_or_panics_is_rolled_back() {
    let (script, keyspace) = Script::new();
    let mut dropped = Box::pin(keyspace.get("a"));
    assert!(poll(&mut dropped).is_pending());
    drop(dropped);
    assert_eq!(script.asked(), ["get a", "rollback"]);

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut transaction = Box::pin(keyspace.transact(|tx| async move {
            tx.put("a", "1");
            if tx.get("a").await?.is_some() {
                panic!("by the program");
            }
            Ok(())
        }));
        poll(&mut transaction).is_pending()
    }));
    assert!(panicked.is_err());
    assert_eq!(script.asked(), ["rollback"]);
    assert_eq!(script.switchboard.lock().unwrap().open_recipients(), 0);
}

#[test]
fn past_the_deadline_a_read_is_unavailable_and_a_commit_is_unknown() {
    let (script, keyspace) = Script::new();
    let deadline = keyspace.options().deadline;
    let mut reading = Box::pin(keyspace.get("a"));
    assert!(poll(&mut reading).is_pending());
    script.advance(deadline);
    let Poll::Ready(Err(error)) = poll(&mut reading) else { panic!() };
    assert!(matches!(error, TransactionError::Unavailable { .. }));
    assert!(error.to_string().contains("the value of `a`"), "{error}");

    let mut writing = Box::pin(keyspace.put("a", "1"));
    assert!(poll(&mut writing).is_pending());
    script.tell(1, Output::Began(version(9)));
    script.advance(deadline);
    let Poll::Ready(Err(error)) = poll(&mut writing) else { panic!() };
    assert!(matches!(error, TransactionError::Unknown { txn, .. } if txn == version(9)));
    assert_eq!(script.asked().last().unwrap(), "rollback");
}

/// Writes `b` if `a` is 1, and otherwise returns `otherwise`.
async fn write_if(
    tx: Transaction,
    otherwise: impl AsyncFnOnce(&Transaction) -> Result<(), Abort>,
) -> Result<(), Abort> {
    if text(tx.get("a").await?) == "1" {
        tx.put("b", "w");
        return Ok(());
    }
    otherwise(&tx).await
}

#[test]
fn a_commit_of_an_earlier_run_may_still_take_effect() {
    for (waits, after_rewind) in [(true, "get c"), (false, "commit [\"a\"] []")] {
        let (script, keyspace) = Script::new();
        let mut transaction = Box::pin(keyspace.transact(|tx| {
            write_if(tx, async move |tx| match waits {
                true => tx.get("c").await.map(drop),
                false => Err(Insufficient(3).into()),
            })
        }));
        assert!(poll(&mut transaction).is_pending());
        script.tell(0, Output::Began(version(9)));
        script.tell(0, Output::Value(read("a", 1, "1")));
        assert!(poll(&mut transaction).is_pending());
        assert_eq!(script.asked(), ["get a", "commit [\"a\"] [(\"b\", Some(\"w\"))]"]);
        script.tell(0, Output::Rewind(read("a", 2, "2")));
        assert!(poll(&mut transaction).is_pending());
        assert_eq!(script.asked(), [after_rewind]);
        script.advance(keyspace.options().deadline);
        let Poll::Ready(Err(error)) = poll(&mut transaction) else { panic!() };
        assert!(
            matches!(error, TransactionError::Unknown { txn, .. } if txn == version(9)),
            "{error}"
        );
    }
}

#[test]
fn an_error_before_any_read_waits_until_no_earlier_run_can_commit() {
    let (script, keyspace) = Script::new();
    let runs = AtomicU32::new(0);
    let mut transaction = Box::pin(keyspace.transact(|tx| {
        let first = runs.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            if !first {
                return Err(Abort::new("no"));
            }
            tx.get("a").await?;
            tx.put("b", "w");
            Ok(())
        }
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Rewind(read("a", 2, "2")));
    assert!(poll(&mut transaction).is_pending(), "the first run may have committed");
    assert_eq!(script.asked().last().unwrap(), "commit [] []");
    script.tell(0, Output::Outcome(Outcome::Committed));
    assert!(matches!(poll(&mut transaction), Poll::Ready(Err(TransactionError::Application(_)))));
}

#[test]
fn at_the_deadline_a_commit_without_a_version_waits_for_one() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.put("a", "1"));
    assert!(poll(&mut transaction).is_pending());
    script.advance(keyspace.options().deadline);
    assert!(poll(&mut transaction).is_pending(), "it may take effect, and can't be named");
    script.tell(0, Output::Began(version(9)));
    let Poll::Ready(Err(error)) = poll(&mut transaction) else { panic!() };
    assert!(matches!(error, TransactionError::Unknown { txn, .. } if txn == version(9)), "{error}");
}

#[test]
fn what_is_too_large_is_refused_before_sending() {
    let (script, keyspace) = Script::new();
    let mut large_value = Box::pin(keyspace.put("a", "123456789"));
    let Poll::Ready(Err(error)) = poll(&mut large_value) else { panic!() };
    assert_eq!(error.to_string(), "value too large at key `a`: 9 bytes, the limit is 8");
    let mut large_key = Box::pin(keyspace.get(vec![b'k'; 9000]));
    let Poll::Ready(Err(error)) = poll(&mut large_key) else { panic!() };
    assert!(matches!(error, TransactionError::TooLarge(_)));
    assert_eq!(script.asked(), ["rollback", "rollback"]);
}

#[test]
fn an_empty_key_is_refused_before_sending() {
    let (script, keyspace) = Script::new();
    let is_named = |result: Poll<Result<(), TransactionError>>| {
        let Poll::Ready(Err(error)) = result else { panic!() };
        assert!(matches!(error, TransactionError::EmptyKey), "{error}");
        assert_eq!(error.to_string(), "a key is empty: give it at least one byte");
    };
    is_named(poll(&mut Box::pin(async { keyspace.put("", "1").await.map(drop) })));
    is_named(poll(&mut Box::pin(async { keyspace.delete("").await.map(drop) })));
    is_named(poll(&mut Box::pin(async { keyspace.get("").await.map(drop) })));
    is_named(poll(&mut Box::pin(async { keyspace.get_at("", version(1)).await.map(drop) })));
    is_named(poll(&mut Box::pin(async { keyspace.one_shot([""], []).await.map(drop) })));
    assert!(script.asked().iter().all(|asked| asked == "rollback"), "{:?}", script.asked());
}

#[test]
fn a_read_that_changes_before_the_commit_is_run_again_first() {
    let (script, keyspace) = Script::new();
    let runs = AtomicU32::new(0);
    let (other, runs_seen) = (script.clone(), &runs);
    let mut transaction = Box::pin(keyspace.transact(|tx| {
        let (other, run) = (other.clone(), runs_seen.fetch_add(1, Ordering::Relaxed));
        async move {
            let a = text(tx.get("a").await?);
            if run == 0 {
                // As if another thread delivered the change while the program computes.
                other.tell(0, Output::Rewind(read("a", 2, "2")));
            }
            tx.put("b", a);
            Ok(())
        }
    }));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["get a", "commit [\"a\"] [(\"b\", Some(\"2\"))]"]);
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[test]
fn a_read_dropped_before_its_answer_is_not_part_of_the_transaction() {
    let (script, keyspace) = Script::new();
    let mut transaction = Box::pin(keyspace.transact(|tx| async move {
        let mut given_up = Box::pin(tx.get("a"));
        let polled = core::future::poll_fn(|cx| Poll::Ready(given_up.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        tx.put("b", "1");
        Ok(())
    }));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), ["commit [] [(\"b\", Some(\"1\"))]"]);
    // Its answer comes late and then changes. The commit does not depend on it.
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    script.tell(0, Output::Rewind(read("a", 2, "2")));
    assert!(poll(&mut transaction).is_pending());
    assert_eq!(script.asked(), [] as [&str; 0]);
    script.tell(0, Output::Outcome(Outcome::Committed));
    assert!(matches!(poll(&mut transaction), Poll::Ready(Ok(_))));
}

#[test]
fn a_free_place_is_not_lost_on_a_waiter_that_has_gone() {
    let (script, keyspace) = Script::new();
    let mut open: Vec<_> = (0..2).map(|_| Box::pin(keyspace.get("a"))).collect();
    let (gone, woken) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
    let mut waiters: Vec<_> = (0..2).map(|_| Box::pin(keyspace.get("b"))).collect();
    for transaction in &mut open {
        assert!(poll(transaction).is_pending());
    }
    for (waiter, counted) in waiters.iter_mut().zip([&gone, &woken]) {
        let waker = Waker::from(counted.clone());
        assert!(waiter.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(waiters.remove(0));
    drop(open);
    assert!(woken.0.load(Ordering::Relaxed) > 0);
    assert!(poll(&mut waiters[0]).is_pending());
    assert_eq!(script.asked().last().unwrap(), "get b");
}

/// Counts how often it is woken.
#[derive(Default)]
struct Counted(AtomicU32);

impl std::task::Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn transactions_wait_for_a_free_place() {
    let (script, keyspace) = Script::new();
    let mut transactions: Vec<_> = (0..3).map(|_| Box::pin(keyspace.get("a"))).collect();
    for transaction in &mut transactions {
        assert!(poll(transaction).is_pending());
    }
    assert_eq!(script.asked(), ["get a", "get a"]);
    drop(transactions.remove(0));
    assert!(poll(&mut transactions[1]).is_pending());
    assert_eq!(script.asked(), ["rollback", "get a"]);
}

#[test]
fn continuations_resume_at_the_changed_read_with_their_context() {
    let (script, keyspace) = Script::new();
    let prefixes = AtomicU32::new(0);
    let first = |step: &Step| {
        prefixes.fetch_add(1, Ordering::Relaxed);
        step.put("log", "start");
        step.get(String::from("c"), "a", |step, context, a| {
            step.put("seen", text(a));
            step.get(context + "!", "b", |step, context, b| {
                step.put("b", text(b));
                Next::Commit(context)
            })
        })
    };
    let mut transaction = Box::pin(keyspace.transact_in_steps(first));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Value(read("a", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.tell(0, Output::Value(read("b", 1, "1")));
    assert!(poll(&mut transaction).is_pending());
    script.asked();
    for (key, value, commit) in [
        ("b", "2", "[(\"log\", Some(\"start\")), (\"seen\", Some(\"1\")), (\"b\", Some(\"2\"))]"),
        ("a", "3", "[(\"log\", Some(\"start\")), (\"seen\", Some(\"3\")), (\"b\", Some(\"2\"))]"),
    ] {
        script.tell(0, Output::Rewind(read(key, 2, value)));
        assert!(poll(&mut transaction).is_pending());
        assert_eq!(script.asked(), [format!("commit [\"a\", \"b\"] {commit}")]);
    }
    script.tell(0, Output::Outcome(Outcome::Committed));
    let Poll::Ready(Ok(committed)) = poll(&mut transaction) else { panic!() };
    assert_eq!((committed.value.as_str(), committed.re_executions), ("c!", 2));
    assert_eq!(prefixes.load(Ordering::Relaxed), 1, "the beginning ran once");
}

#[test]
fn a_transaction_can_be_spawned_onto_any_thread() {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    let (_, keyspace) = Script::new();
    drop(sendable(keyspace.transact(|tx| async move { tx.get("a").await })));
    let ks = keyspace.clone();
    let a = async move {
        let k = Key::from("a");
        let kr = &k;
        ks.transact(|tx| async move { tx.get(kr).await }).await
    };
    drop(sendable(a));
    let ks = keyspace.clone();
    let b = async move {
        let k = Key::from("a");
        ks.transact(|tx| {
            let k = &k;
            async move { tx.get(k).await }
        })
        .await
    };
    drop(sendable(b));
    let ks = keyspace.clone();
    let c = async move {
        let k = Key::from("a");
        let v = Value::from("a");
        let (k, v) = (&k, &v);
        ks.transact(|tx| async move {
            tx.put(k, v);
            Ok(())
        })
        .await
    };
    drop(sendable(c));
    let ks = keyspace.clone();
    let d = async move {
        let keys = vec![Key::from("a")];
        let keys = &keys;
        ks.transact(|tx| async move { tx.get_many(keys).await }).await
    };
    drop(sendable(d));
    let owned = async move { keyspace.put("a", "1").await };
    drop(sendable(owned));
}

#[test]
fn the_past_and_an_outcome_are_asked_for_outside_of_transactions() {
    let (script, keyspace) = Script::new();
    let mut past = Box::pin(keyspace.get_at("a", version(3)));
    assert!(poll(&mut past).is_pending());
    assert_eq!(script.all_asked(), [format!("get a at {}", version(3))]);
    script.tell(0, Output::Past(Past::Held(Some(Value::from("1")))));
    let Poll::Ready(Ok(held)) = poll(&mut past) else { panic!() };
    assert_eq!(text(held), "1");
    let mut ending = Box::pin(keyspace.outcome(version(3)));
    assert!(poll(&mut ending).is_pending());
    script.tell(1, Output::Ending(Ending::Forgotten));
    let Poll::Ready(Ok(ending)) = poll(&mut ending) else { panic!() };
    assert_eq!(ending, Ending::Forgotten);
}

#[test]
fn a_past_that_is_not_offered_is_refused_before_sending() {
    let (script, keyspace) =
        Script::offering(Offers { one_shots: true, past: false, modifies: true });
    let mut past = Box::pin(keyspace.get_at("a", version(3)));
    let Poll::Ready(Err(error)) = poll(&mut past) else { panic!("it is refused at once") };
    assert!(matches!(error, TransactionError::NoPast { .. }), "{error}");
    assert_eq!(script.take_operations(), []);
}

/// It may have committed.
#[test]
fn an_outcome_that_nobody_says_is_not_known() {
    let (script, keyspace) = Script::new();
    let mut asked = Box::pin(keyspace.outcome(version(7)));
    assert!(poll(&mut asked).is_pending());
    script.advance(Duration::from_secs(11));
    let Poll::Ready(Err(error)) = poll(&mut asked) else { panic!("its deadline has passed") };
    assert!(matches!(error, TransactionError::Unavailable { .. }), "{error}");
}

//! What a coordinator does not know the end of is neither tried again nor called a failure.

use serried_model::Write;

use super::*;

#[test]
fn a_transaction_of_which_its_coordinator_does_not_know_the_end_is_not_tried_again() {
    let (script, keyspace) = Script::new();
    let write = Write { key: Key::from("a"), value: Some(Value::from("1")) };
    let mut one_shot = Box::pin(keyspace.one_shot(["a"], [write]));
    assert!(poll(&mut one_shot).is_pending());
    script.asked();
    script.tell(0, Output::Began(version(9)));
    script.tell(0, Output::Outcome(Outcome::Unknown));
    let Poll::Ready(Err(error)) = poll(&mut one_shot) else { panic!("it is over") };
    assert!(matches!(error, TransactionError::Unknown { txn, .. } if txn == version(9)), "{error}");
    let mut program = Box::pin(keyspace.put("a", "1"));
    assert!(poll(&mut program).is_pending());
    script.asked();
    script.tell(1, Output::Began(version(10)));
    script.tell(1, Output::Outcome(Outcome::Unknown));
    let Poll::Ready(Err(error)) = poll(&mut program) else { panic!("it is over") };
    assert!(
        matches!(error, TransactionError::Unknown { txn, .. } if txn == version(10)),
        "{error}"
    );
    assert_eq!(script.all_asked(), [] as [&str; 0], "it may have taken effect");
}

//! Operations on registers. The tests play the coordinator.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::time::Duration;

use serried_model::registers::{Offers, Operation, Outcome, Output};
use serried_model::{Access, Accessed, Carstamp, Key, Modification, Registers, Token, Value};

use crate::script::version;
use crate::{RegisterError, RegisterKeyspace};

type Script = crate::script::Script<Registers>;

impl Script {
    fn new() -> (Arc<Script>, RegisterKeyspace) {
        Script::offering(Offers { rmws: true })
    }
}

fn poll<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// The coordinator continues a write while its session gives it up. The write was once reported as without effect
/// although others had read it (simulated ABD, seed 1664).
#[test]
fn a_write_that_is_given_up_waits_for_its_outcome() {
    let id = version(9);
    let carstamp = Carstamp { timestamp: 3, ..Carstamp::INITIAL };
    for placed in [false, true] {
        let (script, registers) = Script::new();
        let access = Access::Write(Some(Value::from("1")));
        let mut write = Box::pin(registers.access(Key::from("x"), access, None));
        assert!(poll(&mut write).is_pending());
        script.tell(0, Output::Began(id));
        script.advance(Duration::from_secs(11));
        assert!(poll(&mut write).is_pending(), "it waits for its coordinator's answer");
        assert_eq!(script.take_operations()[1..], [Operation::GiveUp]);
        let outcome = match placed {
            true => {
                script.tell(0, Output::Placed(carstamp));
                Outcome::Unknown
            }
            false => Outcome::NoEffect,
        };
        script.tell(0, Output::Outcome(outcome));
        let Poll::Ready(Err(error)) = poll(&mut write) else { panic!("it is over") };
        match error {
            RegisterError::Unknown { token, .. } if placed => {
                assert_eq!(token, Token { id, carstamp: Some(carstamp) });
            }
            RegisterError::Unavailable { .. } if !placed => {}
            error => panic!("{error}"),
        }
    }
}

#[test]
fn an_rmw_on_the_wrong_type_names_the_key_and_both_types() {
    let (script, registers) = Script::new();
    let mut add = Box::pin(registers.increment("x", 1));
    assert!(poll(&mut add).is_pending());
    let found = Accessed { found: Some(Value::from("one")), carstamp: Carstamp::INITIAL };
    script.tell(0, Output::Outcome(Outcome::Done(found)));
    let Poll::Ready(Err(error)) = poll(&mut add) else { panic!("it is over") };
    assert_eq!(error.to_string(), "`x`: the value is text, and has to be an integer");
}

#[test]
fn an_rmw_that_is_tried_again_has_the_token_and_the_type_of_the_first_try() {
    let token = Token { id: version(9), carstamp: None };
    for (found, ended) in [("7", Some("8")), ("one", None)] {
        let (script, registers) = Script::new();
        let mut again = Box::pin(registers.retry_rmw("x", Modification::add(1), token));
        assert!(poll(&mut again).is_pending());
        let operations = script.take_operations();
        let [Operation::Access { access, token: sent, .. }] = &operations[..] else {
            panic!("{operations:?}")
        };
        assert!(matches!(access, Access::Modify(Modification::Add { delta: 1, .. })));
        assert_eq!(*sent, Some(token));
        let found = Accessed { found: Some(Value::from(found)), carstamp: Carstamp::INITIAL };
        script.tell(0, Output::Outcome(Outcome::Done(found)));
        let Poll::Ready(result) = poll(&mut again) else { panic!("it is over") };
        match (result, ended) {
            (Ok(modified), Some(ended)) => assert_eq!(modified.value, Some(Value::from(ended))),
            (Err(error), None) => assert!(matches!(error, RegisterError::WrongType { .. })),
            (result, _) => panic!("{result:?}"),
        }
    }
}

#[test]
fn an_rmw_that_is_not_offered_is_refused_before_sending() {
    let (script, registers) = Script::offering(Offers { rmws: false });
    let mut add = Box::pin(registers.rmw("x", Modification::add(1)));
    let Poll::Ready(Err(error)) = poll(&mut add) else { panic!("it is refused at once") };
    assert!(matches!(error, RegisterError::NoReadModifyWrites { .. }), "{error}");
    assert_eq!(script.take_operations(), []);
}

#[test]
fn an_update_that_could_not_be_retried_is_still_unknown() {
    let (script, registers) = Script::new();
    let token = Token { id: version(9), carstamp: None };
    let others: Vec<_> = (0..2)
        .map(|_| {
            let mut other = Box::pin(registers.read("y"));
            assert!(poll(&mut other).is_pending());
            other
        })
        .collect();
    let again = registers.access(Key::from("x"), Access::Write(None), Some(token));
    let mut again = Box::pin(again);
    assert!(poll(&mut again).is_pending(), "there is no place for it");
    script.advance(Duration::from_secs(11));
    let Poll::Ready(Err(error)) = poll(&mut again) else { panic!("its deadline has passed") };
    assert!(matches!(error, RegisterError::Unknown { token: same, .. } if same == token));
    drop(others);
}

#[test]
fn an_update_that_can_not_be_tried_again_because_nothing_can_be_written_is_still_unknown() {
    let (script, registers) = Script::new();
    *script.obstacle.lock().unwrap() = Some("disks are full".to_string());
    let token = Token { id: version(9), carstamp: None };
    for tried in [None, Some(token)] {
        let mut update = Box::pin(registers.access(Key::from("x"), Access::Write(None), tried));
        let Poll::Ready(Err(error)) = poll(&mut update) else { panic!("it is refused at once") };
        match error {
            RegisterError::Unknown { token: same, .. } => assert_eq!(Some(same), tried),
            RegisterError::ReadOnly { .. } => assert_eq!(tried, None),
            error => panic!("{error}"),
        }
    }
    assert_eq!(script.take_operations(), []);
    assert!(poll(&mut Box::pin(registers.read("x"))).is_pending(), "reads go on");
}

/// A write without a place may have been handed to a replica.
#[test]
fn an_update_whose_outcome_is_unknown_is_so_whether_it_has_a_place_or_not() {
    let id = version(9);
    for access in [Access::Write(None), Access::Modify(Modification::add(1))] {
        let (script, registers) = Script::new();
        let mut update = Box::pin(registers.access(Key::from("x"), access, None));
        assert!(poll(&mut update).is_pending());
        script.tell(0, Output::Began(id));
        script.tell(0, Output::Outcome(Outcome::Unknown));
        let Poll::Ready(Err(error)) = poll(&mut update) else { panic!("it is over") };
        let token = Token { id, carstamp: None };
        assert!(
            matches!(error, RegisterError::Unknown { token: same, .. } if same == token),
            "{error}"
        );
    }
}

//! Calls of procedures. The tests play the coordinator.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::time::Duration;

use serried_model::Limits;
use serried_procedures::{
    Datum, Field, InvalidInputs, Offers, Operation, Outcome, Output, PieceId, Procedure,
    ProcedureSet, Procedures, Refused, Registration, Results, Type,
};

use crate::script::version;
use crate::{CallError, CallOptions, CallOutcome, ProcedureKeyspace, RegisteredSet};

type Script = crate::script::Script<Procedures>;

fn script() -> (Arc<Script>, ProcedureKeyspace) {
    Script::offering(Offers { merged: true })
}

fn poll<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn results() -> Results {
    let fields = [Field { name: "left".into(), of: Type::Int }];
    Results { fields: fields.into(), data: vec![Datum::Int(7)] }
}

/// What a call ends with whose coordinator answers so.
fn ends(outcome: Outcome) -> Result<Results, CallError> {
    let (script, shop) = script();
    let mut call = Box::pin(shop.call("buy", [Datum::Int(1)]));
    assert!(poll(&mut call).is_pending());
    script.tell(0, Output::Began(version(9)));
    assert!(poll(&mut call).is_pending(), "it has only begun");
    script.tell(0, Output::Outcome(outcome));
    match poll(&mut call) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it is over"),
    }
}

#[test]
fn a_call_passes_its_inputs_and_returns_its_results() {
    let (script, shop) = script();
    let mut call = Box::pin(shop.call("buy", [Datum::Int(1), Datum::from("x")]));
    assert!(poll(&mut call).is_pending());
    let wanted = Operation::Call {
        procedure: "buy".into(),
        inputs: vec![Datum::Int(1), Datum::from("x")],
        age: None,
    };
    assert_eq!(script.take_operations(), [wanted]);
    drop(call);
    assert_eq!(script.take_operations(), [Operation::GiveUp], "a dropped call is given up");
    let results = ends(Outcome::Done(results())).unwrap();
    assert_eq!((results.get("left"), results.get("right")), (Some(&Datum::Int(7)), None));
}

#[test]
fn an_error_names_the_procedure_and_says_what_to_do() {
    let error = |outcome| ends(outcome).unwrap_err().to_string();
    let refused = Refused::Check("the balance is too low".into());
    assert_eq!(
        error(Outcome::Refused(refused)),
        "`buy` was refused: the balance is too low; nothing was written"
    );
    let known = vec!["sell".to_owned(), "return".to_owned()];
    assert_eq!(
        error(Outcome::NoSuchProcedure { version: 3, known }),
        "there is no procedure `buy` in version 3 of the set; there are `sell`, `return`"
    );
    assert_eq!(
        error(Outcome::NoSuchProcedure { version: 0, known: Vec::new() }),
        "there is no procedure `buy`: none was ever registered; register a set with it"
    );
    let invalid = InvalidInputs::Number { procedure: "buy".into(), wanted: Vec::new(), found: 1 };
    assert_eq!(error(Outcome::InvalidInputs(invalid)), "`buy` takes 0 inputs and got 1");
    assert!(error(Outcome::Unknown).contains("the call 9.0 of `buy` may or may not"));
    assert!(error(Outcome::Forgotten).contains("no longer know whether the call 9.0 took effect"));
    assert_eq!(
        error(Outcome::NoEffect),
        "too few servers answered within 10s, waiting for `buy`; nothing took effect"
    );
}

#[test]
fn a_call_that_is_given_up_waits_for_its_outcome() {
    for unknown in [false, true] {
        let (script, shop) = script();
        let shop = shop.with_options(CallOptions {
            deadline: Duration::from_secs(2),
            ..CallOptions::default()
        });
        let mut call = Box::pin(shop.call("buy", []));
        assert!(poll(&mut call).is_pending());
        script.tell(0, Output::Began(version(9)));
        script.advance(Duration::from_secs(3));
        assert!(poll(&mut call).is_pending(), "it waits for its coordinator's answer");
        assert_eq!(script.take_operations()[1..], [Operation::GiveUp]);
        let outcome = if unknown { Outcome::Unknown } else { Outcome::NoEffect };
        script.tell(0, Output::Outcome(outcome));
        match poll(&mut call) {
            Poll::Ready(Err(CallError::Unknown { call, .. })) if unknown => {
                assert_eq!(call, version(9));
            }
            Poll::Ready(Err(CallError::Unavailable { .. })) if !unknown => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_call_tells_its_id_before_it_ends() {
    let (script, shop) = script();
    let (sender, noted) = std::sync::mpsc::channel();
    let tell = move |id| sender.send(id).expect("it is received");
    let mut call = Box::pin(shop.call_noted("buy", [], tell));
    assert!(poll(&mut call).is_pending());
    assert!(noted.try_recv().is_err(), "it has none yet");
    for id in [version(9), version(10)] {
        script.tell(0, Output::Began(id));
        assert_eq!(noted.try_recv(), Ok(id));
    }
    script.tell(0, Output::Outcome(Outcome::Unknown));
    match poll(&mut call) {
        Poll::Ready(Err(CallError::Unknown { call, .. })) => assert_eq!(call, version(10)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn inputs_over_the_limit_are_refused_before_sending() {
    let (script, shop) = script();
    let limit = Limits::default().transaction_bytes;
    let list = Datum::list([Datum::from("x".repeat(limit).as_str())]);
    let mut call = Box::pin(shop.call("buy", [list]));
    let Poll::Ready(Err(error)) = poll(&mut call) else { panic!("it is refused at once") };
    assert!(matches!(error, CallError::TooLarge { bytes, .. } if bytes > limit), "{error}");
    assert_eq!(script.take_operations(), []);
}

#[test]
fn nothing_is_sent_while_nothing_can_be_written_but_questions() {
    let (script, shop) = script();
    *script.obstacle.lock().unwrap() = Some("disks are full".to_string());
    let mut call = Box::pin(shop.call("buy", []));
    assert!(matches!(poll(&mut call), Poll::Ready(Err(CallError::ReadOnly { .. }))));
    let mut register = Box::pin(shop.register(ProcedureSet::default()));
    assert!(matches!(poll(&mut register), Poll::Ready(Err(CallError::ReadOnly { .. }))));
    assert_eq!(script.take_operations(), []);
    assert!(poll(&mut Box::pin(shop.procedures())).is_pending());
    assert_eq!(script.take_operations(), [Operation::List, Operation::GiveUp]);
}

/// It was begun before the client had learned of the obstacle.
#[test]
fn a_call_without_effect_says_that_nothing_can_be_written() {
    let (script, shop) = script();
    let mut call = Box::pin(shop.call("buy", []));
    assert!(poll(&mut call).is_pending());
    *script.obstacle.lock().unwrap() = Some("disks are full".to_string());
    script.tell(0, Output::Outcome(Outcome::NoEffect));
    match poll(&mut call) {
        Poll::Ready(Err(CallError::ReadOnly { reason })) => assert_eq!(reason, "disks are full"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_outcome_of_a_call_is_asked_for_by_its_id() {
    let refused = Refused::Check("sold out".into());
    for (outcome, wanted) in [
        (Outcome::Done(results()), CallOutcome::Done(results())),
        (Outcome::Refused(refused.clone()), CallOutcome::Refused(refused)),
        (Outcome::NoEffect, CallOutcome::NoEffect),
    ] {
        let (script, shop) = script();
        let mut question = Box::pin(shop.outcome(version(9)));
        assert!(poll(&mut question).is_pending());
        assert_eq!(script.take_operations(), [Operation::Inquire { call: version(9) }]);
        script.tell(0, Output::Outcome(outcome));
        let Poll::Ready(Ok(ended)) = poll(&mut question) else { panic!("it is answered") };
        assert_eq!(ended, wanted);
    }
    let (script, shop) = script();
    let mut question = Box::pin(shop.outcome(version(9)));
    assert!(poll(&mut question).is_pending());
    script.tell(0, Output::Outcome(Outcome::Forgotten));
    assert!(matches!(poll(&mut question), Poll::Ready(Err(CallError::Forgotten { .. }))));
}

#[test]
fn a_set_is_registered_in_place_of_the_one_that_is_named() {
    let set = Arc::new(ProcedureSet::default());
    for (registration, wanted) in [
        (Some(Registration::InUse { version: 4 }), Ok(4)),
        (Some(Registration::Superseded { version: 5 }), Err("version 5 is in use")),
        (Some(Registration::Unfit("no".into())), Err("can't replace those that are registered")),
        (None, Err("may or may not have been registered")),
    ] {
        let (script, shop) = script();
        let mut register = Box::pin(shop.register_in_place_of(3, set.clone()));
        assert!(poll(&mut register).is_pending());
        let operation = Operation::Register { set: set.clone(), replaces: Some(3) };
        assert_eq!(script.take_operations(), [operation]);
        match registration {
            Some(registration) => script.tell(0, Output::Registered(registration)),
            None => script.advance(Duration::from_secs(11)),
        }
        let Poll::Ready(result) = poll(&mut register) else { panic!("it is over") };
        match (result, wanted) {
            (Ok(version), Ok(wanted)) => assert_eq!(version, wanted),
            (Err(error), Err(wanted)) => assert!(error.to_string().contains(wanted), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn merged_pieces_that_are_not_offered_are_refused_before_sending() {
    let (script, shop) = Script::offering(Offers { merged: false });
    let procedure = Procedure {
        name: "transfer".into(),
        inputs: Vec::new(),
        pieces: Vec::new(),
        merged: vec![vec![PieceId(0), PieceId(1)]],
        returns: Vec::new(),
        ordered: false,
    };
    let set = ProcedureSet { tables: Vec::new(), procedures: vec![procedure] };
    let mut register = Box::pin(shop.register(set));
    let Poll::Ready(Err(error)) = poll(&mut register) else { panic!("it is refused at once") };
    assert!(
        error.to_string().starts_with("`transfer` was not registered: it has merged"),
        "{error}"
    );
    assert_eq!(script.take_operations(), []);
}

#[test]
fn the_registered_set_comes_with_its_version() {
    let (script, shop) = script();
    let mut list = Box::pin(shop.procedures());
    assert!(poll(&mut list).is_pending());
    let set = Arc::new(ProcedureSet::default());
    script.tell(0, Output::Set(2, set.clone()));
    let Poll::Ready(Ok(found)) = poll(&mut list) else { panic!("it is answered") };
    assert_eq!(found, RegisteredSet { version: 2, set });
}

#[test]
fn all_attempts_of_a_call_after_the_first_have_its_id_as_their_age() {
    let (script, shop) = script();
    let mut call = Box::pin(shop.call("buy", []));
    for (expected, id) in [(None, 7), (Some(version(7)), 9), (Some(version(7)), 11)] {
        assert!(poll(&mut call).is_pending());
        let ages = script.take_operations().into_iter().filter_map(|operation| match operation {
            Operation::Call { age, .. } => Some(age),
            _ => None,
        });
        assert_eq!(ages.collect::<Vec<_>>(), [expected]);
        script.tell_last(Output::Began(version(id)));
        script.tell_last(Output::Outcome(Outcome::Conflict));
        assert!(poll(&mut call).is_pending());
        script.advance(Duration::from_secs(1));
    }
}

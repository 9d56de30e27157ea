//! What the check of an ordered read-only call accepts, and what its next transaction goes by.

use super::*;
use attempts::{chase, registered};
use hand::{Hand, OF_HAND, short, start_to, with_order};
use ordering::{last, start};
use reading::{LAST, call_meanwhile, results};

/// `point` has a head name other rows.
const POINT: &str = r#"
[procedures.point]
inputs = { a = "int", n = "int" }
[procedures.point.pieces.one]
rows = { row = { table = "head", key = ["a"] } }
writes.row.n = "n"
"#;

/// The first transaction has rows 0 to 2, and the second one rows 1 to 3. Before the second one starts, row 0 changes, and the
/// head goes back to where it was.
#[test]
fn what_a_former_transaction_has_found_is_not_accepted() {
    let mut hand = Hand::new(1, 1, Settings::default());
    hand.register(with_order(&[OF_HAND, LAST, POINT].concat()));
    let (call, first) = last(&mut hand, |hand| {
        call_meanwhile(hand, "advance", &[0]);
    });
    first.into_iter().for_each(|start| hand.net.deliver(start));
    let second = hand.until(start_to);
    let rows = start(&second).pieces.iter().skip(1).map(|row| row.arguments[0].clone());
    assert_eq!(rows.collect::<Vec<_>>(), [1, 2, 3].map(Datum::Int));
    call_meanwhile(&mut hand, "put", &[0, 16]);
    call_meanwhile(&mut hand, "point", &[0, 3]);
    hand.net.deliver(second);
    assert_eq!(results(&mut hand, call), [3, 16 + 2 + 4]);
}

/// The first transaction was predicted to find that row `to` names `end`. Now it names `other`.
#[test]
fn the_next_transaction_does_not_go_by_what_immediate_pieces_of_the_last_one_have_found() {
    let mut hand = registered(1, 1, Settings::default());
    let [head, from, to, end, other] = [0, 1, 2, 3, 4];
    hand.call(1, "put", &[other, 7]);
    let (call, started) = chase(&mut hand, [head, from, to, end]);
    let first = start(&started).txn;
    hand.net.deliver(started);
    let rest = hand.until(start_to);
    assert_eq!((start(&rest).txn, start(&rest).pieces.len()), (first, 2));
    call_meanwhile(&mut hand, "put", &[to, other]);
    hand.net.deliver(rest);
    let next = hand.until(start_to);
    assert_ne!(start(&next).txn, first, "the prediction was wrong");
    assert_eq!(start(&next).pieces.len(), 1, "the head alone");
    hand.net.deliver(next);
    assert_eq!(results(&mut hand, call), [7]);
}

/// [`OF_HAND`] and [`LAST`], but two numbers name a row of `t`. The first one is 0 throughout.
fn with_two_numbers() -> String {
    let of_hand = OF_HAND.replace(r#"{ id = "int" }"#, r#"{ g = "int", id = "int" }"#);
    let of_hand = of_hand.replace("key = [", r#"key = ["0", "#);
    let last = LAST.replace(r#"["number"]"#, r#"["a", "number"]"#);
    [of_hand, last].concat()
}

/// The transaction has rows 0 to 2, and the call has rows 1 to 3.
#[test]
fn a_piece_is_not_taken_for_another_one_that_differs_in_its_last_argument() {
    let mut hand = Hand::new(1, 1, short());
    hand.register(with_order(&with_two_numbers()));
    let (call, started) = last(&mut hand, |hand| {
        call_meanwhile(hand, "advance", &[0]);
    });
    let rows = start(&started[0]).pieces.iter().skip(1).map(|row| row.arguments.to_vec());
    let wanted = [0, 1, 2].map(|number| [0, number].map(Datum::Int));
    assert_eq!(rows.collect::<Vec<_>>(), wanted);
    started.into_iter().for_each(|start| hand.net.deliver(start));
    assert_eq!(results(&mut hand, call), [3, 0b1110]);
}

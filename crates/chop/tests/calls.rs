//! Calls: what their pieces get, when they can be started, and what they return.

mod rows;

use rows::Rows;
use serried_chop::{check, compile};
use serried_procedures::{Call, Datum, Procedure, ProcedureSet, Refused, Start};

const BASKETS: &str = r#"
[tables.basket]
key = { id = "int" }
columns = { items = { list = "int", max = 4 } }
[tables.stock]
key = { item = "int" }
columns = { left = "int", price = { type = "int", default = 5 } }

[procedures.buy]
inputs = { id = "int", most = "int" }
returns = { prices = "take.price", sum = "sum(take.price)", count = "size(basket.items)" }
[procedures.buy.pieces.basket]
rows = { row = { table = "basket", key = ["id"] } }
reads = ["row.items"]
checks = [{ that = "size(row.items) <= most", otherwise = "there are too many items" }]
outputs.items = "row.items"
[procedures.buy.pieces.take]
for_each = { item = "basket.items" }
rows = { stock = ["item"] }
reads = ["stock.left", "stock.price"]
writes.stock.left = "stock.left - 1"
outputs.price = "stock.price + index"

[procedures.fill]
inputs = { id = "int", items = { list = "int", max = 4 } }
[procedures.fill.pieces.put]
rows = { basket = ["id"] }
writes.basket.items = "items"

[procedures.look]
inputs = { id = "int" }
returns = { first = "basket.items[0]" }
[procedures.look.pieces.basket]
rows = { row = { table = "basket", key = ["id"] } }
reads = ["row.items"]
outputs.items = "row.items"

[procedures.share]
inputs = { id = "int" }
returns = { share = "basket.share" }
[procedures.share.pieces.basket]
rows = { row = { table = "basket", key = ["id"] } }
reads = ["row.items"]
outputs.share = "100 / size(row.items)"
"#;

fn set() -> ProcedureSet {
    let mut set = compile(BASKETS).unwrap_or_else(|mistake| panic!("{mistake}"));
    check(&mut set).unwrap_or_else(|cycle| panic!("{cycle}"));
    set
}

fn procedure<'s>(set: &'s ProcedureSet, name: &str) -> &'s Procedure {
    set.procedures.iter().find(|procedure| procedure.name == name).unwrap()
}

fn ints(ints: &[i64]) -> Datum {
    Datum::list(ints.iter().copied().map(Datum::Int))
}

/// Executes an occurrence and reports it.
fn execute(
    set: &ProcedureSet,
    procedure: &Procedure,
    call: &mut Call,
    Start { piece, occurrence, arguments }: &Start,
    rows: &mut Rows,
) -> Result<(), Refused> {
    let declared = &procedure.pieces[usize::from(piece.0)];
    let outputs = declared.execute(&set.tables, arguments, rows)?;
    assert_eq!(call.executed(procedure, (*piece, *occurrence), outputs), Ok(true));
    Ok(())
}

/// Executes a call alone.
fn run(
    set: &ProcedureSet,
    name: &str,
    inputs: Vec<Datum>,
    rows: &mut Rows,
) -> Result<Vec<Datum>, Refused> {
    let procedure = procedure(set, name);
    let mut call = Call::new(procedure, inputs).unwrap();
    while !call.has_executed_all() {
        let started = call.start(procedure)?;
        assert!(!started.is_empty() || call.has_executed_all(), "it goes on");
        for start in started {
            execute(set, procedure, &mut call, &start, rows)?;
        }
    }
    call.results(procedure)
}

#[test]
fn inputs_of_a_wrong_number_or_type_are_refused() {
    let set = set();
    let wrong = |name, inputs| Call::new(procedure(&set, name), inputs).unwrap_err().to_string();
    assert_eq!(
        wrong("buy", vec![Datum::Int(1)]),
        "`buy` takes 2 inputs and got 1: id (int), most (int)"
    );
    assert_eq!(
        wrong("buy", vec![Datum::Int(1), Datum::Bool(true)]),
        "input `most` of `buy`: wanted int, found bool"
    );
    assert_eq!(
        wrong("fill", vec![Datum::Int(1), ints(&[1, 2, 3, 4, 5])]),
        "input `items` of `fill`: wanted list of at most 4 int, found one of 5 elements"
    );
    assert_eq!(
        wrong("fill", vec![Datum::Int(1), Datum::list([Datum::Int(1), Datum::from("a")])]),
        "input `items` of `fill`: at `[1]`: wanted int, found string"
    );
}

#[test]
fn a_piece_is_started_when_the_pieces_that_it_needs_are_executed() {
    let (set, mut rows) = (set(), Rows::default());
    run(&set, "fill", vec![Datum::Int(1), ints(&[7, 8, 7])], &mut rows).unwrap();
    let buy = procedure(&set, "buy");
    let mut call = Call::new(buy, vec![Datum::Int(1), Datum::Int(3)]).unwrap();
    let started = call.start(buy).unwrap();
    assert_eq!(started.len(), 1);
    assert_eq!(call.start(buy), Ok(vec![]), "the other piece waits");
    assert!(!call.has_started_all());
    execute(&set, buy, &mut call, &started[0], &mut rows).unwrap();
    let repeated = call.start(buy).unwrap();
    assert!(call.has_started_all() && !call.has_executed_all());
    let occurrences: Vec<u32> = repeated.iter().map(|start| start.occurrence).collect();
    assert_eq!(occurrences, [0, 1, 2]);
    assert!(repeated[1].arguments.contains(&Datum::Int(8)), "the second item");
    // The outputs are in the order of the elements, not in that of the execution.
    for start in repeated.iter().rev() {
        execute(&set, buy, &mut call, start, &mut rows).unwrap();
    }
    assert!(call.has_executed_all());
    assert_eq!(call.results(buy), Ok(vec![ints(&[5, 6, 7]), Datum::Int(18), Datum::Int(3)]));
    assert_eq!(rows.rows[&(1, vec![Datum::Int(7)])][0], Datum::Int(-2), "it was taken twice");
}

#[test]
fn what_was_executed_is_news_once_and_of_its_type() {
    let set = set();
    let buy = procedure(&set, "buy");
    let mut call = Call::new(buy, vec![Datum::Int(1), Datum::Int(3)]).unwrap();
    let piece = buy.pieces().next().unwrap().0;
    assert_eq!(call.executed(buy, (piece, 0), vec![ints(&[])]), Ok(false), "it is not started");
    call.start(buy).unwrap();
    assert_eq!(call.executed(buy, (piece, 1), vec![ints(&[])]), Ok(false), "it occurs once");
    call.executed(buy, (piece, 0), vec![Datum::Int(1)]).unwrap_err();
    call.executed(buy, (piece, 0), vec![]).unwrap_err();
    assert_eq!(call.executed(buy, (piece, 0), vec![ints(&[])]), Ok(true));
    assert_eq!(call.executed(buy, (piece, 0), vec![ints(&[1])]), Ok(false), "it is executed");
}

#[test]
fn a_piece_may_not_occur_at_all() {
    let (set, mut rows) = (set(), Rows::default());
    let results = run(&set, "buy", vec![Datum::Int(1), Datum::Int(0)], &mut rows);
    assert_eq!(results, Ok(vec![ints(&[]), Datum::Int(0), Datum::Int(0)]));
}

#[test]
fn a_check_that_does_not_hold_refuses_the_call_and_nothing_is_written() {
    let (set, mut rows) = (set(), Rows::default());
    run(&set, "fill", vec![Datum::Int(1), ints(&[7, 8])], &mut rows).unwrap();
    let before = rows.rows.clone();
    let refused = run(&set, "buy", vec![Datum::Int(1), Datum::Int(1)], &mut rows);
    assert_eq!(refused, Err(Refused::Check("there are too many items".into())));
    assert_eq!(rows.rows, before);
}

#[test]
fn a_call_that_reads_only_writes_nothing_and_may_fail_at_its_end() {
    let (set, mut rows) = (set(), Rows::default());
    assert!(procedure(&set, "look").is_read_only());
    let refused = run(&set, "look", vec![Datum::Int(1)], &mut rows).unwrap_err();
    let wanted = "result `first` failed: no element 0 in a list of 0; the first is 0";
    assert_eq!(refused.to_string(), wanted);
    let refused = run(&set, "share", vec![Datum::Int(1)], &mut rows).unwrap_err();
    assert_eq!(refused.to_string(), "piece `basket` failed: division by zero");
    run(&set, "fill", vec![Datum::Int(1), ints(&[7])], &mut rows).unwrap();
    let before = rows.rows.clone();
    assert_eq!(run(&set, "look", vec![Datum::Int(1)], &mut rows), Ok(vec![Datum::Int(7)]));
    assert_eq!(rows.rows, before);
}

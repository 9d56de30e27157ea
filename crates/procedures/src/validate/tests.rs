//! Sets that no compiler makes. Each differs in one thing from a sound one.

mod bounds;

use super::*;
use crate::{
    Argument, Arithmetic, Body, Check, Code, Column, Comparison, Datum, Field, Logic, Multiplicity,
    Piece, PieceId, Procedure, Returned, RowAccess, Slot, WriteColumn,
};

fn field(name: &str, of: Type) -> Field {
    Field { name: name.to_owned(), of }
}

fn list(element: Type, max: u32) -> Type {
    Type::List { element: Box::new(element), max }
}

fn pair(names: [&str; 2]) -> Type {
    Type::Record(names.map(|name| field(name, Type::Int)).into())
}

const TEXT: Type = Type::String { max: 8 };

fn slot(at: u16) -> Code {
    Code::Slot(Slot(at))
}

fn boxed(at: u16) -> Box<Code> {
    Box::new(slot(at))
}

fn int(int: i64) -> Code {
    Code::Constant(Datum::Int(int))
}

fn arithmetic(operation: Arithmetic, left: Code, right: Code) -> Code {
    Code::Arithmetic(operation, Box::new(left), Box::new(right))
}

fn row(key: [Code; 2], known: u16, reads: &[(u16, Slot)]) -> RowAccess {
    RowAccess { table: 0, key: key.into(), known, reads: reads.into(), exists: None }
}

/// A piece that can fail, and reads. Its slots: an input, two columns, whether the row exists, a named expression, and an
/// element.
fn find() -> Piece {
    let more = arithmetic(Arithmetic::Add, slot(1), int(1));
    let that = Code::Compare(Comparison::GreaterOrEqual, boxed(1), boxed(0));
    Piece {
        name: "find".to_owned(),
        multiplicity: Multiplicity::Once,
        arguments: vec![Argument::Input(0)],
        argument_types: vec![Type::Int],
        body: Body {
            rows: vec![RowAccess {
                exists: Some(Slot(3)),
                ..row([slot(0), int(1)], 2, &[(0, Slot(1)), (1, Slot(2))])
            }],
            named: vec![(Slot(4), more)],
            checks: vec![Check { that, otherwise: "too little".to_owned() }],
            outputs: vec![(field("balance", Type::Int), slot(4)), (field("note", TEXT), slot(2))],
            slots: 6,
            can_fail: true,
            ..Body::default()
        },
        after: Vec::new(),
        needed: true,
        immediate: false,
    }
}

/// A piece that writes once for each line. Its slots: the line, an output, the index, and a column.
fn pay() -> Piece {
    let place = || Code::Field(boxed(0), 0);
    let left = arithmetic(Arithmetic::Subtract, slot(3), slot(1));
    let paid = Code::Constant(Datum::from("paid"));
    Piece {
        name: "pay".to_owned(),
        multiplicity: Multiplicity::ForEach {
            arguments: vec![Argument::Input(2)],
            lists: vec![slot(0)],
            slots: 1,
            max: 3,
        },
        arguments: vec![Argument::Element(0), Argument::Output(PieceId(0), 0), Argument::Index],
        // The names of fields do not matter.
        argument_types: vec![pair(["x", "y"]), Type::Int, Type::Int],
        body: Body {
            rows: vec![
                row([place(), slot(2)], 2, &[(0, Slot(3))]),
                row([place(), slot(3)], 1, &[]),
            ],
            writes_if: Some(Code::Compare(Comparison::Greater, boxed(3), boxed(1))),
            writes: vec![
                WriteColumn { row: 0, column: 0, to: left },
                WriteColumn { row: 0, column: 1, to: slot(4) },
                WriteColumn { row: 1, column: 1, to: paid },
            ],
            named: vec![(Slot(4), Code::Constant(Datum::from("some")))],
            outputs: vec![(field("left", Type::Int), slot(3))],
            deletes: vec![1],
            slots: 5,
            ..Body::default()
        },
        after: vec![PieceId(0)],
        needed: false,
        immediate: false,
    }
}

fn sound() -> ProcedureSet {
    let column = |name: &str, of: Type| Column { name: name.to_owned(), default: of.zero(), of };
    let account = Table {
        name: "account".to_owned(),
        key: vec![field("bank", Type::Int), field("id", Type::Int)],
        placed_by: 1,
        columns: vec![column("balance", Type::Int), column("note", TEXT)],
    };
    let shop = Procedure {
        name: "shop".to_owned(),
        inputs: vec![
            field("amount", Type::Int),
            field("text", TEXT),
            field("lines", list(pair(["item", "count"]), 3)),
        ],
        pieces: vec![find(), pay()],
        merged: vec![vec![PieceId(0), PieceId(1)]],
        returns: vec![Returned {
            field: field("left", list(Type::Int, 3)),
            arguments: vec![Argument::Output(PieceId(1), 0)],
            code: slot(0),
            slots: 2,
        }],
        ordered: false,
    };
    ProcedureSet { tables: vec![account], procedures: vec![shop] }
}

/// Refuses the sound set with a change, and says this.
#[track_caller]
fn refused(change: impl FnOnce(&mut ProcedureSet), why: &str) {
    let mut set = sound();
    change(&mut set);
    let refused = set.validate().expect_err("no compiler makes this").to_string();
    assert!(refused.contains(why), "{refused}");
}

#[track_caller]
fn table_refused(change: impl FnOnce(&mut Table), why: &str) {
    refused(|set| change(&mut set.tables[0]), why);
}

#[track_caller]
fn shop_refused(change: impl FnOnce(&mut Procedure), why: &str) {
    refused(|set| change(&mut set.procedures[0]), why);
}

#[track_caller]
fn find_refused(change: impl FnOnce(&mut Piece), why: &str) {
    shop_refused(|shop| change(&mut shop.pieces[0]), why);
}

#[track_caller]
fn pay_refused(change: impl FnOnce(&mut Piece), why: &str) {
    shop_refused(|shop| change(&mut shop.pieces[1]), why);
}

/// What the second piece iterates.
struct Lists {
    arguments: Vec<Argument>,
    lists: Vec<Code>,
    slots: u16,
    max: u32,
}

#[track_caller]
fn lists_refused(change: impl FnOnce(&mut Lists), why: &str) {
    let (arguments, lists) = (vec![Argument::Input(2)], vec![slot(0)]);
    let mut all = Lists { arguments, lists, slots: 1, max: 3 };
    change(&mut all);
    let Lists { arguments, lists, slots, max } = all;
    let changed = Multiplicity::ForEach { arguments, lists, slots, max };
    pay_refused(|pay| pay.multiplicity = changed, why);
}

/// Refuses an output `code` of the first piece. Slots 0 to 5 are: an int, an int, a string(8), a bool, an int, and none.
#[track_caller]
fn expression_refused(code: Code, why: &str) {
    find_refused(|find| find.body.outputs.push((field("more", Type::Int), code)), why);
}

/// Adds an expression of any type.
fn name(find: &mut Piece, code: Code) {
    find.body.slots = 7;
    find.body.named.push((Slot(6), code));
}

/// Takes the sound set with such an output.
#[track_caller]
fn expression_taken(code: Code, of: Type) {
    let mut set = sound();
    set.procedures[0].pieces[0].body.outputs.push((field("more", of), code));
    assert_eq!(set.validate(), Ok(()));
}

fn ints(max: u32) -> Code {
    Code::Range(boxed(0), boxed(1), max)
}

fn map(list: Code, body: Code) -> Code {
    Code::Map { list: Box::new(list), element: Slot(5), condition: None, body: Box::new(body) }
}

#[test]
fn a_sound_set_is_taken() {
    assert_eq!(sound().validate(), Ok(()));
    assert_eq!(ProcedureSet::default().validate(), Ok(()));
}

#[test]
fn a_refusal_says_where_and_what_on_one_line() {
    let mut set = sound();
    set.procedures[0].pieces[0].body.slots = 3;
    let refused = set.validate().unwrap_err().to_string();
    let wanted = "piece `find` of procedure `shop` is not as the compiler makes it: there is no slot 3; the frame has 3";
    assert_eq!(refused, wanted);
    let many = map(ints(40_000), Code::Sum(Box::new(ints(100))));
    let mut set = sound();
    set.procedures[0].name = "a\nb".to_owned();
    name(&mut set.procedures[0].pieces[0], many);
    let refused = set.validate().unwrap_err().to_string();
    let wanted = "piece `find` of procedure `a\\nb`: this takes up to 6200525 steps, and the limit is 1000000; lower the `max`";
    assert!(refused.starts_with(wanted), "{refused}");
}

#[test]
fn tables_are_checked() {
    table_refused(|table| table.placed_by = 0, "0 parts of its key decide where a row is");
    table_refused(|table| table.placed_by = 3, "3 parts of its key decide where a row is");
    table_refused(
        |table| table.key[1].of = list(Type::Int, 1),
        "table `account` is not as the compiler makes it: `id` can't be a part of its key",
    );
    table_refused(|table| table.columns.clear(), "it has no columns");
    table_refused(
        |table| table.columns[1].default = Datum::Int(1),
        "the default of `note`: wanted string(8), found int",
    );
    table_refused(|table| table.columns[0].of = deep_type(), "a type nests at most 32");
}

fn deep_type() -> Type {
    (0..33).fold(Type::Int, |of, _| list(of, 1))
}

fn wide_type() -> Type {
    Type::Record((0..128).map(|_| field("", Type::Int)).collect())
}

#[test]
fn declared_types_are_small() {
    shop_refused(|shop| shop.inputs[1].of = deep_type(), "a type nests at most 32");
    shop_refused(|shop| shop.inputs[1].of = wide_type(), "at most 128 fields");
    find_refused(|find| find.body.outputs[0].0.of = wide_type(), "at most 128 fields");
    find_refused(|find| find.argument_types[0] = wide_type(), "at most 128 fields");
    shop_refused(|shop| shop.returns[0].field.of = wide_type(), "at most 128 fields");
}

#[test]
fn there_are_not_more_than_the_compiler_takes() {
    let over =
        |count: usize, of: &str| format!("there are {} {of}, and the limit is {count}", count + 1);
    table_refused(|table| table.key.resize(9, field("k", Type::Int)), &over(8, "parts of its key"));
    table_refused(
        |table| table.columns.resize(257, table.columns[0].clone()),
        &over(256, "columns"),
    );
    shop_refused(|shop| shop.pieces.resize(65, find()), &over(64, "pieces"));
    shop_refused(|shop| shop.pieces.clear(), "it has no pieces");
    shop_refused(|shop| shop.inputs.resize(257, field("i", Type::Int)), &over(256, "inputs"));
    shop_refused(|shop| shop.returns.resize(257, shop.returns[0].clone()), &over(256, "results"));
    find_refused(|find| find.body.rows.clear(), "it uses no row");
    find_refused(|find| find.body.rows.resize(65, find.body.rows[0].clone()), &over(64, "rows"));
    find_refused(
        |find| find.body.rows[0].reads.resize(1_025, (0, Slot(5))),
        &over(1_024, "columns that it reads"),
    );
    find_refused(
        |find| find.body.named.resize(257, (Slot(5), int(1))),
        &over(256, "named expressions"),
    );
    find_refused(
        |find| find.body.outputs.resize(257, (field("o", Type::Int), int(1))),
        &over(256, "outputs"),
    );
    find_refused(
        |find| find.body.checks[0].otherwise = "x".repeat(1_025),
        &over(1_024, "bytes in the text of a check"),
    );
    find_refused(|find| find.body.slots = 4_097, &over(4_096, "slots"));
    let long = |count: usize| Code::Size(Box::new(Code::List(vec![int(1); count])));
    expression_taken(long(1_022), Type::Int);
    expression_refused(
        long(1_023),
        "there are 1025 operations in an expression, or more, and the limit",
    );
    lists_refused(|all| all.lists.resize(65, slot(0)), &over(64, "lists to iterate"));
}

#[test]
fn arguments_refer_to_what_there_is() {
    let none = |argument: &str| format!("an argument is {argument}, which there is not");
    find_refused(|find| find.arguments[0] = Argument::Input(3), &none("Input(3)"));
    find_refused(|find| find.arguments[0] = Argument::Element(0), &none("Element(0)"));
    pay_refused(|pay| pay.arguments[0] = Argument::Element(1), &none("Element(1)"));
    let output = |piece: u16, at: u16| Argument::Output(PieceId(piece), at);
    pay_refused(|pay| pay.arguments[1] = output(2, 0), &none("Output(PieceId(2), 0)"));
    pay_refused(|pay| pay.arguments[1] = output(0, 2), &none("Output(PieceId(0), 2)"));
    lists_refused(|all| all.arguments[0] = Argument::Element(0), &none("Element(0)"));
    shop_refused(|shop| shop.returns[0].arguments[0] = Argument::Element(0), &none("Element(0)"));
}

#[test]
fn no_argument_is_passed_twice() {
    let twice = |pay: &mut Piece| pay.arguments[2] = pay.arguments[1];
    pay_refused(twice, "Output(PieceId(0), 0) is an argument twice");
    let twice = |all: &mut Lists| (all.slots, all.arguments) = (2, vec![Argument::Input(2); 2]);
    lists_refused(twice, "Input(2) is an argument twice");
}

#[test]
fn arguments_have_the_types_of_what_they_refer_to() {
    find_refused(|find| find.argument_types[0] = Type::Bool, "argument 0 is bool, and this is int");
    pay_refused(
        |pay| pay.argument_types[0] = Type::Int,
        "argument 0 is int, and this is {int, int}",
    );
    pay_refused(
        |pay| {
            pay.arguments[1] = Argument::Output(PieceId(0), 1);
            pay.argument_types[1] = Type::String { max: 7 };
        },
        "argument 1 is string(7), and this is string(8)",
    );
    find_refused(|find| find.argument_types.clear(), "1 arguments have 0 types");
    find_refused(|find| find.body.slots = 0, "1 arguments are more than 0 slots");
    shop_refused(
        |shop| shop.returns[0].field.of = list(Type::Int, 2),
        "the result is list of at most 2 int, and this is list of at most 3 int",
    );
}

#[test]
fn lists_are_iterated() {
    lists_refused(|all| all.arguments[0] = Argument::Input(0), "this is int, and a list");
    lists_refused(|all| all.max = 4, "it occurs up to 4 times and iterates at most 3 elements");
    lists_refused(|all| all.max = 2, "it occurs up to 2 times and iterates at most 3 elements");
    lists_refused(|all| all.lists.clear(), "it occurs up to 3 times and iterates no list");
    lists_refused(
        |all| all.lists.push(Code::List(vec![int(1), int(2)])),
        "iterates at most 2 elements",
    );
    lists_refused(|all| (all.slots, all.lists[0]) = (2, slot(1)), "slot 1 is used before");
    let long = Code::Range(Box::new(int(0)), Box::new(int(1)), 1 << 20);
    lists_refused(|all| all.lists.push(long), "bytes of memory, and the limit is 4194304");
}

#[test]
fn rows_are_of_tables_and_have_whole_keys() {
    find_refused(|find| find.body.rows[0].table = 1, "row 0 is of table 1, which there is not");
    find_refused(
        |find| drop(find.body.rows[0].key.pop()),
        "the key of row 0 has 1 parts instead of 2",
    );
    find_refused(|find| find.body.rows[0].known = 0, "0 parts of the key of row 0 are known");
    find_refused(|find| find.body.rows[0].known = 3, "3 parts of the key of row 0 are known");
    find_refused(
        |find| find.body.rows[0].key[1] = Code::Decimal(boxed(0)),
        "`id` of table `account` is int, and this is string(20)",
    );
    find_refused(|find| find.body.rows[0].reads[0].0 = 2, "row 0 has no column 2 to read");
}

#[test]
fn rows_are_at_one_server_whatever_they_hold() {
    pay_refused(
        |pay| pay.body.rows[1].key[0] = int(1),
        "row 1 may be at another server than row 0",
    );
    // The second row's key uses a column of the first, and a server does not know it before.
    pay_refused(|pay| pay.body.rows[1].known = 2, "slot 3 is used before it is filled");
}

#[test]
fn slots_are_filled_once_and_before_they_are_used() {
    expression_refused(slot(5), "slot 5 is used before it is filled");
    expression_refused(slot(9), "slot 9 is used before it is filled");
    find_refused(|find| find.body.rows[0].reads[0].1 = Slot(6), "there is no slot 6");
    find_refused(|find| find.body.rows[0].reads[0].1 = Slot(2), "slot 2 is filled twice");
    find_refused(|find| find.body.rows[0].exists = Some(Slot(0)), "slot 0 is filled twice");
    find_refused(|find| find.body.named[0].0 = Slot(1), "slot 1 is filled twice");
    find_refused(|find| find.body.named[0].1 = slot(4), "slot 4 is used before it is filled");
    find_refused(|find| find.body.rows[0].key[1] = slot(1), "slot 1 is used before it is filled");
    // An element is there for one expression.
    expression_taken(
        Code::List(vec![map(ints(2), slot(5)), map(ints(2), slot(5))]),
        list(list(Type::Int, 2), 2),
    );
    expression_refused(Code::List(vec![map(ints(2), slot(5)), slot(5)]), "slot 5 is used before");
    expression_refused(map(ints(2), map(ints(2), slot(5))), "slot 5 is filled twice");
    // A known part of a key is evaluated again when rows before it have been read.
    find_refused(
        |find| {
            find.body.slots = 7;
            let list = Box::new(Code::List(vec![int(1)]));
            let elements =
                Code::Map { list, element: Slot(6), condition: None, body: Box::new(slot(6)) };
            find.body.rows[0].key[1] = Code::Size(Box::new(elements));
            find.body.rows[0].reads[0].1 = Slot(6);
        },
        "slot 6 is filled, and elements of lists are put there",
    );
    shop_refused(|shop| shop.returns[0].code = slot(1), "slot 1 is used before it is filled");
}

#[test]
fn conditions_are_bool() {
    let is_no_bool = "a condition is bool, and this is int";
    find_refused(|find| find.body.checks[0].that = slot(0), is_no_bool);
    pay_refused(|pay| pay.body.writes_if = Some(slot(1)), is_no_bool);
}

#[test]
fn what_is_written_fits() {
    pay_refused(|pay| pay.body.writes[0].row = 2, "there is no row 2 to write");
    pay_refused(|pay| pay.body.writes[0].column = 2, "row 0 has no column 2 to write");
    pay_refused(
        |pay| pay.body.writes[0].to = Code::Constant(Datum::from("x")),
        "column `balance` of table `account` is int, and this is string(1)",
    );
    pay_refused(
        |pay| pay.body.writes[2].to = Code::Constant(Datum::from("too long.")),
        "column `note` of table `account` is string(8), and this is string(9)",
    );
    pay_refused(|pay| pay.body.writes[1].column = 0, "column `balance` of row 0 is written twice");
    pay_refused(|pay| pay.body.writes.swap(1, 2), "row 0 is written twice");
    pay_refused(|pay| pay.body.deletes.push(1), "row 1 is deleted twice");
    pay_refused(|pay| pay.body.deletes.push(2), "there is no row 2 to delete");
}

#[test]
fn outputs_have_their_types() {
    find_refused(
        |find| find.body.outputs[1].0.of = Type::String { max: 7 },
        "output `note` is string(7), and this is string(8)",
    );
}

#[test]
fn operations_take_operands_of_their_types() {
    let bool = "and bool is needed here";
    let int_needed = "and int is needed here";
    let no_list = "this is int, and a list is needed here";
    let record = || Code::Record(vec![slot(0), slot(2)]);
    let cases: Vec<(Code, &str)> = vec![
        (Code::Constant(Datum::list([])), "a constant is a list"),
        (Code::Field(boxed(0), 0), "this is int, and a record is needed here"),
        (Code::Field(Box::new(record()), 2), "there is no field 2 in {int, string(8)}"),
        (Code::Not(boxed(0)), bool),
        (Code::Logic(Logic::And, boxed(0), boxed(3)), bool),
        (Code::Logic(Logic::And, boxed(3), boxed(0)), bool),
        (Code::If(boxed(0), boxed(1), boxed(1)), bool),
        (Code::If(boxed(3), boxed(1), boxed(2)), "one branch is int and the other string(8)"),
        (
            Code::Compare(Comparison::Less, boxed(1), boxed(2)),
            "int and string(8) can't be compared",
        ),
        (arithmetic(Arithmetic::Add, slot(2), slot(1)), int_needed),
        (arithmetic(Arithmetic::Add, slot(1), slot(2)), int_needed),
        (Code::Concatenate(boxed(0), boxed(1)), "int and int can't be added"),
        (
            Code::Concatenate(Box::new(ints(1)), Box::new(Code::List(vec![slot(2)]))),
            "lists are joined if their elements have one type",
        ),
        (Code::Size(boxed(0)), "int has no size"),
        (Code::Sum(boxed(0)), no_list),
        (Code::Sum(Box::new(Code::List(vec![slot(2)]))), "can't be applied to a list of string(8)"),
        (Code::Element(boxed(0), boxed(0)), no_list),
        (Code::Element(Box::new(ints(1)), boxed(2)), int_needed),
        (Code::In(boxed(0), boxed(0)), no_list),
        (Code::In(boxed(2), Box::new(ints(1))), "a list of int has no string(8)"),
        (Code::Left(boxed(0), 1), "this is int, and a string is needed here"),
        (Code::Range(boxed(2), boxed(0), 1), int_needed),
        (Code::Range(boxed(0), boxed(2), 1), int_needed),
        (Code::Decimal(boxed(2)), int_needed),
        (Code::Distinct(boxed(0)), no_list),
        (Code::Flatten(boxed(0)), no_list),
        (Code::Flatten(Box::new(ints(1))), "`flatten` can't be applied to a list of int"),
        (Code::List(vec![slot(0), slot(2)]), "the elements of a list have one type"),
        (map(slot(0), slot(5)), no_list),
        (
            Code::Map {
                list: Box::new(ints(1)),
                element: Slot(5),
                condition: Some(boxed(5)),
                body: boxed(5),
            },
            bool,
        ),
        (
            Code::Quantify {
                logic: Logic::And,
                list: Box::new(ints(1)),
                element: Slot(5),
                condition: boxed(5),
            },
            bool,
        ),
        (
            Code::Quantify {
                logic: Logic::And,
                list: boxed(0),
                element: Slot(5),
                condition: boxed(3),
            },
            no_list,
        ),
    ];
    for (code, why) in cases {
        expression_refused(code, why);
    }
}

/// The output that is declared is as large as the result may be, and a smaller one would be refused.
#[test]
fn sizes_are_inferred() {
    let string = |max: u32| Type::String { max };
    let few = || Box::new(ints(3));
    let cases: Vec<(Code, Type, Type)> = vec![
        (Code::Constant(Datum::from("four")), string(4), string(3)),
        (Code::Concatenate(boxed(2), boxed(2)), string(16), string(15)),
        (Code::Concatenate(few(), few()), list(Type::Int, 6), list(Type::Int, 5)),
        (Code::Left(boxed(2), 5), string(5), string(4)),
        (Code::Left(boxed(2), 9), string(8), string(7)),
        (Code::Decimal(boxed(0)), string(20), string(19)),
        (Code::Distinct(few()), list(Type::Int, 3), list(Type::Int, 2)),
        (Code::Flatten(Box::new(map(ints(4), ints(3)))), list(Type::Int, 12), list(Type::Int, 11)),
        (map(ints(4), slot(5)), list(Type::Int, 4), list(Type::Int, 3)),
        (
            Code::If(boxed(3), boxed(2), Box::new(Code::Constant(Datum::from("123456789")))),
            string(9),
            string(8),
        ),
    ];
    for (code, fits, small) in cases {
        expression_taken(code.clone(), fits);
        find_refused(
            |find| find.body.outputs.push((field("more", small), code)),
            "output `more` is ",
        );
    }
}

#[test]
fn a_piece_that_can_fail_says_so() {
    let says = "it says that it can't fail";
    find_refused(|find| find.body.can_fail = false, "can't fail: it has a check");
    let divides = |divisor: Code| arithmetic(Arithmetic::Divide, slot(3), divisor);
    pay_refused(|pay| pay.body.writes[0].to = divides(slot(1)), says);
    pay_refused(|pay| pay.body.writes[0].to = divides(int(0)), says);
    let mut set = sound();
    set.procedures[0].pieces[1].body.writes[0].to = divides(int(2));
    assert_eq!(set.validate(), Ok(()));
    let element = |list: Code| Code::Element(Box::new(list), Box::new(int(0)));
    let first = element(Code::List(vec![slot(3)]));
    pay_refused(|pay| pay.body.writes[0].to = first, says);
    lists_refused(|all| all.lists[0] = Code::List(vec![element(slot(0)); 3]), says);
}

#[test]
fn whatever_can_fail_comes_before_the_first_write() {
    pay_refused(
        |pay| pay.body.can_fail = true,
        "piece `pay` can fail in one of its occurrences when another has written",
    );
    shop_refused(
        |shop| {
            let pay = &mut shop.pieces[1];
            pay.after.clear();
            pay.arguments[1] = Argument::Input(0);
        },
        "piece `find` can fail when piece `pay` has written",
    );
    let ratio = || arithmetic(Arithmetic::Divide, int(1), Code::Size(boxed(0)));
    let fails = |shop: &mut Procedure| {
        shop.returns[0].field.of = Type::Int;
        shop.returns[0].code = ratio();
    };
    shop_refused(
        fails,
        "result `left` of procedure `shop` is not as the compiler makes it: it can fail when the call",
    );
    // If nothing is written, everything may fail.
    let mut set = sound();
    fails(&mut set.procedures[0]);
    let pay = &mut set.procedures[0].pieces[1].body;
    (pay.writes, pay.deletes, pay.can_fail) = (Vec::new(), Vec::new(), true);
    assert_eq!(set.validate(), Ok(()));
}

#[test]
fn pieces_are_started_in_an_order() {
    pay_refused(
        |pay| pay.after.clear(),
        "piece `pay` uses the outputs of one that it does not come after",
    );
    pay_refused(|pay| pay.after.push(PieceId(2)), "piece `pay` comes after one that there is not");
    pay_refused(
        |pay| pay.after.push(PieceId(0)),
        "what piece `pay` comes after is not in its order",
    );
    pay_refused(|pay| pay.after.push(PieceId(1)), "its pieces wait for each other");
    find_refused(|find| find.after.push(PieceId(1)), "its pieces wait for each other");
    lists_refused(
        |all| all.arguments.push(Argument::Output(PieceId(1), 0)),
        "2 arguments are more than 1 slots",
    );
    shop_refused(
        |shop| {
            let pay = &mut shop.pieces[1];
            (pay.after, pay.arguments[1]) = (Vec::new(), Argument::Input(0));
            if let Multiplicity::ForEach { arguments, slots, .. } = &mut pay.multiplicity {
                arguments.push(Argument::Output(PieceId(0), 0));
                *slots = 2;
            }
        },
        "piece `pay` uses the outputs of one that it does not come after",
    );
    shop_refused(|shop| shop.merged[0].push(PieceId(2)), "a piece is merged that there is not");
    shop_refused(|shop| shop.merged.push(vec![PieceId(1)]), "a piece is merged twice");
    shop_refused(|shop| shop.merged.push(Vec::new()), "no piece is merged with another");
}

#[test]
fn types_do_not_double_without_bound() {
    let mut set = sound();
    let body = &mut set.procedures[0].pieces[0].body;
    body.slots = 100;
    for at in 5..70 {
        body.named.push((Slot(at), Code::Record(vec![slot(at - 1), slot(at - 1)])));
    }
    let refused = set.validate().unwrap_err().to_string();
    assert!(refused.contains("a type nests at most 32 lists and records"), "{refused}");
    // A record of many large records.
    let wide = Type::Record((0..127).map(|_| field("", Type::Int)).collect());
    shop_refused(
        |shop| {
            shop.inputs[0].of = wide.clone();
            shop.pieces[0].argument_types[0] = wide;
            shop.pieces[0].body.rows[0].key[0] = Code::Record(vec![slot(0); 1_000]);
        },
        "has at most 128 fields in all",
    );
}

/// Expressions as deep as they can be decoded.
#[test]
fn deep_expressions_overflow_no_stack() {
    let deep: [fn(Code) -> Code; 4] = [
        |code| Code::Not(Box::new(code)),
        |code| Code::List(vec![code]),
        |code| Code::If(boxed(3), Box::new(code), boxed(3)),
        |code| Code::Quantify {
            logic: Logic::And,
            list: Box::new(Code::List(Vec::new())),
            element: Slot(5),
            condition: Box::new(code),
        },
    ];
    for deeper in deep {
        let decodes = |depth: usize| {
            let code = (0..depth).fold(slot(3), |code, _| deeper(code));
            postcard::from_bytes::<Code>(&postcard::to_allocvec(&code).unwrap()).ok()
        };
        let deepest = (1..1_000).map_while(decodes).last().unwrap();
        let validate = move || {
            let mut set = sound();
            set.procedures[0].pieces[0].body.outputs.push((field("deep", Type::Bool), deepest));
            drop(set.validate());
        };
        let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(validate).unwrap();
        thread.join().unwrap();
    }
}

#[test]
fn names_are_bounded() {
    let long = || "x".repeat(MAX_NAME + 1);
    let why = "a name has 65 bytes, and the limit is 64";
    table_refused(|table| table.name = long(), why);
    table_refused(|table| table.key[0].name = long(), why);
    table_refused(|table| table.columns[0].name = long(), why);
    shop_refused(|shop| shop.name = long(), why);
    shop_refused(|shop| shop.inputs[0].name = long(), why);
    shop_refused(|shop| shop.inputs[2].of = list(pair([&long(), "count"]), 3), why);
    shop_refused(|shop| shop.returns[0].field.name = long(), why);
    find_refused(|find| find.name = long(), why);
    find_refused(|find| find.body.outputs[0].0.name = long(), why);
    let mut set = sound();
    set.procedures[0].pieces[0].name = "x".repeat(MAX_NAME);
    assert_eq!(set.validate(), Ok(()));
    shop_refused(
        |shop| shop.name = "x".repeat(1000),
        &format!("procedure `{}...`", "x".repeat(64)),
    );
}

//! Sets with calls that take too long or too much.

use super::*;

/// A client that is no compiler could otherwise occupy every replica.
#[test]
fn what_takes_too_long_or_too_much_is_refused() {
    let steps = |max: u32| Code::Sum(Box::new(ints(max)));
    let all = |max: u32| {
        let body = Box::new(Code::Compare(Comparison::Less, Box::new(steps(max)), boxed(5)));
        Code::Quantify {
            logic: Logic::And,
            list: Box::new(ints(1_000)),
            element: Slot(5),
            condition: body,
        }
    };
    find_refused(|find| name(find, all(1_000)), "steps, and the limit is 1000000");
    let copies = Code::List((0..100).map(|_| ints(2_000)).collect());
    find_refused(|find| name(find, copies), "bytes of memory, and the limit is 4194304");
    shop_refused(
        |shop| {
            shop.returns[0].slots = 3;
            let body = Box::new(Code::List((0..200).map(|_| slot(2)).collect()));
            let list = Box::new(Code::Range(Box::new(int(0)), Box::new(int(1)), 10_000));
            shop.returns[0].code = Code::Map { list, element: Slot(2), condition: None, body };
        },
        "result `left` of procedure `shop`: this takes up to",
    );
    // Numbers do not overflow.
    let huge =
        (0..9).fold(ints(u32::MAX), |list, _| Code::Flatten(Box::new(map(list, ints(u32::MAX)))));
    find_refused(|find| name(find, huge), "this takes up to 18446744073709551615 steps");
}

/// The sound set, in which the piece that writes occurs so often, has these steps and returns so many bytes.
fn often(times: u32, max: u32, bytes: u32) -> impl FnOnce(&mut Procedure) {
    move |shop| {
        shop.inputs[2].of = list(pair(["item", "count"]), times);
        shop.returns.clear();
        let pay = &mut shop.pieces[1];
        if let Multiplicity::ForEach { max, .. } = &mut pay.multiplicity {
            *max = times;
        }
        let range = Code::Range(boxed(1), boxed(2), max);
        pay.body.named[0] =
            (Slot(4), Code::Left(Box::new(Code::Decimal(Box::new(Code::Sum(Box::new(range))))), 8));
        pay.body.outputs.push((field("large", Type::String { max: bytes }), slot(4)));
    }
}

/// A list that takes 50,000 steps and 3.2 MB.
fn long_list() -> Code {
    Code::Range(Box::new(int(0)), Box::new(int(1)), 100_000)
}

/// Has the piece that writes iterate another list.
fn iterate(shop: &mut Procedure, list: Code) {
    if let Multiplicity::ForEach { lists, .. } = &mut shop.pieces[1].multiplicity {
        lists.push(list);
    }
}

fn long_result(name: &str) -> Returned {
    let field = field(name, list(Type::Int, 100_000));
    Returned { field, arguments: Vec::new(), code: long_list(), slots: 0 }
}

#[test]
fn lists_and_results_are_in_memory_together() {
    let mut set = sound();
    iterate(&mut set.procedures[0], long_list());
    set.procedures[0].returns.push(long_result("all"));
    assert_eq!(set.validate(), Ok(()));
    shop_refused(
        |shop| (0..2).for_each(|_| iterate(shop, long_list())),
        "piece `pay` of procedure `shop`: this takes up to 6400",
    );
    shop_refused(
        |shop| shop.returns.extend([long_result("all"), long_result("more")]),
        "result `more` of procedure `shop`: this takes up to 6400",
    );
}

#[test]
fn keys_and_rows_that_are_read_take_memory() {
    let large = |shop: &mut ProcedureSet| {
        shop.tables[0].columns[1].of = Type::String { max: 5 << 20 };
        shop.procedures[0].pieces[0].body.outputs.pop();
    };
    refused(large, "piece `find` of procedure `shop`: this takes up to 52");
    let large_key = |shop: &mut ProcedureSet| {
        shop.tables[0].key[1].of = Type::String { max: 5 << 20 };
        let rows = shop.procedures[0].pieces.iter_mut().flat_map(|piece| &mut piece.body.rows);
        rows.for_each(|row| row.key[1] = Code::Constant(Datum::from("")));
        shop.procedures[0].pieces[1].body.rows[1].known = 2;
    };
    refused(large_key, "piece `find` of procedure `shop`: this takes up to 52");
}

#[test]
fn a_call_is_bounded() {
    for (times, bytes) in [(8_000, 8), (1_000, 1 << 13)] {
        let mut set = sound();
        often(times, 100, bytes)(&mut set.procedures[0]);
        assert_eq!(set.validate(), Ok(()));
    }
    shop_refused(
        often(10_000, 100, 8),
        "procedure `shop`: a call may have 10001 occurrences of pieces, and the limit is 10000",
    );
    shop_refused(
        often(5_000, 5_000, 8),
        "procedure `shop`: the pieces of a call take up to 42670521 steps together",
    );
    // Rows and slots count, however little is done with them.
    shop_refused(often(9_999, 100, 8), "procedure `shop`: the pieces of a call take up to");
    shop_refused(
        |shop| {
            often(3_000, 8, 8)(shop);
            shop.pieces[1].body.slots = 4_096;
        },
        "procedure `shop`: the pieces of a call take up to",
    );
    // So do lists that are iterated, and results, beside the pieces.
    let most = (1..9_999).rev().find(|times| {
        let mut set = sound();
        often(*times, 100, 8)(&mut set.procedures[0]);
        set.validate().is_ok()
    });
    let most = most.expect("a few are taken");
    let too_many = "procedure `shop`: the pieces of a call take up to 100";
    shop_refused(
        |shop| {
            often(most, 100, 8)(shop);
            iterate(shop, long_list());
        },
        too_many,
    );
    shop_refused(
        |shop| {
            often(most, 100, 8)(shop);
            shop.returns.push(long_result("all"));
        },
        too_many,
    );
    shop_refused(
        often(1_000, 100, 1 << 14),
        "procedure `shop`: the inputs of a call, its keys and what its pieces get, return and write take up to",
    );
}

#[test]
fn outputs_that_are_iterated_are_gathered() {
    let mut shop = sound().procedures.remove(0);
    let (before, times) = (shop.gathered(), u64::from(shop.pieces[1].most_occurrences()));
    assert!(times > 1);
    let Multiplicity::ForEach { arguments, .. } = &mut shop.pieces[1].multiplicity else {
        panic!("each line is paid")
    };
    arguments.push(Argument::Output(PieceId(1), 0));
    assert_eq!(shop.gathered(), before + times);
}

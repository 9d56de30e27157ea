//! TPC-C.

use serried_chop::tpcc::{LOADS, LOOKS, TRANSACTIONS as TPCC};
use serried_chop::{Graph, check, check_and_merge, compile, draw};

#[test]
fn tpcc_compiles() {
    let set = compile(TPCC).unwrap_or_else(|mistake| panic!("{mistake}"));
    assert_eq!(set.procedures.len(), 5);
}

#[test]
fn tpcc_needs_no_merged_pieces() {
    let mut set = compile(TPCC).unwrap();
    check(&mut set).unwrap_or_else(|cycle| panic!("{cycle}"));
    let immediate = set.procedures.iter().flat_map(|procedure| {
        let immediate = procedure.pieces.iter().filter(|piece| piece.immediate);
        immediate.map(move |piece| format!("{}.{}", procedure.name, piece.name))
    });
    let immediate: Vec<String> = immediate.collect();
    assert_eq!(
        immediate,
        [
            "new_order.number",
            "new_order.item",
            "new_order.info",
            "payment.name",
            "payment.find",
            // It can fail. The next one reads what the first one writes.
            "order_status.find",
            "stock_level.district"
        ]
    );
    let ordered = set.procedures.iter().filter(|procedure| procedure.ordered);
    let ordered: Vec<&str> = ordered.map(|procedure| procedure.name.as_str()).collect();
    assert_eq!(ordered, ["order_status", "stock_level"]);
    // Of each instance: 2 pieces once and 4 twice, 5 once, and 1 twice.
    assert_eq!(draw(&Graph::new(&set)).matches("<circle").count(), 2 * (10 + 5 + 2));
}

#[test]
fn procedures_that_look_change_nothing_for_the_others() {
    let (mut set, mut looks) = (compile(TPCC).unwrap(), compile(&[TPCC, LOOKS].concat()).unwrap());
    check(&mut set).unwrap();
    check(&mut looks).unwrap();
    assert!(looks.procedures[5..].iter().all(|procedure| procedure.is_read_only()));
    looks.procedures.truncate(5);
    assert_eq!(looks, set);
}

/// Together with the transactions, some would be refused.
#[test]
fn procedures_that_load_are_deferred_in_a_set_of_their_own() {
    let mut set = compile(&[TPCC, LOADS].concat()).unwrap();
    assert!(check(&mut set.clone()).is_err());
    set.procedures.retain(|procedure| procedure.name.starts_with("load_"));
    check(&mut set).unwrap();
    let pieces = set.procedures.iter().flat_map(|procedure| &procedure.pieces);
    assert!(pieces.clone().count() > 5 && pieces.clone().all(|piece| !piece.immediate));
}

/// Servers check types and bounds again, as a set may come from no compiler.
#[test]
fn servers_take_the_sets_of_tpcc() {
    for text in [TPCC.to_owned(), [TPCC, LOADS].concat(), [TPCC, LOOKS].concat()] {
        let mut set = compile(&text).unwrap();
        assert_eq!(set.validate(), Ok(()));
        check_and_merge(&mut set);
        assert_eq!(set.validate(), Ok(()));
    }
}

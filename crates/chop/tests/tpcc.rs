//! TPC-C.

use serried_chop::{Graph, check, compile, draw};

const TPCC: &str = include_str!("../procedures/tpcc.toml");

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
        ["new_order.number", "new_order.item", "new_order.info", "payment.name", "payment.find"]
    );
    // Of each instance: 2 pieces once and 4 twice, 5 once, and 1 twice.
    assert_eq!(draw(&Graph::new(&set)).matches("<circle").count(), 2 * (10 + 5 + 2));
}

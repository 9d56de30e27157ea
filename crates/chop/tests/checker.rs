//! The offline checker.

use serried_chop::{Cycle, Graph, check, check_and_merge, compile, draw};
use serried_procedures::ProcedureSet;

/// Figs. 3 and 4 of 002.
const NEW_ORDER: &str = r#"
[tables.district]
key = { district = "int" }
columns = { next = "int" }
[tables.stock]
key = { item = "int" }
columns = { quantity = "int", note = "int" }
[tables.order_line]
key = { item = "int", order = "int" }
columns = { quantity = "int" }

[procedures.new_order]
inputs = { d = "int", items = { list = "int", max = 2 } }
[procedures.new_order.pieces.number]
rows = { district = ["d"] }
reads = ["district.next"]
writes.district.next = "district.next + 1"
outputs.order = "district.next"
[procedures.new_order.pieces.reduce]
for_each = { item = "items" }
rows = { stock = ["item"] }
reads = ["stock.quantity"]
writes.stock.quantity = "stock.quantity > 1 ? stock.quantity - 1 : stock.quantity"
[procedures.new_order.pieces.line]
for_each = { item = "items" }
rows = { order_line = ["item", "number.order"] }
writes.order_line.quantity = "1"
"#;

fn compiled(text: &str) -> ProcedureSet {
    compile(text).unwrap_or_else(|mistake| panic!("{mistake}"))
}

fn refused(text: &str) -> Cycle {
    *check(&mut compiled(text)).expect_err("this set has an unreorderable cycle")
}

/// With a piece whose stock another piece needs: it is immediate.
fn with_needed_stock() -> String {
    let needed = NEW_ORDER.replace(
        "[procedures.new_order.pieces.line]\nfor_each = { item = \"items\" }",
        "outputs.left = \"stock.quantity\"\n[procedures.new_order.pieces.line]\nfor_each = { item = \"items\", left = \"reduce.left\" }",
    );
    needed.replace("writes.order_line.quantity = \"1\"", "writes.order_line.quantity = \"left\"")
}

#[test]
fn the_simplified_new_order_can_be_reordered() {
    let mut set = compiled(NEW_ORDER);
    check(&mut set).unwrap();
    let immediate: Vec<bool> =
        set.procedures[0].pieces.iter().map(|piece| piece.immediate).collect();
    assert_eq!(immediate, [true, false, false]);
    let graph = Graph::new(&set);
    assert_eq!(
        graph.vertices().len(),
        10,
        "a repeated piece stands twice in each of two instances"
    );
    // Five vertices are joined by ten S-edges in each instance; C-edges join the instances: 1, 2 by 2, and 2 by 2.
    let svg = draw(&graph);
    assert_eq!(svg.matches("<line").count(), 20 + 9);
    assert_eq!(svg.matches("stroke-dasharray").count(), 9);
    assert_eq!(svg.matches(r##"fill="#999""##).count(), 2);
}

#[test]
fn two_immediate_conflicts_are_refused_by_name_and_can_be_merged() {
    let text = with_needed_stock();
    let cycle = refused(&text);
    assert_eq!(
        cycle.to_string(),
        "two concurrent calls, #1 and #2, may interleave in a way that no serial order explains:\n  \
         new_order#1.reduce conflicts on stock.quantity with\n  \
         new_order#2.reduce conflicts on stock.quantity with\n  \
         new_order#1.reduce (again), a sibling of\n  \
         new_order#1.reduce\n\
         merge the pieces `reduce` of `new_order` into one atomic piece"
    );
    let mut set = compiled(&text);
    let merged = check_and_merge(&mut set);
    assert!(!merged.is_empty());
    assert_eq!(check(&mut set), Ok(()));
    let names: Vec<Vec<&str>> = set.procedures[0]
        .merged
        .iter()
        .map(|group| {
            group
                .iter()
                .map(|piece| set.procedures[0].pieces[usize::from(piece.0)].name.as_str())
                .collect()
        })
        .collect();
    assert_eq!(names, [["number", "reduce"]]);
}

#[test]
fn immediacy_spreads_over_conflicts() {
    // `audit` needs what it reads of the stock, so `reduce` can't be deferred any more.
    let audit = r#"
[tables.report]
key = { item = "int" }
columns = { seen = "int" }
[procedures.audit]
inputs = { item = "int" }
[procedures.audit.pieces.look]
rows = { stock = ["item"] }
reads = ["stock.quantity"]
outputs.seen = "stock.quantity"
[procedures.audit.pieces.put]
rows = { report = ["item"] }
writes.report.seen = "look.seen"
"#;
    let mut set = compiled(&[NEW_ORDER, audit].concat());
    check(&mut set).expect_err("`number` and `reduce` of two new orders are immediate now");
    assert!(set.procedures[0].pieces[1].immediate);
    // Another column of the same table is no conflict.
    let other = [NEW_ORDER, &audit.replace("stock.quantity", "stock.note")].concat();
    check(&mut compiled(&other)).unwrap();
}

#[test]
fn read_only_procedures_stay_out_of_the_graph() {
    let text = format!(
        "{NEW_ORDER}{}",
        r#"
[procedures.report]
inputs = { item = "int", d = "int" }
returns = { quantity = "two.quantity" }
[procedures.report.pieces.one]
rows = { district = ["d"] }
reads = ["district.next"]
outputs.next = "district.next"
[procedures.report.pieces.two]
rows = { stock = ["item + one.next"] }
reads = ["stock.quantity"]
outputs.quantity = "stock.quantity"
"#
    );
    let mut set = compiled(&text);
    check(&mut set).unwrap();
    assert!(Graph::new(&set).vertices().iter().all(|vertex| vertex.procedure == 0));
}

#[test]
fn rows_that_are_deleted_conflict_with_every_use() {
    let text = |body: &str| {
        format!(
            r#"
[tables.flag]
key = {{ id = "int" }}
columns = {{ set = "bool", other = "bool" }}
[tables.note]
key = {{ id = "int" }}
columns = {{ text = "bool" }}
[procedures.ask]
inputs = {{ id = "int" }}
[procedures.ask.pieces.look]
rows = {{ flag = ["id"] }}
reads = ["flag"]
outputs.found = "exists(flag)"
[procedures.ask.pieces.put]
rows = {{ note = ["id"] }}
writes.note.text = "look.found"
[procedures.change]
inputs = {{ id = "int" }}
[procedures.change.pieces.one]
rows = {{ flag = ["id"] }}
{body}
"#
        )
    };
    let conflicts = |body| {
        let mut set = compiled(&text(body));
        check(&mut set).unwrap();
        set.procedures[1].pieces[0].immediate
    };
    assert!(conflicts(r#"deletes = ["flag"]"#), "it decides whether the row exists");
    assert!(conflicts(r#"writes.flag.set = "true""#), "it may create the row");
}

/// `step` has two immediate pieces, which are merged, and `mark` a deferred one.
const READERS: &str = r#"
[tables.t]
key = { id = "int" }
columns = { n = "int", mark = "int" }
[tables.u]
key = { id = "int" }
columns = { n = "int" }
[tables.v]
key = { id = "int" }
columns = { n = "int" }

[procedures.step]
inputs = { id = "int" }
[procedures.step.pieces.one]
rows = { row = { table = "t", key = ["id"] } }
reads = ["row.n"]
writes.row.n = "row.n + 1"
outputs.n = "row.n"
[procedures.step.pieces.two]
rows = { row = { table = "u", key = ["one.n"] } }
reads = ["row.n"]
writes.row.n = "row.n + 1"
outputs.n = "row.n"
[procedures.step.pieces.three]
rows = { row = { table = "v", key = ["two.n"] } }
writes.row.n = "1"
[procedures.mark]
inputs = { id = "int" }
[procedures.mark.pieces.one]
rows = { row = { table = "t", key = ["id"] } }
writes.row.mark = "1"

[procedures.one]
inputs = { id = "int" }
[procedures.one.pieces.first]
rows = { row = { table = "t", key = ["id"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.one.pieces.then]
rows = { row = { table = "v", key = ["first.n"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.both]
inputs = { id = "int" }
[procedures.both.pieces.one]
rows = { row = { table = "t", key = ["id"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.both.pieces.other]
rows = { row = { table = "u", key = ["id"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.mixed]
inputs = { id = "int" }
[procedures.mixed.pieces.row]
rows = { row = { table = "t", key = ["id"] } }
reads = ["row.n", "row.mark"]
outputs = { n = "row.n", mark = "row.mark" }
"#;

#[test]
fn read_only_procedures_are_ordered_if_no_cycle_and_no_deferred_piece_is_in_the_way() {
    let mut set = compiled(READERS);
    assert_eq!(check_and_merge(&mut set).len(), 1);
    let ordered = |name: &str| {
        let known = set.procedures.iter().find(|procedure| procedure.name == name).unwrap();
        let immediate: Vec<bool> = known.pieces.iter().map(|piece| piece.immediate).collect();
        (known.ordered, immediate)
    };
    assert_eq!(ordered("one"), (true, vec![true, false]), "the second piece meets a deferred one");
    assert_eq!(ordered("both"), (false, vec![false; 2]), "its pieces meet one merged piece");
    assert_eq!(ordered("mixed"), (false, vec![false]), "it meets an immediate and a deferred one");
    assert!(!ordered("step").0 && !ordered("mark").0, "they write");
}

/// `again` is like `both`, and each of them is on a cycle of its own.
#[test]
fn each_read_only_procedure_on_a_cycle_is_found() {
    let (_, both) = READERS.split_once("[procedures.both]").unwrap();
    let (both, _) = both.split_once("[procedures.mixed]").unwrap();
    let again = both.replace("procedures.both", "procedures.again");
    let mut set = compiled(&[READERS, "[procedures.again]", &again].concat());
    assert_eq!(check_and_merge(&mut set).len(), 1);
    let ordered = set.procedures.iter().filter(|procedure| procedure.ordered);
    assert_eq!(ordered.map(|procedure| procedure.name.as_str()).collect::<Vec<_>>(), ["one"]);
}

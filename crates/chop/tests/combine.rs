//! Sets that are put together.

use serried_chop::{check, compile};
use serried_procedures::ProcedureSet;

const ACCOUNTS: &str = r#"
[tables.accounts]
key = { id = "int" }
columns = { balance = "int" }
[procedures.deposit]
inputs = { id = "int", amount = "int" }
[procedures.deposit.pieces.add]
rows = { row = { table = "accounts", key = ["id"] } }
reads = ["row.balance"]
writes.row.balance = "row.balance + amount"
"#;

/// Its table of accounts has another place.
const LOGGED: &str = r#"
[tables.days]
key = { day = "int" }
columns = { deposits = "int" }
[tables.accounts]
key = { id = "int" }
columns = { balance = "int" }
[procedures.deposit]
inputs = { id = "int", amount = "int", day = "int" }
[procedures.deposit.pieces.add]
rows = { row = { table = "accounts", key = ["id"] } }
reads = ["row.balance"]
writes.row.balance = "row.balance + amount"
[procedures.deposit.pieces.count]
rows = { row = { table = "days", key = ["day"] } }
reads = ["row.deposits"]
writes.row.deposits = "row.deposits + 1"
[procedures.balance]
inputs = { id = "int" }
returns = { balance = "look.balance" }
[procedures.balance.pieces.look]
rows = { row = { table = "accounts", key = ["id"] } }
reads = ["row.balance"]
outputs.balance = "row.balance"
"#;

fn set(text: &str) -> ProcedureSet {
    compile(text).unwrap_or_else(|mistake| panic!("{mistake}"))
}

#[test]
fn a_procedure_takes_the_place_of_one_of_its_name_and_finds_its_tables() {
    let mut both = set(ACCOUNTS).with(&set(LOGGED)).unwrap();
    check(&mut both).unwrap();
    let tables: Vec<&str> = both.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(tables, ["accounts", "days"]);
    let names: Vec<&str> =
        both.procedures.iter().map(|procedure| procedure.name.as_str()).collect();
    assert_eq!(names, ["deposit", "balance"]);
    let used = |name: &str| -> Vec<u16> {
        let pieces = &both.procedure(name).unwrap().pieces;
        pieces.iter().map(|piece| piece.body.rows[0].table).collect()
    };
    assert_eq!((used("deposit"), used("balance")), (vec![0, 1], vec![0]));
    assert_eq!(set(LOGGED).with(&ProcedureSet::default()).unwrap(), set(LOGGED));
    assert_eq!(ProcedureSet::default().with(&set(LOGGED)).unwrap(), set(LOGGED));
}

#[test]
fn a_table_that_is_declared_otherwise_is_refused() {
    let other = set(&ACCOUNTS.replace("balance = \"int\"", "balance = \"int\", note = \"int\""));
    let error = set(ACCOUNTS).with(&other).unwrap_err().to_string();
    assert!(error.starts_with("the table `accounts` is declared otherwise"), "{error}");
}

#[test]
fn a_set_without_a_procedure_keeps_its_tables() {
    let left = set(LOGGED).without("deposit").unwrap();
    assert_eq!((left.procedures.len(), left.tables.len()), (1, 2));
    assert_eq!(left.without("deposit"), None);
}

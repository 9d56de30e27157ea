//! Mistakes in procedure files: each is refused, with its place and advice.

use serried_chop::compile;

/// A file with one procedure, which transfers from one account to another.
const TRANSFER: &str = r#"
[tables.account]
key = { id = "int" }
columns = { balance = "int", note = "string(8)" }

[procedures.transfer]
inputs = { from = "int", to = "int", amount = "int", lines = { list = { item = "int" }, max = 3 } }
returns = { left = "debit.left" }

[procedures.transfer.pieces.debit]
rows = { source = { table = "account", key = ["from"] } }
reads = ["source.balance"]
checks = [{ that = "source.balance >= amount", otherwise = "too little" }]
writes.source.balance = "source.balance - amount"
outputs.left = "source.balance - amount"

[procedures.transfer.pieces.credit]
rows = { target = { table = "account", key = ["to"] } }
reads = ["target.balance"]
writes.target.balance = "target.balance + amount"
"#;

#[track_caller]
fn refused(find: &str, replace: &str, place: &str, message: &str) {
    assert!(TRANSFER.contains(find), "`{find}` is in the file");
    let mistake =
        compile(&TRANSFER.replace(find, replace)).expect_err("this is a mistake").to_string();
    let (found, text) = mistake.split_once(": ").expect("a place and a message");
    assert!(text.contains(message), "{mistake}");
    assert_eq!(found, place, "{mistake}");
}

#[test]
fn the_file_compiles_without_mistakes() {
    compile(TRANSFER).unwrap();
}

#[test]
fn a_file_without_anything_is_refused() {
    for nothing in ["", "# nothing yet\n", "[tables]\n[procedures]\n"] {
        let mistake = compile(nothing).unwrap_err().to_string();
        assert!(mistake.starts_with("1:1: there is nothing here"), "{mistake}");
    }
}

#[test]
fn what_is_no_toml_has_a_place() {
    refused("[tables.account]", "[tables.account", "2:16", "");
    refused("[tables.account]", "[tables.account]\nkey = 1", "4:1", "duplicate key");
}

#[test]
fn unknown_keys_are_named_with_what_there_is() {
    refused(
        "returns =",
        "return =",
        "8:1",
        "procedure `transfer` has no `return`; it may have `inputs`, `pieces`, `returns`",
    );
    refused("reads = [\"source.balance\"]", "read = []", "12:1", "piece `debit` has no `read`");
    refused("key = { id = \"int\" }\n", "", "2:1", "table `account` needs `key`");
}

#[test]
fn types_are_checked() {
    refused("id = \"int\"", "id = \"integer\"", "3:15", "`integer` is not a type; there are `int`");
    refused("\"string(8)\"", "\"string(eight)\"", "4:38", "`string(eight)` is not a type");
    refused(", max = 3 }", " }", "7:62", "a list needs `max`, the greatest number of its elements");
    refused(
        "source.balance >= amount",
        "source.balance - amount",
        "13:21",
        "a check is bool, and this is int",
    );
    refused(
        "source.balance >= amount",
        "amount && true",
        "13:21",
        "this is int, and bool is needed here",
    );
    refused(
        "source.balance >= amount",
        "amount == 'a'",
        "13:28",
        "int and string(1) can't be compared",
    );
    refused(
        "[\"to\"]",
        "[\"'a'\"]",
        "18:48",
        "`id` of table `account` is int, and this is string(1)",
    );
    refused("[\"to\"]", "[\"to\", \"to\"]", "18:19", "the key of table `account` is [id: int]");
    refused(
        "target.balance + amount\"",
        "target.balance + 'a'\"",
        "20:41",
        "int and string(1) can\'t be added",
    );
}

#[test]
fn a_string_must_fit_into_its_column() {
    let reads = "reads = [\"target.balance\", \"target.note\"]";
    let write = |expression: &str| format!("{reads}\nwrites.target.note = \"{expression}\"");
    let reads_now = "reads = [\"target.balance\"]";
    refused(
        reads_now,
        &write("target.note + 'x'"),
        "20:23",
        "column `note` of table `account` is string(8), and this is string(9)",
    );
    compile(&TRANSFER.replace(reads_now, &write("left(target.note + 'x', 8)"))).unwrap();
}

#[test]
fn columns_that_are_not_declared_are_refused() {
    refused(
        "source.balance >= amount",
        "source.note == ''",
        "13:21",
        "`source.note` is used and not declared",
    );
    refused(
        "source.balance >= amount",
        "exists(source)",
        "13:28",
        "add `source` to the piece's `reads`",
    );
    refused(
        "source.balance >= amount",
        "source.none == 1",
        "13:21",
        "table `account` has no column `none`; it has `balance`, `note`",
    );
    refused(
        "reads = [\"source.balance\"]",
        "reads = [\"target.balance\"]",
        "12:11",
        "the piece has no row `target`; it has `source`",
    );
    refused(
        "writes.target.balance",
        "writes.target.none",
        "20:15",
        "table `account` has no column `none`",
    );
    refused(
        "writes.target.balance",
        "writes.other.balance",
        "20:8",
        "the piece has no row `other`",
    );
}

#[test]
fn names_are_looked_up() {
    refused(
        "[\"to\"]",
        "[\"too\"]",
        "18:48",
        "nothing is named `too` here; these are: `from`, `to`, `amount`, `lines`, `debit`",
    );
    refused(
        "\"debit.left\"",
        "\"debit.right\"",
        "8:21",
        "piece `debit` has no output `right`; it has `left`",
    );
    refused("\"debit.left\"", "\"debit\"", "8:21", "`debit` is a piece; say which of its outputs");
    refused("\"debit.left\"", "\"lines.item\"", "8:21", "`.item` needs a record before it");
    refused(
        "table = \"account\", key = [\"to\"]",
        "table = \"accounts\", key = [\"to\"]",
        "18:29",
        "there is no table `accounts`; there are `account`",
    );
    refused("pieces.credit", "pieces.from", "17:29", "`from` is already the name of an input");
    refused("pieces.credit", "pieces.for", "17:29", "`for` can't be a name");
}

#[test]
fn what_is_no_expression_has_a_place() {
    refused("source.balance >= amount", "source.balance >= ", "13:39", "it ends too early");
    refused("source.balance >= amount", "size(1) == 1", "13:25", "int has no size");
    refused(
        "source.balance >= amount",
        "now() == 1",
        "13:24",
        "there is no function `now` with these operands; there are size(x)",
    );
    refused("source.balance >= amount", "now() == 1", "13:24", "list.distinct(), list.flatten(), ");
    refused("source.balance >= amount", "1.5 == 1.5", "13:21", "procedures have data of the types");
}

#[test]
fn all_rows_of_a_piece_are_at_one_server() {
    let both = "rows = { target = { table = \"account\", key = [\"to\"] }, source = { table = \"account\", key = [\"from\"] } }\nreads = [\"source.balance\", \"target.balance\"]";
    let now =
        "rows = { target = { table = \"account\", key = [\"to\"] } }\nreads = [\"target.balance\"]";
    refused(
        now,
        both,
        "18:56",
        "row `source` of table `account` may be at another server than row `target` of table `account`",
    );
}

#[test]
fn whatever_can_fail_comes_before_the_first_write() {
    // A second check: one of them may fail when the other piece has written.
    let checks = "reads = [\"target.balance\"]\nchecks = [{ that = \"target.balance < 9\", otherwise = \"too much\" }]";
    refused(
        "reads = [\"target.balance\"]",
        checks,
        "20:21",
        "piece `credit` can fail when piece `debit` has written: it has a check",
    );
    // A division by what may be zero is a failure too.
    refused(
        "target.balance + amount\"",
        "target.balance / amount\"",
        "20:26",
        "it divides by what may be zero",
    );
    // A check that is alone may be in a piece that writes.
    compile(TRANSFER).unwrap();
    compile(&TRANSFER.replace("target.balance + amount\"", "target.balance / 2\"")).unwrap();
    // Each of several occurrences may fail when another has written.
    let repeated = "[procedures.transfer.pieces.debit]\nfor_each = { line = \"lines\" }";
    refused(
        "[procedures.transfer.pieces.debit]",
        repeated,
        "14:21",
        "piece `debit` can fail in one of its occurrences",
    );
    refused("\"debit.left\"", "\"1 / amount\"", "8:21", "this can fail when the call has written");
}

#[test]
fn steps_and_memory_are_bounded() {
    let nested = "lines.map(a, lines.map(b, lines.map(c, lines))).size() == 1";
    compile(&TRANSFER.replace("source.balance >= amount", nested)).unwrap();
    let large =
        TRANSFER.replace("max = 3", "max = 300").replace("source.balance >= amount", nested);
    let mistake = compile(&large).unwrap_err();
    assert_eq!((mistake.line, mistake.column), (10, 29));
    assert!(
        mistake.message.contains("and the limit is 1000000; lower the `max` of the lists"),
        "{mistake}"
    );
    let deep = format!("{}true{}", "(".repeat(100), ")".repeat(100));
    refused(
        "source.balance >= amount",
        &deep,
        "13:54",
        "this is not an expression: its brackets nest more than 32 deep",
    );
}

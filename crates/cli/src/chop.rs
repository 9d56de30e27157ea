//! `serried chop`: the offline checker of procedures.

mod call;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde_json::json;
use serried_chop::{Cycle, Graph};
use serried_procedures::{Multiplicity, Piece, Procedure, ProcedureSet, Table};

use crate::Ended;

/// Check stored procedures: which pieces can be deferred, and whether all interleavings can be reordered.
///
/// The file declares tables, and procedures that are chopped into pieces. Concurrent pieces interleave. A server defers a
/// piece whose outputs no other piece needs, and then executes deferred pieces in an order that is right. It can't
/// reorder pieces that it had to execute at once. The checker refuses a file whose immediate pieces may interleave in a
/// way that no serial order explains. It names such pieces; merged into one atomic piece, they are accepted.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Chop {
    /// The procedure file
    file: PathBuf,
    /// Accept the proposed merges
    #[arg(long)]
    merge: bool,
    /// Draw the graph of pieces (SVG): grey pieces are immediate, white ones deferred; solid lines join pieces of one
    /// procedure, dotted lines pieces that conflict
    #[arg(long, value_name = "FILE")]
    draw: Option<PathBuf>,
    /// Call a procedure, on tables that are empty at first, and print its results as JSON; bytes are hexadecimal. May be
    /// repeated: each call finds what those before it have written. Calls are made if the file is accepted
    #[arg(long, value_name = "NAME {INPUTS}", conflicts_with = "json")]
    call: Vec<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = r#"A file of one table and one procedure:
  [tables.account]
  key = { id = "int" }
  columns = { balance = "int" }

  [procedures.deposit]
  inputs = { account = "int", amount = "int" }
  [procedures.deposit.pieces.add]
  rows = { row = { table = "account", key = ["account"] } }
  reads = ["row.balance"]
  writes.row.balance = "row.balance + amount"

Examples:
  serried chop shop.toml
  serried chop shop.toml --merge --draw shop.svg
  serried chop shop.toml --call 'deposit {"account": 1, "amount": 50}'"#;

impl Chop {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let mut set = compile(&self.file)?;
        let (merged, refused) = if self.merge {
            (serried_chop::check_and_merge(&mut set), None)
        } else {
            (Vec::new(), serried_chop::check(&mut set).err())
        };
        if let Some(path) = &self.draw {
            draw(&set, path)?;
        }
        if refused.is_none() && !self.call.is_empty() {
            call::run(&set, &self.call)?.iter().for_each(|line| println!("{line}"));
        } else if self.json {
            println!("{}", describe(&set, &merged, refused.as_deref()));
        } else {
            print(&set, &merged, refused.as_deref());
        }
        Ok(if refused.is_none() { Ended::Well } else { Ended::Violation })
    }
}

/// Reads and compiles a procedure file.
pub(crate) fn compile(file: &Path) -> anyhow::Result<ProcedureSet> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("can't read {name}"))?;
    serried_chop::compile(&text).map_err(|mistake| anyhow::anyhow!("{name}:{mistake}"))
}

fn draw(set: &ProcedureSet, path: &Path) -> anyhow::Result<()> {
    let svg = serried_chop::draw(&Graph::new(set));
    std::fs::write(path, svg).with_context(|| format!("can't write {}", path.display()))
}

fn print(set: &ProcedureSet, merged: &[Cycle], refused: Option<&Cycle>) {
    for procedure in &set.procedures {
        println!(
            "{}{}",
            procedure.name,
            match (procedure.is_read_only(), procedure.ordered) {
                (true, true) => " (read-only, can be ordered)",
                (true, false) => " (read-only)",
                (false, _) => "",
            }
        );
        let width = procedure.pieces.iter().map(|piece| piece.name.len()).max().unwrap_or(0);
        for piece in &procedure.pieces {
            let kind = kind(procedure, piece);
            println!(
                "  {:width$}  {kind:9}  {:17}  {}",
                piece.name,
                occurs(piece),
                uses(&set.tables, piece)
            );
        }
        for group in &procedure.merged {
            let names: Vec<&str> =
                group.iter().map(|id| procedure.pieces[usize::from(id.0)].name.as_str()).collect();
            println!("  merged: {}", names.join(", "));
        }
    }
    for cycle in merged {
        println!("\n{cycle}: done");
    }
    match refused {
        Some(cycle) => println!(
            "\nrefused: {cycle}, as --merge does, or let fewer pieces need the outputs of others"
        ),
        None => {
            let pieces = set.procedures.iter().map(|procedure| procedure.pieces.len()).sum();
            let count =
                |count: usize, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
            println!(
                "\naccepted: {} with {}",
                count(set.procedures.len(), "procedure"),
                count(pieces, "piece")
            );
        }
    }
}

fn describe(set: &ProcedureSet, merged: &[Cycle], refused: Option<&Cycle>) -> serde_json::Value {
    let procedures = set.procedures.iter().map(|procedure| {
        let pieces = procedure.pieces.iter().map(|piece| {
            json!({ "name": piece.name, "kind": kind(procedure, piece), "occurs": occurs(piece), "uses": uses(&set.tables, piece) })
        });
        let merged = procedure.merged.iter().map(|group| {
            group.iter().map(|id| procedure.pieces[usize::from(id.0)].name.as_str()).collect::<Vec<_>>()
        });
        json!({
            "name": procedure.name,
            "read_only": procedure.is_read_only(),
            "ordered": procedure.ordered,
            "pieces": pieces.collect::<Vec<_>>(),
            "merged": merged.collect::<Vec<_>>(),
        })
    });
    json!({
        "accepted": refused.is_none(),
        "procedures": procedures.collect::<Vec<_>>(),
        "cycles": merged.iter().chain(refused).map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn kind(procedure: &Procedure, piece: &Piece) -> &'static str {
    match (procedure.is_read_only(), piece.immediate) {
        (true, _) => "reads",
        (false, true) => "immediate",
        (false, false) => "deferred",
    }
}

fn occurs(piece: &Piece) -> String {
    match piece.multiplicity {
        Multiplicity::Once => "once".to_owned(),
        Multiplicity::ForEach { max, .. } => format!("up to {max} times"),
    }
}

/// The columns that a piece reads and writes.
fn uses(tables: &[Table], piece: &Piece) -> String {
    let mut uses: Vec<String> = Vec::new();
    let mut add = |what: &str, mut columns: Vec<String>| {
        // Several rows of a piece may be of one table.
        let mut named = BTreeSet::new();
        columns.retain(|column| named.insert(column.clone()));
        if !columns.is_empty() {
            uses.push(format!("{what} {}", columns.join(", ")));
        }
    };
    let column = |table: u16, column: u16| {
        let table = &tables[usize::from(table)];
        format!("{}.{}", table.name, table.columns[usize::from(column)].name)
    };
    let rows = &piece.body.rows;
    let table_of = |row: u16| rows[usize::from(row)].table;
    add(
        "reads",
        rows.iter()
            .flat_map(|row| row.reads.iter().map(|(read, _)| column(row.table, *read)))
            .collect(),
    );
    add(
        "writes",
        piece.body.writes.iter().map(|write| column(table_of(write.row), write.column)).collect(),
    );
    add(
        "deletes",
        piece
            .body
            .deletes
            .iter()
            .map(|row| tables[usize::from(table_of(*row))].name.clone())
            .collect(),
    );
    uses.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_of_several_rows_is_named_once() {
        let text = r#"
            [tables.t]
            key = { id = "int" }
            columns = { a = "int", b = "int" }
            [procedures.p]
            inputs = { id = "int" }
            [procedures.p.pieces.move]
            rows = { one = { table = "t", key = ["id"] }, same = { table = "t", key = ["id"] } }
            reads = ["one.b", "same.a", "same.b"]
            writes = { one.a = "one.b", same.a = "same.b + same.a" }
            deletes = ["one", "same"]
        "#;
        let set = serried_chop::compile(text).unwrap();
        let piece = &set.procedures[0].pieces[0];
        assert_eq!(uses(&set.tables, piece), "reads t.b, t.a; writes t.a; deletes t");
    }
}

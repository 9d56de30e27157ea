//! Tables of the paper's numbers and ours, and their alignment for a terminal.

use super::page::Page;
use crate::Findings;

/// The most rows of a table for a terminal. Longer tables are on the page only.
const MOST_ROWS: usize = 120;

/// A table's header and rows.
pub(super) struct Table {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of rows whose cells have the same headers. Columns without a known number are left out.
    pub(super) fn new(rows: impl Iterator<Item = Vec<(String, String)>>) -> Table {
        let rows: Vec<Vec<(String, String)>> = rows.collect();
        let columns = 0..rows.first().map_or(0, Vec::len);
        let is_known = |column: &usize| rows.iter().any(|row| row[*column].1 != UNKNOWN);
        let columns: Vec<usize> = columns.filter(is_known).collect();
        let header = columns.iter().map(|column| rows[0][*column].0.clone()).collect();
        let contents = |row: &Vec<(String, String)>| {
            columns.iter().map(|column| row[*column].1.clone()).collect()
        };
        Table { header, rows: rows.iter().map(contents).collect() }
    }
}

/// The tables for a terminal.
pub fn table(findings: &Findings) -> String {
    let Page { title, summary, sections, remarks, .. } = Page::new(findings);
    let mut text = format!("{title}: {summary}\n\n");
    for section in sections {
        match section.table.rows.len() {
            0..=MOST_ROWS => text.push_str(&align(&section.table)),
            rows => text.push_str(&format!("{}: {rows} rows, on the page\n", section.heading)),
        }
        text.extend(section.note.map(|note| format!("{note}\n")));
        text.push('\n');
    }
    for remark in remarks {
        text.push_str(&format!("- {remark}.\n"));
    }
    text
}

/// Whether a column of this name holds words.
pub(super) fn is_text(header: &str) -> bool {
    ["panel", "protocol", "operation", "what", "guarantee", "writes together"].contains(&header)
}

fn align(table: &Table) -> String {
    let header = &table.header;
    let lines: Vec<&Vec<String>> = core::iter::once(header).chain(&table.rows).collect();
    let length = |cell: &String| cell.chars().count();
    let width = |column: usize| lines.iter().map(|line| length(&line[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if is_text(&header[column]) {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The text for an unknown number.
pub(super) const UNKNOWN: &str = "-";

/// A number with at most `decimals` decimals and no trailing zeros, or a dash.
pub(super) fn number(number: Option<f64>, decimals: usize) -> String {
    let Some(number) = number else { return UNKNOWN.to_string() };
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// A whole number with its digits in groups, or a dash.
pub(super) fn thousands(number: Option<f64>) -> String {
    let Some(number) = number else { return UNKNOWN.to_string() };
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_absent_ones_are_dashes() {
        assert_eq!(number(Some(1.50), 2), "1.5");
        assert_eq!(number(Some(20.0), 3), "20");
        assert_eq!(number(Some(100.4), 0), "100");
        assert_eq!(thousands(Some(1_234_567.4)), "1,234,567");
        assert_eq!(thousands(Some(999.0)), "999");
        assert_eq!((number(None, 1), thousands(None)), ("-".into(), "-".into()));
    }

    #[test]
    fn columns_are_aligned() {
        let rows = vec![vec!["a".to_string(), "1".to_string()], vec!["bb".into(), "23".into()]];
        let table = Table { header: vec!["panel".into(), "n".into()], rows };
        assert_eq!(align(&table), "panel   n\na       1\nbb     23\n");
    }

    #[test]
    fn columns_in_which_nothing_is_known_are_left_out() {
        let row = |cells: [&str; 3]| {
            ["panel", "x", "n"].into_iter().zip(cells).map(|(a, b)| (a.into(), b.into())).collect()
        };
        let table = Table::new([row(["a", "-", "1"]), row(["b", "-", "-"])].into_iter());
        assert_eq!(table.header, ["panel", "n"]);
        assert_eq!(table.rows, [["a", "1"], ["b", "-"]]);
        assert!(Table::new(core::iter::empty()).header.is_empty());
    }
}

//! The paper's numbers beside ours, as tables: rows of cells, and those rows aligned for a terminal.

use super::{Page, Reported};

/// A table's header and rows.
pub(super) struct Table {
    pub(super) header: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

/// The tables for a terminal.
pub fn table(findings: &impl Reported) -> String {
    let Page { title, summary, sections, remarks, .. } = findings.page();
    let mut text = format!("{title}: {summary}\n\n");
    for section in sections {
        text.push_str(&align(&section.table));
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
    ["panel", "protocol", "ratio", "operation", "what"].contains(&header)
}

fn align(table: &Table) -> String {
    let header = table.header.iter().map(ToString::to_string).collect();
    let lines: Vec<&Vec<String>> = core::iter::once(&header).chain(&table.rows).collect();
    let length = |cell: &String| cell.chars().count();
    let width = |column: usize| lines.iter().map(|line| length(&line[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if is_text(table.header[column]) {
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

/// A number with so many decimals, without zeros at the end, or a dash.
pub(super) fn number(number: Option<f64>, decimals: usize) -> String {
    let Some(number) = number else { return "-".to_string() };
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// A whole number with its digits in groups, or a dash.
pub(super) fn thousands(number: Option<f64>) -> String {
    let Some(number) = number else { return "-".to_string() };
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
        let table = Table { header: vec!["panel", "n"], rows };
        assert_eq!(align(&table), "panel   n\na       1\nbb     23\n");
    }
}

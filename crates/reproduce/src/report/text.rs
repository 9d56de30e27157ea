//! The paper's numbers beside ours, as tables: rows of cells, and those rows aligned for a terminal.

use crate::Findings;

/// A table's header and rows.
pub(super) struct Table {
    pub(super) header: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

/// The highest goodputs.
pub(super) fn peaks(findings: &Findings) -> Table {
    let mut header = vec!["panel"];
    header.extend(findings.figure.axis());
    header.extend([
        "protocol",
        "txn/s",
        "paper",
        "ours/paper",
        "clients",
        "commit %",
        "paper",
        "re-exec.",
        "paper",
        "mean ms",
        "low load ms",
        "paper",
        "CPU %",
    ]);
    let rows = findings.peaks.iter().map(|peak| {
        let (ours, paper) = (peak.ours.as_ref(), &peak.paper);
        let mut row = vec![peak.label.to_string()];
        row.extend(findings.figure.axis().map(|_| number(peak.x, 3)));
        row.push(peak.protocol.clone());
        // Where goodput still rose with the most clients.
        let more = if ours.is_some() && !peak.saturated { "+" } else { "" };
        row.push(format!("{}{more}", thousands(ours.map(|ours| ours.goodput_per_s))));
        row.push(thousands(paper.goodput_per_s));
        row.push(number(peak.ours_over_paper, 2));
        row.push(ours.map_or("-".to_string(), |ours| ours.clients.to_string()));
        row.push(number(ours.map(|ours| ours.commit_rate * 100.0), 1));
        row.push(number(paper.commit_rate.map(|rate| rate * 100.0), 1));
        row.push(number(ours.map(|ours| ours.re_executions_per_txn), 2));
        row.push(number(paper.re_executions_per_txn, 2));
        row.push(number(ours.map(|ours| ours.latency_ms_mean), 1));
        row.push(number(peak.low_load_latency_ms, 1));
        row.push(number(paper.low_load_latency_ms, 1));
        row.push(number(ours.map(|ours| ours.replica_cpu * 100.0), 1));
        row
    });
    Table { header, rows: rows.collect() }
}

/// The ratios.
pub(super) fn ratios(findings: &Findings) -> Table {
    let mut header = vec!["panel"];
    header.extend(findings.figure.axis());
    header.extend(["ratio", "ours", "paper"]);
    let rows = findings.ratios.iter().map(|ratio| {
        let mut row = vec![ratio.label.to_string()];
        row.extend(findings.figure.axis().map(|_| number(ratio.x, 3)));
        row.push(format!("{} / {}", ratio.protocol, ratio.over));
        row.extend([number(ratio.ours, 2), number(ratio.paper, 2)]);
        row
    });
    Table { header, rows: rows.collect() }
}

/// Where the paper's numbers stand.
pub(super) fn sources(findings: &Findings) -> Vec<String> {
    let stated = findings.peaks.iter().filter(|peak| !peak.paper.sources.is_empty());
    let stated = stated.map(|peak| {
        let x = peak.x.map_or(String::new(), |x| format!(" at {x}"));
        format!("{}{x}, {}: {}", peak.label, peak.protocol, peak.paper.sources.join("; "))
    });
    let ratios = findings.ratios.iter().filter_map(|ratio| {
        let x = ratio.x.map_or(String::new(), |x| format!(" at {x}"));
        let pair = format!("{} / {}", ratio.protocol, ratio.over);
        Some(format!("{}{x}, {pair}: {}", ratio.label, ratio.source?))
    });
    stated.chain(ratios).collect()
}

/// What a reader has to know about a goodput that is marked.
pub(super) const MARK: &str = "+ goodput still rose with the most clients that were run";

/// The tables for a terminal.
pub fn table(findings: &Findings) -> String {
    let mut text = format!("{}: {}\n\n", findings.figure.title, findings.figure.summary);
    text.push_str(&align(&peaks(findings)));
    text.push_str(&format!("{MARK}\n\n"));
    text.push_str(&align(&ratios(findings)));
    text.push('\n');
    for remark in findings.figure.remarks {
        text.push_str(&format!("- {remark}.\n"));
    }
    text
}

fn align(table: &Table) -> String {
    let header = table.header.iter().map(ToString::to_string).collect();
    let lines: Vec<&Vec<String>> = core::iter::once(&header).chain(&table.rows).collect();
    let length = |cell: &String| cell.chars().count();
    let width = |column: usize| lines.iter().map(|line| length(&line[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let is_text = |column: usize| ["panel", "protocol", "ratio"].contains(&table.header[column]);
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if is_text(column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
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

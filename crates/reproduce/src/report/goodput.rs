//! What is written of a figure that shows goodput.

use super::chart::{Axis, Chart, Line};
use super::csv::csv;
use super::text::{Table, number, thousands};
use super::{Page, Reported, Section, costs, remarks};
use crate::Findings;
use crate::paper::{SERIES, Varies, series};
use crate::sweep::Sweep;

impl Reported for Findings {
    fn name(&self) -> &'static str {
        self.figure.name
    }

    fn csv(&self) -> String {
        csv(self)
    }

    fn page(&self) -> Page {
        let mut protocols: Vec<&str> = Vec::new();
        for peak in &self.peaks {
            if !protocols.contains(&peak.protocol.as_str()) {
                protocols.push(&peak.protocol);
            }
        }
        let legend = protocols.iter().map(|protocol| (style(protocol, self), name(protocol)));
        Page {
            title: self.figure.title,
            summary: self.figure.summary,
            set_up: set_up(self),
            legend: legend.collect(),
            charts: charts(self),
            sections: vec![
                Section { heading: "Highest goodput", table: peaks(self), note: Some(MARK) },
                Section { heading: "Ratios", table: ratios(self), note: None },
            ],
            remarks: remarks(self.figure.remarks),
            sources: sources(self),
        }
    }
}

/// How it was made, in a few sentences.
fn set_up(findings: &Findings) -> String {
    let effort = &findings.effort;
    format!(
        "Simulated: three replicas, clients at each of them in closed loops, random exponential backoff up to 2.5 s. \
         Each run warms up for {} s and is measured for {} s, or until {} transactions have been committed. \
         {} Seed {}.",
        effort.warm_up_s,
        effort.measured_s,
        effort.most_transactions,
        costs(findings.costs),
        findings.seed
    )
}

/// The style of a protocol's line, the same in all charts.
fn style(protocol: &str, findings: &Findings) -> usize {
    let papers = SERIES.iter().position(|series| series.protocol == protocol);
    papers.unwrap_or_else(|| {
        let others = findings.sweeps.iter().map(|sweep| sweep.protocol.as_str());
        let mut others: Vec<_> = others.filter(|other| series(other).is_none()).collect();
        others.sort_unstable();
        others.dedup();
        let position = others.iter().position(|other| *other == protocol).unwrap_or(0);
        SERIES.len() + position % 2
    })
}

fn name(protocol: &str) -> String {
    series(protocol).map_or(protocol.to_string(), |series| series.label.to_string())
}

fn charts(findings: &Findings) -> Vec<Chart> {
    let figure = findings.figure;
    let mut charts = Vec::new();
    for (panel, part) in figure.panels.iter().enumerate() {
        let (title, goodput) = (part.label.to_string(), "goodput, txn/s");
        match figure.varies {
            Varies::Clients => charts.push(Chart {
                title,
                x: Axis { label: goodput, logarithmic: true },
                y: Axis { label: "mean latency, ms", logarithmic: true },
                lines: curves(findings, panel),
            }),
            Varies::Cores { .. } => charts.push(Chart {
                title,
                x: Axis { label: "cores per replica", logarithmic: false },
                y: Axis { label: goodput, logarithmic: true },
                lines: over_places(findings, panel, false),
            }),
            Varies::Theta { .. } => {
                let x = || Axis { label: "Zipf exponent θ", logarithmic: false };
                charts.push(Chart {
                    title: format!("{title}: goodput"),
                    x: x(),
                    y: Axis { label: goodput, logarithmic: true },
                    lines: over_places(findings, panel, false),
                });
                charts.push(Chart {
                    title: format!("{title}: commit rate"),
                    x: x(),
                    y: Axis { label: "commit rate, %", logarithmic: false },
                    lines: over_places(findings, panel, true),
                });
            }
        }
    }
    charts
}

/// Latency over goodput; of the paper, the highest goodput.
fn curves(findings: &Findings, panel: usize) -> Vec<Line> {
    let peaks = findings.peaks.iter().filter(|peak| peak.panel == panel);
    let line = |peak: &crate::findings::Peak| {
        let is_it = |sweep: &&Sweep| sweep.panel == panel && sweep.protocol == peak.protocol;
        let sweep = findings.sweeps.iter().find(is_it);
        let points = sweep.into_iter().flat_map(|sweep| &sweep.points);
        Line {
            name: name(&peak.protocol),
            style: style(&peak.protocol, findings),
            points: points.map(|run| (run.goodput_per_s, run.latency_ms_mean)).collect(),
            stated: peak
                .paper
                .goodput_per_s
                .map(|goodput| (Some(goodput), None))
                .into_iter()
                .collect(),
        }
    };
    peaks.map(line).collect()
}

/// The highest goodput, or the commit rate there in percent, over the places.
fn over_places(findings: &Findings, panel: usize, commit_rate: bool) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for peak in findings.peaks.iter().filter(|peak| peak.panel == panel) {
        let (name, x) = (name(&peak.protocol), peak.x.unwrap_or_default());
        if lines.iter().all(|line| line.name != name) {
            let style = style(&peak.protocol, findings);
            lines.push(Line { name: name.clone(), style, points: vec![], stated: vec![] });
        }
        let line = lines.iter_mut().find(|line| line.name == name).expect("it was added");
        let (ours, papers) = match commit_rate {
            true => (
                peak.ours.as_ref().map(|ours| ours.commit_rate * 100.0),
                peak.paper.commit_rate.map(|rate| rate * 100.0),
            ),
            false => (peak.ours.as_ref().map(|ours| ours.goodput_per_s), peak.paper.goodput_per_s),
        };
        line.points.extend(ours.map(|ours| (x, ours)));
        line.stated.extend(papers.map(|papers| (Some(x), Some(papers))));
    }
    lines
}

/// The highest goodputs.
fn peaks(findings: &Findings) -> Table {
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
fn ratios(findings: &Findings) -> Table {
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
fn sources(findings: &Findings) -> Vec<String> {
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
const MARK: &str = "+ goodput still rose with the most clients that were run";

//! What is written of a figure that shows latencies.

use super::chart::{Axis, Chart, Line};
use super::text::{Table, number, thousands};
use super::{Page, Reported, Section, costs, remarks};
use crate::RegisterFindings;
use crate::registers::{REQUEST, RunFound, Shows, quantiles};

impl Reported for RegisterFindings {
    fn name(&self) -> &'static str {
        self.figure.name
    }

    fn csv(&self) -> String {
        csv(self)
    }

    fn page(&self) -> Page {
        let legend = self.all_protocols();
        let legend = legend.iter().map(|name| (self.style(name), self.label(name)));
        let sources = self.claims.iter().map(|claim| {
            let x = claim.x.map_or(String::new(), |x| format!(" at {x}"));
            format!("{}{x}, {}: {}", claim.label, claim.what, claim.source)
        });
        let claims = Section {
            heading: "The paper's numbers and ours",
            table: claims(self),
            note: Some("A place that is - stands for the greatest over all places"),
        };
        let runs = Section { heading: "All runs", table: runs(self), note: None };
        let mut sections = vec![runs];
        if !self.claims.is_empty() {
            sections.insert(0, claims);
        }
        Page {
            title: self.figure.title,
            summary: self.figure.summary,
            set_up: set_up(self),
            legend: legend.collect(),
            charts: charts(self),
            sections,
            remarks: remarks(self.figure.remarks),
            sources: sources.collect(),
        }
    }
}

/// How it was made, in a few sentences.
fn set_up(findings: &RegisterFindings) -> String {
    let (effort, figure) = (&findings.effort, findings.figure);
    let missing = match &findings.missing[..] {
        [] => String::new(),
        missing => format!(" Not there: {}.", missing.join(", ")),
    };
    format!(
        "Simulated: {} replicas of {} cores in `{}`, clients at each site in closed loops, \
         thrifty messages. \
         Each run warms up for {} s and is measured for {} s, or until {} operations have been done. {} \
         Seed {}.{missing}",
        figure.replicas,
        figure.replica_cores,
        figure.geography,
        effort.warm_up_s,
        effort.measured_s,
        effort.most_operations,
        costs(findings.costs),
        findings.seed
    )
}

impl RegisterFindings {
    /// The paper's systems, there or not, and then the others that were run.
    fn all_protocols(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.figure.protocols().collect();
        for run in &self.runs {
            if !all.contains(&run.protocol.as_str()) {
                all.push(&run.protocol);
            }
        }
        all
    }

    /// The style of a protocol's line, the same in all charts.
    fn style(&self, protocol: &str) -> usize {
        let place = self.all_protocols().iter().position(|other| *other == protocol);
        place.unwrap_or_default() % 6
    }

    fn label(&self, protocol: &str) -> String {
        let series = self.figure.series.iter().find(|series| series.protocol == protocol);
        let name = series.map_or(protocol, |series| series.label);
        match self.missing.contains(&protocol) {
            true => format!("{name} (not there)"),
            false => name.to_string(),
        }
    }

    /// A line for each protocol that was run, of its runs in a panel.
    fn lines(&self, panel: usize, points: impl Fn(&[&RunFound]) -> Vec<(f64, f64)>) -> Vec<Line> {
        let line = |protocol: &&str| {
            let of = |run: &&RunFound| run.panel == panel && run.protocol == *protocol;
            let runs: Vec<&RunFound> = self.runs.iter().filter(of).collect();
            (!runs.is_empty()).then(|| Line {
                name: self.label(protocol),
                style: self.style(protocol),
                points: points(&runs),
                stated: Vec::new(),
            })
        };
        self.all_protocols().iter().filter_map(line).collect()
    }
}

fn claims(findings: &RegisterFindings) -> Table {
    let mut header = vec!["panel"];
    header.extend(findings.figure.axis());
    header.extend(["what", "ours", "paper"]);
    let rows = findings.claims.iter().map(|claim| {
        let mut row = vec![claim.label.to_string()];
        row.extend(findings.figure.axis().map(|_| number(claim.x, 3)));
        row.extend([claim.what.clone(), number(claim.ours, 1), number(Some(claim.paper), 1)]);
        row
    });
    Table { header, rows: rows.collect() }
}

fn runs(findings: &RegisterFindings) -> Table {
    let mut header = vec!["panel"];
    header.extend(findings.figure.axis());
    let places = header.len();
    header.extend([
        "protocol",
        "operation",
        "op/s",
        "mean ms",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "p99.9 ms",
        "failed",
        "msgs",
        "CPU %",
    ]);
    let mut rows = Vec::new();
    for run in &findings.runs {
        let measured = &run.measured;
        let kinds = measured.kinds.iter().filter(|kind| {
            // Where requests are single operations, their kinds say it all.
            kind.kind != REQUEST || shows_requests(findings)
        });
        for kind in kinds {
            let mut row = vec![run.label.to_string()];
            row.extend(findings.figure.axis().map(|_| number(run.x, 3)));
            row.extend([run.protocol.clone(), kind.kind.clone(), thousands(Some(kind.per_s))]);
            row.push(number(Some(kind.mean_ms), 1));
            row.extend([0.5, 0.9, 0.99, 0.999].map(|q| number(kind.quantile_ms(q), 1)));
            row.push(measured.failed.to_string());
            row.push(number(Some(measured.messages_per_request), 1));
            row.push(number(Some(measured.replica_cpu * 100.0), 1));
            rows.push(row);
        }
    }
    let nothing = || "-".to_string();
    for panel in findings.figure.panels {
        rows.extend(findings.missing.iter().map(|missing| {
            let mut row = vec![panel.label.to_string()];
            row.resize_with(places, nothing);
            row.push(missing.to_string());
            row.resize_with(header.len(), nothing);
            row
        }));
    }
    Table { header, rows }
}

fn shows_requests(findings: &RegisterFindings) -> bool {
    matches!(findings.figure.shows, Shows::Load { .. } | Shows::SubRequests { .. })
}

fn charts(findings: &RegisterFindings) -> Vec<Chart> {
    let figure = findings.figure;
    let mut charts = Vec::new();
    let axis = |label, logarithmic| Axis { label, logarithmic };
    for (panel, part) in figure.panels.iter().enumerate() {
        match figure.shows {
            Shows::Distributions { kinds } => {
                for kind in kinds {
                    let body = findings.lines(panel, |runs| distribution(runs, kind, false));
                    charts.push(Chart {
                        title: format!("{}: {kind}s", part.label),
                        x: axis("latency, ms", false),
                        y: axis("share of operations, %", false),
                        lines: body,
                    });
                    let tail = findings.lines(panel, |runs| distribution(runs, kind, true));
                    charts.push(Chart {
                        title: format!("{}: {kind}s, the tail", part.label),
                        x: axis("latency, ms", false),
                        y: axis("share of operations above it, %", true),
                        lines: tail,
                    });
                }
            }
            Shows::Writes { kinds, .. } => {
                for kind in kinds {
                    let mut lines =
                        findings.lines(panel, |runs| over_places(runs, kind, 0.99, 100.0));
                    mark_claims(findings, panel, kind, &mut lines);
                    charts.push(Chart {
                        title: format!("{}: p99 of {kind}s", part.label),
                        x: axis("writes, %", false),
                        y: axis("p99 latency, ms", false),
                        lines,
                    });
                }
            }
            Shows::Load { .. } => charts.push(Chart {
                title: part.label.to_string(),
                x: axis("throughput, op/s", false),
                y: axis("median latency, ms", true),
                lines: findings.lines(panel, |runs| {
                    let requests = runs.iter().filter_map(|run| run.measured.kind(REQUEST));
                    requests.filter_map(|kind| Some((kind.per_s, kind.quantile_ms(0.5)?))).collect()
                }),
            }),
            Shows::SubRequests { .. } => charts.push(Chart {
                title: part.label.to_string(),
                x: axis("sub-requests", false),
                y: axis("median latency of requests, ms", false),
                lines: findings.lines(panel, |runs| over_places(runs, REQUEST, 0.5, 1.0)),
            }),
        }
    }
    charts
}

/// Shares of operations over latencies; of the tail, what is left above them.
fn distribution(runs: &[&RunFound], kind: &str, tail: bool) -> Vec<(f64, f64)> {
    let found = runs.iter().filter_map(|run| run.measured.kind(kind)).next();
    let Some(found) = found else { return Vec::new() };
    // What happened less than once is not known.
    let known = |share: &f64| (1.0 - share) * found.count as f64 >= 1.0;
    let places = quantiles().into_iter().zip(&found.quantiles_ms);
    let places = places.filter(|(share, _)| known(share));
    places
        .filter(|(share, _)| tail || *share <= 0.99)
        .map(|(share, ms)| (*ms, 100.0 * if tail { 1.0 - share } else { share }))
        .collect()
}

/// A quantile of a kind over the places, which are shown so many times as large.
fn over_places(runs: &[&RunFound], kind: &str, quantile: f64, times: f64) -> Vec<(f64, f64)> {
    let place = |run: &&RunFound| {
        let latency = run.measured.kind(kind)?.quantile_ms(quantile)?;
        Some((run.x? * times, latency))
    };
    runs.iter().filter_map(place).collect()
}

/// Marks what the text says of a protocol's own latency, at a place or across all.
fn mark_claims(findings: &RegisterFindings, panel: usize, kind: &str, lines: &mut [Line]) {
    for claim in findings.figure.claims {
        let is_it = claim.panel == panel
            && claim.minus.is_none()
            && claim.of == crate::registers::Quantity::Latency { kind: own(kind), quantile: 0.99 };
        let name = findings.label(claim.protocol);
        if let Some(line) = lines.iter_mut().find(|line| is_it && line.name == name) {
            line.stated.push((claim.x.map(|x| x * 100.0), Some(claim.value)));
        }
    }
}

/// The kind as figures name it.
fn own(kind: &str) -> &'static str {
    ["read", "write", "rmw"].into_iter().find(|own| *own == kind).unwrap_or_default()
}

const HEADER: &str = "figure,panel,x,protocol,clients,operation,count,per_s,mean_ms,p50_ms,p90_ms,p99_ms,\
p999_ms,failed,messages_per_request,replica_cpu,seconds,event_hash\n";

/// One line for each kind of operation of each run. Nothing in it needs quotes.
fn csv(findings: &RegisterFindings) -> String {
    let mut text = HEADER.to_string();
    for run in &findings.runs {
        let measured = &run.measured;
        for kind in &measured.kinds {
            let quantile = |q| kind.quantile_ms(q).map_or(String::new(), |ms| ms.to_string());
            let cells = [
                findings.figure.name.to_string(),
                run.label.to_string(),
                run.x.map_or(String::new(), |x| x.to_string()),
                run.protocol.clone(),
                measured.clients.to_string(),
                kind.kind.clone(),
                kind.count.to_string(),
                kind.per_s.to_string(),
                kind.mean_ms.to_string(),
                quantile(0.5),
                quantile(0.9),
                quantile(0.99),
                quantile(0.999),
                measured.failed.to_string(),
                measured.messages_per_request.to_string(),
                measured.replica_cpu.to_string(),
                measured.seconds.to_string(),
                measured.event_hash.clone(),
            ];
            text.push_str(&cells.join(","));
            text.push('\n');
        }
    }
    text
}

//! What is written of a figure that shows systems under load.

use super::chart::{Axis, Chart, Line};
use super::text::{Table, number, thousands};
use super::{Page, Reported, Section, costs, remarks};
use crate::load::{Dip, LOAD, OPERATING_MS, SERVER_CORES, SERVERS, SLOT, Shows, SystemFound, knee};
use crate::measured::Measured;
use crate::{Deaths, LoadFindings};

impl Reported for LoadFindings {
    fn name(&self) -> &'static str {
        self.figure.name
    }

    fn csv(&self) -> String {
        csv(self)
    }

    fn page(&self) -> Page {
        let legend = self.all_protocols();
        let legend = legend.iter().map(|name| (self.style(name), self.label(name)));
        let sources = self.claims.iter().map(|claim| format!("{}: {}", claim.what, claim.source));
        let mut sections = Vec::new();
        if !self.claims.is_empty() {
            let heading = "The paper's numbers and ours";
            sections.push(Section { heading, table: claims(self), note: None });
        }
        if self.figure.shows != Shows::Curve {
            let heading = "At a share of the highest throughput";
            sections.push(Section { heading, table: places(self), note: None });
        }
        let heading = "Systems";
        sections.push(Section { heading, table: systems(self), note: Some(MARK) });
        sections.push(Section { heading: "All runs", table: runs(self), note: None });
        let missing = self.missing.iter().map(|name| absent(name));
        Page {
            title: self.figure.title,
            summary: self.figure.summary,
            set_up: set_up(self),
            legend: legend.collect(),
            charts: charts(self),
            sections,
            remarks: missing.chain(remarks(self.figure.remarks)).collect(),
            sources: sources.collect(),
        }
    }
}

/// Why a system of the paper's is not there.
fn absent(protocol: &str) -> String {
    match serried_protocols::list().iter().any(|known| known.name == protocol) {
        true => format!("`{protocol}` was not asked for"),
        false => format!("`{protocol}` is not in this build, and is left out"),
    }
}

/// What a reader has to know about a throughput that is marked.
const MARK: &str = "+ it was never offered more than it could do";

/// How it was made, in a few sentences.
fn set_up(findings: &LoadFindings) -> String {
    let (effort, figure) = (&findings.effort, findings.figure);
    let Deaths { at_s, then_s } = effort.deaths;
    let shows = match figure.shows {
        Shows::Curve => String::new(),
        Shows::Writes { .. } => format!(" Places are at {} % of the highest.", LOAD * 100.0),
        Shows::Deaths { .. } => format!(
            " Then {} % of the highest is offered, after {at_s} s all clients die, and as many others go on for {then_s} s.",
            LOAD * 100.0
        ),
    };
    format!(
        "Simulated: {SERVERS} servers with {SERVER_CORES} core each and {} clients in `lan`, open loops with at most {} \
         transactions open at each client. Each run warms up for {} s and is measured for {} s, or until {} transactions have been \
         committed.{shows} {} Seed {}.",
        effort.clients,
        figure.most_open,
        effort.warm_up_s,
        effort.measured_s,
        effort.most_transactions / figure.weight,
        costs(findings.costs),
        findings.seed
    )
}

impl LoadFindings {
    /// The paper's systems, there or not, and then the others that were run.
    fn all_protocols(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.figure.protocols().collect();
        for system in &self.systems {
            if !all.contains(&system.protocol.as_str()) {
                all.push(&system.protocol);
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

    /// A line for each system.
    fn lines(&self, points: impl Fn(&SystemFound) -> Vec<(f64, f64)>) -> Vec<Line> {
        let line = |system: &SystemFound| Line {
            name: self.label(&system.protocol),
            style: self.style(&system.protocol),
            points: points(system),
            stated: Vec::new(),
        };
        self.systems.iter().map(line).collect()
    }

    /// A row of dashes for each system that is not there.
    fn dashes(&self, columns: usize) -> impl Iterator<Item = Vec<String>> {
        self.missing.iter().map(move |missing| {
            let mut row = vec![missing.to_string()];
            row.resize(columns, "-".to_string());
            row
        })
    }
}

fn claims(findings: &LoadFindings) -> Table {
    let rows = findings
        .claims
        .iter()
        .map(|claim| vec![claim.what.clone(), number(claim.ours, 2), claim.paper.to_string()]);
    Table { header: vec!["what", "ours", "paper"], rows: rows.collect() }
}

fn systems(findings: &LoadFindings) -> Table {
    let mut header = vec!["protocol", "O.P./s", "highest/s", "p50 ms", "CPU %", "msgs", "commit %"];
    header.push("low p50 ms");
    let figure = findings.figure;
    let row = |system: &SystemFound| {
        let highest = knee(figure, &system.runs);
        let more = if system.saturated { "" } else { "+" };
        let low = system.runs.first().and_then(|run| figure.latency_ms(run));
        vec![
            system.protocol.clone(),
            thousands(system.operating_point_per_s),
            format!("{}{more}", thousands(system.peak_per_s)),
            number(highest.and_then(|run| figure.latency_ms(run)), 2),
            number(highest.map(|run| run.replica_cpu * 100.0), 1),
            number(highest.map(|run| run.messages_per_txn), 1),
            number(highest.map(|run| run.commit_rate * 100.0), 1),
            number(low, 2),
        ]
    };
    let mut rows: Vec<_> = findings.systems.iter().map(row).collect();
    rows.extend(findings.dashes(header.len()));
    Table { header, rows }
}

fn places(findings: &LoadFindings) -> Table {
    let figure = findings.figure;
    let mut header = vec!["protocol", figure.axis(), "offered/s", "txn/s"];
    let deaths = matches!(figure.shows, Shows::Deaths { .. });
    header.extend(match deaths {
        true => ["before/s", "lowest/s", "below 90 % s", "in the end/s"],
        false => ["normalized", "p50 ms", "commit %", "dropped %"],
    });
    let mut rows = Vec::new();
    for system in &findings.systems {
        for place in &system.places {
            let measured = &place.measured;
            let mut row = vec![system.protocol.clone(), number(Some(place.x), 3)];
            row.push(thousands(Some(measured.rate_per_s())));
            row.push(thousands(Some(measured.goodput_per_s)));
            if let Some(Dip { before_per_s, lowest_per_s, lasts_s, in_the_end_per_s }) = place.dip {
                row.extend([before_per_s, lowest_per_s].map(|per_s| thousands(Some(per_s))));
                row.extend([number(Some(lasts_s), 2), thousands(Some(in_the_end_per_s))]);
            } else {
                row.push(number(Some(place.normalized), 2));
                row.push(number(figure.latency_ms(measured), 2));
                row.push(number(Some(measured.commit_rate * 100.0), 1));
                row.push(number(Some(dropped(measured) * 100.0), 1));
            }
            rows.push(row);
        }
    }
    rows.extend(findings.dashes(header.len()));
    Table { header, rows }
}

fn runs(findings: &LoadFindings) -> Table {
    let figure = findings.figure;
    let header = [
        "protocol",
        "offered/s",
        "txn/s",
        if figure.kind_alone { figure.kind } else { "reads/s" },
        "p50 ms",
        "p99 ms",
        "commit %",
        "dropped %",
        "msgs",
        "CPU %",
    ];
    let mut rows = Vec::new();
    for system in &findings.systems {
        for run in &system.runs {
            let kind = run.kind(figure.kind);
            let mut row = vec![system.protocol.clone(), thousands(Some(run.rate_per_s()))];
            row.push(thousands(Some(run.goodput_per_s)));
            row.push(thousands(kind.map(|kind| kind.per_s)));
            row.push(number(kind.map(|kind| kind.latency_ms_p50), 2));
            row.push(number(kind.map(|kind| kind.latency_ms_p99), 2));
            let shares = [run.commit_rate, dropped(run)];
            row.extend(shares.map(|share| number(Some(share * 100.0), 1)));
            row.push(number(Some(run.messages_per_txn), 1));
            row.push(number(Some(run.replica_cpu * 100.0), 1));
            rows.push(row);
        }
    }
    Table { header: header.to_vec(), rows }
}

/// The share of transactions that were dropped, of those that arrived.
fn dropped(run: &Measured) -> f64 {
    let dropped = run.open.as_ref().map_or(0, |open| open.dropped);
    dropped as f64 / (run.rate_per_s() * run.seconds).max(1.0)
}

fn charts(findings: &LoadFindings) -> Vec<Chart> {
    let figure = findings.figure;
    let axis = |label, logarithmic| Axis { label, logarithmic };
    match figure.shows {
        Shows::Curve => {
            let mut lines = findings.lines(|system| {
                let point = |run| Some((figure.throughput(run), figure.latency_ms(run)?));
                system.runs.iter().filter_map(point).collect()
            });
            let name = "operating point".to_string();
            let stated = vec![(None, Some(OPERATING_MS))];
            lines.push(Line { name, style: OTHER_STYLE, points: Vec::new(), stated });
            let (x, y) = match figure.kind_alone {
                true => ("throughput of New-Order, txn/s", "median latency of New-Order, ms"),
                false => ("throughput, txn/s", "median read latency, ms"),
            };
            let (x, y) = (axis(x, figure.kind_alone), axis(y, true));
            vec![Chart { title: figure.summary.to_string(), x, y, lines }]
        }
        Shows::Writes { .. } => vec![Chart {
            title: figure.summary.to_string(),
            x: axis("transactions that write, %", true),
            y: axis("throughput over the system's highest", false),
            lines: findings.lines(|system| {
                let places = system.places.iter();
                places.map(|place| (place.x * 100.0, place.normalized)).collect()
            }),
        }],
        Shows::Deaths { after_s } => after_s.iter().map(|x| over_time(findings, *x)).collect(),
    }
}

/// Style of lines that are no system's.
const OTHER_STYLE: usize = 5;

/// Throughput over time with a timeout.
fn over_time(findings: &LoadFindings, timeout_s: f64) -> Chart {
    let mut lines = findings.lines(|system| {
        let mut here = system.places.iter().filter(|place| place.x == timeout_s);
        let open = here.next().and_then(|place| place.measured.open.as_ref());
        let slots = open.into_iter().flat_map(|open| &open.over_time).enumerate();
        slots.map(|(slot, per_s)| ((slot as f64 + 0.5) * SLOT.as_secs_f64(), *per_s)).collect()
    });
    let highest = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    let highest = highest.fold(0.0, f64::max);
    let at_s = findings.effort.deaths.at_s;
    let name = "all clients die".to_string();
    let points = vec![(at_s, 0.0), (at_s, highest)];
    lines.push(Line { name, style: OTHER_STYLE, points, stated: Vec::new() });
    Chart {
        title: format!("recovery after {timeout_s} s"),
        x: Axis { label: "time, s", logarithmic: false },
        y: Axis { label: "throughput, txn/s", logarithmic: false },
        lines,
    }
}

const HEADER: &str = "figure,protocol,x,offered_per_s,goodput_per_s,commit_rate,dropped,latency_ms_mean,\
latency_ms_p50,latency_ms_p99,kind,kind_per_s,kind_latency_ms_p50,kind_latency_ms_p99,messages_per_txn,replica_cpu,\
committed,failed,seconds,event_hash\n";

/// One line for each run and kind of transactions. Nothing in it needs quotes.
fn csv(findings: &LoadFindings) -> String {
    let mut text = HEADER.to_string();
    for system in &findings.systems {
        let climbed = system.runs.iter().map(|run| (None, run));
        let places = system.places.iter().map(|place| (Some(place.x), &place.measured));
        for (x, run) in climbed.chain(places) {
            for kind in run.open.iter().flat_map(|open| &open.kinds) {
                let cells = [
                    findings.figure.name.to_string(),
                    system.protocol.clone(),
                    x.map_or(String::new(), |x: f64| x.to_string()),
                    run.rate_per_s().to_string(),
                    run.goodput_per_s.to_string(),
                    run.commit_rate.to_string(),
                    dropped(run).to_string(),
                    run.latency_ms_mean.to_string(),
                    run.latency_ms_p50.to_string(),
                    run.latency_ms_p99.to_string(),
                    kind.kind.clone(),
                    kind.per_s.to_string(),
                    kind.latency_ms_p50.to_string(),
                    kind.latency_ms_p99.to_string(),
                    run.messages_per_txn.to_string(),
                    run.replica_cpu.to_string(),
                    run.committed.to_string(),
                    run.failed.to_string(),
                    run.seconds.to_string(),
                    run.event_hash.clone(),
                ];
                text.push_str(&cells.join(","));
                text.push('\n');
            }
        }
    }
    text
}

//! The findings as a page that needs nothing else: no scripts, no fonts, no network.

use std::fmt::Write;

use super::chart::{Axis, Chart, Line, escape, mark};
use super::text::{MARK, Table, peaks, ratios, sources};
use crate::Findings;
use crate::paper::{SERIES, Varies, series};
use crate::sweep::Sweep;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--faint:#d8dce2;\
--s0:#0b5cad;--s1:#c2410c;--s2:#15803d;--s3:#7e22ce;--s4:#a16207;--s5:#be123c}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--paper:#15181c;--faint:#3a4048;\
--s0:#6cb2ff;--s1:#ff9a5c;--s2:#5fd38a;--s3:#cf9bff;--s4:#e3c04d;--s5:#ff8aa0}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);\
max-width:1200px;margin:2em auto;padding:0 1em}\
.charts{display:flex;flex-wrap:wrap;gap:1em}.charts svg{flex:1 1 460px;max-width:620px}\
table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}\
.wide{overflow-x:auto}td,th{padding:.15em .6em;text-align:right;border-bottom:1px solid var(--faint)}\
td.text,th.text{text-align:left}\
svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg text.title{font-weight:600;font-size:14px}\
svg .grid{stroke:var(--faint)}svg polyline{fill:none;stroke-width:2}\
svg .stated{fill:none;stroke-width:1.5;stroke-dasharray:5 3}\
.legend svg{width:20px;height:16px;vertical-align:middle}.legend span{margin-right:1.5em}";

/// The page.
pub fn html(findings: &Findings) -> String {
    let figure = findings.figure;
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n<style>{STYLE}{1}</style></head>\n\
         <body><h1>{0}</h1>\n<p>{2}.</p>\n<p>{3}</p>\n",
        escape(figure.title),
        line_styles(),
        escape(figure.summary),
        escape(&set_up(findings)),
    );
    legend(&mut page, findings);
    page.push_str("<div class=\"charts\">\n");
    for chart in charts(findings) {
        page.push_str(&chart.svg());
    }
    page.push_str("</div>\n<h2>Highest goodput</h2>\n");
    rows(&mut page, &peaks(findings));
    let _ = writeln!(page, "<p>{}.</p>\n<h2>Ratios</h2>", escape(MARK));
    rows(&mut page, &ratios(findings));
    page.push_str("<h2>What to know</h2>\n<ul>\n");
    for remark in figure.remarks {
        let _ = writeln!(page, "<li>{}.</li>", escape(remark));
    }
    page.push_str("</ul>\n<h2>Where the paper says so</h2>\n<ul>\n");
    for source in sources(findings) {
        let _ = writeln!(page, "<li>{}</li>", escape(&source));
    }
    page.push_str("</ul>\n</body></html>\n");
    page
}

fn line_styles() -> String {
    (0..6).fold(String::new(), |mut styles, style| {
        let _ = write!(
            styles,
            "svg .s{style}{{stroke:var(--s{style})}}svg .s{style}.mark{{fill:var(--s{style})}}"
        );
        styles
    })
}

/// How it was made, in a few sentences.
fn set_up(findings: &Findings) -> String {
    let effort = &findings.effort;
    let costs = |costs: serried_sim::CostModel| {
        let [event, sent, unit] =
            [costs.event_ns, costs.sent_message_ns, costs.work_unit_ns].map(|ns| ns as f64 / 1e3);
        format!("{event} µs per event, {sent} µs per message sent, {unit} µs per key")
    };
    format!(
        "Simulated: three replicas, clients at each of them in closed loops, random exponential backoff up to 2.5 s. \
         Each run warms up for {} s and is measured for {} s, or until {} transactions have been committed. \
         CPU of replicas: {}; of clients: {}. Seed {}.",
        effort.warm_up_s,
        effort.measured_s,
        effort.most_transactions,
        costs(findings.costs.replica),
        costs(findings.costs.client),
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

fn legend(page: &mut String, findings: &Findings) {
    let mut protocols: Vec<&str> = Vec::new();
    for peak in &findings.peaks {
        if !protocols.contains(&peak.protocol.as_str()) {
            protocols.push(&peak.protocol);
        }
    }
    page.push_str("<p class=\"legend\">");
    for protocol in protocols {
        let style = style(protocol, findings);
        let shape = mark(style, 10.0, 8.0, false, "");
        let name = escape(&name(protocol));
        let _ = write!(page, "<span><svg viewBox=\"0 0 20 16\">{shape}</svg> {name}</span>");
    }
    page.push_str("<span>Hollow or dashed: the paper's numbers</span></p>\n");
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

fn rows(page: &mut String, table: &Table) {
    let class = |column: usize| {
        let is_text = ["panel", "protocol", "ratio"].contains(&table.header[column]);
        if is_text { " class=\"text\"" } else { "" }
    };
    page.push_str("<div class=\"wide\"><table><tr>");
    for (column, cell) in table.header.iter().enumerate() {
        let _ = write!(page, "<th{}>{}</th>", class(column), escape(cell));
    }
    page.push_str("</tr>\n");
    for row in &table.rows {
        page.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(page, "<td{}>{}</td>", class(column), escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

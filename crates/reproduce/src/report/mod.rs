//! What is written of a sweep.

mod chart;
mod csv;
mod goodput;
mod html;
mod latency;
mod load;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::store::{file, pretty};
use crate::{Costs, Error};
use chart::Chart;
use text::Table;

pub use html::html;
pub use text::table;

/// Findings that can be written, of figures of any kind.
pub trait Reported: Serialize {
    /// The figure's name.
    fn name(&self) -> &'static str;

    /// All runs as comma-separated values.
    fn csv(&self) -> String;

    /// What there is to see.
    #[doc(hidden)]
    fn page(&self) -> Page;
}

/// What there is to see of a figure.
pub struct Page {
    title: &'static str,
    summary: &'static str,
    /// How it was made, in a few sentences.
    set_up: String,
    /// The style and the name of each line.
    legend: Vec<(usize, String)>,
    charts: Vec<Chart>,
    sections: Vec<Section>,
    /// What has to be known to compare the paper's numbers with ours.
    remarks: Vec<String>,
    /// Where the paper says what.
    sources: Vec<String>,
}

/// A table with what is said about it.
struct Section {
    heading: &'static str,
    table: Table,
    note: Option<&'static str>,
}

/// Remarks of a figure.
fn remarks(remarks: &[&str]) -> Vec<String> {
    remarks.iter().map(ToString::to_string).collect()
}

/// What computing costs, in a sentence.
fn costs(Costs { replica, client }: Costs) -> String {
    let costs = |costs: serried_sim::CostModel| {
        let [event, sent, unit] =
            [costs.event_ns, costs.sent_message_ns, costs.work_unit_ns].map(|ns| ns as f64 / 1e3);
        format!("{event} µs per event, {sent} µs per message sent, {unit} µs per key")
    };
    format!("CPU of replicas: {}; of clients: {}.", costs(replica), costs(client))
}

/// Writes `findings` as JSON, CSV and HTML into `folder`; returns the files.
///
/// # Errors
/// If a file can't be written.
pub fn write(findings: &impl Reported, folder: &Path) -> Result<[PathBuf; 3], Error> {
    let name = findings.name();
    let contents = [("json", pretty(findings)), ("csv", findings.csv()), ("html", html(findings))];
    let written = contents.map(|(extension, text)| {
        let path = folder.join(format!("{name}.{extension}"));
        fs::write(&path, text).map_err(|source| file("write", &path, source)).map(|()| path)
    });
    let [json, csv, html] = written;
    Ok([json?, csv?, html?])
}

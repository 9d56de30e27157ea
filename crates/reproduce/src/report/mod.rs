//! The reports on a figure.

mod chart;
mod csv;
mod html;
mod page;
mod plots;
mod tables;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use crate::store::{file, pretty};
use crate::{Error, Findings};

pub use html::html;
pub use text::table;

/// Writes `findings` as JSON, CSV and HTML into `folder`; returns the files.
///
/// # Errors
/// If a file can't be written.
pub fn write(findings: &Findings, folder: &Path) -> Result<[PathBuf; 3], Error> {
    let contents =
        [("json", pretty(findings)), ("csv", csv::csv(findings)), ("html", html(findings))];
    let written = contents.map(|(extension, text)| {
        let path = folder.join(format!("{}.{extension}", findings.name));
        fs::write(&path, text).map_err(|source| file("write", &path, source)).map(|()| path)
    });
    let [json, csv, html] = written;
    Ok([json?, csv?, html?])
}

//! The verdict on what was recorded.

use std::fmt::Display;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::Context;
use serried_workload::InspectionError;

use crate::Ended;
use crate::load::Inspected;

/// How a check ended, the verdict in one word, and in full.
pub(crate) type Judged = (Ended, String, String);

/// Writes a history to a file.
pub(crate) fn write(
    file: &Path,
    write: impl FnOnce(BufWriter<File>) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    let written = File::create(file).and_then(|created| write(BufWriter::new(created)));
    written.with_context(|| format!("can't write {}", file.display()))
}

/// The verdict on a history of a keyspace that promises nothing.
pub(crate) fn unchecked() -> Judged {
    let text = "nothing is promised, and nothing was checked".to_string();
    (Ended::Well, "unchecked".into(), text)
}

/// The verdict on a history that a checker could not decide.
pub(crate) fn undecided(reason: impl Display) -> Judged {
    (Ended::Unknown, format!("unknown: {reason}"), format!("it can't be decided: {reason}"))
}

/// The verdict on a database that a workload has inspected, if it did.
pub(crate) fn inspected(inspected: Inspected) -> Option<Judged> {
    match inspected {
        Ok(None) => None,
        Ok(Some(text)) => Some((Ended::Well, "consistent".into(), text)),
        Err(InspectionError::Broken(text)) => Some((Ended::Violation, "violation".into(), text)),
        Err(error) => Some((Ended::Unknown, format!("unknown: {error}"), error.to_string())),
    }
}

impl Ended {
    /// The worse of two.
    pub(crate) fn and(self, other: Ended) -> Ended {
        match (self, other) {
            (Ended::Violation, _) | (_, Ended::Violation) => Ended::Violation,
            (Ended::Unknown, _) | (_, Ended::Unknown) => Ended::Unknown,
            _ => Ended::Well,
        }
    }
}

//! The verdict on what was recorded.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::Context;
use serried_history::{
    Budget, History, Options, RegisterHistory, RegisterVerdict, Verdict, check_linearizable,
    check_regular_sequential, check_serializable_with, check_strict_serializable_with,
};
use serried_model::{Guarantee, Version};
use serried_workload::{InspectionError, Workload};

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

/// Judges a history of registers by what their keyspace promises.
pub(crate) fn judge_registers(history: &RegisterHistory, guarantee: Guarantee) -> Judged {
    let budget = Budget::default();
    describe_registers(match guarantee {
        Guarantee::RegularSequential => check_regular_sequential(history, &budget),
        _ => check_linearizable(history, &budget),
    })
}

/// Judges a history of transactions by what their keyspace promises. Everything up to `loaded` was written before it
/// begins.
pub(crate) fn judge_transactions(
    history: &History,
    guarantee: Guarantee,
    loaded: Option<Version>,
) -> Judged {
    let options = Options { initial_before: loaded, ..Options::default() };
    describe(match guarantee {
        Guarantee::Nothing => {
            let text = "nothing is promised, and nothing was checked".to_string();
            return (Ended::Well, "unchecked".into(), text);
        }
        Guarantee::StrictSerializable => check_strict_serializable_with(history, &options),
        _ => check_serializable_with(history, &options),
    })
}

/// The same for a history of `workload`, which may know more about it.
pub(crate) fn judge(
    history: &History,
    workload: &dyn Workload,
    guarantee: Guarantee,
    loaded: Option<Version>,
) -> Judged {
    if guarantee != Guarantee::Nothing
        && let Err(wrong) = workload.check(history)
    {
        return (Ended::Violation, "violation".into(), wrong);
    }
    judge_transactions(history, guarantee, loaded)
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

/// A verdict in one word, and in full.
fn describe(verdict: Verdict) -> Judged {
    match verdict {
        Verdict::Holds(summary) => {
            let text = format!(
                "{}: {} committed transactions on {} keys ({} failed, {} unknown), {} edges and no cycle",
                summary.guarantee,
                summary.committed,
                summary.keys,
                summary.failed,
                summary.unknown,
                summary.edges
            );
            (Ended::Well, summary.guarantee.name().into(), text)
        }
        Verdict::Violation(violation) => {
            let text = format!("NOT {}\n{violation}", violation.guarantee());
            (Ended::Violation, "violation".into(), text)
        }
        Verdict::Unknown { reason } => {
            (Ended::Unknown, format!("unknown: {reason}"), format!("it can't be decided: {reason}"))
        }
    }
}

/// A verdict on registers in one word, and in full.
pub(crate) fn describe_registers(verdict: RegisterVerdict) -> Judged {
    match verdict {
        RegisterVerdict::Holds(summary) => {
            (Ended::Well, summary.guarantee.name().into(), summary.to_string())
        }
        RegisterVerdict::Violation(violation) => {
            let text = format!("NOT {}\n{violation}", violation.guarantee.name());
            (Ended::Violation, "violation".into(), text)
        }
        RegisterVerdict::Unknown { reason } => {
            (Ended::Unknown, format!("unknown: {reason}"), format!("it can't be decided: {reason}"))
        }
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

//! Reports the progress of a figure.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use serried_reproduce::Note;

use crate::progress::Progress;

/// Reports the progress of a figure on standard error: a line for each run, and on a terminal an estimate of the
/// remaining time.
pub(super) struct Teller {
    quiet: bool,
    progress: Progress,
    begun: Instant,
}

impl Teller {
    pub(super) fn new(quiet: bool) -> Teller {
        Teller { quiet, progress: Progress::new(quiet), begun: Instant::now() }
    }

    /// Reports a run.
    pub(super) fn report(&self, note: Note<'_>) {
        if self.quiet {
            return;
        }
        let Note { done, total, .. } = note;
        // The estimate takes all runs to be equally long.
        let passed = self.begun.elapsed().as_secs_f64();
        let left = passed / done.max(1) as f64 * total.saturating_sub(done) as f64;
        let left = Duration::from_secs(left as u64);
        let far = format!("{done} of at most {total} runs, at most {left:?} to go");
        if std::io::stderr().is_terminal() {
            self.progress.line(note.to_string());
            self.progress.say(far);
        } else {
            eprintln!("{note} ({far})");
        }
    }
}

//! Says how far a sweep is.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use serried_reproduce::{LoadNote, Note, RegisterNote};

use crate::progress::Progress;

/// A run is done, in words.
pub(super) struct Told {
    line: String,
    done: usize,
    total: usize,
}

fn place(panel: &str, x: Option<f64>, protocol: &str, clients: usize) -> String {
    let x = x.map_or(String::new(), |x| format!(" at {x}"));
    format!("{panel}{x}, {protocol}, {clients} clients")
}

const BEFORE: &str = ", made before";

impl From<Note<'_>> for Told {
    fn from(note: Note<'_>) -> Told {
        let Note { panel, x, protocol, measured, stored, done, total } = note;
        let line = format!(
            "{}: {:.0} txn/s, {:.1} % of attempts commit{}",
            place(panel, x, protocol, measured.clients),
            measured.goodput_per_s,
            measured.commit_rate * 100.0,
            if stored { BEFORE } else { "" },
        );
        Told { line, done, total }
    }
}

impl From<LoadNote<'_>> for Told {
    fn from(note: LoadNote<'_>) -> Told {
        let LoadNote { x, protocol, measured, stored, done, total } = note;
        let offered = measured.open.as_ref().map_or(0.0, |open| open.rate_per_s);
        let line = format!(
            "{}: {:.0} of {offered:.0} txn/s, median latency {:.2} ms{}",
            place("lan", x, protocol, measured.clients),
            measured.goodput_per_s,
            measured.latency_ms_p50,
            if stored { BEFORE } else { "" },
        );
        Told { line, done, total }
    }
}

impl From<RegisterNote<'_>> for Told {
    fn from(note: RegisterNote<'_>) -> Told {
        let RegisterNote { panel, x, protocol, measured, stored, done, total } = note;
        let kinds = measured
            .kinds
            .iter()
            .map(|kind| format!("{} {:.0}/s with {:.1} ms", kind.kind, kind.per_s, kind.mean_ms));
        let line = format!(
            "{}: {}{}",
            place(panel, x, protocol, measured.clients),
            kinds.collect::<Vec<_>>().join(", "),
            if stored { BEFORE } else { "" },
        );
        Told { line, done, total }
    }
}

/// Says on standard error how far a sweep is: a line for each run, and on a terminal how long the rest
/// will take.
pub(super) struct Teller {
    quiet: bool,
    progress: Progress,
    begun: Instant,
}

impl Teller {
    pub(super) fn new(quiet: bool) -> Teller {
        Teller { quiet, progress: Progress::new(quiet), begun: Instant::now() }
    }

    pub(super) fn tell(&self, Told { line, done, total }: Told) {
        if self.quiet {
            return;
        }
        // Runs that come are about as long as those that were: a rough guess.
        let passed = self.begun.elapsed().as_secs_f64();
        let left = passed / done.max(1) as f64 * total.saturating_sub(done) as f64;
        let left = Duration::from_secs(left as u64);
        let far = format!("{done} of at most {total} runs, at most {left:?} to go");
        if std::io::stderr().is_terminal() {
            self.progress.line(line);
            self.progress.say(far);
        } else {
            eprintln!("{line} ({far})");
        }
    }
}

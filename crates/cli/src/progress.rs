//! What is shown while something takes its time: on a terminal only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line that says what is going on.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A line; not shown if `quiet`, nor where standard error is no terminal.
    pub(crate) fn new(quiet: bool) -> Progress {
        let bar = ProgressBar::new_spinner();
        if quiet {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{spinner} {msg}");
        bar.set_style(style.expect("the template is valid"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    /// Changes what it says.
    pub(crate) fn say(&self, message: String) {
        self.0.set_message(message);
    }

    /// Writes a line above it, to stay.
    pub(crate) fn line(&self, line: String) {
        self.0.println(line);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

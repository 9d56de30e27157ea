//! Standard output, whose reader may end first, as in `serried sim bank | head`.
//!
//! The macros [`println!`] and [`print!`] of this binary take the place of those of the standard library, which panic
//! if nothing can be written. These end the command quietly: the main thread unwinds, so that the nodes and processes
//! that the command has started are stopped.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write, stdout};
use std::panic::{self, AssertUnwindSafe};

/// The exit code that a shell reports for a program that SIGPIPE has ended.
pub(crate) const BROKEN_PIPE: u8 = 128 + 13;

macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

macro_rules! println {
    () => { $crate::output::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes to standard output, or unwinds up to [`run`].
pub(crate) fn write(text: Arguments<'_>) {
    unwind_on_error(stdout().write_fmt(text));
}

/// Flushes standard output, or unwinds up to [`run`].
pub(crate) fn flush() {
    unwind_on_error(stdout().flush());
}

fn unwind_on_error(written: io::Result<()>) {
    if let Err(error) = written {
        // This does not call the panic hook, so nothing is printed.
        panic::resume_unwind(Box::new(error));
    }
}

/// How a command ended early: it could not write to standard output.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unwritten {
    /// Nobody reads it any more.
    #[error("nobody reads standard output any more")]
    NoReader,
    /// Another reason.
    #[error("can't write to standard output: {0}")]
    Failed(io::Error),
}

/// Runs a command, as far as it can write to standard output.
pub(crate) fn run<T>(command: impl FnOnce() -> T) -> Result<T, Unwritten> {
    // Nothing that the command has changed is used after it has unwound.
    let ended = panic::catch_unwind(AssertUnwindSafe(command));
    ended.map_err(|panic| match panic.downcast::<io::Error>() {
        Ok(error) if error.kind() == ErrorKind::BrokenPipe => Unwritten::NoReader,
        Ok(error) => Unwritten::Failed(*error),
        Err(panic) => panic::resume_unwind(panic),
    })
}

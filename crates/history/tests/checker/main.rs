//! The checker, tested with histories that it must accept and with histories that it must reject.

mod explanations;
mod forgetful;
mod forgotten;
mod incomplete;
mod large;
mod lists;
mod moved;
mod mutations;
mod oracle;
mod registers;
mod serial;
mod strict;
mod support;

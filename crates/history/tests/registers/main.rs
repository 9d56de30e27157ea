//! The checkers of registers, tested with histories that they must accept and with histories that they
//! must reject.

mod accepted;
mod json;
mod large;
mod oracle;
mod regular;
mod rejected;
mod support;

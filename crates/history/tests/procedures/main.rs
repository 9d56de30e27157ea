//! Histories of calls of stored procedures, and their checker.

mod accepted;
mod json;
mod large;
mod oracle;
mod rejected;
mod support;

//! README.md, CONTRIBUTING.md and the book in docs/: every command in them works as printed, and every link leads
//! somewhere.
//!
//! `table.rs` has a line for each command. It says how the test runs the command, or why it does not.

mod cluster;
mod commands;
mod links;
mod pages;
mod process;
mod table;

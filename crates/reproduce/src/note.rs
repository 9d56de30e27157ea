//! How far a figure is.

use core::fmt;

use crate::Measured;

/// A run is done. Displayed, it is a line that says what was run and what it came to.
#[derive(Clone, Copy, Debug)]
pub struct Note<'a> {
    /// The panel of the figure.
    pub panel: &'static str,
    /// The place on the horizontal axis.
    pub x: Option<f64>,
    /// The protocol.
    pub protocol: &'a str,
    /// What it came to.
    pub measured: &'a Measured,
    /// Whether it had been made before.
    pub stored: bool,
    /// How many of all runs are done, or have turned out not to be needed.
    pub done: usize,
    /// How many runs there are at most.
    pub total: usize,
}

impl fmt::Display for Note<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let x = self.x.map_or(String::new(), |x| format!(" at {x}"));
        let clients = self.measured.summary().clients;
        let before = if self.stored { ", made before" } else { "" };
        let Note { panel, protocol, measured, .. } = self;
        write!(f, "{panel}{x}, {protocol}, {clients} clients: {measured}{before}")
    }
}

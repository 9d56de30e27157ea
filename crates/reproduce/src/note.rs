//! Progress of a figure.

use core::fmt;

use crate::Measured;

/// A run is done. Its `Display` is one line with the run and its result.
#[derive(Clone, Copy, Debug)]
pub struct Note<'a> {
    /// The panel of the figure.
    pub panel: &'static str,
    /// The place on the horizontal axis.
    pub x: Option<f64>,
    /// The protocol.
    pub protocol: &'a str,
    /// The result.
    pub measured: &'a Measured,
    /// Whether the result was found in the store.
    pub stored: bool,
    /// How many of all runs are done, or turned out to be unnecessary.
    pub done: usize,
    /// The greatest number of runs.
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

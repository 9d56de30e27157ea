//! One series of a figure: from few clients to many, until goodput rises no more.

use serde::Serialize;

use crate::setup::RISE;
use crate::{Error, Measured};

/// What a protocol achieved at one place of a figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Sweep {
    /// The panel's number.
    #[serde(skip)]
    pub(crate) panel: usize,
    /// The panel.
    #[serde(rename = "panel")]
    pub(crate) label: &'static str,
    /// The place on the horizontal axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) x: Option<f64>,
    /// The protocol, by its name in the registry.
    pub(crate) protocol: String,
    /// Whether goodput rose no more with the last client counts. Otherwise more clients might have
    /// achieved more.
    pub(crate) saturated: bool,
    /// The runs, from few clients to many.
    pub(crate) points: Vec<Measured>,
}

impl Sweep {
    /// The run with the highest goodput.
    pub(crate) fn peak(&self) -> Option<&Measured> {
        self.points.iter().max_by(|a, b| a.goodput_per_s.total_cmp(&b.goodput_per_s))
    }
}

/// Runs ever more clients until goodput has not risen for `patience` counts; returns the runs, and
/// whether it was that which ended it.
pub(crate) fn saturate(
    clients: &[usize],
    patience: usize,
    mut run: impl FnMut(usize) -> Result<Measured, Error>,
) -> Result<(Vec<Measured>, bool), Error> {
    let mut points = Vec::new();
    let (mut highest, mut since) = (0.0, 0);
    for clients in clients {
        let measured = run(*clients)?;
        let goodput = measured.goodput_per_s;
        points.push(measured);
        since = if goodput > highest * (1.0 + RISE) { 0 } else { since + 1 };
        highest = goodput.max(highest);
        if since >= patience {
            return Ok((points, true));
        }
    }
    Ok((points, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goodput by client count.
    fn sweep(goodput: fn(usize) -> f64, patience: usize) -> (Vec<usize>, bool) {
        let run = |clients| {
            let goodput_per_s = goodput(clients);
            Ok(Measured { clients, goodput_per_s, ..Measured::nothing() })
        };
        let (points, saturated) = saturate(&[1, 2, 4, 8, 16, 32], patience, run).unwrap();
        (points.iter().map(|point| point.clients).collect(), saturated)
    }

    #[test]
    fn a_sweep_ends_when_goodput_has_not_risen_for_so_many_counts() {
        assert_eq!(sweep(|clients| clients.min(4) as f64, 2), (vec![1, 2, 4, 8, 16], true));
        assert_eq!(sweep(|clients| 100.0 - clients as f64, 1), (vec![1, 2], true));
    }

    #[test]
    fn a_small_rise_is_chance_however_often_it_comes() {
        assert_eq!(sweep(|clients| 100.0 + clients as f64 / 16.0, 2), (vec![1, 2, 4], true));
    }

    #[test]
    fn goodput_that_rises_to_the_end_is_not_saturated() {
        assert_eq!(sweep(|clients| clients as f64, 2), (vec![1, 2, 4, 8, 16, 32], false));
    }
}

//! What computing costs in simulations.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serried_reproduce::Costs;

use crate::misuse::number;

/// What computing costs in simulations.
#[derive(Args, Clone)]
pub(crate) struct CostArguments {
    /// CPU costs that `serried calibrate` has written [default: those of the machine on which Serried was
    /// developed]
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Simulate a CPU that takes this many times as long
    #[arg(long, default_value_t = 1.0, value_parser = number(0.0..=1e6))]
    cpu_factor: f64,
    /// What was measured just now, in place of the file.
    #[arg(skip)]
    measured: Option<Costs>,
}

impl CostArguments {
    /// The costs to simulate.
    pub(crate) fn read(&self) -> anyhow::Result<Costs> {
        let costs = match &self.costs {
            None => self.measured.unwrap_or_default(),
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("can't read {}", file.display()))?;
                let parsed = toml::from_str::<Costs>(&text).map_err(|error| {
                    let line = error.span().map_or(1, |span| text[..span.start].lines().count());
                    anyhow::anyhow!("{}: line {}: {}", file.display(), line.max(1), error.message())
                });
                parsed?
            }
        };
        Ok(costs.times(self.cpu_factor))
    }

    /// The same, with costs that were measured just now.
    pub(crate) fn with_measured(self, measured: Costs) -> CostArguments {
        CostArguments { measured: Some(measured), ..self }
    }

    /// Where the costs come from.
    pub(crate) fn origin(&self) -> String {
        let origin = match (&self.costs, &self.measured) {
            (Some(file), _) => file.display().to_string(),
            (None, Some(_)) => "measured on this machine".to_string(),
            (None, None) => "built-in (see `serried calibrate`)".to_string(),
        };
        match self.cpu_factor == 1.0 {
            true => origin,
            false => format!("{origin}, times {}", self.cpu_factor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_costs_are_those_of_the_calibration_that_is_kept() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../calibrate/costs.toml");
        let arguments = CostArguments { costs: None, cpu_factor: 1.0, measured: None };
        let kept = CostArguments { costs: Some(file.into()), ..arguments.clone() }.read().unwrap();
        let built_in = arguments.read().unwrap();
        assert_eq!(kept, built_in);
    }
}

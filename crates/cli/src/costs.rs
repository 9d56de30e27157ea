//! What computing costs in simulations.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};
use serried_calibrate::{Calibration, Side};
use serried_reproduce::Costs;
use serried_sim::{CostModel, OneMachine, SystemCallCosts};

use crate::misuse::{Misuse, number};

/// A file with costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CostFile {
    replica: CostModel,
    client: CostModel,
    /// What replaces the costs of events if all nodes run on one machine. Files of earlier versions do not have it.
    one_machine: Option<OneMachineCosts>,
}

/// The costs of events and of system calls, separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneMachineCosts {
    replica: SystemCallCosts,
    client: SystemCallCosts,
}

impl Default for CostFile {
    /// The built-in costs, as `crates/calibrate/costs.toml` has them.
    fn default() -> CostFile {
        let Costs { replica, client } = Costs::default();
        let costs = |event_ns, system_call_ns| SystemCallCosts { event_ns, system_call_ns };
        let one_machine = OneMachineCosts { replica: costs(0, 5763), client: costs(963, 4388) };
        CostFile { replica, client, one_machine: Some(one_machine) }
    }
}

impl From<&Calibration> for CostFile {
    fn from(calibration: &Calibration) -> CostFile {
        let apart = |side: &Side| {
            let [event, _, _, system_call] = side.fit.costs_ns.map(|cost| cost.round() as u64);
            SystemCallCosts { event_ns: event, system_call_ns: system_call }
        };
        let Calibration { replica, client, .. } = calibration;
        let one_machine = OneMachineCosts { replica: apart(replica), client: apart(client) };
        CostFile { replica: replica.costs, client: client.costs, one_machine: Some(one_machine) }
    }
}

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
    measured: Option<CostFile>,
}

impl CostArguments {
    /// The costs to simulate.
    pub(crate) fn read(&self) -> anyhow::Result<Costs> {
        let CostFile { replica, client, .. } = self.file()?;
        Ok(Costs { replica, client }.times(self.cpu_factor))
    }

    /// A machine with this many cores for all nodes.
    pub(crate) fn one_machine(&self, cores: usize) -> anyhow::Result<OneMachine> {
        let apart = self.file()?.one_machine.ok_or_else(|| {
            Misuse(
                "the file of --costs has no costs of system calls, which --shared-cores needs: \
                 write it again with `serried calibrate`"
                    .to_string(),
            )
        })?;
        let times = |ns: u64| (ns as f64 * self.cpu_factor).round() as u64;
        let scale = |costs: SystemCallCosts| SystemCallCosts {
            event_ns: times(costs.event_ns),
            system_call_ns: times(costs.system_call_ns),
        };
        Ok(OneMachine { cores, replica: scale(apart.replica), client: scale(apart.client) })
    }

    fn file(&self) -> anyhow::Result<CostFile> {
        Ok(match &self.costs {
            None => self.measured.unwrap_or_default(),
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("can't read {}", file.display()))?;
                let parsed = toml::from_str::<CostFile>(&text).map_err(|error| {
                    let line = error.span().map_or(1, |span| text[..span.start].lines().count());
                    anyhow::anyhow!("{}: line {}: {}", file.display(), line.max(1), error.message())
                });
                parsed?
            }
        })
    }

    /// The same, with costs that were measured just now.
    pub(crate) fn with_measured(self, measured: CostFile) -> CostArguments {
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
        let kept = CostArguments { costs: Some(file.into()), ..arguments.clone() }.file().unwrap();
        let built_in = arguments.file().unwrap();
        assert_eq!(kept, built_in);
    }
}

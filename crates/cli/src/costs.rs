//! What computing costs in simulations.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};
use serried_calibrate::{Calibration, Side};
use serried_reproduce::Costs;
use serried_sim::{CostModel, OneMachine, SystemCallCosts};

use crate::misuse::{Misuse, number};

/// The built-in costs.
const BUILT_IN: &str = include_str!("../../calibrate/costs.toml");

/// A file with costs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CostFile {
    replica: CostModel,
    client: CostModel,
    /// What replaces these if all nodes run on one machine. Files of earlier versions do not have it.
    one_machine: Option<OneMachineCosts>,
    /// The same for single protocols, by their names.
    #[serde(default)]
    protocols: BTreeMap<String, OneMachineCosts>,
}

/// The costs of events and of system calls, separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneMachineCosts {
    replica: SystemCallCosts,
    client: SystemCallCosts,
}

impl From<&Calibration> for OneMachineCosts {
    fn from(calibration: &Calibration) -> OneMachineCosts {
        let apart = |side: &Side| {
            let ns = |cost: f64| cost.round() as u64;
            let [event, sent, unit, system_call, byte] = side.fit.costs_ns;
            SystemCallCosts {
                event_ns: ns(event),
                sent_message_ns: ns(sent),
                work_unit_ns: ns(unit),
                byte_ps: ns(byte * 1000.0),
                system_call_ns: ns(system_call),
            }
        };
        OneMachineCosts { replica: apart(&calibration.replica), client: apart(&calibration.client) }
    }
}

impl CostFile {
    /// The costs by a calibration, and those of single protocols by calibrations of their own.
    pub(crate) fn new<'a>(
        calibration: &Calibration,
        protocols: impl IntoIterator<Item = &'a (String, Calibration)>,
    ) -> CostFile {
        let Calibration { replica, client, .. } = calibration;
        let apart = |(name, own): &'a (String, Calibration)| (name.clone(), own.into());
        CostFile {
            replica: replica.costs,
            client: client.costs,
            one_machine: Some(calibration.into()),
            protocols: protocols.into_iter().map(apart).collect(),
        }
    }

    fn parse(text: &str) -> Result<CostFile, String> {
        let file: CostFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].lines().count());
            let what = error.message();
            let hint = match what.starts_with("missing field") {
                true => "; write the file again with `serried calibrate`",
                false => "",
            };
            format!("line {}: {what}{hint}", line.max(1))
        })?;
        let known = |name: &String| serried_protocols::info(name).is_some();
        match file.protocols.keys().find(|name| !known(name)) {
            Some(name) => Err(format!("there is no protocol `{name}` (see `serried --help`)")),
            None => Ok(file),
        }
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

    /// A machine with this many cores for all nodes, which run this protocol.
    pub(crate) fn one_machine(&self, cores: usize, protocol: &str) -> anyhow::Result<OneMachine> {
        let file = self.file()?;
        let apart =
            file.protocols.get(protocol).copied().or(file.one_machine).ok_or_else(|| {
                Misuse(
                "the file of --costs has no costs of system calls, which --shared-cores needs: \
                 write it again with `serried calibrate`"
                    .to_string(),
            )
            })?;
        let times = |ns: u64| (ns as f64 * self.cpu_factor).round() as u64;
        let scale = |costs: SystemCallCosts| SystemCallCosts {
            event_ns: times(costs.event_ns),
            sent_message_ns: times(costs.sent_message_ns),
            work_unit_ns: times(costs.work_unit_ns),
            byte_ps: times(costs.byte_ps),
            system_call_ns: times(costs.system_call_ns),
        };
        Ok(OneMachine { cores, replica: scale(apart.replica), client: scale(apart.client) })
    }

    fn file(&self) -> anyhow::Result<CostFile> {
        Ok(match (&self.costs, &self.measured) {
            (Some(file), _) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("can't read {}", file.display()))?;
                let parsed = CostFile::parse(&text);
                parsed.map_err(|wrong| anyhow::anyhow!("{}: {wrong}", file.display()))?
            }
            (None, Some(measured)) => measured.clone(),
            (None, None) => CostFile::parse(BUILT_IN).expect("the built-in costs can be read"),
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
    use serried_model::FamilyName;

    use super::*;

    #[test]
    fn the_built_in_costs_are_those_of_the_simulator_and_of_all_protocols_of_transactions() {
        let arguments = CostArguments { costs: None, cpu_factor: 1.0, measured: None };
        let CostFile { replica, client, one_machine, protocols } = arguments.file().unwrap();
        assert_eq!(Costs { replica, client }, Costs::default());
        assert!(one_machine.is_some());
        let names: Vec<&String> = protocols.keys().collect();
        let mut all: Vec<&str> =
            serried_protocols::of(FamilyName::Transactions).map(|protocol| protocol.name).collect();
        all.sort_unstable();
        assert_eq!(names, all);
    }

    #[test]
    fn costs_of_an_earlier_version_or_of_an_unknown_protocol_are_refused() {
        let lacking = BUILT_IN.replacen("sent_message_ns = 0\n", "", 1);
        let error = CostFile::parse(&lacking).unwrap_err();
        assert!(error.contains("`sent_message_ns`") && error.contains("calibrate"), "{error}");
        let unknown = BUILT_IN.replace("[protocols.occ.", "[protocols.ooc.");
        let error = CostFile::parse(&unknown).unwrap_err();
        assert!(error.contains("no protocol `ooc`"), "{error}");
    }

    #[test]
    fn on_one_machine_a_protocol_has_its_own_costs_if_the_file_has_them() {
        let apart = |ns: u64| OneMachineCosts {
            replica: SystemCallCosts::only(ns),
            client: SystemCallCosts::only(2 * ns),
        };
        let file = CostFile {
            replica: CostModel::FREE,
            client: CostModel::FREE,
            one_machine: Some(apart(1)),
            protocols: BTreeMap::from([("own".to_string(), apart(10))]),
        };
        let arguments = CostArguments { costs: None, cpu_factor: 3.0, measured: Some(file) };
        for (protocol, expected) in [("own", 30), ("other", 3)] {
            let machine = arguments.one_machine(2, protocol).unwrap();
            assert_eq!(machine.replica, SystemCallCosts::only(expected), "{protocol}");
            assert_eq!(machine.client, SystemCallCosts::only(2 * expected), "{protocol}");
        }
    }
}

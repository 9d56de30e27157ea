//! All runs of a figure of registers, one simulation per thread.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{
    RegisterEffort, RegisterFigure, RegisterFindings, RegisterPoint, RegistersMeasured, RunFound,
    Shows,
};
use crate::engine::each;
use crate::store::Store;
use crate::{Costs, Error};

/// A figure of registers to be reproduced.
#[derive(Clone, Debug)]
pub struct RegisterEngine {
    /// Which.
    pub figure: &'static RegisterFigure,
    /// The protocols, by their names in the registry.
    pub protocols: Vec<String>,
    /// How much effort to make.
    pub effort: RegisterEffort,
    /// What computing costs.
    pub costs: Costs,
    /// The seed of all runs.
    pub seed: u64,
    /// How many simulations to run at the same time.
    pub threads: usize,
    /// Where to keep what runs came to. Runs that are found there are not made again.
    pub folder: PathBuf,
}

/// A run is done.
#[derive(Clone, Copy, Debug)]
pub struct RegisterNote<'a> {
    /// The panel of the figure.
    pub panel: &'static str,
    /// The place on the horizontal axis.
    pub x: Option<f64>,
    /// The protocol.
    pub protocol: &'a str,
    /// What it came to.
    pub measured: &'a RegistersMeasured,
    /// Whether it had been made before.
    pub stored: bool,
    /// How many of all runs are done.
    pub done: usize,
    /// How many runs there are.
    pub total: usize,
}

struct Task {
    panel: usize,
    x: Option<f64>,
    point: RegisterPoint,
}

impl RegisterEngine {
    /// The protocols of a figure that are in the registry.
    pub fn known_protocols(figure: &RegisterFigure) -> Vec<String> {
        let known = serried_protocols::list();
        let here = |protocol: &&str| known.iter().any(|known| known.name == *protocol);
        figure.protocols().filter(here).map(str::to_string).collect()
    }

    /// Makes all runs, and tells of each.
    ///
    /// # Errors
    /// If a protocol is not in this build or has no registers, or the folder can't be written to.
    pub fn run(&self, tell: &(dyn Fn(RegisterNote<'_>) + Sync)) -> Result<RegisterFindings, Error> {
        let store = Store::open(self.folder.clone())?;
        let tasks = self.tasks();
        let done = AtomicUsize::new(0);
        let runs = each(&tasks, self.threads, |task, _| {
            let (measured, stored) = store.or_make(&task.point, || task.point.run())?;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            let (panel, x) = (self.figure.panels[task.panel].label, task.x);
            let (protocol, total) = (&*task.point.protocol, tasks.len());
            tell(RegisterNote { panel, x, protocol, measured: &measured, stored, done, total });
            let protocol = task.point.protocol.clone();
            Ok(RunFound { panel: task.panel, label: panel, x, protocol, measured })
        })?;
        Ok(RegisterFindings::new(self, runs))
    }

    /// The places on the horizontal axis.
    pub(crate) fn places(&self) -> Vec<Option<f64>> {
        match self.figure.shows {
            Shows::Load { .. } if !self.effort.clients.is_empty() => {
                self.effort.clients.iter().map(|clients| Some(*clients as f64)).collect()
            }
            _ => self.figure.places(self.effort.few_places),
        }
    }

    fn tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for (panel, conflicts) in self.figure.panels.iter().enumerate() {
            for x in self.places() {
                for protocol in &self.protocols {
                    let (effort, rest) = (&self.effort, (self.costs, self.seed));
                    let share = conflicts.share;
                    let point = RegisterPoint::new(self.figure, share, x, protocol, effort, rest);
                    tasks.push(Task { panel, x, point });
                }
            }
        }
        tasks
    }
}

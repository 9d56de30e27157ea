//! All systems of a figure, one simulation per thread.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::climb::{climb, most_runs, rounded};
use super::system::peak;
use super::{LOAD, LoadEffort, LoadFigure, LoadFindings, SystemFound};
use crate::engine::each;
use crate::run::run;
use crate::store::Store;
use crate::{Costs, Error, Measured, Point};

/// A figure of systems under load to be reproduced.
#[derive(Clone, Debug)]
pub struct LoadEngine {
    /// Which.
    pub figure: &'static LoadFigure,
    /// The protocols, by their names in the registry.
    pub protocols: Vec<String>,
    /// How much effort to make.
    pub effort: LoadEffort,
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
pub struct LoadNote<'a> {
    /// The place on the horizontal axis, if it was at a share of the highest throughput.
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

impl LoadEngine {
    /// The protocols of a figure that are in the registry.
    pub fn known_protocols(figure: &LoadFigure) -> Vec<String> {
        let known = serried_protocols::list();
        let here = |protocol: &&str| known.iter().any(|known| known.name == *protocol);
        figure.protocols().filter(here).map(str::to_string).collect()
    }

    /// Makes all runs, and tells of each.
    ///
    /// # Errors
    /// If a protocol or the workload is not in this build, or the folder can't be written to.
    pub fn run(&self, tell: &(dyn Fn(LoadNote<'_>) + Sync)) -> Result<LoadFindings, Error> {
        let store = Store::open(self.folder.clone())?;
        let LoadEffort { rates_per_s, closer, .. } = &self.effort;
        let to_climb = match rates_per_s.len() {
            0 => most_runs(*closer),
            rates => rates,
        };
        let of_each = to_climb + self.places().len();
        let (done, total) = (AtomicUsize::new(0), of_each * self.protocols.len());
        let systems = each(&self.protocols, self.threads, |protocol, failed| {
            let made = AtomicUsize::new(0);
            let system = self.system(protocol, |rate, x| {
                if failed.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                let (effort, rest) = (&self.effort, (self.costs, self.seed));
                let point = Point::of_load(self.figure, protocol, (rate, x), effort, rest);
                let (measured, stored) = store.or_make(&point, || run(&point))?;
                made.fetch_add(1, Ordering::Relaxed);
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                tell(LoadNote { x, protocol, measured: &measured, stored, done, total });
                Ok(measured)
            })?;
            done.fetch_add(of_each - made.into_inner(), Ordering::Relaxed);
            Ok(system)
        })?;
        Ok(LoadFindings::new(self, systems))
    }

    fn places(&self) -> &'static [f64] {
        self.figure.places(self.effort.few_places)
    }

    /// Finds out what a system can do, and has it do a share of that at all places.
    fn system(
        &self,
        protocol: &str,
        run: impl Fn(f64, Option<f64>) -> Result<Measured, Error>,
    ) -> Result<SystemFound, Error> {
        let LoadEffort { rates_per_s, closer, deaths, .. } = &self.effort;
        let climbed = if rates_per_s.is_empty() {
            climb(self.figure.first_per_s, *closer, |rate| run(rate, None))?
        } else {
            let runs: Result<Vec<Measured>, Error> =
                rates_per_s.iter().map(|rate| run(*rate, None)).collect();
            let runs = runs?;
            let saturated = runs.last().is_some_and(|run| !super::climb::follows(run));
            (runs, saturated)
        };
        let highest = peak(self.figure, &climbed.0).map_or(0.0, |run| run.goodput_per_s);
        // Something has to be offered, even if nothing was done.
        let rate = rounded(f64::max(LOAD * highest, 1.0));
        let place = |x: &f64| Ok((*x, run(rate, Some(*x))?));
        let places: Result<Vec<_>, Error> = self.places().iter().map(place).collect();
        Ok(SystemFound::new(self.figure, protocol, climbed, places?, *deaths))
    }
}

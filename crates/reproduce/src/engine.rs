//! Makes all runs of a figure, one simulation per thread.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::effort::Search;
use crate::figure::{Figure, Load, Open};
use crate::parallel::each;
use crate::point::{Demand, Point, Setting};
use crate::search::{climb, most_runs, offer, rounded, saturate};
use crate::store::Store;
use crate::sweep::{Place, Sweep};
use crate::{Costs, Effort, Error, Findings, Measured, Note};

/// The reproduction of a figure.
#[derive(Clone, Debug)]
pub struct Engine {
    /// The figure.
    pub figure: &'static Figure,
    /// The protocols, by their names in the registry.
    pub protocols: Vec<String>,
    /// The effort: see [`Figure::effort`].
    pub effort: Effort,
    /// The costs of computing.
    pub costs: Costs,
    /// The seed of all runs.
    pub seed: u64,
    /// How many simulations to run at the same time. Each has a thread and a whole cluster in memory.
    pub threads: usize,
    /// The folder for results. Runs with results there are not made again, so that an interrupted figure continues.
    pub folder: PathBuf,
}

/// Runs that depend on each other, and are therefore made one after the other.
struct Task<'a> {
    panel: usize,
    protocol: &'a str,
    /// The places on the horizontal axis. `None` is the only place of a figure that sweeps no parameter. In open loops
    /// it is the search for the highest load.
    places: Vec<Option<f64>>,
}

/// Makes runs, or finds them in the store, and reports them.
struct Runs<'a> {
    engine: &'a Engine,
    store: Store,
    tell: &'a (dyn Fn(Note<'_>) + Sync),
    done: AtomicUsize,
    total: usize,
}

impl Task<'_> {
    fn place(&self, x: Option<f64>) -> Place<'_> {
        Place { panel: self.panel, x, protocol: self.protocol }
    }
}

impl Engine {
    /// Makes all runs, and calls `tell` with each.
    ///
    /// # Errors
    /// If a protocol or the workload is not in this build, if the protocol is of another family than the figure, or if
    /// the folder can't be written to.
    pub fn run(&self, tell: &(dyn Fn(Note<'_>) + Sync)) -> Result<Findings, Error> {
        let tasks = self.tasks();
        let runs = Runs {
            engine: self,
            store: Store::open(self.folder.clone())?,
            tell,
            done: AtomicUsize::new(0),
            total: tasks.iter().map(|task| self.most_runs(task)).sum(),
        };
        let sweeps = each(&tasks, self.threads, |task, failed| {
            let sweeps = runs.sweeps(task, failed)?;
            let made: usize = sweeps.iter().map(|sweep| sweep.runs.len()).sum();
            runs.done.fetch_add(self.most_runs(task) - made, Ordering::Relaxed);
            Ok(sweeps)
        })?;
        Ok(Findings::new(self, sweeps.into_iter().flatten().collect()))
    }

    fn tasks(&self) -> Vec<Task<'_>> {
        let places = self.figure.places_of(&self.effort).iter().copied().map(Some);
        let places: Vec<Vec<Option<f64>>> = match self.figure.load {
            // The rates at the places depend on the highest load.
            Load::Open(_) => vec![core::iter::once(None).chain(places).collect()],
            Load::Closed { .. } if places.len() == 0 => vec![vec![None]],
            Load::Closed { .. } => places.map(|place| vec![place]).collect(),
        };
        let mut tasks = Vec::new();
        for panel in 0..self.figure.panels.len() {
            for places in &places {
                tasks.extend(self.protocols.iter().map(|protocol| {
                    let places = places.clone();
                    Task { panel, protocol, places }
                }));
            }
        }
        tasks
    }

    /// The greatest number of runs of a task.
    fn most_runs(&self, task: &Task<'_>) -> usize {
        match &self.effort.search {
            Search::Clients { counts, .. } => {
                let counts = if self.figure.sets_clients() { 1 } else { counts.len() };
                counts * task.places.len()
            }
            Search::Rates { rates_per_s, closer, .. } => {
                let climbing = most_runs(*closer);
                let search = if rates_per_s.is_empty() { climbing } else { rates_per_s.len() };
                search + task.places.len() - 1
            }
        }
    }
}

impl Runs<'_> {
    /// Makes the runs of a task.
    fn sweeps(&self, task: &Task<'_>, failed: &AtomicBool) -> Result<Vec<Sweep>, Error> {
        let Engine { figure, effort, .. } = self.engine;
        match (&effort.search, figure.load) {
            (Search::Clients { counts, patience }, Load::Closed { .. }) => {
                let sweep = |x: &Option<f64>| {
                    let place = task.place(*x);
                    let run = |clients| self.make(place, Demand::Clients(clients), failed);
                    let panel = &figure.panels[task.panel];
                    let set = figure.clients_at(panel, *x).map(|clients| vec![clients]);
                    let counts = set.as_ref().unwrap_or(counts);
                    let (runs, saturated) = saturate(counts, *patience, run)?;
                    let saturated = figure.searches().then_some(saturated);
                    Ok(Sweep::new(figure, place, effort, (runs, saturated)))
                };
                task.places.iter().map(sweep).collect()
            }
            (Search::Rates { clients, rates_per_s, closer }, Load::Open(open)) => {
                let run = |x, per_s| {
                    let demand = Demand::Rate { clients: *clients, per_s };
                    self.make(task.place(x), demand, failed)
                };
                let (runs, saturated) = match rates_per_s.len() {
                    0 => climb(open.first_per_s, *closer, |per_s| run(None, per_s))?,
                    _ => offer(rates_per_s, |per_s| run(None, per_s))?,
                };
                let found = (runs, Some(saturated));
                let mut sweeps = vec![Sweep::new(figure, task.place(None), effort, found)];
                let per_s = share_of(&sweeps[0], open);
                for x in task.places.iter().filter(|x| x.is_some()) {
                    let found = (vec![run(*x, per_s)?], None);
                    sweeps.push(Sweep::new(figure, task.place(*x), effort, found));
                }
                Ok(sweeps)
            }
            _ => Err(Error::OtherLoad),
        }
    }

    /// Makes a run, unless it is stored or another one has failed.
    fn make(
        &self,
        place: Place<'_>,
        demand: Demand,
        failed: &AtomicBool,
    ) -> Result<Measured, Error> {
        if failed.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let Engine { figure, effort, costs, seed, .. } = self.engine;
        let (panel, Place { x, protocol, .. }) = (&figure.panels[place.panel], place);
        let setting = Setting { figure, panel, x, protocol, effort, costs: *costs, seed: *seed };
        let point = Point::new(&setting, demand);
        let (measured, stored) = self.store.or_make(&point)?;
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let (panel, total) = (panel.label, self.total);
        (self.tell)(Note { panel, x, protocol, measured: &measured, stored, done, total });
        Ok(measured)
    }
}

/// The rate that is offered at the places of the horizontal axis.
fn share_of(highest: &Sweep, open: Open) -> f64 {
    let per_s = highest.peak().map_or(0.0, |run| run.summary().per_s);
    // The rate must be above 0, even if no transaction was done.
    rounded(f64::max(open.share * per_s, 1.0))
}

//! All series of a figure, one simulation per thread.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::paper::{Figure, SERIES, Varies};
use crate::run::run;
use crate::store::Store;
use crate::sweep::{Sweep, saturate};
use crate::{Costs, Effort, Error, Findings, Measured, Point};

/// A figure to be reproduced.
#[derive(Clone, Debug)]
pub struct Engine {
    /// Which.
    pub figure: &'static Figure,
    /// The protocols, by their names in the registry.
    pub protocols: Vec<String>,
    /// How much effort to make.
    pub effort: Effort,
    /// What computing costs.
    pub costs: Costs,
    /// The seed of all runs.
    pub seed: u64,
    /// How many simulations to run at the same time. Each has a thread and a whole cluster in memory.
    pub threads: usize,
    /// Where to keep what runs came to. Runs that are found there are not made again: a sweep that was
    /// interrupted goes on.
    pub folder: PathBuf,
}

/// A run is done.
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

/// A series to be run.
struct Task {
    panel: usize,
    label: &'static str,
    x: Option<f64>,
    point: Point,
}

impl Engine {
    /// The protocols of a figure's paper that are in the registry, in the paper's order.
    pub fn known_protocols() -> Vec<String> {
        let known = serried_protocols::list();
        let here = |protocol: &str| known.iter().any(|known| known.name == protocol);
        let names = SERIES.iter().map(|series| series.protocol);
        names.filter(|name| here(name)).map(str::to_string).collect()
    }

    /// Makes all runs, and tells of each.
    ///
    /// # Errors
    /// If a protocol or the workload is not in this build, or the folder can't be written to.
    pub fn run(&self, tell: &(dyn Fn(Note<'_>) + Sync)) -> Result<Findings, Error> {
        let store = Store::open(self.folder.clone())?;
        let tasks = self.tasks();
        let total = tasks.len() * self.effort.clients.len();
        let done = AtomicUsize::new(0);
        let sweeps = each(&tasks, self.threads, |task, failed| {
            let sweep = self.sweep(task, &store, failed, |measured, stored| {
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                let protocol = &task.point.protocol;
                let (panel, x) = (task.label, task.x);
                tell(Note { panel, x, protocol, measured, stored, done, total });
            })?;
            let needless = self.effort.clients.len() - sweep.points.len();
            done.fetch_add(needless, Ordering::Relaxed);
            Ok(sweep)
        })?;
        Ok(Findings::new(self, sweeps))
    }

    fn tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for (panel, part) in self.figure.panels.iter().enumerate() {
            for x in self.figure.places(self.effort.few_places) {
                for protocol in &self.protocols {
                    let (effort, rest) = (&self.effort, (self.costs, self.seed));
                    let point = Point::new(self.figure, part, x, protocol, effort, rest);
                    tasks.push(Task { panel, label: part.label, x, point });
                }
            }
        }
        tasks
    }

    /// Runs one series. After each run `tell` hears of it, and whether it had been made before.
    fn sweep(
        &self,
        task: &Task,
        store: &Store,
        failed: &AtomicBool,
        tell: impl Fn(&Measured, bool),
    ) -> Result<Sweep, Error> {
        let Effort { clients, patience, .. } = &self.effort;
        let (points, saturated) = saturate(clients, *patience, |clients| {
            if failed.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let point = task.point.with_clients(clients);
            let (measured, stored) = store.or_make(&point, || run(&point))?;
            tell(&measured, stored);
            Ok(measured)
        })?;
        let Task { panel, label, x, point } = task;
        let protocol = point.protocol.clone();
        Ok(Sweep { panel: *panel, label, x: *x, protocol, saturated, points })
    }
}

/// Does `work` for each task, on so many threads, until it fails for one; `work` is told whether it has for
/// another. What comes of it, in the order of the tasks.
pub(crate) fn each<T: Sync, R: Send>(
    tasks: &[T],
    threads: usize,
    work: impl Fn(&T, &AtomicBool) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Mutex<Vec<Option<Result<R, Error>>>> =
        Mutex::new(tasks.iter().map(|_| None).collect());
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(number) else { return };
            let result = work(task, &failed);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            results.lock().expect("no thread panics with it")[number] = Some(result);
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(work)).collect();
        work();
        for other in others {
            if let Err(panic) = other.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let results = results.into_inner().expect("no thread has panicked");
    // Those that were not begun come after the one that failed.
    results.into_iter().flatten().collect()
}

impl Figure {
    /// What is on the horizontal axis, beside the client count.
    pub(crate) fn axis(&self) -> Option<&'static str> {
        match self.varies {
            Varies::Clients => None,
            Varies::Cores { .. } => Some("cores"),
            Varies::Theta { .. } => Some("theta"),
        }
    }
}

//! One run of a sweep: what determines it, and how much effort is made.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serried_actor::Settings;
use serried_sim::CostModel;
use serried_workload::Parameters;

use crate::paper::{Figure, Panel, Varies, layout};
use crate::store::Stored;

/// What computing costs on the two sides: what `serried calibrate` writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// At replicas.
    pub replica: CostModel,
    /// At clients.
    pub client: CostModel,
}

impl Costs {
    /// Those of a CPU that takes `factor` times as long.
    #[must_use]
    pub fn times(self, factor: f64) -> Costs {
        let times = |cost: u64| (cost as f64 * factor).round() as u64;
        let scale = |costs: CostModel| CostModel {
            event_ns: times(costs.event_ns),
            sent_message_ns: times(costs.sent_message_ns),
            work_unit_ns: times(costs.work_unit_ns),
            byte_ps: times(costs.byte_ps),
        };
        Costs { replica: scale(self.replica), client: scale(self.client) }
    }
}

impl Default for Costs {
    /// The built-in ones.
    fn default() -> Costs {
        Costs { replica: CostModel::default(), client: CostModel::CLIENT }
    }
}

/// How much effort a sweep makes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Effort {
    /// How long to run before measuring, in simulated seconds.
    pub warm_up_s: f64,
    /// How long to measure, in simulated seconds.
    pub measured_s: f64,
    /// Warming up and measuring each end earlier when so many transactions have been committed, which
    /// bounds a run's time and memory. The more transactions, the less time is needed for as good a
    /// measurement.
    pub most_transactions: u64,
    /// The client counts, from few to many.
    pub clients: Vec<usize>,
    /// After so many client counts in a row that did not raise the highest goodput, no more are run.
    pub patience: usize,
    /// Fewer places on the horizontal axis.
    pub few_places: bool,
    /// How many keys there are, or warehouses, if not as many as in the paper.
    pub size: Option<u64>,
}

impl Effort {
    /// What it takes for numbers to report.
    pub fn full() -> Effort {
        Effort {
            warm_up_s: 6.0,
            measured_s: 12.0,
            most_transactions: 300_000,
            clients: (0..11).map(|doublings| 12 << doublings).collect(),
            patience: 2,
            few_places: false,
            size: None,
        }
    }

    /// What it takes for a first impression.
    pub fn quick() -> Effort {
        Effort {
            warm_up_s: 2.0,
            measured_s: 3.0,
            most_transactions: 40_000,
            clients: vec![24, 96, 384, 1536],
            patience: 2,
            few_places: true,
            size: None,
        }
    }
}

/// Goodput counts as higher if it is so by this much; less is chance.
pub(crate) const RISE: f64 = 0.03;

/// One run: together with the build, everything that its result is determined by.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Point {
    /// The protocol, by its name in the registry.
    pub protocol: String,
    /// The workload, by its name.
    pub workload: &'static str,
    /// What the workload is told.
    pub parameters: Parameters,
    /// From how many terminals transactions come, one drawn for each; 0 if clients make no difference.
    pub terminals: u64,
    /// Where the replicas and the clients are.
    pub geography: &'static str,
    /// How many replicas a partition has.
    pub replicas: usize,
    /// How many partitions there are.
    pub partitions: u16,
    /// How many cores a replica of one of them has.
    pub replica_cores: u32,
    /// How many clients there are, the same number at each site.
    pub clients: usize,
    /// The longest wait before the first retry, in milliseconds.
    pub backoff_first_ms: u64,
    /// The longest wait before any retry, in milliseconds.
    pub backoff_most_ms: u64,
    /// The most by which a clock is off, in microseconds.
    pub clock_skew_us: u64,
    /// By how much of a link's delay a message may be late.
    pub jitter: f64,
    /// [`Effort::warm_up_s`].
    pub warm_up_s: f64,
    /// [`Effort::measured_s`].
    pub measured_s: f64,
    /// [`Effort::most_transactions`].
    pub most_transactions: u64,
    /// What computing costs.
    pub costs: Costs,
    /// The seed.
    pub seed: u64,
    /// What clients in open loops do; none if they are in closed ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenClients>,
}

/// Clients in open loops: what determines a run of theirs besides.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct OpenClients {
    /// How many transactions arrive each second, at all of them together.
    pub rate_per_s: f64,
    /// How many transactions each of them may have open.
    pub most_open: usize,
    /// [`serried_actor::Settings::recovery_after_ms`], if it is not the usual one.
    pub recovery_after_ms: Option<u64>,
    /// When all of them die, and as many others go on.
    pub deaths: Option<Deaths>,
}

/// All clients die, and as many others go on. What is done is then measured from the beginning.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Deaths {
    /// When they die, in simulated seconds.
    pub at_s: f64,
    /// How long the others go on, in simulated seconds.
    pub then_s: f64,
}

/// The cores of a replica where the figure does not vary them (000 §5, "Setup").
const CORES: u32 = 20;

impl Point {
    /// A run of `figure` with 000's set-up: three replicas, clients at all of them, closed loops, and a
    /// random exponential backoff of up to 2.5 s (000 §5, "Setup" and "Measurement"). The paper does
    /// not say where the backoff starts, how far clocks were off or how much delays varied: those are
    /// this crate's choice.
    pub(crate) fn new(
        figure: &Figure,
        panel: &Panel,
        x: Option<f64>,
        protocol: &str,
        effort: &Effort,
        (costs, seed): (Costs, u64),
    ) -> Point {
        let (mut cores, mut theta) = (CORES, panel.theta);
        match (figure.varies, x) {
            (Varies::Cores { .. }, Some(x)) => cores = x as u32,
            (Varies::Theta { .. }, Some(x)) => theta = x,
            _ => {}
        }
        let (partitions, replica_cores) = layout(protocol).of(cores);
        let size = effort.size.unwrap_or(figure.size);
        let parameters = Parameters {
            keys: Some(size),
            warehouses: Some(size),
            theta: Some(theta),
            ..Parameters::default()
        };
        Point {
            protocol: protocol.to_string(),
            workload: figure.workload,
            parameters,
            terminals: figure.terminals * size,
            geography: panel.geography,
            replicas: 3,
            partitions,
            replica_cores,
            clients: 0,
            backoff_first_ms: 1,
            backoff_most_ms: 2500,
            clock_skew_us: 500,
            jitter: 0.01,
            warm_up_s: effort.warm_up_s,
            measured_s: effort.measured_s,
            most_transactions: effort.most_transactions,
            costs,
            seed,
            open: None,
        }
    }

    /// The same with so many clients.
    pub(crate) fn with_clients(&self, clients: usize) -> Point {
        Point { clients, ..self.clone() }
    }

    /// How many cores the replicas have, all together.
    pub(crate) fn all_cores(&self) -> f64 {
        self.replicas as f64 * f64::from(self.partitions) * f64::from(self.replica_cores)
    }

    /// How many clients there are in the course of a run.
    pub(crate) fn all_clients(&self) -> usize {
        let dies = self.open.is_some_and(|open| open.deaths.is_some());
        if dies { 2 * self.clients } else { self.clients }
    }

    /// What the protocol is set to.
    pub(crate) fn settings(&self) -> Settings {
        let usual = Settings::default();
        let after = self.open.and_then(|open| open.recovery_after_ms);
        Settings { recovery_after_ms: after.unwrap_or(usual.recovery_after_ms), ..usual }
    }

    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up_s)
    }

    pub(crate) fn measured(&self) -> Duration {
        Duration::from_secs_f64(self.measured_s)
    }
}

impl Stored for Point {
    fn file(&self) -> String {
        let Point { protocol, geography, partitions, replica_cores, clients, .. } = self;
        if let Some(open) = self.open {
            let writes = self.parameters.writes.map_or(String::new(), |w| format!("-writes{w}"));
            let after = open.recovery_after_ms.map_or(String::new(), |ms| format!("-after{ms}"));
            return format!("{protocol}-rate{}{writes}{after}.json", open.rate_per_s);
        }
        let cores = u32::from(*partitions) * replica_cores;
        let theta = self.parameters.theta.expect("every point has an exponent");
        format!("{protocol}-{geography}-theta{theta}-cores{cores}-clients{clients}.json")
    }
}

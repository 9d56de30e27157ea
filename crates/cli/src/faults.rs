//! The faults of a simulation.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serried_sim::{Configuration, Disk, Plan, Swarm};

/// The simulated disk if replicas can crash.
const DISK: Disk = Disk {
    append: Duration::from_micros(5),
    flush: Duration::from_micros(200),
    keep_records: true,
};

/// The options of a simulation that concern faults.
#[derive(Args)]
pub(crate) struct FaultArguments {
    /// Which faults occur in the first three quarters of the run, separated by commas
    ///
    /// The seed determines when they occur. With `crashes`, `blackouts`, `absences` or `lost-disks` a write has to be
    /// on a simulated disk before it is acknowledged, and a crash loses what was not on disk.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KINDS")]
    faults: Vec<FaultKind>,
}

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FaultKind {
    /// Links between nodes are cut or slow, in one direction or both
    Partitions,
    /// Nodes stop for a while and then go on
    Pauses,
    /// Replicas crash and come back, a minority at a time
    Crashes,
    /// All replicas crash at once
    Blackouts,
    /// A replica is down for most of the time
    Absences,
    /// Replicas that crash lose their disks, or find acknowledged data damaged, and are replaced
    #[value(alias = "damage")]
    LostDisks,
    /// Clocks jump by up to 3 seconds
    ClockJumps,
    /// All of these
    All,
}

impl FaultArguments {
    /// The configuration that the faults need, and the plan of faults for a run of length `lasts`. There is no plan if there
    /// are no faults.
    pub(crate) fn apply_to(
        &self,
        configuration: Configuration,
        lasts: Duration,
    ) -> (Configuration, Option<Plan>) {
        if self.faults.is_empty() {
            return (configuration, None);
        }
        let has = |kind| self.faults.contains(&kind) || self.faults.contains(&FaultKind::All);
        let (blackouts, absences, lost_disks) =
            (has(FaultKind::Blackouts), has(FaultKind::Absences), has(FaultKind::LostDisks));
        let crashes = has(FaultKind::Crashes) || blackouts || absences || lost_disks;
        let swarm = Swarm {
            lasts: lasts * 3 / 4,
            always: true,
            partitions: has(FaultKind::Partitions),
            cut_sites: false,
            crashes,
            pauses: has(FaultKind::Pauses),
            lost_disks,
            absences,
            blackouts,
            deaths: false,
            jumps: if has(FaultKind::ClockJumps) { Duration::from_secs(3) } else { Duration::ZERO },
        };
        let disk = match (crashes, configuration.disk) {
            (true, Disk::MEMORY) => DISK,
            (true, disk) => Disk { keep_records: true, ..disk },
            (false, disk) => disk,
        };
        let configuration = Configuration { disk, ..configuration };
        let plan = swarm.plan(&configuration);
        (configuration, Some(plan))
    }
}

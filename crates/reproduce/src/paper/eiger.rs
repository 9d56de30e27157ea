//! 004 §9: Figure 8 of *Performance-Optimal Read-Only Transactions*, which compares Eiger-PORT with Eiger.

use super::port::{FRONTIER, PAPER, PER_SERVER, SCALE, ratio, says};
use crate::claim::Quantity::{Fresh, HighestThroughput, Latency as LatencyOf, Rounds, Stale};
use crate::claim::{Claim, Said, StaleAt};
use crate::figure::{
    Extent, Figure, Groups, Latency, Load, Parameter, Plot, Servers, Swept, System, Work,
};

const EIGER: &str = "eiger";
const EIGER_PORT: &str = "eiger-port";

const COMPARED: &[System] = &[System::new(EIGER, "Eiger"), System::new(EIGER_PORT, "Eiger-PORT")];
const PORT_ALONE: &[System] = &[System::new(EIGER_PORT, "Eiger-PORT")];

/// Eiger's dynamic workload with its default values (§9).
const DYNAMIC: Groups = Groups { workload: "eiger", size: 1_000_000, theta: 0.8, writes: 0.1 };

const READS_P50: Latency = Latency::quantile(Some("read-only"), 0.5);
const WRITES_P50: Latency = Latency::quantile(Some("write"), 0.5);

/// 8 servers and 8 client machines. All figures but 8a have 32 threads on each of these (§9.1).
const LOADED: Figure = Figure {
    name: "",
    number: "",
    paper: &PAPER,
    section: "9.1",
    summary: "",
    work: Work::Snapshots(DYNAMIC),
    geography: "lan",
    servers: Servers { replicas: 1, partitions: 8, cores: 1 },
    load: Load::Closed { clients: Extent { full: &[256], quick: &[256] }, patience: None },
    panels: &[FRONTIER],
    swept: None,
    throughput_of: None,
    latency: READS_P50,
    kinds: &[None, Some("read-only"), Some("write")],
    plots: &[],
    systems: COMPARED,
    claims: &[],
    remarks: &[],
    common_remarks: &[MACHINES, ROWS, THREADS, SKEW],
};

const ZIPF: Swept = Swept {
    parameter: Parameter::Theta,
    places: Extent { full: &[0.0, 0.5, 0.7, 0.8, 0.9, 0.99, 1.1, 1.2], quick: &[0.0, 0.8, 1.2] },
    logarithmic: false,
};

const MACHINES: &str = "A server of the paper has four cores of 2.4 GHz and runs Cassandra, in Java (§9), and a simulated one has one \
     core. There is one datacentre, and not a second one that applies the writes of the first. Machines are 0.1 ms apart";
const ROWS: &str = "A row with its 5 columns of 128 bytes is one value of 640 bytes. So a write transaction writes whole rows, and a \
     key that is touched costs the same under both protocols";
const THREADS: &str = "§9.1 does not say whether its threads are those of one client machine or of all. As there are fewer threads than \
     machines in the beginning, we take them to be those of one";
const SKEW: &str = "§9.1 does not say which Zipf exponents are mild and high skew. We take 0.8, its default, and 1.2. Uniform is 0";

/// Of Eiger-PORT over Eiger.
const fn lead(x: f64, of: crate::claim::Quantity, paper: Said, source: &'static str) -> Claim {
    ratio(Some(x), (EIGER_PORT, EIGER), of, paper, source)
}

const SUMMARY: &str = "§9.1, Results summary";
const READ_LATENCY: &str = "§9.1, Latency improvement";
const STALENESS: &str = "§9.2";

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "eiger-fig8a",
        number: "8a",
        summary: "Eiger's workload: throughput and latency of reads as the load increases",
        load: Load::Closed {
            // 2 to 512 threads on each of 8 machines.
            clients: Extent {
                full: &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096],
                quick: &[16, 256, 2048],
            },
            patience: None,
        },
        plots: &[Plot::LatencyOverThroughput { logarithmic: false }],
        claims: &[
            ratio(
                None,
                (EIGER_PORT, EIGER),
                HighestThroughput,
                Said::Above(1.0),
                "§9.1: more throughput with the same latency",
            ),
            ratio(
                None,
                (EIGER_PORT, EIGER),
                crate::claim::Quantity::LatencyAtHalf,
                Said::Below(1.0),
                "§9.1: less latency with the same throughput",
            ),
        ],
        ..LOADED
    },
    Figure {
        name: "eiger-fig8b",
        number: "8b",
        summary: "Eiger's workload: throughput by the skew of keys",
        swept: Some(ZIPF),
        plots: &[Plot::OverPlaces(HighestThroughput), Plot::OverPlaces(Rounds)],
        claims: &[
            lead(0.0, HighestThroughput, Said::Above(1.0), SUMMARY),
            lead(0.8, HighestThroughput, Said::About(2.0), SUMMARY),
            lead(1.2, HighestThroughput, Said::About(3.0), SUMMARY),
            Claim { protocol: EIGER_PORT, ..says(1.2, Rounds, Said::About(1.0), "§8.2") },
            Claim { protocol: EIGER, ..says(1.2, Rounds, Said::Between(1.0, 3.0), "§8.1") },
        ],
        remarks: &[
            "The paper's throughputs are over Eiger's. It says that the lead stops increasing after 1.1, where one server is the \
             bottleneck",
        ],
        ..LOADED
    },
    Figure {
        name: "eiger-fig8c",
        number: "8c",
        summary: "Eiger's workload: throughput by the number of servers",
        swept: Some(SCALE),
        panels: &[PER_SERVER],
        plots: &[Plot::OverPlaces(HighestThroughput)],
        claims: &[
            lead(4.0, HighestThroughput, Said::Above(1.0), "§9.1: scales better"),
            lead(16.0, HighestThroughput, Said::Above(1.0), "§9.1: scales better"),
        ],
        ..LOADED
    },
    Figure {
        name: "eiger-fig8d",
        number: "8d",
        summary: "Eiger's workload: latency of reads by the skew of keys",
        swept: Some(ZIPF),
        plots: &[Plot::OverPlaces(LatencyOf(READS_P50))],
        claims: &[
            lead(0.0, LatencyOf(READS_P50), Said::About(0.8), READ_LATENCY),
            lead(0.8, LatencyOf(READS_P50), Said::Between(0.4, 0.8), READ_LATENCY),
            lead(1.2, LatencyOf(READS_P50), Said::Between(0.4, 0.8), READ_LATENCY),
        ],
        remarks: &["The paper's latencies are over Eiger's"],
        ..LOADED
    },
    Figure {
        name: "eiger-fig8e",
        number: "8e",
        summary: "Eiger's workload: latency of write transactions by the skew of keys",
        swept: Some(ZIPF),
        latency: WRITES_P50,
        plots: &[Plot::OverPlaces(LatencyOf(WRITES_P50))],
        claims: &[
            lead(0.0, LatencyOf(WRITES_P50), Said::Below(1.0), READ_LATENCY),
            lead(0.8, LatencyOf(WRITES_P50), Said::Below(1.0), READ_LATENCY),
            lead(1.2, LatencyOf(WRITES_P50), Said::Below(1.0), READ_LATENCY),
        ],
        ..LOADED
    },
    Figure {
        name: "eiger-fig8f",
        number: "8f",
        section: "9.2",
        summary: "Eiger's workload: how old what is read is, by the skew of keys",
        swept: Some(ZIPF),
        plots: &[
            Plot::OverPlaces(Fresh),
            Plot::OverPlaces(Stale(StaleAt::P90)),
            Plot::OverPlaces(Stale(StaleAt::P99)),
        ],
        systems: PORT_ALONE,
        claims: &[
            Claim { protocol: EIGER_PORT, ..says(1.2, Fresh, Said::AtLeast(40.0), STALENESS) },
            Claim {
                protocol: EIGER_PORT,
                ..says(1.2, Stale(StaleAt::P90), Said::Below(1000.0), STALENESS)
            },
        ],
        remarks: &[
            "The paper counts transactions that found only the newest values. Here values are counted one by one",
        ],
        ..LOADED
    },
];

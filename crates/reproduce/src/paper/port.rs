//! 004 §7 and §10: Figures 4 and 9 of *Performance-Optimal Read-Only Transactions* (PORT).

use crate::claim::Quantity::{Fresh, HighestThroughput, Latency as LatencyOf, Omitted, Stale};
use crate::claim::{Against, Claim, Quantity, Said, StaleAt};
use crate::figure::{
    Contended, Extent, Figure, Groups, Latency, Load, Panel, Paper, Parameter, Plot, Servers,
    Statistic, Swept, System, Times, Work,
};

const PORT: &str = "port";
const OCC: &str = "scylla-occ";
const PLAIN: &str = "plain";

const COMPARED: &[System] = &[
    System::new(PLAIN, "ScyllaDB"),
    System::new(PORT, "Scylla-PORT"),
    System::new(OCC, "Scylla-OCC"),
];
const PORT_ALONE: &[System] = &[System::new(PORT, "Scylla-PORT")];

/// Each client of the paper makes 10 million requests.
pub(super) const PAPER: Paper = Paper {
    number: "004",
    name: "PORT",
    times: Extent {
        full: Times { warm_up_s: 0.5, measured_s: 2.0, most_operations: 200_000, deaths: None },
        quick: Times { warm_up_s: 0.2, measured_s: 0.5, most_operations: 20_000, deaths: None },
    },
};

/// YCSB's workload B in groups of 5 records, of 10 fields of 100 bytes each (§7.2).
const YCSB: Groups = Groups { workload: "ycsb-groups", size: 1_000_000, theta: 0.99, writes: 0.05 };

/// Keys that are so few that reads and writes conflict.
const HOT: Contended = Contended { keys: 20, read: 5, written: 3 };

/// Those of the paper's table that are here, and then what else has read-only transactions.
const OF_FIGURE_9: &[System] = &[
    System::new(PORT, "Scylla-PORT"),
    System::new("eiger-port", "Eiger-PORT"),
    System::new("tapir-cc", "TAPIR"),
    System::new("eiger", "Eiger"),
    System::new("janus", "Janus"),
    System::new("rococo", "Rococo"),
    System::new("mvtso", "MVTSO"),
    System::new("port-seo", "PORT-SEO"),
    System::new(OCC, "Scylla-OCC"),
    System::new("ncc", "NCC"),
    System::new("ncc-rw", "NCC-RW"),
    System::new("morty", "Morty"),
    System::new("mvto", "MVTO"),
    System::new("occ", "OCC"),
    System::new("two-phase-locking-wound-wait", "2PL, wound-wait"),
    System::new("two-phase-locking-no-wait", "2PL, no-wait"),
    System::new(PLAIN, "ScyllaDB"),
];

const MEAN: Latency = Latency { kind: None, statistic: Statistic::Mean };
const P50: Latency = Latency::quantile(None, 0.5);

/// 8 servers and 8 client machines with 32 threads each (§7.2, §7.3).
const CONTENDED: Figure = Figure {
    name: "",
    number: "",
    paper: &PAPER,
    section: "7.3",
    summary: "",
    work: Work::Snapshots(YCSB),
    geography: "lan",
    servers: Servers { replicas: 1, partitions: 8, cores: 1 },
    load: Load::Closed { clients: Extent { full: &[256], quick: &[256] }, patience: None },
    panels: &[FRONTIER],
    swept: None,
    throughput_of: None,
    latency: P50,
    kinds: &[None, Some("read-only"), Some("write")],
    plots: &[],
    systems: COMPARED,
    claims: &[],
    remarks: &[],
    common_remarks: &[CPU, ROUNDS, CLOCKS],
};

/// As in the paper: what a session reads is as old as the stable frontier.
pub(super) const FRONTIER: Panel = Panel {
    label: "stable frontier",
    geography: None,
    sets: Some((Parameter::FreshnessMs, f64::INFINITY)),
};

const WRITES: Swept = Swept {
    parameter: Parameter::Writes,
    places: Extent { full: &[0.0, 0.05, 0.1, 0.15, 0.2, 0.25], quick: &[0.0, 0.05, 0.25] },
    logarithmic: false,
};

pub(super) const SCALE: Swept = Swept {
    parameter: Parameter::Servers,
    places: Extent { full: &[2.0, 4.0, 8.0, 16.0, 32.0], quick: &[4.0, 16.0] },
    logarithmic: true,
};

const CPU: &str = "A server of the paper has 16 cores of 2.4 GHz (§7.2), and a simulated one has one. Machines are 0.1 ms apart";
const ROUNDS: &str = "In simulation, a message costs by its bytes, and a key that is touched costs the same under every \
     protocol. So the systems differ by rounds, retries, queues and the bytes of versionstamps, and not by what \
     versions and promotion cost. That is measured over TCP";
const CLOCKS: &str = "Our version clocks advance with time as well as with writes, and each simulated client has one session, \
     which shares its clock with no other";

pub(super) const fn ratio(
    x: Option<f64>,
    (protocol, over): (&'static str, &'static str),
    of: Quantity,
    paper: Said,
    source: &'static str,
) -> Claim {
    Claim { panel: 0, x, protocol, against: Against::Over(over), of, paper, source }
}

pub(super) const fn says(x: f64, of: Quantity, paper: Said, source: &'static str) -> Claim {
    Claim { panel: 0, x: Some(x), protocol: PORT, against: Against::Nothing, of, paper, source }
}

const fn of_figure_9(protocol: &'static str, of: Quantity, paper: Said) -> Claim {
    Claim { panel: 0, x: None, protocol, against: Against::Nothing, of, paper, source: "Fig. 9" }
}

const BY_WRITERS: Panel = Panel { label: "writers", geography: None, sets: None };

const VARYING: &str = "§7.3, Varying write percentage";
const STALENESS: &str = "§7.5";

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "port-fig4a",
        number: "4a",
        summary: "Throughput and latency as the load increases, with 5 % writes",
        load: Load::Closed {
            clients: Extent { full: &[8, 16, 32, 64, 128, 256, 512], quick: &[8, 64, 256] },
            patience: None,
        },
        plots: &[Plot::LatencyOverThroughput { logarithmic: false }],
        claims: &[
            ratio(
                None,
                (PORT, PLAIN),
                HighestThroughput,
                Said::AtLeast(0.944),
                "§7.3: at most 5.6 % less",
            ),
            ratio(
                None,
                (OCC, PORT),
                Quantity::LowLoadLatency,
                Said::About(2.0),
                "§7.3: initially twice",
            ),
        ],
        ..CONTENDED
    },
    Figure {
        name: "port-fig4b",
        number: "4b",
        summary: "Throughput by the share of writes",
        swept: Some(WRITES),
        plots: &[Plot::OverPlaces(HighestThroughput)],
        claims: &[
            ratio(Some(0.0), (PORT, OCC), HighestThroughput, Said::About(2.0), VARYING),
            ratio(Some(0.0), (PORT, PLAIN), HighestThroughput, Said::AtLeast(0.93), VARYING),
            ratio(Some(0.05), (PORT, PLAIN), HighestThroughput, Said::AtLeast(0.93), VARYING),
            ratio(Some(0.25), (PORT, PLAIN), HighestThroughput, Said::AtLeast(0.93), VARYING),
            ratio(
                Some(0.25),
                (PORT, OCC),
                HighestThroughput,
                Said::About(10.0),
                "§7.2: an order of magnitude",
            ),
        ],
        ..CONTENDED
    },
    Figure {
        name: "port-fig4c",
        number: "4c",
        summary: "Latency by the share of writes",
        swept: Some(WRITES),
        plots: &[Plot::OverPlaces(LatencyOf(P50))],
        claims: &[
            ratio(Some(0.0), (OCC, PORT), LatencyOf(P50), Said::About(2.0), VARYING),
            ratio(Some(0.05), (PORT, PLAIN), LatencyOf(P50), Said::Below(1.07), VARYING),
            ratio(Some(0.25), (PORT, PLAIN), LatencyOf(P50), Said::Below(1.07), VARYING),
            says(0.25, Quantity::Rounds, Said::About(1.0), "§3.3"),
        ],
        ..CONTENDED
    },
    Figure {
        name: "port-fig4d",
        number: "4d",
        section: "7.4",
        summary: "Throughput by the number of servers, without skew",
        work: Work::Snapshots(Groups { theta: 0.0, ..YCSB }),
        swept: Some(SCALE),
        panels: &[PER_SERVER],
        plots: &[Plot::OverPlaces(HighestThroughput)],
        claims: &[
            ratio(Some(4.0), (PORT, PLAIN), HighestThroughput, Said::Similar, "§7.4"),
            ratio(Some(16.0), (PORT, PLAIN), HighestThroughput, Said::Similar, "§7.4"),
        ],
        ..CONTENDED
    },
    Figure {
        name: "port-fig4e",
        number: "4e",
        section: "7.4",
        summary: "Throughput by the number of servers, with skew",
        swept: Some(SCALE),
        panels: &[PER_SERVER],
        plots: &[Plot::OverPlaces(HighestThroughput), Plot::OverPlaces(Omitted)],
        claims: &[ratio(
            Some(16.0),
            (PORT, PLAIN),
            HighestThroughput,
            Said::Above(1.0),
            "§7.4: PORT outperforms ScyllaDB",
        )],
        ..CONTENDED
    },
    Figure {
        name: "port-fig4f",
        number: "4f",
        section: "7.5",
        summary: "How old what is read is, by the share of writes",
        swept: Some(Swept {
            places: Extent { full: &[0.05, 0.1, 0.15, 0.2, 0.25], quick: &[0.05, 0.25] },
            ..WRITES
        }),
        panels: &[
            FRONTIER,
            Panel {
                label: "100 ms behind at most",
                geography: None,
                sets: Some((Parameter::FreshnessMs, 100.0)),
            },
            Panel {
                label: "1 ms behind at most",
                geography: None,
                sets: Some((Parameter::FreshnessMs, 1.0)),
            },
        ],
        plots: &[
            Plot::OverPlaces(Fresh),
            Plot::OverPlaces(Stale(StaleAt::P90)),
            Plot::OverPlaces(Stale(StaleAt::P99)),
            Plot::OverPlaces(Omitted),
        ],
        systems: PORT_ALONE,
        claims: &[
            says(0.05, Fresh, Said::About(40.0), STALENESS),
            says(0.25, Fresh, Said::AtLeast(40.0), STALENESS),
            says(0.05, Stale(StaleAt::P90), Said::Below(500.0), STALENESS),
            says(0.25, Stale(StaleAt::P90), Said::Below(500.0), STALENESS),
        ],
        ..CONTENDED
    },
    Figure {
        name: "port-fig9",
        number: "9",
        section: "10",
        summary: "What read-only transactions of all protocols cost on a few contended keys: do servers wait, how many rounds, how much metadata",
        work: Work::ReadOnly(HOT),
        swept: Some(Swept {
            parameter: Parameter::Writers,
            places: Extent { full: &[2.0, 8.0, 32.0], quick: &[2.0, 32.0] },
            logarithmic: true,
        }),
        panels: &[BY_WRITERS],
        kinds: &[None],
        latency: MEAN,
        systems: OF_FIGURE_9,
        claims: &[
            of_figure_9(PORT, Quantity::MostRounds, Said::About(1.0)),
            of_figure_9("eiger-port", Quantity::MostRounds, Said::About(1.0)),
            of_figure_9("tapir-cc", Quantity::MostRounds, Said::About(1.0)),
            of_figure_9("eiger", Quantity::MostRounds, Said::Between(1.0, 3.0)),
            of_figure_9("janus", Quantity::MostRounds, Said::Between(1.0, 2.0)),
            of_figure_9("rococo", Quantity::MostRounds, Said::AtLeast(2.0)),
            of_figure_9("mvtso", Quantity::MostRounds, Said::About(1.0)),
            of_figure_9(PORT, Quantity::Blocked, Said::About(0.0)),
            of_figure_9("eiger-port", Quantity::Blocked, Said::About(0.0)),
            of_figure_9("tapir-cc", Quantity::Blocked, Said::Above(0.0)),
            of_figure_9("eiger", Quantity::Blocked, Said::About(0.0)),
            of_figure_9("janus", Quantity::Blocked, Said::Above(0.0)),
            of_figure_9("rococo", Quantity::Blocked, Said::Above(0.0)),
            of_figure_9("mvtso", Quantity::Blocked, Said::Above(0.0)),
        ],
        remarks: &[
            "Figure 9 is a table of what systems do in the worst case, and not of measurements. N: `blocked %` is the share of \
             read-only transactions, of those with one attempt, that some server has not answered at once. O: `rounds` of messages from the client, \
             those of later attempts included. C: `metadata B` is all that a transaction has sent and was sent, but for one \
             copy of its keys and values; it is constant if it is the same with few writers and with many. S is the \
             guarantee, and W says whether keys are written together",
            "Computing takes no time here, a message takes 0.05 ms, nothing is replicated, and each client waits 0.5 to \
             1.5 ms between requests. So an attempt takes 0.1 ms for each round, unless a server waits",
            "In a keyspace of procedures, a read-only transaction is a call with one piece that reads the keys. In the others \
             it asks for all keys at once",
            "Ours differ from the paper's table in MVTSO, which is Morty's and does not wait for what is not committed: it reads \
             that, and learns in a second round what has become of it. TAPIR does not wait either: it aborts. More rounds of \
             TAPIR and ROCOCO than in the table are those of further attempts",
            "A server of Eiger asks another one about pending transactions before it answers the second round. That counts \
             as a third round, as in the paper, and not as waiting",
        ],
        common_remarks: &[],
        ..CONTENDED
    },
];

/// More clients with more servers, so that these have enough to do (§7.4).
pub(super) const PER_SERVER: Panel = Panel {
    label: "32 clients a server",
    geography: None,
    sets: Some((Parameter::ClientsPerServer, 32.0)),
};

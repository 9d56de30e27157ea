//! 002 §5: Figures 11, 14 and 15 and Tables 1 and 2 of *Extracting More Concurrency from Distributed Transactions*
//! (ROCOCO).

use crate::claim::Quantity::{CommitRate, HighestThroughput, Normalized, Pieces, Share};
use crate::claim::{Against, Claim, Quantity, Said};
use crate::figure::{
    Calls, Districts, Extent, Figure, Latency, Load, Panel, Paper, Parameter, Plot, Servers, Swept,
    System, Times, Warehouses, Work,
};

const ROCOCO: &str = "rococo";
const OCC: &str = "occ-procedures";
const WOUND_WAIT: &str = "two-phase-locking-wound-wait-procedures";
const PLAIN: &str = "plain-procedures";

/// The systems of all figures. Those that are not in the registry are left out of a run.
const COMPARED: &[System] =
    &[System::new(ROCOCO, "ROCOCO"), System::new(WOUND_WAIT, "2PL"), System::new(OCC, "OCC")];
/// Figure 11 also has requests without concurrency control.
const WITH_PLAIN: &[System] = &[
    System::new(ROCOCO, "ROCOCO"),
    System::new(WOUND_WAIT, "2PL"),
    System::new(OCC, "OCC"),
    System::new(PLAIN, "RPC+DB"),
];
const ROCOCO_ALONE: &[System] = &[System::new(ROCOCO, "ROCOCO")];

/// A trial of the paper takes over 60 s. A simulated run repeats itself, and has nothing but calls in it.
const PAPER: Paper = Paper {
    number: "002",
    name: "ROCOCO",
    times: Extent {
        full: Times { warm_up_s: 1.0, measured_s: 5.0, most_operations: 30_000, deaths: None },
        quick: Times { warm_up_s: 0.5, measured_s: 1.0, most_operations: 3_000, deaths: None },
    },
};

/// 10 districts for each server, in one warehouse (§5.5).
const TPCC: Calls = Calls {
    workload: "tpcc-calls",
    size: 100_000,
    theta: None,
    tpcc: Some(Warehouses {
        customers: 30,
        districts: Districts::OfOneWarehouse { per_server: 10 },
    }),
    counts_pieces: false,
    // Systems try again at once.
    backoff_most_ms: 0,
    clock_skew_us: 0,
};

const NEW_ORDER: Option<&str> = Some("new_order");
const P50: Latency = Latency::quantile(NEW_ORDER, 0.5);
const P90: Latency = Latency::quantile(NEW_ORDER, 0.9);
const P99: Latency = Latency::quantile(NEW_ORDER, 0.99);

/// So many clients for each server.
const fn clients(label: &'static str, per_server: f64) -> Panel {
    let sets = Some((Parameter::ClientsPerServer, per_server));
    Panel { label, geography: None, sets }
}

/// So many counters for each call.
const fn counters(label: &'static str, per_call: f64) -> Panel {
    Panel { label, geography: None, sets: Some((Parameter::CountersPerCall, per_call)) }
}

/// TPC-C on 8 servers with one replica each (§5.5).
const SCALED: Figure = Figure {
    name: "",
    number: "",
    paper: &PAPER,
    section: "",
    summary: "",
    work: Work::Procedures(TPCC),
    geography: "lan",
    servers: Servers { replicas: 1, partitions: 8, cores: 1 },
    // The places or the panels say how many clients there are.
    load: Load::Closed { clients: Extent { full: &[1], quick: &[1] }, patience: None },
    panels: &[Panel { label: "8 servers", geography: None, sets: None }],
    swept: None,
    throughput_of: NEW_ORDER,
    latency: P90,
    kinds: &[NEW_ORDER],
    plots: &[],
    systems: COMPARED,
    claims: &[],
    remarks: &[],
    common_remarks: &[CPU, CUSTOMERS, ATTEMPTS],
};

/// What the text states of a system in a panel, at a place.
const fn says(
    (panel, x): (usize, Option<f64>),
    protocol: &'static str,
    of: Quantity,
    paper: f64,
    source: &'static str,
) -> Claim {
    let paper = Said::About(paper);
    Claim { panel, x, protocol, against: Against::Nothing, of, paper, source }
}

const fn ratio(
    (panel, x): (usize, Option<f64>),
    (protocol, over): (&'static str, &'static str),
    of: Quantity,
    paper: Said,
    source: &'static str,
) -> Claim {
    Claim { panel, x, protocol, against: Against::Over(over), of, paper, source }
}

/// The only panel, at this place.
const fn at(x: f64) -> (usize, Option<f64>) {
    (0, Some(x))
}

const CPU: &str = "The paper's servers have one core of 2.6 GHz (§5.2), and those of Table 2 are others. A simulated core is faster, so \
     compare throughputs with each other. `--cpu-factor` makes it slower. Here machines are 0.1 ms apart";
const CUSTOMERS: &str = "A district has 30 customers instead of 3,000 (§5.4), each with an order of some ten lines, of which the last nine \
     are not delivered. There are 100,000 items, as in TPC-C. Rows of a district, and of an item, are at the server that \
     a hash of their key says, so that servers have 10 districts on average";
const ATTEMPTS: &str = "An attempt is counted when its call ends. Calls that start over until the run ends are not counted";
const MINIMAL: &str = "§5.5, Minimal Contention";
const LOW: &str = "§5.5, Low Contention";
const MODERATE: &str = "§5.5, Moderate Contention";
const HIGH: &str = "§5.5, High Contention";
const FIG_15A: &str = "§5.6: low contention";
const FIG_15B: &str = "§5.6: moderate contention";
const TABLE_1: &str = "Table 1";
const TABLE_2: &str = "Table 2";

/// A row of Table 2: at a time to make a log durable, new orders per second, the commit rate and three latencies.
const fn row(x: f64, protocol: &'static str, numbers: [f64; 5]) -> [Claim; 5] {
    let [per_s, rate, p50, p90, p99] = numbers;
    [
        says(at(x), protocol, HighestThroughput, per_s, TABLE_2),
        says(at(x), protocol, CommitRate, rate, TABLE_2),
        says(at(x), protocol, Quantity::Latency(P50), p50, TABLE_2),
        says(at(x), protocol, Quantity::Latency(P90), p90, TABLE_2),
        says(at(x), protocol, Quantity::Latency(P99), p99, TABLE_2),
    ]
}

const LOGGING: [[Claim; 5]; 6] = [
    row(0.0, OCC, [4109.0, 63.82, 8.49, 11.35, 13.60]),
    row(1.0, OCC, [2748.0, 54.28, 12.17, 18.35, 22.79]),
    row(0.0, WOUND_WAIT, [4944.0, 88.52, 8.63, 10.20, 11.29]),
    row(1.0, WOUND_WAIT, [4038.0, 88.76, 10.89, 13.01, 14.48]),
    row(0.0, ROCOCO, [6464.0, 100.0, 6.52, 7.12, 7.33]),
    row(1.0, ROCOCO, [5382.0, 100.0, 8.78, 9.62, 9.94]),
];

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "rococo-fig11",
        number: "11",
        section: "5.3",
        summary: "Counters at 3 servers without contention: throughput of single requests and of transactions",
        work: Work::Procedures(Calls {
            workload: "counter-calls",
            size: 1_000_000,
            theta: Some(0.0),
            tpcc: None,
            ..TPCC
        }),
        servers: Servers { replicas: 1, partitions: 3, cores: 1 },
        load: Load::Closed {
            clients: Extent { full: &[3, 6, 12, 24, 48, 96, 192, 384], quick: &[12, 48, 192] },
            patience: Some(2),
        },
        panels: &[counters("one counter", 1.0), counters("three counters", 3.0)],
        throughput_of: None,
        latency: Latency::quantile(None, 0.5),
        kinds: &[None],
        plots: &[Plot::LatencyOverThroughput { logarithmic: false }],
        systems: WITH_PLAIN,
        claims: &[
            ratio(
                (1, None),
                (OCC, PLAIN),
                HighestThroughput,
                Said::About(1.0 / 3.0),
                "§5.3: roughly 1/3 of 3 RPC+DB",
            ),
            ratio(
                (1, None),
                (WOUND_WAIT, PLAIN),
                HighestThroughput,
                Said::About(1.0 / 3.0),
                "§5.3: roughly 1/3 of 3 RPC+DB",
            ),
            ratio(
                (1, None),
                (ROCOCO, OCC),
                HighestThroughput,
                Said::Similar,
                "§5.3: similar throughput to 2PL/OCC",
            ),
            ratio(
                (1, None),
                (ROCOCO, WOUND_WAIT),
                HighestThroughput,
                Said::Similar,
                "§5.3: similar throughput to 2PL/OCC",
            ),
        ],
        remarks: &[
            "§5.3: each server handles some 75,000 null RPCs per second, and somewhat fewer with a database access. There is \
             no null RPC here. One or three RPCs with database accesses are calls without concurrency control",
            "Counters are drawn from a million, each at the server that a hash says; the paper has one at each server",
        ],
        common_remarks: &[CPU],
        ..SCALED
    },
    Figure {
        name: "rococo-fig14",
        number: "14",
        section: "5.5",
        summary: "Scaled TPC-C on 8 servers: New-Order's throughput, latency and commit rate over clients",
        swept: Some(Swept {
            parameter: Parameter::ClientsPerServer,
            places: Extent {
                full: &[1.0, 2.0, 4.0, 7.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0],
                quick: &[1.0, 7.0, 20.0, 40.0, 100.0],
            },
            logarithmic: false,
        }),
        plots: &[
            Plot::OverPlaces(HighestThroughput),
            Plot::OverPlaces(Quantity::Latency(P50)),
            Plot::OverPlaces(Quantity::Latency(P90)),
            Plot::OverPlaces(Quantity::Latency(P99)),
            Plot::OverPlaces(CommitRate),
        ],
        claims: &[
            says((0, None), ROCOCO, HighestThroughput, 6197.0, MINIMAL),
            says((0, None), OCC, HighestThroughput, 5916.0, MINIMAL),
            says((0, None), WOUND_WAIT, HighestThroughput, 4781.0, MINIMAL),
            says(at(20.0), ROCOCO, Quantity::Latency(P50), 10.0, LOW),
            says(at(20.0), WOUND_WAIT, Quantity::Latency(P50), 20.0, LOW),
            says(at(20.0), OCC, Quantity::Latency(P50), 20.0, LOW),
            says(at(20.0), OCC, Normalized, 0.5, LOW),
            says(at(20.0), OCC, CommitRate, 60.0, LOW),
            says(at(20.0), WOUND_WAIT, CommitRate, 90.0, LOW),
            says(at(40.0), ROCOCO, Normalized, 0.76, MODERATE),
            says(at(40.0), ROCOCO, Quantity::Latency(P99), 12.0, MODERATE),
            says(at(40.0), WOUND_WAIT, HighestThroughput, 2950.0, MODERATE),
            says(at(40.0), WOUND_WAIT, Quantity::Latency(P99), 38.0, MODERATE),
            says(at(40.0), OCC, HighestThroughput, 1774.0, MODERATE),
            says(at(40.0), OCC, Quantity::Latency(P99), 67.0, MODERATE),
            says(at(100.0), ROCOCO, HighestThroughput, 2584.0, HIGH),
            says(at(100.0), ROCOCO, Normalized, 2584.0 / 6197.0, "§5.5: 2584 of 6197 new-orders/s"),
            says(at(100.0), ROCOCO, CommitRate, 100.0, "§5.5: it avoids aborting and retrying"),
            ratio(
                at(100.0),
                (ROCOCO, WOUND_WAIT),
                HighestThroughput,
                Said::About(2.3),
                "§5.5: 130 % higher than 2PL",
            ),
            ratio(
                at(100.0),
                (ROCOCO, OCC),
                HighestThroughput,
                Said::About(4.47),
                "§5.5: 347 % higher than OCC",
            ),
            says(at(100.0), OCC, CommitRate, 16.0, HIGH),
            ratio(
                at(100.0),
                (ROCOCO, WOUND_WAIT),
                Quantity::Latency(P90),
                Said::Between(0.1, 0.4),
                "§5.5: 10 % to 40 % of that of OCC and 2PL",
            ),
            ratio(
                at(100.0),
                (ROCOCO, OCC),
                Quantity::Latency(P90),
                Said::Between(0.1, 0.4),
                "§5.5: 10 % to 40 % of that of OCC and 2PL",
            ),
        ],
        ..SCALED
    },
    Figure {
        name: "rococo-fig15",
        number: "15",
        section: "5.6",
        summary: "Scaled TPC-C on up to 100 servers with 10 districts each: New-Order's throughput",
        panels: &[
            clients("10 clients per server", 10.0),
            clients("20 clients per server", 20.0),
            clients("40 clients per server", 40.0),
        ],
        swept: Some(Swept {
            parameter: Parameter::Servers,
            places: Extent {
                full: &[1.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0],
                quick: &[1.0, 10.0, 20.0],
            },
            logarithmic: false,
        }),
        plots: &[Plot::OverPlaces(HighestThroughput)],
        claims: &[
            says((0, Some(10.0)), ROCOCO, HighestThroughput, 7519.0, FIG_15A),
            says((0, Some(20.0)), ROCOCO, HighestThroughput, 13_971.0, FIG_15A),
            says((0, Some(40.0)), ROCOCO, HighestThroughput, 25_671.0, FIG_15A),
            says((0, Some(80.0)), ROCOCO, HighestThroughput, 47_787.0, FIG_15A),
            says((0, None), OCC, HighestThroughput, 9611.0, FIG_15A),
            says((0, None), WOUND_WAIT, HighestThroughput, 17_521.0, FIG_15A),
            says((1, Some(10.0)), ROCOCO, HighestThroughput, 6921.0, FIG_15B),
            says((1, Some(20.0)), ROCOCO, HighestThroughput, 12_736.0, FIG_15B),
            says((1, Some(40.0)), ROCOCO, HighestThroughput, 23_117.0, FIG_15B),
            says((1, Some(80.0)), ROCOCO, HighestThroughput, 39_853.0, FIG_15B),
            says((1, None), OCC, HighestThroughput, 3816.0, FIG_15B),
            says((1, None), WOUND_WAIT, HighestThroughput, 10_005.0, FIG_15B),
        ],
        ..SCALED
    },
    Figure {
        name: "rococo-table1",
        number: "Table 1",
        section: "5.4",
        summary: "Scaled TPC-C on 8 servers: the mix of transactions, and how many pieces they have",
        work: Work::Procedures(Calls { counts_pieces: true, ..TPCC }),
        panels: &[clients("10 clients per server", 10.0)],
        kinds: &[
            NEW_ORDER,
            Some("payment"),
            Some("order_status"),
            Some("delivery"),
            Some("stock_level"),
        ],
        systems: ROCOCO_ALONE,
        claims: &[
            says((0, None), ROCOCO, Share("new_order"), 44.97, TABLE_1),
            says((0, None), ROCOCO, Share("payment"), 43.0, TABLE_1),
            says((0, None), ROCOCO, Share("order_status"), 4.03, TABLE_1),
            says((0, None), ROCOCO, Share("delivery"), 4.0, TABLE_1),
            says((0, None), ROCOCO, Share("stock_level"), 4.0, TABLE_1),
            says((0, None), ROCOCO, Pieces("new_order"), 40.97, TABLE_1),
            says((0, None), ROCOCO, Pieces("payment"), 4.0, TABLE_1),
            says((0, None), ROCOCO, Pieces("order_status"), 3.0, TABLE_1),
            says((0, None), ROCOCO, Pieces("delivery"), 40.0, TABLE_1),
            says((0, None), ROCOCO, Pieces("stock_level"), 210.93, TABLE_1),
        ],
        remarks: &[
            "Requests are drawn in the mix of 000 Table 3, which has 44 % of each of the first two",
            "Here New-Order has two pieces and four for each item; a payment looks its customer up in a piece of its own; an \
             order's status and a stock level read each line in a piece; and a delivery is one piece for each district, \
             as all its rows are at one server",
            "§5.4 does not say how many clients there were",
        ],
        ..SCALED
    },
    Figure {
        name: "rococo-table2",
        number: "Table 2",
        section: "5.7",
        summary: "Scaled TPC-C on 8 servers with 20 clients each: the effect of logging",
        panels: &[clients("20 clients per server", 20.0)],
        swept: Some(Swept {
            parameter: Parameter::FlushMs,
            places: Extent { full: &[0.0, 1.0], quick: &[0.0, 1.0] },
            logarithmic: false,
        }),
        plots: &[Plot::OverPlaces(HighestThroughput)],
        claims: LOGGING.as_flattened(),
        remarks: &[
            "§5.7: records are written in batches of some 1 ms, and each batch is flushed to an SSD. Here a flush takes 1 ms, \
             and what comes meanwhile waits for the next one",
        ],
        ..SCALED
    },
];

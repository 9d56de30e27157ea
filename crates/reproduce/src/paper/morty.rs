//! 000 §5: Figures 6 to 9 of *Morty: Scaling Concurrency Control with Re-Execution*.

use crate::claim::{Against, Claim, Quantity, Said};
use crate::figure::{
    Extent, Figure, Latency, Layout, Load, Panel, Paper, Parameter, Plot, Servers, Swept, System,
    Times, Transactions, Work,
};

const MORTY: Paper = Paper {
    number: "000",
    name: "Morty",
    times: Extent {
        full: Times { warm_up_s: 6.0, measured_s: 12.0, most_operations: 300_000, deaths: None },
        quick: Times { warm_up_s: 2.0, measured_s: 3.0, most_operations: 40_000, deaths: None },
    },
};

/// "Morty and MVTSO use one replica group, while TAPIR and Spanner use 20" (§5, "Setup"), as their replicas
/// have one thread.
const SYSTEMS: &[System] = &[
    System::new("morty", "Morty"),
    System::new("mvtso", "MVTSO"),
    System { protocol: "tapir", label: "TAPIR", layout: Layout::PartitionPerCore },
    System { protocol: "spanner", label: "Spanner", layout: Layout::PartitionPerCore },
];

/// Retwis with 10 million keys in REG. Three replicas have 20 cores each, and clients back off for up to 2.5 s
/// (§5, "Setup" and "Measurement").
const RETWIS: Figure = Figure {
    name: "",
    number: "",
    paper: &MORTY,
    section: "",
    summary: "",
    work: Work::Transactions(Transactions {
        workload: "retwis",
        size: 10_000_000,
        terminals: 0,
        value_bytes: None,
        backoff_most_ms: 2500,
    }),
    geography: "reg",
    servers: Servers { replicas: 3, partitions: 1, cores: 20 },
    load: Load::Closed {
        clients: Extent {
            full: &[12, 24, 48, 96, 192, 384, 768, 1536, 3072, 6144, 12_288],
            quick: &[24, 96, 384, 1536],
        },
        patience: Some(2),
    },
    panels: &[],
    swept: None,
    throughput_of: None,
    latency: Latency::MEAN,
    kinds: &[None],
    plots: &[Plot::LatencyOverThroughput { logarithmic: true }],
    systems: SYSTEMS,
    claims: &[],
    remarks: &[],
    common_remarks: &[SLOWER_CODE, CLIENT_COUNTS],
};

const fn number(
    panel: usize,
    x: Option<f64>,
    protocol: &'static str,
    of: Quantity,
    value: f64,
    source: &'static str,
) -> Claim {
    Claim { panel, x, protocol, against: Against::Nothing, of, paper: Said::About(value), source }
}

const fn goodput(
    panel: usize,
    x: Option<f64>,
    protocol: &'static str,
    value: f64,
    source: &'static str,
) -> Claim {
    number(panel, x, protocol, Quantity::HighestThroughput, value, source)
}

/// Morty's highest goodput over another system's.
const fn ratio(
    panel: usize,
    x: Option<f64>,
    over: &'static str,
    value: f64,
    source: &'static str,
) -> Claim {
    Claim { against: Against::Over(over), ..goodput(panel, x, "morty", value, source) }
}

const fn panel(label: &'static str, geography: &'static str, theta: f64) -> Panel {
    Panel { label, geography: Some(geography), sets: Some((Parameter::Theta, theta)) }
}

/// "Replicas located in different availability zones", "US-based", "across the US and Europe".
const fn everywhere(theta: f64) -> [Panel; 3] {
    [panel("a: REG", "reg", theta), panel("b: CON", "con", theta), panel("c: GLO", "glo", theta)]
}

const EVERYWHERE_UNIFORM: &[Panel] = &everywhere(0.0);
const EVERYWHERE_ZIPF: &[Panel] = &everywhere(0.9);

const CORES: Swept = Swept {
    parameter: Parameter::Cores,
    places: Extent { full: &[1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0], quick: &[1.0, 4.0, 20.0] },
    logarithmic: false,
};
const THETAS: Swept = Swept {
    parameter: Parameter::Theta,
    places: Extent {
        full: &[0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2],
        quick: &[0.0, 0.7, 0.9, 1.1],
    },
    logarithmic: false,
};

const SAME_EVERYWHERE: &str =
    "§5.1: the text gives absolute numbers for REG alone, and ratios for all three networks";
const SLOWER_CODE: &str = "§5, Setup: the paper's replicas are C++ on 2.2 GHz cores. If all 20 cores of the three replicas were \
     busy, each of the 35.3k transactions per second took 1.7 ms of CPU. Ours takes a small part of that, so \
     contention limits it where CPU may have limited theirs. `--cpu-factor` makes the simulated CPU slower";
const CLIENT_COUNTS: &str = "The text does not say how many clients there were. A + marks goodput that still rises with the most \
     clients that were run here";

const DRAWN_WAREHOUSES: &str = "Each transaction draws its warehouse and district. The text implies it: two Payments on 100 warehouses \
     conflict with a probability of 1 % (§5.1.2). In TPC-C itself each terminal keeps to one";

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "morty-fig6",
        number: "6",
        section: "5.1.1",
        summary: "TPC-C with 100 warehouses: latency over goodput",
        work: Work::Transactions(Transactions {
            workload: "tpcc",
            size: 100,
            terminals: 10,
            value_bytes: None,
            backoff_most_ms: 2500,
        }),
        panels: EVERYWHERE_UNIFORM,
        claims: &[
            goodput(0, None, "morty", 11_800.0, "§5.1.1: 11.8k txn/s"),
            goodput(0, None, "mvtso", 6_800.0, "§5.1.1: 6.8k txn/s"),
            goodput(0, None, "tapir", 2_700.0, "§5.1.1: 2.7k txn/s"),
            goodput(0, None, "spanner", 1_600.0, "§5.1.1: 1.6k txn/s, further down about 1.7k"),
            number(
                0,
                None,
                "morty",
                Quantity::CommitRate,
                99.0,
                "§5.1.1: over 99 % at the highest goodput",
            ),
            number(
                0,
                None,
                "morty",
                Quantity::ReExecutions,
                2.9,
                "§5.1.1: about 2.9 partial re-executions per transaction on average",
            ),
            number(
                0,
                None,
                "spanner",
                Quantity::LowLoadLatency,
                151.0,
                "§5.1.1: about 151 ms at low load",
            ),
            ratio(0, None, "mvtso", 1.7, "§5.1.1: approximately 1.7x"),
            ratio(0, None, "tapir", 4.4, "§5.1.1: approximately 4.4x"),
            ratio(0, None, "spanner", 7.4, "§1: 7.4x"),
            ratio(1, None, "mvtso", 1.7, "§5.1.1: approximately 1.7x in all three"),
            ratio(1, None, "tapir", 4.4, "§5.1.1: approximately 4.4x in all three"),
            ratio(1, None, "spanner", 8.0, "§5.1.1: from 8x to 18x in CON and GLO"),
            ratio(2, None, "mvtso", 1.7, "§5.1.1: approximately 1.7x in all three"),
            ratio(2, None, "tapir", 4.4, "§5.1.1: approximately 4.4x in all three"),
            ratio(2, None, "spanner", 18.0, "§5.1.1: from 8x to 18x in CON and GLO"),
        ],
        remarks: &[DRAWN_WAREHOUSES, SAME_EVERYWHERE],
        ..RETWIS
    },
    Figure {
        name: "morty-fig7",
        number: "7",
        section: "5.1.2",
        summary: "Retwis with 10 million keys and Zipf exponent 0.9: latency over goodput",
        panels: EVERYWHERE_ZIPF,
        claims: &[
            goodput(0, None, "morty", 35_300.0, "§5.1.2: 35.3k txn/s"),
            goodput(0, None, "mvtso", 1_500.0, "§5.1.2: 1.5k txn/s"),
            goodput(0, None, "spanner", 700.0, "§5.1.2: 0.7k txn/s"),
            goodput(0, None, "tapir", 400.0, "§5.1.2: 0.4k txn/s"),
            ratio(
                0,
                None,
                "mvtso",
                28.0,
                "§5.1.2: approximately 28x (its rounded numbers give 24)",
            ),
            ratio(0, None, "spanner", 52.0, "§5.1.2: approximately 52x"),
            ratio(0, None, "tapir", 96.0, "§5.1.2: approximately 96x, §1: 95x"),
            ratio(1, None, "mvtso", 28.0, "§5.1.2: approximately 28x in all three"),
            ratio(1, None, "spanner", 52.0, "§5.1.2: approximately 52x in all three"),
            ratio(1, None, "tapir", 96.0, "§5.1.2: approximately 96x in all three"),
            ratio(2, None, "mvtso", 28.0, "§5.1.2: approximately 28x in all three"),
            ratio(2, None, "spanner", 52.0, "§5.1.2: approximately 52x in all three"),
            ratio(2, None, "tapir", 96.0, "§5.1.2: approximately 96x in all three"),
        ],
        remarks: &[SAME_EVERYWHERE],
        ..RETWIS
    },
    Figure {
        name: "morty-fig8",
        number: "8",
        section: "5.2",
        summary: "Retwis in REG: the highest goodput over the cores of a replica",
        panels: &[panel("a: θ = 0", "reg", 0.0), panel("b: θ = 0.9", "reg", 0.9)],
        swept: Some(CORES),
        plots: &[Plot::OverPlaces(Quantity::HighestThroughput)],
        claims: &[
            goodput(1, Some(1.0), "morty", 7_800.0, "§5.2: 7.8k txn/s with a single core"),
            goodput(1, Some(20.0), "morty", 35_300.0, "§5.2: up to 35.3k txn/s with 20 cores"),
            goodput(1, Some(20.0), "mvtso", 1_500.0, "§5.2: contention bottlenecked at 1.5k"),
            goodput(1, Some(20.0), "spanner", 700.0, "§5.2: contention bottlenecked at 0.7k"),
            goodput(1, Some(20.0), "tapir", 400.0, "§5.2: contention bottlenecked at 0.4k"),
        ],
        remarks: &["§5.2: of panel a the text says that all systems scale, and gives no number"],
        ..RETWIS
    },
    Figure {
        name: "morty-fig9",
        number: "9",
        section: "5.3",
        summary: "Retwis in REG: the highest goodput, and the commit rate there, over the Zipf exponent",
        panels: &[panel("REG", "reg", 0.0)],
        swept: Some(THETAS),
        plots: &[
            Plot::OverPlaces(Quantity::HighestThroughput),
            Plot::OverPlaces(Quantity::CommitRate),
        ],
        claims: &[
            goodput(0, Some(0.9), "morty", 35_300.0, "§5.1.2, the same set-up: 35.3k txn/s"),
            goodput(0, Some(0.9), "mvtso", 1_500.0, "§5.1.2, the same set-up: 1.5k txn/s"),
            goodput(0, Some(0.9), "spanner", 700.0, "§5.1.2, the same set-up: 0.7k txn/s"),
            goodput(0, Some(0.9), "tapir", 400.0, "§5.1.2, the same set-up: 0.4k txn/s"),
            ratio(0, Some(0.9), "mvtso", 28.0, "§5.1.2, the same set-up: approximately 28x"),
            ratio(0, Some(0.9), "spanner", 52.0, "§5.1.2, the same set-up: approximately 52x"),
            ratio(0, Some(0.9), "tapir", 96.0, "§5.1.2, the same set-up: approximately 96x"),
        ],
        remarks: &[
            "§5.3: of the commit rate the text says that Morty's is nearly perfect even under extremely \
             high contention, and that the others' falls; it gives no number, nor the exponents",
        ],
        ..RETWIS
    },
];

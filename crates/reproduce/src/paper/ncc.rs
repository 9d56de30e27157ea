//! 003 §6: Figures 7 and 8 of *NCC: Natural Concurrency Control for Strictly Serializable Datastores by
//! Avoiding the Timestamp-Inversion Pitfall*.

use crate::claim::Quantity::{
    HighestThroughput, LatencyAtHalf, NotDelayed, OperatingPoint, PassedAtFirst, RetriedWell,
    StartedOver,
};
use crate::claim::{Against, Claim, Quantity, Said};
use crate::effort::Deaths;
use crate::figure::{
    Calls, Districts, Extent, Figure, Latency, Load, Open, Panel, Paper, Parameter, Plot, Servers,
    Swept, System, Times, Transactions, Warehouses, Work,
};

const NCC: &str = "ncc";
const NCC_RW: &str = "ncc-rw";
const OCC: &str = "occ";
const NO_WAIT: &str = "two-phase-locking-no-wait";
const WOUND_WAIT: &str = "two-phase-locking-wound-wait";
const TAPIR: &str = "tapir-cc";
const MVTO: &str = "mvto";
const JANUS_CC: &str = "janus-cc";
const NCC_CALLS: &str = "ncc-procedures";
const OCC_CALLS: &str = "occ-procedures";
const NO_WAIT_CALLS: &str = "two-phase-locking-no-wait-procedures";
const WOUND_WAIT_CALLS: &str = "two-phase-locking-wound-wait-procedures";

/// The paper makes three runs of 60 s each. A simulated run repeats itself, and has nothing but transactions in it.
const PAPER: Paper = Paper {
    number: "003",
    name: "NCC",
    times: Extent {
        full: Times {
            warm_up_s: 2.0,
            measured_s: 8.0,
            most_operations: 150_000,
            deaths: Some(Deaths { at_s: 10.0, then_s: 10.0 }),
        },
        quick: Times {
            warm_up_s: 0.5,
            measured_s: 1.5,
            most_operations: 12_000,
            deaths: Some(Deaths { at_s: 1.0, then_s: 4.0 }),
        },
    },
};

/// The strictly serializable systems that Figure 7 shows, but for Janus-CC, which has procedures only.
const STRICT: &[System] = &[
    System::new(NCC, "NCC"),
    System::new(NCC_RW, "NCC-RW"),
    System::new(OCC, "dOCC"),
    System::new(NO_WAIT, "d2PL-no-wait"),
    System::new(WOUND_WAIT, "d2PL-wound-wait"),
];
const SERIALIZABLE: &[System] =
    &[System::new(NCC, "NCC"), System::new(TAPIR, "TAPIR-CC"), System::new(MVTO, "MVTO")];
/// The strictly serializable systems with stored procedures.
const CALLED: &[System] = &[
    System::new(JANUS_CC, "Janus-CC"),
    System::new(NCC_CALLS, "NCC-RW"),
    System::new(OCC_CALLS, "dOCC"),
    System::new(NO_WAIT_CALLS, "d2PL-no-wait"),
    System::new(WOUND_WAIT_CALLS, "d2PL-wound-wait"),
];
const RECOVERING: &[System] = &[System::new(NCC_RW, "NCC-RW"), System::new(NCC, "NCC")];

/// Clients back off for up to 100 ms. The paper does not say for how long.
const fn work(workload: &'static str, size: u64, terminals: u64) -> Work {
    let (value_bytes, backoff_most_ms) = (Some(16), 100);
    Work::Transactions(Transactions { workload, size, terminals, value_bytes, backoff_most_ms })
}

/// The same as calls of procedures.
const CALLS: Calls = Calls {
    workload: "",
    size: 1_000_000,
    theta: None,
    tpcc: None,
    counts_pieces: false,
    backoff_most_ms: 100,
    clock_skew_us: 500,
};

/// "16-32 machines as clients" (§6.1); an operating point of "reasonably low latency (< 10 ms)" (§6.3), the median;
/// "each system is run at ∼75% load according to Figure 7a" (§6.4).
const OPEN: Open = Open {
    clients: 24,
    first_per_s: 20_000.0,
    most_open: 64,
    weight: 1,
    closer: Extent { full: 4, quick: 2 },
    operating_ms: 10.0,
    share: 0.75,
};

const READ_P50: Latency = Latency::quantile(Some("read-only"), 0.5);
const NEW_ORDER_P50: Latency = Latency::quantile(Some("new-order"), 0.5);
const ROOM: Panel = Panel { label: "8 servers", geography: None, sets: None };

/// Google-WF's shares of transactions that write.
const FRACTIONS: Swept = Swept {
    parameter: Parameter::Writes,
    places: Extent { full: &[0.003, 0.01, 0.03, 0.1, 0.2, 0.3], quick: &[0.003, 0.03, 0.3] },
    logarithmic: true,
};

/// F1 on 8 servers (§6.1). Each is a partition of one replica.
const F1: Figure = Figure {
    name: "",
    number: "",
    paper: &PAPER,
    section: "",
    summary: "",
    work: work("f1", 1_000_000, 0),
    geography: "lan",
    servers: Servers { replicas: 1, partitions: 8, cores: 1 },
    load: Load::Open(OPEN),
    panels: &[ROOM],
    swept: None,
    throughput_of: None,
    latency: READ_P50,
    kinds: &[Some("read-only")],
    plots: &[Plot::LatencyOverThroughput { logarithmic: false }],
    systems: STRICT,
    claims: &[],
    remarks: &[],
    common_remarks: &[SET_UP, BACK_OFF, NETWORK],
};

const fn ratio(
    of: Quantity,
    (protocol, over): (&'static str, &'static str),
    paper: Said,
    source: &'static str,
) -> Claim {
    Claim { panel: 0, x: None, protocol, against: Against::Over(over), of, paper, source }
}

const fn share(of: Quantity, protocol: &'static str, paper: Said, source: &'static str) -> Claim {
    Claim { panel: 0, x: None, protocol, against: Against::Nothing, of, paper, source }
}

/// F1 as calls of procedures.
const F1_CALLS: Figure = Figure {
    work: Work::Procedures(Calls { workload: "f1-calls", ..CALLS }),
    latency: Latency::quantile(Some("read_only"), 0.5),
    kinds: &[Some("read_only")],
    systems: CALLED,
    ..F1
};

const TWO_TO_FOUR: &str = "§6.3: a 2-4x higher throughput than dOCC and d2PL";
const ALL_WORKLOADS: &str =
    "Figure 7, caption: at least 80 % higher throughput across workloads; §6.2: 80 % to 20x";

const SET_UP: &str = "§6.1: 8 servers and 16 to 32 machines with clients in open loops, one data centre, no replication. Here \
     there are 8 partitions with one replica each and 24 clients, 0.1 ms apart. A partition runs on one core, \
     and the paper's machines have 8. So compare throughputs with each other. `--cpu-factor` makes the simulated \
     CPU slower";
const BACK_OFF: &str = "§6.1: clients \"back off when the system is overloaded\". The paper does not say how. Here each client has at most \
     64 transactions open (32 of TPC-C, 256 in Figure 8c), and drops what arrives beyond that. An aborted transaction \
     starts over after a random wait of up to 1 ms at first and 100 ms in the end. Latencies count from the arrival";
const NETWORK: &str = "Messages take time, but bandwidth is not simulated. The paper's interfaces carry 1 Gbit/s each. Its experiments \
     are bound by CPU (§6.1), as these are";
const O_P: &str = "The operating point is the highest throughput with a median latency below 10 ms (§6.3), between the two runs \
     around it";
const COUNTED: &str = "Some numbers come from what a protocol counts itself, and a dash says that it does not count it. A read-only \
     transaction that falls back to the way of the others starts over. Each response that is delayed counts as a \
     transaction of its own";
const JANUS: &str = "Janus-CC has stored procedures only. The figure of the same name with `-calls` compares it with the others, \
     as calls of procedures";
const AS_CALLS: &str = "Here the transactions are stored procedures: a row is read and written with one request to its server, as by the \
     paper's systems. NCC is NCC-RW here: calls that only read run like the others. Rows that nobody has written have a \
     value of usual length";
const OUTPERFORMS: &str = "§6.2: 80 % to 20x higher throughput than dOCC, d2PL and Janus-CC";
const PEAK: &str = "§6.4: each system runs at 75 % of its own highest throughput, which is found first, under 0.3 % writes";

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "ncc-fig7a",
        number: "7a",
        section: "6.3",
        summary: "Google-F1 on 8 servers: median read latency over throughput",
        claims: &[
            ratio(OperatingPoint, (NCC, OCC), Said::Between(2.0, 4.0), TWO_TO_FOUR),
            ratio(OperatingPoint, (NCC, NO_WAIT), Said::Between(2.0, 4.0), TWO_TO_FOUR),
            ratio(OperatingPoint, (NCC, WOUND_WAIT), Said::Between(2.0, 4.0), TWO_TO_FOUR),
            share(
                PassedAtFirst,
                NCC,
                Said::About(99.0),
                "§6.3: about 99 % passed, and finished in one round trip",
            ),
            share(NotDelayed, NCC, Said::About(99.1), "§6.3: 99.1 % of the transactions"),
            share(RetriedWell, NCC, Said::About(70.0), "§6.3: 70 % of those that did not pass"),
            share(StartedOver, NCC, Said::About(0.2), "§6.3: only 0.2 % were retried from scratch"),
        ],
        remarks: &[
            "§6.3: d2PL-no-wait performs similar to NCC-RW, and worse under higher load; the text has no numbers for it",
            O_P,
            COUNTED,
            JANUS,
        ],
        ..F1
    },
    Figure {
        name: "ncc-fig7b",
        number: "7b",
        section: "6.3",
        summary: "Facebook-TAO on 8 servers: median read latency over throughput",
        work: work("tao", 1_000_000, 0),
        load: Load::Open(Open { first_per_s: 2000.0, weight: 24, ..OPEN }),
        claims: &[
            ratio(OperatingPoint, (NCC, OCC), Said::AtLeast(1.8), ALL_WORKLOADS),
            ratio(OperatingPoint, (NCC, NO_WAIT), Said::AtLeast(1.8), ALL_WORKLOADS),
            ratio(OperatingPoint, (NCC, WOUND_WAIT), Said::AtLeast(1.8), ALL_WORKLOADS),
        ],
        remarks: &[
            "§6.3: similar takeaways as of Figure 7a; NCC-RW outperforms d2PL-no-wait more clearly, as larger reads are more \
             likely to conflict with writes",
            O_P,
            JANUS,
        ],
        ..F1
    },
    Figure {
        name: "ncc-fig7c",
        number: "7c",
        section: "6.3",
        summary: "TPC-C with 8 warehouses on each of 8 servers: New-Order's median latency over its throughput",
        work: work("tpcc", 64, 10),
        load: Load::Open(Open { first_per_s: 4000.0, most_open: 32, weight: 4, ..OPEN }),
        throughput_of: Some("new-order"),
        latency: NEW_ORDER_P50,
        kinds: &[Some("new-order")],
        plots: &[Plot::LatencyOverThroughput { logarithmic: true }],
        claims: &[
            ratio(
                HighestThroughput,
                (NCC, OCC),
                Said::About(20.0),
                "§6.3: ~20x higher peak throughput",
            ),
            ratio(
                HighestThroughput,
                (NCC_RW, OCC),
                Said::About(20.0),
                "§6.3: ~20x higher peak throughput",
            ),
            ratio(
                Quantity::Latency(NEW_ORDER_P50),
                (OCC, NCC),
                Said::About(10.0),
                "§6.3: with ~10x lower latency",
            ),
            ratio(
                Quantity::Latency(NEW_ORDER_P50),
                (OCC, NCC_RW),
                Said::About(10.0),
                "§6.3: with ~10x lower latency",
            ),
            ratio(
                HighestThroughput,
                (NCC_RW, WOUND_WAIT),
                Said::About(1.5),
                "§6.3: a 50 % higher peak throughput",
            ),
            ratio(
                HighestThroughput,
                (NCC_RW, NCC),
                Said::Above(1.0),
                "§6.3: NCC-RW has higher peak throughput than NCC",
            ),
            share(
                PassedAtFirst,
                NCC_RW,
                Said::Above(80.0),
                "§6.3: more than 80 % of the transactions",
            ),
            share(
                StartedOver,
                NCC_RW,
                Said::Below(10.0),
                "§6.3: fewer than 10 % of the transactions",
            ),
        ],
        remarks: &[
            "Rows are spread over all servers by a hash of their keys, so that every transaction goes to most of them; the \
             paper does not say how its rows are",
            "Each transaction draws its warehouse and district, as the text does not say which clients have which",
            "§6.3 does not say under which load transactions passed the safeguard or were aborted; here it is at the \
             operating point",
            O_P,
            COUNTED,
            JANUS,
        ],
        ..F1
    },
    Figure {
        name: "ncc-fig8a",
        number: "8a",
        section: "6.4",
        summary: "Google-WF on 8 servers at 75 % load: throughput over the share of transactions that write",
        work: work("f1-wf", 1_000_000, 0),
        // The highest throughput is that of the fewest writes.
        panels: &[Panel { sets: Some((Parameter::Writes, 0.003)), ..ROOM }],
        swept: Some(FRACTIONS),
        plots: &[Plot::OverPlaces(Quantity::Normalized)],
        remarks: &[
            "§6.4: NCC-RW is most resilient to conflicts, and NCC's read-only transactions are more likely to abort when \
             writes increase; the text has no numbers for it",
            PEAK,
            JANUS,
        ],
        ..F1
    },
    Figure {
        name: "ncc-fig8b",
        number: "8b",
        section: "6.4",
        summary: "Google-F1 on 8 servers with serializable systems: median read latency over throughput",
        systems: SERIALIZABLE,
        claims: &[
            ratio(
                LatencyAtHalf,
                (NCC, MVTO),
                Said::Similar,
                "§6.4: similar under low and medium load",
            ),
            ratio(
                HighestThroughput,
                (NCC, MVTO),
                Said::Below(1.0),
                "§6.4: under high load, MVTO outperforms NCC",
            ),
            ratio(OperatingPoint, (NCC, TAPIR), Said::Above(1.0), "§6.4: NCC outperforms TAPIR-CC"),
        ],
        remarks: &[O_P],
        ..F1
    },
    Figure {
        name: "ncc-fig8c",
        number: "8c",
        section: "6.4",
        summary: "Google-F1 on 8 servers: throughput over time when all clients die, for two recovery timeouts",
        load: Load::Open(Open { most_open: 256, ..OPEN }),
        swept: Some(Swept {
            parameter: Parameter::RecoveryAfter,
            places: Extent { full: &[1.0, 3.0], quick: &[1.0, 3.0] },
            logarithmic: false,
        }),
        plots: &[Plot::OverTime],
        systems: RECOVERING,
        remarks: &[
            "§6.4: after 10 s all clients stop to send the commit messages of ongoing transactions and go on with new ones. \
             Here all clients die, with what they have under way, and as many others begin at once; with --quick \
             that is after 1 s",
            "§6.4: NCC-RW recovers quickly after failures are detected, and NCC is minimally impacted, as its read-only \
             transactions send no commit messages; the text has no numbers for it",
            "The text does not say how high the load is; here it is 75 % of the highest throughput, as in Figure 8a",
        ],
        ..F1
    },
    Figure {
        name: "ncc-fig7a-calls",
        number: "7a, as procedures,",
        section: "6.3",
        summary: "Google-F1 as stored procedures, with Janus-CC: median read latency over throughput",
        claims: &[
            ratio(
                OperatingPoint,
                (NCC_CALLS, NO_WAIT_CALLS),
                Said::Similar,
                "§6.3: d2PL-no-wait performs similar to NCC-RW",
            ),
            ratio(
                OperatingPoint,
                (JANUS_CC, OCC_CALLS),
                Said::Below(1.0),
                "§6.3: Janus-CC is consistently worse than other baselines",
            ),
        ],
        remarks: &[AS_CALLS, O_P],
        ..F1_CALLS
    },
    Figure {
        name: "ncc-fig7b-calls",
        number: "7b, as procedures,",
        section: "6.3",
        summary: "Facebook-TAO as stored procedures, with Janus-CC: median read latency over throughput",
        work: Work::Procedures(Calls { workload: "tao-calls", ..CALLS }),
        load: Load::Open(Open { first_per_s: 2000.0, weight: 24, ..OPEN }),
        claims: &[
            ratio(
                OperatingPoint,
                (NCC_CALLS, NO_WAIT_CALLS),
                Said::Above(1.0),
                "§6.3: NCC-RW outperforms d2PL-no-wait, more obviously than under Google-F1",
            ),
            ratio(OperatingPoint, (NCC_CALLS, JANUS_CC), Said::Above(1.0), OUTPERFORMS),
        ],
        remarks: &[AS_CALLS, O_P],
        ..F1_CALLS
    },
    Figure {
        name: "ncc-fig7c-calls",
        number: "7c, as procedures,",
        section: "6.3",
        summary: "TPC-C as stored procedures, with Janus-CC: New-Order's median latency over its throughput",
        // With all items, loading would take most of a run.
        work: Work::Procedures(Calls {
            workload: "tpcc-calls",
            size: 1000,
            tpcc: Some(Warehouses {
                customers: 30,
                districts: Districts::OfWarehouses { warehouses: 64 },
            }),
            ..CALLS
        }),
        load: Load::Open(Open { first_per_s: 4000.0, most_open: 32, ..OPEN }),
        throughput_of: Some("new_order"),
        latency: Latency::quantile(Some("new_order"), 0.5),
        kinds: &[Some("new_order")],
        plots: &[Plot::LatencyOverThroughput { logarithmic: true }],
        claims: &[
            ratio(
                HighestThroughput,
                (NCC_CALLS, OCC_CALLS),
                Said::About(20.0),
                "§6.3: ~20x higher peak throughput",
            ),
            ratio(
                HighestThroughput,
                (NCC_CALLS, WOUND_WAIT_CALLS),
                Said::About(1.5),
                "§6.3: a 50 % higher peak throughput",
            ),
            ratio(HighestThroughput, (NCC_CALLS, JANUS_CC), Said::AtLeast(1.8), OUTPERFORMS),
        ],
        remarks: &[
            AS_CALLS,
            "A warehouse has 1,000 items instead of 100,000, and a district 30 customers instead of 3,000, so that a run need \
             not load millions of rows. Rows of a district, and of an item, are at the server that a hash of their key says",
            "Each call draws its warehouse and district, as the text does not say which clients have which",
            O_P,
        ],
        ..F1_CALLS
    },
    Figure {
        name: "ncc-fig8a-calls",
        number: "8a, as procedures,",
        section: "6.4",
        summary: "Google-WF as stored procedures at 75 % load, with Janus-CC: throughput over the share of writers",
        work: Work::Procedures(Calls { workload: "f1-wf-calls", ..CALLS }),
        panels: &[Panel { sets: Some((Parameter::Writes, 0.003)), ..ROOM }],
        swept: Some(FRACTIONS),
        plots: &[Plot::OverPlaces(Quantity::Normalized)],
        remarks: &[
            "§6.4: NCC-RW is most resilient to conflicts; the text has no numbers for it",
            AS_CALLS,
            PEAK,
        ],
        ..F1_CALLS
    },
];

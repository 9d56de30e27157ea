//! 001 §4.5 and §4.6.3: Figures 4.7 to 4.16 of *Towards High Performance Abstractions for Strong
//! Geo-Replicated Systems*.

use serried_workload::Shares;

use crate::claim::{Against, Claim, Quantity, Said};
use crate::figure::{
    Extent, Figure, Latency, Load, Panel, Paper, Parameter, Plot, Servers, Swept, System, Times,
    Work,
};

/// §4.5.2, with a bound on operations.
const GRYFF: Paper = Paper {
    number: "001",
    name: "Gryff",
    times: Extent {
        full: Times { warm_up_s: 15.0, measured_s: 150.0, most_operations: 300_000, deaths: None },
        quick: Times { warm_up_s: 3.0, measured_s: 20.0, most_operations: 40_000, deaths: None },
    },
};
const GRYFF_RSC: Paper = Paper { name: "Gryff-RSC", ..GRYFF };

const SYSTEMS: &[System] = &[
    System::new("gryff", "Gryff"),
    System::new("epaxos", "EPaxos"),
    System::new("multipaxos", "MultiPaxos"),
];
const RSC: &[System] = &[System::new("gryff", "Gryff"), System::new("gryff-rsc", "Gryff-RSC")];

const fn conflicts(label: &'static str, share: f64) -> Panel {
    Panel { label, geography: None, sets: Some((Parameter::Conflicts, share)) }
}

const THREE: &[Panel] = &[
    conflicts("a: 2 % conflicts", 0.02),
    conflicts("b: 10 % conflicts", 0.1),
    conflicts("c: 25 % conflicts", 0.25),
];
const FEW: &[Panel] = &[conflicts("2 % conflicts", 0.02)];
const MANY: &[Panel] = &[conflicts("25 % conflicts", 0.25)];

/// YCSB's workload B with read-modify-writes (§4.5.3).
const READ_HEAVY: Shares = Shares { reads: 0.945, writes: 0.045 };

const fn ycsb(shares: Shares) -> Work {
    Work::Registers { workload: "ycsb", shares }
}

/// With 20 cores nothing waits for a core, and latencies show where the replicas are.
const fn wide(replicas: usize) -> Servers {
    Servers { replicas, partitions: 1, cores: 20 }
}

/// 16 clients at each replica (§4.5.2).
const fn clients(all: &'static [usize]) -> Load {
    Load::Closed { clients: Extent { full: all, quick: all }, patience: None }
}

const READ_P99: Latency = Latency::quantile(Some("read"), 0.99);
const WRITE_P99: Latency = Latency::quantile(Some("write"), 0.99);

/// Three replicas in three regions.
const REGIONS: Figure = Figure {
    name: "",
    number: "",
    paper: &GRYFF,
    section: "",
    summary: "",
    work: ycsb(Shares::YCSB_A),
    geography: "gryff-3",
    servers: wide(3),
    load: clients(&[48]),
    panels: MANY,
    swept: None,
    throughput_of: None,
    latency: READ_P99,
    kinds: &[Some("read"), Some("write"), Some("rmw")],
    plots: &[],
    systems: SYSTEMS,
    claims: &[],
    remarks: &[],
    common_remarks: &[CLOSED, EXACT, KEYS, LEADER, TIMES],
};
/// Five replicas in five regions.
const FIVE_REGIONS: Figure =
    Figure { geography: "gryff-5", servers: wide(5), load: clients(&[80]), ..REGIONS };
/// Three replicas in one room, each with one core.
const ROOM: Figure = Figure {
    geography: "lan",
    servers: Servers { replicas: 3, partitions: 1, cores: 1 },
    load: Load::Closed {
        clients: Extent { full: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], quick: &[4, 32, 256] },
        patience: None,
    },
    latency: Latency::quantile(None, 0.5),
    kinds: &[None, Some("read"), Some("write"), Some("rmw")],
    plots: &[Plot::LatencyOverThroughput { logarithmic: false }],
    common_remarks: &[OWN_CPU, KEYS],
    ..REGIONS
};

const ALL_KINDS: &[Plot] =
    &[Plot::Distribution("read"), Plot::Distribution("write"), Plot::Distribution("rmw")];
const READS_AND_WRITES: &[Plot] = &[
    Plot::OverPlaces(Quantity::Latency(READ_P99)),
    Plot::OverPlaces(Quantity::Latency(WRITE_P99)),
];

/// "From 9.5% to 89.5%" (§4.5.3).
const WRITES: Swept = Swept {
    parameter: Parameter::Writes,
    places: Extent {
        full: &[0.095, 0.195, 0.295, 0.395, 0.495, 0.595, 0.695, 0.795, 0.895],
        quick: &[0.095, 0.495, 0.895],
    },
    logarithmic: false,
};
/// "From 1 to 105 in increments of 15" (§4.5.6).
const SUB_REQUESTS: Swept = Swept {
    parameter: Parameter::SubRequests,
    places: Extent {
        full: &[1.0, 15.0, 30.0, 45.0, 60.0, 75.0, 90.0, 105.0],
        quick: &[1.0, 30.0, 105.0],
    },
    logarithmic: false,
};
const REQUEST_P50: Latency = Latency::quantile(None, 0.5);
const TAIL_AT_SCALE: Work =
    Work::Registers { workload: "tail-at-scale", shares: Shares::TAIL_AT_SCALE };
/// Requests of many operations.
const TAIL: Figure = Figure {
    work: TAIL_AT_SCALE,
    swept: Some(SUB_REQUESTS),
    latency: REQUEST_P50,
    kinds: &[None, Some("read"), Some("write"), Some("rmw")],
    plots: &[Plot::OverPlaces(Quantity::Latency(REQUEST_P50))],
    ..REGIONS
};

const fn latency(
    (panel, x): (usize, Option<f64>),
    (protocol, against): (&'static str, Against),
    of: Latency,
    value: f64,
    source: &'static str,
) -> Claim {
    let (of, paper) = (Quantity::Latency(of), Said::About(value));
    Claim { panel, x, protocol, against, of, paper, source }
}

const fn throughput(against: Against, value: f64, source: &'static str) -> Claim {
    let (of, paper) = (Quantity::HighestThroughput, Said::About(value));
    Claim { panel: 0, x: None, protocol: "gryff", against, of, paper, source }
}

const GRYFF_ALONE: (&str, Against) = ("gryff", Against::Nothing);
const RSC_ALONE: (&str, Against) = ("gryff-rsc", Against::Nothing);
const OVER_GRYFF: (&str, Against) = ("epaxos", Against::Minus("gryff"));
const LEADER_OVER_GRYFF: (&str, Against) = ("multipaxos", Against::Minus("gryff"));
const OVER_EPAXOS: (&str, Against) = ("gryff", Against::Minus("epaxos"));

const NEAREST: &str = "§4.5.3: 66 % of the reads complete within CA to VA";
const FARTHEST: &str = "§4.5.3: the others within IR to VA";
const BY_EPAXOS: &str = "§4.5.3: between 0 and 115 ms for low and high conflict percentages";
const BY_LEADER: &str = "§4.5.3: 134 ms";
const FASTER_WRITES: &str =
    "Figure 4.8: EPaxos' p99 writes are 89 ms lower regardless of write percentage";

const CLOSED: &str = "§4.5.2: 16 clients at each replica do one operation after the other, in closed loops. Clients near a \
     quorum do more operations, so quantiles lean to their regions";
const EXACT: &str = "A message takes exactly half of the round trip of Table 4.1, and 0.1 ms within a region. Computing \
     takes time as well, but nothing waits for a core, since replicas have 20";
const OTHER_PANELS: &str = "The text names 2 % and 25 % conflicts. It does not say what the third panel of Figure 4.7 has; here it \
     is 10 %, as in Figure 4.16";
const TIMES: &str = "§4.5.2: the paper measures for 150 s after 15 s. Runs here end earlier if they have done the most \
     operations of a run";
const KEYS: &str = "Operations that conflict use one key that all clients have in common. All others use 1000 keys of their \
     client. The store is empty before a run";
const LEADER: &str = "§4.5.2: MultiPaxos' leader is in CA, the site of the first replica";
const OWN_CPU: &str = "The paper's replicas had two cores of 3 GHz. Ours have one simulated core with the costs of our own CPU. \
     `--cpu-factor` makes it slower";

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "gryff-fig7",
        number: "4.7",
        section: "4.5.3",
        summary: "Reads with three replicas, 94.5 % reads, 4.5 % writes and 1 % read-modify-writes: how latencies are distributed",
        work: ycsb(READ_HEAVY),
        panels: THREE,
        plots: &[Plot::Distribution("read")],
        claims: &[
            latency((0, None), GRYFF_ALONE, Latency::quantile(Some("read"), 0.66), 72.0, NEAREST),
            latency((0, None), GRYFF_ALONE, READ_P99, 88.0, FARTHEST),
            latency(
                (2, None),
                GRYFF_ALONE,
                READ_P99,
                88.0,
                "§4.5.3: regardless of conflict percentage",
            ),
            latency((0, None), OVER_GRYFF, READ_P99, 0.0, BY_EPAXOS),
            latency((2, None), OVER_GRYFF, READ_P99, 115.0, BY_EPAXOS),
            latency((0, None), LEADER_OVER_GRYFF, READ_P99, 134.0, BY_LEADER),
            latency((2, None), LEADER_OVER_GRYFF, READ_P99, 134.0, BY_LEADER),
        ],
        remarks: &[OTHER_PANELS],
        ..REGIONS
    },
    Figure {
        name: "gryff-fig8",
        number: "4.8",
        section: "4.5.3",
        summary: "Three replicas, 2 % conflicts: p99 latency over the share of writes",
        panels: FEW,
        swept: Some(WRITES),
        plots: READS_AND_WRITES,
        claims: &[
            latency((0, Some(0.095)), OVER_GRYFF, READ_P99, 1.0, "Figure 4.8: from 1 ms"),
            latency((0, None), OVER_GRYFF, READ_P99, 44.0, "Figure 4.8: to 44 ms"),
            latency((0, Some(0.095)), LEADER_OVER_GRYFF, READ_P99, 134.0, "Figure 4.8: 134 ms"),
            latency((0, Some(0.895)), LEADER_OVER_GRYFF, READ_P99, 134.0, "Figure 4.8: 134 ms"),
            latency((0, Some(0.095)), OVER_EPAXOS, WRITE_P99, 89.0, FASTER_WRITES),
            latency((0, Some(0.895)), OVER_EPAXOS, WRITE_P99, 89.0, FASTER_WRITES),
        ],
        remarks: &[
            "The text does not say at which write percentages EPaxos' reads are 1 ms and 44 ms behind: the least is \
             compared at the fewest writes, the most at its greatest",
        ],
        ..REGIONS
    },
    Figure {
        name: "gryff-fig9",
        number: "4.9",
        section: "4.5.3",
        summary: "Five replicas, 2 % conflicts: p99 latency over the share of writes",
        panels: FEW,
        swept: Some(WRITES),
        plots: READS_AND_WRITES,
        claims: &[
            latency(
                (0, None),
                GRYFF_ALONE,
                READ_P99,
                144.0,
                "Figure 4.9: determined by 2 RTT in CA, 72 ms each; one round trip in IR is 145 ms",
            ),
            latency(
                (0, Some(0.495)),
                GRYFF_ALONE,
                WRITE_P99,
                290.0,
                "§4.5.3: approximately 290 ms",
            ),
            latency(
                (0, Some(0.495)),
                ("epaxos", Against::Nothing),
                WRITE_P99,
                290.0,
                "§4.5.3: approximately the same as Gryff's, 290 ms",
            ),
        ],
        ..FIVE_REGIONS
    },
    Figure {
        name: "gryff-fig10",
        number: "4.10",
        section: "4.5.4",
        summary: "Three replicas, 49.5 % reads, 49.5 % writes and 1 % read-modify-writes: how latencies are distributed",
        plots: ALL_KINDS,
        claims: &[
            latency(
                (0, None),
                OVER_EPAXOS,
                Latency::quantile(Some("write"), 0.5),
                72.0,
                "§4.5.4: 72 ms higher",
            ),
            latency((0, None), OVER_EPAXOS, WRITE_P99, 89.0, "§4.5.4: 89 ms higher"),
        ],
        remarks: &[
            "§4.5.4: Gryff's read-modify-writes take 2 round trips without conflicts and 3 with; the text has no \
             milliseconds for it",
        ],
        ..REGIONS
    },
    Figure {
        name: "gryff-fig11",
        number: "4.11",
        section: "4.5.4",
        summary: "Five replicas, 49.5 % reads, 49.5 % writes and 1 % read-modify-writes: how latencies are distributed",
        plots: ALL_KINDS,
        remarks: &[
            "§4.5.4: the text has no numbers for it; it says that Gryff's reads take one round trip mostly, that EPaxos \
             writes faster, and that Gryff reads and read-modify-writes faster",
        ],
        ..FIVE_REGIONS
    },
    Figure {
        name: "gryff-fig12",
        number: "4.12",
        section: "4.5.5",
        summary: "Three replicas in one room, 49.5 % reads, 49.5 % writes and 1 % read-modify-writes: median latency over throughput",
        claims: &[
            throughput(Against::Nothing, 11_600.0, "§4.5.5: about 11,600 ops/s"),
            throughput(Against::Minus("multipaxos"), 1_200.0, "§4.5.5: about 1,200 ops/s more"),
        ],
        remarks: &["§4.5.5: Gryff's throughput is within 7.5 % of EPaxos'"],
        ..ROOM
    },
    Figure {
        name: "gryff-fig13",
        number: "4.13",
        section: "4.5.5",
        summary: "Five replicas in one room, 49.5 % reads, 49.5 % writes and 1 % read-modify-writes: median latency over throughput",
        servers: Servers { replicas: 5, partitions: 1, cores: 1 },
        remarks: &[
            "§4.5.5: Gryff's throughput is higher than EPaxos' and MultiPaxos'; the text has no numbers for it",
        ],
        ..ROOM
    },
    Figure {
        name: "gryff-fig14",
        number: "4.14",
        section: "4.5.6",
        summary: "Three replicas, requests of 99 % reads, 0.9 % writes and 0.1 % read-modify-writes: median latency over their number",
        claims: &[latency(
            (0, None),
            OVER_GRYFF,
            REQUEST_P50,
            57.0,
            "§4.5.6: Gryff's p50 is up to 57 ms lower",
        )],
        ..TAIL
    },
    Figure {
        name: "gryff-fig15",
        number: "4.15",
        section: "4.5.6",
        summary: "Five replicas, requests of 99 % reads, 0.9 % writes and 0.1 % read-modify-writes: median latency over their number",
        geography: FIVE_REGIONS.geography,
        servers: FIVE_REGIONS.servers,
        load: FIVE_REGIONS.load,
        remarks: &[
            "§4.5.6: the text has no numbers for it; it says that the trends are those of three replicas, and the \
             difference larger",
        ],
        ..TAIL
    },
    Figure {
        name: "rsc-fig16",
        number: "4.16",
        paper: &GRYFF_RSC,
        section: "4.6.3",
        summary: "Five replicas, reads and writes: p99 latency of reads over the share of writes",
        work: ycsb(Shares { reads: 0.5, writes: 0.5 }),
        panels: THREE,
        swept: Some(Swept {
            parameter: Parameter::Writes,
            places: Extent {
                full: &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
                quick: &[0.1, 0.3, 0.9],
            },
            logarithmic: false,
        }),
        plots: &[Plot::OverPlaces(Quantity::Latency(READ_P99))],
        systems: RSC,
        claims: &[
            latency((0, None), GRYFF_ALONE, READ_P99, 145.0, "§4.6.3: 145 ms for both"),
            latency((0, None), RSC_ALONE, READ_P99, 145.0, "§4.6.3: 145 ms for both"),
            latency((1, None), GRYFF_ALONE, READ_P99, 234.0, "§4.6.3: from 145 ms to 234 ms"),
            latency((1, None), RSC_ALONE, READ_P99, 145.0, "§4.6.3: remains at 145 ms"),
            latency((2, None), GRYFF_ALONE, READ_P99, 234.0, "§4.6.3: from 145 ms to 234 ms"),
            latency((2, None), RSC_ALONE, READ_P99, 145.0, "§4.6.3: remains at 145 ms"),
            latency(
                (1, Some(0.3)),
                GRYFF_ALONE,
                Latency::quantile(Some("read"), 0.999),
                290.0,
                "§4.6.3: from 290 ms",
            ),
            latency(
                (1, Some(0.3)),
                RSC_ALONE,
                Latency::quantile(Some("read"), 0.999),
                147.0,
                "§4.6.3: to 147 ms",
            ),
        ],
        remarks: &[
            "§4.6.3: \"16 closed-loop clients\", \"an equal fraction of the clients\" in each of five regions: 16 in each here, \
             as in §4.5.2",
        ],
        common_remarks: &[EXACT, KEYS, TIMES],
        ..FIVE_REGIONS
    },
];

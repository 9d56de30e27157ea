//! 001 §4.5 and §4.6.3: Figures 4.7 to 4.16 of *Towards High Performance Abstractions for Strong
//! Geo-Replicated Systems*.

use serried_workload::Shares;

use super::{Claim, Conflicts, Quantity, RegisterFigure, Series, Shows};

const SYSTEMS: &[Series] = &[
    Series { protocol: "gryff", label: "Gryff" },
    Series { protocol: "epaxos", label: "EPaxos" },
    Series { protocol: "multipaxos", label: "MultiPaxos" },
];
const RSC: &[Series] = &[
    Series { protocol: "gryff", label: "Gryff" },
    Series { protocol: "gryff-rsc", label: "Gryff-RSC" },
];

const THREE: &[Conflicts] = &[
    Conflicts { label: "a: 2 % conflicts", share: 0.02 },
    Conflicts { label: "b: 10 % conflicts", share: 0.1 },
    Conflicts { label: "c: 25 % conflicts", share: 0.25 },
];
const FEW: &[Conflicts] = &[Conflicts { label: "2 % conflicts", share: 0.02 }];
const MANY: &[Conflicts] = &[Conflicts { label: "25 % conflicts", share: 0.25 }];

/// YCSB's workload B with read-modify-writes (§4.5.3).
const READ_HEAVY: Shares = Shares { reads: 0.945, writes: 0.045 };

const ALL_KINDS: Shows = Shows::Distributions { kinds: &["read", "write", "rmw"] };
/// "From 9.5% to 89.5%" (§4.5.3).
const WRITES: Shows = Shows::Writes {
    kinds: &["read", "write"],
    all: &[0.095, 0.195, 0.295, 0.395, 0.495, 0.595, 0.695, 0.795, 0.895],
    few: &[0.095, 0.495, 0.895],
};
/// "From 1 to 105 in increments of 15" (§4.5.6).
const SUB_REQUESTS: Shows = Shows::SubRequests {
    all: &[1.0, 15.0, 30.0, 45.0, 60.0, 75.0, 90.0, 105.0],
    few: &[1.0, 30.0, 105.0],
};
const LOAD: Shows = Shows::Load {
    all: &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0],
    few: &[4.0, 32.0, 256.0],
};

const fn latency(
    (panel, x): (usize, Option<f64>),
    (protocol, minus): (&'static str, Option<&'static str>),
    (kind, quantile): (&'static str, f64),
    value: f64,
    source: &'static str,
) -> Claim {
    Claim { panel, x, protocol, minus, of: Quantity::Latency { kind, quantile }, value, source }
}

const GRYFF: (&str, Option<&str>) = ("gryff", None);
const RSC_ALONE: (&str, Option<&str>) = ("gryff-rsc", None);
const OVER_GRYFF: (&str, Option<&str>) = ("epaxos", Some("gryff"));
const LEADER_OVER_GRYFF: (&str, Option<&str>) = ("multipaxos", Some("gryff"));
const OVER_EPAXOS: (&str, Option<&str>) = ("gryff", Some("epaxos"));
const READ_P99: (&str, f64) = ("read", 0.99);
const WRITE_P99: (&str, f64) = ("write", 0.99);

const NEAREST: &str = "§4.5.3: 66 % of the reads complete within CA to VA";
const FARTHEST: &str = "§4.5.3: the others within IR to VA";
const BY_EPAXOS: &str = "§4.5.3: between 0 and 115 ms for low and high conflict percentages";
const BY_LEADER: &str = "§4.5.3: 134 ms";
const FASTER_WRITES: &str =
    "Figure 4.8: EPaxos' p99 writes are 89 ms lower regardless of write percentage";

/// So many that latencies are geography: of many sub-requests at a time, one core would make a queue.
const CORES: usize = 20;

const CLOSED: &str = "§4.5.2: 16 clients at each replica in closed loops, which do one operation after the other; \
     with each operation as fast as its region allows, those in regions with near quorums do more, so \
     that shares of operations lean to them";
const EXACT: &str = "A message takes exactly half of the round trip of Table 4.1, and 0.1 ms within a region; what \
     computing takes comes on top, and replicas have 20 cores for it, so that nothing waits for one";
const OTHER_PANELS: &str = "The text names 2 % and 25 % conflicts, and of the third panel of Figure 4.7 nothing; it is 10 % here, as \
     in Figure 4.16";
const TIMES: &str = "§4.5.2: the paper measures for 150 s after 15 s. Runs here end earlier if so many operations as are said \
     above have been done";
const KEYS: &str = "Operations that conflict are on one key that all clients have in common, all others on 1000 keys of the \
     client's own; nothing is there before a run";
const LEADER: &str = "§4.5.2: MultiPaxos' leader is in CA, the site of the first replica";
const OWN_CPU: &str = "The paper's replicas had two cores of 3 GHz; ours have one simulated core with the costs of our own CPU. \
     `--cpu-factor` makes it slower";

pub(super) const FIGURES: &[RegisterFigure] = &[
    RegisterFigure {
        name: "gryff-fig7",
        title: "Figure 4.7 of Gryff (001 §4.5.3)",
        summary: "Reads with three replicas, 94.5 % reads, 4.5 % writes and 1 % read-modify-writes: how latencies are distributed",
        workload: "ycsb",
        geography: "gryff-3",
        replicas: 3,
        replica_cores: CORES,
        clients_each: 16,
        shares: READ_HEAVY,
        panels: THREE,
        shows: Shows::Distributions { kinds: &["read"] },
        series: SYSTEMS,
        claims: &[
            latency((0, None), GRYFF, ("read", 0.66), 72.0, NEAREST),
            latency((0, None), GRYFF, READ_P99, 88.0, FARTHEST),
            latency((2, None), GRYFF, READ_P99, 88.0, "§4.5.3: regardless of conflict percentage"),
            latency((0, None), OVER_GRYFF, READ_P99, 0.0, BY_EPAXOS),
            latency((2, None), OVER_GRYFF, READ_P99, 115.0, BY_EPAXOS),
            latency((0, None), LEADER_OVER_GRYFF, READ_P99, 134.0, BY_LEADER),
            latency((2, None), LEADER_OVER_GRYFF, READ_P99, 134.0, BY_LEADER),
        ],
        remarks: &[CLOSED, EXACT, KEYS, OTHER_PANELS, LEADER, TIMES],
    },
    RegisterFigure {
        name: "gryff-fig8",
        title: "Figure 4.8 of Gryff (001 §4.5.3)",
        summary: "Three replicas, 2 % conflicts: p99 latency over the share of writes",
        workload: "ycsb",
        geography: "gryff-3",
        replicas: 3,
        replica_cores: CORES,
        clients_each: 16,
        shares: Shares::YCSB_A,
        panels: FEW,
        shows: WRITES,
        series: SYSTEMS,
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
            CLOSED,
            EXACT,
            KEYS,
            LEADER,
            TIMES,
        ],
    },
    RegisterFigure {
        name: "gryff-fig9",
        title: "Figure 4.9 of Gryff (001 §4.5.3)",
        summary: "Five replicas, 2 % conflicts: p99 latency over the share of writes",
        workload: "ycsb",
        geography: "gryff-5",
        replicas: 5,
        replica_cores: CORES,
        clients_each: 16,
        shares: Shares::YCSB_A,
        panels: FEW,
        shows: WRITES,
        series: SYSTEMS,
        claims: &[
            latency(
                (0, None),
                GRYFF,
                READ_P99,
                144.0,
                "Figure 4.9: determined by 2 RTT in CA, 72 ms each; one round trip in IR is 145 ms",
            ),
            latency((0, Some(0.495)), GRYFF, WRITE_P99, 290.0, "§4.5.3: approximately 290 ms"),
            latency(
                (0, Some(0.495)),
                ("epaxos", None),
                WRITE_P99,
                290.0,
                "§4.5.3: approximately the same as Gryff's, 290 ms",
            ),
        ],
        remarks: &[CLOSED, EXACT, KEYS, LEADER, TIMES],
    },
    RegisterFigure {
        name: "gryff-fig10",
        title: "Figure 4.10 of Gryff (001 §4.5.4)",
        summary: "Three replicas, 49.5 % reads, 49.5 % writes and 1 % read-modify-writes: how latencies are distributed",
        workload: "ycsb",
        geography: "gryff-3",
        replicas: 3,
        replica_cores: CORES,
        clients_each: 16,
        shares: Shares::YCSB_A,
        panels: MANY,
        shows: ALL_KINDS,
        series: SYSTEMS,
        claims: &[
            latency((0, None), OVER_EPAXOS, ("write", 0.5), 72.0, "§4.5.4: 72 ms higher"),
            latency((0, None), OVER_EPAXOS, WRITE_P99, 89.0, "§4.5.4: 89 ms higher"),
        ],
        remarks: &[
            "§4.5.4: Gryff's read-modify-writes take 2 round trips without conflicts and 3 with; the text has no \
             milliseconds for it",
            CLOSED,
            EXACT,
            KEYS,
            LEADER,
            TIMES,
        ],
    },
    RegisterFigure {
        name: "gryff-fig11",
        title: "Figure 4.11 of Gryff (001 §4.5.4)",
        summary: "Five replicas, 49.5 % reads, 49.5 % writes and 1 % read-modify-writes: how latencies are distributed",
        workload: "ycsb",
        geography: "gryff-5",
        replicas: 5,
        replica_cores: CORES,
        clients_each: 16,
        shares: Shares::YCSB_A,
        panels: MANY,
        shows: ALL_KINDS,
        series: SYSTEMS,
        claims: &[],
        remarks: &[
            "§4.5.4: the text has no numbers for it; it says that Gryff's reads take one round trip mostly, that EPaxos \
             writes faster, and that Gryff reads and read-modify-writes faster",
            CLOSED,
            EXACT,
            KEYS,
            LEADER,
            TIMES,
        ],
    },
    RegisterFigure {
        name: "gryff-fig12",
        title: "Figure 4.12 of Gryff (001 §4.5.5)",
        summary: "Three replicas in one room, 49.5 % reads, 49.5 % writes and 1 % read-modify-writes: median latency over throughput",
        workload: "ycsb",
        geography: "lan",
        replicas: 3,
        replica_cores: 1,
        clients_each: 0,
        shares: Shares::YCSB_A,
        panels: MANY,
        shows: LOAD,
        series: SYSTEMS,
        claims: &[
            Claim {
                panel: 0,
                x: None,
                protocol: "gryff",
                minus: None,
                of: Quantity::Throughput,
                value: 11_600.0,
                source: "§4.5.5: about 11,600 ops/s",
            },
            Claim {
                panel: 0,
                x: None,
                protocol: "gryff",
                minus: Some("multipaxos"),
                of: Quantity::Throughput,
                value: 1_200.0,
                source: "§4.5.5: about 1,200 ops/s more",
            },
        ],
        remarks: &["§4.5.5: Gryff's throughput is within 7.5 % of EPaxos'", OWN_CPU, KEYS],
    },
    RegisterFigure {
        name: "gryff-fig13",
        title: "Figure 4.13 of Gryff (001 §4.5.5)",
        summary: "Five replicas in one room, 49.5 % reads, 49.5 % writes and 1 % read-modify-writes: median latency over throughput",
        workload: "ycsb",
        geography: "lan",
        replicas: 5,
        replica_cores: 1,
        clients_each: 0,
        shares: Shares::YCSB_A,
        panels: MANY,
        shows: LOAD,
        series: SYSTEMS,
        claims: &[],
        remarks: &[
            "§4.5.5: Gryff's throughput is higher than EPaxos' and MultiPaxos'; the text has no numbers for it",
            OWN_CPU,
            KEYS,
        ],
    },
    RegisterFigure {
        name: "gryff-fig14",
        title: "Figure 4.14 of Gryff (001 §4.5.6)",
        summary: "Three replicas, requests of 99 % reads, 0.9 % writes and 0.1 % read-modify-writes: median latency over their number",
        workload: "tail-at-scale",
        geography: "gryff-3",
        replicas: 3,
        replica_cores: CORES,
        clients_each: 16,
        shares: Shares::TAIL_AT_SCALE,
        panels: MANY,
        shows: SUB_REQUESTS,
        series: SYSTEMS,
        claims: &[latency(
            (0, None),
            OVER_GRYFF,
            ("request", 0.5),
            57.0,
            "§4.5.6: Gryff's p50 is up to 57 ms lower",
        )],
        remarks: &[CLOSED, EXACT, KEYS, LEADER, TIMES],
    },
    RegisterFigure {
        name: "gryff-fig15",
        title: "Figure 4.15 of Gryff (001 §4.5.6)",
        summary: "Five replicas, requests of 99 % reads, 0.9 % writes and 0.1 % read-modify-writes: median latency over their number",
        workload: "tail-at-scale",
        geography: "gryff-5",
        replicas: 5,
        replica_cores: CORES,
        clients_each: 16,
        shares: Shares::TAIL_AT_SCALE,
        panels: MANY,
        shows: SUB_REQUESTS,
        series: SYSTEMS,
        claims: &[],
        remarks: &[
            "§4.5.6: the text has no numbers for it; it says that the trends are those of three replicas, and the \
             difference larger",
            CLOSED,
            EXACT,
            KEYS,
            LEADER,
            TIMES,
        ],
    },
    RegisterFigure {
        name: "rsc-fig16",
        title: "Figure 4.16 of Gryff-RSC (001 §4.6.3)",
        summary: "Five replicas, reads and writes: p99 latency of reads over the share of writes",
        workload: "ycsb",
        geography: "gryff-5",
        replicas: 5,
        replica_cores: CORES,
        clients_each: 16,
        shares: Shares { reads: 0.5, writes: 0.5 },
        panels: THREE,
        shows: Shows::Writes {
            kinds: &["read"],
            all: &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
            few: &[0.1, 0.3, 0.9],
        },
        series: RSC,
        claims: &[
            latency((0, None), GRYFF, READ_P99, 145.0, "§4.6.3: 145 ms for both"),
            latency((0, None), RSC_ALONE, READ_P99, 145.0, "§4.6.3: 145 ms for both"),
            latency((1, None), GRYFF, READ_P99, 234.0, "§4.6.3: from 145 ms to 234 ms"),
            latency((1, None), RSC_ALONE, READ_P99, 145.0, "§4.6.3: remains at 145 ms"),
            latency((2, None), GRYFF, READ_P99, 234.0, "§4.6.3: from 145 ms to 234 ms"),
            latency((2, None), RSC_ALONE, READ_P99, 145.0, "§4.6.3: remains at 145 ms"),
            latency((1, Some(0.3)), GRYFF, ("read", 0.999), 290.0, "§4.6.3: from 290 ms"),
            latency((1, Some(0.3)), RSC_ALONE, ("read", 0.999), 147.0, "§4.6.3: to 147 ms"),
        ],
        remarks: &[
            "§4.6.3: \"16 closed-loop clients\", \"an equal fraction of the clients\" in each of five regions: 16 in each here, \
             as in §4.5.2",
            EXACT,
            KEYS,
            TIMES,
        ],
    },
];

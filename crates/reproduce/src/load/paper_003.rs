//! 003 §6: Figures 7 and 8 of *NCC: Natural Concurrency Control for Strictly Serializable Datastores by
//! Avoiding the Timestamp-Inversion Pitfall*.

use super::Quantity::{
    LatencyAtHalf, LatencyAtPeak, NotDelayed, OperatingPoint, PassedAtFirst, Peak, RetriedWell,
    StartedOver,
};
use super::{Claim, LoadFigure, Quantity, Shows};
use crate::registers::Series;

const NCC: &str = "ncc";
const NCC_RW: &str = "ncc-rw";
const OCC: &str = "occ";
const NO_WAIT: &str = "two-phase-locking-no-wait";
const WOUND_WAIT: &str = "two-phase-locking-wound-wait";
const TAPIR: &str = "tapir-cc";
const MVTO: &str = "mvto";

/// The strictly serializable systems that Figure 7 shows, but for Janus-CC.
const STRICT: &[Series] = &[
    Series { protocol: NCC, label: "NCC" },
    Series { protocol: NCC_RW, label: "NCC-RW" },
    Series { protocol: OCC, label: "dOCC" },
    Series { protocol: NO_WAIT, label: "d2PL-no-wait" },
    Series { protocol: WOUND_WAIT, label: "d2PL-wound-wait" },
];
const SERIALIZABLE: &[Series] = &[
    Series { protocol: NCC, label: "NCC" },
    Series { protocol: TAPIR, label: "TAPIR-CC" },
    Series { protocol: MVTO, label: "MVTO" },
];
const RECOVERING: &[Series] =
    &[Series { protocol: NCC_RW, label: "NCC-RW" }, Series { protocol: NCC, label: "NCC" }];

const fn ratio(
    of: Quantity,
    (protocol, over): (&'static str, &'static str),
    paper: &'static str,
    source: &'static str,
) -> Claim {
    Claim { of, protocol, over: Some(over), paper, source }
}

const fn share(
    of: Quantity,
    protocol: &'static str,
    paper: &'static str,
    source: &'static str,
) -> Claim {
    Claim { of, protocol, over: None, paper, source }
}

const TWO_TO_FOUR: &str = "§6.3: a 2-4x higher throughput than dOCC and d2PL";
const ALL_WORKLOADS: &str =
    "Figure 7, caption: at least 80 % higher throughput across workloads; §6.2: 80 % to 20x";

const SET_UP: &str = "§6.1: 8 servers and 16 to 32 machines with clients in open loops, one data centre, no replication. Here 8 \
     partitions with one replica each and 24 clients, 0.1 ms apart; a partition runs on one core, where the \
     paper's machines have 8, so throughputs are to be compared with each other. `--cpu-factor` makes the \
     simulated CPU slower";
const BACK_OFF: &str = "§6.1: clients \"back off when the system is overloaded\", and it is not said how. Here each has 64 transactions \
     open at most (32 of TPC-C, 256 in Figure 8c), and what arrives when there are as many is dropped; what was \
     aborted starts over after a random wait, of up to 1 ms at first and 100 ms in the end. Latencies are counted \
     from the arrival";
const NETWORK: &str = "Messages take time, and room in the network is not simulated: the paper's interfaces carry 1 Gbit/s each. Its \
     experiments are bound by CPU (§6.1), as these are";
const O_P: &str = "The operating point is the highest throughput with a median latency below 10 ms (§6.3), between the two runs \
     around it";
const COUNTED: &str = "What only a protocol itself can know is taken from what it counts, and a dash says that it does not. A read-only \
     transaction that goes the way of the others starts over; each response that is delayed is taken for a \
     transaction of its own";
const JANUS: &str =
    "Janus-CC, which the paper compares except in Figure 7a, is not among the systems here";
const PEAK: &str = "§6.4: each system runs at 75 % of its own highest throughput, which is found first, under 0.3 % writes";

pub(super) const FIGURES: &[LoadFigure] = &[
    LoadFigure {
        name: "ncc-fig7a",
        title: "Figure 7a of NCC (003 §6.3)",
        summary: "Google-F1 on 8 servers: median read latency over throughput",
        workload: "f1",
        size: 1_000_000,
        terminals: 0,
        kind: "read-only",
        kind_alone: false,
        first_per_s: 20_000.0,
        most_open: 64,
        weight: 1,
        shows: Shows::Curve,
        series: STRICT,
        claims: &[
            ratio(OperatingPoint, (NCC, OCC), "2 to 4", TWO_TO_FOUR),
            ratio(OperatingPoint, (NCC, NO_WAIT), "2 to 4", TWO_TO_FOUR),
            ratio(OperatingPoint, (NCC, WOUND_WAIT), "2 to 4", TWO_TO_FOUR),
            share(
                PassedAtFirst,
                NCC,
                "99",
                "§6.3: about 99 % passed, and finished in one round trip",
            ),
            share(NotDelayed, NCC, "99.1", "§6.3: 99.1 % of the transactions"),
            share(RetriedWell, NCC, "70", "§6.3: 70 % of those that did not pass"),
            share(StartedOver, NCC, "0.2", "§6.3: only 0.2 % were retried from scratch"),
        ],
        remarks: &[
            "§6.3: d2PL-no-wait performs similar to NCC-RW, and worse under higher load; the text has no numbers for it",
            SET_UP,
            BACK_OFF,
            NETWORK,
            O_P,
            COUNTED,
            JANUS,
        ],
    },
    LoadFigure {
        name: "ncc-fig7b",
        title: "Figure 7b of NCC (003 §6.3)",
        summary: "Facebook-TAO on 8 servers: median read latency over throughput",
        workload: "tao",
        size: 1_000_000,
        terminals: 0,
        kind: "read-only",
        kind_alone: false,
        first_per_s: 2000.0,
        most_open: 64,
        weight: 24,
        shows: Shows::Curve,
        series: STRICT,
        claims: &[
            ratio(OperatingPoint, (NCC, OCC), "1.8 or more", ALL_WORKLOADS),
            ratio(OperatingPoint, (NCC, NO_WAIT), "1.8 or more", ALL_WORKLOADS),
            ratio(OperatingPoint, (NCC, WOUND_WAIT), "1.8 or more", ALL_WORKLOADS),
        ],
        remarks: &[
            "§6.3: similar takeaways as of Figure 7a; NCC-RW outperforms d2PL-no-wait more clearly, as larger reads are more \
             likely to conflict with writes",
            SET_UP,
            BACK_OFF,
            NETWORK,
            O_P,
            JANUS,
        ],
    },
    LoadFigure {
        name: "ncc-fig7c",
        title: "Figure 7c of NCC (003 §6.3)",
        summary: "TPC-C with 8 warehouses on each of 8 servers: New-Order's median latency over its throughput",
        workload: "tpcc",
        size: 64,
        terminals: 10,
        kind: "new-order",
        kind_alone: true,
        first_per_s: 4000.0,
        most_open: 32,
        weight: 4,
        shows: Shows::Curve,
        series: STRICT,
        claims: &[
            ratio(Peak, (NCC, OCC), "20", "§6.3: ~20x higher peak throughput"),
            ratio(Peak, (NCC_RW, OCC), "20", "§6.3: ~20x higher peak throughput"),
            ratio(LatencyAtPeak, (OCC, NCC), "10", "§6.3: with ~10x lower latency"),
            ratio(LatencyAtPeak, (OCC, NCC_RW), "10", "§6.3: with ~10x lower latency"),
            ratio(Peak, (NCC_RW, WOUND_WAIT), "1.5", "§6.3: a 50 % higher peak throughput"),
            ratio(
                Peak,
                (NCC_RW, NCC),
                "above 1",
                "§6.3: NCC-RW has higher peak throughput than NCC",
            ),
            share(PassedAtFirst, NCC_RW, "above 80", "§6.3: more than 80 % of the transactions"),
            share(StartedOver, NCC_RW, "below 10", "§6.3: fewer than 10 % of the transactions"),
        ],
        remarks: &[
            "Rows are spread over all servers by a hash of their keys, so that every transaction goes to most of them; the \
             paper does not say how its rows are",
            "Each transaction draws its warehouse and district, as the text does not say which clients have which",
            "§6.3 does not say under which load transactions passed the safeguard or were aborted; here it is at the \
             operating point",
            SET_UP,
            BACK_OFF,
            NETWORK,
            O_P,
            COUNTED,
            JANUS,
        ],
    },
    LoadFigure {
        name: "ncc-fig8a",
        title: "Figure 8a of NCC (003 §6.4)",
        summary: "Google-WF on 8 servers at 75 % load: throughput over the share of transactions that write",
        workload: "f1-wf",
        size: 1_000_000,
        terminals: 0,
        kind: "read-only",
        kind_alone: false,
        first_per_s: 20_000.0,
        most_open: 64,
        weight: 1,
        shows: Shows::Writes { all: &[0.003, 0.01, 0.03, 0.1, 0.2, 0.3], few: &[0.003, 0.03, 0.3] },
        series: STRICT,
        claims: &[],
        remarks: &[
            "§6.4: NCC-RW is most resilient to conflicts, and NCC's read-only transactions are more likely to abort when \
             writes increase; the text has no numbers for it",
            PEAK,
            SET_UP,
            BACK_OFF,
            NETWORK,
            JANUS,
        ],
    },
    LoadFigure {
        name: "ncc-fig8b",
        title: "Figure 8b of NCC (003 §6.4)",
        summary: "Google-F1 on 8 servers with serializable systems: median read latency over throughput",
        workload: "f1",
        size: 1_000_000,
        terminals: 0,
        kind: "read-only",
        kind_alone: false,
        first_per_s: 20_000.0,
        most_open: 64,
        weight: 1,
        shows: Shows::Curve,
        series: SERIALIZABLE,
        claims: &[
            ratio(LatencyAtHalf, (NCC, MVTO), "similar", "§6.4: similar under low and medium load"),
            ratio(Peak, (NCC, MVTO), "below 1", "§6.4: under high load, MVTO outperforms NCC"),
            ratio(OperatingPoint, (NCC, TAPIR), "above 1", "§6.4: NCC outperforms TAPIR-CC"),
        ],
        remarks: &[SET_UP, BACK_OFF, NETWORK, O_P],
    },
    LoadFigure {
        name: "ncc-fig8c",
        title: "Figure 8c of NCC (003 §6.4)",
        summary: "Google-F1 on 8 servers: throughput over time when all clients die, for two recovery timeouts",
        workload: "f1",
        size: 1_000_000,
        terminals: 0,
        kind: "read-only",
        kind_alone: false,
        first_per_s: 20_000.0,
        most_open: 256,
        weight: 1,
        shows: Shows::Deaths { after_s: &[1.0, 3.0] },
        series: RECOVERING,
        claims: &[],
        remarks: &[
            "§6.4: after 10 s all clients stop to send the commit messages of ongoing transactions and go on with new ones. \
             Here all clients die, with what they have under way, and as many others begin at once; with --quick \
             that is after 1 s",
            "§6.4: NCC-RW recovers quickly after failures are detected, and NCC is minimally impacted, as its read-only \
             transactions send no commit messages; the text has no numbers for it",
            "The text does not say how high the load is; here it is 75 % of the highest throughput, as in Figure 8a",
            SET_UP,
            BACK_OFF,
            NETWORK,
        ],
    },
];

//! Which protocol to take, given what each has done.

use std::fmt;

use serde::Serialize;
use serried_model::Guarantee;

/// Protocols whose figures differ by less than this factor are as good as each other.
const AS_GOOD: f64 = 1.15;

/// The share of transactions that failed above which latencies say little: those of failed ones are not among them.
const MOST_FAILED: f64 = 0.01;
/// The share of clients left waiting above which latencies say little.
const MOST_WAITING: f64 = 0.05;

/// What a protocol has done.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Candidate {
    pub(super) protocol: String,
    pub(super) guarantee: Guarantee,
    /// Whether it can be taken at all.
    pub(super) state: State,
    /// How many clients there were.
    pub(super) clients: usize,
    /// How many transactions, requests or calls it has committed in a run.
    pub(super) committed: u64,
    /// How many failed, those with an unknown outcome included. Latencies do not have these in them.
    pub(super) failed: u64,
    /// How many clients have waited for most of the time. Latencies do not have that in them.
    pub(super) waiting: u64,
    pub(super) goodput_per_s: f64,
    pub(super) latency_ms_p50: f64,
    pub(super) latency_ms_p99: f64,
}

/// Whether a protocol can be taken at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It has run to the end.
    Ran,
    /// Its history violates its guarantee.
    Violates,
    /// Clients have waited for ever, so the run had no end.
    Stalled,
}

impl Candidate {
    /// Whether too many transactions failed for its latencies to count.
    fn is_failing(&self) -> bool {
        self.failed as f64 > MOST_FAILED * (self.committed + self.failed) as f64
    }

    /// Whether too many clients were left waiting for its latencies to count.
    fn is_unfair(&self) -> bool {
        self.waiting as f64 > MOST_WAITING * self.clients as f64
    }

    /// Whether it has committed too little for a figure.
    fn has_too_few(&self, by: Figure) -> bool {
        self.committed < by.least_committed()
    }

    /// Whether it can be compared with others by a figure.
    fn counts_by(&self, by: Figure) -> bool {
        let is_sound = by == Figure::Goodput || !(self.is_failing() || self.is_unfair());
        self.state == State::Ran && is_sound && !self.has_too_few(by)
    }
}

/// By what protocols are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Figure {
    Goodput,
    P50,
    P99,
}

impl Figure {
    const ALL: [Figure; 3] = [Figure::Goodput, Figure::P50, Figure::P99];

    /// How much has to be committed in a run for this figure to say anything. A p99 has a hundredth of it above.
    pub(super) const fn least_committed(self) -> u64 {
        match self {
            Figure::Goodput | Figure::P50 => 100,
            Figure::P99 => 500,
        }
    }

    fn of(self, candidate: &Candidate) -> f64 {
        match self {
            Figure::Goodput => candidate.goodput_per_s,
            Figure::P50 => candidate.latency_ms_p50,
            Figure::P99 => candidate.latency_ms_p99,
        }
    }

    /// By which factor `one` is better than `other`; below 1 if it is worse.
    fn advantage(self, one: &Candidate, other: &Candidate) -> f64 {
        let (one, other) = (self.of(one), self.of(other));
        match self {
            // Two latencies below the resolution of the measurement are equal.
            _ if one == other => 1.0,
            Figure::Goodput => one / other,
            Figure::P50 | Figure::P99 => other / one,
        }
    }

    /// Whether `one` is better than `other`, or nearly as good.
    fn is_as_good(self, one: &Candidate, other: &Candidate) -> bool {
        self.advantage(other, one) < AS_GOOD
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Figure::Goodput => "goodput",
            Figure::P50 => "p50",
            Figure::P99 => "p99",
        })
    }
}

/// The best protocol of a guarantee by one figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Best {
    pub(super) by: Figure,
    pub(super) protocol: String,
    /// Per second, or in milliseconds.
    pub(super) value: f64,
    /// The others that are as good, the best first.
    pub(super) as_good: Vec<String>,
}

/// The advice for those who need one guarantee.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct OfGuarantee {
    #[serde(serialize_with = "name")]
    pub(super) guarantee: Guarantee,
    /// By each figure for which a protocol counts.
    pub(super) best: Vec<Best>,
}

/// A stronger guarantee that costs nothing.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Free {
    #[serde(serialize_with = "name")]
    pub(super) stronger: Guarantee,
    #[serde(serialize_with = "name")]
    pub(super) weaker: Guarantee,
    /// The protocol that has it.
    pub(super) protocol: String,
    /// By which figures it is as good as the best with the weaker guarantee.
    pub(super) by: Vec<Figure>,
}

/// What to take.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Advice {
    pub(super) guarantees: Vec<OfGuarantee>,
    pub(super) free: Vec<Free>,
    /// Those that left more than 5 % of clients waiting, so that their latencies say little.
    pub(super) unfair: Vec<String>,
    /// Those under which more than 1 % of transactions failed, so that their latencies say little.
    pub(super) failing: Vec<String>,
    /// Those that have committed too few transactions for some figures.
    pub(super) too_few: Vec<String>,
    /// Those whose histories violate their guarantees. They are never advised.
    pub(super) violating: Vec<String>,
    /// Those whose clients waited for ever. They are never advised.
    pub(super) stalled: Vec<String>,
    /// Those that promise nothing. They show what the guarantees of others cost, and are never advised.
    pub(super) bounds: Vec<String>,
}

fn name<S: serde::Serializer>(guarantee: &Guarantee, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(guarantee.name())
}

/// The candidates with this guarantee that count by this figure, the best first. Equal ones keep their order.
fn ranked(candidates: &[Candidate], guarantee: Guarantee, by: Figure) -> Vec<&Candidate> {
    let able = candidates.iter().filter(|one| one.guarantee == guarantee && one.counts_by(by));
    let mut able: Vec<&Candidate> = able.collect();
    able.sort_by(|one, other| by.advantage(other, one).total_cmp(&1.0));
    able
}

/// The advice that follows from what protocols have done.
pub(super) fn advise(candidates: &[Candidate]) -> Advice {
    let present = |guarantee: &Guarantee| {
        *guarantee != Guarantee::Nothing
            && candidates.iter().any(|candidate| candidate.guarantee == *guarantee)
    };
    let present: Vec<Guarantee> = Guarantee::ALL.into_iter().filter(present).collect();
    let of_guarantee = |guarantee: &Guarantee| OfGuarantee {
        guarantee: *guarantee,
        best: Figure::ALL.into_iter().filter_map(|by| best(candidates, *guarantee, by)).collect(),
    };
    let pairs = present.iter().flat_map(|one| present.iter().map(move |other| (*one, *other)));
    let pairs = pairs.filter(|(one, other)| one != other && one.includes(*other));
    let named = |which: &dyn Fn(&Candidate) -> bool| -> Vec<String> {
        let named = candidates.iter().filter(|candidate| which(candidate));
        named.map(|candidate| candidate.protocol.clone()).collect()
    };
    let ran = |one: &Candidate| one.state == State::Ran && one.guarantee != Guarantee::Nothing;
    let has_too_few = |one: &Candidate| Figure::ALL.into_iter().any(|by| one.has_too_few(by));
    Advice {
        guarantees: present.iter().map(of_guarantee).collect(),
        free: pairs.filter_map(|(one, other)| free(candidates, one, other)).collect(),
        unfair: named(&|one| ran(one) && one.committed > 0 && one.is_unfair()),
        failing: named(&|one| ran(one) && one.is_failing()),
        too_few: named(&|one| ran(one) && has_too_few(one)),
        violating: named(&|one| one.state == State::Violates),
        stalled: named(&|one| one.state == State::Stalled),
        bounds: named(&|one| one.guarantee == Guarantee::Nothing),
    }
}

fn best(candidates: &[Candidate], guarantee: Guarantee, by: Figure) -> Option<Best> {
    let ranked = ranked(candidates, guarantee, by);
    let (first, others) = ranked.split_first()?;
    let as_good = others.iter().filter(|other| by.is_as_good(other, first));
    Some(Best {
        by,
        protocol: first.protocol.clone(),
        value: by.of(first),
        as_good: as_good.map(|other| other.protocol.clone()).collect(),
    })
}

/// Of the protocols with the stronger guarantee, the one that is as good as the best with the weaker one by most
/// figures; of several, the one with the most goodput.
fn free(candidates: &[Candidate], stronger: Guarantee, weaker: Guarantee) -> Option<Free> {
    let is_free = |one: &Candidate, by: Figure| {
        let best = ranked(candidates, weaker, by);
        let counts = ranked(candidates, stronger, by).contains(&one);
        counts && best.first().is_some_and(|best| by.is_as_good(one, best))
    };
    let by = |one: &Candidate| Figure::ALL.into_iter().filter(|by| is_free(one, *by)).collect();
    let able = ranked(candidates, stronger, Figure::Goodput);
    let able = able.into_iter().map(|one| (one, by(one)));
    let most = able.rev().max_by_key(|(_, by): &(_, Vec<Figure>)| by.len());
    let (one, by) = most.filter(|(_, by)| !by.is_empty())?;
    Some(Free { stronger, weaker, protocol: one.protocol.clone(), by })
}

impl Advice {
    /// The advice as lines. `unit` is what is counted, as in `txn`.
    pub(super) fn lines(&self, unit: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for OfGuarantee { guarantee, best } in &self.guarantees {
            if best.is_empty() {
                lines.push(format!("{guarantee}: no protocol has committed enough"));
            }
            for Best { by, protocol, value, as_good } in best {
                let value = match by {
                    Figure::Goodput => format!("{value:.0} {unit}/s"),
                    Figure::P50 | Figure::P99 => format!("{value:.2} ms"),
                };
                let others = match as_good.is_empty() {
                    true => String::new(),
                    false => format!("; as good: {}", as_good.join(", ")),
                };
                lines.push(format!("{guarantee}, best {by}: {protocol} ({value}){others}"));
            }
        }
        for Free { stronger, weaker, protocol, by } in &self.free {
            let by = by.iter().map(Figure::to_string).collect::<Vec<_>>().join(", ");
            lines.push(format!(
                "{stronger} costs nothing here by {by}: {protocol} is as good as any that is {weaker}"
            ));
        }
        let least = Figure::ALL.map(Figure::least_committed);
        let few = format!(
            "too few commits to compare by goodput and p50 ({}) or by p99 ({}), choose a longer --seconds",
            least[0], least[2]
        );
        for (why, protocols) in [
            ("never to be taken, as what it has done violates its guarantee", &self.violating),
            ("not compared, as its clients stalled", &self.stalled),
            (&few, &self.too_few),
            ("not compared by latency, as more than 1 % of transactions failed", &self.failing),
            (
                "not compared by latency, as more than 5 % of clients were left waiting",
                &self.unfair,
            ),
            ("no choice, as it promises nothing; it shows what the guarantees cost", &self.bounds),
        ] {
            if !protocols.is_empty() {
                lines.push(format!("{why}: {}", protocols.join(", ")));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(protocol: &str, guarantee: Guarantee, figures: (f64, f64, f64)) -> Candidate {
        let (goodput_per_s, latency_ms_p50, latency_ms_p99) = figures;
        Candidate {
            protocol: protocol.to_string(),
            guarantee,
            state: State::Ran,
            clients: 64,
            committed: 10_000,
            failed: 0,
            waiting: 0,
            goodput_per_s,
            latency_ms_p50,
            latency_ms_p99,
        }
    }

    fn best_of(advice: &Advice, guarantee: Guarantee, by: Figure) -> (String, Vec<String>) {
        let of = advice.guarantees.iter().find(|of| of.guarantee == guarantee).unwrap();
        let best = of.best.iter().find(|best| best.by == by).unwrap();
        (best.protocol.clone(), best.as_good.clone())
    }

    #[test]
    fn each_guarantee_has_a_best_protocol_by_each_figure() {
        use Guarantee::*;
        let advice = advise(&[
            candidate("a", Serializable, (1000.0, 3.0, 9.0)),
            candidate("b", Serializable, (500.0, 1.0, 30.0)),
            candidate("c", StrictSerializable, (400.0, 5.0, 50.0)),
            candidate("plain", Nothing, (9000.0, 0.1, 0.2)),
        ]);
        let best = |by| best_of(&advice, Serializable, by).0;
        assert_eq!(Figure::ALL.map(best), ["a", "b", "a"]);
        assert_eq!(best_of(&advice, StrictSerializable, Figure::P99).0, "c");
        assert_eq!(advice.bounds, ["plain"]);
        assert!(advice.free.is_empty(), "{:?}", advice.free);
        let lines = advice.lines("txn");
        assert!(lines.iter().all(|line| !line.contains("plain") || line.contains("no choice")));
        assert!(lines.contains(&"serializable, best p50: b (1.00 ms)".to_string()), "{lines:?}");
    }

    #[test]
    fn what_differs_by_less_than_15_percent_is_as_good() {
        use Guarantee::Serializable;
        let advice = advise(&[
            candidate("far", Serializable, (869.0, 1.16, 1.0)),
            candidate("near", Serializable, (870.0, 1.14, 1.0)),
            candidate("first", Serializable, (1000.0, 1.0, 1.0)),
        ]);
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let best = |by| best_of(&advice, Serializable, by);
        assert_eq!(best(Figure::Goodput), ("first".to_string(), names(&["near"])));
        assert_eq!(best(Figure::P50), ("first".to_string(), names(&["near"])));
        // Equal ones come in their order.
        assert_eq!(best(Figure::P99), ("far".to_string(), names(&["near", "first"])));
    }

    #[test]
    fn a_stronger_guarantee_that_costs_nothing_is_pointed_out() {
        use Guarantee::*;
        let weak = candidate("weak", Serializable, (1000.0, 1.0, 10.0));
        let strong = candidate("strong", StrictSerializable, (900.0, 1.5, 9.0));
        let worse = candidate("worse", StrictSerializable, (950.0, 1.5, 90.0));
        let advice = advise(&[weak.clone(), strong, worse]);
        let free = Free {
            stronger: StrictSerializable,
            weaker: Serializable,
            protocol: "strong".to_string(),
            by: vec![Figure::Goodput, Figure::P99],
        };
        assert_eq!(advice.free, [free]);
        let said = "strict-serializable costs nothing here by goodput, p99: strong is as good";
        assert!(advice.lines("txn").iter().any(|line| line.starts_with(said)));
        // What is serializable is not process-ordered, and a guarantee is not stronger than itself.
        let other = candidate("other", ProcessOrdered, (900.0, 1.0, 10.0));
        assert!(advise(&[weak, other]).free.is_empty());
    }

    #[test]
    fn a_protocol_that_left_clients_waiting_is_not_advised_by_latency() {
        use Guarantee::*;
        let unfair = |name, guarantee, figures| Candidate {
            waiting: 15,
            ..candidate(name, guarantee, figures)
        };
        let advice = advise(&[
            unfair("hogs", Serializable, (5000.0, 0.1, 0.2)),
            candidate("fair", Serializable, (1000.0, 5.0, 9.0)),
            unfair("strict", StrictSerializable, (5000.0, 0.1, 0.2)),
        ]);
        let best = |by| best_of(&advice, Serializable, by).0;
        assert_eq!(Figure::ALL.map(best), ["hogs", "fair", "fair"]);
        assert_eq!(advice.guarantees[0].best.len(), 1, "by goodput only");
        assert_eq!(advice.free[0].by, [Figure::Goodput]);
        assert_eq!(advice.unfair, ["hogs", "strict"]);
        assert!(advice.lines("txn").iter().any(|line| line.starts_with("not compared by latency")));
    }

    #[test]
    fn a_protocol_that_has_committed_nothing_is_never_advised() {
        use Guarantee::*;
        let none = |name, guarantee| Candidate {
            committed: 0,
            ..candidate(name, guarantee, (0.0, 0.0, 0.0))
        };
        let advice = advise(&[
            none("idle", Serializable),
            candidate("works", Serializable, (1.0, 900.0, 900.0)),
            none("stuck", StrictSerializable),
        ]);
        for by in Figure::ALL {
            assert_eq!(best_of(&advice, Serializable, by), ("works".to_string(), Vec::new()));
        }
        assert!(advice.free.is_empty());
        let said = "strict-serializable: no protocol has committed enough";
        assert!(advice.lines("txn").contains(&said.to_string()));
        assert_eq!(advise(&[]).lines("txn"), Vec::<String>::new());
    }

    #[test]
    fn latencies_count_only_if_few_clients_wait_and_few_transactions_fail() {
        use Guarantee::Serializable;
        let slow = candidate("slow", Serializable, (1000.0, 5.0, 9.0));
        let best = |fast: Candidate| {
            let advice = advise(&[slow.clone(), fast]);
            let best = Figure::ALL.map(|by| best_of(&advice, Serializable, by).0);
            (best.concat(), advice)
        };
        let fast = |failed, waiting| Candidate {
            failed,
            waiting,
            ..candidate("fast", Serializable, (5000.0, 0.1, 0.2))
        };
        // One of 64 clients, or one of a hundred transactions, changes nothing.
        let (names, advice) = best(fast(101, 1));
        assert_eq!(names, "fastfastfast");
        assert!(advice.unfair.is_empty() && advice.failing.is_empty());
        let (names, advice) = best(fast(102, 0));
        assert_eq!((names.as_str(), advice.failing.join("")), ("fastslowslow", "fast".into()));
        let said = "not compared by latency, as more than 1 % of transactions failed: fast";
        assert!(advice.lines("txn").contains(&said.to_string()));
        let (names, advice) = best(fast(0, 4));
        assert_eq!((names.as_str(), advice.unfair.join("")), ("fastslowslow", "fast".into()));
    }

    #[test]
    fn a_figure_counts_only_if_enough_was_committed_for_it() {
        use Guarantee::Serializable;
        let enough = candidate("enough", Serializable, (10.0, 5.0, 9.0));
        let best = |committed| {
            let few = Candidate { committed, ..candidate("few", Serializable, (5000.0, 0.1, 0.2)) };
            let advice = advise(&[enough.clone(), few]);
            let best = Figure::ALL.map(|by| best_of(&advice, Serializable, by).0);
            (best.join(" "), advice.too_few.len())
        };
        assert_eq!(best(500), ("few few few".to_string(), 0));
        assert_eq!(best(499), ("few few enough".to_string(), 1));
        assert_eq!(best(99), ("enough enough enough".to_string(), 1));
    }

    #[test]
    fn a_protocol_that_violates_its_guarantee_or_stalls_is_never_advised_and_is_named() {
        use Guarantee::*;
        let with = |name, guarantee, state| Candidate {
            state,
            ..candidate(name, guarantee, (5000.0, 0.1, 0.2))
        };
        let advice = advise(&[
            with("wrong", Serializable, State::Violates),
            with("stuck", Serializable, State::Stalled),
            candidate("sound", Serializable, (1.0, 900.0, 900.0)),
            with("strict", StrictSerializable, State::Violates),
        ]);
        for by in Figure::ALL {
            assert_eq!(best_of(&advice, Serializable, by), ("sound".to_string(), Vec::new()));
        }
        assert!(advice.free.is_empty() && advice.too_few.is_empty());
        let lines = advice.lines("txn");
        for said in [
            "never to be taken, as what it has done violates its guarantee: wrong, strict",
            "not compared, as its clients stalled: stuck",
            "strict-serializable: no protocol has committed enough",
        ] {
            assert!(lines.contains(&said.to_string()), "{said}: {lines:?}");
        }
    }
}

//! How transactions have fared, by a protocol's own gauges.

use std::collections::BTreeMap;

use serried_actor::{Actor, Protocol};
use serried_sim::Cluster;

use crate::Measured;
use crate::claim::Quantity;

/// The gauges by which protocols tell how their transactions have fared; where a protocol does not show them, it is
/// unknown. Those that have committed, those of them that were moved to another time before (a smart retry, 003
/// §5.4), and those that only read and had to go the way of the others.
const COMMITTED: &str = "committed";
const MOVED: &str = "moved";
const FALLEN_BACK: &str = "fallen_back";
/// How many answers were delayed, of a transaction's to one server at a time.
const DELAYED: &str = "shots_delayed";
const COUNTED: [&str; 4] = [COMMITTED, MOVED, FALLEN_BACK, DELAYED];

/// The sums of the [`COUNTED`] gauges of all replicas and clients.
pub(crate) fn counted<P: Protocol>(cluster: &Cluster<P>) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    let mut add = |name: &'static str, count: u64| {
        if COUNTED.contains(&name) {
            *counted.entry(name.to_string()).or_insert(0) += count;
        }
    };
    let configuration = cluster.configuration();
    for partition in 0..configuration.partitions {
        for member in 0..configuration.replicas {
            cluster.replica_of(partition, member).gauges(&mut add);
        }
    }
    for client in 0..configuration.clients {
        cluster.coordinator(client).gauges(&mut add);
    }
    counted
}

/// A number about how transactions have fared. `None` if the protocol has no gauges for it, or there was nothing to
/// count.
pub(crate) fn fared(of: Quantity, measured: &Measured) -> Option<f64> {
    let counted = &measured.open()?.counted;
    let count = |name| counted.get(name).map(|count| *count as f64);
    let again = 1.0 / measured.commit_rate()? - 1.0;
    let committed = || count(COMMITTED).filter(|committed| *committed > 0.0);
    // For each transaction that has committed.
    let each = |name| Some(count(name)? / committed()?);
    let number = match of {
        Quantity::StartedOver => again + each(FALLEN_BACK).unwrap_or(0.0),
        Quantity::PassedAtFirst => (1.0 - each(MOVED)? - each(FALLEN_BACK)?) / (1.0 + again),
        Quantity::RetriedWell => each(MOVED)? / (each(MOVED)? + each(FALLEN_BACK)? + again),
        Quantity::NotDelayed => 1.0 - each(DELAYED)?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::{OpenMeasured, TransactionsMeasured};

    fn measured(commit_rate: f64, counted: &[(&str, u64)]) -> Measured {
        let counted = counted.iter().map(|(name, count)| (name.to_string(), *count)).collect();
        let open = Some(OpenMeasured { counted, ..OpenMeasured::nothing() });
        TransactionsMeasured { commit_rate, open, ..TransactionsMeasured::nothing() }.into()
    }

    #[test]
    fn transactions_pass_at_first_are_retried_or_start_over() {
        let counted = [(COMMITTED, 100), (MOVED, 6), (FALLEN_BACK, 4), (DELAYED, 3)];
        let measured = measured(0.8, &counted);
        let of = |quantity| (fared(quantity, &measured).unwrap() * 1000.0).round() / 1000.0;
        assert_eq!(of(Quantity::PassedAtFirst), 0.72, "90 of 125 attempts");
        assert_eq!(of(Quantity::RetriedWell), 0.171, "6 of the other 35");
        assert_eq!(of(Quantity::StartedOver), 0.29, "25 attempts and 4 that fell back");
        assert_eq!(of(Quantity::NotDelayed), 0.97);
    }

    #[test]
    fn what_a_protocol_does_not_count_is_not_known() {
        let measured = measured(0.8, &[]);
        assert_eq!(fared(Quantity::StartedOver, &measured), Some(0.25), "clients count attempts");
        for quantity in [Quantity::PassedAtFirst, Quantity::RetriedWell, Quantity::NotDelayed] {
            assert_eq!(fared(quantity, &measured), None);
        }
    }
}

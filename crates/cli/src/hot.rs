//! What advice on hot keys presupposes: protocols, distances and processors.

use serried_actor::Contention;
use serried_model::{FamilyName, Geography, Guarantee};
use serried_windows::{Candidate, Setting, Trips};

use crate::sim::Sim;

/// What the registry knows of a protocol and of those that could take its place. The rest is to be filled in.
pub(crate) fn setting(protocol: &str) -> Setting {
    let own = serried_protocols::info(protocol);
    let guarantee = own.map_or(Guarantee::Nothing, |own| own.guarantee);
    let others = serried_protocols::promising(FamilyName::Transactions)
        .filter(|other| other.name != protocol && other.guarantee.includes(guarantee))
        .filter_map(|other| {
            let contention: Contention = other.contention?;
            Some(Candidate { name: other.name, contention })
        });
    Setting {
        contention: own.and_then(|own| own.contention),
        others: others.collect(),
        clients: 1.0,
        committed_per_s: 0.0,
        attempts: None,
        trips: alike(0.0),
        cores: None,
    }
}

/// The distances if all round trips are this long.
pub(crate) fn alike(round_trip_ms: f64) -> Trips {
    Trips {
        nearest_ms: round_trip_ms,
        across_ms: round_trip_ms,
        quorum_ms: round_trip_ms,
        leader_ms: round_trip_ms,
        replicas_ms: round_trip_ms,
        flush_ms: 0.0,
        event_ms: 0.0,
    }
}

/// The mean distances of a simulation. The first replica leads.
pub(crate) fn simulated_trips(
    geography: &Geography,
    sim: &Sim,
    clients: usize,
) -> anyhow::Result<Trips> {
    let ms = |one, other| geography.round_trip(one, other).as_secs_f64() * 1e3;
    let sites: Vec<usize> = (0..clients).map(|client| geography.site_of(client)).collect();
    let replicas: Vec<usize> = (0..sim.replicas).map(|i| geography.site_of(i)).collect();
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let nearest = |site: usize| replicas[geography.nearest_first_of(&replicas, site, site)[0]];
    let farthest = |site: usize| replicas.iter().map(|to| ms(site, *to)).fold(0.0, f64::max);
    let mut from_leader: Vec<f64> =
        replicas.iter().skip(1).map(|to| ms(replicas[0], *to)).collect();
    from_leader.sort_by(f64::total_cmp);
    let across = sites.iter().flat_map(|from| sites.iter().map(move |to| (from, to)));
    Ok(Trips {
        nearest_ms: mean(sites.iter().map(|site| ms(*site, nearest(*site))).collect()),
        across_ms: mean(across.map(|(from, to)| ms(*from, nearest(*to))).collect()),
        quorum_ms: mean(sites.iter().map(|site| farthest(*site)).collect()),
        leader_ms: mean(sites.iter().map(|site| ms(*site, replicas[0])).collect()),
        replicas_ms: from_leader
            .get((replicas.len() / 2).saturating_sub(1))
            .copied()
            .unwrap_or(0.0),
        flush_ms: 0.0,
        event_ms: sim.costs.read()?.replica.event_ns as f64 / 1e6,
    })
}

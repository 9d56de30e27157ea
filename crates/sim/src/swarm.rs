//! Swarms of faults: the seed decides which faults are enabled, how strong they are, and when they occur.

use core::fmt;
use core::ops::Range;
use core::time::Duration;

use rand::RngExt;
use serried_actor::{Random, Timestamp};
use serried_model::NodeId;

use crate::hash::{Purpose, generator};
use crate::{Clocks, Configuration, Fault, NetworkFaults, Reach, Scheduled, Side};

/// Which faults a seed can draw. A run that always has all kinds of faults makes too little progress to reach some
/// states. So each seed enables or disables each kind of fault, and draws its strength.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swarm {
    /// How long the faults last. Then everything heals.
    pub lasts: Duration,
    /// Whether every enabled kind of fault occurs with every seed. Otherwise the seed chooses among them.
    pub always: bool,
    /// Whether links may be cut or slow.
    pub partitions: bool,
    /// Whether sites may be cut off from all others, or from one other, in one direction or both. Some are cut off for
    /// most of the time. Each keeps its clients. Needs several [`Configuration::sites`].
    pub cut_sites: bool,
    /// Whether replicas may crash: at most a minority of each site at a time, except in blackouts. Needs
    /// [`crate::Disk::keep_records`].
    pub crashes: bool,
    /// Whether nodes may pause.
    pub pauses: bool,
    /// Whether replicas' disks may be lost. Needs crashes.
    pub lost_disks: bool,
    /// Whether a replica may be down for most of the time. Needs crashes.
    pub absences: bool,
    /// Whether all replicas may crash at once. If there are several sites, they may also be those of one site. Needs
    /// crashes.
    pub blackouts: bool,
    /// Whether clients may die, at most half of them.
    pub deaths: bool,
    /// The greatest jump of any node's clock.
    pub jumps: Duration,
}

impl Default for Swarm {
    /// Ten seconds with partitions and pauses, without crashes, deaths and jumps.
    fn default() -> Self {
        Swarm {
            lasts: Duration::from_secs(10),
            always: false,
            partitions: true,
            cut_sites: false,
            crashes: false,
            pauses: true,
            lost_disks: false,
            absences: false,
            blackouts: false,
            deaths: false,
            jumps: Duration::ZERO,
        }
    }
}

/// The faults that one seed has drawn from a swarm.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The faults of the network until everything heals.
    pub network: NetworkFaults,
    /// How far clocks are off, for the whole run.
    pub clocks: Clocks,
    /// The other faults.
    pub faults: Vec<Scheduled>,
    /// When everything heals.
    pub ends: Timestamp,
}

impl Swarm {
    /// Draws the plan of the configuration's seed, for its nodes and geography.
    pub fn plan(&self, configuration: &Configuration) -> Plan {
        let random = &mut generator(configuration.seed, Purpose::Plan);
        let sites = 0..configuration.geography.sites.len();
        let round_trips = sites.map(|site| configuration.geography.longest_round_trip(site));
        let round_trip = round_trips.max().unwrap_or_default();
        let network = network(round_trip, random);
        let clocks = Clocks {
            skew: Duration::from_micros(if on(random) { power(random, 10, 50_000) } else { 0 }),
            drift_ppm: if on(random) { power(random, 1, 500) as u32 } else { 0 },
        };
        let mut plan =
            Plan { network, clocks, faults: Vec::new(), ends: Timestamp(0) + self.lasts };
        let shortest = round_trip.max(Duration::from_millis(1));
        let mut schedule = |random: &mut Random, most: u64, draw: &dyn Fn(&mut Random) -> Fault| {
            if self.strikes(random) {
                for _ in 0..random.random_range(1..=most) {
                    let (begins, ends) = self.window(shortest, random);
                    plan.faults.push(Scheduled { begins, ends, fault: draw(random) });
                }
            }
        };
        if self.partitions {
            schedule(random, 6, &|random| Fault::Partition(reach(configuration, random)));
            schedule(random, 3, &|random| {
                let factor = power(random, 2, 20) as f64;
                Fault::Slow(reach(configuration, random), factor)
            });
        }
        if self.pauses {
            schedule(random, 3, &|random| Fault::Pause(node(configuration, random)));
        }
        if !self.jumps.is_zero() {
            let most = self.jumps.as_micros() as u64;
            schedule(random, 3, &|random| {
                let by_us = power(random, 1, most) as i64;
                let by_us = if on(random) { by_us } else { -by_us };
                Fault::ClockJump(node(configuration, random), by_us)
            });
        }
        if self.deaths && configuration.clients > 1 {
            let most = configuration.clients as u64 / 2;
            let client = |random: &mut Random| random.random_range(0..most as usize);
            schedule(random, most, &|random| Fault::ClientDeath(client(random)));
        }
        if configuration.disk != crate::Disk::MEMORY {
            let machine = |random: &mut Random| random.random_range(0..configuration.machines());
            schedule(random, 3, &|random| {
                Fault::SlowDisk(machine(random), power(random, 2, 100) as u32)
            });
        }
        if self.cut_sites && configuration.sites > 1 && self.strikes(random) {
            self.cut_off(configuration, shortest, random, &mut plan.faults);
        }
        if self.crashes && self.strikes(random) {
            self.crash(configuration, shortest, random, &mut plan.faults);
        }
        plan
    }

    /// Draws whether faults of an enabled kind occur.
    fn strikes(&self, random: &mut Random) -> bool {
        on(random) || self.always
    }

    /// Draws an interval within the swarm's time, of at least `shortest` if that fits.
    fn window(&self, shortest: Duration, random: &mut Random) -> (Timestamp, Timestamp) {
        let (lasts, shortest) = (self.lasts.as_nanos() as u64, shortest.as_nanos() as u64);
        let length = power(random, shortest.min(lasts).max(1), lasts.max(1));
        let begins = random.random_range(0..=lasts.saturating_sub(length));
        (Timestamp(begins), Timestamp((begins + length).min(lasts)))
    }

    /// Cuts between sites.
    fn cut_off(
        &self,
        configuration: &Configuration,
        shortest: Duration,
        random: &mut Random,
        faults: &mut Vec<Scheduled>,
    ) {
        for _ in 0..random.random_range(1..=4) {
            let (begins, ends) = match random.random_range(0..3) {
                0 => self.most_of_the_time(random),
                _ => self.window(shortest, random),
            };
            let fault = Fault::Partition(reach_of_site(configuration, random));
            faults.push(Scheduled { begins, ends, fault });
        }
    }

    /// Crashes of at most a minority of each site at a time, and of all replicas at once if there are blackouts.
    fn crash(
        &self,
        configuration: &Configuration,
        shortest: Duration,
        random: &mut Random,
        faults: &mut Vec<Scheduled>,
    ) {
        let machines = configuration.machines();
        let most_down = (configuration.replicas - 1) / 2;
        let mut crashes: Vec<Scheduled> = Vec::new();
        if self.absences && most_down > 0 && self.strikes(random) {
            let (begins, ends) = self.most_of_the_time(random);
            let fault = Fault::Crash(random.random_range(0..machines));
            crashes.push(Scheduled { begins, ends, fault });
        }
        for _ in 0..random.random_range(1..=4 * i32::from(configuration.sites)) {
            let (begins, ends) = self.window(shortest, random);
            let machine = random.random_range(0..machines);
            let site = configuration.site_of_machine(machine);
            let overlapping = crashes.iter().filter(|other| {
                let is_here = match other.fault {
                    Fault::Crash(other) => configuration.site_of_machine(other) == site,
                    _ => false,
                };
                is_here && other.begins <= ends && begins <= other.ends
            });
            if overlapping.count() < most_down {
                crashes.push(Scheduled { begins, ends, fault: Fault::Crash(machine) });
            }
        }
        if self.lost_disks && self.strikes(random) {
            for crash in &mut crashes {
                if let Fault::Crash(machine) = crash.fault
                    && self.strikes(random)
                {
                    crash.fault = Fault::LostDisk(machine);
                }
            }
        }
        faults.append(&mut crashes);
        if self.blackouts && self.strikes(random) {
            for _ in 0..random.random_range(1..=2) {
                let begins = self.window(shortest, random).0;
                for machine in blacked_out(configuration, random) {
                    let length = power(random, 1, self.lasts.as_nanos() as u64 / 4);
                    let ends = Timestamp((begins.0 + length).min(self.lasts.as_nanos() as u64));
                    faults.push(Scheduled { begins, ends, fault: Fault::Crash(machine) });
                }
            }
        }
    }

    /// Draws an interval that begins in the first quarter and ends in the last.
    fn most_of_the_time(&self, random: &mut Random) -> (Timestamp, Timestamp) {
        let quarter = self.lasts.as_nanos() as u64 / 4;
        let begins = random.random_range(0..=quarter);
        (Timestamp(begins), Timestamp(3 * quarter + random.random_range(0..=quarter)))
    }
}

impl Plan {
    /// The configuration with the plan's network and clocks.
    pub fn apply_to(&self, configuration: Configuration) -> Configuration {
        Configuration { network: self.network, clocks: self.clocks, ..configuration }
    }
}

/// Draws the faults of the network, given the longest round trip.
fn network(round_trip: Duration, random: &mut Random) -> NetworkFaults {
    let mut up_to = |per_mille: u64| match on(random) {
        true => power(random, 1, per_mille) as f64 / 1000.0,
        false => 0.0,
    };
    NetworkFaults {
        jitter: up_to(1000),
        loss: up_to(100),
        duplication: up_to(100),
        reordering: up_to(300),
        extra_delay: round_trip * random.random_range(1..=4),
    }
}

/// Draws some links: those around a site or some nodes, in one direction or both.
fn reach(configuration: &Configuration, random: &mut Random) -> Reach {
    let places = match configuration.sites {
        1 => configuration.geography.sites.len(),
        sites => usize::from(sites),
    };
    let side = match random.random_range(0..4) {
        0 => Side::site(random.random_range(0..places)),
        1 => Side::node(node(configuration, random)),
        2 => Side::replicas([random.random_range(0..configuration.machines())]),
        _ => Side::replicas((0..configuration.machines()).filter(|_| on(random))),
    };
    match random.random_range(0..4) {
        0 => Reach::one_way(side.clone(), side.rest()),
        1 => Reach::one_way(side.clone().rest(), side),
        _ => Reach::around(side),
    }
}

/// Draws the links of a site to all others, or to one other, in one direction or both.
fn reach_of_site(configuration: &Configuration, random: &mut Random) -> Reach {
    let sites = usize::from(configuration.sites);
    let site = random.random_range(0..sites);
    let other = (site + random.random_range(1..sites)) % sites;
    let (site, other) = (Side::site(site), Side::site(other));
    match random.random_range(0..6) {
        0 => Reach::one_way(site.clone(), site.rest()),
        1 => Reach::one_way(site.clone().rest(), site),
        2 => Reach::one_way(site, other),
        3 => Reach::between(site, other),
        _ => Reach::around(site),
    }
}

/// Draws the machines that crash at once: all, or those of one site if there are several.
fn blacked_out(configuration: &Configuration, random: &mut Random) -> Range<usize> {
    if configuration.sites == 1 || on(random) {
        return 0..configuration.machines();
    }
    let site = random.random_range(0..usize::from(configuration.sites));
    site * configuration.replicas..(site + 1) * configuration.replicas
}

/// Draws a node: a client or, with one site, a replica of the first partition.
fn node(configuration: &Configuration, random: &mut Random) -> NodeId {
    let Configuration { sites, replicas, partitions, clients, .. } = *configuration;
    let machines = configuration.machines();
    let number = random.random_range(0..machines + clients);
    match number.checked_sub(machines) {
        None if sites == 1 => NodeId(number as u64),
        None => {
            let first = configuration.site_of_machine(number) * partitions;
            let partition = first + random.random_range(0..partitions);
            NodeId::replica(partition, number % replicas)
        }
        Some(client) => NodeId(NodeId::FIRST_COORDINATOR + client as u64),
    }
}

fn on(random: &mut Random) -> bool {
    random.random()
}

/// Draws a number from `least` to `most` whose logarithm is uniform, so that small numbers are as likely as large ones.
fn power(random: &mut Random, least: u64, most: u64) -> u64 {
    let doublings = (most / least).max(1).ilog2();
    let least = least << random.random_range(0..=doublings);
    random.random_range(least..=least.saturating_mul(2).min(most).max(least))
}

/// One line, to be printed with the seed.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NetworkFaults { jitter, loss, duplication, reordering, extra_delay } = self.network;
        write!(f, "jitter {jitter}, loss {loss}, duplication {duplication}, ")?;
        write!(f, "reordering {reordering} by up to {extra_delay:?}, ")?;
        write!(f, "skew {:?}, drift {} ppm", self.clocks.skew, self.clocks.drift_ppm)?;
        for scheduled in &self.faults {
            write!(f, "; {scheduled}")?;
        }
        write!(f, "; healed at {}", self.ends)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn plans(swarm: Swarm) -> impl Iterator<Item = Plan> {
        plans_for(1, swarm)
    }

    fn plans_for(sites: u16, swarm: Swarm) -> impl Iterator<Item = Plan> {
        (0..300).map(move |seed| {
            let disk = crate::Disk { keep_records: true, ..crate::Disk::MEMORY };
            let configuration =
                Configuration { seed, sites, clients: 4, disk, ..Configuration::default() };
            swarm.plan(&configuration)
        })
    }

    #[test]
    fn each_kind_of_fault_is_on_in_some_plans_and_off_in_others() {
        let has = |plan: &Plan, kind: fn(&Fault) -> bool| {
            plan.faults.iter().any(|scheduled| kind(&scheduled.fault))
        };
        let kinds: [&dyn Fn(&Plan) -> bool; 11] = [
            &|plan| plan.network.jitter > 0.0,
            &|plan| plan.network.loss > 0.0,
            &|plan| plan.network.duplication > 0.0,
            &|plan| plan.network.reordering > 0.0,
            &|plan| !plan.clocks.skew.is_zero(),
            &|plan| plan.clocks.drift_ppm > 0,
            &|plan| has(plan, |fault| matches!(fault, Fault::Partition(_))),
            &|plan| has(plan, |fault| matches!(fault, Fault::Pause(_))),
            &|plan| has(plan, |fault| matches!(fault, Fault::ClockJump(..))),
            &|plan| has(plan, |fault| matches!(fault, Fault::ClientDeath(_))),
            &|plan| has(plan, |fault| matches!(fault, Fault::SlowDisk(..))),
        ];
        let all = Swarm { deaths: true, jumps: Duration::from_secs(1), ..Swarm::default() };
        for (i, kind) in kinds.iter().enumerate() {
            let with = plans(all).filter(|plan| kind(plan)).count();
            assert!((75..225).contains(&with), "kind {i} is on in {with} of 300 plans");
        }
    }

    #[test]
    fn every_fault_begins_before_it_ends_and_ends_before_everything_heals() {
        for plan in plans(Swarm { crashes: true, ..Swarm::default() }) {
            for scheduled in &plan.faults {
                assert!(scheduled.begins < scheduled.ends && scheduled.ends <= plan.ends, "{plan}");
            }
        }
    }

    #[test]
    fn crashes_come_only_on_request_and_never_down_a_majority() {
        let is_crash = |scheduled: &&Scheduled| matches!(scheduled.fault, Fault::Crash(_));
        assert!(
            plans(Swarm::default()).all(|plan| !plan.faults.iter().any(|fault| is_crash(&fault)))
        );
        let mut seen = 0;
        let swarm = Swarm { crashes: true, absences: true, ..Swarm::default() };
        for plan in plans(swarm) {
            let crashes: Vec<&Scheduled> = plan.faults.iter().filter(is_crash).collect();
            seen += crashes.len();
            for (i, one) in crashes.iter().enumerate() {
                for other in &crashes[i + 1..] {
                    assert!(one.ends < other.begins || other.ends < one.begins, "{plan}");
                }
            }
        }
        assert!(seen > 100, "{seen} crashes in 300 plans");
    }

    #[test]
    fn all_replicas_crash_at_once_in_some_plans_on_request() {
        let all_at_once = |plan: &Plan| {
            plan.faults.iter().any(|first| {
                let same = |other: &&Scheduled| {
                    other.begins == first.begins && matches!(other.fault, Fault::Crash(_))
                };
                plan.faults.iter().filter(same).count() == 3
            })
        };
        let crashes = Swarm { crashes: true, ..Swarm::default() };
        assert!(!plans(crashes).any(|plan| all_at_once(&plan)));
        let with = plans(Swarm { blackouts: true, ..crashes }).filter(all_at_once).count();
        assert!((40..120).contains(&with), "{with} of 300 plans");
    }

    #[test]
    fn a_replica_is_down_most_of_the_time_in_some_plans_on_request() {
        let away = |plan: &Plan| {
            plan.faults.iter().any(|Scheduled { begins, ends, fault }| {
                let half = Duration::from_secs(5);
                matches!(fault, Fault::Crash(_)) && ends.since(*begins) >= half
            })
        };
        let swarm = Swarm { crashes: true, absences: true, ..Swarm::default() };
        let with = plans(swarm).filter(away).count();
        assert!((60..200).contains(&with), "{with} of 300 plans");
    }

    #[test]
    fn sites_are_cut_off_in_some_plans_on_request_and_sometimes_for_long() {
        let quiet = Swarm { partitions: false, ..Swarm::default() };
        let cut = Swarm { cut_sites: true, ..quiet };
        let is_cut = |scheduled: &&Scheduled| matches!(scheduled.fault, Fault::Partition(_));
        let with = |sites, swarm, is_it: &dyn Fn(&Scheduled) -> bool| {
            let has = |plan: &Plan| plan.faults.iter().filter(is_cut).any(is_it);
            plans_for(sites, swarm).filter(has).count()
        };
        assert_eq!((with(3, quiet, &|_| true), with(1, cut, &|_| true)), (0, 0));
        assert!(plans(cut).eq(plans(quiet)), "one site changes no plan");
        let of_site = |site| {
            move |scheduled: &Scheduled| {
                scheduled.fault == Fault::Partition(Reach::around(Side::site(site)))
            }
        };
        for site in 0..3 {
            let count = with(3, cut, &of_site(site));
            assert!((30..150).contains(&count), "site {site} is cut off in {count} of 300 plans");
        }
        assert_eq!(with(3, cut, &of_site(3)), 0, "there is no such site");
        let is_long =
            |Scheduled { begins, ends, .. }: &Scheduled| ends.since(*begins) >= quiet.lasts / 2;
        let long = with(3, cut, &is_long);
        assert!((50..150).contains(&long), "{long} of 300 plans");
    }

    #[test]
    fn crashes_never_down_a_majority_of_a_site_but_do_down_replicas_of_several() {
        let swarm = Swarm { crashes: true, absences: true, ..Swarm::default() };
        let overlap = |one: &Scheduled, other: &Scheduled| {
            one.begins <= other.ends && other.begins <= one.ends
        };
        let (mut seen, mut together) = (BTreeSet::new(), 0);
        for plan in plans_for(3, swarm) {
            let crashes: Vec<(usize, &Scheduled)> = plan
                .faults
                .iter()
                .filter_map(|scheduled| match scheduled.fault {
                    Fault::Crash(machine) => Some((machine, scheduled)),
                    _ => None,
                })
                .collect();
            seen.extend(crashes.iter().map(|(machine, _)| *machine));
            for (i, (machine, one)) in crashes.iter().enumerate() {
                for (_, other) in crashes[i + 1..].iter().filter(|(_, other)| overlap(one, other)) {
                    let Fault::Crash(other) = other.fault else { unreachable!() };
                    assert_ne!(machine / 3, other / 3, "{plan}");
                    together += 1;
                }
            }
        }
        assert!(seen.into_iter().eq(0..9), "each machine of each site crashes in some plan");
        assert!(together > 50, "{together}");
    }

    #[test]
    fn a_blackout_is_one_of_all_sites_or_of_one() {
        let swarm = Swarm { crashes: true, blackouts: true, ..Swarm::default() };
        let at_once = |plan: &Plan| {
            let mut begins: BTreeMap<Timestamp, Vec<usize>> = BTreeMap::new();
            for scheduled in &plan.faults {
                if let Fault::Crash(machine) = scheduled.fault {
                    begins.entry(scheduled.begins).or_default().push(machine);
                }
            }
            begins.into_values().filter(|machines| machines.len() > 1).collect::<Vec<_>>()
        };
        let blackouts: BTreeSet<Vec<usize>> =
            plans_for(2, swarm).flat_map(|plan| at_once(&plan)).collect();
        let expected = [vec![0, 1, 2], vec![0, 1, 2, 3, 4, 5], vec![3, 4, 5]];
        assert_eq!(blackouts, BTreeSet::from(expected));
    }

    #[test]
    fn nodes_of_all_sites_and_partitions_pause() {
        let configuration =
            |seed| Configuration { seed, sites: 2, partitions: 2, ..Configuration::default() };
        let plans = (0..300).map(|seed| Swarm::default().plan(&configuration(seed)));
        let paused: BTreeSet<NodeId> = plans
            .flat_map(|plan| plan.faults)
            .filter_map(|scheduled| match scheduled.fault {
                Fault::Pause(node) => Some(node),
                _ => None,
            })
            .collect();
        let replicas = (0..4)
            .flat_map(|partition| (0..3).map(move |member| NodeId::replica(partition, member)));
        let client = NodeId(NodeId::FIRST_COORDINATOR);
        assert!(paused.into_iter().eq(replicas.chain([client])));
    }

    #[test]
    fn a_seed_has_one_plan() {
        assert_eq!(plans(Swarm::default()).last(), plans(Swarm::default()).last());
    }
}

//! What would help a hot key, and by how much: an estimate, from what was measured.
//!
//! The model is a closed [queueing network](crate::queueing): clients run one transaction after the other, and each hot
//! key serves one transaction at a time, for the length of a serialization window. Every remedy is a change of this
//! network, and the expected factor is the throughput of the changed network divided by that of the network as it is.
//!
//! | What | Where it comes from |
//! |---|---|
//! | clients | their number, or transactions in progress at a time (throughput times latency) |
//! | a key's service time | its mean window if transactions wait for it, otherwise the [path](Trips) of a window |
//! | a key's demand | its service time, times the share of transactions that read it and write it |
//! | delay | the path of a transaction without waiting, or what explains the measured throughput |
//! | limit | cores, divided by the work of a transaction |

use serde::Serialize;
use serried_actor::{Contention, Turns};

use crate::KeyWindows;
use crate::queueing::Network;

/// A key is hot from this utilisation on: the share of time in which its windows leave no room for another.
const HOT: f64 = 0.5;
/// Advice that is expected to bring less is not given.
const LEAST_FACTOR: f64 = 1.15;
/// From this many attempts per commit on, transactions abort one another.
pub const MANY_ATTEMPTS: f64 = 1.3;
/// A key of whose writers fewer read it before needs no operation in place of a read and a write.
const MOST_READ: f64 = 0.6;
/// Into how many keys a key is split at most.
const MOST_PARTS: u32 = 8;
/// A split is into so many keys that more would bring less than this factor.
const ENOUGH: f64 = 1.1;
/// Locks and queues help where transactions change fewer hot keys than this. Otherwise they wait in circles.
const MOST_TOGETHER: f64 = 1.5;
/// By how much each other hot key that a transaction changes lengthens a window: it runs again when either changes.
const EACH_OTHER: f64 = 0.3;
/// From this share of transactions on that only read a key, it is not only changed.
const READERS: f64 = 0.05;
/// From this share on of its transactions that write all that they read, a program may not need what it reads.
const CLOSED: f64 = 0.8;
/// How many times a transaction that reads what others modify checks its reads again, where replicas are alike.
const READERS_AGAIN: f64 = 2.0;
/// How many events lie on a window's path, and on that of a transaction.
const WINDOW_EVENTS: f64 = 3.0;
const UPDATE_EVENTS: f64 = 8.0;
const MODIFY_EVENTS: f64 = 5.0;

/// Mean round trips, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Trips {
    /// Between a client and the replica that is nearest to it.
    pub nearest_ms: f64,
    /// Between any client and the replica that is nearest to any client.
    pub across_ms: f64,
    /// Between a client and as many replicas as have to agree.
    pub quorum_ms: f64,
    /// Between a client and the leader.
    pub leader_ms: f64,
    /// Between the leader and as many replicas as have to agree.
    pub replicas_ms: f64,
    /// How long a flush of a log takes; 0 if nobody waits for it.
    pub flush_ms: f64,
    /// The work of an event, in milliseconds.
    pub event_ms: f64,
}

/// What is known of a protocol.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    /// Its name.
    pub name: &'static str,
    /// What it does with hot keys.
    pub contention: Contention,
}

/// What was measured beside the windows of keys.
#[derive(Clone, PartialEq, Debug)]
pub struct Setting {
    /// What the protocol does with hot keys, if that is known.
    pub contention: Option<Contention>,
    /// Other protocols with at least the same guarantee.
    pub others: Vec<Candidate>,
    /// How many clients there are, or how many transactions are in progress at a time.
    pub clients: f64,
    /// Committed transactions per second.
    pub committed_per_s: f64,
    /// Attempts per committed transaction; `None` if they are unknown. Then there is no advice that depends on them.
    pub attempts: Option<f64>,
    /// Distances.
    pub trips: Trips,
    /// How many cores nodes and clients have together; `None` if they are never busy, or on machines that are unknown.
    pub cores: Option<f64>,
}

impl Setting {
    /// Whether transactions abort one another, if that is known.
    fn aborts(&self) -> Option<bool> {
        self.attempts.map(|attempts| attempts >= MANY_ATTEMPTS)
    }
}

/// What helps a key.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Remedy {
    /// An operation on the value in place of a read and a write.
    Modify,
    /// Reading the key for update.
    GetForUpdate,
    /// Another protocol.
    Protocol {
        /// Its name.
        protocol: &'static str,
        /// Whether the program has to read the key for update.
        for_update: bool,
    },
    /// Several keys in place of one.
    Split {
        /// How many.
        keys: u32,
    },
}

/// A remedy, and what is expected of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// The remedy.
    #[serde(flatten)]
    pub remedy: Remedy,
    /// By which factor the throughput of all transactions is expected to change.
    pub factor: f64,
    /// The throughput that follows, in transactions per second.
    pub expected_per_s: f64,
    /// What limits it then.
    pub limit: Limit,
}

/// What limits the throughput.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Each client waits for its own transaction.
    Clients,
    /// Windows of keys.
    Keys,
    /// Processors.
    Processors,
}

/// What was found out about one key.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Diagnosis {
    /// The key.
    pub key: String,
    /// The share of time in which its windows leave no room for another, at most 1.
    pub utilisation: f64,
    /// The share of its writers that had read it.
    pub read_before: f64,
    /// The share of all transactions that read it and write it.
    pub share: f64,
    /// Whether it bounds the throughput.
    pub hot: bool,
    /// What would help, the greatest expected factor first.
    pub advice: Vec<Advice>,
}

/// Paths of a protocol over these distances.
struct Paths<'a> {
    trips: &'a Trips,
    contention: Contention,
}

impl Paths<'_> {
    /// From a write until the next transaction, which waits for it, has read it and written.
    fn window_ms(&self) -> f64 {
        let trips = self.trips;
        let way = match self.contention.at_leader {
            true => trips.leader_ms,
            false => (trips.across_ms + trips.nearest_ms) / 2.0,
        };
        way + WINDOW_EVENTS * trips.event_ms
    }

    /// A commit, from when the program has ended.
    fn commit_ms(&self) -> f64 {
        let trips = self.trips;
        trips.flush_ms
            + match self.contention.at_leader {
                true => trips.leader_ms + self.contention.replications * trips.replicas_ms,
                false => trips.quorum_ms,
            }
    }

    /// A transaction that reads once and writes, without waiting for others.
    fn update_ms(&self) -> f64 {
        let read = match self.contention.at_leader {
            true => self.trips.leader_ms,
            false => self.trips.nearest_ms,
        };
        read + self.commit_ms() + UPDATE_EVENTS * self.trips.event_ms
    }

    /// A transaction that only modifies.
    fn modify_ms(&self) -> f64 {
        self.commit_ms() + MODIFY_EVENTS * self.trips.event_ms
    }
}

/// The share of a key's writers that had read it.
fn read_before(key: &KeyWindows) -> f64 {
    match key.writes_per_s > 0.0 {
        true => (key.achieved_per_s / key.writes_per_s).min(1.0),
        false => 0.0,
    }
}

/// The keys' demands and the rest of the network, as measured.
struct Measured<'a> {
    setting: &'a Setting,
    /// By key: the service time in milliseconds, and the share of transactions.
    keys: Vec<(f64, f64)>,
    windows: &'a [KeyWindows],
    /// What the keys' service times are of those that the protocol's paths would have.
    stretch: f64,
    delay_s: f64,
    /// Whether transactions wait for keys, whatever else they do.
    is_bound: bool,
}

/// What would help `keys`, of which those that are written most should be among them.
pub fn diagnose(keys: &[KeyWindows], setting: &Setting) -> Vec<Diagnosis> {
    let measured = Measured::new(keys, setting);
    keys.iter().enumerate().map(|(number, key)| measured.diagnose(number, key)).collect()
}

impl Measured<'_> {
    fn new<'a>(windows: &'a [KeyWindows], setting: &'a Setting) -> Measured<'a> {
        let contention = setting.contention.unwrap_or(Contention::LED);
        let paths = Paths { trips: &setting.trips, contention };
        let path_ms = paths.window_ms();
        let per_s = setting.committed_per_s.max(1e-9);
        let mean_ms = |key: &KeyWindows| 1e3 / key.achieved_per_s.max(1e-9);
        // Windows of a key that nobody waits for last until somebody comes along.
        let waits = setting.aborts() == Some(true);
        let update_s = paths.update_ms() / 1e3;
        let queue = setting.clients - per_s * update_s;
        let is_behind = |mean_ms| queue > setting.clients / 2.0 && mean_ms < 4.0 * path_ms;
        let stretch = match windows
            .iter()
            .filter(|key| key.achieved_per_s > 0.0)
            .map(mean_ms)
            .min_by(f64::total_cmp)
        {
            Some(mean_ms) if waits || mean_ms < 2.0 * path_ms || is_behind(mean_ms) => {
                (mean_ms / path_ms).max(0.5)
            }
            _ => 1.0,
        };
        let service_ms = path_ms * stretch;
        let of_key = |key: &KeyWindows| (service_ms, (key.achieved_per_s / per_s).min(1.0));
        let keys: Vec<(f64, f64)> = windows.iter().map(of_key).collect();
        let delay_s = update_s - path_ms / 1e3;
        let mut measured = Measured { setting, keys, windows, stretch, delay_s, is_bound: false };
        let busiest = measured.keys.iter().map(|(ms, share)| ms / 1e3 * share * per_s);
        measured.is_bound = busiest.fold(0.0, f64::max) > 0.8;
        if !measured.is_bound {
            measured.delay_s = measured.explaining(per_s);
        }
        measured
    }

    /// The delay with which the network has the measured throughput.
    fn explaining(&self, per_s: f64) -> f64 {
        let (mut least, mut most) = (0.0, self.setting.clients / per_s);
        for _ in 0..40 {
            let delay_s = (least + most) / 2.0;
            let network = Network { delay_s, ..self.network(self.setting.contention) };
            match network.throughput(self.setting.clients) > per_s {
                true => least = delay_s,
                false => most = delay_s,
            }
        }
        (least + most) / 2.0
    }

    /// The network as it is.
    fn network(&self, contention: Option<Contention>) -> Network {
        let events = contention.unwrap_or(Contention::LED).update_events;
        Network {
            delay_s: self.delay_s,
            demands_s: self.keys.iter().map(|(ms, share)| ms / 1e3 * share).collect(),
            most_per_s: self.most_per_s(events),
        }
    }

    fn most_per_s(&self, events: f64) -> f64 {
        let work_s = events * self.setting.trips.event_ms / 1e3;
        self.setting.cores.map_or(f64::INFINITY, |cores| cores / work_s.max(1e-9))
    }

    fn diagnose(&self, number: usize, key: &KeyWindows) -> Diagnosis {
        let (service_ms, share) = self.keys[number];
        let utilisation = (service_ms / 1e3 * key.achieved_per_s).min(1.0);
        let read_before = read_before(key);
        let hot = utilisation >= HOT;
        let mut advice: Vec<Advice> = match hot {
            true => self.remedies(number, read_before).collect(),
            false => Vec::new(),
        };
        advice.sort_by(|one, other| other.factor.total_cmp(&one.factor));
        Diagnosis { key: key.key.clone(), utilisation, read_before, share, hot, advice }
    }

    fn remedies(&self, number: usize, read_before: f64) -> impl Iterator<Item = Advice> {
        let mut advice = Vec::new();
        let setting = self.setting;
        // Neither holds if attempts are unknown.
        let aborts = setting.aborts() == Some(true);
        let takes_turns = setting.aborts() == Some(false);
        let alone = self.windows[number].together < MOST_TOGETHER;
        if let Some(contention) = setting.contention {
            let can_tell = takes_turns
                || self.readers(number) < READERS && self.windows[number].closed >= CLOSED;
            if contention.merges && read_before >= MOST_READ && can_tell {
                advice.push((Remedy::Modify, self.modified(number, contention)));
            }
            if contention.turns == Turns::ForUpdate && aborts && alone {
                advice.push((Remedy::GetForUpdate, self.with(contention)));
            }
        }
        let may_take_turns = setting.contention.is_none_or(|own| own.turns != Turns::Never);
        if aborts || takes_turns && may_take_turns {
            let best = setting.others.iter().filter(|other| match other.contention.turns {
                Turns::Always => true,
                Turns::ForUpdate => alone,
                Turns::Never => false,
            });
            let best = best.map(|other| (other, self.with(other.contention)));
            // Of two that promise about the same, the one that asks nothing of the program.
            let per_s = |(other, network): &(&Candidate, Network)| {
                let asks_nothing = other.contention.turns == Turns::Always;
                network.throughput(setting.clients) * if asks_nothing { ENOUGH } else { 1.0 }
            };
            let best = best.max_by(|one, other| per_s(one).total_cmp(&per_s(other)));
            advice.extend(best.map(|(other, network)| {
                let for_update = other.contention.turns == Turns::ForUpdate;
                (Remedy::Protocol { protocol: other.name, for_update }, network)
            }));
        }
        if takes_turns {
            advice.extend(self.split(number));
        }
        let now = match self.is_bound {
            true => setting.committed_per_s,
            false => self.network(setting.contention).throughput(setting.clients),
        };
        let rate = move |(remedy, network): (Remedy, Network)| {
            let expected_per_s = network.throughput(setting.clients);
            let factor = expected_per_s / now.max(1e-9);
            let busiest = network.demands_s.iter().copied().fold(0.0, f64::max);
            let limit = match () {
                () if expected_per_s >= network.most_per_s => Limit::Processors,
                () if busiest * expected_per_s > 0.8 => Limit::Keys,
                () => Limit::Clients,
            };
            Advice { remedy, factor, expected_per_s: factor * setting.committed_per_s, limit }
        };
        let advice: Vec<Advice> = advice.into_iter().map(rate).collect();
        advice.into_iter().filter(|advice| advice.factor >= LEAST_FACTOR)
    }

    /// The network if the key is modified instead of read and written.
    fn modified(&self, number: usize, contention: Contention) -> Network {
        let setting = self.setting;
        let paths = Paths { trips: &setting.trips, contention };
        let mut network = self.network(setting.contention);
        let mut share = 0.0;
        for other in self.modified_with(number) {
            network.demands_s[other] = 0.0;
            share += self.keys[other].1 / self.windows[other].together.max(1.0);
        }
        let share = share.min(1.0);
        if self.windows[number].closed < CLOSED {
            // What else they read takes as long as before.
            return network;
        }
        // Those that change the key need no round trip for reading it.
        let spared_ms = paths.update_ms() - paths.modify_ms() - paths.window_ms();
        network.delay_s = (network.delay_s - share * spared_ms.max(0.0) / 1e3).max(0.0);
        network.delay_s = network.delay_s.max(share * paths.modify_ms() / 1e3);
        if !contention.at_leader {
            network.delay_s += self.readers(number) * READERS_AGAIN * paths.commit_ms() / 1e3;
        }
        network.demands_s.push(share * contention.serial_events * setting.trips.event_ms / 1e3);
        let events = share * contention.modify_events + (1.0 - share) * contention.update_events;
        network.most_per_s = self.most_per_s(events);
        network
    }

    /// The keys that are modified when this one is. Programs that write all that they read do the same with every key.
    fn modified_with(&self, number: usize) -> impl Iterator<Item = usize> {
        let is_closed = |key: &KeyWindows| key.closed >= CLOSED && read_before(key) >= MOST_READ;
        let all = is_closed(&self.windows[number]);
        let others = self.windows.iter().enumerate();
        others.filter(move |(other, key)| *other == number || all && is_closed(key)).map(|(i, _)| i)
    }

    /// The share of transactions that read a key which is modified then, and do not write it.
    fn readers(&self, number: usize) -> f64 {
        let share = |key: usize| {
            let share = self.windows[key].read_only_per_s / self.setting.committed_per_s.max(1e-9);
            share.min(1.0)
        };
        1.0 - self.modified_with(number).map(|key| 1.0 - share(key)).product::<f64>()
    }

    /// The network if transactions take turns under a protocol.
    fn with(&self, contention: Contention) -> Network {
        let setting = self.setting;
        let paths = Paths { trips: &setting.trips, contention };
        let now = setting.contention.map(|contention| Paths { trips: &setting.trips, contention });
        let takes_turns = setting.aborts() == Some(false);
        let stretch = if takes_turns { self.stretch.max(1.0) } else { 1.0 };
        let ratio = now.map_or(1.0, |now| paths.update_ms() / now.update_ms());
        let delay_s = match self.is_bound || !takes_turns {
            true => (paths.update_ms() - paths.window_ms()) / 1e3,
            false => self.delay_s * ratio,
        };
        let service_s = |key: &KeyWindows| {
            let others = if takes_turns { 0.0 } else { (key.together - 1.0).max(0.0) };
            paths.window_ms() * stretch * (1.0 + EACH_OTHER * others) / 1e3
        };
        let keys = self.keys.iter().zip(self.windows);
        let mut network = Network {
            delay_s,
            demands_s: keys.map(|((_, share), key)| service_s(key) * share).collect(),
            most_per_s: self.most_per_s(contention.update_events),
        };
        if !takes_turns && !contention.at_leader {
            network.delay_s += self.overtaken(&network) * paths.commit_ms() / 1e3;
        }
        network
    }

    /// How many of the keys that it only reads are written by others while an average transaction runs. Each time it
    /// checks its reads again.
    fn overtaken(&self, network: &Network) -> f64 {
        let (now_per_s, clients) = (self.setting.committed_per_s.max(1e-9), self.setting.clients);
        let per_s = network.throughput(clients);
        let writes = |key: &KeyWindows| key.writes_per_s / now_per_s * per_s * network.delay_s;
        let overtaken =
            |key: &KeyWindows| key.read_only_per_s / now_per_s * (1.0 - (-writes(key)).exp());
        self.windows.iter().map(overtaken).sum()
    }

    /// The network if the key is split into as many keys as help.
    fn split(&self, number: usize) -> Option<(Remedy, Network)> {
        let network = |keys: u32| {
            let mut network = self.network(self.setting.contention);
            let demand = network.demands_s[number] / f64::from(keys);
            network.demands_s[number] = demand;
            network.demands_s.extend((1..keys).map(|_| demand));
            network
        };
        let throughput = |keys| network(keys).throughput(self.setting.clients);
        let mut keys = 1;
        while keys < MOST_PARTS && throughput(keys * 2) > throughput(keys) * ENOUGH {
            keys *= 2;
        }
        (keys > 1).then(|| (Remedy::Split { keys }, network(keys)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that `changes` transactions per second read and write. Others write it without reading, or only read it.
    fn key(changes: f64, blind: f64, readers: f64) -> KeyWindows {
        KeyWindows {
            key: "k".into(),
            writes_per_s: changes + blind,
            achieved_per_s: changes,
            read_only_per_s: readers,
            together: 1.0,
            closed: 1.0,
            latency_ms: None,
            serialization: None,
            validity: None,
            until_told_ms: None,
            windows: Vec::new(),
        }
    }

    /// A protocol where `clients` commit so many transactions per second, over round trips of 10 ms.
    fn setting(contention: Contention, clients: f64, committed_per_s: f64) -> Setting {
        let trips = Trips {
            nearest_ms: 10.0,
            across_ms: 10.0,
            quorum_ms: 10.0,
            leader_ms: 10.0,
            replicas_ms: 10.0,
            flush_ms: 0.0,
            event_ms: 0.0,
        };
        let (others, attempts, cores) = (Vec::new(), Some(1.0), None);
        let contention = Some(contention);
        Setting { contention, others, clients, committed_per_s, attempts, trips, cores }
    }

    const QUEUES: Contention =
        Contention { turns: Turns::ForUpdate, merges: true, ..Contention::LED };

    fn only(keys: &[KeyWindows], setting: &Setting) -> Diagnosis {
        diagnose(keys, setting).swap_remove(0)
    }

    #[test]
    fn a_key_that_everybody_changes_is_hot_and_what_helps_most_comes_first() {
        let diagnosis = only(&[key(100.0, 0.0, 0.0)], &setting(QUEUES, 64.0, 100.0));
        assert!(diagnosis.hot && diagnosis.utilisation > 0.9, "{diagnosis:?}");
        let remedies: Vec<&Remedy> = diagnosis.advice.iter().map(|advice| &advice.remedy).collect();
        assert_eq!(remedies, [&Remedy::Modify, &Remedy::Split { keys: 8 }]);
        // 64 clients, each of which waits for two round trips.
        assert!((3100.0..3300.0).contains(&diagnosis.advice[0].expected_per_s), "{diagnosis:?}");
        assert_eq!(diagnosis.advice[0].limit, Limit::Clients);
        assert!((5.0..8.0).contains(&diagnosis.advice[1].factor), "{diagnosis:?}");
    }

    #[test]
    fn a_key_that_is_changed_now_and_then_is_not_hot_and_gets_no_advice() {
        // One client makes 30 transactions per second, of which a few meet.
        let diagnosis = only(&[key(3.0, 0.0, 0.0)], &setting(QUEUES, 64.0, 2_000.0));
        assert!(!diagnosis.hot && diagnosis.advice.is_empty(), "{diagnosis:?}");
    }

    #[test]
    fn keys_that_are_only_read_or_only_written_are_not_hot() {
        for key in [key(0.0, 0.0, 2_000.0), key(0.0, 2_000.0, 0.0)] {
            let diagnosis = only(&[key], &setting(QUEUES, 64.0, 2_000.0));
            assert!(!diagnosis.hot && diagnosis.advice.is_empty(), "{diagnosis:?}");
        }
    }

    #[test]
    fn no_operation_takes_the_place_of_writes_that_read_nothing() {
        let diagnosis = only(&[key(100.0, 300.0, 0.0)], &setting(QUEUES, 64.0, 400.0));
        assert!(diagnosis.hot, "{diagnosis:?}");
        assert!(diagnosis.advice.iter().all(|advice| advice.remedy != Remedy::Modify));
    }

    #[test]
    fn reads_for_update_help_where_transactions_abort_and_would_take_turns() {
        let attempts = Some(5.0);
        let aborting = |contention| Setting { attempts, ..setting(contention, 64.0, 40.0) };
        let diagnosis = only(&[key(40.0, 0.0, 0.0)], &aborting(QUEUES));
        let advice = diagnosis.advice.iter().find(|one| one.remedy == Remedy::GetForUpdate);
        assert!((2.3..2.6).contains(&advice.unwrap().factor), "{diagnosis:?}");
        let diagnosis = only(&[key(40.0, 0.0, 0.0)], &aborting(Contention::LED));
        assert_eq!(diagnosis.advice, []);
    }

    #[test]
    fn another_protocol_is_named_if_it_has_the_guarantee_and_lets_transactions_take_turns() {
        let named =
            |name, turns| Candidate { name, contention: Contention { turns, ..Contention::ALIKE } };
        let others = vec![named("aborts", Turns::Never), named("turns", Turns::Always)];
        let attempts = Some(5.0);
        let setting = Setting { attempts, others, ..setting(Contention::ALIKE, 64.0, 10.0) };
        let diagnosis = only(&[key(10.0, 0.0, 0.0)], &setting);
        let remedy = Remedy::Protocol { protocol: "turns", for_update: false };
        assert_eq!(diagnosis.advice.len(), 1, "{diagnosis:?}");
        assert_eq!(diagnosis.advice[0].remedy, remedy);
    }

    #[test]
    fn of_two_protocols_alike_the_one_that_asks_nothing_of_the_program_is_named() {
        let named = |name, turns, update_events| Candidate {
            name,
            contention: Contention { turns, update_events, ..Contention::ALIKE },
        };
        let best = |events_of_queues| {
            let others = vec![
                named("turns", Turns::Always, 12.0),
                named("queues", Turns::ForUpdate, events_of_queues),
            ];
            let attempts = Some(5.0);
            let mut setting =
                Setting { attempts, others, ..setting(Contention::ALIKE, 64.0, 10.0) };
            (setting.trips.event_ms, setting.cores) = (2.0, Some(1.0));
            only(&[key(10.0, 0.0, 0.0)], &setting).advice.swap_remove(0).remedy
        };
        let protocol = |protocol, for_update| Remedy::Protocol { protocol, for_update };
        assert_eq!(best(11.5), protocol("turns", false));
        assert_eq!(best(9.0), protocol("queues", true));
    }

    #[test]
    fn processors_limit_what_is_expected() {
        let mut setting = setting(QUEUES, 64.0, 100.0);
        setting.trips.event_ms = 1.0;
        setting.cores = Some(2.0);
        let diagnosis = only(&[key(100.0, 0.0, 0.0)], &setting);
        let advice = &diagnosis.advice[0];
        assert_eq!(advice.limit, Limit::Processors, "{diagnosis:?}");
        // 6.5 events of a millisecond each, on two cores.
        assert!((300.0..=310.0).contains(&advice.expected_per_s), "{diagnosis:?}");
    }

    #[test]
    fn nobody_is_to_queue_for_a_key_that_is_changed_together_with_other_hot_keys() {
        let queues = Candidate { name: "queues", contention: QUEUES };
        let setting =
            Setting { attempts: Some(5.0), others: vec![queues], ..setting(QUEUES, 64.0, 40.0) };
        let remedies = |together: f64| -> Vec<Remedy> {
            let keys = vec![KeyWindows { together, ..key(40.0, 0.0, 0.0) }; 2];
            let diagnosis = only(&keys, &setting);
            let advice = diagnosis.advice.into_iter().map(|one| one.remedy);
            advice.filter(|remedy| *remedy != Remedy::Modify).collect()
        };
        let other = Remedy::Protocol { protocol: "queues", for_update: true };
        assert_eq!(remedies(MOST_TOGETHER - 0.01), [Remedy::GetForUpdate, other]);
        assert_eq!(remedies(MOST_TOGETHER), []);
    }

    #[test]
    fn advice_that_depends_on_aborts_is_missing_while_they_are_unknown() {
        let always = Contention { turns: Turns::Always, ..Contention::ALIKE };
        let others = || vec![Candidate { name: "turns", contention: always }];
        let remedies = |key: KeyWindows, attempts| {
            let setting =
                Setting { attempts, others: others(), ..setting(QUEUES, 64.0, key.achieved_per_s) };
            let remedies = only(&[key], &setting).advice.into_iter().map(|advice| advice.remedy);
            remedies.collect::<Vec<_>>()
        };
        let depends = |remedy: &Remedy| *remedy != Remedy::Modify;
        for (per_s, attempts) in [(100.0, 1.0), (40.0, 5.0)] {
            let known = remedies(key(per_s, 0.0, 0.0), Some(attempts));
            assert!(known.iter().any(depends), "{attempts}: {known:?}");
        }
        assert_eq!(remedies(key(100.0, 0.0, 0.0), None), [Remedy::Modify]);
        // It would not help if readers had to check again what they have read.
        assert_eq!(remedies(key(100.0, 0.0, 50.0), None), []);
    }

    #[test]
    fn a_commit_takes_a_flush_where_somebody_waits_for_it() {
        let mut setting = setting(QUEUES, 64.0, 100.0);
        setting.trips.flush_ms = 20.0;
        let diagnosis = only(&[key(100.0, 0.0, 0.0)], &setting);
        let advice = &diagnosis.advice[0];
        assert_eq!(advice.remedy, Remedy::Modify, "{diagnosis:?}");
        // 64 clients, each of which waits for two round trips and a flush.
        assert!((1550.0..1650.0).contains(&advice.expected_per_s), "{diagnosis:?}");
    }

    #[test]
    fn what_a_program_reads_beside_a_key_is_work_as_before_when_that_is_modified() {
        let mut setting = setting(QUEUES, 64.0, 100.0);
        (setting.trips.event_ms, setting.cores) = (1.0, Some(2.0));
        let expected = |closed: f64| {
            let diagnosis = only(&[KeyWindows { closed, ..key(100.0, 0.0, 0.0) }], &setting);
            let modify = diagnosis.advice.iter().find(|one| one.remedy == Remedy::Modify);
            modify.expect("it helps").expected_per_s
        };
        // On two cores: 12 events of a millisecond each, or 6.5.
        let [open, closed] = [CLOSED - 0.01, CLOSED].map(expected);
        assert!((160.0..170.0).contains(&open), "{open}");
        assert!((300.0..=310.0).contains(&closed), "{closed}");
    }

    #[test]
    fn those_who_only_read_what_is_modified_check_again_where_replicas_are_alike() {
        let alike = Contention { merges: true, ..Contention::ALIKE };
        let diagnosis = only(&[key(100.0, 0.0, 100.0)], &setting(alike, 64.0, 200.0));
        let modify = diagnosis.advice.iter().find(|one| one.remedy == Remedy::Modify);
        // 10 ms for each, and twice 10 ms more for the half that only reads.
        let expected = modify.expect("it helps").expected_per_s;
        assert!((3100.0..3300.0).contains(&expected), "{diagnosis:?}");
    }
}

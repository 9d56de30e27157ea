//! No message ends a node or a client, whatever its bytes: the messages of a run are changed, as a broken or
//! malicious sender would, and what can still be decoded is delivered to live replicas, to replicas that come back
//! and to clients at work.
//!
//! They may then do anything but panic. `SERRIED_SEEDS=1000` tries more, `SERRIED_FIRST_SEED=17 SERRIED_SEEDS=1` a
//! single seed again, and `SERRIED_PROTOCOL=abd` one protocol. With `--nocapture`, how many of the messages could be
//! decoded, and which these were.

#[allow(dead_code, reason = "each test exercises keyspaces in some of the ways")]
#[path = "../support/exercise.rs"]
mod exercise;
mod mutator;
mod scene;
#[allow(dead_code, reason = "it is shared with suites that trace")]
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus as Random;
use rand::{RngExt, SeedableRng};
use serried_actor::{Protocol, Wire};
use serried_model::NodeId;
use serried_protocols::{Visitor, visit_any};
use serried_sim::{Cluster, Fate, Fault, FaultId};

use exercise::Exercise;
use mutator::{Way, forge};
use scene::{Receivers, working};
use support::seeds;

/// How many messages are forged with each seed.
const FORGED: usize = 2000;
/// With how many messages in between a machine that is to return crashes, and starts again.
const CRASH_EVERY: usize = 60;

/// What became of forged messages.
#[derive(Default)]
struct Tally {
    tried: BTreeMap<&'static str, usize>,
    delivered: BTreeMap<&'static str, usize>,
    /// How many the receivers saw to be forged.
    rejected: u64,
    /// By the names that messages begin with.
    sorts: BTreeMap<String, usize>,
}

impl Tally {
    fn count(&mut self, way: Way, message: Option<&str>) {
        let way = match way {
            Way::Bytes => "bytes",
            Way::Fields => "fields",
        };
        *self.tried.entry(way).or_default() += 1;
        if let Some(text) = message {
            *self.delivered.entry(way).or_default() += 1;
            let name = |c: char| !c.is_alphanumeric() && c != '(';
            *self.sorts.entry(text.split(name).next().unwrap_or("").to_string()).or_default() += 1;
        }
    }

    fn merge(&mut self, other: Tally) {
        add(&mut self.tried, other.tried);
        add(&mut self.delivered, other.delivered);
        add(&mut self.sorts, other.sorts);
        self.rejected += other.rejected;
    }
}

fn add<K: Ord>(all: &mut BTreeMap<K, usize>, more: BTreeMap<K, usize>) {
    more.into_iter().for_each(|(what, count)| *all.entry(what).or_default() += count);
}

/// Forges messages; what panicked, and after which message.
struct Forge {
    seed: u64,
    receivers: Receivers,
}

impl<F: Exercise> Visitor<F> for Forge {
    type Output = Result<Tally, String>;

    fn visit<P: Protocol<Family = F>>(self) -> Self::Output {
        let mut random = Random::seed_from_u64(self.seed);
        let (mut cluster, heard) = working::<F, P>(self.seed, self.receivers);
        let clients = self.receivers == Receivers::Clients;
        // Otherwise clients have nothing to do with it.
        cluster.set_interceptor(Box::new(move |passing| {
            match passing.to.is_coordinator() && !clients {
                true => Fate::Lose,
                false => Fate::Pass,
            }
        }));
        let mut tally = Tally::default();
        let mut down = None;
        for number in 0..FORGED {
            let [one, other] = heard.pair(&mut random);
            let decode = |bytes: &[u8]| P::Message::decode(bytes).ok();
            let (way, message) = forge(&one.pieces, &other.pieces, &mut random, decode);
            let text = message.as_ref().map(|message| format!("{message:?}"));
            tally.count(way, text.as_deref());
            let from = if random.random_ratio(1, 8) { other.from } else { one.from };
            let pause = if number % 64 == 0 { 20_000 } else { random.random_range(1..200) };
            let step = AssertUnwindSafe(|| {
                if self.receivers == Receivers::Returning {
                    crash_and_return(&mut cluster, &mut down, number);
                }
                if let Some(message) = message {
                    cluster.forge(from, receiver(one.to, number, self.receivers), message);
                }
                cluster.run_until(cluster.now() + Duration::from_micros(pause));
            });
            if catch_unwind(step).is_err() {
                let text = text.unwrap_or_default();
                return Err(format!("message {number}, {text}, from {from} to {}", one.to));
            }
        }
        tally.rejected = cluster.statistics().rejected;
        Ok(tally)
    }
}

/// Who gets the `number`-th message, which is like one for `to`: often it is who returns.
fn receiver(to: NodeId, number: usize, receivers: Receivers) -> NodeId {
    if receivers != Receivers::Returning || number.is_multiple_of(2) || to.is_coordinator() {
        return to;
    }
    NodeId::replica(to.partition(), returning(number))
}

/// Which machine crashes and returns at about the `number`-th message.
fn returning(number: usize) -> usize {
    number / CRASH_EVERY % 3
}

/// Has machines crash and start again, one at a time; every other time the disk is lost as well, as far as the
/// others can do without it.
fn crash_and_return<P: Protocol>(
    cluster: &mut Cluster<P>,
    down: &mut Option<FaultId>,
    number: usize,
) {
    let member = returning(number);
    match number % CRASH_EVERY {
        0 if (number / CRASH_EVERY).is_multiple_of(2) => {
            *down = Some(cluster.begin(Fault::Crash(member)))
        }
        0 => *down = Some(cluster.begin(Fault::LostDisk(member))),
        4 => down.take().into_iter().for_each(|fault| cluster.end(fault)),
        _ => {}
    }
}

/// Forges messages for these receivers under every protocol.
fn hold(receivers: Receivers, usual: u64) {
    let chosen = std::env::var("SERRIED_PROTOCOL").ok();
    let is_meant = |name: &&str| chosen.as_ref().is_none_or(|chosen| chosen == name);
    for name in serried_protocols::list().iter().map(|protocol| protocol.name).filter(is_meant) {
        let mut all = Tally::default();
        for seed in seeds(usual) {
            let tally = visit_any(name, Forge { seed, receivers }).unwrap();
            all.merge(tally.unwrap_or_else(|what| {
                panic!("SERRIED_PROTOCOL={name} SERRIED_FIRST_SEED={seed} SERRIED_SEEDS=1: {what}")
            }));
        }
        let Tally { tried, delivered, rejected, sorts } = all;
        println!(
            "{name}, {receivers:?}: tried {tried:?}, delivered {delivered:?}, of which {rejected} were rejected: {sorts:?}"
        );
        // Most of what replicas may tell clients is not seen to be forged.
        let is_seen = rejected > 0 || receivers == Receivers::Clients;
        assert!(is_seen, "{name}: what no correct sender sends is reported");
        assert!(delivered["fields"] > tried["fields"] / 2, "{name}: most fields can be changed");
    }
}

#[test]
fn no_message_ends_a_node() {
    hold(Receivers::Replicas, 2);
}

#[test]
fn no_message_ends_a_node_that_comes_back() {
    hold(Receivers::Returning, 1);
}

#[test]
fn no_message_ends_a_client() {
    hold(Receivers::Clients, 1);
}

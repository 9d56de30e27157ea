//! Clusters at work, and what is said in them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus as Random;
use serried_actor::{Protocol, Settings, Timestamp, Wire};
use serried_model::NodeId;
use serried_sim::{Cluster, Configuration, Disk, Fate, Fault, Scheduled};

use crate::exercise::Exercise;

/// How many messages are kept of those that begin alike and have as many pieces.
const KEPT: usize = 24;
/// How long clients work before messages are forged.
const WORK: Timestamp = Timestamp(40_000_000);

/// Who gets forged messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Receivers {
    /// Replicas, while clients are done.
    Replicas,
    /// Replicas of machines that crash, start again and lose their disks meanwhile.
    Returning,
    /// Clients at work.
    Clients,
}

/// A message, in the pieces of its encoding, with who sent it to whom.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) pieces: Vec<Vec<u8>>,
}

/// Messages that begin alike and have as many pieces, each of these sorts.
pub(crate) struct Heard(Vec<Vec<Seen>>);

impl Heard {
    /// Two of them, of any sorts or of the same.
    pub(crate) fn pair(&self, random: &mut Random) -> [&Seen; 2] {
        let one = &self.0[random.random_range(0..self.0.len())];
        let sort =
            if random.random() { one } else { &self.0[random.random_range(0..self.0.len())] };
        [one, sort].map(|sort| &sort[random.random_range(0..sort.len())])
    }
}

/// A cluster whose clients read, write, modify and delete, and what the receivers have been told.
pub(crate) fn working<F: Exercise, P: Protocol<Family = F>>(
    seed: u64,
    receivers: Receivers,
) -> (Cluster<P>, Heard) {
    let settings = Settings {
        truncation_every_ms: 5,
        truncation_lag_ms: 10,
        recovery_after_ms: 5,
        outcomes_ms: 20,
        resident_keys: 4,
        ..Settings::default()
    };
    let disk = Disk { keep_records: true, ..Disk::MEMORY };
    let mut cluster = Cluster::<P>::new(Configuration {
        seed,
        partitions: 2,
        clients: 3,
        disk,
        settings,
        ..Configuration::default()
    });
    let heard = listen(&mut cluster, receivers == Receivers::Clients);
    let rounds = if receivers == Receivers::Clients { u64::MAX } else { 40 };
    for client in 0..3 {
        let keyspace = cluster.keyspace(client);
        cluster.spawn(client, async move {
            for i in 0..rounds {
                // Whatever comes of it: much of it conflicts.
                F::act_in_many_ways(&keyspace, i).await;
            }
        });
    }
    if receivers == Receivers::Returning {
        for (begins, fault) in [(5, Fault::Crash(1)), (20, Fault::LostDisk(2))] {
            let [begins, ends] = [begins, begins + 5].map(|ms| Timestamp(ms * 1_000_000));
            cluster.schedule(Scheduled { begins, ends, fault });
        }
    }
    cluster.run_until(WORK);
    let heard = core::mem::take(&mut *heard.lock().unwrap());
    (cluster, Heard(heard.into_values().collect()))
}

type Sorts = BTreeMap<(Vec<u8>, usize), Vec<Seen>>;

/// Has what clients or replicas are told kept from now on.
fn listen<P: Protocol>(cluster: &mut Cluster<P>, clients: bool) -> Arc<Mutex<Sorts>> {
    let heard: Arc<Mutex<Sorts>> = Arc::default();
    let keeps = heard.clone();
    cluster.set_interceptor(Box::new(move |passing| {
        if passing.to.is_coordinator() == clients {
            let pieces = passing.message.pieces();
            let mut heard = keeps.lock().unwrap();
            let alike = heard.entry((pieces[0].clone(), pieces.len())).or_default();
            if alike.len() < KEPT {
                alike.push(Seen { from: passing.from, to: passing.to, pieces });
            }
        }
        Fate::Pass
    }));
    heard
}

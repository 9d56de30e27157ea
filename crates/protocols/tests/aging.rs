//! A transaction that is tried again keeps its age. So it becomes the oldest in time, and no other one has it abort.

use std::time::Duration;

use serried_actor::{Group, Protocol, Settings, Timestamp};
use serried_model::transactions::Offers;
use serried_model::{Guarantee, NodeId, Transactions, Value};
use serried_protocols::Mutated;
use serried_protocols::frameworks::shard::{self, Control};
use serried_protocols::two_phase_locking::Locking;
use serried_protocols::two_phase_locking::TwoPhaseLockingWoundWait as WoundWait;
use serried_session::{Backoff, TransactOptions, TransactionKeyspace};
use serried_sim::{Cluster, Configuration};

const LIMIT: Timestamp = Timestamp(600_000_000_000);
/// So many attempts are enough for everybody.
const MOST: u32 = 25;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// Wound-wait in which an attempt is as young as its version.
struct AgesAnew;

impl Protocol for AgesAnew {
    const NAME: &'static str = "AgesAnew";
    const SUMMARY: &'static str = "broken on purpose";
    const GUARANTEE: Guarantee = <Locking<true> as Control>::GUARANTEE;
    type Family = Transactions;
    const OFFERS: Offers = shard::offers::<Locking<true>>();
    type Message = shard::Message;
    type Coordinator = shard::Coordinator<Locking<true>>;
    type Replica = shard::Replica<Locking<true>>;

    fn coordinator(group: Group, settings: &Settings) -> Self::Coordinator {
        shard::Coordinator::new(group, settings)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Self::Replica {
        shard::Replica::new(id, group, settings, Mutated::by(shard::Mutation::AgesAnew))
    }
}

/// Adds one to keys, one after the other. Returns how many attempts it took.
async fn increment(keyspace: &TransactionKeyspace, keys: &[&'static str]) -> u32 {
    let committed = keyspace.transact(|tx| async move {
        for key in keys {
            let value = tx.get(*key).await?;
            let number = value.map_or(0, |value| value.to_string().parse().expect("a number"));
            tx.put(*key, Value::from((number + 1_u64).to_string().as_str()));
        }
        Ok(())
    });
    committed.await.expect("it commits in the end").attempts
}

/// The most attempts that any of many transactions takes. All increment the same four keys, in different orders.
fn attempts<P: Protocol<Family = Transactions>>(seed: u64) -> u32 {
    let (replicas, clients) = (3, 12);
    let configuration = Configuration { replicas, clients, seed, ..Configuration::default() };
    let mut cluster = Cluster::<P>::new(configuration);
    let deadline = Duration::from_secs(300);
    // Who is tried again does not stand back for others.
    let (first, most) = (Duration::from_millis(1), Duration::from_millis(1));
    let backoff = Backoff::Exponential { first, most };
    let options = TransactOptions { deadline, attempts: u32::MAX, backoff };
    let (sender, receiver) = std::sync::mpsc::channel();
    for client in 0..clients {
        let keyspace = cluster.keyspace(client).with_options(options);
        let sender = sender.clone();
        cluster.spawn(client, async move {
            let mut keys = KEYS;
            keys.rotate_left(client % KEYS.len());
            for _ in 0..50 {
                sender.send(increment(&keyspace, &keys).await).expect("it is received");
            }
        });
    }
    drop(sender);
    cluster.run_until_done(LIMIT).expect("all end");
    drop(cluster);
    receiver.iter().max().expect("it has committed")
}

#[test]
fn who_is_tried_again_is_not_put_off_by_those_that_began_later() {
    for seed in 0..5 {
        assert!(attempts::<WoundWait>(seed) <= MOST, "seed {seed}");
        assert!(attempts::<AgesAnew>(seed) > MOST, "seed {seed}: without ages some are put off");
    }
}

//! What a chain of transactions costs that each write what depends on what the one before has written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serried_actor::{Protocol, Timestamp};
use serried_model::{Geography, Transactions};
use serried_protocols::{Visitor, visit};
use serried_session::Transaction;
use serried_sim::{Cluster, Configuration};

const INCREMENTS: u64 = 20;

/// So many clients increment a counter. Returns how often that is re-executed, by all together.
struct Counter(usize);

impl Visitor<Transactions> for Counter {
    type Output = u64;

    fn visit<P: Protocol<Family = Transactions>>(self) -> u64 {
        let Counter(clients) = self;
        let geography = Geography::named("reg").unwrap();
        let configuration = Configuration { clients, geography, ..Configuration::default() };
        let mut cluster = Cluster::<P>::new(configuration);
        let re_executions = Arc::new(AtomicU64::new(0));
        for client in 0..clients {
            let keyspace = cluster.keyspace(client);
            let re_executions = re_executions.clone();
            cluster.spawn(client, async move {
                for _ in 0..INCREMENTS {
                    let increment = |tx: Transaction| async move {
                        let old = tx.get("counter").await?.map_or(0, |value| {
                            u64::from_be_bytes(value.as_bytes().try_into().unwrap())
                        });
                        tx.put("counter", (old + 1).to_be_bytes());
                        Ok(())
                    };
                    let committed = keyspace.transact(increment).await.unwrap();
                    re_executions.fetch_add(u64::from(committed.re_executions), Ordering::Relaxed);
                }
            });
        }
        cluster.run_until_done(Timestamp(600_000_000_000)).unwrap();
        re_executions.load(Ordering::Relaxed)
    }
}

#[test]
fn an_increment_is_re_executed_as_often_whether_few_or_many_come_before_it() {
    for clients in [4, 64] {
        let increments = clients as u64 * INCREMENTS;
        let re_executions = visit("morty", Counter(clients)).unwrap();
        assert!(re_executions < 2 * increments, "{re_executions} for {increments}");
    }
}

//! The public API against nodes on loopback.

use serried::{
    Abort, Backoff, ConnectError, Database, Next, TransactOptions, TransactionError, Value,
};
use serried_local::{KeyspaceConfiguration, LocalCluster, LocalOptions};

fn cluster() -> LocalCluster {
    let keyspaces = [KeyspaceConfiguration::new("accounts", "morty")];
    LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap()
}

fn number(value: Option<Value>) -> Result<u64, Abort> {
    let value = value.ok_or_else(|| Abort::new("no such account"))?;
    Ok(std::str::from_utf8(value.as_bytes())?.parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_is_neither_made_nor_lost_by_transfers_from_many_tasks() {
    const ACCOUNTS: usize = 8;
    let cluster = cluster();
    let db = Database::connect(&cluster.url()).await.unwrap();
    let accounts = db.keyspace("accounts").await.unwrap();
    let name = |i: usize| format!("account-{}", i % ACCOUNTS);
    for i in 0..ACCOUNTS {
        accounts.put(name(i), "100").await.unwrap();
    }
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let accounts = accounts.clone();
            tokio::spawn(async move {
                for round in 0..10 {
                    let (from, to) = (name(task), name(task + 1 + round % (ACCOUNTS - 1)));
                    let (from, to) = (&*from, &*to);
                    accounts
                        .transact(|tx| async move {
                            let (before, after) =
                                (number(tx.get(from).await?)?, number(tx.get(to).await?)?);
                            let moved = before.min(3);
                            tx.put(from, (before - moved).to_string());
                            tx.put(to, (after + moved).to_string());
                            Ok(())
                        })
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let balances = accounts.get_many((0..ACCOUNTS).map(name)).await.unwrap();
    let total: u64 = balances.into_iter().map(|value| number(value).unwrap()).sum();
    assert_eq!(total, 100 * ACCOUNTS as u64);
    let statistics = db.statistics().await;
    assert!(statistics.client.messages_sent > 0 && statistics.client.messages_dropped == 0);
    // The nodes have connections with each other, too.
    assert!(statistics.nodes.iter().all(|node| node.is_some_and(|node| node.connections > 0)));
    db.close().await;
}

#[tokio::test]
async fn an_application_error_comes_back_untouched_and_nothing_is_written() {
    let cluster = cluster();
    let db = Database::connect(&cluster.url()).await.unwrap();
    let accounts = db.keyspace("accounts").await.unwrap();
    let error = accounts
        .transact(|tx| async move {
            tx.put("alice", "1");
            number(tx.get("bob").await?)
        })
        .await
        .unwrap_err();
    assert!(
        matches!(&error, TransactionError::Application(inner) if inner.to_string() == "no such account")
    );
    assert_eq!(accounts.get("alice").await.unwrap(), None);
}

#[tokio::test]
async fn a_program_in_steps_commits() {
    let cluster = cluster();
    let db = Database::connect(&cluster.url()).await.unwrap();
    let options =
        TransactOptions { backoff: Backoff::default(), attempts: 50, ..Default::default() };
    let accounts = db.keyspace("accounts").await.unwrap().with_options(options);
    let committed = accounts
        .transact_in_steps(|step| {
            step.get((), "alice", |step, (), value| {
                step.put("alice", "5");
                Next::Commit(value.is_none())
            })
        })
        .await
        .unwrap();
    assert!(committed.value);
    assert_eq!(accounts.get("alice").await.unwrap(), Some(Value::from("5")));
}

#[tokio::test]
async fn an_unknown_keyspace_is_answered_with_those_that_exist() {
    let cluster = cluster();
    let db = Database::connect(&cluster.url()).await.unwrap();
    let error = db.keyspace("acounts").await.err().unwrap();
    assert!(matches!(error, ConnectError::UnknownKeyspace { .. }));
    assert_eq!(error.to_string(), "there is no keyspace `acounts`; the cluster has `accounts`");
    assert_eq!(db.keyspaces()[0].protocol, "morty");
}

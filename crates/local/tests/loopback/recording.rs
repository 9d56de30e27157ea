//! A client that records what the clients of a keyspace do.

use std::time::Duration;

use serried::{RecordError, Recording, RecordingEvent, TransactionKeyspace, TransactionReport};
use serried_model::{Form, Key, NodeId};

use crate::{connect, soon, start_partitioned};

const LONG: Duration = Duration::from_secs(100);

/// Two reads together, then one for update, and a write.
async fn transact(keyspace: TransactionKeyspace) {
    loop {
        let program = |tx: serried_session::Transaction| async move {
            tx.get_many(["a", "b"]).await?;
            tx.get_for_update("c").await?;
            tx.put("c", "12345");
            Ok(())
        };
        keyspace.transact(program).await.unwrap();
        keyspace.get("other").await.unwrap();
    }
}

async fn next(recording: &mut Recording) -> (NodeId, Vec<TransactionReport<Key>>) {
    match soon(recording.next(LONG)).await.unwrap() {
        RecordingEvent::Transactions(connection, reports) => (connection, reports),
        RecordingEvent::Ended { .. } => panic!("its time is not over"),
    }
}

#[tokio::test]
async fn a_recorder_is_told_of_whole_transactions_of_all_clients_of_its_keyspace() {
    for (partitions, cores) in [(1, 1), (4, 3)] {
        let cluster = start_partitioned(partitions, cores);
        let recorder = connect(&cluster).await;
        let mut recording = recorder.record("second", LONG).await.unwrap();
        // One client is in time, and the other one comes later.
        let (one, another) = (connect(&cluster).await, connect(&cluster).await);
        let tasks = [
            tokio::spawn(transact(one.keyspace("second").unwrap())),
            tokio::spawn(transact(another.keyspace("second").unwrap())),
            tokio::spawn(transact(one.keyspace("first").unwrap())),
        ];
        let mut connections = std::collections::BTreeSet::new();
        let mut forms = std::collections::BTreeSet::new();
        while connections.len() < 2 || forms.len() < 2 {
            let (connection, reports) = next(&mut recording).await;
            for report in reports {
                assert!(report.began_ns <= report.ended_ns && report.attempts > 0, "{report:?}");
                connections.insert(connection);
                forms.insert(report.form);
                let reads: Vec<_> = report.reads.iter().map(|read| read.key.to_string()).collect();
                match report.form {
                    Form::Program => {
                        assert_eq!(reads, ["a", "b", "c"]);
                        let rounds: Vec<u32> = report.reads.iter().map(|read| read.round).collect();
                        assert!(rounds[0] == rounds[1] && rounds[1] < rounds[2], "{rounds:?}");
                        assert!(report.reads[2].for_update && !report.reads[0].for_update);
                        assert_eq!(report.writes[0].bytes, Some(5));
                    }
                    _ => assert_eq!(
                        (reads, report.form),
                        (vec!["other".to_string()], Form::ReadOnly)
                    ),
                }
            }
        }
        recording.stop();
        while !matches!(
            soon(recording.next(LONG)).await.unwrap(),
            RecordingEvent::Ended { missed: 0 }
        ) {}
        // It can be recorded again, by anyone.
        let mut again = another.record("second", LONG).await.unwrap();
        next(&mut again).await;
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        cluster.stop();
    }
}

#[tokio::test]
async fn a_recorder_is_told_at_once_that_its_node_has_stopped() {
    let mut cluster = start_partitioned(1, 1);
    let client = connect(&cluster).await;
    let mut recording = client.record("first", LONG).await.unwrap();
    cluster.stop_node(recording.node().member());
    let lost = soon(recording.next(LONG)).await;
    assert!(matches!(lost, Err(RecordError::Lost { .. })), "{lost:?}");
    cluster.stop();
}

#[tokio::test]
async fn a_node_has_one_recorder_at_a_time_and_forgets_it_with_its_connection() {
    let cluster = start_partitioned(1, 1);
    let (first, second) = (connect(&cluster).await, connect(&cluster).await);
    let nodes: Vec<_> = cluster.addresses();
    // Each client asks the node that is nearest to it.
    let mut recordings = Vec::new();
    while let Ok(recording) = first.record("first", LONG).await {
        recordings.push(recording);
        assert!(recordings.len() <= nodes.len());
    }
    let of_first = recordings[0].node();
    drop(recordings);
    first.close().await;
    loop {
        match second.record("first", LONG).await {
            Ok(_) => break,
            Err(RecordError::Refused { node, .. }) => assert_eq!(node, of_first),
            Err(error) => panic!("{error}"),
        }
    }
    let unknown = second.record("third", LONG).await;
    assert!(matches!(unknown, Err(RecordError::Keyspace(_))));
    cluster.stop();
}

#[tokio::test]
async fn a_recording_that_is_dropped_ends_though_its_client_stays() {
    let cluster = start_partitioned(1, 1);
    let client = connect(&cluster).await;
    let recording = client.record("first", LONG).await.unwrap();
    let node = recording.node();
    drop(recording);
    let mut others = Vec::new();
    soon(async {
        loop {
            match client.record("first", LONG).await {
                Ok(recording) if recording.node() == node => break,
                // Another one has become the nearest.
                Ok(recording) => others.push(recording),
                Err(RecordError::Refused { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
    cluster.stop();
}

//! Lists that move between two keys each.

use std::sync::{Arc, Mutex};

use serried_actor::Timestamp;
use serried_history::{MicroOperation, ReadResult};
use serried_model::Value;
use serried_protocols::morty::Morty;
use serried_session::Transaction;
use serried_sim::{Cluster, Configuration};
use serried_workload::{ListAppend, Parameters, Plan, Workload};

const KEYS: [[u8; 8]; 2] = [7_u64.to_be_bytes(), (7_u64 | 1 << 63).to_be_bytes()];

/// Appends these elements one by one, and returns what each append leaves at the two keys of the list.
fn left(elements: &'static [u64]) -> Vec<[Option<Value>; 2]> {
    let mut cluster =
        Cluster::<Morty>::new(Configuration { clients: 1, ..Configuration::default() });
    let (keyspace, found) = (cluster.keyspace(0), Arc::new(Mutex::new(Vec::new())));
    let all = found.clone();
    cluster.spawn(0, async move {
        let lists = Arc::new(ListAppend::new(&Parameters::default()).moving());
        for &element in elements {
            let plan = Arc::new(Plan::from(vec![MicroOperation::Append { key: 7, element }]));
            let run = |tx: Transaction| {
                let (lists, plan) = (lists.clone(), plan.clone());
                async move { lists.run(&plan, tx, false).await }
            };
            keyspace.transact(run).await.unwrap();
            let left = keyspace.transact(|tx| async move { tx.get_many(KEYS).await });
            let left = left.await.unwrap().value;
            all.lock().unwrap().push([left[0].clone(), left[1].clone()]);
        }
    });
    cluster.run_until_done(Timestamp(100_000_000_000)).unwrap();
    drop(cluster);
    Arc::into_inner(found).unwrap().into_inner().unwrap()
}

fn value(elements: &[u64]) -> Option<Value> {
    let bytes: Vec<u8> = elements.iter().flat_map(|element| element.to_be_bytes()).collect();
    Some(Value::from(bytes))
}

#[test]
fn a_list_that_moves_is_deleted_where_it_was() {
    assert_eq!(
        left(&[1, 2, 4, 5, 8, 9]),
        [
            [value(&[1]), None],
            [value(&[1, 2]), None],
            [None, value(&[1, 2, 4])],
            [None, value(&[1, 2, 4, 5])],
            [value(&[1, 2, 4, 5, 8]), None],
            [value(&[1, 2, 4, 5, 8, 9]), None],
        ]
    );
}

#[test]
fn a_list_that_was_not_deleted_where_it_was_is_found_twice() {
    let mut cluster =
        Cluster::<Morty>::new(Configuration { clients: 1, ..Configuration::default() });
    let (keyspace, found) = (cluster.keyspace(0), Arc::new(Mutex::new(None)));
    let read = found.clone();
    cluster.spawn(0, async move {
        let put = |tx: Transaction| async move {
            KEYS.iter().for_each(|key| tx.put(*key, 1_u64.to_be_bytes()));
            Ok(())
        };
        keyspace.transact(put).await.unwrap();
        let lists = Arc::new(ListAppend::new(&Parameters::default()).moving());
        let plan = MicroOperation::Read { key: 7, result: ReadResult::Pending };
        let plan = Arc::new(Plan::from(vec![plan]));
        let run = |tx: Transaction| {
            let (lists, plan) = (lists.clone(), plan.clone());
            async move { lists.run(&plan, tx, true).await }
        };
        *read.lock().unwrap() = Some(keyspace.transact(run).await.unwrap().value);
    });
    cluster.run_until_done(Timestamp(100_000_000_000)).unwrap();
    let twice = MicroOperation::Read { key: 7, result: ReadResult::List(vec![1, 1]) };
    assert_eq!(found.lock().unwrap().take(), Some(vec![twice]));
}

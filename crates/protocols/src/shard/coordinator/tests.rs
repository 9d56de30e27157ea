//! A client's part, to which operations are handed one by one.

use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use serried_actor::{
    ClockInterval, Context, Coordinate, Durable, Effect, Group, MemoryStore, Settings, Timestamp,
};
use serried_model::{Key, NodeId, Operation, Output, TxnId, Version};

use super::super::stamp::Stamp;
use super::Coordinator;
use crate::ncc::Queues;

const NOW_US: u64 = 10_000_000;

/// The version that a transaction is given for what it does so many microseconds after now.
fn version_of(
    coordinator: &mut Coordinator<Queues<true>>,
    (txn, after_us): (u64, u64),
    operations: Vec<Operation>,
) -> Version {
    let (mut effects, mut store) = (Vec::new(), MemoryStore::default());
    let now_us = NOW_US + after_us;
    let clock = ClockInterval { earliest_us: now_us, latest_us: now_us };
    let durable = Durable { store: &mut store, log_position: 0 };
    let (id, mut random) = (NodeId(NodeId::FIRST_COORDINATOR), Pcg64Mcg::new(1));
    let mut cx = Context::new(id, Timestamp(1), clock, &mut random, &mut effects, durable);
    for operation in operations {
        coordinator.on_operation(TxnId(txn), operation, &mut cx);
    }
    coordinator.on_batch_end(&mut cx);
    let began = |effect: &Effect<_>| match effect {
        Effect::Output((of, Output::Began(version))) if *of == TxnId(txn) => Some(*version),
        _ => None,
    };
    effects.iter().find_map(began).expect("it has begun")
}

#[test]
fn who_only_reads_is_not_given_a_version_that_an_open_transaction_can_commit_under() {
    let group = Group::new(1, Duration::from_millis(1));
    let mut coordinator = Coordinator::new(group, &Settings::default());
    let begin = |only_reads| Operation::Begin { only_reads };
    let get = Operation::Get { key: Key::from("x") };
    let open = version_of(&mut coordinator, (1, 0), vec![begin(false), get]);
    let commit = || Operation::Commit { reads: Vec::new(), writes: Vec::new() };
    for (txn, rounds) in [(2, 1), (3, 2), (4, 7)] {
        let us = rounds * Stamp::LANES;
        let read = version_of(&mut coordinator, (txn, us), vec![begin(true), commit()]);
        assert!(read.timestamp_us >= NOW_US + us);
        assert_ne!((read.timestamp_us - open.timestamp_us) % Stamp::LANES, 0);
    }
}

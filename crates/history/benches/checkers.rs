//! The time that the checkers take for histories of different lengths.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serried_history::{
    Budget, EventKind, History, MicroOperation, ReadResult, Recorder, RegisterHistory,
    RegisterOperation, RegisterOutcome, RegisterRecorder, check_causal, check_causal_convergent,
    check_linearizable, check_process_ordered, check_regular_sequential, check_serializable,
    check_strict_serializable,
};
use serried_model::{NodeId, Version};

/// The number of clients, which take turns. Each transaction reads a register and writes another one.
const CLIENTS: u64 = 16;

fn version(timestamp_us: u64) -> Version {
    Version { timestamp_us, coordinator: NodeId(70_000) }
}

/// Transactions that read one key and write it, and overlap with those of the other clients.
fn transactions(count: u64, keys: u64) -> History {
    let recorder = Recorder::with_capacity(2 * count as usize);
    let mut latest = vec![0; keys as usize];
    for time in 1..=count {
        let (client, key) = (time % CLIENTS, time % keys);
        let found = std::mem::replace(&mut latest[key as usize], time);
        let read = |result| MicroOperation::Read { key, result };
        let write = || MicroOperation::Write { key, value: Some(time) };
        recorder.invoke(client, 100 * time, vec![read(ReadResult::Pending), write()]);
        let known = (found > 0).then_some(found);
        let done = vec![read(ReadResult::Register(known)), write()];
        let reads = vec![if found > 0 { version(found) } else { Version::INITIAL }];
        let end = 100 * time + 99;
        recorder.complete(client, end, EventKind::Ok, done, Some(version(time)), reads, None);
    }
    recorder.into_history()
}

/// Additions to several counters in turn.
fn additions(count: u64, keys: u64) -> RegisterHistory {
    let recorder = RegisterRecorder::with_capacity(2 * count as usize);
    let mut sums = vec![None; keys as usize];
    for time in 1..=count {
        let (client, key) = (time % CLIENTS, time % keys);
        let operation = RegisterOperation::Add { delta: 1 };
        let found = sums[key as usize];
        sums[key as usize] = operation.result(found);
        recorder.invoke(client, 100 * time, key, operation);
        let outcome = RegisterOutcome::Ok { found, version: None };
        recorder.complete(client, 100 * time + 99, key, operation, outcome);
    }
    recorder.into_history()
}

fn checkers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checkers");
    group.sample_size(10);
    for count in [1_000, 20_000] {
        group.throughput(Throughput::Elements(count));
        let history = transactions(count, 100);
        group.bench_function(format!("serializable, {count} transactions"), |bencher| {
            bencher.iter(|| assert!(check_serializable(&history).holds()));
        });
        group.bench_function(
            format!("process-ordered serializable, {count} transactions"),
            |bencher| {
                bencher.iter(|| assert!(check_process_ordered(&history).holds()));
            },
        );
        group.bench_function(format!("causal, {count} transactions"), |bencher| {
            bencher.iter(|| assert!(check_causal(&history).holds()));
        });
        group.bench_function(format!("causally convergent, {count} transactions"), |bencher| {
            bencher.iter(|| assert!(check_causal_convergent(&history).holds()));
        });
        group.bench_function(format!("strict serializable, {count} transactions"), |bencher| {
            bencher.iter(|| assert!(check_strict_serializable(&history).holds()));
        });
        let history = additions(count, 100);
        group.bench_function(format!("linearizable, {count} operations"), |bencher| {
            bencher.iter(|| assert!(check_linearizable(&history, &Budget::default()).holds()));
        });
        group.bench_function(format!("regular sequential, {count} operations"), |bencher| {
            bencher
                .iter(|| assert!(check_regular_sequential(&history, &Budget::default()).holds()));
        });
    }
    group.finish();
}

criterion_group!(benches, checkers);
criterion_main!(benches);

//! What protocols do for each key of a transaction: versions, read marks and locks.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use serried_model::{Key, NodeId, Value, Version};
use serried_parts::{Committed, LockMode, LockTable, ReadMarks, Versions, WriteId};

fn version(timestamp_us: u64) -> Version {
    Version { timestamp_us, coordinator: NodeId(70_000) }
}

fn committed(timestamp_us: u64) -> Committed {
    let id = WriteId { version: version(timestamp_us), tag: 0 };
    Committed::put(id, Some(Value::from("a value")))
}

/// A key's versions, of which there are `count`.
fn versions(count: u64) -> Versions {
    let mut versions = Versions::default();
    for time in 1..=count {
        versions.insert(committed(10 * time));
    }
    versions
}

fn on_versions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("versions");
    for count in [1, 16, 1_000] {
        let versions = versions(count);
        let recent = version(10 * count + 1);
        group.bench_function(format!("latest_before, {count} versions"), |bencher| {
            bencher.iter(|| versions.latest_before(black_box(recent)).is_some());
        });
        let old = version(5 * count + 1);
        group.bench_function(format!("latest_before in the middle, {count} versions"), |bencher| {
            bencher.iter(|| versions.latest_before(black_box(old)).is_some());
        });
    }
    group.bench_function("insert, and forget what is older", |bencher| {
        let mut versions = versions(1);
        let mut time = 10;
        bencher.iter(|| {
            time += 10;
            versions.insert(committed(time));
            versions.forget_before(version(time + 1));
        });
    });
    group.finish();
}

fn on_read_marks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read marks");
    let mut marks = ReadMarks::default();
    for time in 1..=16 {
        marks.record(version(10 * time), version(10 * time + 5));
    }
    group.bench_function("would_miss, 16 marks", |bencher| {
        bencher.iter(|| marks.would_miss(black_box(version(163))));
    });
    group.bench_function("record a later reader", |bencher| {
        let mut reader = 165;
        bencher.iter(|| {
            reader += 1;
            marks.record(version(160), version(reader));
        });
    });
    group.finish();
}

fn on_locks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lock table");
    let keys: Vec<Key> = (0..8).map(|key| Key::from(format!("key {key}").as_str())).collect();
    group.bench_function("lock and release 8 keys", |bencher| {
        let mut locks: LockTable<Key, Version> = LockTable::default();
        bencher.iter(|| {
            for key in &keys {
                locks.lock(key, version(1), LockMode::Exclusive);
            }
            for key in &keys {
                locks.release(key, version(1));
            }
        });
    });
    group.bench_function("hand a lock through 32 waiters", |bencher| {
        let waiting = || {
            let mut locks: LockTable<Key, Version> = LockTable::default();
            for owner in 1..=32 {
                locks.lock(&keys[0], version(owner), LockMode::Exclusive);
            }
            locks
        };
        bencher.iter_batched(
            waiting,
            |mut locks| {
                for owner in 1..=32 {
                    locks.release(&keys[0], version(owner));
                }
                locks
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, on_versions, on_read_marks, on_locks);
criterion_main!(benches);

//! The cost of writing and flushing a batch of records.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serried_storage::{Batch, Durability, LogFiles, LogOptions};

/// The length of a record, in bytes.
const RECORD: usize = 200;

fn batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("log");
    for durability in [Durability::Buffered, Durability::Sync] {
        for records in [1, 100] {
            let folder = std::env::temp_dir()
                .join(format!("serried-bench-{}-{durability:?}-{records}", std::process::id()));
            let options = LogOptions::new(1, durability);
            let (mut log, _) =
                LogFiles::open(&folder, options, &mut |_, _| {}).expect("an empty log");
            let mut batch = Batch::starting_at(log.position());
            group.throughput(Throughput::Elements(records));
            group.bench_function(format!("write {records} records, {durability:?}"), |bencher| {
                bencher.iter(|| {
                    batch.restart_at(log.position());
                    for _ in 0..records {
                        batch.push(|bytes| bytes.extend_from_slice(&[7; RECORD]));
                    }
                    let position = log.write(&mut batch).expect("room");
                    // Keep the log short, as settling does.
                    if position % 10_000 == 0 {
                        log.trim(position).expect("a log that can be trimmed");
                    }
                });
            });
            drop(log);
            std::fs::remove_dir_all(&folder).expect("the folder was made here");
        }
    }
    group.finish();
}

criterion_group!(benches, batches);
criterion_main!(benches);

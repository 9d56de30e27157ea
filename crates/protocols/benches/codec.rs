//! What a message costs on its way through the codec.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serried_actor::Wire;
use serried_model::{Key, NodeId, Value, Version, Write};
use serried_protocols::frameworks::shard::{Message, Request, Shot};

/// A transaction of Retwis' size in one message: so many reads and writes, with values of 64 bytes.
fn shot(reads: u64, writes: u64) -> Message {
    let key = |number: u64| Key::from(format!("user:{number:08}").as_str());
    let value = Some(Value::from("v".repeat(64)));
    Message::Request(Request::Shot(Shot {
        age: None,
        txn: Version { timestamp_us: 1_790_000_000_000_000, coordinator: NodeId(70_000) },
        number: 1,
        reads: (0..reads).map(key).collect(),
        for_update: 0,
        writes: (0..writes)
            .map(|number| Write { key: key(number), value: value.clone() })
            .collect(),
        modifies: Vec::new(),
        participants: None,
    }))
}

fn codec(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec");
    for (reads, writes) in [(1, 0), (3, 3), (10, 5)] {
        let message = shot(reads, writes);
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let what = format!("{reads} reads, {writes} writes, {} bytes", bytes.len());
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("encode {what}"), |bencher| {
            let mut out = Vec::with_capacity(4096);
            bencher.iter(|| {
                out.clear();
                black_box(&message).encode(&mut out);
                out.len()
            });
        });
        group.bench_function(format!("decode {what}"), |bencher| {
            bencher.iter(|| Message::decode(black_box(&bytes)).expect("it was encoded here"));
        });
    }
    group.finish();
}

criterion_group!(benches, codec);
criterion_main!(benches);

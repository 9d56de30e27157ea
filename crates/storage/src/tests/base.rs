use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_actor::{MemoryStore, Store};

use super::Scratch;
use crate::{Base, Durability};

fn all(store: &dyn Store, bytes: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    loop {
        let after = all.last().map(|(key, _)| key.clone());
        let more = store.scan(after.as_deref(), bytes, &mut |key, value| {
            all.push((key.to_vec(), value.to_vec()));
        });
        if !more {
            return all;
        }
    }
}

#[test]
fn the_store_on_disk_is_the_one_in_memory_and_outlives_the_process() {
    let scratch = Scratch::new();
    let (mut random, mut model) = (Pcg64Mcg::seed_from_u64(3), MemoryStore::default());
    for _ in 0..4 {
        let mut base = Base::open(scratch.path(), Durability::Sync, 1 << 20).unwrap();
        assert_eq!(all(&base, 100), all(&model, 1000));
        for _ in 0..300 {
            let key = random.random_range(0..200u16).to_be_bytes();
            let value = [random.random::<u8>(); 9];
            let value = random.random_bool(0.8).then_some(&value[..]);
            base.put(&key, value);
            model.put(&key, value);
            assert_eq!(base.get(&key), model.get(&key));
        }
        base.flusher(Durability::Sync).flush().unwrap();
        assert_eq!(all(&base, 50), all(&model, 50));
    }
}

#[test]
fn in_memory_nothing_is_written() {
    let scratch = Scratch::new();
    let path = scratch.path().join("base");
    let mut base = Base::open(&path, Durability::Memory, 0).unwrap();
    base.put(b"key", Some(b"value"));
    base.flusher(Durability::Memory).flush().unwrap();
    assert_eq!(base.get(b"key").as_deref(), Some(&b"value"[..]));
    assert!(!path.exists());
}

use std::fs;
use std::path::{Path, PathBuf};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_actor::{MemoryStore, Store};

use super::Scratch;
use crate::{Base, Durability, marks};

pub(super) fn all(store: &dyn Store, bytes: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
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
        base.flusher().flush().unwrap();
        assert_eq!(all(&base, 50), all(&model, 50));
    }
}

#[test]
fn what_is_not_written_yet_is_seen_with_what_is() {
    let scratch = Scratch::new();
    let (mut random, mut model) = (Pcg64Mcg::seed_from_u64(4), MemoryStore::default());
    let mut base = Base::open(scratch.path(), Durability::Buffered, 1 << 20).unwrap();
    for _ in 0..400 {
        let key = random.random_range(0..100u16).to_be_bytes();
        let value = [random.random::<u8>(); 9];
        let value = random.random_bool(0.6).then_some(&value[..]);
        base.put(&key, value);
        model.put(&key, value);
        if random.random_bool(0.05) {
            base.flusher().flush().unwrap();
        }
        assert_eq!(all(&base, 50), all(&model, 1000));
    }
}

#[test]
fn more_is_written_than_a_memtable_holds_and_moved_to_tables() {
    let scratch = Scratch::new();
    let mut base = Base::open(scratch.path(), Durability::Buffered, 1 << 20).unwrap();
    let flush = base.flusher();
    let value = [7; 16 << 10];
    for round in 0..4u8 {
        for key in 0..1500u16 {
            base.put(&[&[round][..], &key.to_be_bytes()].concat(), Some(&value));
        }
        assert!(flush.is_needed());
        flush.flush().unwrap();
        assert!(!flush.is_needed());
    }
    while flush.settle(1).unwrap().is_none() {
        std::thread::yield_now();
    }
    drop((base, flush));
    let base = Base::open(scratch.path(), Durability::Buffered, 1 << 20).unwrap();
    assert_eq!(all(&base, 1 << 20).len(), 6000);
}

#[test]
fn keys_with_the_reserved_prefix_work_like_other_keys() {
    let scratch = Scratch::new();
    let (mut random, mut model) = (Pcg64Mcg::seed_from_u64(5), MemoryStore::default());
    let mut base = Base::open(scratch.path(), Durability::Buffered, 1 << 20).unwrap();
    for _ in 0..300 {
        let mark = marks::key(random.random_range(0..4));
        let mut key = mark[..random.random_range(14..=mark.len())].to_vec();
        key.extend(vec![random.random_range(0..3); random.random_range(0..3)]);
        let value = random.random_bool(0.8).then_some(&b"value"[..]);
        base.put(&key, value);
        model.put(&key, value);
        if random.random_bool(0.1) {
            base.flusher().flush().unwrap();
        }
        assert_eq!(base.get(&key), model.get(&key));
        assert_eq!(all(&base, 30), all(&model, 1000));
    }
    base.flusher().flush().unwrap();
    let last = base.flusher().last();
    assert!(base.flusher().verify(last, false).unwrap().is_none());
}

/// Limits the size of files that this process can write to `bytes`.
fn limit_files(bytes: Option<u64>) {
    let limit = rustix::process::Rlimit { current: bytes, maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
}

/// It runs in a process of its own, because it limits how much the process may write.
#[test]
fn a_full_disk_loses_nothing_and_is_written_when_there_is_room() {
    const INNER: &str = "SERRIED_TEST_LIMITS_ITSELF";
    if std::env::var_os(INNER).is_none() {
        let test = std::env::current_exe().unwrap();
        let name = std::thread::current().name().unwrap().to_owned();
        // Exceeding the limit is then an error, and does not kill the process.
        let ended = std::process::Command::new("sh")
            .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
            .arg(test)
            .args(["--exact", &name, "--nocapture"])
            .env(INNER, "1")
            .status();
        assert!(ended.unwrap().success());
        return;
    }
    let scratch = Scratch::new();
    let mut base = Base::open(scratch.path(), Durability::Sync, 1 << 20).unwrap();
    let flush = base.flusher();
    base.put(b"a", Some(b"written"));
    base.put(b"b", Some(b"written"));
    flush.flush().unwrap();
    limit_files(Some(0));
    base.put(b"b", Some(b"when full"));
    assert!(flush.flush().unwrap_err().is_full());
    base.put(b"c", Some(b"later"));
    base.put(b"a", None);
    assert!(flush.flush().unwrap_err().is_full());
    let expected = [(&b"b"[..], &b"when full"[..]), (b"c", b"later")];
    let expected = expected.map(|(key, value)| (key.to_vec(), value.to_vec()));
    assert_eq!(all(&base, 1), expected);
    assert_eq!((base.get(b"a"), base.get(b"b")), (None, Some(b"when full".to_vec())));
    limit_files(None);
    flush.flush().unwrap();
    assert!(!flush.is_needed());
    assert_eq!(all(&base, 1), expected);
    let last = flush.last();
    assert!(last > 1);
    drop((base, flush));
    let base = Base::open(scratch.path(), Durability::Sync, 1 << 20).unwrap();
    assert_eq!(all(&base, 1), expected);
    assert!(base.flusher().verify(last, false).unwrap().is_none());
}

#[test]
fn in_memory_nothing_is_written() {
    let scratch = Scratch::new();
    let path = scratch.path().join("base");
    let mut base = Base::open(&path, Durability::Memory, 0).unwrap();
    base.put(b"key", Some(b"value"));
    base.flusher().flush().unwrap();
    assert_eq!(base.get(b"key").as_deref(), Some(&b"value"[..]));
    assert!(!path.exists());
}

/// The files in `directory` and below.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
    found.sort();
}

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => assert!(fs::copy(&path, target).is_ok()),
        }
    }
}

#[test]
fn a_damaged_store_shows_no_wrong_data_and_says_what_to_do() {
    let scratch = Scratch::new();
    let sound = scratch.path().join("sound");
    let mut base = Base::open(&sound, Durability::Buffered, 1 << 20).unwrap();
    let flush = base.flusher();
    for key in 0..200u16 {
        base.put(&key.to_be_bytes(), Some(format!("the value of {key}").as_bytes()));
    }
    flush.flush().unwrap();
    while flush.settle(1).unwrap().is_none() {
        std::thread::yield_now();
    }
    drop((base, flush));
    let expected = all(&Base::open(&sound, Durability::Buffered, 1 << 20).unwrap(), 1 << 20);
    assert_eq!(expected.len(), 200);
    let (mut found, mut noticed) = (Vec::new(), 0);
    files(&sound, &mut found);
    // Nothing depends on the journal, because the log has its contents too.
    let relied = |path: &&PathBuf| path.extension().is_none_or(|end| end != "jnl");
    for file in found.iter().filter(relied) {
        let bytes = fs::read(file).unwrap();
        let mut contents = vec![None, Some(Vec::new())];
        if file.parent().is_some_and(|parent| parent.ends_with("tables")) {
            for at in (0..bytes.len()).step_by(1 + bytes.len() / 60) {
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x20;
                contents.push(Some(flipped));
            }
        }
        for (i, contents) in contents.into_iter().enumerate() {
            let damaged = scratch.path().join("damaged");
            drop(fs::remove_dir_all(&damaged));
            copy(&sound, &damaged);
            let name = file.strip_prefix(&sound).unwrap();
            match contents {
                Some(contents) => fs::write(damaged.join(name), contents).unwrap(),
                None => fs::remove_file(damaged.join(name)).unwrap(),
            }
            let open = || {
                Base::check(&damaged)?;
                Base::open(&damaged, Durability::Buffered, 1 << 20)
            };
            let read = || match open() {
                Ok(base) => Ok(all(&base, 1 << 20)),
                Err(error) => Err(error.to_string()),
            };
            let place = format!("{}, {i}", name.display());
            let told = match std::panic::catch_unwind(read) {
                Ok(Ok(read)) => {
                    assert_eq!(read, expected, "{place}");
                    continue;
                }
                Ok(Err(error)) => error,
                Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
            };
            noticed += 1;
            let says = told.contains(damaged.to_str().unwrap()) && told.contains("--rejoin");
            assert!(says, "{place}: {told}");
        }
    }
    assert!(noticed > 30, "{noticed}");
}

#[test]
fn a_directory_in_the_place_of_a_file_is_damage_and_ends_no_process() {
    for name in ["0.jnl", "version", "keyspaces/1/tables/2", "keyspaces/1/current"] {
        let scratch = Scratch::new();
        let place = scratch.path().join("base");
        drop(Base::open(&place, Durability::Sync, 1 << 20).unwrap());
        drop(fs::remove_file(place.join(name)));
        fs::create_dir(place.join(name)).unwrap();
        let error = Base::open(&place, Durability::Sync, 1 << 20).map(drop).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(name) && error.contains("is a directory"), "{error}");
        assert!(error.contains("--rejoin"), "{error}");
    }
}

#[test]
fn a_store_whose_creation_was_interrupted_is_created_again() {
    let scratch = Scratch::new();
    let (place, unfinished) = (scratch.path().join("base"), scratch.path().join("base.unfinished"));
    drop(Base::open(&unfinished, Durability::Sync, 1 << 20).unwrap());
    // Some of fjall's own files are not there yet.
    fs::remove_file(unfinished.join("keyspaces/0/current")).unwrap();
    let mut base = Base::open(&place, Durability::Sync, 1 << 20).unwrap();
    base.put(b"key", Some(b"value"));
    base.flusher().flush().unwrap();
    drop(base);
    let base = Base::open(&place, Durability::Sync, 1 << 20).unwrap();
    assert_eq!(base.get(b"key").as_deref(), Some(&b"value"[..]));
    assert!(!unfinished.exists());
}

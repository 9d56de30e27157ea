//! Names that are on the disk before anything depends on them.

use std::collections::BTreeMap;
use std::fs;

use super::log::{IDENTITY, open, segments, write};
use super::{Scratch, take_synced};
use crate::{Base, DataDirectory, Durability, Identity, LogFiles, LogOptions, Start};

#[test]
fn all_folders_above_a_partition_have_durable_names() {
    let scratch = Scratch::new();
    let keyspace = scratch.path().join("accounts");
    let partition = keyspace.join("0");
    let open = || {
        let base = Base::open(&partition.join("base"), Durability::Sync, 0).unwrap();
        let options = LogOptions::new(IDENTITY, Durability::Sync);
        drop((base, LogFiles::open(&partition.join("log"), options, &mut |_, _| {}).unwrap()));
    };
    take_synced();
    open();
    let synced = take_synced();
    for folder in [scratch.path(), &keyspace, &partition] {
        assert!(synced.iter().any(|synced| synced == folder), "{folder:?}: {synced:?}");
    }
    // As if a process was killed before it had synced the names.
    open();
    let synced = take_synced();
    let of_partition = synced.iter().filter(|synced| **synced == partition).count();
    assert!(of_partition >= 2, "of store and log: {synced:?}");
    assert!(synced.contains(&keyspace), "{synced:?}");
}

#[test]
fn a_data_directory_has_a_durable_name() {
    let scratch = Scratch::new();
    let path = scratch.path().join("serried").join("node-0");
    let identity = Identity {
        cluster: "blue".to_string(),
        node: 0,
        nodes: 3,
        keyspaces: Vec::new(),
        first_formats: BTreeMap::new(),
    };
    for folders in [vec![scratch.path(), path.parent().unwrap()], vec![path.parent().unwrap()]] {
        take_synced();
        drop(DataDirectory::open(&path, &identity, Start::Usual).unwrap());
        let synced = take_synced();
        for folder in folders {
            assert!(synced.iter().any(|synced| synced == folder), "{folder:?}: {synced:?}");
        }
    }
}

#[test]
fn a_segments_removal_is_durable_before_the_next_one_begins() {
    let scratch = Scratch::new();
    let (mut log, _, _) = open(scratch.path(), 200).unwrap();
    for i in 0..30 {
        write(&mut log, i, i + 1).unwrap();
    }
    let before = segments(scratch.path()).len();
    take_synced();
    log.trim(30).unwrap();
    let removed = before - segments(scratch.path()).len();
    assert!(removed > 2, "{removed}");
    assert_eq!(take_synced(), vec![scratch.path(); removed]);
    // So is a segment that was never used.
    let unused = scratch.path().join(format!("{:020}.log", log.position()));
    drop(log);
    fs::write(&unused, [0; 200]).unwrap();
    open(scratch.path(), 200).unwrap();
    assert!(!unused.exists() && take_synced().contains(&scratch.path().to_path_buf()));
}

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::Scratch;
use crate::directory::FORMAT;
use crate::{
    Boot, DataDirectory, Durability, Identity, KeyspaceIdentity, Provenance, Run, Start,
    StorageError,
};

fn keyspace(name: &str, protocol: &str, partitions: u16) -> KeyspaceIdentity {
    KeyspaceIdentity {
        name: name.to_string(),
        protocol: protocol.to_string(),
        partitions,
        sites: 1,
    }
}

fn identity() -> Identity {
    let keyspaces = vec![keyspace("accounts", "morty", 4)];
    let first_formats = BTreeMap::from([("morty".to_string(), FORMAT)]);
    Identity { cluster: "blue".to_string(), node: 1, nodes: 3, keyspaces, first_formats }
}

/// The directory after settling, with the keyspaces of its configuration in their first generations.
fn settled(scratch: &Scratch, identity: &Identity, start: Start) -> DataDirectory {
    let directory = DataDirectory::open(scratch.path(), identity, start).unwrap();
    directory.settle(&first(&identity.keyspaces), None).unwrap();
    directory
}

/// Keyspaces in their first generation.
fn first(keyspaces: &[KeyspaceIdentity]) -> Vec<(KeyspaceIdentity, u32)> {
    keyspaces.iter().map(|keyspace| (keyspace.clone(), 0)).collect()
}

/// The generations that other nodes report.
fn told(generations: &[(&str, u32)]) -> BTreeMap<String, u32> {
    generations.iter().map(|(name, generation)| (name.to_string(), *generation)).collect()
}

#[track_caller]
fn refused(directory: Result<DataDirectory, StorageError>, words: &[&str]) {
    let error = directory.map(drop).unwrap_err();
    assert!(matches!(error, StorageError::Refused { .. }), "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_directory_is_its_nodes_alone() {
    let scratch = Scratch::new();
    let open = |identity: &Identity| DataDirectory::open(scratch.path(), identity, Start::Usual);
    let first = open(&identity()).unwrap();
    refused(open(&identity()), &["another node uses this directory"]);
    let provenance = first.provenance();
    drop(first);
    assert_eq!(open(&identity()).unwrap().provenance(), provenance);
    refused(open(&Identity { node: 2, ..identity() }), &["node 1", "node 2"]);
    refused(open(&Identity { cluster: "red".to_string(), ..identity() }), &["`blue`", "`red`"]);
}

#[test]
fn no_keyspace_can_be_called_like_a_file_of_the_directory() {
    let scratch = Scratch::new();
    let directory = settled(&scratch, &identity(), Start::Usual);
    directory.meet(0, Provenance { incarnation: 1, rejoined: false }).unwrap();
    Run::begin(scratch.path(), Boot::named("monday"), Durability::Sync, Start::Usual).unwrap();
    let files: Vec<String> = fs::read_dir(scratch.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files.len(), 4, "{files:?}");
    assert!(files.iter().all(|file| DataDirectory::is_reserved(file)), "{files:?}");
    assert!(["run.new", "peers.new"].into_iter().all(DataDirectory::is_reserved));
    assert!(!["accounts", "run", "new"].into_iter().any(DataDirectory::is_reserved));
}

#[test]
fn a_configuration_that_does_not_fit_the_data_is_refused() {
    let scratch = Scratch::new();
    let open = |identity: &Identity| DataDirectory::open(scratch.path(), identity, Start::Usual);
    drop(settled(&scratch, &identity(), Start::Usual));
    let with = |keyspaces: Vec<KeyspaceIdentity>| Identity { keyspaces, ..identity() };
    refused(open(&Identity { nodes: 5, ..identity() }), &["3 replicas", "has 5"]);
    let try_settle = |keyspaces: Vec<KeyspaceIdentity>| {
        let identity = with(keyspaces);
        let directory = open(&identity)?;
        directory.settle(&first(&identity.keyspaces), None)?;
        Ok(directory)
    };
    refused(try_settle(vec![keyspace("accounts", "morty", 8)]), &["`accounts` has 4", "says 8"]);
    refused(try_settle(vec![keyspace("accounts", "mvtso", 4)]), &["`morty`", "`mvtso`"]);
    // A new keyspace is accepted.
    let more = vec![keyspace("carts", "morty", 1), keyspace("accounts", "morty", 4)];
    drop(settled(&scratch, &with(more), Start::Usual));
    refused(try_settle(vec![keyspace("accounts", "morty", 8)]), &["`accounts` has 4"]);
    refused(try_settle(vec![keyspace("carts", "morty", 2)]), &["`carts` has 1"]);
}

#[test]
fn a_newer_format_and_a_damaged_file_have_different_errors() {
    let scratch = Scratch::new();
    let open = || DataDirectory::open(scratch.path(), &identity(), Start::Usual);
    drop(open().unwrap());
    let file = scratch.path().join("identity.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&format!("format = {FORMAT}"), "format = 99")).unwrap();
    refused(open(), &["format 99", "newer release"]);
    fs::write(&file, &text[..text.len() / 2]).unwrap();
    let error = open().map(drop).unwrap_err();
    assert!(matches!(error, StorageError::Unreadable { .. }), "{error}");
}

#[test]
fn a_damaged_file_of_the_directory_is_answered_with_what_helps() {
    for name in ["identity.toml", "peers.toml"] {
        let damages: [fn(&Path) -> io::Result<()>; 3] = [
            |file| fs::write(file, "a = [\nb"),
            |file| fs::write(file, [0xff, 0xfe]),
            |file| fs::create_dir(file),
        ];
        for damage in damages {
            let scratch = Scratch::new();
            drop(settled(&scratch, &identity(), Start::Usual));
            let file = scratch.path().join(name);
            drop(fs::remove_file(&file));
            damage(&file).unwrap();
            for start in [Start::Usual, Start::AcceptLoss] {
                let opened = DataDirectory::open(scratch.path(), &identity(), start);
                let error = opened.map(drop).unwrap_err().to_string();
                assert!(error.contains(name) && error.contains("--rejoin"), "{error}");
                assert!(!error.contains("with --accept-loss"), "{error}");
            }
        }
    }
}

#[test]
fn a_directory_with_other_things_in_it_is_refused() {
    let scratch = Scratch::new();
    let open = || DataDirectory::open(scratch.path(), &identity(), Start::Usual);
    fs::create_dir_all(scratch.path().join("etc")).unwrap();
    refused(open(), &["`etc`", "choose an empty directory", "--data"]);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "nothing is left in it");
    fs::remove_dir(scratch.path().join("etc")).unwrap();
    // What file systems have at their tops, and what a node that was killed at once has left.
    fs::create_dir(scratch.path().join("lost+found")).unwrap();
    fs::write(scratch.path().join("lock"), "").unwrap();
    fs::write(scratch.path().join("identity.new"), "cluster").unwrap();
    assert!(open().unwrap().is_new());
}

#[test]
fn to_rejoin_takes_an_empty_directory() {
    let scratch = Scratch::new();
    let open = |start| DataDirectory::open(scratch.path(), &identity(), start);
    let new = open(Start::Rejoin).unwrap();
    assert!(new.rejoins("accounts") && !new.is_new());
    drop(new);
    assert!(open(Start::Rejoin).unwrap().rejoins("accounts"), "it had no data yet");
    fs::create_dir_all(scratch.path().join("accounts")).unwrap();
    assert!(open(Start::Usual).unwrap().rejoins("accounts"), "whatever it was told this time");
    refused(open(Start::Rejoin), &["--rejoin"]);
    // Data of dropped keyspaces counts too.
    let other = Identity { keyspaces: vec![keyspace("carts", "morty", 1)], ..identity() };
    refused(DataDirectory::open(scratch.path(), &other, Start::Rejoin), &["--rejoin"]);
}

#[test]
fn keyspaces_that_others_knew_at_the_loss_rejoin_even_later() {
    let scratch = Scratch::new();
    let (accounts, carts) = (keyspace("accounts", "morty", 4), keyspace("carts", "morty", 1));
    let open = |keyspaces: &[KeyspaceIdentity], start| {
        let identity = Identity { keyspaces: keyspaces.to_vec(), ..identity() };
        DataDirectory::open(scratch.path(), &identity, start).unwrap()
    };
    let directory = open(std::slice::from_ref(&accounts), Start::Rejoin);
    let known = told(&[("accounts", 0), ("carts", 1)]);
    directory.settle(&[(accounts.clone(), 0)], Some(&known)).unwrap();
    assert_eq!(directory.lost(), Some(known));
    drop(directory);
    let all = [accounts, carts, keyspace("orders", "morty", 1)];
    // Later answers do not say what the lost disk had.
    let later = told(&[("accounts", 0), ("carts", 1), ("orders", 0)]);
    for told in [Some(&later), None] {
        let directory = open(&all, Start::Usual);
        let settled = [(all[0].clone(), 0), (all[1].clone(), 1), (all[2].clone(), 0)];
        directory.settle(&settled, told).unwrap();
        assert!(directory.rejoins("accounts") && directory.rejoins("carts"));
        assert!(!directory.rejoins("orders"), "it was created after the loss");
    }
    // A keyspace that is created in place of a dropped one is new, too.
    drop(open(&all[..1], Start::Usual));
    let directory = open(&all, Start::Usual);
    let settled = [(all[0].clone(), 0), (all[1].clone(), 2), (all[2].clone(), 1)];
    directory.settle(&settled, None).unwrap();
    assert!(!directory.rejoins("carts") && !directory.rejoins("orders"));
}

#[test]
fn everything_rejoins_until_enough_others_have_answered() {
    let scratch = Scratch::new();
    let mut identity = identity();
    drop(settled(&scratch, &identity, Start::Rejoin));
    identity.keyspaces.push(keyspace("carts", "morty", 1));
    let directory = settled(&scratch, &identity, Start::Usual);
    assert!(directory.rejoins("carts") && directory.lost().is_none());
    drop(directory);
    identity.keyspaces.push(keyspace("orders", "morty", 1));
    identity.keyspaces.push(keyspace("parcels", "morty", 1));
    let directory = DataDirectory::open(scratch.path(), &identity, Start::Usual).unwrap();
    let known = told(&[("accounts", 0), ("carts", 0), ("parcels", 0)]);
    directory.settle(&first(&identity.keyspaces), Some(&known)).unwrap();
    let rejoins = ["accounts", "carts", "orders", "parcels"].map(|name| directory.rejoins(name));
    assert_eq!(rejoins, [true, true, false, true]);
}

#[test]
fn the_number_of_new_data_rises_until_it_is_settled_and_stays() {
    let scratch = Scratch::new();
    let open = |start| DataDirectory::open(scratch.path(), &identity(), start).unwrap();
    let directory = open(Start::Rejoin);
    let made = directory.provenance().incarnation;
    directory.raise(made - 1).unwrap();
    assert_eq!(directory.provenance().incarnation, made);
    directory.raise(made + 7).unwrap();
    drop(directory);
    let directory = open(Start::Usual);
    assert_eq!(directory.provenance().incarnation, made + 7);
    assert!(directory.raise(u64::MAX).is_err(), "no file can say so");
    directory.settle(&first(&identity().keyspaces), None).unwrap();
    assert!(directory.raise(made + 8).is_err(), "others know its number");
    assert_eq!(directory.provenance().incarnation, made + 7);
}

#[test]
fn a_directory_without_data_is_refused_by_other_nodes_too() {
    let scratch = Scratch::new();
    drop(DataDirectory::open(scratch.path(), &identity(), Start::Usual).unwrap());
    let other = Identity { node: 2, ..identity() };
    refused(DataDirectory::open(scratch.path(), &other, Start::Rejoin), &["node 1", "node 2"]);
    let own = DataDirectory::open(scratch.path(), &identity(), Start::Rejoin).unwrap();
    assert!(own.rejoins("accounts"), "it was turned away before it had any");
}

#[test]
fn a_node_that_has_lost_data_since_it_was_met_is_detected() {
    let scratch = Scratch::new();
    let open = || DataDirectory::open(scratch.path(), &identity(), Start::Usual).unwrap();
    let has = |incarnation, rejoined| Provenance { incarnation, rejoined };
    let directory = open();
    directory.meet(2, has(5, false)).unwrap();
    directory.meet(2, has(5, false)).unwrap();
    drop(directory);
    let directory = open();
    let error = directory.meet(2, has(6, false)).unwrap_err().to_string();
    assert!(error.contains("n2 had other data before") && error.contains("--rejoin"), "{error}");
    directory.meet(0, has(6, false)).unwrap();
    // No node has such data, and no file can represent its number.
    let error = directory.meet(2, has(u64::MAX, true)).unwrap_err().to_string();
    assert!(error.contains("n2 says that its data is 18446744073709551615, as none is"), "{error}");
    directory.meet(2, has(7, true)).unwrap();
    let error = directory.meet(2, has(5, false)).unwrap_err().to_string();
    assert!(error.contains("n2 was replaced"), "its old disk is not its own any more: {error}");
    directory.meet(2, has(7, true)).unwrap();
    assert_eq!(directory.judge(2, has(7, true)), Ok(true));
    assert_eq!(directory.judge(2, has(8, true)), Ok(false), "it is judged and not noted");
    assert_eq!(directory.met(2), Some(7));
}

#[test]
fn a_keyspace_created_again_has_its_own_folder_and_identity() {
    let scratch = Scratch::new();
    let with = |keyspaces: Vec<KeyspaceIdentity>| Identity { keyspaces, ..identity() };
    let accounts = || with(vec![keyspace("accounts", "morty", 4)]);
    let first = settled(&scratch, &accounts(), Start::Usual);
    let (place, log) = (first.partition("accounts", 1), first.log_identity("accounts", 1));
    drop(first);
    let other = settled(&scratch, &with(vec![keyspace("carts", "morty", 1)]), Start::Usual);
    assert_eq!(other.dropped(), [("accounts".to_string(), scratch.path().join("accounts"))]);
    drop(other);
    // It may have other properties than the dropped one.
    let again = with(vec![keyspace("accounts", "mvtso", 2)]);
    let directory = DataDirectory::open(scratch.path(), &again, Start::Usual).unwrap();
    let known = directory.keyspaces();
    assert!(known.iter().all(|record| record.dropped && record.generation == 0), "{known:?}");
    directory.settle(&[(again.keyspaces[0].clone(), 1)], None).unwrap();
    let (later_place, later_log) =
        (directory.partition("accounts", 1), directory.log_identity("accounts", 1));
    assert_ne!((&later_place, later_log), (&place, log));
    drop(directory);
    let directory = DataDirectory::open(scratch.path(), &again, Start::Usual).unwrap();
    assert_eq!(directory.partition("accounts", 1), later_place);
    assert!(directory.dropped().is_empty());
}

#[test]
fn a_directory_of_the_first_format_keeps_its_data() {
    let scratch = Scratch::new();
    let text = r#"format = 1
incarnation = 5
rejoined = true
later = ["carts"]
cluster = "blue"
node = 1
nodes = 3
[[keyspaces]]
name = "accounts"
protocol = "ncc"
partitions = 4
[[keyspaces]]
name = "carts"
protocol = "ncc"
partitions = 1
"#;
    fs::create_dir_all(scratch.path()).unwrap();
    fs::write(scratch.path().join("identity.toml"), text).unwrap();
    let keyspaces = vec![keyspace("accounts", "ncc", 4), keyspace("carts", "ncc", 1)];
    let directory = settled(&scratch, &Identity { keyspaces, ..identity() }, Start::Usual);
    assert!(directory.rejoins("accounts") && !directory.rejoins("carts"));
    assert_eq!(directory.partition("carts", 0), scratch.path().join("carts").join("0"));
}

#[test]
fn an_opened_older_directory_is_refused_by_earlier_releases() {
    let scratch = Scratch::new();
    let identity = Identity { keyspaces: vec![keyspace("accounts", "ncc", 4)], ..identity() };
    drop(settled(&scratch, &identity, Start::Usual));
    let file = scratch.path().join("identity.toml");
    let text = fs::read_to_string(&file).unwrap();
    let in_format =
        |format: u32| text.replace(&format!("format = {FORMAT}"), &format!("format = {format}"));
    fs::write(&file, in_format(2)).unwrap();
    let directory = DataDirectory::open(scratch.path(), &identity, Start::Usual).unwrap();
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        in_format(3),
        "stores change when they are opened"
    );
    directory.settle(&first(&identity.keyspaces), None).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), in_format(3), "not all partitions are opened");
    directory.opened().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn records_that_can_not_be_read_any_more_are_refused() {
    let scratch = Scratch::new();
    drop(settled(&scratch, &identity(), Start::Usual));
    let file = scratch.path().join("identity.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&format!("format = {FORMAT}"), "format = 3")).unwrap();
    let refused = DataDirectory::open(scratch.path(), &identity(), Start::Usual).unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("`accounts`") && refused.contains("`morty`"), "{refused}");
    let readable = Identity { first_formats: BTreeMap::new(), ..identity() };
    drop(DataDirectory::open(scratch.path(), &readable, Start::Usual).unwrap());
}

#[test]
fn a_keyspace_that_is_added_to_an_older_directory_gives_it_the_present_format() {
    let scratch = Scratch::new();
    let old = Identity { keyspaces: vec![keyspace("carts", "ncc", 1)], ..identity() };
    drop(settled(&scratch, &old, Start::Usual));
    let file = scratch.path().join("identity.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&format!("format = {FORMAT}"), "format = 3")).unwrap();
    let keyspaces = [old.keyspaces, identity().keyspaces].concat();
    let both = Identity { keyspaces, ..identity() };
    // The node ends before it has opened all partitions, and starts again.
    for _ in 0..2 {
        drop(settled(&scratch, &both, Start::Usual));
    }
}

#[test]
fn records_of_a_dropped_keyspace_need_not_be_readable() {
    let scratch = Scratch::new();
    let both = Identity {
        keyspaces: vec![keyspace("accounts", "morty", 4), keyspace("carts", "ncc", 1)],
        ..identity()
    };
    drop(settled(&scratch, &both, Start::Usual));
    let file = scratch.path().join("identity.toml");
    let text = fs::read_to_string(&file).unwrap();
    let old = text.replace(&format!("format = {FORMAT}"), "format = 3");
    fs::write(&file, &old).unwrap();
    let kept = Identity { keyspaces: vec![keyspace("accounts", "morty", 4)], ..identity() };
    for configured in [&both, &kept] {
        let refusal = DataDirectory::open(scratch.path(), configured, Start::Usual);
        refused(refusal, &["`accounts`", "`morty`"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), old, "nothing is written");
    }
    let dropped = Identity { keyspaces: vec![keyspace("carts", "ncc", 1)], ..identity() };
    let directory = DataDirectory::open(scratch.path(), &dropped, Start::Usual).unwrap();
    let names: Vec<_> = directory.dropped().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["accounts"]);
    directory.settle(&first(&dropped.keyspaces), None).unwrap();
    assert!(directory.has_earlier_format());
    directory.opened().unwrap();
    assert!(!directory.has_earlier_format());
    drop(directory);
    let directory = DataDirectory::open(scratch.path(), &both, Start::Usual).unwrap();
    // Its data is still what it was.
    let taken_up = directory.settle(&first(&both.keyspaces), None);
    refused(taken_up.map(|()| directory), &["`accounts`", "`morty`", "earlier release"]);
    let directory = DataDirectory::open(scratch.path(), &both, Start::Usual).unwrap();
    let [old, carts] = [0, 1].map(|at| both.keyspaces[at].clone());
    directory.settle(&[(old, 1), (carts, 0)], None).expect("the next generation has new data");
}

#[test]
fn a_keyspace_that_an_earlier_release_has_dropped_is_not_taken_up_if_it_can_not_be_read() {
    let scratch = Scratch::new();
    let both = Identity {
        keyspaces: vec![keyspace("accounts", "morty", 4), keyspace("carts", "ncc", 1)],
        ..identity()
    };
    let carts = Identity { keyspaces: vec![keyspace("carts", "ncc", 1)], ..identity() };
    drop(settled(&scratch, &both, Start::Usual));
    drop(settled(&scratch, &carts, Start::Usual));
    let file = scratch.path().join("identity.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&format!("format = {FORMAT}"), "format = 3")).unwrap();
    for opened in [false, true] {
        let directory = DataDirectory::open(scratch.path(), &both, Start::Usual).unwrap();
        let taken_up = directory.settle(&first(&both.keyspaces), None);
        if !opened {
            directory.opened().unwrap();
        }
        refused(taken_up.map(|()| directory), &["`accounts`", "`morty`", "earlier release"]);
    }
}

#[test]
fn dropping_a_keyspace_does_not_take_a_directory_back_to_an_earlier_format() {
    let scratch = Scratch::new();
    let accounts = keyspace("accounts", "morty", 4);
    let keyspaces = vec![accounts.clone(), keyspace("carts", "ncc", 1)];
    drop(settled(&scratch, &Identity { keyspaces, ..identity() }, Start::Usual));
    let kept = Identity { keyspaces: vec![accounts], ..identity() };
    // The node ends before it has opened all partitions, and starts again.
    for _ in 0..2 {
        assert!(!settled(&scratch, &kept, Start::Usual).has_earlier_format());
    }
}

#[test]
fn a_new_generation_of_a_dropped_keyspace_gives_an_older_directory_the_present_format() {
    let scratch = Scratch::new();
    let [accounts, carts] = [keyspace("accounts", "morty", 4), keyspace("carts", "ncc", 1)];
    let both = Identity { keyspaces: vec![accounts.clone(), carts.clone()], ..identity() };
    drop(settled(&scratch, &both, Start::Usual));
    let file = scratch.path().join("identity.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&format!("format = {FORMAT}"), "format = 3")).unwrap();
    let kept = Identity { keyspaces: vec![carts.clone()], ..identity() };
    drop(settled(&scratch, &kept, Start::Usual));
    // The node ends before it has opened all partitions, and starts again.
    for _ in 0..2 {
        let directory = DataDirectory::open(scratch.path(), &both, Start::Usual).unwrap();
        directory.settle(&[(accounts.clone(), 1), (carts.clone(), 0)], None).unwrap();
    }
}

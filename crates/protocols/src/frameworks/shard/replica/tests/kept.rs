//! Rows that are kept once, where nobody reads the store.

use serried_actor::Store;

use super::trio::Trio;
use super::*;

#[test]
fn a_replica_alone_stores_no_rows_only_if_its_store_ends_with_the_run() {
    for ends in [false, true] {
        let mut bench = Bench::<Versions>::stopped();
        bench.nodes[0].store.ends_with_run = ends;
        bench.start();
        bench.wait(Duration::from_secs(1));
        assert!(matches!(bench.write(0)[..], [Reply::Executed(_)]));
        bench.commit(txn(0), Stamp::assigned(txn(0)));
        bench.pass(Duration::from_secs(3));
        assert_eq!(bench.nodes[0].store.get(b"x").is_none(), ends);
        let replies = bench.glance(9);
        let value = Some(Value::from("new"));
        let found = |reply: &Reply| match reply {
            Reply::Snapshot { found, .. } => {
                found.iter().flatten().any(|found| found.value == value)
            }
            _ => false,
        };
        assert!(replies.iter().any(found), "{replies:?}");
    }
}

#[test]
fn replicas_store_their_rows_for_others_even_if_their_stores_end_with_the_run() {
    let ends = |net: &mut testing::Net<Replica<Versions>>| {
        for member in 0..3 {
            net.nodes[NodeId(member)].store.ends_with_run = true;
        }
    };
    let mut trio = Trio::started(Mutated::NONE, ends);
    let us = trio.after_us();
    let write = Request::Shot(shot(txn(us), &[], &["x"], &[0, 1]));
    assert!(matches!(trio.ask(0, write)[..], [Reply::Executed(_)]));
    trio.commit(0, us);
    trio.pass(Duration::from_secs(3));
    for member in 0..3 {
        let node = &mut trio.nodes[NodeId(member)];
        assert!(node.store.get(b"x").is_some(), "{member}");
    }
}

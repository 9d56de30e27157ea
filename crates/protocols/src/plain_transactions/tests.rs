use super::*;
use crate::frameworks::shard::Glance;
use crate::frameworks::shard::bench::{Bench, last, ready, stamp, txn};

#[test]
fn nobody_is_refused_nor_waits() {
    let mut leader = Bench::<Validation<Nothing>>::new();
    leader.commit(10, &[], &["x"]);
    for us in [20, 30] {
        assert_eq!(leader.execute(&last(us, &["x"], &["x"])), ready(us));
        assert_eq!(leader.found(us, &["x"]), Some(vec![10]));
        leader.prepare(us);
    }
    assert!(matches!(leader.glance(40, "x"), Glance::Found(found) if found.version == txn(10)));
    // The first of them loses what it has written, though it ends last.
    leader.end(30, Some(stamp(30)));
    leader.end(20, Some(stamp(20)));
    assert!(matches!(leader.glance(40, "x"), Glance::Found(found) if found.version == txn(30)));
}

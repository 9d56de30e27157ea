//! One shard's locks and timestamps, to which shots come by hand.

use serried_actor::ClockInterval;

use super::Timestamping;
use crate::frameworks::shard::bench::{Bench, last, ready, shot, txn};
use crate::frameworks::shard::{Event, Glance, Shot, Stamp};

fn at(earliest_us: u64, latest_us: u64) -> Bench<Timestamping> {
    let mut bench = Bench::new();
    bench.clock = ClockInterval { earliest_us, latest_us };
    bench
}

impl Bench<Timestamping> {
    fn turn_to(&mut self, earliest_us: u64, latest_us: u64) {
        self.clock = ClockInterval { earliest_us, latest_us };
    }

    /// A transaction writes a key, and is ready to commit from this moment on.
    fn write(&mut self, us: u64, key: &str) -> Stamp {
        assert_eq!(self.execute(&shot(us, 1, &[], &[key])), [Event::Released(txn(us), 1)]);
        assert_eq!(self.execute(&last(us, &[], &[])), ready(us));
        self.prepare(us).from
    }

    fn glanced(&mut self, us: u64, key: &str) -> u64 {
        match self.glance(us, key) {
            Glance::Found(found) => found.version.timestamp_us,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_part_begins_after_the_latest_time_that_it_can_be() {
    let mut bench = at(900, 1100);
    assert_eq!(bench.execute(&last(700, &[], &[])), ready(700));
    let from = bench.prepare(700).from;
    assert!((1101..=1100 + Stamp::LANES).contains(&from.us), "{from:?}");
    // The first shot shows that it has begun before that, so less is enough.
    let mut bench = at(900, 1100);
    assert_eq!(bench.execute(&shot(800, 1, &[], &["x"])), [Event::Released(txn(800), 1)]);
    bench.turn_to(1800, 2000);
    assert_eq!(bench.execute(&last(800, &[], &[])), ready(800));
    let from = bench.prepare(800).from;
    assert!((2000 - Stamp::LANES..2000).contains(&from.us), "{from:?}");
    let mut bench = at(900, 1100);
    let from = bench.write(800, "x");
    assert!((1101..=1100 + Stamp::LANES).contains(&from.us), "{from:?}");
    let mut bench = at(900, 1100);
    assert!(bench.write(2000, "x").us >= 2000, "its client's clock is ahead");
}

#[test]
fn a_part_begins_after_reads_though_the_clock_goes_back() {
    let mut bench = at(900, 1100);
    assert_eq!(bench.glanced(1100, "x"), 0);
    bench.turn_to(100, 300);
    assert!(bench.write(200, "y").us > 1100);
}

#[test]
fn a_read_waits_for_what_may_commit_before_it_and_for_nothing_else() {
    let mut bench = at(900, 1100);
    let from = bench.write(800, "x");
    bench.turn_to(1900, 2100);
    assert_eq!(bench.glance(2000, "x"), Glance::Waits(txn(800)));
    assert_eq!(bench.glance(from.us, "x"), Glance::Waits(txn(800)));
    assert_eq!(bench.glanced(from.us - 1, "x"), 0);
    assert_eq!(bench.glanced(2000, "y"), 0);
    // It has the lock to write, and has not written yet.
    let for_update = Shot { for_update: 1, ..shot(810, 1, &["z"], &[]) };
    assert_eq!(bench.execute(&for_update), [Event::Released(txn(810), 1)]);
    assert_eq!(bench.glanced(2000, "z"), 0);
    assert_eq!(bench.execute(&last(810, &[], &[])), ready(810));
    assert_eq!(bench.glanced(2100, "z"), 0, "it writes nothing");
}

#[test]
fn a_version_is_not_shown_before_its_moment_is_over() {
    let mut bench = at(900, 1100);
    let from = bench.write(800, "x");
    bench.end(800, Some(from));
    bench.turn_to(1000, 1200);
    assert_eq!(bench.glance(1200, "x"), Glance::WaitsUntil(from.us));
    assert_eq!(bench.glanced(1100, "x"), 0, "it read before");
    bench.turn_to(from.us, from.us + 200);
    assert_eq!(bench.glance(1200, "x"), Glance::WaitsUntil(from.us), "it may be that time");
    bench.turn_to(from.us + 1, from.us + 201);
    assert_eq!(bench.glanced(1200, "x"), from.us);
}

#[test]
fn what_is_not_ready_to_commit_is_not_waited_for_and_comes_after_the_read() {
    let mut bench = at(900, 1100);
    assert_eq!(bench.execute(&shot(800, 1, &[], &["x"])), [Event::Released(txn(800), 1)]);
    bench.turn_to(1900, 2100);
    assert_eq!(bench.glanced(2000, "x"), 0);
    bench.turn_to(1000, 1200);
    assert_eq!(bench.execute(&last(800, &[], &[])), ready(800));
    let from = bench.prepare(800).from;
    assert!(from.us > 2000, "{from:?}");
}

#[test]
fn a_new_leader_lets_reads_wait_for_what_a_former_one_has_prepared() {
    let mut bench = at(900, 1100);
    let from = bench.write(800, "x");
    assert_eq!(bench.fail_over(), [Event::Settled(txn(800))]);
    bench.turn_to(1900, 2100);
    assert_eq!(bench.glance(2000, "x"), Glance::Waits(txn(800)));
    assert_eq!(bench.glanced(from.us - 1, "x"), 0);
}

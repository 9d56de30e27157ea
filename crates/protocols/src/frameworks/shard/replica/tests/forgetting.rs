//! Outcomes are forgotten after all shards have reported that earlier transactions have ended.

use super::super::super::message::{Entry, Led};
use super::*;
use crate::frameworks::replicated_log::Record as LogRecord;

/// The time below which outcomes may be forgotten, according to the log.
fn forget_us(bench: &Bench<Queues<false>>) -> u64 {
    let entries = bench.nodes[0].records.iter().filter_map(|record| match record {
        LogRecord::Accepted { entries, .. } => Some(entries.iter().flatten()),
        _ => None,
    });
    let windows = entries.flatten().filter_map(|entry| match entry {
        Led { entry: Entry::Window(window), .. } => Some(window.forget_us),
        _ => None,
    });
    windows.max().expect("it leads, so there is a window")
}

/// Advances the time. If `other_is_over`, the other shard reports each time that all of its
/// transactions have ended.
fn long_time(bench: &mut Bench<Queues<false>>, other_is_over: bool) {
    for _ in 0..20 {
        bench.wait(Duration::from_secs(60));
        if other_is_over {
            let over = Message::Request(Request::Over { below_us: bench.clock_us() });
            bench.act(|replica, cx| replica.on_message(NodeId::replica(1, 0), over, cx));
        }
    }
}

#[test]
fn no_outcome_is_forgotten_before_all_shards_have_said_that_it_is_over() {
    for other_is_over in [false, true] {
        let mut bench = Bench::new();
        assert!(matches!(bench.write(0)[..], [Reply::Executed(_)]));
        bench.commit(txn(0), Stamp::assigned(txn(0)));
        long_time(&mut bench, other_is_over);
        assert_eq!(forget_us(&bench) > NOW_US, other_is_over);
    }
}

#[test]
fn no_outcome_is_forgotten_of_a_time_after_that_of_an_open_transaction() {
    let mut bench = Bench::new();
    assert!(matches!(bench.write(0)[..], [Reply::Executed(_)]));
    long_time(&mut bench, true);
    assert!(forget_us(&bench) <= NOW_US, "it has not ended here");
}

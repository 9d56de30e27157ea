//! A replica whose clock was ahead for a while.

use super::*;

const HOUR_US: u64 = 3_600_000_000;

/// The only replica of a shard. Its clock was an hour ahead when it admitted a transaction, and is
/// correct again.
fn was_ahead(restarts: bool) -> Bench<Queues<false>> {
    let mut bench = Bench::new();
    bench.set_clock_us(NOW_US + HOUR_US);
    assert!(matches!(bench.write(HOUR_US)[..], [Reply::Executed(_)]));
    bench.commit(txn(HOUR_US), Stamp::assigned(txn(HOUR_US)));
    bench.set_clock_us(NOW_US + 1_000_000);
    if restarts {
        bench.restart();
    }
    bench
}

/// How long after now the replica admits transactions, as it reports to a client with a correct
/// clock.
fn told(bench: &mut Bench<Queues<false>>) -> u64 {
    let said = bench.write(1_000_000);
    let [Reply::Refused { reason: Refusal::Late { from_us }, .. }] = said[..] else {
        panic!("{said:?}")
    };
    from_us - NOW_US
}

#[test]
fn a_window_that_is_ahead_takes_clients_that_begin_there() {
    for restarts in [false, true] {
        let mut bench = was_ahead(restarts);
        let from_us = told(&mut bench);
        let said = bench.write(from_us - 1);
        let late =
            |reply: &Reply| matches!(reply, Reply::Refused { reason: Refusal::Late { .. }, .. });
        assert!(said.iter().all(late) && !said.is_empty(), "a microsecond too early: {said:?}");
        let said = bench.write(from_us);
        assert!(matches!(said[..], [Reply::Executed(_)]), "restarted: {restarts}; {said:?}");
    }
}

#[test]
fn a_window_that_is_ahead_reaches_no_further_than_the_bound() {
    let mut bench = was_ahead(true);
    let bound_us = Settings::default().clock_bound_ms * 1000;
    let limit_us = told(&mut bench) + bound_us;
    for i in 0..3 {
        // Admitted transactions do not move the limit.
        for (after_us, is_taken) in [(limit_us + 1 + i, false), (limit_us - i, true)] {
            let said = bench.write(after_us);
            let refused = |reply: &Reply| {
                matches!(reply, Reply::Refused { reason: Refusal::ClockSkew { .. }, .. })
            };
            assert_ne!(said.iter().any(refused), is_taken, "{said:?}");
        }
    }
}

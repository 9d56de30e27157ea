//! No message stops a replica.

use super::super::super::forger::Forger;
use super::*;
use crate::frameworks::validation::Validation;
use crate::occ::Locks;
use crate::plain_transactions::Nothing;
use crate::tapir_cc::Timestamps;
use crate::two_phase_locking::Locking;

fn forge_for<C: Control>() {
    for seed in 0..60 {
        let mut forger = Forger(Pcg64Mcg::new(seed));
        let mut bench = Bench::<C>::new();
        bench.forged = true;
        for _ in 0..400 {
            let (from, message) = (forger.sender(), forger.message());
            bench.act(|replica, cx| replica.on_message(from, message, cx));
            match forger.below(100) {
                0 => bench.wait(Duration::from_secs(3)),
                1 => bench.wait(Duration::from_millis(300)),
                2 => bench.restart(),
                _ => {}
            }
        }
        // Correct requests are still served.
        bench.wait(Duration::from_secs(20));
        let us = bench.clock_us() - NOW_US;
        bench.wait(Duration::from_millis(1));
        let replies = bench.ask(Request::Inspect { txn: txn(us) });
        assert!(matches!(replies[..], [Reply::Refused { .. }]), "{}: {replies:?}", C::NAME);
    }
}

#[test]
fn no_message_ends_a_replica() {
    forge_for::<Queues<true>>();
    forge_for::<Queues<false>>();
    forge_for::<Versions>();
    forge_for::<Locking<true>>();
    forge_for::<Locking<false>>();
    forge_for::<Validation<Locks>>();
    forge_for::<Validation<Timestamps>>();
    forge_for::<Validation<Nothing>>();
}

//! Clocks that leave their bound, of one machine or of all.

use core::time::Duration;

use serried_model::{Token, Version};

use super::net::{Net, X, client};
use super::*;

const HOUR_US: i64 = 3_600_000_000;

/// The clock of one machine is an hour ahead, and so is that of a client on it, which asks the replica there.
fn with_one_machine_ahead(variant: Variant) -> Net {
    let mut net = Net::new(variant, 3);
    net.ahead_us.extend([(NodeId(0), HOUR_US), (client(0), HOUR_US)]);
    net
}

#[test]
fn one_clock_that_is_ahead_blocks_nobody() {
    for variant in BOTH {
        let mut net = with_one_machine_ahead(variant);
        net.ask(0, 1, append("a"));
        net.pass(Duration::from_secs(1));
        assert_eq!(net.ended(0, 1), "ClockSkew { ahead_us: 3600000000 }", "{variant:?}");
        for (client, txn, before) in [(2, 1, "-"), (1, 1, "b"), (2, 2, "bb")] {
            net.ask(client, txn, append("b"));
            net.pass(Duration::from_secs(1));
            assert_eq!(net.ended(client, txn), format!("{before} Committed"), "{variant:?}");
        }
    }
}

#[test]
fn a_replica_whose_clock_alone_is_behind_refuses_nobody() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.ahead_us.extend((1..3).map(NodeId).chain([client(0)]).map(|id| (id, HOUR_US)));
        net.pass(Duration::from_secs(3));
        net.ask(0, 1, append("a"));
        net.settle();
        net.pass(Duration::from_millis(1));
        assert_eq!(net.ended(0, 1), "- Committed", "{variant:?}");
        net.assert_agree(X);
    }
}

/// A client's update is done an hour ahead of time, and then one of another whose clock is right.
fn after_all_clocks_were_ahead(variant: Variant) -> Net {
    let mut net = Net::new(variant, 3);
    net.ask(1, 1, append("a"));
    net.settle();
    let all = (0..3).map(NodeId).chain([client(0), client(2)]);
    net.ahead_us.extend(all.map(|id| (id, HOUR_US)));
    net.pass(Duration::from_secs(3));
    net.ask(0, 1, append("b"));
    net.pass(Duration::from_secs(1));
    assert_eq!(net.ended(0, 1), "a Committed", "{variant:?}");
    net.ahead_us.clear();
    net.pass(Duration::from_secs(3));
    net
}

#[test]
fn clocks_that_were_ahead_close_no_key() {
    for variant in BOTH {
        let mut net = after_all_clocks_were_ahead(variant);
        for (txn, before) in [(1, "ab"), (2, "abc")] {
            net.ask(2, txn, append("c"));
            net.pass(Duration::from_secs(1));
            assert_eq!(net.ended(2, txn), format!("{before} Committed"), "{variant:?}");
        }
    }
}

/// Results are forgotten by the times of updates. An update whose result may be forgotten is not executed.
#[test]
fn no_write_is_acknowledged_that_is_not_executed() {
    let mut net = after_all_clocks_were_ahead(Variant::Epaxos);
    let id = Version { timestamp_us: net.token(1, 1).timestamp_us, coordinator: client(2) };
    net.ask_again(2, 1, write("v"), Token { id, carstamp: None });
    net.pass(Duration::from_secs(1));
    assert_eq!(net.ended(2, 1), "Forgotten", "nobody can tell whether it was executed before");
    net.ask(2, 2, Access::Read);
    net.pass(Duration::from_secs(1));
    assert_eq!(net.ended(2, 2), "ab Committed");
}

#[test]
fn old_clock_readings_refuse_nobody() {
    for variant in BOTH {
        // The clocks were behind when the replicas started, and were set right since.
        let mut net = Net::new(variant, 3);
        net.ahead_us.extend((0..3).map(NodeId).chain([client(0)]).map(|id| (id, HOUR_US)));
        net.pass(Duration::from_secs(60));
        net.ask(0, 1, append("a"));
        net.settle();
        net.pass(Duration::from_millis(1));
        assert_eq!(net.ended(0, 1), "- Committed", "{variant:?}");
    }
}

#[test]
fn a_request_waits_until_a_majority_of_clocks_is_known() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        (0..3).for_each(|member| net.crash(member));
        net.restart(0);
        net.ahead_us.extend([(NodeId(0), HOUR_US), (client(0), HOUR_US)]);
        net.ask(0, 1, append("a"));
        net.deliver("c0>0 Request");
        assert_eq!(net.waiting(), [""; 0], "{variant:?}: nobody is told of it");
        (1..3).for_each(|member| net.restart(member));
        net.pass(Duration::from_secs(10));
        net.ask(2, 1, append("b"));
        net.pass(Duration::from_secs(1));
        assert_eq!(net.ended(2, 1), "- Committed", "{variant:?}");
        net.pass(Duration::from_secs(30));
        assert_eq!(net.values(), ["b"; 3], "{variant:?}");
    }
}

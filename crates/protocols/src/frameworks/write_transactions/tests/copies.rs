//! What a site sends to another one that has to copy. The test plays the other site.

use std::collections::BTreeSet;

use super::super::message::Across;
use super::*;

/// Two partitions of one replica each, at the first of two sites. Nothing is kept for the other one.
fn site() -> Net {
    let group = || Group::new(1, Duration::from_millis(1)).with_partitions(2).at_site(0, 2);
    let settings = Settings { site_backlog_bytes: 0, ..Settings::default() };
    let mut net: Net =
        testing::Net::new(2, 1, |id| Replica::new(id, group(), &settings, Mutated::NONE));
    net.now = 1000;
    net.start();
    net.pass(Duration::from_millis(20));
    net
}

/// The other site answers for 200 ms that it has nothing. Returns the values that it is sent in copies of the first
/// partition.
fn answer(net: &mut Net) -> BTreeSet<String> {
    let mut copied = BTreeSet::new();
    for _ in 0..40 {
        net.pass(Duration::from_millis(5));
        for (from, to, message) in core::mem::take(&mut net.delivered) {
            let Message::Across { eras, across, .. } = message else { continue };
            let across = match across {
                Across::Ship { epoch, .. } => {
                    Across::Shipped { epoch, to: Versionstamp::ZERO, is_gap: false }
                }
                Across::Part { to, next, versions, needs, .. } => {
                    if from.partition() == 0 {
                        let values = versions.iter().filter_map(|(_, write)| write.value.as_ref());
                        copied.extend(values.map(Value::to_string));
                    }
                    Across::Copied { to, after: Some(next), is_done: needs.is_some() }
                }
                _ => continue,
            };
            net.deliver((to, from, Message::Across { origin: to, eras, across }));
        }
    }
    copied
}

#[test]
fn a_copy_waits_for_what_is_pending_and_may_commit_before_it_ends() {
    let mut net = site();
    assert_eq!(group(1).partition_of(&key(0, 1)), 0);
    // The first one is prepared. The second one commits later than that, and nothing is kept of it.
    send(&mut net, 0, 1, part(id(1), 0, "pending"));
    let writes = vec![write(key(0, 1), "committed")];
    let second = Request::Write { id: id(2), participants: vec![0], writes, era: None };
    send(&mut net, 0, 2, second);
    net.pass(Duration::from_millis(400));
    assert_eq!(net.gauge(leader(&net, 0), "site_backlog_bytes"), 0);
    assert!(answer(&mut net).is_empty());
    send(&mut net, 1, 3, part(id(1), 1, "pending"));
    assert_eq!(answer(&mut net), ["committed", "pending"].map(str::to_string).into());
}

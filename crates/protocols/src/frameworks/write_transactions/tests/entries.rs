//! What entries of the log change at a replica of one of two sites.

use super::super::cell::{Received, Versions};
use super::super::machine::{Machine, is_lost, merged};
use super::super::message::{Entry, Outgoing, Run};
use super::*;
use crate::frameworks::replicated_log::{Ballot, Chosen, Led, StateMachine};

fn group_of_site() -> Group {
    Group::new(1, Duration::from_millis(1)).at_site(0, 2)
}

fn machine_of_site() -> Machine {
    Machine::new(group_of_site(), &Settings::default(), Mutated::NONE)
}

/// A machine that has applied these.
fn after(entries: impl IntoIterator<Item = Entry>) -> Machine {
    let mut machine = machine_of_site();
    net(1).act(NodeId::replica(0, 0), |_, cx| {
        for (slot, entry) in (0..).zip(entries) {
            let led = Led { by: Ballot::NONE.next(0), number: slot, entry };
            machine.apply(Chosen { slot, position: slot, entry: Some(&led), led_in: None }, cx);
        }
    });
    machine
}

#[test]
fn what_a_site_had_sent_before_it_was_lost_is_lost_when_it_is_replayed_too() {
    let group = group_of_site();
    let (key, commit) = (Key::from("x"), Versionstamp::ZERO.next_of(1));
    let transactions = vec![Outgoing { commit, writes: vec![write(key.clone(), "a")] }];
    let runs = vec![Run { needs: vec![Versionstamp::ZERO; 2], transactions }];
    let entries =
        [Entry::Receive { site: 1, era: 0, to: commit, runs }, Entry::Lost { site: 1, era: 1 }];
    let mut net = net(1);
    net.act(NodeId::replica(0, 0), |_, cx| {
        let mut apply = |machine: &mut Machine, slot: usize| {
            let (by, entry) = (Ballot::NONE.next(0), entries[slot].clone());
            let led = Led { by, number: slot as u64, entry };
            let (slot, position) = (slot as u64, slot as u64);
            machine.apply(Chosen { slot, position, entry: Some(&led), led_in: None }, cx);
            let (versions, sites, _) = machine.versions_and_serving(&key, cx.store());
            let are_lost = versions.received.iter().map(|one| is_lost(one, sites, &group));
            are_lost.collect::<Vec<bool>>()
        };
        let mut first = machine_of_site();
        assert_eq!(apply(&mut first, 0), [false]);
        assert_eq!(apply(&mut first, 1), [true]);
        // What is known of sites was stored, and the key was not.
        let mut again = machine_of_site();
        again.sites.clone_from(&first.sites);
        assert_eq!(apply(&mut again, 0), [true]);
    });
}

#[test]
fn a_version_that_has_come_again_is_not_lost_if_another_replica_has_only_the_first_one() {
    let of = |era| {
        let received = vec![Received { value: None, stamp: Versionstamp(5), era }];
        Versions { received, ..Versions::default() }
    };
    for (one, other) in [(0, 1), (1, 0)] {
        assert_eq!(merged(&of(one), &of(other)).received[0].era, 1);
    }
}

#[test]
fn what_a_later_part_does_not_have_is_perhaps_a_cause_that_was_overwritten() {
    let stamp = |number: u64, site| Versionstamp(number << 20).next_of(site);
    let restored = |versions: Vec<(Versionstamp, Write)>, is_last, at| {
        let needs = vec![stamp(6, 0), at];
        Entry::Restored { site: 1, next: vec![b'x'], versions, is_last, latest: at, needs }
    };
    // Between the parts, site 1 has overwritten the cause, which would be in the second one.
    let effect = vec![(stamp(5, 0), write(Key::from("effect"), "effect"))];
    let commit = stamp(30, 1);
    let transactions =
        vec![Outgoing { commit, writes: vec![write(Key::from("x-cause"), "later")] }];
    let runs = vec![Run { needs: vec![Versionstamp::ZERO; 2], transactions }];
    let admission = Entry::Decide {
        id: id(9),
        commit: Some(stamp(50, 0)),
        writes: Vec::new(),
        cut: vec![Versionstamp::ZERO, stamp(29, 1)],
    };
    let machine = after([
        Entry::Rebuild { eras: vec![1, 0], latest: stamp(10, 1) },
        restored(effect, false, stamp(20, 1)),
        restored(Vec::new(), true, stamp(40, 1)),
        Entry::Whole,
        Entry::Receive { site: 1, era: 0, to: stamp(35, 1), runs },
        admission,
        Entry::Lost { site: 1, era: 1 },
    ]);
    assert!(machine.sites.cut[1] > stamp(20, 1), "all that was needed when the effect was sent");
    assert!(machine.sites.is_rebuilding() && machine.sites.is_torn());
}

#[test]
fn a_copy_contains_what_has_committed_while_nothing_was_kept() {
    let commit = Versionstamp::ZERO.next_of(0);
    let machine = after([
        Entry::GiveUp(1),
        Entry::Write { id: id(2), commit, writes: vec![write(Key::from("x"), "a")] },
        Entry::TakeBack(1, Versionstamp::ZERO),
    ]);
    assert_eq!(machine.sites.acknowledged[1], commit);
}

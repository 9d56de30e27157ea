//! Trials in which machines lose each other, but not their clients. So a leader that was deposed goes on to receive
//! requests.

use std::time::Duration;

use serried_actor::{Protocol, Timestamp};
use serried_model::{FamilyName, Snapshots};
use serried_protocols::{Visitor, promising, visit};
use serried_sim::{Fault, Reach, Scheduled, Side};

use super::support::seeds;
use super::trial::Trial;

fn others(member: usize, replicas: usize) -> Side {
    Side::replicas((0..replicas).filter(|other| *other != member))
}

fn at(lasts: Duration, sixths: u32) -> Timestamp {
    Timestamp(0) + lasts * sixths / 6
}

fn cut(begins: Timestamp, ends: Timestamp, reach: Reach) -> Scheduled {
    Scheduled { begins, ends, fault: Fault::Partition(reach) }
}

/// One machine after the other is cut off from the others.
pub(crate) fn in_turn(replicas: usize, lasts: Duration) -> Vec<Scheduled> {
    let turn = |turn: u32| {
        let member = turn as usize % replicas;
        let reach = Reach::between(Side::replicas([member]), others(member, replicas));
        cut(at(lasts, 2 * turn), at(lasts, 2 * turn + 2), reach)
    };
    if replicas == 1 { Vec::new() } else { (0..3).map(turn).collect() }
}

/// One machine after the other first does not reach another one, and is then cut off from all others. So what it has to
/// tell the first of them does not arrive any more.
pub(crate) fn step_by_step(replicas: usize, lasts: Duration) -> Vec<Scheduled> {
    let turn = |turn: u32| {
        let member = turn as usize % replicas;
        let (from, next) = (Side::replicas([member]), Side::replicas([(member + 1) % replicas]));
        let middle = at(lasts, 2 * turn) + lasts / 12;
        [
            cut(at(lasts, 2 * turn), middle, Reach::one_way(from.clone(), next)),
            cut(middle, at(lasts, 2 * turn + 2), Reach::between(from, others(member, replicas))),
        ]
    };
    if replicas == 1 { Vec::new() } else { (0..3).flat_map(turn).collect() }
}

struct CutOff;

impl Visitor<Snapshots> for CutOff {
    type Output = ();

    fn visit<P: Protocol<Family = Snapshots>>(self) {
        for seed in seeds(20) {
            for faults in [in_turn, step_by_step] {
                let trial = Trial { seed, crashes: false, sites: false, loses: false };
                if let Some(wrong) = trial.run_with::<P>(faults).wrong {
                    panic!("{} with seed {seed}: {wrong}", P::NAME);
                }
            }
        }
    }
}

#[test]
fn snapshots_keep_their_guarantee_while_machines_lose_each_other_and_not_their_clients() {
    let only = std::env::var("SERRIED_PROTOCOL").ok();
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    for protocol in promising(FamilyName::Snapshots).filter(|protocol| is_wanted(protocol.name)) {
        visit(protocol.name, CutOff).unwrap();
    }
}

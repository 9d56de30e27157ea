//! A client whose clock is behind those of others, and wants the same key.

use super::by_hand::{contents, decide, prepare, version};
use super::world::{World, n};
use super::*;
use crate::morty::message::Conflict;

/// By how much the other's clock is ahead, in microseconds.
const AHEAD_US: i64 = 500;

#[test]
fn it_aborts_once_and_then_takes_versions_after_those_that_were_in_its_way() {
    for mut net in [morty(2), mvtso(2)] {
        net.tick = 0;
        net.ahead_us.insert(coordinator_id(1), AHEAD_US);
        net.commit(1, &[], &[("x", "0")]);
        net.settle();
        net.now += 10_000;
        let mut aborted = Vec::new();
        for round in 0..9 {
            net.now += 50;
            net.get(1, "x");
            net.settle();
            net.now += 50;
            net.get(0, "y");
            net.settle();
            net.commit(1, &["x"], &[]);
            net.settle();
            net.commit(0, &["y"], &[("x", "1")]);
            net.settle();
            assert!(net.told(1).contains(&"committed".to_string()));
            if net.told(0).iter().any(|told| told.starts_with("aborted")) {
                aborted.push(round);
            }
        }
        assert_eq!(aborted, [0]);
    }
}

#[test]
fn votes_name_the_latest_reader_that_misses_a_write() {
    let [before, writer, first, second] = [5, 10, 20, 30].map(|at| version(at, at));
    let reads = contents(&[("x", before)], &[("y", "1")]);
    for (commits, expected) in [(false, Vote::AbandonTentative), (true, Vote::AbandonFinal)] {
        let mut world = World::new(1);
        world.now = 40;
        world.commit(&[0], before, &contents(&[], &[("x", "0")]));
        for reader in [second, first] {
            world.tell(reader.coordinator, n(0), prepare(reader, 0, &reads));
            if commits {
                world.tell(reader.coordinator, n(0), decide(reader, 0, Decision::Commit, &reads));
            }
        }
        let late = prepare(writer, 0, &contents(&[], &[("x", "1")]));
        let said = world.tell(writer.coordinator, n(0), late);
        let voted = said.iter().find_map(|(.., message)| match message {
            Message::Reply(Reply::PrepareReply { vote, conflict, .. }) => Some((*vote, conflict)),
            _ => None,
        });
        let over = Conflict { readers: Some(second), ..Conflict::over(Key::from("x")) };
        assert_eq!(voted, Some((expected, &Some(over))));
    }
}

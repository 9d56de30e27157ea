//! Replicas that come back together, and have only each other to ask at first.

use super::by_hand::{contents, version};
use super::world::{SECOND, World, n};
use super::*;

/// Five replicas, of which these miss the last of two writes, and come back together.
fn back_together(away: &[usize]) -> World {
    let mut world = World::of(5);
    world.commit(&[0, 1, 2, 3, 4], version(SECOND, 0), &contents(&[], &[("k", "old")]));
    let others: Vec<usize> = (0..5).filter(|member| !away.contains(member)).collect();
    world.commit(&others, version(SECOND + 1, 0), &contents(&[], &[("k", "new")]));
    away.iter().for_each(|member| world.restart(n(*member)));
    world
}

/// Delivers what these members say to each other, and has those that wait for an answer wait in vain for so many times.
fn talk(world: &mut World, members: &[usize], waits: usize) {
    let are_there = |e: &Envelope| {
        [e.0, e.1].iter().all(|node| members.iter().any(|member| n(*member) == *node))
    };
    for _ in 0..=waits {
        world.settle(are_there);
        world.network.clear();
        for member in members {
            world.timer(n(*member), ReplicaTimer::CatchUp);
        }
    }
    world.network.clear();
}

/// Which of these members are behind.
fn behind(world: &World, members: &[usize]) -> Vec<usize> {
    let is_behind = |member: &&usize| world.gauge(n(**member), "catching_up") == 1;
    members.iter().filter(is_behind).copied().collect()
}

#[test]
fn who_hears_only_of_one_that_is_behind_itself_is_behind_still() {
    let mut world = back_together(&[0, 1]);
    talk(&mut world, &[0, 1], 50);
    assert_eq!(behind(&world, &[0, 1]), [0, 1]);
    // One of the others is enough.
    talk(&mut world, &[0, 1, 4], 30);
    assert_eq!(behind(&world, &[0, 1, 4]), [] as [usize; 0]);
    for member in [0, 1] {
        assert_eq!(world.read(n(member), "k"), Some(Value::from("new")), "n{member}");
    }
}

#[test]
fn who_hears_of_one_that_is_behind_asks_the_next_at_once() {
    let mut world = back_together(&[0, 1]);
    world.settle_all();
    assert_eq!(behind(&world, &[0, 1]), [] as [usize; 0]);
    for member in [0, 1] {
        assert_eq!(world.read(n(member), "k"), Some(Value::from("new")), "n{member}");
    }
}

#[test]
fn after_a_power_loss_everywhere_a_majority_is_enough_to_catch_up() {
    for there in [&[0, 1, 2, 3, 4][..], &[0, 1, 2], &[0, 2, 4], &[1, 2, 3, 4]] {
        let mut world = back_together(&[0, 1]);
        (0..5).for_each(|member| world.restart(n(member)));
        // Each waits for those that are away until it gives them up.
        talk(&mut world, there, 30);
        assert_eq!(behind(&world, there), [] as [usize; 0], "of {there:?}");
        for member in there {
            assert_eq!(
                world.read(n(*member), "k"),
                Some(Value::from("new")),
                "n{member} of {there:?}"
            );
        }
    }
    let mut world = back_together(&[0, 1]);
    (0..5).for_each(|member| world.restart(n(member)));
    talk(&mut world, &[2, 3], 50);
    assert_eq!(behind(&world, &[2, 3]), [2, 3], "two of five are no majority");
}

//! A replica that is behind, and a transaction that has found nothing in one of the keys that it has read.

use std::sync::Arc;

use super::by_hand::{contents, prepare, version};
use super::world::{SECOND, World, n, votes};
use super::*;
use crate::morty::Digest;
use crate::morty::message::Contents;

/// n0's final votes on a transaction that has read `x` from a writer of which n0 has fetched all but its write of `x`, and
/// has found nothing in `absent`. n0 is behind.
fn final_votes(absent: &[&str]) -> Vec<Vote> {
    // Nothing has been heard of the other partition's watermark.
    let mut world = World::new(2);
    world.now = 50 * SECOND;
    world.settle_below(n(0), 4 * SECOND, Digest::default());
    let (writer, reader) = (version(5 * SECOND, 0), version(45 * SECOND, 0));
    let nothing = absent.iter().map(|key| (*key, Version::INITIAL));
    let reads: Vec<_> = [("x", writer)].into_iter().chain(nothing).collect();
    let what = contents(&reads, &[("y", "1")]);
    let first = world.tell(reader.coordinator, n(0), prepare(reader, 0, &what));
    assert_eq!(votes(&first), [Vote::Provisional]);
    world.restart(n(0));
    let left = Contents { participants: [0].into_iter().collect(), ..Contents::default() };
    let executions = vec![(writer, 0, Arc::new(left))];
    let fetched =
        Message::CatchingUp(CatchingUp::Fetched { executions, readable_from: 40 * SECOND });
    votes(&world.tell(n(1), n(0), fetched))
}

#[test]
fn a_read_that_found_nothing_has_no_writer_that_aborted() {
    assert_eq!(final_votes(&[]), [], "n0 is behind, so it is not certain");
    assert_eq!(final_votes(&["z"]), [], "nor is it if something else was absent");
}

//! A leader fails when followers have accepted its last entries, and not those before them.

mod random;

use super::trio::Trio;
use super::*;
use crate::frameworks::shard::{Executed, Mutation};

const FLUSH: Timer = Timer::Log(replicated_log::Timer::Flush);

/// The last shot of the transaction that begins at `after_us`, whose backup coordinator is shard `backup`.
fn last(after_us: u64, backup: u16, reads: &[&str], writes: &[&str]) -> Request {
    let value = Some(Value::from(after_us.to_string().as_str()));
    let write = |key: &&str| Write { key: Key::from(*key), value: value.clone() };
    Request::Shot(Shot {
        txn: txn(after_us),
        age: None,
        number: 1,
        reads: reads.iter().map(|key| Key::from(*key)).collect(),
        for_update: 0,
        writes: writes.iter().map(write).collect(),
        participants: Some(if backup == 0 { Arc::new([0]) } else { Arc::new([1, 0]) }),
    })
}

fn abort(after_us: u64) -> Request {
    Request::End { txn: txn(after_us), decision: Decision::Abort }
}

impl<C: Control> Trio<C> {
    /// The first replica gets a request and proposes what comes of it.
    fn propose(&mut self, request: Request) {
        self.deliver((CLIENT, NodeId(0), Message::Request(request)));
        self.fire(0, FLUSH);
    }

    /// The end of a transaction is chosen. What the first replica proposes because of that is lost.
    fn lose_what_follows(&mut self, end: Request) {
        self.propose(end);
        self.settle();
        self.fire(0, FLUSH);
        assert!(!self.network.is_empty(), "it has proposed something");
        self.network.clear();
    }

    /// The first replica gets these requests, others accept what comes of them, and the first fails. Returns the next
    /// leader.
    fn fail_after(&mut self, requests: impl IntoIterator<Item = Request>) -> u64 {
        self.first_is_deaf();
        for request in requests {
            self.propose(request);
        }
        self.settle();
        self.away.insert(NodeId(0));
        self.pass(Duration::from_secs(4));
        self.told();
        self.leader()
    }
}

fn kept() -> Mutated<Mutation> {
    Mutated::by(Mutation::KeepsEntriesBehindGaps)
}

/// A transaction had read what was then aborted. It could not read again without waiting for a younger one, and was refused.
/// Another one came after that, and overwrote what the first was to write. Whether both are answered.
fn both_are_answered(mutation: Mutated<Mutation>) -> bool {
    let mut trio = Trio::<Queues<false>>::mutated(mutation);
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    let reader = last(us + 1, 0, &["x"], &["y"]);
    assert_eq!(trio.ask(0, reader.clone()), [], "it waits for the first");
    assert_eq!(trio.ask(0, last(us + 2, 1, &[], &["x"])), []);
    // With the end of the first, the refusal of the second is proposed.
    trio.propose(abort(us));
    assert!(!trio.network.is_empty());
    trio.network.clear();
    let later = last(us + 3, 1, &["y"], &["y"]);
    let second = trio.fail_after([abort(us + 2), later.clone()]);
    trio.ask(second, abort(us));
    trio.ask(second, abort(us + 2));
    [reader, later].into_iter().all(|shot| {
        let mut replies = trio.ask(second, shot);
        trio.pass(Duration::from_secs(9));
        replies.extend(trio.told());
        !replies.is_empty()
    })
}

#[test]
fn no_part_is_chosen_that_was_made_after_a_refusal_that_is_lost() {
    assert!(both_are_answered(Mutated::NONE));
    assert!(!both_are_answered(kept()), "each waits for the other");
}

/// A transaction had read what was then aborted. The version before that was not kept, so it was refused. Another one came
/// after that, and read the version before the one that the first was to write. Whether both can commit.
fn both_commit(mutation: Mutated<Mutation>) -> bool {
    let mut trio = Trio::<Versions>::mutated(mutation);
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    assert_eq!(trio.ask(0, last(us + 1, 1, &["x"], &["y"])), [], "it waits for the first");
    trio.ask(0, last(us + 2, 0, &[], &["x"]));
    trio.commit(0, us + 2);
    trio.pass(Duration::from_millis(Settings::default().truncation_lag_ms + 1000));
    let now_us = trio.after_us();
    trio.ask(0, last(now_us, 0, &[], &["x"]));
    trio.commit(0, now_us);
    trio.lose_what_follows(abort(us));
    let reader = last(now_us + 1, 0, &["y"], &["z"]);
    let second = trio.fail_after([reader.clone()]);
    let writes = trio.ask(second, Request::Inspect { txn: txn(us + 1) });
    let reads = trio.ask(second, reader);
    let commits = |reply: &Reply| match reply {
        Reply::Prepared { .. } | Reply::Executed(_) => true,
        Reply::Decided { decision, .. } => *decision != Decision::Abort,
        _ => false,
    };
    writes.iter().any(commits) && reads.iter().any(commits)
}

#[test]
fn no_part_is_chosen_that_has_read_before_a_write_whose_refusal_is_lost() {
    assert!(!both_commit(Mutated::NONE));
    assert!(both_commit(kept()), "the write comes before the read, which has not seen it");
}

fn trusting() -> Mutated<Mutation> {
    Mutated::by(Mutation::TrustsUncertainEnds)
}

/// The first replica decides by `end` what becomes of others, and fails before anything of that leaves it. Returns the
/// answers to last shots that have left it nevertheless.
fn told_with_nothing_chosen(trio: &mut Trio<Queues<false>>, end: Request) -> Vec<Version> {
    trio.deliver((CLIENT, NodeId(0), Message::Request(end)));
    trio.settle();
    let told = trio.told();
    trio.network.clear();
    trio.away.insert(NodeId(0));
    trio.pass(Duration::from_secs(4));
    trio.told();
    let executed = |reply| match reply {
        Reply::Executed(executed) => Some(executed.txn),
        _ => None,
    };
    told.into_iter().filter_map(executed).collect()
}

/// A transaction has read what is then aborted. It reads again, and ends alone with its new part. Another one has read what
/// the first has written. It was in the log before that new part. Whether it is answered before that is chosen.
fn answers_what_rests_on_a_part_that_was_made_again(mutation: Mutated<Mutation>) -> bool {
    let mut trio = Trio::<Queues<false>>::mutated(mutation);
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    let first = last(us + 1, 0, &["x"], &["y"]);
    assert_eq!(trio.ask(0, first.clone()), []);
    assert_eq!(trio.ask(0, last(us + 2, 0, &["y"], &[])), []);
    let told = told_with_nothing_chosen(&mut trio, abort(us));
    // At the next leader a write comes between, so the first one can't read again, and is aborted.
    let second = trio.leader();
    let now_us = trio.after_us();
    trio.ask(second, last(now_us, 1, &[], &["x"]));
    trio.ask(second, abort(us));
    let end = trio.ask(second, first);
    let aborted = [Reply::Decided { txn: txn(us + 1), decision: Decision::Abort }];
    assert_eq!(end, aborted);
    told == [txn(us + 2)]
}

#[test]
fn nothing_is_answered_that_rests_on_a_part_which_was_made_again_and_is_not_chosen() {
    assert!(!answers_what_rests_on_a_part_that_was_made_again(Mutated::NONE));
    assert!(answers_what_rests_on_a_part_that_was_made_again(trusting()));
}

/// A transaction has read what is then aborted, and can't read again, so it is refused. Another one has overwritten what the
/// first had written. Whether it is answered before the refusal is chosen.
fn answers_what_rests_on_a_refusal(mutation: Mutated<Mutation>) -> bool {
    let mut trio = Trio::<Queues<false>>::mutated(mutation);
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    assert_eq!(trio.ask(0, last(us + 1, 1, &["x"], &["y"])), []);
    assert_eq!(trio.ask(0, last(us + 2, 0, &[], &["y"])), []);
    trio.first_is_deaf();
    trio.deliver((CLIENT, NodeId(0), Message::Request(last(us + 3, 0, &[], &["x"]))));
    trio.settle();
    assert_eq!(trio.told(), []);
    trio.network.clear();
    let told = told_with_nothing_chosen(&mut trio, abort(us));
    // The next leader knows nothing of the refusal.
    let second = trio.leader();
    trio.ask(second, abort(us));
    let part = trio.ask(second, Request::Inspect { txn: txn(us + 1) });
    assert!(matches!(part[..], [Reply::Prepared { .. }]), "{part:?}");
    told == [txn(us + 2)]
}

#[test]
fn nothing_is_answered_that_rests_on_a_refusal_which_is_not_chosen() {
    assert!(!answers_what_rests_on_a_refusal(Mutated::NONE));
    assert!(answers_what_rests_on_a_refusal(trusting()));
}

#[test]
fn who_rests_on_an_end_that_is_not_certain_is_answered_once_it_is_chosen() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    for (after, reads) in [(1, "x"), (2, "y")] {
        assert_eq!(trio.ask(0, last(us + after, 0, &[reads], &["y"])), []);
    }
    let told = trio.ask(0, abort(us));
    let answered = |after| {
        told.iter().any(|reply| matches!(reply, Reply::Executed(it) if it.txn == txn(us + after)))
    };
    assert!(answered(1) && answered(2), "{told:?}");
    trio.pass(Duration::from_secs(1));
    assert_eq!(trio.nodes[NodeId(0)].gauge("uncertain"), 0);
}

#[test]
fn one_that_was_inherited_and_reads_again_is_answered_with_what_it_has_read() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    trio.ask(0, last(us, 1, &[], &["x"]));
    let reader = last(us + 1, 0, &["x"], &[]);
    assert_eq!(trio.ask(0, reader.clone()), []);
    trio.away.insert(NodeId(0));
    trio.pass(Duration::from_secs(4));
    trio.told();
    let second = trio.leader();
    trio.deliver((CLIENT, NodeId(second), Message::Request(abort(us))));
    trio.deliver((CLIENT, NodeId(second), Message::Request(reader)));
    trio.pass(Duration::from_millis(10));
    let told = trio.told();
    let found = told.iter().find_map(|reply| match reply {
        Reply::Executed(Executed { found, .. }) => Some(found.len()),
        _ => None,
    });
    assert_eq!(found, Some(1), "{told:?}");
}

#[test]
fn an_answer_that_was_lost_is_repeated_until_its_client_confirms_the_end() {
    let mut trio = Trio::<Queues<false>>::new();
    let us = trio.after_us();
    let shot = last(us, 0, &["x"], &["x"]);
    let first = trio.ask(0, shot.clone());
    assert!(matches!(&first[..], [Reply::Executed(executed)] if executed.found.len() == 1));
    trio.pass(Duration::from_millis(100));
    assert_eq!(trio.ask(0, shot.clone()), first);
    trio.commit(0, us);
    let end = trio.ask(0, shot);
    assert!(matches!(end[..], [Reply::Decided { decision: Decision::Commit(_), .. }]), "{end:?}");
}

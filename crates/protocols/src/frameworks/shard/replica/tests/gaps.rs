//! A leader fails when followers have accepted its last entries, and not those before them.

mod random;
mod uncertain;

use super::trio::Trio;
use super::*;
use crate::frameworks::shard::Mutation;

const FLUSH: Timer = Timer::Log(replicated_log::Timer::Flush);

/// The last shot of the transaction that begins at `after_us`, whose backup coordinator is shard `backup`.
fn last(after_us: u64, backup: u16, reads: &[&str], writes: &[&str]) -> Request {
    let value = Some(Value::from(after_us.to_string().as_str()));
    let write = |key: &&str| Write { key: Key::from(*key), value: value.clone() };
    let participants: &[u16] = if backup == 0 { &[0] } else { &[1, 0] };
    let writes = writes.iter().map(write).collect();
    Request::Shot(Shot { writes, ..shot(txn(after_us), reads, &[], participants) })
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

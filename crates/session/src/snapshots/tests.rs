//! Sessions in keyspaces of snapshots. The tests play the coordinator.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::time::Duration;

use serried_model::snapshots::{
    Offers, Operation, Outcome, Output, Own, Read, VersionClocks, Written,
};
use serried_model::{Key, Snapshots, Value, Versionstamp, Write, WriteToken};

use super::{BadToken, SessionToken, SnapshotError, SnapshotKeyspace, WriteOutcome};

type Script = crate::script::Script<Snapshots>;

const PORT: Offers =
    Offers { version_clocks: VersionClocks::Promoted, write_transactions: false, sites: false };
const EIGER: Offers =
    Offers { version_clocks: VersionClocks::Safe, write_transactions: true, sites: false };

fn script() -> (Arc<Script>, SnapshotKeyspace) {
    Script::offering(PORT)
}

fn poll<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn ready<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> T {
    match poll(future) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it is over"),
    }
}

fn stamp(ms: u64) -> Versionstamp {
    Versionstamp::ZERO.after(Duration::from_millis(ms))
}

/// Reads a key, which is there at `at`, while the clock of partition 0 shows `shown`. Returns as of when it was
/// requested.
fn read(
    script: &Script,
    session: &SnapshotKeyspace,
    at: Versionstamp,
    shown: Versionstamp,
) -> Option<Versionstamp> {
    let mut reading = Box::pin(session.read("x"));
    assert!(poll(&mut reading).is_pending());
    let operations = script.take_operations();
    let [Operation::Read { at: requested, .. }] = operations[..] else { panic!("{operations:?}") };
    let found = vec![(Some(Value::from("1")), at)];
    let outcome =
        Outcome::Read(Read { found, at, shown: vec![(0, shown)], rounds: 1, metadata_bytes: 9 });
    script.tell_last(Output::Outcome(outcome));
    assert_eq!(ready(&mut reading).unwrap(), Some(Value::from("1")));
    script.take_operations();
    requested
}

/// Writes a key. Returns what was requested.
fn write(
    script: &Script,
    session: &SnapshotKeyspace,
    outcome: WriteOutcome,
) -> Option<Versionstamp> {
    let mut writing = Box::pin(session.write("x", "1"));
    assert!(poll(&mut writing).is_pending());
    let operations = script.take_operations();
    let [Operation::Write { at, .. }] = operations[..] else { panic!("{operations:?}") };
    let WriteOutcome { stamp, omitted } = outcome;
    let written = Written { stamp, omitted, shown: Some((0, stamp)) };
    script.tell_last(Output::Outcome(Outcome::Written(written)));
    assert_eq!(ready(&mut writing).unwrap(), outcome);
    script.take_operations();
    at
}

#[test]
fn a_session_never_reads_before_what_it_has_written_or_read() {
    let (script, session) = script();
    assert_eq!(read(&script, &session, stamp(3), stamp(5)), None, "it knows of no server yet");
    assert_eq!(read(&script, &session, stamp(5), stamp(5)), Some(stamp(5)));
    let placed = WriteOutcome { stamp: stamp(9), omitted: false };
    assert_eq!(write(&script, &session, placed), Some(stamp(5).next()));
    assert_eq!(read(&script, &session, stamp(9), stamp(9)), Some(stamp(9)));
    // It adopts the place of the write that its own was omitted for.
    let omitted = WriteOutcome { stamp: stamp(20), omitted: true };
    assert_eq!(write(&script, &session, omitted), Some(stamp(9).next()));
    assert_eq!(read(&script, &session.clone(), stamp(20), stamp(20)), Some(stamp(20)));
    // Another session need not see that.
    let other = session.session();
    assert_eq!(read(&script, &other, stamp(20), stamp(20)), Some(stamp(20)), "the frontier");
    assert_eq!(other.token().unwrap().at, stamp(20));
}

#[test]
fn a_session_is_resumed_with_all_that_was_acknowledged_to_it() {
    let (script, session) = script();
    read(&script, &session, stamp(3), stamp(5));
    write(&script, &session, WriteOutcome { stamp: stamp(9), omitted: false });
    let token = session.token().unwrap();
    let (elsewhere, other) = self::script();
    let mut resuming = Box::pin(other.resume(token));
    assert!(poll(&mut resuming).is_pending());
    assert_eq!(elsewhere.take_operations(), [Operation::ReadClocks]);
    let shown = vec![(0, stamp(4)), (1, stamp(9))];
    elsewhere.tell_last(Output::Outcome(Outcome::Clocks(shown)));
    let resumed = ready(&mut resuming).unwrap();
    elsewhere.take_operations();
    assert_eq!(read(&elsewhere, &resumed, stamp(9), stamp(9)), Some(stamp(9)));
    // This client has heard of something as late by now.
    let mut again = Box::pin(resumed.resume(token));
    assert_eq!(ready(&mut again).unwrap().token().unwrap(), token);
}

#[test]
fn a_token_of_the_future_or_of_another_keyspace_is_refused() {
    let (script, session) = script();
    let token = SessionToken {
        keyspace: 0,
        site: 0,
        at: stamp(50),
        session: 0,
        written: Versionstamp::ZERO,
        era: None,
    };
    let mut resuming = Box::pin(session.resume(token));
    assert!(poll(&mut resuming).is_pending());
    let shown = vec![(0, stamp(4)), (1, stamp(49))];
    script.tell_last(Output::Outcome(Outcome::Clocks(shown)));
    let error = ready(&mut resuming).err().unwrap();
    assert!(matches!(error, SnapshotError::BadToken(BadToken::OfTheFuture)), "{error}");
    assert!(error.to_string().ends_with("begin a new session"), "{error}");
    let other = SessionToken { keyspace: 1, at: stamp(1), ..token };
    let error = ready(&mut Box::pin(session.resume(other))).err().unwrap();
    assert!(matches!(error, SnapshotError::BadToken(BadToken::OfAnotherKeyspace)), "{error}");
    let (_, without) = Script::offering(Offers { version_clocks: VersionClocks::None, ..PORT });
    for error in [without.token().err(), ready(&mut Box::pin(without.resume(token))).err()] {
        assert!(matches!(error, Some(SnapshotError::BadToken(BadToken::NotOffered))));
    }
}

#[test]
fn a_write_whose_outcome_is_unknown_is_tried_again_with_its_token() {
    let (script, session) = script();
    let token = WriteToken::Requested(stamp(7));
    let mut writing = Box::pin(session.delete("x"));
    assert!(poll(&mut writing).is_pending());
    script.tell_last(Output::Began(token));
    script.advance(Duration::from_secs(11));
    assert!(poll(&mut writing).is_pending(), "it waits for its coordinator's answer");
    assert_eq!(script.take_operations()[1..], [Operation::GiveUp]);
    script.tell_last(Output::Outcome(Outcome::Unknown));
    let error = ready(&mut writing).unwrap_err();
    let SnapshotError::Unknown { token: named, .. } = error else { panic!("{error}") };
    assert_eq!(named, token);
    script.take_operations();
    let write = Write { key: Key::from("x"), value: None };
    let mut again = Box::pin(session.retry(write, token));
    assert!(poll(&mut again).is_pending());
    let operations = script.take_operations();
    assert!(
        matches!(operations[..], [Operation::Write { token: Some(sent), .. }] if sent == token),
        "{operations:?}"
    );
    // It is not known whether the first try has taken effect.
    script.tell_last(Output::Outcome(Outcome::NoEffect));
    assert!(matches!(ready(&mut again), Err(SnapshotError::Unknown { .. })));
}

#[test]
fn what_the_family_does_not_have_is_refused_with_the_alternative() {
    let (script, session) = script();
    let write = |key: &str| Write { key: Key::from(key), value: None };
    let error = ready(&mut Box::pin(session.write_all([write("x"), write("y")]))).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("a write of 2 keys at once is a transaction"), "{text}");
    assert!(text.contains("a keyspace of transactions"), "{text}");
    let empty = ready(&mut Box::pin(session.read(""))).unwrap_err();
    assert!(matches!(empty, SnapshotError::EmptyKey));
    let long = ready(&mut Box::pin(session.write("x", "123456789"))).unwrap_err();
    assert!(matches!(long, SnapshotError::TooLarge(_)), "{long}");
    assert_eq!(script.take_operations(), []);
    assert_eq!(ready(&mut Box::pin(session.read_only(Vec::<Key>::new()))).unwrap(), []);
}

#[test]
fn a_read_that_is_not_answered_names_its_first_key_and_how_many_there_are() {
    let (script, session) = script();
    let mut reading = Box::pin(session.read_only(["x", "y", "z"]));
    assert!(poll(&mut reading).is_pending());
    script.advance(Duration::from_secs(11));
    let error = ready(&mut reading).unwrap_err().to_string();
    assert_eq!(error, "too few replicas answered within 10s, waiting for `x` and 2 other keys");
}

/// Reads a key of a session with a safe clock, as of `at`. Returns what the session asks for.
fn read_safe(script: &Script, session: &SnapshotKeyspace, at: Versionstamp) -> (Versionstamp, Own) {
    let mut reading = Box::pin(session.read("x"));
    assert!(poll(&mut reading).is_pending());
    let operations = script.take_operations();
    let [Operation::Read { at: Some(floor), own, .. }] = operations[..] else {
        panic!("{operations:?}")
    };
    let found = vec![(None, Versionstamp::ZERO)];
    let outcome =
        Outcome::Read(Read { found, at, shown: vec![(0, at)], rounds: 1, metadata_bytes: 9 });
    script.tell_last(Output::Outcome(outcome));
    assert_eq!(ready(&mut reading).unwrap(), None);
    script.take_operations();
    (floor, own)
}

#[test]
fn with_safe_clocks_what_a_session_has_written_is_apart_from_what_it_has_read() {
    let (script, session) = Script::offering(EIGER);
    let (floor, own) = read_safe(&script, &session, stamp(5));
    assert_eq!((floor, own.written), (Versionstamp::ZERO, Versionstamp::ZERO));
    let writes = ["x", "y"].map(|key| Write { key: Key::from(key), value: None });
    let mut writing = Box::pin(session.write_all(writes.clone()));
    assert!(poll(&mut writing).is_pending());
    let operations = script.take_operations();
    let [Operation::Write { at, session: number, .. }] = operations[..] else {
        panic!("{operations:?}")
    };
    assert_eq!((at, number), (Some(stamp(5)), own.session));
    let written = Written { stamp: stamp(9), omitted: false, shown: Some((0, stamp(9))) };
    script.tell_last(Output::Outcome(Outcome::Written(written)));
    assert_eq!(ready(&mut writing).unwrap().map(|written| written.stamp), Some(stamp(9)));
    script.take_operations();
    let expected = Own { written: stamp(9), ..own };
    assert_eq!(read_safe(&script, &session, stamp(6)), (stamp(5), expected));
    // Another process goes on as the same session.
    let token: SessionToken = session.token().unwrap().to_string().parse().unwrap();
    let other = session.session();
    let mut resuming = Box::pin(other.resume(token));
    let resumed = ready(&mut resuming).unwrap();
    script.take_operations();
    assert_eq!(read_safe(&script, &resumed, stamp(6)), (stamp(6), expected));
    let twice = [writes[0].clone(), writes[1].clone(), writes[0].clone()];
    let error = ready(&mut Box::pin(session.write_all(twice))).unwrap_err();
    assert!(matches!(error, SnapshotError::TwiceWritten { .. }), "{error}");
}

/// The coordinator answers an operation of this era of the site, and nothing is found or written.
fn answer_in(script: &Script, era: u32, at: Versionstamp) {
    let operations = script.take_operations();
    let outcome = match operations[..] {
        [Operation::Read { .. }] => {
            let (found, shown) = (vec![(None, Versionstamp::ZERO)], vec![(0, at)]);
            Outcome::Read(Read { found, at, shown, rounds: 1, metadata_bytes: 9 })
        }
        [Operation::Write { .. }] => {
            Outcome::Written(Written { stamp: at, omitted: false, shown: None })
        }
        [Operation::ReadClocks] => Outcome::Clocks(vec![(0, at)]),
        _ => panic!("{operations:?}"),
    };
    script.tell_last(Output::Era(era));
    script.tell_last(Output::Outcome(outcome));
}

#[test]
fn a_session_ends_when_its_site_was_rebuilt_and_another_one_begins() {
    let (script, session) = Script::offering(Offers { sites: true, ..EIGER });
    let mut reading = Box::pin(session.read("x"));
    assert!(poll(&mut reading).is_pending());
    answer_in(&script, 0, stamp(5));
    ready(&mut reading).unwrap();
    let token: SessionToken = session.token().unwrap().to_string().parse().unwrap();
    // Both kinds of operations name the era, so that they can be refused.
    script.take_operations();
    let mut writing = Box::pin(session.write("x", "1"));
    assert!(poll(&mut writing).is_pending());
    let operations = script.take_operations();
    assert!(matches!(operations[..], [Operation::Write { era: Some(0), .. }]), "{operations:?}");
    script.tell_last(Output::Outcome(Outcome::Rebuilt));
    let error = ready(&mut writing).unwrap_err();
    assert!(matches!(error, SnapshotError::SiteRebuilt { site: 0 }), "{error}");
    assert!(error.to_string().ends_with("begin a new session"), "{error}");
    // If it was not refused, what has come is not shown.
    script.take_operations();
    let mut reading = Box::pin(session.read("x"));
    assert!(poll(&mut reading).is_pending());
    answer_in(&script, 1, stamp(70));
    assert!(matches!(ready(&mut reading), Err(SnapshotError::SiteRebuilt { .. })));
    let fresh = session.session();
    script.take_operations();
    let mut writing = Box::pin(fresh.write("x", "1"));
    assert!(poll(&mut writing).is_pending());
    answer_in(&script, 1, stamp(71));
    ready(&mut writing).unwrap();
    // Its token is of no use either: at its own site, and at another one.
    let elsewhere = SessionToken { site: 1, ..token };
    for (token, expected) in [(token, 0), (elsewhere, 1)] {
        let (script, other) = Script::offering(Offers { sites: true, ..EIGER });
        let mut resuming = Box::pin(other.resume(token));
        assert!(poll(&mut resuming).is_pending());
        if expected == 0 {
            answer_in(&script, 1, stamp(80));
        } else {
            let operations = script.take_operations();
            let [Operation::Reach { era, .. }] = operations[..] else { panic!("{operations:?}") };
            assert_eq!(era, Some(0));
            script.tell_last(Output::Outcome(Outcome::Rebuilt));
        }
        let error = ready(&mut resuming).err().unwrap();
        let is_expected = |site| site == expected;
        assert!(
            matches!(error, SnapshotError::BadToken(BadToken::OfRebuiltSite { site }) if is_expected(site)),
            "{error}"
        );
    }
}

#[test]
fn a_token_of_a_site_that_there_is_not_is_damaged() {
    let (script, session) = Script::offering(Offers { sites: true, ..EIGER });
    let mut reading = Box::pin(session.read("x"));
    assert!(poll(&mut reading).is_pending());
    answer_in(&script, 0, stamp(5));
    ready(&mut reading).unwrap();
    let token = SessionToken { site: 9, ..session.token().unwrap() };
    let mut resuming = Box::pin(session.resume(token));
    assert!(poll(&mut resuming).is_pending());
    script.tell_last(Output::Outcome(Outcome::NoSuchSite));
    let error = ready(&mut resuming).err().unwrap();
    assert!(matches!(error, SnapshotError::BadToken(BadToken::Damaged)), "{error}");
}

#[test]
fn a_token_that_names_an_era_its_site_has_not_reached_is_of_the_future() {
    let (script, session) = Script::offering(Offers { sites: true, ..EIGER });
    let mut reading = Box::pin(session.read("x"));
    assert!(poll(&mut reading).is_pending());
    answer_in(&script, 1, stamp(5));
    ready(&mut reading).unwrap();
    let token = session.token().unwrap();
    assert_eq!(token.era, Some(1));
    script.take_operations();
    ready(&mut Box::pin(session.resume(token))).unwrap();
    assert!(script.take_operations().is_empty(), "it is known that there was one");
    // Another one of the same client may know more than this one does.
    for (shown, is_good) in [(1, false), (2, true)] {
        script.take_operations();
        let mut resuming = Box::pin(session.resume(SessionToken { era: Some(2), ..token }));
        assert!(poll(&mut resuming).is_pending());
        answer_in(&script, shown, stamp(5));
        let error = ready(&mut resuming).err();
        let is_future = matches!(error, Some(SnapshotError::BadToken(BadToken::OfTheFuture)));
        assert_eq!((is_future, error.is_none()), (!is_good, is_good));
    }
}

#[test]
fn a_session_is_of_the_era_of_what_it_may_have_written_and_of_the_site_that_it_moves_to() {
    let (script, session) = Script::offering(Offers { sites: true, ..EIGER });
    let mut writing = Box::pin(session.write("x", "1"));
    assert!(poll(&mut writing).is_pending());
    script.tell_last(Output::Began(WriteToken::OfSession(stamp(1), 7)));
    script.tell_last(Output::Era(2));
    script.tell_last(Output::Outcome(Outcome::Unknown));
    let error = ready(&mut writing).unwrap_err();
    assert!(matches!(error, SnapshotError::Unknown { .. }), "{error}");
    let token = session.token().unwrap();
    assert_eq!(token.era, Some(2), "it may have taken effect");
    let (script, other) = Script::offering(Offers { sites: true, ..EIGER });
    let mut moving = Box::pin(other.resume(SessionToken { site: 1, ..token }));
    assert!(poll(&mut moving).is_pending());
    script.tell_last(Output::Era(3));
    script.tell_last(Output::Outcome(Outcome::Clocks(vec![(0, stamp(5))])));
    let moved = ready(&mut moving).unwrap();
    assert_eq!(moved.token().unwrap().era, Some(3), "that of its new site");
}

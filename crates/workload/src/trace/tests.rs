use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serried_model::{
    Change, Form, Key, NodeId, ReportedModification, ReportedModify, ReportedRead, ReportedWrite,
    TransactionReport, Value,
};

use super::*;
use crate::serial;
use crate::workload::{Plan, Workload};

fn report(began_ns: u64, ended_ns: u64) -> TransactionReport<Key> {
    let (reads, writes, modifies) = (Vec::new(), Vec::new(), Vec::new());
    let form = Form::Program;
    TransactionReport { began_ns, ended_ns, attempts: 1, form, reads, writes, modifies }
}

fn read(key: &str, round: u32, bytes: Option<u32>) -> ReportedRead<Key> {
    ReportedRead { key: Key::from(key), round, for_update: false, bytes }
}

fn write(key: &str, bytes: Option<u32>) -> ReportedWrite<Key> {
    ReportedWrite { key: Key::from(key), bytes }
}

fn modify(key: &str, modification: ReportedModification) -> ReportedModify<Key> {
    ReportedModify { key: Key::from(key), modifications: vec![modification] }
}

fn header(lasted_ns: u64) -> TraceHeader {
    TraceHeader {
        family: "transactions".to_string(),
        cluster: "cluster".to_string(),
        keyspace: "accounts".to_string(),
        protocol: "morty".to_string(),
        recorded_at_s: 1_700_000_000,
        lasted_ns,
        bound: Bound::Time,
        missed: 0,
        hashed_keys: false,
    }
}

const ROOMY: TraceBounds =
    TraceBounds { transactions: 1000, bytes: 1 << 20, lasts: Duration::from_secs(1) };

fn trace_of(reports: impl IntoIterator<Item = TransactionReport<Key>>) -> Trace {
    let mut builder = TraceBuilder::new(ROOMY, false);
    for report in reports {
        assert_eq!(builder.add(NodeId(1), report), None);
    }
    builder.finish(header(1000)).unwrap()
}

/// A read-modify-write in two rounds, a read, and a modification.
fn small() -> Trace {
    let rmw = TransactionReport {
        reads: vec![read("a", 0, Some(3)), read("b", 0, None), read("c", 1, Some(2))],
        writes: vec![write("a", Some(20)), write("b", Some(0)), write("c", None)],
        ..report(100, 200)
    };
    let reads = TransactionReport {
        form: Form::ReadOnly,
        reads: vec![read("a", 0, Some(20))],
        ..report(150, 160)
    };
    let modifies = TransactionReport {
        form: Form::Batch,
        modifies: vec![modify("n", ReportedModification::Number)],
        ..report(250, 300)
    };
    trace_of([reads, rmw, modifies])
}

#[test]
fn a_trace_survives_its_file() {
    let trace = small();
    assert_eq!(Trace::decode(&trace.encode()), Ok(trace));
}

#[test]
fn a_trace_with_any_bit_wrong_or_any_byte_missing_is_refused() {
    let file = small().encode();
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            let error = Trace::decode(&damaged).expect_err(&format!("bit {bit} of byte {at}"));
            match at {
                0..16 => assert_eq!(error, TraceError::NoTrace),
                16..18 => assert!(matches!(error, TraceError::Version { .. }), "{error}"),
                _ => assert!(matches!(error, TraceError::Damaged { .. }), "{at}: {error}"),
            }
        }
        let error = Trace::decode(&file[..at]).expect_err(&format!("{at} bytes"));
        assert_eq!(error == TraceError::NoTrace, at < 18, "{error}");
    }
    let longer = [&file[..], &[0]].concat();
    let error = Trace::decode(&longer).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("it is damaged at byte {}: something follows its last block", file.len())
    );
}

#[test]
fn a_block_that_is_missing_or_out_of_place_is_noticed() {
    let file = small().encode();
    // The blocks after the prefix.
    let mut blocks = Vec::new();
    let mut rest = &file[18..];
    while let Some(length) = rest.get(1..5) {
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize + 9;
        blocks.push(&rest[..length]);
        rest = &rest[length..];
    }
    let [header, keys, transactions, end] = blocks[..] else { panic!("{}", blocks.len()) };
    let of = |blocks: &[&[u8]]| Trace::decode(&[&file[..18], &blocks.concat()].concat());
    assert!(of(&[header, keys, transactions, end]).is_ok());
    for (wrong, reason) in [
        (&[header, keys, end][..], "blocks are missing"),
        (&[header, transactions, end], "blocks are missing"),
        (&[header, transactions, keys, end], "not in their order"),
        (&[header, header, keys, transactions, end], "not in their order"),
        (&[keys, transactions, end], "not the header"),
        (&[header, keys, transactions], "ends before its last block"),
        (&[header, keys, keys, transactions, end], "blocks are missing"),
    ] {
        let error = of(wrong).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn what_does_not_fit_together_is_refused_though_its_checksums_are_right() {
    let trace = small();
    let with = |change: fn(&mut Trace)| {
        let mut changed = trace.clone();
        change(&mut changed);
        Trace::decode(&changed.encode()).unwrap_err().to_string()
    };
    for (error, reason) in [
        (with(|trace| trace.keys.truncate(1)), "a key that the trace does not have"),
        (with(|trace| trace.transactions.clear()), "no transactions"),
        (with(|trace| trace.transactions[0].client = 9), "more clients than transactions"),
        (with(|trace| trace.transactions.swap(0, 2)), "begins before"),
        (with(|trace| trace.transactions[1].client = 0), "begins before"),
        (with(|trace| trace.transactions[0].what.ended_ns = 0), "ends before it begins"),
        (with(|trace| trace.header.lasted_ns = 1), "ends after the recording"),
        (
            with(|trace| trace.transactions[0].what.reads[0].bytes = Some(u32::MAX)),
            "longer than any",
        ),
        (with(|trace| trace.keys[1] = trace.keys[0].clone()), "a key twice"),
        (with(|trace| trace.keys[1] = Key::default()), "can't be read"),
        (
            with(|trace| trace.keys[1] = Key::from(vec![7; MOST_KEY_BYTES + 1])),
            "longer than any can be",
        ),
        (with(|trace| trace.transactions[0].what.form = Form::ReadOnly), "only reads, and writes"),
        (
            with(|trace| {
                let write = trace.transactions[0].what.writes[0].clone();
                trace.transactions[0].what.writes =
                    vec![ReportedWrite { bytes: Some(MOST_VALUE_BYTES), ..write }; 2];
            }),
            "writes more than any can",
        ),
    ] {
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_trace_of_another_family_or_version_is_refused_by_name() {
    let mut other = small();
    other.header.family = "registers".to_string();
    let error = Trace::decode(&other.encode()).unwrap_err().to_string();
    assert_eq!(error, "it is a trace of registers, and only traces of transactions can be run");
    let names: [fn(&mut TraceHeader) -> &mut String; 4] = [
        |header| &mut header.family,
        |header| &mut header.cluster,
        |header| &mut header.keyspace,
        |header| &mut header.protocol,
    ];
    for name in names {
        let mut forged = small();
        *name(&mut forged.header) = "\u{1b}]0;title\u{7}".to_string();
        let error = Trace::decode(&forged.encode()).unwrap_err().to_string();
        assert!(error.contains("a name in its header has control characters"), "{error}");
    }
    let mut file = small().encode();
    file[16] = 7;
    let error = Trace::decode(&file).unwrap_err().to_string();
    assert!(error.starts_with("it is a trace of version 7, and this program reads version 1"));
    for other in [&b""[..], b"SERRIED", b"[{\"f\":\"txn\"}, {\"f\":\"txn\"}]"] {
        assert_eq!(Trace::decode(other), Err(TraceError::NoTrace));
    }
}

#[test]
fn transactions_that_overlap_are_of_different_clients_and_others_of_as_few_as_possible() {
    let mut builder = TraceBuilder::new(ROOMY, false);
    // As they end.
    for (connection, began, ended) in
        [(1, 0, 10), (2, 5, 20), (1, 8, 30), (1, 12, 40), (1, 41, 45), (1, 31, 50), (1, 70, 80)]
    {
        builder.add(NodeId(connection), report(began, ended));
    }
    let trace = builder.finish(header(100)).unwrap();
    let dealt: Vec<_> = trace.transactions().iter().map(|t| (t.what.began_ns, t.client)).collect();
    // The last one is of the client that has waited longest.
    assert_eq!(dealt, [(0, 0), (5, 1), (8, 2), (12, 0), (31, 2), (41, 0), (70, 0)]);
    let replay = Replay::new(trace.into(), true);
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut think = |client| {
        let plan = replay.plan(client, &mut random);
        replay.think(&plan).as_nanos()
    };
    // As long as it took until its first one; and from the second time on, what was left after its last one, too.
    assert_eq!([0; 6].map(&mut think), [0, 2, 1, 25, 20, 2]);
    assert_eq!([2; 4].map(&mut think), [8, 1, 58, 1]);
    // One client for all of them waits only while none of them was busy.
    replay.set_clients(1);
    assert_eq!([3; 8].map(&mut think), [0, 0, 0, 0, 0, 0, 20, 20]);
}

#[test]
fn more_clients_repeat_what_those_of_the_trace_did_and_fewer_do_the_work_of_several() {
    let reports = (0..12).map(|i| report(i / 2 * 10, i / 2 * 10 + 8 + i % 2));
    let trace = Arc::new(trace_of(reports));
    assert_eq!(trace.clients(), 2);
    let plans = |clients: usize, client: u64| {
        let replay = Replay::new(trace.clone(), true);
        replay.set_clients(clients);
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let plan = |_| replay.number(&replay.plan(client, &mut random));
        let plans: Vec<usize> = (0..4).map(plan).collect();
        plans
    };
    let replay = Replay::new(trace.clone(), true);
    assert_eq!(replay.usual_clients(), Some(2));
    assert_eq!(plans(1, 0), [0, 1, 2, 3]);
    let [first, second] = [0, 1].map(|client| plans(2, client));
    assert_eq!((first[1], second[1]), (first[0] + 2, second[0] + 2));
    // Of five, three do what the first did, and two what the second did.
    let starts: Vec<usize> = (0..5).map(|client| plans(5, client)[0]).collect();
    assert_eq!(starts, [first[0], second[0], first[2], second[3], first[0] + 8]);
}

#[test]
fn a_bound_that_is_reached_ends_the_trace_and_is_named() {
    let mut builder = TraceBuilder::new(TraceBounds { transactions: 2, ..ROOMY }, false);
    let added = [0, 1, 2, 3].map(|i| builder.add(NodeId(1), report(i, i)));
    assert_eq!(added, [None, None, Some(Bound::Transactions), Some(Bound::Transactions)]);
    let trace = builder.finish(header(100)).unwrap();
    assert_eq!((trace.transactions().len(), trace.header().bound), (2, Bound::Transactions));

    let bounds = TraceBounds { bytes: 4000, ..ROOMY };
    let mut builder = TraceBuilder::new(bounds, false);
    let mut count = 0;
    let bound = loop {
        let reads = vec![read(&format!("a key that is rather long {count}"), 0, Some(7))];
        let added = builder.add(NodeId(1), TransactionReport { reads, ..report(count, count) });
        if let Some(bound) = added {
            break bound;
        }
        count += 1;
    };
    let trace = builder.finish(header(100)).unwrap();
    assert_eq!((bound, trace.header().bound), (Bound::Bytes, Bound::Bytes));
    assert!(count > 10 && trace.encode().len() < 4000 + 200, "{count}");
    assert!(TraceBuilder::new(bounds, false).finish(header(1)).is_err());
    let mut builder = TraceBuilder::new(bounds, false);
    assert_eq!(builder.add(NodeId(1), report(9, 8)), None);
    assert_eq!(builder.transactions(), 0, "it ends before it begins");
}

#[test]
fn what_no_client_can_have_run_is_left_out_and_counted() {
    let mut builder = TraceBuilder::new(ROOMY, false);
    let reads_only = TransactionReport { form: Form::ReadOnly, ..report(1, 2) };
    for wrong in [
        report(1, u64::MAX),
        report(1, ROOMY.lasts.as_nanos() as u64 + 1),
        TransactionReport { writes: vec![write("a", None)], ..reads_only.clone() },
        TransactionReport { reads: vec![read("", 0, None)], ..reads_only.clone() },
        TransactionReport {
            reads: vec![read("a", 0, Some(MOST_VALUE_BYTES + 1))],
            ..reads_only.clone()
        },
    ] {
        assert_eq!(builder.add(NodeId(1), wrong), None);
    }
    assert_eq!(builder.add(NodeId(1), reads_only), None);
    let trace = builder.finish(TraceHeader { missed: 7, ..header(100) }).unwrap();
    assert_eq!((trace.transactions().len(), trace.header().missed), (1, 12));
    assert_eq!(trace.header().lasted_ns, 100);
}

/// A transaction that reads this many keys with the longest values.
fn huge(keys: usize) -> TransactionReport<Key> {
    let read = |key: usize| read(&format!("key {key}"), 0, Some(MOST_VALUE_BYTES));
    TransactionReport { reads: (0..keys).map(read).collect(), ..report(1, 2) }
}

#[test]
fn a_trace_whose_keys_hold_more_than_can_be_loaded_is_refused() {
    let most = (MOST_HELD_BYTES / u64::from(MOST_VALUE_BYTES)) as usize;
    let trace = |keys: usize| {
        let numbers = (0..).map(|number| Key::from(format!("key {number}")));
        let mut number = 0..;
        let what = huge(keys).map_keys(|_| number.next().unwrap());
        let transactions = vec![TracedTransaction { client: 0, what }];
        Trace::new(header(1000), numbers.take(keys).collect(), transactions)
    };
    assert!(trace(most).is_ok());
    let error = trace(most + 1).unwrap_err();
    assert!(error.contains("bytes together, and 4294967296 is the most"), "{error}");
    // A recording ends before.
    let mut builder = TraceBuilder::new(ROOMY, false);
    assert_eq!(builder.add(NodeId(1), huge(most)), None);
    assert_eq!(builder.add(NodeId(1), huge(most)), None, "the same keys");
    assert_eq!(builder.add(NodeId(1), huge(most + 1)), Some(Bound::Bytes));
    assert!(builder.finish(header(1000)).is_ok());
}

#[test]
fn values_of_one_length_are_one_in_memory() {
    let replay = Replay::new(trace_of([huge(100)]).into(), true);
    let values: Vec<Value> = (0..100).map(|key| replay.initial(key).unwrap().1).collect();
    let places: std::collections::BTreeSet<_> =
        values.iter().map(|v| v.as_bytes().as_ptr()).collect();
    assert_eq!((places.len(), values[0].len()), (1, MOST_VALUE_BYTES as usize));
}

#[test]
fn keys_are_loaded_in_transactions_of_few_bytes() {
    let read = |key: u32| read(&format!("key {key}"), 0, Some(1_000_000));
    let reads = TransactionReport { reads: (0..9).map(read).collect(), ..report(1, 2) };
    let replay = Replay::new(trace_of([reads]).into(), true);
    let keyspace = serial::keyspace();
    let parts = std::cell::RefCell::new(Vec::new());
    let load = crate::preload(&keyspace, &replay, 0, 1, |keys| parts.borrow_mut().push(keys));
    serial::run(load).unwrap();
    assert_eq!(parts.into_inner(), [4, 4, 1]);
}

#[test]
fn a_trace_with_longer_values_than_usual_asks_for_the_limits_that_it_needs() {
    let usual = serried_model::Limits::default();
    assert_eq!(Replay::new(small().into(), true).limits(), usual);
    let writes = (0..9).map(|key| write(&format!("key {key}"), Some(2 << 20))).collect();
    let replay = Replay::new(trace_of([TransactionReport { writes, ..report(1, 2) }]).into(), true);
    let limits = replay.limits();
    assert_eq!((limits.key_bytes, limits.value_bytes), (usual.key_bytes, 2 << 20));
    assert_eq!(limits.transaction_bytes, 9 * ((2 << 20) + "key 0".len()));
}

#[test]
fn a_trace_that_modifies_with_long_values_asks_for_the_limits_that_it_needs() {
    let replaced = ReportedModification::Replace(Some(2 << 20));
    let modifies = (0..9).map(|key| modify(&format!("key {key}"), replaced)).collect();
    let modifies = TransactionReport { modifies, ..report(1, 2) };
    let limits = Replay::new(trace_of([modifies]).into(), true).limits();
    assert_eq!(limits.value_bytes, 2 << 20);
    // Each as a modification, and as the value that is written in its place.
    let each = 2 * ((2 << 20) + "key 0".len()) + serried_model::Modify::BYTES_EACH;
    assert_eq!(limits.transaction_bytes, 9 * each);
}

#[test]
fn what_is_written_depends_on_everything_that_was_read() {
    let copies = TransactionReport {
        reads: vec![read("a", 0, Some(8)), read("b", 0, Some(1))],
        writes: vec![write("c", Some(8)), write("b", Some(1))],
        ..report(1, 2)
    };
    let replay = Replay::new(trace_of([copies]).into(), true);
    let keyspace = serial::keyspace();
    let plan = Plan::Traced { number: 0, think: Duration::ZERO };
    let run = || {
        let program = |tx| replay.run(&plan, tx, false);
        serial::run(keyspace.transact_recorded(program)).unwrap().1.writes
    };
    let written = |key: &str| serial::run(keyspace.put(key, [7; 8])).unwrap();
    let first = run();
    written("a");
    let second = run();
    assert_ne!(first[0].value, second[0].value, "it has not read the key that it writes");
    // Even where there is room for one byte only, it is never what was there.
    let mut before = second[1].value.clone();
    for _ in 0..1000 {
        let now = run().remove(1).value;
        assert_ne!(now, before);
        before = now;
    }
}

#[test]
fn hashes_stand_for_keys_and_equal_keys_stay_equal() {
    let trace = || {
        let mut builder = TraceBuilder::new(ROOMY, true);
        for (time, key) in ["secret", "other", "secret"].into_iter().enumerate() {
            let reads = vec![read(key, 0, Some(4))];
            builder.add(NodeId(1), TransactionReport { reads, ..report(time as u64, time as u64) });
        }
        builder.finish(header(100)).unwrap()
    };
    let (trace, another) = (trace(), trace());
    let keys: Vec<u32> = trace.transactions().iter().map(|t| t.what.reads[0].key).collect();
    assert_eq!(keys, [0, 1, 0]);
    assert!(trace.header().hashed_keys && trace.keys().len() == 2);
    let file = trace.encode();
    assert!(!file.windows(6).any(|part| part == b"secret"));
    // Each recording has a secret of its own, so nobody can try keys.
    assert_ne!(trace.keys(), another.keys());
}

#[test]
fn a_replay_finds_and_leaves_values_of_the_lengths_of_the_trace() {
    let replay = Arc::new(Replay::new(small().into(), true));
    let held = |key: &str| replay.initial_value(&Key::from(key)).map(|value| value.len());
    assert_eq!(["a", "b", "c", "n", "other"].map(held), [Some(3), None, Some(2), Some(1), None]);
    let keyspace = serial::keyspace();
    serial::run(async {
        for (key, value) in (0..).map_while(|i| replay.initial(i)) {
            keyspace.put(key, value).await.unwrap();
        }
    });
    let run = |plan: &Plan| {
        let program = |tx| replay.run(plan, tx, false);
        let (_, footprint) = serial::run(keyspace.transact_recorded(program)).unwrap();
        footprint
    };
    let traced = |number| Plan::Traced { number, think: Duration::ZERO };
    let plan = traced(0);
    let footprint = run(&plan);
    let reads = footprint
        .reads
        .iter()
        .map(|read| (read.key.to_string(), read.value.as_ref().map(Value::len)));
    let expected = [("a", Some(3)), ("b", None), ("c", Some(2))].map(|(k, b)| (k.to_string(), b));
    assert_eq!(reads.collect::<Vec<_>>(), expected);
    let lengths = |footprint: &serried_session::Footprint| -> Vec<Option<usize>> {
        footprint.writes.iter().map(|write| write.value.as_ref().map(Value::len)).collect()
    };
    assert_eq!(lengths(&footprint), [Some(20), Some(0), None]);
    // What is written depends on what was found.
    let again = run(&plan);
    assert_ne!(footprint.writes[0], again.writes[0]);
    assert_eq!((replay.kind(&plan), replay.only_reads(&plan)), ("read-write", false));
    let reads = traced(1);
    assert_eq!((replay.kind(&reads), replay.only_reads(&reads)), ("read-only", true));
    let batch = replay.one_shot(&traced(2)).expect("it was a batch");
    assert_eq!((batch.reads.len(), batch.writes.len(), batch.modifies.len()), (0, 0, 1));
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let thinks = [(); 2].map(|()| replay.think(&replay.plan(0, &mut random)).as_nanos());
    assert_eq!(thinks, [100, 800 + 100]);
}

#[test]
fn a_replay_reads_in_the_rounds_of_the_trace_and_for_update_what_was_read_so() {
    let for_update = |key: &str, round| ReportedRead { for_update: true, ..read(key, round, None) };
    let reads = vec![
        read("a", 0, None),
        for_update("b", 0),
        for_update("c", 1),
        read("d", 2, None),
        read("e", 3, None),
        read("f", 3, None),
    ];
    let writes = TransactionReport { reads, writes: vec![write("a", Some(8))], ..report(1, 2) };
    let replay = Replay::new(trace_of([writes.clone()]).into(), true);
    let (serial, keyspace) = serial::database(serial::OneShots::NotOffered);
    let plan = Plan::Traced { number: 0, think: Duration::ZERO };
    serial::run(keyspace.transact(|tx| replay.run(&plan, tx, false))).unwrap();
    let reported = serial.take_reports().remove(0);
    assert_eq!((reported.reads, reported.writes), (writes.reads, writes.writes));
}

#[test]
fn a_key_that_is_added_to_holds_a_number_before_and_after_each_transaction() {
    let number = ReportedModification::Number;
    let replaced = ReportedModification::Replace(Some(20));
    let writes = TransactionReport {
        reads: vec![read("a", 0, Some(20)), read("n", 0, Some(20))],
        writes: vec![write("n", Some(20))],
        ..report(1, 2)
    };
    let modifies = TransactionReport {
        form: Form::Batch,
        modifies: vec![modify("n", replaced), modify("n", number)],
        ..report(3, 4)
    };
    let replay = Replay::new(trace_of([writes, modifies]).into(), true);
    let is_number = |value: &Option<Value>| {
        let text = value.as_ref().map(|value| value.to_string());
        text.is_some_and(|text| text.parse::<i64>().is_ok())
    };
    let held = |key: &str| replay.initial_value(&Key::from(key));
    assert!(is_number(&held("n")) && !is_number(&held("a")));
    let plan = |number| Plan::Traced { number, think: Duration::ZERO };
    let keyspace = serial::keyspace();
    serial::run(keyspace.put("a", "something")).unwrap();
    let writes = plan(0);
    let program = |tx| replay.run(&writes, tx, false);
    let (_, footprint) = serial::run(keyspace.transact_recorded(program)).unwrap();
    assert!(is_number(&footprint.writes[0].value), "{footprint:?}");
    let modifies = replay.one_shot(&plan(1)).expect("it was a batch").modifies;
    let all: Vec<_> = modifies.into_iter().map(|(_, modification)| modification).collect();
    let replaced = serried_model::Modification::apply_all(&all[..1], None);
    assert!(is_number(&replaced), "{replaced:?}");
    let added = serried_model::Modification::apply_all(&all, None);
    assert!(is_number(&added) && added != replaced, "{added:?}");
}

#[test]
fn values_that_are_appended_to_stay_short_however_often_a_trace_is_repeated() {
    let appends = |bytes: u32| TransactionReport {
        form: Form::Batch,
        modifies: vec![modify(&format!("{bytes}"), ReportedModification::Append(bytes))],
        ..report(1, 2)
    };
    let replay = Replay::new(trace_of([appends(100), appends(5000)]).into(), true);
    let longest = |number| {
        let plan = Plan::Traced { number, think: Duration::ZERO };
        let mut modifies = replay.one_shot(&plan).expect("it was a batch").modifies;
        let (_, append) = modifies.remove(0);
        serried_model::Modification::apply_all([&append; 50], None).map(|value| value.len())
    };
    assert_eq!([0, 1].map(longest), [Some(4000), Some(5000)], "what is longer alone fits once");
}

#[test]
fn a_client_without_transactions_is_refused() {
    let mut trace = small();
    trace.transactions[1].client = 2;
    trace.transactions[2].client = 0;
    let error = Trace::decode(&trace.encode()).unwrap_err().to_string();
    assert!(error.contains("a client without transactions"), "{error}");
}

#[test]
fn a_block_that_is_longer_than_its_content_is_refused_though_its_checksum_is_right() {
    let file = small().encode();
    let mut at = 18;
    while let Some(length) = file.get(at + 1..at + 5) {
        let length = u32::from_le_bytes(length.try_into().unwrap());
        let (payload, rest) = (at + 5, at + 9 + length as usize);
        let mut block = vec![file[at]];
        block.extend((length + 1).to_le_bytes());
        block.extend(&file[payload..payload + length as usize]);
        block.push(0);
        block.extend(crc32fast::hash(&block).to_le_bytes());
        let longer = [&file[..at], &block, &file[rest..]].concat();
        let error = Trace::decode(&longer).unwrap_err().to_string();
        let expected = format!("it is damaged at byte {at}: a block is longer than its content");
        assert_eq!(error, expected);
        at = rest;
    }
    assert_eq!(at, file.len());
}

#[test]
fn a_key_that_is_added_to_and_appended_to_always_holds_a_number() {
    let modifies = |modification| TransactionReport {
        form: Form::Batch,
        modifies: vec![modify("n", modification)],
        ..report(100, 200)
    };
    let all = [
        ReportedModification::Number,
        ReportedModification::Append(4),
        ReportedModification::Number,
        ReportedModification::Replace(Some(7)),
        ReportedModification::Append(0),
        ReportedModification::Number,
    ];
    let replay = Replay::new(Arc::new(trace_of(all.into_iter().map(modifies))), false);
    let (key, mut random) = (Key::from("n"), Pcg64Mcg::seed_from_u64(1));
    let mut value = replay.initial_value(&key);
    for _ in 0..2 * all.len() {
        let plan = replay.plan(0, &mut random);
        let batch = replay.one_shot(&plan).expect("it is a batch");
        for (_, modification) in batch.modifies {
            match modification.apply(value.as_ref()) {
                Ok(Change::To(new)) => value = new,
                other => panic!("{modification:?} of {value:?}: {other:?}"),
            }
        }
    }
}

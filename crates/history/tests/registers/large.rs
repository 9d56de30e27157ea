//! Long histories and hot keys.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_history::{Budget, RegisterVerdict, check_linearizable, check_regular_sequential};

use crate::support::{
    Scripted, add, assert_accepted, history, linearizable, read, regular, violation, write,
};

/// The operations of a simulated history.
#[derive(Clone, Copy, PartialEq)]
enum Mix {
    /// Reads, and writes and additions of unique values.
    Own,
    /// Reads and writes of a few values.
    Few,
    /// Additions of 1, some of them of unknown outcome, and reads.
    Counter,
}

/// Clients that do one operation after the other. Each takes effect between its beginning and its end.
fn simulated(count: u64, clients: u64, keys: u64, mix: Mix) -> Vec<Scripted> {
    let mut random = Pcg64Mcg::seed_from_u64(count + clients);
    let mut plan = Vec::new();
    for at in 0..count {
        let client = at % clients;
        let begin = (at / clients) * 1000 + client * 7;
        let end = begin + random.random_range(100..990);
        plan.push((random.random_range(begin..=end), begin, end, client, at));
    }
    plan.sort_unstable();
    let mut registers = vec![None; keys as usize];
    let mut script = Vec::new();
    for (_, begin, end, client, at) in plan {
        let key = random.random_range(0..keys);
        let register = &mut registers[key as usize];
        let found = *register;
        let step = match (mix, random.random_range(0..4)) {
            (_, 0 | 1) => read(begin, end, found),
            (Mix::Own, 2) => write(begin, end, at as i64),
            (Mix::Own, _) => add(begin, end, 1 << 40, found),
            (Mix::Few, _) => write(begin, end, random.random_range(0..5)),
            (Mix::Counter, _) => add(begin, end, 1, found),
        };
        *register = step.operation.result(found);
        let step = step.on(key).by(client);
        // After an unknown outcome, a client continues as another one.
        let lost = mix == Mix::Counter && random.random_range(0..100) == 0;
        script.push(if lost { step.unknown().by(1_000_000 + at) } else { step });
    }
    script
}

#[test]
fn fifty_thousand_operations_on_a_hot_key_are_accepted() {
    for clients in [1, 3, 48] {
        assert_accepted(linearizable(simulated(50_000, clients, 1, Mix::Own)));
        assert_accepted(linearizable(simulated(50_000, clients, 1, Mix::Counter)));
    }
}

#[test]
fn fifty_thousand_operations_with_repeated_values_are_accepted() {
    for clients in [1, 3, 48] {
        assert_accepted(linearizable(simulated(50_000, clients, 1, Mix::Few)));
    }
}

#[test]
fn fifty_thousand_operations_on_many_keys_are_regular_sequential() {
    let script = simulated(50_000, 48, 100, Mix::Own);
    assert_accepted(regular(script.clone()));
    // An inversion of reads on a separate key excludes the fast path.
    let inverted = [write(0, 1, 1), write(2, 9, 2), read(3, 4, 2), read(5, 6, 1)];
    let inverted = inverted.map(|step| step.on(1000).by(step.process + (1 << 50)));
    let script: Vec<_> = script.into_iter().chain(inverted).collect();
    let history = history(script);
    let verdict = check_linearizable(&history, &Budget::default());
    assert!(matches!(verdict, RegisterVerdict::Violation(_)), "{verdict}");
    assert_accepted(check_regular_sequential(&history, &Budget::default()));
}

#[test]
fn a_stale_read_among_fifty_thousand_operations_is_explained_by_a_few() {
    for mix in [Mix::Own, Mix::Counter] {
        let mut script = simulated(50_000, 48, 1, mix);
        let first =
            script.iter().find(|step| step.operation.result(None).is_some()).copied().unwrap();
        let stale = first.operation.result(None).unwrap();
        script.push(read(40_000_000, 40_000_001, stale).by(99));
        for verdict in [linearizable(script.clone()), regular(script)] {
            let violation = violation(verdict);
            assert!(violation.operations.len() <= 4, "{violation}");
        }
    }
}

#[test]
fn a_stale_read_among_repeated_values_is_explained_by_a_few() {
    let mut script = simulated(5_000, 16, 1, Mix::Few);
    let last = 10_000_000;
    script.push(write(last, last + 1, 3).on(0).by(99));
    script.push(read(last + 2, last + 3, 4).on(0).by(99));
    let violation = violation(linearizable(script));
    assert_eq!(violation.operations.len(), 3, "{violation}");
}

#[test]
fn repeated_values_on_linearizable_keys_do_no_harm() {
    let mut script = simulated(20_000, 48, 20, Mix::Few);
    let inverted = [write(0, 1, 1), write(2, 9, 2), read(3, 4, 2), read(5, 6, 1)];
    script.extend(inverted.map(|step| step.on(1000).by(step.process + (1 << 50))));
    assert!(!linearizable(script.clone()).holds());
    assert_accepted(regular(script));
}

//! A history of many calls takes time in proportion to its size.

use crate::support::{call, strictly};

#[test]
fn a_long_history_is_checked_and_an_inversion_at_its_end_is_found() {
    const CALLS: u64 = 20_000;
    const LISTS: u64 = 2_000;
    let mut lists = vec![Vec::new(); LISTS as usize];
    let mut calls = Vec::new();
    for at in 0..CALLS {
        let keys = [at % LISTS, (at * 7 + 1) % LISTS];
        let keys = if keys[0] == keys[1] { &keys[..1] } else { &keys[..] };
        let reads: Vec<_> = keys.iter().map(|&key| (key, lists[key as usize].clone())).collect();
        let appends: Vec<_> = keys.iter().map(|&key| (key, at)).collect();
        for &key in keys {
            lists[key as usize].push(at);
        }
        let reads: Vec<_> = reads.iter().map(|(key, found)| (*key, found.as_slice())).collect();
        // Each is concurrent with a few others.
        calls.push(call([3 * at, 3 * at + 10], &reads, &appends));
    }
    assert!(strictly(calls.iter().cloned()).holds());
    let stale = call([4 * CALLS, 4 * CALLS + 1], &[(0, &lists[0][..1])], &[]);
    calls.push(stale);
    assert!(!strictly(calls).holds());
}

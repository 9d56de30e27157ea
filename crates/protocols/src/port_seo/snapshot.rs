//! Which state a read-only transaction returns: the client chooses it from what partitions have answered.

use std::collections::BTreeMap;

use super::Mutation;
use super::message::{Found, Mark, NUMBERS, Version};
use crate::Mutated;

/// The number of the last write that a read-only transaction sees: that of the latest batch of which it is known that
/// all partitions have answered with everything up to it. `since` was applied before the transaction began. `None` if
/// the partitions do not keep enough, so that the transaction needs another round.
pub(super) fn choose(
    since: u64,
    answers: &BTreeMap<u16, Found>,
    mutation: Mutated<Mutation>,
) -> Option<u64> {
    let complete_from = answers.values().map(|found| found.complete_from).max()?;
    let fits = |mark: &&Mark| {
        let mut lasts = mark.highest.iter().zip(answers.values());
        let is_there = lasts.all(|(highest, found)| *highest <= found.last);
        mark.last >= complete_from && (is_there || mutation.is(Mutation::VectorsIgnored))
    };
    let marks = answers.values().flat_map(|found| &found.marks);
    let latest = marks.filter(fits).map(|mark| mark.last).max();
    latest.max((since >= complete_from).then_some(since))
}

/// The version of a key as of a number. The versions are all that it had from an earlier number on.
pub(super) fn version_at(number: u64, versions: &mut Vec<Version>) -> Option<Version> {
    let later = versions.partition_point(|version| version.number <= number);
    Some(versions.swap_remove(later.checked_sub(1)?))
}

/// The highest number that an answer shows to be applied.
pub(super) fn shown(found: &Found) -> u64 {
    found.marks.iter().map(|mark| mark.last).max().unwrap_or(0).max(found.last)
}

/// Whether an answer can be one to a request for so many keys, in a transaction with so many partitions.
pub(super) fn is_sound(found: &Found, keys: usize, partitions: usize) -> bool {
    let is_complete = |versions: &Vec<Version>| {
        versions.first().is_some_and(|first| first.number <= found.complete_from)
            && versions.is_sorted_by(|one, other| one.number < other.number)
    };
    found.versions.len() == keys
        && found.versions.iter().all(is_complete)
        && found.marks.iter().all(|mark| mark.highest.len() == partitions)
        && shown(found) < NUMBERS
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use serried_actor::Timestamp;
    use serried_model::{Key, Value};

    use super::super::history::History;
    use super::*;

    fn mark(last: u64, highest: &[u64]) -> Mark {
        Mark { last, highest: highest.to_vec() }
    }

    fn found(last: u64, complete_from: u64, marks: Vec<Mark>) -> Found {
        Found { last, complete_from, versions: Vec::new(), marks }
    }

    fn chosen(since: u64, answers: Vec<Found>) -> Option<u64> {
        choose(since, &(0..).zip(answers).collect(), Mutated::NONE)
    }

    #[test]
    fn a_mark_is_chosen_if_all_partitions_have_what_it_counts() {
        let early = || found(3, 1, vec![mark(3, &[3, 0])]);
        let marks = vec![mark(5, &[3, 5]), mark(9, &[8, 9])];
        assert_eq!(chosen(1, vec![early(), found(9, 1, marks.clone())]), Some(5));
        let late = found(8, 1, vec![mark(3, &[3, 0]), mark(8, &[8, 5])]);
        assert_eq!(chosen(1, vec![late, found(9, 1, marks)]), Some(9));
        assert_eq!(chosen(1, vec![early(), found(0, 1, vec![])]), Some(3));
        assert_eq!(chosen(4, vec![found(3, 4, vec![]), found(0, 4, vec![])]), Some(4));
    }

    #[test]
    fn nothing_is_chosen_of_which_not_all_is_kept() {
        let early = || found(3, 3, vec![mark(3, &[3, 0])]);
        let late = || found(9, 9, vec![mark(9, &[8, 9])]);
        assert_eq!(chosen(1, vec![early(), late()]), None, "it takes another round");
        assert_eq!(chosen(9, vec![found(8, 9, vec![]), found(9, 9, vec![])]), Some(9));
        let both = vec![found(3, 3, vec![mark(3, &[3, 0])]), found(0, 0, vec![])];
        assert_eq!(chosen(1, both), Some(3), "a new leader knows one state");
    }

    const PARTITIONS: u16 = 4;
    const KEYS: u64 = 2;

    fn key(number: u64) -> Key {
        Key::from(number.to_string().as_str())
    }

    /// The number of the last write of a key, up to some number. `writes` has the keys in the order of the numbers.
    fn state(key: u64, number: u64, writes: &[u64]) -> u64 {
        let before = (1..).zip(writes).take_while(|(n, _)| *n <= number);
        before.filter(|(_, k)| **k == key).map(|(n, _)| n).last().unwrap_or(0)
    }

    /// Some partitions, and when each of them answers.
    fn round(start: usize, read_set: &[u16], random: &mut Pcg64Mcg) -> BTreeMap<u16, usize> {
        read_set.iter().map(|p| (*p, start + random.random_range(0..8_usize))).collect()
    }

    /// A transaction in a random history: batches are applied one after the other, and the partitions answer at random
    /// times. Returns how many rounds it took.
    fn read_once(random: &mut Pcg64Mcg, mutation: Mutated<Mutation>) -> Result<u32, String> {
        let forgets = random.random_bool(0.3);
        let start = random.random_range(0..20_usize);
        let of_set: Vec<u16> = (0..PARTITIONS).filter(|_| random.random_bool(0.6)).collect();
        let read_set = if of_set.is_empty() { vec![2] } else { of_set };
        let (mut times, mut rounds) = (round(start, &read_set, random), 1);
        let (mut writes, mut ends, mut highest) = (Vec::new(), vec![0], vec![0; 4]);
        let none = || History::new(Mark::default(), Duration::from_secs(1));
        let mut histories: Vec<History> = (0..PARTITIONS).map(|_| none()).collect();
        let mut answers = BTreeMap::new();
        let (mut since, mut known) = (0, 0);
        for time in 0.. {
            let partition = random.random_range(0..u64::from(PARTITIONS));
            let first = writes.len() as u64 + 1;
            let mut overwritten: BTreeMap<u64, u64> = BTreeMap::new();
            for _ in 0..random.random_range(1..4) {
                let key = partition * KEYS + random.random_range(0..KEYS);
                let before = state(key, first - 1, &writes);
                overwritten.entry(key).or_insert(before);
                writes.push(key);
            }
            let last = writes.len() as u64;
            ends.push(last);
            highest[partition as usize] = last;
            let version = |number| Version { number, value: Some(Value::from("")) };
            let overwritten = overwritten.into_iter().map(|(k, n)| (key(k), version(n)));
            let history = &mut histories[partition as usize];
            let mark = Mark { last, highest: highest.clone() };
            history.add(mark.clone(), overwritten.collect(), Timestamp(time as u64));
            if forgets && random.random_bool(0.2) {
                // A new leader.
                *history = History::new(mark, Duration::from_secs(1));
            }
            if time == start {
                since = random.random_range(0..=last);
            }
            for (partition, _) in times.iter().filter(|(_, at)| **at == time) {
                let numbers = (0..KEYS).map(|number| u64::from(*partition) * KEYS + number);
                let keys: Vec<Key> = numbers.clone().map(key).collect();
                let latest = numbers.map(|k| version(state(k, last, &writes))).collect();
                let history = &histories[usize::from(*partition)];
                let found = history.find((since, rounds > 1), &keys, latest, &read_set);
                assert!(is_sound(&found, KEYS as usize, read_set.len()));
                known = known.max(shown(&found));
                answers.insert(*partition, found);
            }
            if answers.len() < read_set.len() {
                continue;
            }
            let Some(number) = choose(since, &answers, mutation) else {
                if !forgets {
                    return Err("nothing was forgotten".to_string());
                }
                (since, rounds) = (since.max(known), rounds + 1);
                answers.clear();
                times = round(time + 1, &read_set, random);
                continue;
            };
            let mut values = Vec::new();
            for (partition, found) in &mut answers {
                for (k, versions) in (0..).zip(&mut found.versions) {
                    let version = version_at(number, versions).ok_or("a version is missing")?;
                    values.push((u64::from(*partition) * KEYS + k, version.number));
                }
            }
            if number > last {
                return Err(format!("{number} is after the end"));
            }
            let fits = |at: &u64| values.iter().all(|(k, found)| state(*k, *at, &writes) == *found);
            if !ends[start + 1..].iter().any(fits) {
                return Err(format!(
                    "{values:?} is no state from start to end: {ends:?}, {writes:?}"
                ));
            }
            return Ok(rounds);
        }
        unreachable!("time goes on")
    }

    #[test]
    fn what_is_returned_was_the_state_at_some_moment_between_start_and_end() {
        let random = &mut Pcg64Mcg::seed_from_u64(1);
        let all: Vec<u32> =
            (0..20_000).map(|_| read_once(random, Mutated::NONE).expect("it is right")).collect();
        let of = |least: u32| all.iter().filter(|rounds| **rounds >= least).count();
        assert!((1..2000).contains(&of(2)) && of(3) > 0, "{} and {}", of(2), of(3));
        let broken = Mutated::by(Mutation::VectorsIgnored);
        assert!((0..1000).any(|_| read_once(random, broken).is_err()));
    }
}

//! Read-only transactions of both protocols, at a client.

use serried_actor::Group;
use serried_model::snapshots::{Outcome, Own, Read};
use serried_model::{Key, TxnId, Versionstamp};

use super::super::Mutation;
use super::super::message::{Answer, Found, Request, Valid};
use super::{Coordinator, Cx, Places, Reads, Task};

/// A read-only transaction under way.
#[derive(Debug)]
pub(super) struct Reading {
    places: Places,
    /// The session must not read as of an earlier time.
    floor: Versionstamp,
    own: Own,
    stage: Stage,
    /// What was found, by the places of the keys. Only keys that are valid have something.
    found: Vec<Option<Found>>,
    /// As of when it reads.
    at: Versionstamp,
    /// What the first round of Eiger has found, by the places of the keys.
    latest: Vec<Valid>,
    /// Something was overwritten too long ago.
    is_too_old: bool,
    /// Pending transactions were checked: a third round.
    has_checked: bool,
}

/// What it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Nothing was sent.
    Begun,
    /// The clocks.
    Clocks,
    /// What the keys have, and until when.
    Latest,
    /// What the keys had.
    Values,
}

impl Reading {
    pub(super) fn new(keys: Vec<Key>, floor: Versionstamp, own: Own, group: &Group) -> Reading {
        let (mut places, count) = (Places::new(), keys.len());
        for (place, key) in keys.into_iter().enumerate() {
            let of_partition = places.entry(group.partition_of(&key)).or_default();
            of_partition.0.push(key);
            of_partition.1.push(place);
        }
        Reading {
            places,
            floor,
            own,
            stage: Stage::Begun,
            found: vec![None; count],
            at: floor,
            latest: vec![Valid::default(); count],
            is_too_old: false,
            has_checked: false,
        }
    }

    /// The requests for the keys that have nothing yet.
    fn requests(&self, of: impl Fn(Vec<Key>) -> Request) -> Vec<(u16, Request)> {
        let mut requests = Vec::new();
        for (partition, (keys, places)) in &self.places {
            let open = keys.iter().zip(places).filter(|(_, place)| self.found[**place].is_none());
            let keys: Vec<Key> = open.map(|(key, _)| key.clone()).collect();
            if !keys.is_empty() {
                requests.push((*partition, of(keys)));
            }
        }
        requests
    }

    /// The places of the keys that a request has asked for.
    fn open_places(&self, partition: u16) -> Vec<usize> {
        let Some((_, places)) = self.places.get(&partition) else { return Vec::new() };
        places.iter().copied().filter(|place| self.found[*place].is_none()).collect()
    }

    /// Takes in an answer. Returns false if it is none.
    pub(super) fn take_in(&mut self, partition: u16, request: &Request, answer: Answer) -> bool {
        let places = self.open_places(partition);
        match (request, answer) {
            (
                Request::Read { .. } | Request::ReadAt { .. },
                Answer::Values { found, checked, .. },
            ) if found.len() == places.len() => {
                self.has_checked |= checked > 0;
                for (place, found) in places.into_iter().zip(found) {
                    self.found[place] = Some(found);
                }
            }
            (Request::ReadLatest { .. }, Answer::Latest { found, .. })
                if found.len() == places.len() =>
            {
                for (place, valid) in places.into_iter().zip(found) {
                    self.latest[place] = valid;
                }
            }
            (Request::Read { .. } | Request::ReadAt { .. }, Answer::TooOld { .. }) => {
                self.is_too_old = true;
            }
            _ => return false,
        }
        true
    }

    /// After the first round of Eiger: as of when all keys are read, and which ones are valid then.
    fn choose(&mut self) {
        let commits = self.latest.iter().map(|valid| valid.found.commit);
        let latest = commits.max().unwrap_or_default();
        self.at = latest.max(self.floor).max(self.own.written);
        for (valid, found) in self.latest.iter_mut().zip(&mut self.found) {
            *found = (valid.until >= self.at).then(|| core::mem::take(&mut valid.found));
        }
    }

    /// It begins again, and asks for clocks if it needs any.
    pub(super) fn begin_again(&mut self) {
        self.restart();
        self.stage = Stage::Begun;
    }

    /// It reads everything again.
    fn restart(&mut self) {
        self.found.iter_mut().for_each(|found| *found = None);
        self.is_too_old = false;
    }
}

impl Coordinator {
    /// Goes on with a read-only transaction. All that was sent for it is answered.
    pub(super) fn go_on_reading(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        match self.reads {
            Reads::AtSafeTime => self.read_at_safe_time(txn, cx),
            Reads::Optimistically => self.read_optimistically(txn, cx),
        }
    }

    fn reading(&mut self, txn: TxnId) -> Option<&mut Reading> {
        match &mut self.operations.get_mut(&txn)?.task {
            Task::Read(reading) => Some(reading),
            _ => None,
        }
    }

    /// Eiger-PORT (004 Fig. 5, lines 5 to 11).
    fn read_at_safe_time(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let all = self.group.all_partitions();
        let unknown: Vec<u16> =
            all.clone().filter(|partition| !self.known.has(*partition)).collect();
        let Some(reading) = self.reading(txn) else { return };
        if reading.stage == Stage::Values && !reading.is_too_old {
            return self.finish_read(txn, cx);
        }
        if reading.is_too_old {
            // The safe times that are known are too old.
            reading.restart();
            reading.stage = Stage::Clocks;
            return self.ask_for_clocks_later(txn, cx);
        }
        if !unknown.is_empty() {
            if core::mem::replace(&mut reading.stage, Stage::Clocks) == Stage::Clocks {
                // Some have not heard yet that the site was rebuilt.
                return self.ask_for_clocks_later(txn, cx);
            }
            return self.begin_round(txn, Self::clocks(unknown.into_iter()), cx);
        }
        let safe = match self.mutation.is(Mutation::SafeAsMaximum) {
            true => self.known.highest_safe(),
            false => self.known.safe(),
        };
        let Some(reading) = self.reading(txn) else { return };
        reading.stage = Stage::Values;
        reading.at = reading.floor.max(safe);
        let (at, own) = (reading.at, reading.own);
        let request = |keys| Request::Read { at, session: own.session, written: own.written, keys };
        let requests = reading.requests(request);
        self.begin_round(txn, requests, cx);
        for partition in self.known.refresh(own.freshness, cx.now()) {
            self.send(None, partition, Request::ReadClock, cx);
        }
    }

    /// Eiger.
    fn read_optimistically(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(reading) = self.reading(txn) else { return };
        if reading.is_too_old {
            reading.restart();
            reading.stage = Stage::Clocks;
            return self.ask_for_clocks_later(txn, cx);
        }
        match reading.stage {
            Stage::Begun | Stage::Clocks => {
                reading.stage = Stage::Latest;
                let requests = reading.requests(|keys| Request::ReadLatest { keys });
                self.begin_round(txn, requests, cx);
            }
            Stage::Latest => {
                reading.choose();
                reading.stage = Stage::Values;
                let at = reading.at;
                let requests = reading.requests(|keys| Request::ReadAt { at, keys });
                match requests.is_empty() {
                    true => self.finish_read(txn, cx),
                    false => self.begin_round(txn, requests, cx),
                }
            }
            Stage::Values => self.finish_read(txn, cx),
        }
    }

    fn finish_read(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let shown = self.known.shown();
        let Some(running) = self.operations.get_mut(&txn) else { return };
        let Task::Read(reading) = &mut running.task else { return };
        let found = core::mem::take(&mut reading.found);
        let found = found.into_iter().map(Option::unwrap_or_default);
        let outcome = Outcome::Read(Read {
            found: found
                .map(|found| {
                    let stamp = found.stamp();
                    (found.value, stamp)
                })
                .collect(),
            at: reading.at,
            shown,
            rounds: running.rounds + u32::from(reading.has_checked),
            metadata_bytes: running.metadata_bytes,
        });
        self.finish(txn, outcome, cx);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn eiger_reads_again_what_was_overwritten_before_the_latest_version() {
        let group = Group::new(1, core::time::Duration::ZERO);
        let keys = ["a", "b", "c"].map(Key::from).to_vec();
        let own = Own { written: Versionstamp(12), ..Own::default() };
        let mut reading = Reading::new(keys, Versionstamp(5), own, &group);
        let valid = |commit, until| {
            let found = Found { value: None, commit: Versionstamp(commit), elsewhere: None };
            Valid { found, until: Versionstamp(until) }
        };
        reading.latest = vec![valid(3, 15), valid(9, 11), valid(7, 12)];
        reading.choose();
        assert_eq!(reading.at, Versionstamp(12), "its own write");
        let is_valid = reading.found.iter().map(Option::is_some);
        assert_eq!(is_valid.collect::<Vec<_>>(), [true, false, true]);
        let requests: BTreeMap<u16, Request> =
            reading.requests(|keys| Request::ReadLatest { keys }).into_iter().collect();
        assert_eq!(requests[&0], Request::ReadLatest { keys: vec![Key::from("b")] });
    }
}

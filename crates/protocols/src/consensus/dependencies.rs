//! What a client has read and what may be held by few (001 §4.6.2).

use serried_model::{Carstamp, Key};
use serried_parts::{Asked, Stamped};

/// What a client brings along until a quorum is known to hold it.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    values: Vec<Unheld>,
    fences: u64,
}

#[derive(Debug)]
struct Unheld {
    key: Key,
    partition: u16,
    stamped: Stamped,
    fence: Option<Fence>,
}

/// What has a quorum hold a value before an operation on another partition's keys has an effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    pub(super) request: u64,
    pub(super) asked: Asked,
}

impl Unsettled {
    /// The client has read this.
    pub(super) fn add(&mut self, key: Key, partition: u16, stamped: Stamped) {
        let same = |other: &&mut Unheld| other.key == key;
        if self.values.iter_mut().filter(same).any(|o| stamped.carstamp <= o.stamped.carstamp) {
            return;
        }
        // What is being fenced off is waited for as it is.
        let mut open = self.values.iter_mut().filter(same).filter(|other| other.fence.is_none());
        match open.next() {
            Some(other) => other.stamped = stamped,
            None => self.values.push(Unheld { key, partition, stamped, fence: None }),
        }
    }

    /// What an operation on a partition's keys brings along.
    pub(super) fn of(&self, partition: u16) -> Vec<(Key, Stamped)> {
        let of_it = self.values.iter().filter(|unheld| unheld.partition == partition);
        of_it.map(|unheld| (unheld.key.clone(), unheld.stamped.clone())).collect()
    }

    /// A quorum holds these.
    pub(super) fn are_held(&mut self, held: &[(Key, Stamped)]) {
        let is_held = |unheld: &Unheld| {
            let same = |(key, stamped): &(Key, Stamped)| {
                *key == unheld.key && unheld.stamped.carstamp <= stamped.carstamp
            };
            held.iter().any(same)
        };
        self.values.retain(|unheld| !is_held(unheld));
    }

    /// What has to be held by a quorum before an update of another partition may have an effect.
    pub(super) fn besides(&self, partition: u16) -> Vec<(Key, Carstamp)> {
        let others = self.values.iter().filter(|unheld| unheld.partition != partition);
        others.map(|unheld| (unheld.key.clone(), unheld.stamped.carstamp)).collect()
    }

    /// Whether any of these is not held by a quorum yet.
    pub(super) fn has_any(&self, values: &[(Key, Carstamp)]) -> bool {
        let waits = |(key, carstamp): &(Key, Carstamp)| {
            let same = |unheld: &Unheld| unheld.key == *key && unheld.stamped.carstamp <= *carstamp;
            self.values.iter().any(same)
        };
        values.iter().any(waits)
    }

    /// Begins fences for what there is besides a partition's: the requests.
    pub(super) fn fence(&mut self, besides: u16, ask: impl Fn(u16) -> Asked) -> Vec<u64> {
        let mut begun = Vec::new();
        for unheld in &mut self.values {
            if unheld.partition != besides && unheld.fence.is_none() {
                // Counted down, so that no operation has the same.
                self.fences += 1;
                let request = u64::MAX - self.fences;
                unheld.fence = Some(Fence { request, asked: ask(unheld.partition) });
                begun.push(request);
            }
        }
        begun
    }

    /// A fence that is under way, with what it is about.
    pub(super) fn fence_of(&mut self, request: u64) -> Option<(&mut Fence, &Key, &Stamped)> {
        self.values.iter_mut().find_map(|Unheld { key, stamped, fence, .. }| {
            let fence = fence.as_mut().filter(|fence| fence.request == request)?;
            Some((fence, &*key, &*stamped))
        })
    }
}

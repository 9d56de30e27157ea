//! Is there an order of all operations of a history that is regular sequential? Every order is tried.

use std::collections::HashSet;

use serried_history::{
    Budget, RegisterOperation, RegisterOutcome, RegisterRecorder, RegisterVerdict,
    check_regular_sequential,
};

use crate::model::{ABSENT, Access, KEYS, Lane, UNFINISHED, Version};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Event {
    Begin {
        lane: usize,
        operation: usize,
    },
    /// With the version that was found or made.
    End {
        lane: usize,
        operation: usize,
        version: Version,
    },
}

#[derive(Clone, Copy, Debug)]
struct Done {
    client: usize,
    access: Access,
    key: usize,
    version: Version,
    begun: usize,
    ended: usize,
}

impl Done {
    fn is_update(&self) -> bool {
        self.access != Access::Read
    }

    /// Whether it comes before another that began when it had ended: by their process, or as an update that
    /// was complete, before all on its key and before other updates. That is more than
    /// [`check_regular_sequential`] asks for.
    fn precedes(&self, other: &Done) -> bool {
        let by_process = self.client == other.client;
        let by_time = self.is_update() && (other.is_update() || self.key == other.key);
        self.ended < other.begun && (by_process || by_time)
    }

    /// What the key holds after it, if it may come when the key holds `held`.
    fn after(&self, held: Version) -> Option<Version> {
        match self.access {
            Access::Read => (held == self.version).then_some(held),
            Access::Write => Some(self.version),
            Access::Modify => {
                let (timestamp, writer, rmwc) = held;
                (self.version == (timestamp, writer, rmwc + 1)).then_some(self.version)
            }
        }
    }
}

/// The operations of a history, and the write of `x` that never ends.
fn done(lanes: &[Lane], events: &[Event]) -> Vec<Done> {
    let unfinished = Done {
        client: usize::MAX,
        access: Access::Write,
        key: 0,
        version: UNFINISHED,
        begun: 0,
        ended: usize::MAX,
    };
    let mut all = vec![unfinished];
    let at = |event: &Event| events.iter().position(|other| other == event);
    for end in events {
        let Event::End { lane, operation, version } = *end else { continue };
        let begun = at(&Event::Begin { lane, operation }).expect("it began") + 1;
        let ended = at(end).expect("it is there") + 1;
        let crate::model::Operation { access, key } = lanes[lane].operations[operation];
        all.push(Done { client: lanes[lane].client, access, key, version, begun, ended });
    }
    all
}

pub(crate) fn is_regular_sequential(lanes: &[Lane], events: &[Event]) -> bool {
    let all = done(lanes, events);
    let before: Vec<u32> = all
        .iter()
        .map(|other| {
            (0..).zip(&all).filter(|(_, one)| one.precedes(other)).map(|(i, _)| 1 << i).sum()
        })
        .collect();
    let complete = (0..).zip(&all).filter(|(_, one)| one.ended < usize::MAX);
    let complete: u32 = complete.map(|(i, _)| 1 << i).sum();
    let mut seen = HashSet::new();
    let mut open = vec![(0u32, [ABSENT; KEYS])];
    while let Some((placed, held)) = open.pop() {
        if placed & complete == complete {
            return true;
        }
        for (i, one) in all.iter().enumerate() {
            if placed >> i & 1 == 1 || before[i] & !placed != 0 {
                continue;
            }
            let Some(after) = one.after(held[one.key]) else { continue };
            let mut held = held;
            held[one.key] = after;
            let next = (placed | 1 << i, held);
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

/// What the checker says, which judges the suite's histories.
pub(crate) fn judged(lanes: &[Lane], events: &[Event]) -> RegisterVerdict {
    let number = |(timestamp, writer, _): Version| i64::from(timestamp) << 8 | i64::from(writer);
    let recorder = RegisterRecorder::new();
    let all = done(lanes, events);
    let operation = |one: &Done| match one.access {
        Access::Read => RegisterOperation::Read,
        Access::Write => RegisterOperation::Write { value: Some(number(one.version)) },
        Access::Modify => RegisterOperation::Add { delta: 1 },
    };
    let process = |one: &Done| if one.ended == usize::MAX { 99 } else { one.client as u64 };
    for time in 0..=events.len() {
        for one in all.iter().filter(|one| one.begun == time) {
            recorder.invoke(process(one), time as u64, one.key as u64, operation(one));
        }
        for one in all.iter().filter(|one| one.ended == time) {
            assert!(one.access != Access::Modify, "what these find is not recorded");
            let read = one.access == Access::Read && one.version != ABSENT;
            let found = read.then(|| number(one.version));
            let outcome = RegisterOutcome::Ok { found, version: None };
            recorder.complete(process(one), time as u64, one.key as u64, operation(one), outcome);
        }
    }
    check_regular_sequential(&recorder.into_history(), &Budget::default())
}

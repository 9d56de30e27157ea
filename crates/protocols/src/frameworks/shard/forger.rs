//! Forged messages for tests, which no correct node sends.

use std::sync::Arc;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_model::{Key, Modification, Modify, NodeId, Value, Version, Write};

use super::message::{
    AsOf, Decision, Executed, Found, Message, Refusal, Reply, Request, Shot, Unseen,
};
use super::stamp::{Stamp, Validity};
use crate::frameworks::replicated_log::Time;

/// The approximate time that clocks show, in microseconds.
pub(super) const NOW_US: u64 = 10_000_000;

/// Draws messages about few transactions and keys, so that they conflict, with numbers that are
/// likely to be invalid.
pub(super) struct Forger(pub(super) Pcg64Mcg);

impl Forger {
    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.0.random_range(0..most)
    }

    fn us(&mut self) -> u64 {
        match self.below(40) {
            0 => 0,
            1 => u64::MAX,
            2 => (1 << 62) - 1,
            3 => NOW_US - self.below(20_000_000).min(NOW_US),
            4 => NOW_US + self.below(5_000_000),
            _ => NOW_US + self.below(12),
        }
    }

    fn txn(&mut self) -> Version {
        Version { timestamp_us: self.us(), coordinator: self.client() }
    }

    fn stamp(&mut self) -> Stamp {
        Stamp { us: self.us(), txn: self.txn() }
    }

    fn client(&mut self) -> NodeId {
        NodeId(NodeId::FIRST_COORDINATOR + self.below(2))
    }

    pub(super) fn sender(&mut self) -> NodeId {
        match self.below(10) {
            0 => NodeId(self.below(NodeId::FIRST_COORDINATOR)),
            1 => NodeId(u64::MAX),
            2..5 => NodeId::replica(self.below(2) as u16, 0),
            _ => self.client(),
        }
    }

    fn keys(&mut self) -> Vec<Key> {
        (0..self.below(4))
            .map(|_| Key::from(["x", "y", "", "\u{ff}"][self.below(4) as usize]))
            .collect()
    }

    fn participants(&mut self) -> Option<Arc<[u16]>> {
        match self.below(8) {
            0 => Some((0..self.below(4)).map(|_| self.below(4) as u16).collect()),
            1..5 => Some([[0, 1], [1, 0]][self.below(2) as usize].into()),
            5 => Some([0].into()),
            _ => None,
        }
    }

    fn decision(&mut self) -> Decision {
        match self.below(3) {
            0 => Decision::Abort,
            _ => Decision::Commit(self.stamp()),
        }
    }

    fn request(&mut self) -> Request {
        let txn = self.txn();
        match self.below(17) {
            0 => Request::Move { txn, to: Stamp { us: self.us(), txn } },
            1 => Request::Move { txn, to: self.stamp() },
            2 | 3 => Request::End { txn, decision: self.decision() },
            4 => Request::End { txn, decision: Decision::Commit(Stamp { us: self.us(), txn }) },
            5 => Request::Alive(vec![txn, self.txn()]),
            6 => Request::Inspect { txn },
            7 => Request::Resolve { txn },
            8 => Request::Over { below_us: self.us() },
            9 => Request::Snapshot { number: 1, as_of: AsOf::Time(txn), keys: self.keys() },
            10 => Request::Snapshot { number: 1, as_of: AsOf::Slot(self.us()), keys: self.keys() },
            11 => Request::Prepared { txn, validity: self.validity() },
            _ => {
                let number = self.below(4) as u16;
                let write = |key| Write { key, value: Some(Value::from("new")) };
                let writes = self.keys().into_iter().map(write).collect();
                let (reads, participants) = (self.keys(), self.participants());
                let for_update = self.below(3) as u32;
                let age = (self.below(2) == 0).then(|| self.txn());
                let keys = self.keys();
                let modify = |key| {
                    let modifications = match self.below(3) {
                        0 => vec![Modification::add(i64::MAX), Modification::Maximum(1)],
                        1 => vec![Modification::Append(Value::from("x"))],
                        _ => Vec::new(),
                    };
                    Modify { key, modifications }
                };
                let modifies = keys.into_iter().map(modify).collect();
                Request::Shot(Shot {
                    txn,
                    age,
                    number,
                    reads,
                    for_update,
                    writes,
                    modifies,
                    participants,
                })
            }
        }
    }

    fn validity(&mut self) -> Validity {
        let until = (self.below(2) == 0).then(|| self.stamp());
        Validity { from: self.stamp(), until }
    }

    fn refusal(&mut self) -> Refusal {
        match self.below(6) {
            0 => Refusal::Conflict { keys: self.keys(), after_us: self.us() },
            1 => Refusal::Late { from_us: self.us() },
            2 => Refusal::Forgotten { from_us: self.us() },
            3 => Refusal::ClockSkew { ahead_us: self.us() as i64 },
            4 => Refusal::TooLarge { key: Key::from("x"), bytes: self.us() },
            _ => Refusal::TooLong { limit_ms: self.us() },
        }
    }

    fn found(&mut self) -> Vec<Found> {
        (0..self.below(3)).map(|_| Found { version: self.txn(), value: None }).collect()
    }

    pub(super) fn reply(&mut self) -> Reply {
        let txn = self.txn();
        match self.below(9) {
            0 | 1 => {
                let validity = (self.below(2) == 0).then(|| self.validity());
                let (number, found) = (self.below(3) as u16, self.found());
                let (known, clock_us) = (self.us(), self.us());
                Reply::Executed(Executed { txn, number, found, validity, known, clock_us })
            }
            2 => Reply::Refused { txn, reason: self.refusal() },
            3 => Reply::Moved { txn },
            4 => Reply::Decided { txn, decision: self.decision() },
            5 => Reply::Ended(vec![txn, self.txn()]),
            6 => Reply::Prepared { txn, validity: self.validity() },
            7 => Reply::Unread { number: self.below(4), reason: self.refusal() },
            _ => {
                let found = match self.below(3) {
                    0 => Err(Unseen { key: Key::from("x"), anew: self.below(2) == 0 }),
                    _ => Ok(self.found()),
                };
                Reply::Snapshot {
                    number: self.below(4),
                    known: self.us(),
                    clock_us: self.us(),
                    found,
                }
            }
        }
    }

    pub(super) fn message(&mut self) -> Message {
        match self.below(16) {
            0 => Message::Forward { from: self.sender(), request: self.request() },
            1 => Message::Time(Time::Ask { number: self.below(2) }),
            2 => Message::Time(Time::Tell { number: self.below(2), us: self.us() }),
            3..7 => Message::Reply(self.reply()),
            _ => Message::Request(self.request()),
        }
    }
}

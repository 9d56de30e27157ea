//! Questions outside of transactions: how a transaction ended, and what a key held in the past.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::Group;
use serried_model::transactions::{self, Ending, Output};
use serried_model::{Key, NodeId, TxnId, Version};

use super::{Cx, Timer, patience};
use crate::morty::message::{Message, PastRead, Request, Settlement};

/// The time after which a past that was not settled is asked for again.
const NOT_SETTLED: Duration = Duration::from_millis(100);

/// A question that is not answered.
#[derive(Debug)]
struct Question {
    what: What,
    /// How often it has been asked.
    asked: usize,
}

#[derive(Debug)]
enum What {
    /// How a transaction ended, and what each partition has answered.
    Outcome { version: Version, settled: BTreeMap<u16, Settlement> },
    /// What a key held.
    Past { key: Key, at: Version },
}

/// The questions that are not answered, by the session that asks.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: BTreeMap<TxnId, Question>,
}

impl Questions {
    pub(super) fn inquire(&mut self, txn: TxnId, version: Version, group: &Group, cx: &mut Cx) {
        let what = What::Outcome { version, settled: BTreeMap::new() };
        self.open.insert(txn, Question { what, asked: 0 });
        self.ask(txn, group, cx);
    }

    pub(super) fn get_at(&mut self, txn: TxnId, key: Key, at: Version, group: &Group, cx: &mut Cx) {
        self.open.insert(txn, Question { what: What::Past { key, at }, asked: 0 });
        self.ask(txn, group, cx);
    }

    /// Asks, or asks again the partitions that have not answered: another replica each time.
    pub(super) fn ask(&mut self, txn: TxnId, group: &Group, cx: &mut Cx) {
        let Some(question) = self.open.get_mut(&txn) else { return };
        let asked = question.asked;
        question.asked += 1;
        match &question.what {
            What::Outcome { version, settled } => {
                for partition in 0..group.partitions() {
                    if !settled.contains_key(&partition) {
                        let inquire = Message::Request(Request::Inquire { version: *version });
                        cx.send(group.choice(partition, asked), inquire);
                    }
                }
            }
            What::Past { key, at } => {
                let replica = group.choice(group.partition_of(key), asked);
                let (request, key, at) = (txn.0, key.clone(), *at);
                cx.send(replica, Message::Request(Request::GetAt { request, key, at }));
            }
        }
        cx.set_timer(Timer::Ask(txn), patience(group, asked as u32));
    }

    /// A partition says how a transaction ended. It committed if it did in one of them; it aborted if
    /// it did in all, or where it is known to have taken part.
    pub(super) fn on_settled(
        &mut self,
        from: NodeId,
        version: Version,
        settlement: Settlement,
        group: &Group,
        cx: &mut Cx,
    ) {
        if self.open.is_empty() {
            return;
        }
        let partitions = usize::from(group.partitions());
        let mut answered = Vec::new();
        for (txn, question) in &mut self.open {
            let What::Outcome { version: asked_for, settled } = &mut question.what else {
                continue;
            };
            if *asked_for != version {
                continue;
            }
            settled.insert(from.partition(), settlement);
            if let Settlement::Committed { .. } = settlement {
                answered.push((*txn, Ending::Committed));
            } else if settled.len() == partitions {
                let forgotten = settled.values().any(|s| *s == Settlement::Forgotten);
                answered.push((*txn, if forgotten { Ending::Forgotten } else { Ending::Aborted }));
            }
        }
        for (txn, ending) in answered {
            self.answer(txn, Output::Ending(ending), cx);
        }
    }

    pub(super) fn on_get_at_reply(&mut self, request: u64, found: PastRead, cx: &mut Cx) {
        let txn = TxnId(request);
        if !matches!(self.open.get(&txn), Some(Question { what: What::Past { .. }, .. })) {
            return;
        }
        let past = match found {
            PastRead::Value(_, value) => transactions::Past::Held(value),
            PastRead::NotSettled => return cx.set_timer(Timer::Ask(txn), NOT_SETTLED),
            PastRead::Forgotten => transactions::Past::Forgotten,
        };
        self.answer(txn, Output::Past(past), cx);
    }

    fn answer(&mut self, txn: TxnId, answer: Output, cx: &mut Cx) {
        self.open.remove(&txn);
        cx.cancel_timer(Timer::Ask(txn));
        cx.output((txn, answer));
    }

    /// Forgets a question whose answer is not needed any more. Returns whether there was one.
    pub(super) fn forget(&mut self, txn: TxnId, cx: &mut Cx) -> bool {
        let known = self.open.remove(&txn).is_some();
        if known {
            cx.cancel_timer(Timer::Ask(txn));
        }
        known
    }
}

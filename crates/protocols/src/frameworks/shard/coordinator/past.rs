//! Reads of the past, outside of transactions.

use std::collections::BTreeMap;

use serried_model::transactions::{Output, Past};
use serried_model::{Key, TxnId, Version};
use serried_parts::patience_with_leader;

use super::super::control::Control;
use super::super::message::{AsOf, Found, Message, Refusal, Request};
use super::leaders::Leaders;
use super::{Cx, Timer};

/// The questions of a client about the past that are not answered.
#[derive(Debug, Default)]
pub(super) struct Pasts(BTreeMap<TxnId, Question>);

#[derive(Debug)]
struct Question {
    /// Identifies the request.
    number: u64,
    key: Key,
    at: Version,
    repeated: u32,
}

impl Question {
    fn ask<C: Control>(&self, txn: TxnId, leaders: &Leaders, cx: &mut Cx<'_, C>) {
        let shard = leaders.group.partition_of(&self.key);
        let (number, as_of, keys) = (self.number, AsOf::Time(self.at), vec![self.key.clone()]);
        let request = Request::Snapshot { number, as_of, keys };
        cx.send(leaders.of(shard, self.repeated), Message::Request(request));
        cx.set_timer(Timer::Repeat(txn), patience_with_leader(&leaders.group, self.repeated));
    }
}

impl Pasts {
    /// Asks what a key held after the transactions below a version. `number` identifies the request.
    pub(super) fn begin<C: Control>(
        &mut self,
        txn: TxnId,
        (number, key, at): (u64, Key, Version),
        leaders: &Leaders,
        cx: &mut Cx<'_, C>,
    ) {
        let question = Question { number, key, at, repeated: 0 };
        question.ask(txn, leaders, cx);
        self.0.insert(txn, question);
    }

    /// Forgets a question. Returns whether there was one.
    pub(super) fn forget<C: Control>(&mut self, txn: TxnId, cx: &mut Cx<'_, C>) -> bool {
        let known = self.0.remove(&txn).is_some();
        if known {
            cx.cancel_timer(Timer::Repeat(txn));
        }
        known
    }

    /// Asks again, at another replica. Returns false if there is no such question.
    pub(super) fn repeat<C: Control>(
        &mut self,
        txn: TxnId,
        leaders: &mut Leaders,
        cx: &mut Cx<'_, C>,
    ) -> bool {
        let Some(question) = self.0.get_mut(&txn) else { return false };
        question.repeated += 1;
        leaders.rotate(leaders.group.partition_of(&question.key), question.repeated);
        question.ask(txn, leaders, cx);
        true
    }

    /// A shard answers request `number`.
    pub(super) fn on_found<C: Control>(
        &mut self,
        shard: u16,
        number: u64,
        found: &[Found],
        leaders: &Leaders,
        cx: &mut Cx<'_, C>,
    ) {
        let [Found { value, .. }] = found else { return };
        let is_asked = |question: &Question| {
            question.number == number && leaders.group.partition_of(&question.key) == shard
        };
        self.answer(is_asked, &Past::Held(value.clone()), cx);
    }

    /// A shard does not answer request `number`. If its time is too far ahead, the question is asked again later.
    pub(super) fn on_unread<C: Control>(
        &mut self,
        shard: u16,
        number: u64,
        reason: &Refusal,
        leaders: &Leaders,
        cx: &mut Cx<'_, C>,
    ) {
        if let Refusal::Late { .. } | Refusal::Forgotten { .. } = reason {
            let is_asked = |question: &Question| {
                question.number == number && leaders.group.partition_of(&question.key) == shard
            };
            self.answer(is_asked, &Past::Forgotten, cx);
        }
    }

    fn answer<C: Control>(
        &mut self,
        is_asked: impl Fn(&Question) -> bool,
        past: &Past,
        cx: &mut Cx<'_, C>,
    ) {
        self.0.retain(|txn, question| {
            let is_asked = is_asked(question);
            if is_asked {
                cx.cancel_timer(Timer::Repeat(*txn));
                cx.output((*txn, Output::Past(past.clone())));
            }
            !is_asked
        });
    }
}

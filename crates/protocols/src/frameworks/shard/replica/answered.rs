//! Answers to last shots of transactions that have ended with their parts.
//!
//! The rows contain the end of such a transaction as soon as its part is chosen, and the leader forgets the transaction. If
//! the answer is lost, the client sends its shot again. Without the answer it would learn that the transaction has committed,
//! and not what it has read.

use std::collections::BTreeMap;

use serried_model::{Value, Version};

use super::super::message::{Executed, Reply};

/// How many answers are kept at most, and how many bytes in all. Those of the oldest transactions go first.
const AT_MOST: usize = 1 << 14;
const BYTES_AT_MOST: usize = 1 << 24;

/// The answers that their clients have not confirmed.
#[derive(Debug, Default)]
pub(super) struct Answered {
    replies: BTreeMap<Version, Reply>,
    bytes: usize,
}

impl Answered {
    /// Keeps an answer until its client confirms that the transaction has ended, or there are too many.
    pub(super) fn insert(&mut self, txn: Version, reply: Reply) {
        if bytes(&reply) > BYTES_AT_MOST {
            return;
        }
        self.bytes += bytes(&reply);
        if let Some(former) = self.replies.insert(txn, reply) {
            self.bytes -= bytes(&former);
        }
        while self.replies.len() > AT_MOST || self.bytes > BYTES_AT_MOST {
            let Some((_, oldest)) = self.replies.pop_first() else { return };
            self.bytes -= bytes(&oldest);
        }
    }

    pub(super) fn remove(&mut self, txn: Version) {
        if let Some(reply) = self.replies.remove(&txn) {
            self.bytes -= bytes(&reply);
        }
    }

    pub(super) fn get(&self, txn: Version) -> Option<&Reply> {
        self.replies.get(&txn)
    }

    pub(super) fn len(&self) -> usize {
        self.replies.len()
    }
}

/// The bytes of an answer.
fn bytes(reply: &Reply) -> usize {
    let Reply::Executed(Executed { found, .. }) = reply else { return size_of::<Reply>() };
    let values: usize = found.iter().filter_map(|found| found.value.as_ref()).map(Value::len).sum();
    size_of::<Reply>() + size_of_val(&found[..]) + values
}

#[cfg(test)]
mod tests {
    use serried_model::NodeId;

    use super::super::super::message::Found;
    use super::*;

    #[test]
    fn answers_are_kept_in_bounded_number_and_size() {
        let version = |us| Version { timestamp_us: us, coordinator: NodeId(1 << 16) };
        let reply = |us, found: usize, length| {
            let value = Some(Value::from(vec![0; length]));
            Reply::Executed(Executed {
                txn: version(us),
                number: 1,
                found: vec![Found { version: version(0), value }; found],
                validity: None,
                known: 0,
                clock_us: 0,
            })
        };
        let mut answered = Answered::default();
        for us in 0..AT_MOST as u64 + 10 {
            answered.insert(version(us), reply(us, 1, 1));
        }
        let one = bytes(&reply(0, 1, 1));
        assert_eq!((answered.len(), answered.bytes), (AT_MOST, AT_MOST * one));
        assert!(answered.get(version(9)).is_none() && answered.get(version(10)).is_some());
        answered.remove(version(10));
        answered.remove(version(10));
        assert_eq!((answered.len(), answered.bytes), (AT_MOST - 1, (AT_MOST - 1) * one));
        let later = 1 << 20;
        answered.insert(version(later), reply(later, 1, BYTES_AT_MOST));
        assert_eq!(answered.len(), AT_MOST - 1, "that one is too large");
        answered.insert(version(later), reply(later, 1, BYTES_AT_MOST - one));
        assert_eq!(answered.len(), 1, "the oldest have gone");
        let many = BYTES_AT_MOST / 2 / size_of::<Found>();
        answered.insert(version(later + 1), reply(later + 1, many, 0));
        assert!(answered.get(version(later)).is_none(), "what is empty counts, too");
        answered.insert(version(later + 1), reply(later + 1, 1, 1));
        assert_eq!((answered.len(), answered.bytes), (1, one));
    }
}

//! What a leader does about read-only transactions that have no parts.

use std::collections::{BTreeMap, VecDeque};

use serried_actor::Context;
use serried_model::{Key, NodeId, Version};

use super::super::control::{Control, Glance};
use super::super::message::{AsOf, Led, Message, Reply, Request, Unseen};
use super::leader::Shard;
use super::{PENDING_AT_MOST, Replica};
use crate::replicated_log::Log;

type Cx<'a, C> = Context<'a, Replica<C>>;

/// Who asks for a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) from: NodeId,
    /// Names the request at the client.
    pub(super) number: u64,
    pub(super) as_of: AsOf,
    pub(super) keys: Vec<Key>,
}

/// Requests that wait for transactions to end.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_writer: BTreeMap<Version, Vec<Asked>>,
    /// How many these are.
    len: usize,
    /// Those whose transactions have ended.
    ready: VecDeque<Asked>,
}

impl From<Asked> for Request {
    fn from(Asked { number, as_of, keys, .. }: Asked) -> Request {
        Request::Snapshot { number, as_of, keys }
    }
}

impl Waiting {
    /// A request waits; where very many do it is forgotten, and comes again.
    fn insert(&mut self, writer: Version, asked: Asked) {
        if self.len >= PENDING_AT_MOST {
            return;
        }
        let others = self.by_writer.entry(writer).or_default();
        if !others.contains(&asked) {
            others.push(asked);
            self.len += 1;
        }
    }

    /// A transaction is over.
    pub(super) fn release(&mut self, writer: Version) {
        let released = self.by_writer.remove(&writer).unwrap_or_default();
        self.len -= released.len();
        self.ready.extend(released);
    }
}

impl<C: Control> Shard<C> {
    /// Answers what is asked, or notes what that waits for. It is returned if no transaction is what it waits for.
    pub(super) fn on_snapshot(
        &mut self,
        asked: Asked,
        log: &mut Log<Led>,
        cx: &mut Cx<'_, C>,
    ) -> Option<Request> {
        let Asked { from, number, as_of, keys } = &asked;
        if let AsOf::Time(at) = *as_of
            && self.is_ahead(at, cx)
        {
            // Whoever leads next takes nobody then who began before this.
            self.extend_window(at.timestamp_us, cx);
            return Some(asked.into());
        }
        if !self.has_room() {
            // What the control takes for over may not be in the log.
            return Some(asked.into());
        }
        cx.charge(keys.len());
        let glanced = self.with_control(cx, |control, desk| {
            let (mut found, mut writer) = (Vec::with_capacity(keys.len()), None);
            for key in keys {
                match control.glance(key, *as_of, desk) {
                    Glance::Found(version) => found.push(version),
                    Glance::Waits(of) => writer = Some(of),
                    Glance::Refused { anew } => return Err(Unseen { key: key.clone(), anew }),
                }
            }
            Ok(writer.ok_or(found))
        });
        let (number, known) = (*number, self.known);
        match glanced {
            Ok(Ok(writer)) => self.leader_mut().waiting.insert(writer, asked),
            Ok(Err(found)) => {
                let reply = Reply::Snapshot { number, known, found: Ok(found) };
                self.reply_confirmed(*from, reply, log, cx);
            }
            // Whoever leads.
            Err(unseen) => {
                let reply = Reply::Snapshot { number, known, found: Err(unseen) };
                cx.send(*from, Message::Reply(reply));
            }
        }
        None
    }

    /// Answers those who have waited for transactions that are over now.
    pub(super) fn answer_snapshots(&mut self, log: &mut Log<Led>, cx: &mut Cx<'_, C>) {
        while self.has_room()
            && let Some(asked) = self.leader_mut().waiting.ready.pop_front()
        {
            self.on_snapshot(asked, log, cx);
        }
    }
}

//! What a leader does about read-only transactions that have no parts.

use std::collections::{BTreeMap, VecDeque};

use serried_actor::Context;
use serried_model::{Key, NodeId, Version};

use super::super::control::{Control, Desk, Glance};
use super::super::message::{AsOf, Found, Led, Message, Reply, Request, Unseen};
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

/// What comes of a look at all keys.
enum Glanced {
    Found(Vec<Found>),
    Waits(Version),
    Unseen(Unseen),
}

impl Glanced {
    fn unseen(key: Option<&Key>, anew: bool) -> Glanced {
        Glanced::Unseen(Unseen { key: key.cloned().unwrap_or_default(), anew })
    }
}

/// Looks at all keys, unless one is refused: the control has to know of all that are read.
fn glance_all(
    control: &mut impl Control,
    as_of: AsOf,
    keys: &[Key],
    desk: &mut Desk<'_>,
) -> Glanced {
    let (mut found, mut writer) = (Vec::with_capacity(keys.len()), None);
    for key in keys {
        match control.glance(key, as_of, desk) {
            Glance::Found(version) => found.push(version),
            Glance::Waits(of) => writer = Some(of),
            Glance::Refused { anew } => return Glanced::unseen(Some(key), anew),
        }
    }
    writer.map_or(Glanced::Found(found), Glanced::Waits)
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
        // Whoever leads next takes nobody who began before the end of the window.
        let beyond = match *as_of {
            AsOf::Time(at) => (at.timestamp_us >= self.table.window().to_us).then_some(at),
            AsOf::Slot(_) => None,
        };
        if let Some(at) = beyond.filter(|at| self.is_ahead(*at, cx)) {
            self.extend_window(at.timestamp_us, cx);
            return Some(asked.into());
        }
        if !self.has_room() {
            // What the control takes for over may not be in the log.
            return Some(asked.into());
        }
        cx.charge(keys.len());
        let glanced = match beyond {
            // Its client's clock is off.
            Some(_) => Glanced::unseen(keys.first(), false),
            None => self.with_control(cx, |control, desk| glance_all(control, *as_of, keys, desk)),
        };
        let (from, number, known) = (*from, *number, self.known);
        let reply = |found| Reply::Snapshot { number, known, found };
        match glanced {
            Glanced::Waits(writer) => self.leader_mut().waiting.insert(writer, asked),
            Glanced::Found(found) => self.reply_confirmed(from, reply(Ok(found)), log, cx),
            // Whoever leads.
            Glanced::Unseen(unseen) => cx.send(from, Message::Reply(reply(Err(unseen)))),
        }
        None
    }

    /// Answers those who have waited for transactions that are over now.
    pub(super) fn answer_snapshots(&mut self, log: &mut Log<Led>, cx: &mut Cx<'_, C>) {
        while self.has_room()
            && let Some(asked) = self.leader_mut().waiting.ready.pop_front()
        {
            let waits = self.on_snapshot(asked, log, cx);
            debug_assert_eq!(waits, None, "it has waited for that before");
        }
    }
}

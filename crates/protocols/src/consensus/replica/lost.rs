//! Taking the place of a replica whose disk was lost.
//!
//! What the predecessor had promised is not known, so this one takes part in no instance that was begun
//! before: each such is known to its coordinator at least, unless that is lost as well. It asks all others
//! for what they have, key by key. What is committed it takes over; in what is not it is barred; and its own
//! instances are numbered after all that anybody has seen of its predecessor's. One that is known to nobody
//! can't have been committed: that takes a majority; and if it is heard of later it counts for nothing, see
//! [`super::incarnations`].

use std::collections::BTreeMap;

use serried_actor::NodeSet;
use serried_model::{Key, NodeId};

use super::{Cx, Replica, Timer};
use crate::consensus::instance::{Instance, InstanceId, Status};
use crate::consensus::message::{Message, Record, Shown};

/// How many bytes of the store a reply to a scan is made of, about.
const SCANNED_AT_ONCE: usize = 64 << 10;

/// How far it has got in taking over what others have.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Where the scan of each goes on.
    after: BTreeMap<NodeId, Option<Key>>,
    /// Those who have shown all.
    whole: NodeSet,
}

impl Replica {
    /// Asks all others for what they have, those who have not shown it yet.
    pub(super) fn scan(&mut self, cx: &mut Cx<'_>) {
        let Some(lost) = &self.lost else { return };
        for member in self.others().without(lost.whole).members() {
            let other = self.node(member);
            let after = lost.after.get(&other).cloned().flatten();
            let incarnation = self.incarnations.of(self.id);
            cx.send(other, Message::Scan { after, incarnation });
        }
        cx.set_timer(Timer::Scan, self.quorums.patience(4));
    }

    pub(super) fn on_scan(
        &mut self,
        from: NodeId,
        after: Option<Key>,
        incarnation: u64,
        cx: &mut Cx<'_>,
    ) {
        self.is_current(from, incarnation, cx);
        let incarnation = self.incarnations.of(from);
        if self.lost.is_some() {
            // It has nothing to show that others have not.
            let entries = Vec::new();
            let scanned = Message::Scanned { after, entries, more: false, incarnation };
            return cx.send(from, scanned);
        }
        if after.is_none() {
            // What its predecessor had acknowledged is held by then; it is found in the store.
            self.cells.store_some(usize::MAX, cx.store());
        }
        let start = after.as_ref().map(Key::as_bytes);
        let mut keys = Vec::new();
        let more = cx.store().scan(start, SCANNED_AT_ONCE, &mut |key, bytes| {
            if !bytes.is_empty() {
                keys.push(Key::from(key));
            }
        });
        // Keys with instances need not be in the store.
        let last = keys.last().filter(|_| more).cloned();
        let within = |key: &Key| last.as_ref().is_none_or(|last| key <= last);
        let later = |key: &Key| after.as_ref().is_none_or(|after| key > after);
        let active = self.spaces.sorted().into_iter().filter(later);
        keys.extend(active.take_while(within));
        keys.sort_unstable();
        keys.dedup();
        let entry = |key: Key| {
            let state = self.cells.get(&key, cx.store()).clone();
            let instances = self.spaces.get(&key).map(|active| {
                active.space.iter().map(|(id, instance)| (id, instance.clone())).collect()
            });
            Shown { key, state, instances: instances.unwrap_or_default() }
        };
        let entries: Vec<_> = keys.into_iter().map(entry).collect();
        cx.charge(entries.len());
        cx.send(from, Message::Scanned { after, entries, more, incarnation });
    }

    pub(super) fn on_scanned(
        &mut self,
        from: NodeId,
        after: Option<Key>,
        entries: Vec<Shown>,
        (more, incarnation): (bool, u64),
        cx: &mut Cx<'_>,
    ) {
        if incarnation > self.incarnations.of(self.id) && self.lost.is_some() {
            // Its predecessor had a clock that was ahead: it begins anew.
            self.set_incarnation(self.id, incarnation + 1, cx);
            self.lost = Some(Lost::default());
            return self.scan(cx);
        }
        let Some(lost) = &self.lost else { return };
        if lost.whole.contains(from) || lost.after.get(&from).cloned().flatten() != after {
            return; // Repeated.
        }
        cx.charge(entries.len());
        let last = entries.last().map(|shown| shown.key.clone());
        for Shown { key, state, instances } in entries {
            self.take_over(&key, state, cx);
            for (id, theirs) in instances {
                self.bar(&key, id, theirs, cx);
            }
            self.execute(&key, cx);
        }
        let lost = self.lost.as_mut().expect("as before");
        if more {
            let after = last.or(after);
            lost.after.insert(from, after.clone());
            let incarnation = self.incarnations.of(self.id);
            return cx.send(from, Message::Scan { after, incarnation });
        }
        lost.whole.insert(from);
        if self.others().without(self.lost.as_ref().expect("as before").whole).is_empty() {
            self.lost = None;
            cx.append(Record::Whole);
            cx.cancel_timer(Timer::Scan);
            self.store_soon(cx);
        }
    }

    /// Takes over what another knows of an instance; takes part in it no more unless it is committed.
    fn bar(&mut self, key: &Key, id: InstanceId, theirs: Instance, cx: &mut Cx<'_>) {
        let active = self.active(key, cx.store());
        if active.space.is_executed(id) {
            return;
        }
        if theirs.status == Status::Committed {
            let agreed = (theirs.command, theirs.attributes);
            return self.commit(key, id, agreed, NodeSet::EMPTY, cx);
        }
        // An instance of this replica's own has taken its number, whatever is done in it.
        active.space.hear_of(id);
        let instance = active.space.get_mut(id);
        if instance.status < Status::Committed {
            instance.barred = true;
            instance.command = instance.command.take().or(theirs.command);
            self.record(key, id, cx);
        }
    }
}

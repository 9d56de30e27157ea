//! Replaces a replica whose disk was lost.
//!
//! What the predecessor has promised, accepted and held is unknown. So the new replica takes part in nothing until everything
//! is decided that its predecessor may have taken part in. The others decide it as if this replica did not exist.
//!
//! The replica asks all others for what they have, key by key. Each of them first notes the new incarnation, durably, and
//! counts nothing of the predecessor from then on ([`super::incarnations`]). So whatever is agreed on with the
//! predecessor's help was agreed on before that, and the replica that has counted it shows it. If that replica has lost its
//! disk as well, the other members of its quorum have shown what they had promised and accepted. That determines what was
//! agreed on, as it would after the failure of any minority, and a recovery needs neither of the two.
//!
//! There are three kinds of instances:
//!
//! - What is shown as agreed on or executed is taken over.
//! - What is shown as undecided is waited for. The others finish it, this replica inquires, and it takes part again when all
//!   of it has been decided.
//! - What nobody shows was agreed on nowhere. If it is heard of later, nothing that the predecessor has said counts for it.
//!
//! The new replica numbers its own instances after everything that was shown of its predecessor's.
//!
//! If another replica has lost its disk too, it has nothing to show. It may have counted its predecessor's quorum after some
//! of that quorum had shown what they had. So when it says that it is lost, all are asked again. At most a minority of the
//! replicas may be lost or down at a time. If more say that they are lost, what was acknowledged may be nowhere any more.
//! Then none of them takes part again.

use std::collections::{BTreeMap, BTreeSet};

use serried_actor::NodeSet;
use serried_model::{Key, NodeId};

use super::{Cx, Replica, Timer};
use crate::frameworks::consensus::instance::{Instance, InstanceId, Status};
use crate::frameworks::consensus::message::{Body, Message, Record, Shown};
use crate::frameworks::consensus::space::Space;

/// About how many bytes of the store one reply to a scan covers.
const SCANNED_AT_ONCE: usize = 64 << 10;
/// How many instances are inquired about at once.
const INQUIRED_AT_ONCE: usize = 256;

/// How far it has got in taking over what others have.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// The key after which the scan of each replica continues.
    after: BTreeMap<NodeId, Option<Key>>,
    /// Those that have shown everything.
    whole: NodeSet,
    /// Those that have lost their disks, too.
    also_lost: NodeSet,
    /// The instances that were shown and are undecided: no more than are open at the others.
    undecided: BTreeSet<(Key, InstanceId)>,
    /// How many keys it has been shown.
    pub(super) keys: u64,
}

impl Replica {
    /// Asks the others that have not shown everything yet for the rest, and all others about undecided instances.
    pub(super) fn scan(&mut self, cx: &mut Cx<'_>) {
        let Some(lost) = &self.lost else { return };
        let incarnation = self.incarnations.of(self.id);
        for member in self.others().without(lost.whole).members() {
            let other = self.node(member);
            let after = lost.after.get(&other).cloned().flatten();
            cx.send(other, Message::Scan { after, incarnation });
        }
        for (key, id) in lost.undecided.iter().take(INQUIRED_AT_ONCE) {
            self.broadcast(self.others(), key, *id, Body::Inquire, cx);
        }
        cx.set_timer(Timer::Scan, self.quorums.patience(3));
    }

    /// Begins anew in a later incarnation, because what was shown so far may not be enough.
    fn begin_anew(&mut self, incarnation: u64, also_lost: NodeSet, cx: &mut Cx<'_>) {
        self.set_incarnation(self.id, incarnation, cx);
        self.lost = Some(Lost { also_lost, ..Lost::default() });
        self.scan(cx);
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
            return cx.send(from, Message::AlsoLost { incarnation });
        }
        // Puts everything that is held here into the store, where the scan finds it: also what was executed since the
        // last page, since it may have been agreed on before that.
        self.cells.store_some(usize::MAX, cx.store());
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
        let incarnations = self.incarnations.named();
        cx.send(from, Message::Scanned { after, entries, more, incarnations });
    }

    pub(super) fn on_also_lost(&mut self, from: NodeId, incarnation: u64, cx: &mut Cx<'_>) {
        let mine = self.incarnations.of(self.id);
        let Some(lost) = &mut self.lost else { return };
        if incarnation < mine {
            return; // Late.
        }
        let mut also_lost = lost.also_lost;
        let is_new = also_lost.insert(from) && !lost.whole.contains(from);
        if is_new || incarnation > mine {
            self.begin_anew(incarnation + 1, also_lost, cx);
        }
    }

    pub(super) fn on_scanned(
        &mut self,
        from: NodeId,
        after: Option<Key>,
        entries: Vec<Shown>,
        (more, incarnations): (bool, Vec<u64>),
        cx: &mut Cx<'_>,
    ) {
        if self.lost.is_none() {
            return;
        }
        self.learn_of_others(&incarnations, cx);
        let mine = self.incarnations.of(self.id);
        let incarnation = incarnations.get(self.id.member()).copied().unwrap_or(0);
        let Some(lost) = &self.lost else { return };
        if incarnation > mine {
            // The predecessor's incarnation is later, because its clock was ahead.
            let also_lost = lost.also_lost;
            return self.begin_anew(incarnation + 1, also_lost, cx);
        }
        let repeated =
            lost.whole.contains(from) || lost.after.get(&from).cloned().flatten() != after;
        if repeated || incarnation < mine {
            return; // Late.
        }
        cx.charge(entries.len());
        let (last, shown) = (entries.last().map(|shown| shown.key.clone()), entries.len() as u64);
        let mut all_is_known = true;
        for Shown { key, state, instances } in entries {
            all_is_known &= self.take_over(&key, state, cx);
            for (id, theirs) in instances {
                self.be_shown(from, &key, id, theirs, cx);
            }
            self.execute(&key, cx);
        }
        if !all_is_known {
            return; // The same page is asked for again.
        }
        let lost = self.lost.as_mut().expect("as before");
        lost.keys += shown;
        if more {
            let after = last.or(after);
            lost.after.insert(from, after.clone());
            return cx.send(from, Message::Scan { after, incarnation });
        }
        lost.whole.insert(from);
    }

    /// Takes over what another replica knows of an instance, or waits until it is decided.
    fn be_shown(
        &mut self,
        from: NodeId,
        key: &Key,
        id: InstanceId,
        theirs: Instance,
        cx: &mut Cx<'_>,
    ) {
        let active = self.active(key, cx.store());
        // Its own instances must be numbered after all that others depend on.
        active.space.hear_of_all(&theirs.attributes.dependencies);
        if theirs.status == Status::Committed && !active.space.is_executed(id) {
            if self.contradicts(key, id, (&theirs.command, &theirs.attributes)) {
                let what =
                    format_args!("that {id:?} of `{key}` was agreed on twice, and differently");
                return self.reject(from, what, cx);
            }
            let agreed = (theirs.command, theirs.attributes);
            return self.commit(key, id, agreed, NodeSet::EMPTY, cx);
        }
        if !self.is_decided(key, id) {
            self.watch(key, id);
            let lost = self.lost.as_mut().expect("it is shown what others have");
            lost.undecided.insert((key.clone(), id));
        }
    }

    fn is_decided(&self, key: &Key, id: InstanceId) -> bool {
        let is_open = |space: &Space| {
            let agreed = space.get(id).is_some_and(|known| known.status == Status::Committed);
            !agreed && !space.is_executed(id)
        };
        // A key with an undecided instance is active.
        !self.spaces.get(key).is_some_and(|active| is_open(&active.space))
    }

    /// Takes part again if all others have shown everything, and all of it is decided.
    pub(super) fn is_whole(&mut self, cx: &mut Cx<'_>) {
        let Some(mut lost) = self.lost.take() else { return };
        while let Some((key, id)) = lost.undecided.first()
            && self.is_decided(key, *id)
        {
            lost.undecided.pop_first();
        }
        let also_lost = lost.also_lost.without(lost.whole);
        let missing = self.others().without(lost.whole).without(also_lost);
        let too_many_are_lost = also_lost.len() + 1 > self.group().faults();
        if too_many_are_lost || !missing.is_empty() || !lost.undecided.is_empty() {
            self.lost = Some(lost);
            return;
        }
        cx.append(Record::Whole);
        cx.cancel_timer(Timer::Scan);
        self.store_soon(cx);
    }
}

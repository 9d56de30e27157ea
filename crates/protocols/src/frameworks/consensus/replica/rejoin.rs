//! Replaces a replica whose disk was lost.
//!
//! The new replica does not know what its predecessor has promised, accepted and held. If it took
//! part at once, it could contradict its predecessor. So it takes part in nothing until every
//! instance is decided in which its predecessor may have taken part. The others decide these as if
//! this replica did not exist.
//!
//! The replica asks all others for their state, key by key. Each of them first records the new
//! incarnation, durably, and no longer counts any message of the predecessor
//! ([`super::incarnations`]). So an agreement with the predecessor's help was complete before that,
//! and the replica that has counted it reports it. If that replica has lost its disk as well, the
//! other members of its quorum have reported their promises and acceptances. These determine the
//! agreement, as after the failure of any minority, and a recovery needs neither of the two.
//!
//! There are three kinds of instances:
//!
//! - Instances that are reported as agreed on or executed are copied.
//! - Instances that are reported as undecided are awaited. The others complete them, this replica
//!   asks about them, and it takes part again when all are decided.
//!   of it has been decided.
//! - Instances that no replica reports were agreed on nowhere. If one appears later, no message of
//!   the predecessor counts for it.
//!
//! The new replica numbers its own instances after all reported ones of its predecessor.
//!
//! If another replica has lost its disk too, it has nothing to report. It may have counted its
//! predecessor's quorum after some of that quorum had reported their state. So when it reports its
//! loss, all are asked again. At most a minority of the replicas may be lost or down at a time. If
//! more report a loss, acknowledged values may be lost. Then none of them takes part again.

use std::collections::{BTreeMap, BTreeSet};

use serried_actor::NodeSet;
use serried_model::{Key, NodeId};

use super::active::ActiveKeys;
use super::members::Members;
use super::states::States;
use super::{Cx, Timer};
use crate::frameworks::consensus::instance::InstanceId;
use crate::frameworks::consensus::message::{Body, Message, Shown};

/// The approximate number of bytes of the store that one reply to a scan covers.
const SCANNED_AT_ONCE: usize = 64 << 10;
/// How many instances are asked about at once.
const INQUIRED_AT_ONCE: usize = 256;

/// The state of rejoining, if this replica replaces one whose disk was lost.
#[derive(Debug, Default)]
pub(super) struct Rejoin(Option<Lost>);

/// The progress of copying the others' state.
#[derive(Debug, Default)]
struct Lost {
    /// The key after which the scan of each replica continues.
    after: BTreeMap<NodeId, Option<Key>>,
    /// The replicas that have reported their whole state.
    whole: NodeSet,
    /// The replicas that have lost their disks, too.
    also_lost: NodeSet,
    /// The reported instances that are undecided. There are no more than are open at the others.
    undecided: BTreeSet<(Key, InstanceId)>,
    /// How many keys the pages contained.
    keys: u64,
}

impl Rejoin {
    /// Whether this replica does not know its predecessor's promises. Then it takes part in
    /// nothing.
    pub(super) fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// How many keys the pages contained, if this replica is rejoining.
    pub(super) fn keys(&self) -> Option<u64> {
        self.0.as_ref().map(|lost| lost.keys)
    }

    /// Begins to rejoin after the loss of the disk.
    pub(super) fn begin(&mut self) {
        self.0 = Some(Lost::default());
    }

    /// Ends rejoining: this replica takes part again.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// Asks the others for the rest of their state, and about undecided instances.
    pub(super) fn scan(&self, members: &Members, cx: &mut Cx<'_>) {
        let Some(lost) = &self.0 else { return };
        let incarnation = members.own_incarnation();
        for member in members.others().without(lost.whole).members() {
            let other = members.node(member);
            let after = lost.after(other);
            cx.send(other, Message::Scan { after, incarnation });
        }
        for (key, id) in lost.undecided.iter().take(INQUIRED_AT_ONCE) {
            members.broadcast(members.others(), key, *id, Body::Inquire, cx);
        }
        cx.set_timer(Timer::Scan, members.quorums.patience(3));
    }

    /// Restarts in a later incarnation, because the state reported so far may not be enough.
    fn begin_anew(
        &mut self,
        (incarnation, also_lost): (u64, NodeSet),
        members: &mut Members,
        cx: &mut Cx<'_>,
    ) {
        members.begin_incarnation_anew(incarnation, cx);
        self.0 = Some(Lost { also_lost, ..Lost::default() });
        self.scan(members, cx);
    }

    /// Records that another replica has lost its disk, too.
    pub(super) fn on_also_lost(
        &mut self,
        from: NodeId,
        incarnation: u64,
        members: &mut Members,
        cx: &mut Cx<'_>,
    ) {
        let own = members.own_incarnation();
        let Some(lost) = &mut self.0 else { return };
        if incarnation < own {
            return; // Late.
        }
        let mut also_lost = lost.also_lost;
        let is_new = also_lost.insert(from) && !lost.whole.contains(from);
        if is_new || incarnation > own {
            self.begin_anew((incarnation + 1, also_lost), members, cx);
        }
    }

    /// Whether a page is the requested one. Restarts if the sender knows a later incarnation of
    /// this replica.
    pub(super) fn expects(
        &mut self,
        from: NodeId,
        after: &Option<Key>,
        incarnations: &[u64],
        members: &mut Members,
        cx: &mut Cx<'_>,
    ) -> bool {
        let Some(lost) = &self.0 else { return false };
        let own = members.own_incarnation();
        let incarnation = incarnations.get(usize::from(members.own())).copied().unwrap_or(0);
        if incarnation > own {
            // The predecessor's incarnation is later, because its clock was ahead.
            let also_lost = lost.also_lost;
            self.begin_anew((incarnation + 1, also_lost), members, cx);
            return false;
        }
        let repeated = lost.whole.contains(from) || lost.after(from) != *after;
        !repeated && incarnation == own // Otherwise it is late.
    }

    /// Records a reported instance that is not decided here.
    pub(super) fn wait_for(&mut self, key: &Key, id: InstanceId) {
        let lost = self.0.as_mut().expect("the replica is rejoining");
        lost.undecided.insert((key.clone(), id));
    }

    /// Records that a page was copied. Requests the next one if more keys follow after `last`.
    pub(super) fn page_is_done(
        &mut self,
        from: NodeId,
        (keys, last, more): (u64, Option<Key>, bool),
        members: &Members,
        cx: &mut Cx<'_>,
    ) {
        let lost = self.0.as_mut().expect("the replica is rejoining");
        lost.keys += keys;
        if more {
            lost.after.insert(from, last.clone());
            let incarnation = members.own_incarnation();
            return cx.send(from, Message::Scan { after: last, incarnation });
        }
        lost.whole.insert(from);
    }

    /// Whether all others have reported their whole state, and all of it is decided. Then this
    /// replica takes part again.
    pub(super) fn is_done(
        &mut self,
        members: &Members,
        is_decided: impl Fn(&Key, InstanceId) -> bool,
    ) -> bool {
        let Some(lost) = &mut self.0 else { return false };
        while let Some((key, id)) = lost.undecided.first()
            && is_decided(key, *id)
        {
            lost.undecided.pop_first();
        }
        let also_lost = lost.also_lost.without(lost.whole);
        let missing = members.others().without(lost.whole).without(also_lost);
        let too_many_are_lost = also_lost.len() + 1 > members.group().faults();
        !too_many_are_lost && missing.is_empty() && lost.undecided.is_empty()
    }
}

impl Lost {
    /// The key after which the scan of a replica continues.
    fn after(&self, other: NodeId) -> Option<Key> {
        self.after.get(&other).cloned().flatten()
    }
}

/// A page of a replica's state after a key, for a replica that has lost its disk. Also returns
/// whether more follows.
pub(super) fn page(
    after: &Option<Key>,
    active: &ActiveKeys,
    states: &mut States,
    cx: &mut Cx<'_>,
) -> (Vec<Shown>, bool) {
    // Writes everything that is held here to the store, where the scan finds it. This includes
    // instances that were executed since the last page: they may have been agreed on before it.
    states.cells.store_some(usize::MAX, cx.store());
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
    let active_keys = active.sorted().into_iter().filter(later);
    keys.extend(active_keys.take_while(within));
    keys.sort_unstable();
    keys.dedup();
    let entry = |key: Key| {
        let state = states.get(&key, cx.store()).clone();
        let instances = active.get(&key).map(|active| {
            active.space.iter().map(|(id, instance)| (id, instance.clone())).collect()
        });
        Shown { key, state, instances: instances.unwrap_or_default() }
    };
    (keys.into_iter().map(entry).collect(), more)
}

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
//! - What nobody shows was agreed on nowhere. If it appears later, nothing that the predecessor has said counts for it.
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

use super::active::ActiveKeys;
use super::members::Members;
use super::states::States;
use super::{Cx, Timer};
use crate::frameworks::consensus::instance::InstanceId;
use crate::frameworks::consensus::message::{Body, Message, Shown};

/// About how many bytes of the store one reply to a scan covers.
const SCANNED_AT_ONCE: usize = 64 << 10;
/// How many instances are inquired about at once.
const INQUIRED_AT_ONCE: usize = 256;

/// Whether a replica takes the place of one whose disk was lost, and how far it has got.
#[derive(Debug, Default)]
pub(super) struct Rejoin(Option<Lost>);

/// How far it has got in taking over what others have.
#[derive(Debug, Default)]
struct Lost {
    /// The key after which the scan of each replica continues.
    after: BTreeMap<NodeId, Option<Key>>,
    /// The replicas that have shown everything.
    whole: NodeSet,
    /// The replicas that have lost their disks, too.
    also_lost: NodeSet,
    /// The instances that were shown and are undecided: no more than are open at the others.
    undecided: BTreeSet<(Key, InstanceId)>,
    /// How many keys it has been shown.
    keys: u64,
}

impl Rejoin {
    /// Whether this replica does not know what its predecessor had promised. It takes part in nothing then.
    pub(super) fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// How many keys this replica has been shown, if it is rejoining.
    pub(super) fn keys(&self) -> Option<u64> {
        self.0.as_ref().map(|lost| lost.keys)
    }

    /// The disk was lost.
    pub(super) fn begin(&mut self) {
        self.0 = Some(Lost::default());
    }

    /// This replica takes part again.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// Asks the others that have not shown everything yet for the rest, and all others about undecided instances.
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

    /// Begins anew in a later incarnation, because what was shown so far may not be enough.
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

    /// Another replica has lost its disk, too.
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

    /// Whether a page that was shown is the one that was asked for. Begins anew if the sender knows a later incarnation of
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
        !repeated && incarnation == own // Else it comes late.
    }

    /// An instance was shown that is not decided here.
    pub(super) fn wait_for(&mut self, key: &Key, id: InstanceId) {
        let lost = self.0.as_mut().expect("it is shown what others have");
        lost.undecided.insert((key.clone(), id));
    }

    /// All of a page with so many keys was taken over. Asks for the next one if there are more after `last`.
    pub(super) fn page_is_done(
        &mut self,
        from: NodeId,
        (keys, last, more): (u64, Option<Key>, bool),
        members: &Members,
        cx: &mut Cx<'_>,
    ) {
        let lost = self.0.as_mut().expect("it is shown what others have");
        lost.keys += keys;
        if more {
            lost.after.insert(from, last.clone());
            let incarnation = members.own_incarnation();
            return cx.send(from, Message::Scan { after: last, incarnation });
        }
        lost.whole.insert(from);
    }

    /// Whether all others have shown everything, and all of it is decided. Then this replica takes part again.
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

/// A page of what a replica has after a key, for one that has lost its disk. Also returns whether there is more.
pub(super) fn page(
    after: &Option<Key>,
    active: &ActiveKeys,
    states: &mut States,
    cx: &mut Cx<'_>,
) -> (Vec<Shown>, bool) {
    // Puts everything that is held here into the store, where the scan finds it: also what was executed since the
    // last page, since it may have been agreed on before that.
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

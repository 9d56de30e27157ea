//! Which set of procedures is in use.
//!
//! The first shard decides: it puts a new set into its log, and then has every other shard put it into its own. From then on
//! a shard refuses pieces of calls under the former set, and the calls that have no part yet. Their clients call again. A
//! shard has *drained* when the calls under the former set that have a part have ended. A registration ends when all shards
//! have the set and have drained. Until then no client learns the new set, so no call under it takes effect before one under
//! the former. The next registration begins only then, so the shards differ by one version at most.
//!
//! A new leader of the first shard does not know which shards have the set, and asks all of them again.

use std::collections::BTreeSet;
use std::sync::Arc;

use serried_model::NodeId;
use serried_procedures::{ProcedureSet, Registration};

use super::super::OF_SETS;
use super::super::calls::InUse;
use super::super::control::Control;
use super::super::message::{Entry, Led, Message, Refusal, Reply, Request};
use super::Cx;
use super::leader::Leader;
use super::open::{Open, Standing};
use super::shard::Common;
use crate::frameworks::replicated_log::ReplicatedLog;

/// How many clients may wait for the end of one registration. Others ask again.
const WAITING_AT_MOST: usize = 1024;

/// A leader's knowledge of registrations.
#[derive(Debug, Default)]
pub(super) struct Sets {
    /// The set that was proposed last, with its version.
    proposed: Option<(u64, Arc<ProcedureSet>)>,
    /// The requests that wait until this set is in use at all shards.
    waiting: Vec<(NodeId, u64)>,
    /// At the first shard: the others that have the set which is in use here.
    installed: BTreeSet<u16>,
    /// Elsewhere: the replica of the first shard that has asked last, and the version that it has asked for.
    asker: Option<(NodeId, u64)>,
}

/// The set in use, and its version: an empty one with version 0 if none was ever registered.
pub(super) fn in_use(common: &Common) -> (u64, Arc<ProcedureSet>) {
    common.table.set().map_or_else(Default::default, |set| (set.version, set.set.clone()))
}

impl<C: Control> Leader<C> {
    /// A client registers a set.
    pub(super) fn on_register(
        &mut self,
        (from, number): (NodeId, u64),
        set: Arc<ProcedureSet>,
        replaces: Option<u64>,
        log: &mut ReplicatedLog<Led>,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        let (version, now) = in_use(common);
        let end = match &self.sets.proposed {
            Some((next, proposed)) if *next > version => match *proposed == set {
                true => return self.wait_for_set(from, number),
                false => Registration::Superseded { version: *next },
            },
            _ if version > 0 && now == set => {
                self.wait_for_set(from, number);
                return self.advance_sets(common, cx);
            }
            _ if replaces.is_some_and(|replaces| replaces != version) => {
                Registration::Superseded { version }
            }
            // Some shards may not have the former set yet. The client asks again.
            _ if version > 0 && !self.is_everywhere(common) => return,
            _ => match InUse::new(version, now).fits(&set) {
                Err(why) => Registration::Unfit(why),
                Ok(()) => {
                    self.sets.waiting = vec![(from, number)];
                    return self.propose_set(version + 1, set);
                }
            },
        };
        self.reply_confirmed(from, Reply::Registered { number, end }, log, cx);
    }

    fn wait_for_set(&mut self, from: NodeId, number: u64) {
        let waiting = &mut self.sets.waiting;
        if !waiting.contains(&(from, number)) && waiting.len() < WAITING_AT_MOST {
            waiting.push((from, number));
        }
    }

    fn propose_set(&mut self, version: u64, set: Arc<ProcedureSet>) {
        self.sets.proposed = Some((version, set.clone()));
        self.unproposed.push_back(Entry::Set { version, set });
    }

    /// The first shard has put a set in use.
    pub(super) fn on_install(
        &mut self,
        from: NodeId,
        version: u64,
        set: Arc<ProcedureSet>,
        log: &mut ReplicatedLog<Led>,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        let now = in_use(common).0;
        if version <= now && self.has_drained(now) {
            return self.reply_confirmed(from, Reply::Installed { version }, log, cx);
        }
        self.sets.asker = Some((from, version));
        if version <= now {
            return;
        }
        let is_new = self.sets.proposed.as_ref().is_none_or(|(proposed, _)| *proposed < version);
        if is_new && set.validate().is_ok() {
            self.propose_set(version, set);
        }
    }

    /// A set that this leader has proposed is in use here.
    pub(super) fn on_set(&mut self, version: u64, common: &mut Common, cx: &mut Cx<'_, C>) {
        let is_former =
            |open: &Open| open.standing == Standing::Executing && open.is_of_set_before(version);
        let former = self.open.iter().filter(|(_, open)| is_former(open));
        for txn in former.map(|(txn, _)| *txn).collect::<Vec<_>>() {
            self.discard(txn, Refusal::OtherSet { version }, common, cx);
        }
        self.sets.installed.clear();
        self.advance_sets(common, cx);
    }

    /// Another shard has put a set in use, and has drained.
    pub(super) fn on_installed(
        &mut self,
        shard: u16,
        version: u64,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        if version >= in_use(common).0 {
            self.sets.installed.insert(shard);
            self.end_registration(common, cx);
        }
    }

    /// Whether all calls under former sets have ended here.
    fn has_drained(&self, version: u64) -> bool {
        !self.open.values().any(|open| open.is_of_set_before(version))
    }

    /// At the first shard: whether the set in use is so at all shards, and all have drained.
    pub(super) fn is_everywhere(&self, common: &Common) -> bool {
        let version = in_use(common).0;
        version == 0
            || (self.has_drained(version)
                && self.sets.installed.len() + 1 >= usize::from(common.group.partitions()))
    }

    /// At the first shard: asks the shards that lack the set in use to install it, or ends its registration.
    pub(super) fn advance_sets(&mut self, common: &mut Common, cx: &mut Cx<'_, C>) {
        let (version, set) = in_use(common);
        if version == 0 {
            return;
        }
        let others = (0..common.group.partitions()).filter(|shard| *shard != OF_SETS);
        let others = others.filter(|_| common.shard() == OF_SETS);
        for shard in others.filter(|shard| !self.sets.installed.contains(shard)) {
            let request = Request::Install { version, set: set.clone() };
            self.others.forget_leader(shard);
            self.others.send(shard, request, &common.group, cx);
        }
        self.end_registration(common, cx);
    }

    /// Reports that the set in use is so everywhere, or elsewhere than at the first shard, that this shard has drained.
    pub(super) fn end_registration(&mut self, common: &mut Common, cx: &mut Cx<'_, C>) {
        if self.sets.asker.is_none() && self.sets.waiting.is_empty() {
            return;
        }
        let version = in_use(common).0;
        if common.shard() != OF_SETS {
            let asker = self.sets.asker.filter(|(_, asked)| *asked <= version);
            if let Some((asker, _)) = asker.filter(|_| self.has_drained(version)) {
                self.sets.asker = None;
                cx.send(asker, Message::Reply(Reply::Installed { version }));
            }
            return;
        }
        let is_proposed = self.sets.proposed.as_ref().is_some_and(|(next, _)| *next > version);
        if self.is_everywhere(common) && !is_proposed {
            for (to, number) in core::mem::take(&mut self.sets.waiting) {
                let end = Registration::InUse { version };
                cx.send(to, Message::Reply(Reply::Registered { number, end }));
            }
        }
    }
}

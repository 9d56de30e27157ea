//! The state machine of a replica: its keys, and the transactions that it takes part in.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serried_actor::{Context, Group, Settings, Store, Timestamp};
use serried_model::{Key, Versionstamp, Write};
use serried_parts::{Cells, decode_cell, decode_cell_of_another};

use super::Mutation;
use super::cell::{
    Cell, Partition, Received, Transaction, Version, Versions, before_transactions, coordinator,
    name_of_outgoing, name_of_sites, name_of_transaction, outgoing_of_name, transaction_of_name,
};
use super::message::{Batch, Entry, TransactionId};
use super::open::Open;
use super::replica::Replica;
use super::serving::Serving;
use super::sites::{Copy, Kept, Outbox, Sites};
use crate::Mutated;
use crate::frameworks::replicated_log::{Ballot, Chosen, Led, StateMachine};
use crate::frameworks::stamp_clock::ahead;
use crate::frameworks::stored_names::{key_of_name, name_of, name_of_partition};

/// How many bytes of transactions are loaded at a time.
const LOADED_BYTES: usize = 1 << 20;

/// What a leader has to do after entries were applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A transaction is prepared.
    Prepared(TransactionId),
    /// A transaction is decided, or refused.
    Decided(TransactionId),
    /// The bound is higher.
    Raised,
    /// Another site has sent transactions.
    Received(u16),
    /// Another site has sent a part of a copy.
    Copied(u16, Versionstamp),
    /// Another site begins to copy.
    TakenBack(u16),
    /// This site is being rebuilt, or has been.
    Rebuilds,
    /// Another site has lost its disks.
    SiteLost(u16),
    /// Another site has sent a part of what it had admitted of this one.
    Restored(u16),
}

/// The keys, and the transactions.
#[derive(Debug)]
pub(super) struct Machine {
    cells: Cells<Cell>,
    pub(super) partition: Partition,
    /// The partition has changed since it was last put among the cells. The record at this position is the first that
    /// is needed to replay that.
    changed_at: Option<u64>,
    /// While the state of another replica is copied: the transactions that it has not shown. It may have forgotten
    /// them.
    not_shown: BTreeSet<TransactionId>,
    /// What is known of other sites.
    pub(super) sites: Sites,
    /// What is known of other sites has changed since it was last put among the cells: as `changed_at`.
    sites_changed_at: Option<u64>,
    /// What other sites perhaps lack.
    pub(super) outbox: Outbox,
    /// All transactions that are remembered.
    pub(super) transactions: BTreeMap<TransactionId, Transaction>,
    /// The highest commit time, as far as this replica has applied it itself.
    written: Versionstamp,
    /// How many versions other sites have sent in copies since this replica has begun.
    pub(super) copied: u64,
    /// The ballot in which this replica leads.
    pub(super) ballot: Option<Ballot>,
    /// What it has in memory as a leader that serves. It serves once its first entry is applied, and so all entries of
    /// its predecessors.
    pub(super) serving: Option<Serving>,
    /// What a leader has to do.
    pub(super) events: VecDeque<Event>,
    group: Group,
    settings: Settings,
    mutation: Mutated<Mutation>,
}

impl Machine {
    /// A machine without keys, of a replica of `group`.
    pub(super) fn new(group: Group, settings: &Settings, mutation: Mutated<Mutation>) -> Machine {
        Machine {
            cells: Cells::new(settings.resident_keys),
            partition: Partition::default(),
            changed_at: None,
            not_shown: BTreeSet::new(),
            sites: Sites::new(usize::from(group.sites())),
            sites_changed_at: None,
            outbox: Outbox::default(),
            transactions: BTreeMap::new(),
            written: Versionstamp::ZERO,
            copied: 0,
            ballot: None,
            serving: None,
            events: VecDeque::new(),
            group,
            settings: *settings,
            mutation,
        }
    }

    /// Brings what is known of the partition and of transactions into memory.
    pub(super) fn load(&mut self, store: &dyn Store) {
        if let Cell::Partition(partition) = self.cells.get(&name_of_partition(), store) {
            self.partition = *partition;
        }
        if let Cell::Sites(sites) = self.cells.get(&name_of_sites(), store) {
            self.sites.clone_from(sites);
        }
        let mut after = before_transactions().to_vec();
        loop {
            let (transactions, outbox) = (&mut self.transactions, &mut self.outbox);
            let mut last = None;
            let has_more = store.scan(Some(&after), LOADED_BYTES, &mut |name, state| {
                last = Some(name.to_vec());
                if state.is_empty() {
                    return;
                }
                match (transaction_of_name(name), outgoing_of_name(name), decode_cell(state)) {
                    (Some(id), _, Cell::Transaction(transaction)) => {
                        transactions.insert(id, transaction);
                    }
                    (_, Some(commit), Cell::Outgoing(kept)) => outbox.insert(commit, kept),
                    _ => {}
                }
            });
            match last {
                Some(last) if has_more => after = last,
                _ => return,
            }
        }
    }

    pub(super) fn cells(&self) -> &Cells<Cell> {
        &self.cells
    }

    pub(super) fn cells_mut(&mut self) -> &mut Cells<Cell> {
        &mut self.cells
    }

    /// The versions of a key, as far as the log is applied, and what the leader has in memory.
    pub(super) fn versions_and_serving(
        &mut self,
        key: &Key,
        store: &dyn Store,
    ) -> (&Versions, &Sites, Option<&Serving>) {
        (self.cells.get(&name_of(key), store).versions(), &self.sites, self.serving.as_ref())
    }

    /// Whether the admission under way may make a version of a key readable that is later than `than`.
    pub(super) fn may_admit(&mut self, key: &Key, than: Versionstamp, store: &dyn Store) -> bool {
        let admission = self.serving.as_ref().and_then(|serving| serving.admission);
        let versions = self.cells.get(&name_of(key), store).versions();
        let is_later = |one: &&Received| one.stamp > than;
        let (sites, group) = (&self.sites, &self.group);
        let is_there = |one: &&Received| !is_lost(one, sites, group);
        let mut later = versions.received.iter().filter(is_later).filter(is_there);
        match admission.map(|id| self.transactions.get(&id)) {
            None => false,
            Some(Some(Transaction::Prepared { cut, .. })) => later.any(|one| {
                let site = usize::from(self.group.site_of(one.stamp.partition()));
                cut.get(site).is_some_and(|to| one.stamp <= *to)
            }),
            // It is in the log, and not applied yet.
            Some(_) => later.next().is_some(),
        }
    }

    /// This replica leads in another ballot, or does not lead.
    pub(super) fn lead(&mut self, ballot: Option<Ballot>) {
        self.ballot = ballot;
        self.events.clear();
        self.serving = None;
    }

    /// Puts what is known of the partition among the cells, if it has changed.
    pub(super) fn keep_partition(&mut self, store: &dyn Store) {
        if let Some(position) = self.changed_at.take() {
            let cell = self.cells.change(&name_of_partition(), position, store);
            *cell = Cell::Partition(self.partition);
        }
        if let Some(position) = self.sites_changed_at.take() {
            let cell = self.cells.change(&name_of_sites(), position, store);
            *cell = Cell::Sites(Box::new(self.sites.clone()));
        }
    }

    /// Changes the state of a transaction.
    fn set(
        &mut self,
        id: TransactionId,
        transaction: Transaction,
        position: u64,
        store: &dyn Store,
    ) {
        let cell = self.cells.change(&name_of_transaction(id), position, store);
        *cell = Cell::Transaction(transaction.clone());
        self.transactions.insert(id, transaction);
    }

    /// Writes take effect. It may be so already.
    fn install(
        &mut self,
        id: TransactionId,
        commit: Versionstamp,
        writes: &[Write],
        position: u64,
        store: &dyn Store,
    ) {
        self.written = self.written.max(commit);
        for Write { key, value } in writes {
            let (value, session) = (value.clone(), id.session);
            let version = Version { value, commit, session, elsewhere: None };
            let versions = self.cells.change(&name_of(key), position, store).versions_mut();
            settle(key, versions, &self.sites, &self.group, &mut self.serving);
            put(key, version, versions, &mut self.serving);
            if self.mutation.is(Mutation::DeletesForgotten) && versions.latest.value.is_none() {
                versions.latest = Version::default();
            }
        }
        self.keep_for_others(commit, writes, position, store);
    }

    /// Other sites need this transaction.
    fn keep_for_others(
        &mut self,
        commit: Versionstamp,
        writes: &[Write],
        position: u64,
        store: &dyn Store,
    ) {
        if self.group.sites() == 1 || writes.is_empty() {
            return;
        }
        let all_have = self.sites.all_have(usize::from(self.group.site()));
        if commit <= all_have {
            if all_have == Versionstamp(u64::MAX) {
                self.sites.dropped = self.sites.dropped.max(commit);
                self.sites_changed_at.get_or_insert(position);
            }
            return;
        }
        let needs = match self.mutation.is(Mutation::PreparedNotNeeded) {
            true => self.sites.cut.clone(),
            false => self.sites.needed.clone(),
        };
        let kept = Kept { needs, writes: writes.to_vec() };
        let cell = self.cells.change(&name_of_outgoing(commit), position, store);
        *cell = Cell::Outgoing(kept.clone());
        self.outbox.insert(commit, kept);
    }

    /// The entry of a slot, whose record is at a position, changes what is known of other sites. Returns false if it
    /// has done so before.
    fn change_sites(&mut self, (slot, position): (u64, u64)) -> bool {
        self.sites_changed_at.get_or_insert(position);
        self.sites.apply(slot)
    }

    /// What all other sites have is not kept for them any more.
    fn drop_outgoing(&mut self, store: &mut dyn Store) {
        let all_have = self.sites.all_have(usize::from(self.group.site()));
        for commit in self.outbox.remove_up_to(all_have) {
            self.sites.dropped = self.sites.dropped.max(commit);
            self.cells.forget(&name_of_outgoing(commit), store);
        }
    }

    fn has_site(&self, site: u16) -> bool {
        site < self.group.sites()
    }

    /// Another site has sent versions.
    fn receive<'a>(
        &mut self,
        versions: impl Iterator<Item = (Versionstamp, &'a Write)>,
        era: u32,
        position: u64,
        cx: &mut Context<'_, Replica>,
    ) {
        for (stamp, Write { key, value }) in versions {
            cx.charge(1);
            let of_key = self.cells.change(&name_of(key), position, cx.store()).versions_mut();
            settle(key, of_key, &self.sites, &self.group, &mut self.serving);
            // It comes again, or was admitted already.
            if of_key.latest.stamp() == stamp {
                continue;
            }
            let place = of_key.received.partition_point(|other| other.stamp < stamp);
            if of_key.received.get(place).is_none_or(|other| other.stamp != stamp) {
                of_key.received.insert(place, Received { value: value.clone(), stamp, era });
            }
        }
    }

    /// Another site had admitted versions that this one has written before it lost them.
    fn restore(
        &mut self,
        versions: &[(Versionstamp, Write)],
        position: u64,
        cx: &mut Context<'_, Replica>,
    ) {
        self.copied += versions.len() as u64;
        for (commit, Write { key, value }) in versions {
            cx.charge(1);
            let of_key = self.cells.change(&name_of(key), position, cx.store()).versions_mut();
            settle(key, of_key, &self.sites, &self.group, &mut self.serving);
            let (commit, value) = (*commit, value.clone());
            let version = Version { value, commit, session: 0, elsewhere: None };
            put(key, version, of_key, &mut self.serving);
        }
    }

    /// An entry is applied. If a copy came before it, the copy is complete if the entry is not part of it. Otherwise
    /// it was given up, and the log goes on where it was.
    fn end_copy(&mut self, is_new: bool, store: &mut dyn Store) {
        for id in core::mem::take(&mut self.not_shown).into_iter().filter(|_| is_new) {
            self.transactions.remove(&id);
            self.cells.forget(&name_of_transaction(id), store);
        }
    }

    /// Forgets outcomes that are old enough. Each is forgotten everywhere at the same entry of the log.
    fn forget(&mut self, store: &mut dyn Store) {
        let last = match self.mutation.is(Mutation::OutcomesForgotten) {
            true => Versionstamp(u64::MAX),
            false => self.partition.horizon,
        };
        let last = TransactionId { requested: last, session: u64::MAX };
        let is_old = |(id, transaction): (&TransactionId, &Transaction)| {
            (transaction.stage() == 2).then_some(*id)
        };
        let old: Vec<_> = self.transactions.range(..=last).filter_map(is_old).collect();
        for id in old {
            self.transactions.remove(&id);
            self.cells.forget(&name_of_transaction(id), store);
        }
    }

    /// A leader has begun: what its predecessors have left is open.
    fn take_up(&mut self, before: Versionstamp, now: Timestamp) {
        let mut serving = Serving::new(before, self.written, now, &self.settings, self.mutation);
        for (id, transaction) in &self.transactions {
            match transaction {
                Transaction::Prepared { participants, pending, writes, cut } => {
                    serving.begin(*id, *pending, participants, writes, now);
                    if !cut.is_empty() {
                        serving.admission = Some(*id);
                    }
                    self.events.push_back(Event::Prepared(*id));
                }
                Transaction::Decided { untold, .. } if !untold.is_empty() => {
                    serving.open.insert(*id, Open::new(now));
                    self.events.push_back(Event::Decided(*id));
                }
                Transaction::Decided { .. } => {}
            }
        }
        if self.group.sites() > 1 {
            serving.admitted(self.sites.cut_at, self.sites.cut.clone());
        }
        self.serving = Some(serving);
    }

    /// The bound is at least what it would be if the clock showed this.
    fn raise(&mut self, stamp: Versionstamp) {
        let bound = stamp.after(ahead(&self.settings));
        self.partition.bound = self.partition.bound.max(bound);
    }

    /// The clock goes on after all that other sites have seen of this one. Transactions up to that are refused.
    fn raise_if_rebuilt(&mut self) {
        self.raise(self.sites.clock_from);
        self.partition.refused = self.partition.refused.max(self.sites.rebuilt_at);
    }

    fn decided(
        &mut self,
        id: TransactionId,
        commit: Option<Versionstamp>,
        keys: &[Write],
        now: Timestamp,
    ) {
        let Some(serving) = &mut self.serving else { return };
        if let Some(commit) = commit {
            serving.committed(commit, now);
        }
        serving.end(id, keys.iter().map(|write| &write.key));
        self.events.push_back(Event::Decided(id));
    }

    fn decide(
        &mut self,
        id: TransactionId,
        commit: Option<Versionstamp>,
        (writes, cut): (&[Write], &[Versionstamp]),
        chosen @ (_, position): (u64, u64),
        cx: &mut Context<'_, Replica>,
    ) {
        let (now, own) = (cx.now(), cx.id().partition());
        let mut untold = Vec::new();
        // An undone transaction's entry has no writes.
        let mut prepared = Vec::new();
        match self.transactions.remove(&id) {
            Some(Transaction::Prepared { mut participants, writes, .. }) => {
                if coordinator(&participants, own) == own && !participants.is_empty() {
                    untold = participants.split_off(1);
                }
                prepared = writes;
            }
            // It is replayed, and the state of the transaction is later than those of keys.
            Some(Transaction::Decided { untold: left, .. }) => untold = left,
            None => {}
        }
        if let Some(commit) = commit {
            self.install(id, commit, writes, position, cx.store());
            if !cut.is_empty() && cut.len() == self.sites.cut.len() {
                if self.change_sites(chosen) {
                    self.sites.admit(cut, commit);
                }
                if let Some(serving) = &mut self.serving {
                    serving.admitted(commit, self.sites.cut.clone());
                }
            }
        }
        self.set(id, Transaction::Decided { commit, untold }, position, cx.store());
        self.decided(id, commit, &prepared, now);
    }
}

/// Adds a version that can be read from its commit time on.
fn put(key: &Key, version: Version, versions: &mut Versions, serving: &mut Option<Serving>) {
    let latest = &mut versions.latest;
    let (overwritten, at) = if version.stamp() > latest.stamp() {
        let at = version.commit;
        let before = core::mem::replace(latest, version);
        // It commits here later than one of another site with an earlier stamp, which nobody has read.
        if before.commit >= at {
            return;
        }
        (before, at)
    } else if version.commit < latest.commit {
        // It commits here later than one with a higher commit time.
        (version, latest.commit)
    } else {
        return;
    };
    if let Some(serving) = serving {
        serving.overwritten.add(key, overwritten, at);
    }
}

/// Versions of other sites that are admitted by now take their places among the others.
fn settle(
    key: &Key,
    versions: &mut Versions,
    sites: &Sites,
    group: &Group,
    serving: &mut Option<Serving>,
) {
    let site = |stamp: Versionstamp| usize::from(group.site_of(stamp.partition()));
    versions.received.retain(|one| !is_lost(one, sites, group));
    let is_admitted = |one: &Received| one.stamp <= sites.cut_of(one.stamp, group);
    if !versions.received.iter().any(is_admitted) {
        return;
    }
    let (admitted, received): (Vec<_>, Vec<_>) =
        core::mem::take(&mut versions.received).into_iter().partition(is_admitted);
    versions.received = received;
    let version = |Received { value, stamp, .. }| {
        let from = serving.as_ref().and_then(|s| s.admitted_from(site(stamp), stamp));
        let commit = from.unwrap_or(sites.cut_at);
        Version { value, commit, session: 0, elsewhere: Some(stamp) }
    };
    let mut admitted: Vec<Version> = admitted.into_iter().map(version).collect();
    admitted.sort_by_key(|version| (version.commit, version.stamp()));
    for version in admitted {
        put(key, version, versions, serving);
    }
}

/// Whether its site has lost a version before it could be admitted here.
pub(super) fn is_lost(version: &Received, sites: &Sites, group: &Group) -> bool {
    let site = usize::from(group.site_of(version.stamp.partition()));
    sites.is_lost(site, version.stamp, version.era)
}

/// What two replicas know of a key.
pub(super) fn merged(one: &Versions, other: &Versions) -> Versions {
    let (later, earlier) = match one.latest.stamp() < other.latest.stamp() {
        true => (other, one),
        false => (one, other),
    };
    let mut merged = later.clone();
    for received in &earlier.received {
        let place = merged.received.partition_point(|other| other.stamp < received.stamp);
        match merged.received.get_mut(place).filter(|other| other.stamp == received.stamp) {
            Some(same) => same.era = same.era.max(received.era),
            None if received.stamp > merged.latest.stamp() => {
                merged.received.insert(place, received.clone());
            }
            None => {}
        }
    }
    merged
}

impl StateMachine<Replica> for Machine {
    fn apply(&mut self, chosen: Chosen<'_, Led<Entry>>, cx: &mut Context<'_, Replica>) {
        let Chosen { position, entry, led_in, .. } = chosen;
        let Some(led) = entry else { return };
        let is_new = self.partition.last.apply(chosen.slot, led);
        self.end_copy(is_new, cx.store());
        self.changed_at.get_or_insert(position);
        let is_own = led_in.is_some() && led_in == self.ballot && Some(led.by) == led_in;
        let now = cx.now();
        match &led.entry {
            Entry::Lead => {
                let before = self.partition.bound;
                if is_new {
                    self.raise(before);
                }
                if is_own {
                    self.take_up(before, now);
                }
            }
            Entry::Bound { bound, horizon, refused } => {
                if is_new {
                    self.partition.refused = self.partition.refused.max(*refused);
                    self.partition.bound = self.partition.bound.max(*bound);
                    self.partition.horizon = self.partition.horizon.max(*horizon);
                }
                self.forget(cx.store());
                self.events.push_back(Event::Raised);
            }
            Entry::Write { id, commit, writes } => {
                cx.charge(writes.len());
                if is_new {
                    self.raise(*commit);
                }
                self.install(*id, *commit, writes, position, cx.store());
                let untold = Vec::new();
                let decided = Transaction::Decided { commit: Some(*commit), untold };
                self.set(*id, decided, position, cx.store());
                self.decided(*id, Some(*commit), writes, now);
            }
            Entry::Prepare { id, participants, pending, writes, cut } => {
                cx.charge(writes.len());
                if is_new {
                    self.raise(*pending);
                }
                if cut.len() == self.sites.cut.len() && self.change_sites((chosen.slot, position)) {
                    self.sites.prepare(cut);
                }
                if !self.transactions.contains_key(id) {
                    let (participants, writes) = (participants.clone(), writes.clone());
                    let (pending, cut) = (*pending, cut.clone());
                    let prepared = Transaction::Prepared { participants, pending, writes, cut };
                    self.set(*id, prepared, position, cx.store());
                }
                self.events.push_back(Event::Prepared(*id));
            }
            Entry::Refuse(id) => {
                if !self.transactions.contains_key(id) {
                    let refused = Transaction::Decided { commit: None, untold: Vec::new() };
                    self.set(*id, refused, position, cx.store());
                }
                self.events.push_back(Event::Decided(*id));
            }
            Entry::Decide { id, commit, writes, cut } => {
                cx.charge(writes.len());
                if let Some(commit) = commit.filter(|_| is_new) {
                    self.raise(commit);
                }
                self.decide(*id, *commit, (writes, cut), (chosen.slot, position), cx);
                if self.mutation.is(Mutation::OutcomesForgotten) {
                    self.forget(cx.store());
                }
            }
            Entry::Receive { site, runs, .. }
                if !self.has_site(*site)
                    || runs.iter().any(|run| run.needs.len() != self.sites.cut.len()) => {}
            Entry::Part { site, needs, .. }
                if !self.has_site(*site)
                    || needs.as_ref().is_some_and(|needs| needs.len() != self.sites.cut.len()) => {}
            Entry::GiveUp(site) | Entry::TakeBack(site, _) if !self.has_site(*site) => {}
            Entry::Lost { site, .. } | Entry::Restored { site, .. } if !self.has_site(*site) => {}
            Entry::Rebuild { eras, .. } if eras.len() != self.sites.eras.len() => {}
            Entry::Rebuild { eras, latest } => {
                if self.change_sites((chosen.slot, position)) {
                    let own = usize::from(self.group.site());
                    self.sites.rebuild(own, eras, *latest);
                }
                if is_new {
                    self.raise_if_rebuilt();
                }
                self.events.push_back(Event::Rebuilds);
            }
            Entry::Lost { site, era } => {
                if self.change_sites((chosen.slot, position)) {
                    let (site, own) = (usize::from(*site), usize::from(self.group.site()));
                    self.sites.lose(site, *era, own, self.mutation);
                }
                self.events.push_back(Event::SiteLost(*site));
            }
            Entry::Restored { needs, .. } if needs.len() != self.sites.cut.len() => {}
            Entry::Restored { site, next, versions, is_last, latest, needs } => {
                self.restore(versions, position, cx);
                if self.change_sites((chosen.slot, position)) {
                    let site = usize::from(*site);
                    self.sites.restored(site, next, *is_last, *latest, needs);
                    let own = usize::from(self.group.site());
                    if needs[own] > Versionstamp::ZERO || !versions.is_empty() {
                        self.sites.depends_on(site, needs[site]);
                    }
                }
                if is_new {
                    self.raise_if_rebuilt();
                }
                self.events.push_back(Event::Restored(*site));
            }
            Entry::Whole => {
                if self.change_sites((chosen.slot, position)) {
                    self.sites.whole();
                }
                self.events.push_back(Event::Rebuilds);
            }
            Entry::Rebuilt => {
                if self.change_sites((chosen.slot, position)) {
                    self.sites.rebuilt();
                }
                self.events.push_back(Event::Rebuilds);
            }
            Entry::Receive { site, era, to, runs } => {
                let is_new = self.change_sites((chosen.slot, position));
                for run in runs {
                    let all = run.transactions.iter();
                    let versions =
                        all.flat_map(|one| one.writes.iter().map(|write| (one.commit, write)));
                    self.receive(versions, *era, position, cx);
                    if let (Some(first), Some(last)) =
                        (run.transactions.first(), run.transactions.last())
                        && is_new
                    {
                        let (first, last, needs) = (first.commit, last.commit, run.needs.clone());
                        let batch = Batch { first, last, is_copy: false, needs };
                        self.sites.receive(usize::from(*site), last.min(*to), batch);
                    }
                }
                if is_new {
                    self.sites.reach(usize::from(*site), *to);
                }
                self.events.push_back(Event::Received(*site));
            }
            Entry::Part { site, era, to, next, versions, needs } => {
                let all = versions.iter().map(|(stamp, write)| (*stamp, write));
                self.receive(all, *era, position, cx);
                self.copied += versions.len() as u64;
                if self.change_sites((chosen.slot, position)) {
                    let latest = versions.iter().map(|(stamp, _)| *stamp).max();
                    let latest = latest.unwrap_or_default();
                    let copy = Copy { to: *to, after: next.clone(), latest };
                    let is_whole = !self.mutation.is(Mutation::CopyInParts);
                    self.sites.copy(usize::from(*site), copy, needs.as_deref(), is_whole);
                }
                self.events.push_back(Event::Copied(*site, *to));
            }
            Entry::Acknowledged(all) => {
                if self.change_sites((chosen.slot, position)) {
                    self.sites.acknowledge(all);
                }
                self.drop_outgoing(cx.store());
            }
            Entry::GiveUp(site) => {
                if self.change_sites((chosen.slot, position)) {
                    self.sites.given_up[usize::from(*site)] = true;
                }
                self.drop_outgoing(cx.store());
            }
            Entry::TakeBack(site, to) => {
                if self.change_sites((chosen.slot, position)) {
                    self.sites.take_back(usize::from(*site), *to);
                }
                self.events.push_back(Event::TakenBack(*site));
            }
            Entry::Finish(ids) => {
                for id in ids {
                    if let Some(Transaction::Decided { commit, .. }) = self.transactions.get(id) {
                        let (commit, untold) = (*commit, Vec::new());
                        self.set(
                            *id,
                            Transaction::Decided { commit, untold },
                            position,
                            cx.store(),
                        );
                    }
                    if let Some(serving) = &mut self.serving {
                        serving.open.remove(id);
                    }
                }
            }
        }
        if self.serving.is_none() {
            self.events.clear();
        }
    }

    fn revise(&self, first: u64, inherited: &mut [Option<Led<Entry>>]) {
        self.partition.last.revise(first, inherited);
    }

    fn store_all(&mut self, store: &mut dyn Store) {
        self.keep_partition(store);
        self.cells.store_some(usize::MAX, store);
    }

    fn needs_log_from(&self) -> Option<u64> {
        let changed_at = self.changed_at.into_iter().chain(self.sites_changed_at);
        self.cells.needs_log_from().into_iter().chain(changed_at).min()
    }

    fn take_over(&mut self, name: &Key, state: &[u8], store: &mut dyn Store) -> bool {
        let Some(state) = decode_cell_of_another::<Cell>(state) else { return false };
        let is_partition = *name == name_of_partition();
        let id = transaction_of_name(name.as_bytes());
        match (&state, is_partition, id) {
            (Cell::Partition(partition), true, _) => {
                let own = self.partition;
                // What is the same here was perhaps replayed from records that are given up after the copy. So it is
                // stored, too.
                if own.last.is_after(partition.last) {
                    return true;
                }
                // Transactions that the other has forgotten must not come back. It shows those that it knows.
                if partition.last.is_after(own.last) {
                    self.not_shown = self.transactions.keys().copied().collect();
                }
                self.partition = Partition {
                    bound: own.bound.max(partition.bound),
                    horizon: own.horizon.max(partition.horizon),
                    refused: own.refused.max(partition.refused),
                    ..*partition
                };
                self.changed_at = None;
                self.cells.put(name, Cell::Partition(self.partition), store);
            }
            (Cell::Transaction(transaction), false, Some(id)) => {
                self.not_shown.remove(&id);
                let own = self.transactions.get(&id).map(Transaction::stage);
                if own > Some(transaction.stage()) {
                    return true;
                }
                self.transactions.insert(id, transaction.clone());
                self.cells.put(name, state, store);
            }
            (Cell::Key(versions), false, None) if key_of_name(name.as_bytes()).is_some() => {
                let own = self.cells.get(name, store).versions();
                let merged = merged(own, versions);
                self.cells.put(name, Cell::Key(merged), store);
            }
            (Cell::Sites(sites), false, None) => {
                if *name != name_of_sites() || !sites.is_of(self.sites.cut.len()) {
                    return false;
                }
                self.sites.take_over(sites);
                self.sites_changed_at = None;
                self.drop_outgoing(store);
                self.cells.put(name, Cell::Sites(Box::new(self.sites.clone())), store);
            }
            (Cell::Outgoing(kept), false, None) => {
                let Some(commit) = outgoing_of_name(name.as_bytes()) else { return false };
                self.outbox.insert(commit, kept.clone());
                self.cells.put(name, state, store);
            }
            _ => return false,
        }
        true
    }
}

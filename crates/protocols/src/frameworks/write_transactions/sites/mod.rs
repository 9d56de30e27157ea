//! Sites: each holds all keys, commits transactions itself, and sends them to the others, which admit them later.
//!
//! ```text
//! a partition's leader       the same partition at another site            that site's first partition
//!   | Ship(after, to, needs) ---->|                                            |
//!   |                             |  Receive in the log                        |
//!   |<--------------- Shipped(to) |--- Report(what is here) ------------------>|
//!   |                             |                                            |  of all its partitions
//!   |                             |<------------------------- Admit(id, cut) --|
//!   |                             |  a transaction of all partitions of the site, by two-phase commit
//! ```
//!
//! # Commit times and safe times of what comes from elsewhere
//! A transaction gets its commit time at its own site. It is not changed: of two versions of a key the one with the
//! later commit time is the later one at all sites, so all sites end with the same values. At another site the
//! transaction can be read from the commit time of its *admission* on. An admission is a transaction of that site. It
//! writes nothing, but makes all readable that other sites have written up to a *cut*: one commit time for each other
//! site. It has all partitions of the site as participants, so it is atomic. Its pending times hold back safe times, as
//! those of other transactions do. So reads need not know of sites: as of a safe time, a key has the latest of the
//! versions that were written here up to then, and of those that were admitted up to then.
//!
//! # Why it is causal across sites
//! Let a transaction of site A depend on one of site B. With B = A it has a later commit time, and so is not admitted
//! earlier elsewhere: a cut has all of A up to a time. Otherwise A has admitted it, with a cut that includes it, before
//! the transaction got its commit time. The admission was prepared at all partitions before any of them could show what
//! it admits. So a partition keeps with each transaction all that admissions would admit that are prepared there by
//! then (`Sites::needed`, `Kept::needs`), and ships it. Another site admits the transaction only together with all of
//! that, or after it. If the other site is B itself, it has been committed there long since. An admission's commit time
//! is later than all commit times that it admits, so what a session writes later, with a later commit time, is also
//! later than what it has read from elsewhere.
//!
//! A cut never has a part of a transaction. All of its partitions have sent all that commits up to the cut, because
//! they only ship what is safe.
//!
//! # What a site keeps for others
//! Each partition keeps what other sites lack, up to [`serried_actor::Settings::site_backlog_bytes`]. Then it gives the
//! site up that lacks most. When that site can be reached again, it copies the latest versions of all keys that have
//! changed. While it does so, it reads what it had. It admits the copy as a whole.
//!
//! # A site that is lost
//! If a site loses the disks of all its nodes, it is rebuilt from the others. [`rebuilding`] says how.
//!
//! # Deleted keys
//! Deleted keys keep the commit time of the deletion. So a write of another site that comes late, and has an earlier
//! one, does not bring them back.

mod admitting;
mod copying;
mod reaching;
mod rebuilding;
mod receiving;
mod sending;
mod state;

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Group, Timestamp};
use serried_model::{NodeId, Versionstamp};

use super::message::{Across, ERAS_AT_MOST, Message, Report, Stage, TransactionId};
use super::replica::{Cx, Replica};
pub(super) use state::{Copy, Kept, Outbox, Sites};

/// How often a leader sends what has committed. It also sends if nothing has: then the others know that.
pub(super) const SHIPPED_EVERY: Duration = Duration::from_millis(10);

/// About how many bytes are sent at once at most.
const SENT_AT_ONCE: usize = 256 << 10;

/// The most significant bits of the session that an admission is from. The others are drawn, so that no two leaders
/// begin the same one.
const ADMISSION: u64 = 0xffff << 48;

/// What a leader knows of other sites that is not in the log.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// By site: what it was sent.
    sending: Vec<sending::Sending>,
    /// By site: what it has sent.
    receiving: Vec<receiving::Receiving>,
    /// By site: whether a part of a copy is in the log, and not applied yet.
    copied: Vec<bool>,
    /// At the first partition: what the partitions could admit.
    reports: BTreeMap<u16, (Timestamp, Report)>,
    /// When something was reported last, and what.
    reported: (Option<Timestamp>, Report),
    /// When it was computed last what could be admitted.
    tried_at: Option<Timestamp>,
    /// The last admission.
    last_admission: Option<TransactionId>,
    /// At the other partitions: the admission of the first one in which this one can't take part yet, and its cut.
    offered: Option<(TransactionId, Vec<Versionstamp>)>,
    /// Sessions of other sites that wait until this one has what they have seen.
    reaching: BTreeMap<(NodeId, u64), reaching::Reaching>,
    /// When the last admission was begun.
    admitted_at: Option<Timestamp>,
    /// For how long nothing was admitted here of the site of which this is true most, by this partition's clock.
    pub(super) behind: Duration,
    /// When the log was told last what other sites have.
    acknowledged_at: Option<Timestamp>,
    /// Sites that have lost their disks.
    rebuilding: rebuilding::Rebuilding,
}

impl Exchange {
    /// Whether the leader has not begun.
    pub(super) fn is_new(&self) -> bool {
        self.sending.is_empty()
    }

    /// A leader begins with what the log knows.
    pub(super) fn new(sites: &Sites, group: &Group) -> Exchange {
        let all = 0..usize::from(group.sites());
        Exchange {
            sending: all
                .clone()
                .map(|site| sending::Sending::new(sites.acknowledged[site]))
                .collect(),
            receiving: all
                .clone()
                .map(|site| receiving::Receiving::new(sites.received[site]))
                .collect(),
            copied: all.map(|_| false).collect(),
            ..Exchange::default()
        }
    }
}

impl Replica {
    /// Whether the keyspace has several sites.
    pub(super) fn has_sites(&self) -> bool {
        self.group.sites() > 1
    }

    /// The other sites.
    fn other_sites(&self) -> impl Iterator<Item = usize> + use<> {
        let own = usize::from(self.group.site());
        (0..usize::from(self.group.sites())).filter(move |site| *site != own)
    }

    /// Sends something to the leader of a partition of any site.
    pub(super) fn send_across(&self, partition: u16, across: Across, cx: &mut Cx<'_>) {
        let other = NodeId::replica(partition, self.repeated % self.group.size());
        let to = *self.leaders.get(&partition).unwrap_or(&other);
        let eras = self.machine.sites.eras.clone();
        cx.send_before_durable(to, Message::Across { origin: cx.id(), eras, across });
    }

    /// Sends something to the leader of the same partition at another site.
    fn send_to_site(&self, site: usize, across: Across, cx: &mut Cx<'_>) {
        let partition = self.group.counterpart(cx.id().partition(), site as u16);
        self.send_across(partition, across, cx);
    }

    /// A message about what other sites have written, which another replica may have passed on.
    pub(super) fn receive_across(
        &mut self,
        from: NodeId,
        origin: NodeId,
        (eras, across): (Vec<u32>, Across),
        cx: &mut Cx<'_>,
    ) {
        let (is_direct, own) = (from == origin, cx.id().partition());
        let site = self.group.site_of(origin.partition());
        let is_sound = match across {
            Across::Report(_)
            | Across::Admit { .. }
            | Across::Found(_)
            | Across::Begin(_)
            | Across::Clock(_)
            | Across::Whole
            | Across::End => self.group.contains(origin) && origin.partition() != own,
            _ => {
                self.group.is_elsewhere(origin)
                    && self.group.counterpart(own, site) == origin.partition()
            }
        };
        let is_passed_on = self.group.contains(from) && from.partition() == own;
        if !is_sound || !(is_direct || is_passed_on) {
            return cx.reject(|| format!("{from} sends what only leaders of other partitions do"));
        }
        if self.is_serving() {
            self.leaders.insert(origin.partition(), origin);
            return self.on_across(origin, (&eras, across), cx);
        }
        // It is not passed on again: two replicas could send it back and forth.
        if let Some(leader) = self.log.leader(cx.now()).filter(|_| is_direct)
            && leader != cx.id()
        {
            cx.send_before_durable(leader, Message::Across { origin, eras, across });
        }
    }

    fn on_across(&mut self, from: NodeId, (eras, across): (&[u32], Across), cx: &mut Cx<'_>) {
        let site = usize::from(self.group.site_of(from.partition()));
        let sites = usize::from(self.group.sites());
        let are_eras =
            |eras: &[u32]| eras.len() == sites && eras.iter().all(|times| *times <= ERAS_AT_MOST);
        let is_sound = match &across {
            Across::Ship { runs, cut, .. } => {
                cut.len() == sites && runs.iter().all(|run| run.needs.len() == sites)
            }
            Across::Part { needs: Some(needs), .. } => needs.len() == sites,
            Across::Report(Report { here, waiting, lacks, .. }) => {
                let mut batches = waiting.iter().flatten();
                here.len() == sites
                    && lacks.len() == sites
                    && waiting.len() == sites
                    && batches.all(|batch| batch.needs.len() == sites)
            }
            Across::Admit { cut, .. } => cut.len() == sites,
            Across::Found(eras) | Across::Begin(eras) => are_eras(eras),
            Across::Restored { needs, .. } => needs.len() == sites,
            _ => true,
        };
        if !is_sound || !are_eras(eras) {
            return cx.reject(|| {
                format!("{from} speaks of another number of sites, or an impossible era")
            });
        }
        let first = self.group.all_partitions().start;
        let Some(across) = self.on_lost_sites(from, (eras, across), cx) else { return };
        if self.must_rebuild() {
            return;
        }
        if !self.is_of_this_era(from.partition(), eras, cx) {
            // Only the first partition is sent reports. It knows more, and says so with any message.
            if matches!(across, Across::Report(_)) {
                let shown = self.clock(cx).shown;
                self.send_across(from.partition(), Across::Clock(shown), cx);
            }
            return;
        }
        match across {
            Across::Ship { epoch, after, to, runs, cut } => {
                self.on_ship(site, (epoch, after, to), (runs, cut), cx);
            }
            Across::Shipped { epoch, to, is_gap } => self.on_shipped(site, epoch, to, is_gap, cx),
            Across::Part { to, after, next, versions, needs } => {
                self.on_part(site, (to, after, next), versions, needs, cx);
            }
            Across::Copied { to, after, is_done } => {
                self.on_copied(site, to, (after, is_done), cx);
            }
            Across::Report(report) => {
                if cx.id().partition() == first {
                    self.tell_stage(from.partition(), report.stage, cx);
                    self.tell_clock(from.partition(), report.shown, cx);
                    self.exchange.reports.insert(from.partition(), (cx.now(), report));
                    self.admit_if_ready(cx);
                }
            }
            Across::Whole | Across::End if from.partition() != first => {}
            Across::Whole => self.go_on_to(Stage::Whole, cx),
            Across::End => self.go_on_to(Stage::Rebuilt, cx),
            Across::Clock(shown) => self.take_over_possible(shown, cx),
            Across::Restore { after } => self.on_restore(site, after, cx),
            Across::Restored { after, next, versions, is_last, latest, needs } => {
                self.on_restored(site, (after, next, is_last), versions, (latest, needs), cx);
            }
            Across::Ask { .. } | Across::Told { .. } | Across::Found(_) | Across::Begin(_) => {}
            Across::Admit { id, cut } => {
                if from.partition() == self.group.all_partitions().start {
                    self.exchange.offered = Some((id, cut));
                    self.take_part(cx);
                }
            }
        }
    }

    /// It is time to send what has committed, and to admit what others have sent.
    pub(super) fn exchange(&mut self, cx: &mut Cx<'_>) {
        if self.must_rebuild() {
            return self.look_for_sites(cx);
        }
        self.lose_sites(cx);
        self.restore(cx);
        self.ship(cx);
        self.acknowledge(cx);
        self.report(cx);
        self.admit_if_ready(cx);
        self.answer_reached(cx);
        let shown = self.clock(cx).shown;
        let behind = self.other_sites().map(|site| shown.since(self.admitted_of(site)));
        self.exchange.behind = behind.max().unwrap_or_default();
    }
}

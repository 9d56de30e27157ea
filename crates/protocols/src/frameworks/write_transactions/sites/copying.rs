//! Copies for sites that were given up: they lack more than is kept for them.
//!
//! The receiver's log says how far a copy is, so it goes on where it was after a change of leader at either site.

use core::time::Duration;

use serried_actor::Timestamp;
use serried_model::{Value, Versionstamp, Write};
use serried_parts::decode_cell;

use super::super::Mutation;
use super::super::cell::{Cell, Versions, before_transactions};
use super::super::message::{Across, Entry};
use super::super::replica::{Cx, Replica};
use super::{Copy, SENT_AT_ONCE};
use crate::frameworks::stored_names::key_of_name;

/// About how many bytes a part has at least, if there are as many.
const LEAST_BYTES: usize = 64;
/// How many times so much is read for a part at most, if few keys have changed.
const SCANS: usize = 16;
/// After how long a part is sent again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A copy for another site, at the sender.
#[derive(Debug)]
pub(super) struct Copying {
    /// The site has what has committed here up to this.
    has: Versionstamp,
    /// With the copy, it has what has committed up to this. `None` until the log says from when on it is kept again.
    to: Option<Versionstamp>,
    /// The part on its way, if it was read.
    part: Option<Part>,
    /// When it was sent.
    sent_at: Option<Timestamp>,
}

/// A part of a copy.
#[derive(Clone, Debug)]
struct Part {
    /// The names in the store after which it begins, and after which the next one does.
    after: Option<Vec<u8>>,
    next: Vec<u8>,
    versions: Vec<(Versionstamp, Write)>,
    /// By site, up to when the copy depends on that site, if it is the last part.
    needs: Option<Vec<Versionstamp>>,
}

impl Replica {
    /// Begins a copy for a site that has what has committed here up to `has`, or goes on with one.
    pub(super) fn begin_copy(&mut self, site: usize, has: Versionstamp, cx: &mut Cx<'_>) {
        let sites = &self.machine.sites;
        if sites.lacks_own() && !self.mutation.is(Mutation::NotWhole) {
            return;
        }
        let mut to = Some(sites.acknowledged[site]);
        if sites.given_up[site] {
            let safe = self.clock(cx).safe;
            if self.log.propose_led(Entry::TakeBack(site as u16, safe), cx).is_none() {
                return;
            }
            to = None;
        }
        let copying = Copying { has, to, part: None, sent_at: None };
        self.exchange.sending[site].copying = Some(copying);
    }

    /// What commits later is kept for the site again.
    pub(in super::super) fn on_taken_back(&mut self, site: u16, cx: &mut Cx<'_>) {
        let site = usize::from(site);
        let to = self.machine.sites.acknowledged[site];
        if let Some(copying) = &mut self.exchange.sending[site].copying {
            copying.to = Some(to);
        }
        self.send_part(site, cx);
    }

    /// Reads the part after a name from the store.
    fn read_part(&mut self, has: Versionstamp, after: Option<Vec<u8>>, cx: &mut Cx<'_>) -> Part {
        let (own, group) = (self.group.site(), self.group.clone());
        let (last, versions, has_more) = self.read_versions(after.clone(), cx, |versions| {
            let (stamp, value) = (versions.latest.stamp(), &versions.latest.value);
            let is_own = group.site_of(stamp.partition()) == own;
            (stamp > has && is_own).then(|| (stamp, value.clone()))
        });
        let needs = (!has_more).then(|| self.machine.sites.needed.clone());
        Part { after, next: last.unwrap_or_default(), versions, needs }
    }

    /// Reads what is wanted of some of the keys after a name in the store. Returns the name of the last one, the
    /// versions, and whether there are more keys.
    pub(super) fn read_versions(
        &self,
        after: Option<Vec<u8>>,
        cx: &mut Cx<'_>,
        wanted: impl Fn(&Versions) -> Option<(Versionstamp, Option<Value>)>,
    ) -> (Option<Vec<u8>>, Vec<(Versionstamp, Write)>, bool) {
        // Where little is kept for other sites, little is sent at once.
        let kept = usize::try_from(self.settings.site_backlog_bytes).unwrap_or(SENT_AT_ONCE);
        let at_once = kept.clamp(LEAST_BYTES, SENT_AT_ONCE);
        let (mut last, mut versions, mut bytes) = (after, Vec::new(), 0);
        let mut has_more = true;
        // Few keys may have changed.
        for _ in 0..SCANS {
            let from = last.clone();
            has_more = cx.store().scan(from.as_deref(), at_once, &mut |name, state| {
                last = Some(name.to_vec());
                let Some(key) = key_of_name(name).filter(|_| !state.is_empty()) else { return };
                let Cell::Key(of_key) = decode_cell(state) else { return };
                if let Some((stamp, value)) = wanted(&of_key) {
                    bytes += state.len();
                    versions.push((stamp, Write { key, value }));
                }
            });
            // Transactions and other things come after all keys.
            let are_keys =
                last.as_deref().is_none_or(|last| last < before_transactions().as_slice());
            has_more &= are_keys;
            if !has_more || bytes >= at_once {
                break;
            }
        }
        (last, versions, has_more)
    }

    /// Sends the part on its way, at first or again.
    pub(super) fn send_part(&mut self, site: usize, cx: &mut Cx<'_>) {
        let (now, safe) = (cx.now(), self.clock(cx).safe);
        let Some(copying) = &self.exchange.sending[site].copying else { return };
        // What commits up to then must be in the store before it is read.
        let Some(to) = copying.to.filter(|to| safe >= *to) else { return };
        if copying.sent_at.is_some_and(|at| now.since(at) < AGAIN_AFTER) {
            return;
        }
        let has = copying.has;
        let part = match &copying.part {
            Some(part) => part.clone(),
            None => {
                self.machine.cells_mut().store_some(usize::MAX, cx.store());
                self.read_part(has, None, cx)
            }
        };
        let Some(copying) = &mut self.exchange.sending[site].copying else { return };
        copying.sent_at = Some(now);
        copying.part = Some(part.clone());
        let Part { after, next, versions, needs } = part;
        self.send_to_site(site, Across::Part { to, after, next, versions, needs }, cx);
    }

    /// A site says how far a copy is there.
    pub(super) fn on_copied(
        &mut self,
        site: usize,
        to: Versionstamp,
        (after, is_done): (Option<Vec<u8>>, bool),
        cx: &mut Cx<'_>,
    ) {
        let sending = &mut self.exchange.sending[site];
        let Some(copying) = sending.copying.as_ref().filter(|copying| copying.to == Some(to))
        else {
            return;
        };
        if is_done {
            sending.copying = None;
            return;
        }
        let Some(part) = &copying.part else { return };
        if part.after == after {
            return;
        }
        let has = copying.has;
        let part = self.read_part(has, after, cx);
        let Some(copying) = &mut self.exchange.sending[site].copying else { return };
        (copying.part, copying.sent_at) = (Some(part), None);
        self.send_part(site, cx);
    }

    /// A part of a copy has come.
    pub(super) fn on_part(
        &mut self,
        site: usize,
        (to, after, next): (Versionstamp, Option<Vec<u8>>, Vec<u8>),
        versions: Vec<(Versionstamp, Write)>,
        needs: Option<Vec<Versionstamp>>,
        cx: &mut Cx<'_>,
    ) {
        let (serving, now) = (self.machine.serving.as_ref(), cx.now());
        let is_possible = |stamp| serving.is_some_and(|serving| serving.is_possible(stamp, now));
        let is_sound = |(stamp, write): &(Versionstamp, Write)| {
            let is_of_site = self.group.site_of(stamp.partition()) == site as u16;
            is_of_site && is_possible(*stamp) && self.is_of_partition(write, cx)
        };
        if !is_possible(to) || !versions.iter().all(is_sound) {
            return cx.reject(|| format!("site {site} has sent versions that are not its own"));
        }
        let copy = self.machine.sites.copies[site].as_ref();
        let is_here = copy.filter(|copy| copy.to == to).map(|copy| &copy.after);
        if self.machine.sites.received[site] >= to || is_here != after.as_ref() {
            return self.tell_copied(site, to, cx);
        }
        if self.exchange.copied[site] {
            return;
        }
        let era = self.machine.sites.eras[site];
        let entry = Entry::Part { site: site as u16, era, to, next, versions, needs };
        let is_proposed = self.stalled.is_empty() && self.log.propose_led(entry, cx).is_some();
        self.exchange.copied[site] = is_proposed;
    }

    /// Tells a site how far a copy is here.
    fn tell_copied(&mut self, site: usize, to: Versionstamp, cx: &mut Cx<'_>) {
        let is_done = self.machine.sites.received[site] >= to;
        let copy = self.machine.sites.copies[site].as_ref().filter(|copy| copy.to == to);
        let after = copy.map(|Copy { after, .. }| after.clone());
        self.send_to_site(site, Across::Copied { to, after, is_done }, cx);
    }

    /// A part of a copy is in the log.
    pub(in super::super) fn on_part_kept(&mut self, site: u16, to: Versionstamp, cx: &mut Cx<'_>) {
        self.exchange.copied[usize::from(site)] = false;
        self.tell_copied(usize::from(site), to, cx);
        self.on_received(site, cx);
    }
}

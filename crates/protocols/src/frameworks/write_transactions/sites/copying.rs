//! Copies for sites that were given up: they lack more than is kept for them.

use core::time::Duration;

use serried_actor::Timestamp;
use serried_model::{Versionstamp, Write};
use serried_parts::decode_cell;

use super::super::cell::{Cell, before_transactions};
use super::super::message::{Across, End, Entry};
use super::super::replica::{Cx, Replica};
use super::SENT_AT_ONCE;
use crate::frameworks::stored_names::key_of_name;

/// About how many bytes a part has at least, if there are as many.
const LEAST_BYTES: usize = 64;
/// After how long a part is sent again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A copy for another site, at the sender.
#[derive(Debug)]
pub(super) struct Copying {
    /// Names it.
    number: u64,
    /// The site has what has committed here up to this.
    has: Versionstamp,
    /// What commits later than this is kept for it. `None` until the log says so.
    to: Option<Versionstamp>,
    /// Whether reading the store has begun.
    has_begun: bool,
    /// The name in the store after which the next part begins.
    after: Option<Vec<u8>>,
    /// The part on its way: its number, its versions, and the end if it is the last one.
    part: u64,
    versions: Vec<(Versionstamp, Write)>,
    end: Option<End>,
    /// The latest commit time in it so far.
    latest: Versionstamp,
    /// When the part was sent.
    sent_at: Option<Timestamp>,
}

impl Replica {
    /// Begins a copy for a site that has what has committed here up to `has`.
    pub(super) fn begin_copy(&mut self, site: usize, has: Versionstamp, cx: &mut Cx<'_>) {
        let to = self.clock(cx).safe;
        if self.log.propose_led(Entry::TakeBack(site as u16, to), cx).is_none() {
            return;
        }
        let number = cx.draw();
        self.exchange.sending[site].copying = Some(Copying {
            number,
            has,
            to: None,
            has_begun: false,
            after: None,
            part: 0,
            versions: Vec::new(),
            end: None,
            latest: Versionstamp::ZERO,
            sent_at: None,
        });
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

    /// Reads the next part from the store.
    fn read_part(&mut self, site: usize, cx: &mut Cx<'_>) {
        let (own, group) = (self.group.site(), self.group.clone());
        // Where little is kept for other sites, little is sent at once.
        let kept = usize::try_from(self.settings.site_backlog_bytes).unwrap_or(SENT_AT_ONCE);
        let at_once = kept.clamp(LEAST_BYTES, SENT_AT_ONCE);
        let Some(copying) = &mut self.exchange.sending[site].copying else { return };
        copying.versions.clear();
        copying.sent_at = None;
        let mut last = None;
        let (has, versions) = (copying.has, &mut copying.versions);
        let after = copying.after.take();
        let has_more = cx.store().scan(after.as_deref(), at_once, &mut |name, state| {
            last = Some(name.to_vec());
            let Some(key) = key_of_name(name).filter(|_| !state.is_empty()) else { return };
            let Cell::Key(of_key) = decode_cell(state) else { return };
            let latest = of_key.latest;
            let stamp = latest.stamp();
            if stamp > has && group.site_of(stamp.partition()) == own {
                versions.push((stamp, Write { key, value: latest.value }));
            }
        });
        // Transactions and other things come after all keys.
        let are_keys = last.as_deref().is_none_or(|last| last < before_transactions().as_slice());
        copying.after = last;
        let latest = copying.versions.iter().map(|(stamp, _)| *stamp).max().unwrap_or_default();
        copying.latest = copying.latest.max(latest);
        if !has_more || !are_keys {
            let to = copying.to.unwrap_or_default();
            let whole_at = copying.latest.max(to);
            let needs = self.machine.sites.cut.clone();
            copying.end = Some(End { to, whole_at, needs });
        }
    }

    /// Sends the part on its way, at first or again.
    pub(super) fn send_part(&mut self, site: usize, cx: &mut Cx<'_>) {
        let (now, safe) = (cx.now(), self.clock(cx).safe);
        let Some(copying) = &mut self.exchange.sending[site].copying else { return };
        // What commits up to then must be in the store before it is read.
        if copying.to.is_none_or(|to| safe < to) {
            return;
        }
        if !core::mem::replace(&mut copying.has_begun, true) {
            self.machine.cells_mut().store_some(usize::MAX, cx.store());
            self.read_part(site, cx);
        }
        let Some(copying) = &mut self.exchange.sending[site].copying else { return };
        if copying.sent_at.is_some_and(|at| now.since(at) < AGAIN_AFTER) {
            return;
        }
        copying.sent_at = Some(now);
        let (number, part) = (copying.number, copying.part);
        let (versions, end) = (copying.versions.clone(), copying.end.clone());
        self.send_to_site(site, Across::Part { number, part, versions, end }, cx);
    }

    /// A site has got a part.
    pub(super) fn on_copied(&mut self, site: usize, number: u64, next: u64, cx: &mut Cx<'_>) {
        let sending = &mut self.exchange.sending[site];
        let Some(copying) = &mut sending.copying else { return };
        if copying.number != number || next != copying.part + 1 {
            return;
        }
        if copying.end.is_some() {
            sending.copying = None;
            return;
        }
        copying.part = next;
        self.read_part(site, cx);
        self.send_part(site, cx);
    }
}

/// What a site has sent of a copy, at the receiver.
#[derive(Debug, Default)]
pub(super) struct Copied {
    number: u64,
    /// The next part that is wanted.
    next: u64,
    /// It is in the log.
    is_proposed: bool,
}

impl Replica {
    /// A part of a copy has come.
    pub(super) fn on_part(
        &mut self,
        site: usize,
        (number, part): (u64, u64),
        versions: Vec<(Versionstamp, Write)>,
        end: Option<End>,
        cx: &mut Cx<'_>,
    ) {
        let is_of_site =
            |stamp: &Versionstamp| self.group.site_of(stamp.partition()) == site as u16;
        if !versions.iter().all(|(stamp, _)| is_of_site(stamp)) {
            return cx.reject(|| format!("site {site} has sent versions that are not its own"));
        }
        let copied = &mut self.exchange.copied[site];
        if copied.number != number {
            // Earlier parts are durable, as the sender knows.
            *copied = Copied { number, next: part, is_proposed: false };
        }
        if part < copied.next {
            let next = part + 1;
            return self.send_to_site(site, Across::Copied { number, next }, cx);
        }
        if part > copied.next || copied.is_proposed {
            return;
        }
        let entry = Entry::Part { site: site as u16, versions, end };
        let is_proposed = self.stalled.is_empty() && self.log.propose_led(entry, cx).is_some();
        self.exchange.copied[site].is_proposed = is_proposed;
    }

    /// A part of a copy is in the log.
    pub(in super::super) fn on_part_kept(&mut self, site: u16, cx: &mut Cx<'_>) {
        let site = usize::from(site);
        let copied = &mut self.exchange.copied[site];
        if core::mem::take(&mut copied.is_proposed) {
            copied.next += 1;
            let (number, next) = (copied.number, copied.next);
            self.send_to_site(site, Across::Copied { number, next }, cx);
        }
        self.on_received(site as u16, cx);
    }
}

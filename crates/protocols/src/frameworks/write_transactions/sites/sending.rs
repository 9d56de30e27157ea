//! What a leader sends to other sites.

use core::time::Duration;
use std::collections::VecDeque;

use serried_actor::Timestamp;
use serried_model::Versionstamp;

use super::super::Mutation;
use super::super::message::{Across, Entry};
use super::super::replica::{Cx, Replica};
use super::copying::Copying;
use super::{SENT_AT_ONCE, SHIPPED_EVERY};

/// How many bytes are on their way at most, and in how many batches.
const WINDOW_BYTES: usize = 4 << 20;
const WINDOW_BATCHES: usize = 64;
/// How many times as much is kept for a site while it copies.
const COPYING_TIMES: u64 = 4;
/// After how long without an answer the sender begins again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The log learns at most so often what other sites have.
const ACKNOWLEDGED_EVERY: Duration = Duration::from_millis(100);

/// What a site was sent.
#[derive(Debug)]
pub(super) struct Sending {
    /// How often the sender has begun again.
    epoch: u64,
    /// Whether the site has answered since then.
    is_known: bool,
    /// All that has committed up to this is durable there.
    acknowledged: Versionstamp,
    /// All that has committed up to this was sent.
    sent: Versionstamp,
    /// What is on its way: up to which commit times, and how many bytes.
    on_its_way: VecDeque<(Versionstamp, usize)>,
    /// When it has answered last, or the sender has begun again.
    heard_at: Timestamp,
    /// The copy that it gets.
    pub(super) copying: Option<Copying>,
}

impl Sending {
    /// Nothing was sent yet.
    pub(super) fn new(acknowledged: Versionstamp) -> Sending {
        Sending {
            epoch: 0,
            is_known: false,
            acknowledged,
            sent: acknowledged,
            on_its_way: VecDeque::new(),
            heard_at: Timestamp(0),
            copying: None,
        }
    }

    fn begin_again(&mut self, from: Versionstamp, now: Timestamp) {
        self.epoch += 1;
        self.is_known = false;
        self.sent = from;
        self.on_its_way.clear();
        self.heard_at = now;
    }
}

impl Replica {
    /// Sends what has committed since the last time.
    pub(super) fn ship(&mut self, cx: &mut Cx<'_>) {
        let (clock, now) = (self.clock(cx), cx.now());
        let safe = match self.mutation.is(Mutation::ShippedUnsafe) {
            true => clock.shown,
            false => clock.safe,
        };
        for site in self.other_sites() {
            let sending = &mut self.exchange.sending[site];
            if now.since(sending.heard_at) >= AGAIN_AFTER {
                let from = sending.acknowledged;
                sending.begin_again(from, now);
                // Perhaps another replica leads there now.
                let partition = self.group.counterpart(cx.id().partition(), site as u16);
                self.leaders.remove(&partition);
            }
            self.ship_to(site, safe, cx);
            self.send_part(site, cx);
        }
    }

    fn ship_to(&mut self, site: usize, safe: Versionstamp, cx: &mut Cx<'_>) {
        let has_to_copy = self.has_to_copy(site);
        loop {
            let sending = &mut self.exchange.sending[site];
            let (epoch, after) = (sending.epoch, sending.sent);
            // Otherwise it is only asked what it has.
            let (mut runs, mut to, mut bytes) = (Vec::new(), after, 0);
            if sending.is_known && !has_to_copy {
                let on_its_way: usize = sending.on_its_way.iter().map(|(_, bytes)| bytes).sum();
                let has_room = sending.on_its_way.len() < WINDOW_BATCHES;
                let room = if has_room { WINDOW_BYTES.saturating_sub(on_its_way) } else { 0 };
                let most_bytes = SENT_AT_ONCE.min(room);
                let safe = safe.max(after);
                (runs, to, bytes) = self.machine.outbox.between(after, safe, most_bytes);
            }
            let is_all = to >= safe || runs.is_empty();
            sending.sent = to;
            if bytes > 0 {
                sending.on_its_way.push_back((to, bytes));
            }
            let cut = self.machine.sites.cut.clone();
            self.send_to_site(site, Across::Ship { epoch, after, to, runs, cut }, cx);
            if is_all {
                return;
            }
        }
    }

    /// Whether a site lacks more than is kept for it.
    fn has_to_copy(&self, site: usize) -> bool {
        let sites = &self.machine.sites;
        let has = self.exchange.sending[site].acknowledged;
        sites.given_up[site] || has < sites.acknowledged[site]
    }

    /// A site has answered what it has.
    pub(super) fn on_shipped(
        &mut self,
        site: usize,
        epoch: u64,
        to: Versionstamp,
        is_gap: bool,
        cx: &mut Cx<'_>,
    ) {
        let now = cx.now();
        if to > self.clock(cx).safe.max(self.machine.sites.acknowledged[site]) {
            // Another leader has sent it. This one does not lead any more.
            return;
        }
        let sending = &mut self.exchange.sending[site];
        if epoch != sending.epoch {
            return;
        }
        let is_first = !core::mem::replace(&mut sending.is_known, true);
        sending.heard_at = now;
        if is_first || is_gap {
            // A new leader there knows less of when nothing has committed, but of no fewer transactions.
            if is_gap {
                sending.begin_again(to, now);
                sending.is_known = true;
            }
            (sending.sent, sending.acknowledged) = (to, to);
        }
        sending.acknowledged = sending.acknowledged.max(to);
        while sending.on_its_way.front().is_some_and(|(last, _)| *last <= to) {
            sending.on_its_way.pop_front();
        }
        if sending.copying.is_none() && self.has_to_copy(site) {
            self.begin_copy(site, to, cx);
        }
    }

    /// Tells the log what other sites have, so that it need not be kept, or gives a site up that lacks too much.
    pub(super) fn acknowledge(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now();
        if self.exchange.acknowledged_at.is_some_and(|at| now.since(at) < ACKNOWLEDGED_EVERY) {
            return;
        }
        self.exchange.acknowledged_at = Some(now);
        let sites = &self.machine.sites;
        let mut acknowledged = sites.acknowledged.clone();
        for site in self.other_sites() {
            let sending = &self.exchange.sending[site];
            let last = self.machine.outbox.last_up_to(sending.acknowledged);
            acknowledged[site] = acknowledged[site].max(last.unwrap_or_default());
        }
        let bytes = self.machine.outbox.bytes() as u64;
        let most = self.settings.site_backlog_bytes;
        // A site that copies would have to begin again.
        let is_kept = |site: &usize| {
            let is_copying = self.exchange.sending[*site].copying.is_some();
            !sites.given_up[*site] && (!is_copying || bytes > most.saturating_mul(COPYING_TIMES))
        };
        let slowest = self.other_sites().filter(is_kept).min_by_key(|site| acknowledged[*site]);
        if acknowledged != sites.acknowledged {
            self.log.propose_led(Entry::Acknowledged(acknowledged), cx);
        }
        if let Some(site) = slowest.filter(|_| bytes > most) {
            self.log.propose_led(Entry::GiveUp(site as u16), cx);
        }
    }
}

const _: () = assert!(SHIPPED_EVERY.as_millis() < AGAIN_AFTER.as_millis());

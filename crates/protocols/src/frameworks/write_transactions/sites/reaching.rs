//! Sessions that come from another site: they go on here once this site has what they have seen there.

use core::time::Duration;

use serried_actor::Timestamp;
use serried_model::{NodeId, Versionstamp};

use super::super::Mutation;
use super::super::message::Answer;
use super::super::replica::{Cx, QUEUED_AT_MOST, Replica};

/// After how long a request is forgotten. Its client sends it again, if it still waits.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// A session that waits.
#[derive(Debug)]
pub(super) struct Reaching {
    site: usize,
    stamp: Versionstamp,
    /// How often that site had been rebuilt then, if it matters.
    era: Option<u32>,
    /// What its site had admitted then, by site, once that is known.
    needs: Option<Vec<Versionstamp>>,
    since: Timestamp,
}

impl Replica {
    /// A site had admitted this when its clock showed `at`.
    pub(super) fn has_admitted(&mut self, site: usize, at: Versionstamp, cut: Vec<Versionstamp>) {
        let admitted = &mut self.exchange.receiving[site].admitted;
        if at >= admitted.0 {
            *admitted = (at, cut);
        }
    }

    /// A client asks for the clock once all can be read here that could be read at `site` when its clocks showed
    /// `stamp`, and it had been rebuilt `era` times.
    pub(in super::super) fn reach(
        &mut self,
        client: (NodeId, u64),
        (site, stamp, era): (u16, Versionstamp, Option<u32>),
        cx: &mut Cx<'_>,
    ) {
        let (site, since) = (usize::from(site), cx.now());
        if self.exchange.reaching.len() < QUEUED_AT_MOST {
            let reaching = Reaching { site, stamp, era, needs: None, since };
            self.exchange.reaching.entry(client).or_insert(reaching);
        }
        self.answer_reached(cx);
    }

    /// Answers those that need not wait any more.
    pub(super) fn answer_reached(&mut self, cx: &mut Cx<'_>) {
        if self.exchange.reaching.is_empty() {
            return;
        }
        let now = cx.now();
        let mut all = core::mem::take(&mut self.exchange.reaching);
        all.retain(|client, reaching| {
            let Reaching { site, stamp, era, needs, since } = reaching;
            let known = self.machine.sites.eras[*site];
            let era = era.filter(|_| !self.mutation.is(Mutation::ErasNotChecked));
            if era.is_some_and(|era| era < known) {
                let clock = self.clock(cx);
                Self::answer(*client, Answer::Rebuilt { clock }, cx);
                return false;
            }
            let (at, cut) = &self.exchange.receiving[*site].admitted;
            if needs.is_none() && at >= stamp {
                *needs = Some(cut.clone());
            }
            let has = |site: usize, up_to: Versionstamp| self.admitted_of(site) >= up_to;
            let are_met = needs.as_ref().is_some_and(|needs| {
                let mut others = self.other_sites().filter(|other| other != site);
                others.all(|other| needs.get(other).is_none_or(|needed| has(other, *needed)))
            });
            if are_met && has(*site, *stamp) && era.is_none_or(|era| era == known) {
                let clock = self.clock(cx);
                Self::answer(*client, Answer::Clock(clock), cx);
                return false;
            }
            now.since(*since) < FORGOTTEN_AFTER
        });
        self.exchange.reaching = all;
    }
}

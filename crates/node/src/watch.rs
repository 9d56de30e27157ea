//! Recording what happens at a core, for a client that watches it.
//!
//! If several clients could watch at once, each with its own keys, there would be no bound on what a node holds and
//! sends. So a core serves one at a time. While there is none, its replicas do not even make observations. What a watch
//! takes is bounded: 512 counters of keys, a chunk of 32 KiB, and 4 MiB on the link, or half of what may wait there, before it
//! forgets what it observes. It sends at most 2^18 observations, and ends by itself after at most four minutes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serried_actor::{Observation, Observed, Timestamp};
use serried_model::{Key, NodeId};
use serried_windows::Hottest;
use serried_wire::{Kind, LinkId, Links, Recorded, Shards, WatchReply, WatchRequest, encode};

/// How many keys are counted while the hottest are looked for.
const COUNTED_KEYS: usize = 512;
/// The most keys that are recorded.
const MOST_KEYS: usize = 64;
/// The longest that keys are counted, and the longest that they are recorded.
const MOST_TIME: Duration = Duration::from_secs(120);
/// The longest frame, in bytes. Receivers accept at least twice as much.
const CHUNK_BYTES: usize = 32 << 10;
/// While more bytes than this wait for the watcher, observations are forgotten.
const MOST_WAITING_BYTES: usize = 4 << 20;
/// The most observations that are sent in a watch. Later ones are forgotten.
const MOST_SENT: usize = 1 << 18;

/// A core's watch, if there is one.
#[derive(Default)]
pub(crate) struct Watcher(Option<Watch>);

impl Watcher {
    /// The watch, if it includes the replica in a slot.
    pub(crate) fn of(&mut self, place: usize) -> Option<&mut Watch> {
        self.0.as_mut().filter(|watch| watch.shards.contains(&place))
    }

    /// A client wants to watch.
    pub(crate) fn begin(
        &mut self,
        (link, request): (LinkId, u64),
        wanted: WatchRequest,
        shards: &Shards,
        now: Timestamp,
        links: &mut Links,
    ) {
        let reply = match self.judge(&wanted, shards) {
            Ok(shards) => {
                self.0 = Some(Watch::new(link, request, wanted, shards, now));
                WatchReply::Began
            }
            Err(reason) => WatchReply::Refused(reason),
        };
        links.push_frame(link, Kind::WatchReply, &encode(&(request, reply)));
    }

    /// The shards to watch, unless the request can't be served.
    fn judge(&self, wanted: &WatchRequest, shards: &Shards) -> Result<Range<usize>, String> {
        if self.0.is_some() {
            return Err("another client watches it: try again when that one is done".to_string());
        }
        let count = wanted.keys.len().max(usize::from(wanted.hottest));
        if !(1..=MOST_KEYS).contains(&count) {
            return Err(format!("{count} keys can't be watched: ask for 1 to {MOST_KEYS}"));
        }
        if wanted.count > MOST_TIME || wanted.record > MOST_TIME {
            return Err(format!("it can be watched for {MOST_TIME:?} at most"));
        }
        shards.of_keyspace(wanted.keyspace).ok_or_else(|| "it has no such keyspace".to_string())
    }

    /// A client has seen enough.
    pub(crate) fn end(&mut self, by: (LinkId, u64), now: Timestamp, links: &mut Links) {
        if let Some(mut watch) = self.0.take_if(|watch| (watch.link, watch.request) == by) {
            watch.finish(now, links);
        }
    }

    /// A link has ended, and a watcher at its other end with it.
    pub(crate) fn lost(&mut self, link: LinkId) {
        self.0.take_if(|watch| watch.link == link);
    }

    /// When it has something to do.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.0.as_ref().map(|watch| watch.until)
    }

    /// Does what is due.
    pub(crate) fn advance(&mut self, now: Timestamp, links: &mut Links) {
        let Some(watch) = self.0.as_mut().filter(|watch| watch.until <= now) else { return };
        match &watch.stage {
            Stage::Counting { hottest, keys, record } => {
                watch.until = now + *record;
                let keys = hottest.first(*keys).into_iter().collect();
                watch.stage = Stage::Recording { from: now, keys };
            }
            Stage::Recording { .. } => {
                watch.finish(now, links);
                self.0 = None;
            }
        }
    }
}

/// One client's watch.
pub(crate) struct Watch {
    link: LinkId,
    request: u64,
    shards: Range<usize>,
    stage: Stage,
    /// When the stage is over.
    until: Timestamp,
    /// What was observed in an event; empty between events.
    pub(crate) observations: Vec<Observation>,
    chunk: Vec<Observed>,
    chunk_bytes: usize,
    sent: usize,
    forgotten: u64,
    /// How many transactions committed while it recorded, how many of these at partitions that are led here, and how many
    /// attempts were aborted at those.
    committed: u64,
    committed_where_it_leads: u64,
    aborted: u64,
    /// How many committed before that.
    committed_before: u64,
}

enum Stage {
    /// Looks for so many keys that are written most.
    Counting {
        hottest: Hottest,
        keys: usize,
        record: Duration,
    },
    Recording {
        from: Timestamp,
        keys: BTreeSet<Key>,
    },
}

impl Watch {
    fn new(
        link: LinkId,
        request: u64,
        wanted: WatchRequest,
        shards: Range<usize>,
        now: Timestamp,
    ) -> Watch {
        let WatchRequest { keys, hottest, count, record, .. } = wanted;
        let (stage, time) = match keys.is_empty() {
            true => {
                let (keys, hottest) = (usize::from(hottest), Hottest::new(COUNTED_KEYS));
                (Stage::Counting { hottest, keys, record }, count)
            }
            false => (Stage::Recording { from: now, keys: keys.into_iter().collect() }, record),
        };
        Watch {
            link,
            request,
            shards,
            stage,
            until: now + time,
            observations: Vec::new(),
            chunk: Vec::new(),
            chunk_bytes: 0,
            sent: 0,
            forgotten: 0,
            committed: 0,
            committed_where_it_leads: 0,
            aborted: 0,
            committed_before: 0,
        }
    }

    /// Takes what was observed in an event.
    pub(crate) fn take(&mut self, node: NodeId, now: Timestamp, links: &mut Links) {
        let mut observations = std::mem::take(&mut self.observations);
        let records = matches!(self.stage, Stage::Recording { .. });
        for what in observations.drain(..) {
            match &what {
                Observation::Committed { leads, .. } if records => {
                    self.committed += 1;
                    self.committed_where_it_leads += u64::from(*leads);
                }
                Observation::Committed { .. } => self.committed_before += 1,
                Observation::Aborted { .. } if records => self.aborted += 1,
                _ => {}
            }
            match &mut self.stage {
                Stage::Counting { hottest, .. } => {
                    if let Observation::Committed { writes, .. } = &what {
                        writes.iter().for_each(|key| hottest.count(key));
                    }
                }
                Stage::Recording { keys, .. } if concerns(&what, keys) => {
                    self.record(Observed { at_ns: now.0, node, what }, links);
                }
                Stage::Recording { .. } => {}
            }
        }
        self.observations = observations;
    }

    fn record(&mut self, observed: Observed, links: &mut Links) {
        let bytes = most_bytes(&observed.what);
        if bytes > CHUNK_BYTES || self.sent + self.chunk.len() >= MOST_SENT {
            self.forgotten += 1;
            return;
        }
        if self.chunk_bytes + bytes > CHUNK_BYTES {
            self.send_chunk(links);
        }
        self.chunk_bytes += bytes;
        self.chunk.push(observed);
    }

    fn send_chunk(&mut self, links: &mut Links) {
        let chunk = std::mem::take(&mut self.chunk);
        self.chunk_bytes = 0;
        if links.is_crowded(self.link, MOST_WAITING_BYTES) {
            self.forgotten += chunk.len() as u64;
        } else if !chunk.is_empty() {
            self.sent += chunk.len();
            self.reply(WatchReply::Observed(chunk), links);
        }
    }

    fn finish(&mut self, now: Timestamp, links: &mut Links) {
        self.send_chunk(links);
        let from = match &self.stage {
            Stage::Counting { .. } => now,
            Stage::Recording { from, .. } => *from,
        };
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let recorded = Recorded {
            from_ns: from.0,
            until_ns: now.0,
            forgotten: self.forgotten,
            until_us: wall.as_micros() as u64,
            committed: self.committed,
            committed_where_it_leads: self.committed_where_it_leads,
            aborted: self.aborted,
            committed_before: self.committed_before,
        };
        self.reply(WatchReply::Ended(recorded), links);
    }

    fn reply(&self, reply: WatchReply, links: &mut Links) {
        links.push_frame(self.link, Kind::WatchReply, &encode(&(self.request, reply)));
    }
}

/// Whether windows of these keys can be computed from it.
fn concerns(what: &Observation, keys: &BTreeSet<Key>) -> bool {
    match what {
        Observation::Written { key, .. } | Observation::Read { key, .. } => keys.contains(key),
        Observation::Committed { reads, writes, .. } => {
            let mut touched = reads.iter().map(|(key, _)| key).chain(writes);
            touched.any(|key| keys.contains(key))
        }
        Observation::Aborted { .. } => false,
    }
}

/// The most bytes that an observation, with its time and place, takes in a frame. No number takes more than ten.
fn most_bytes(what: &Observation) -> usize {
    const FIXED: usize = 80;
    let key_bytes = |key: &Key| key.as_bytes().len() + 10;
    FIXED
        + match what {
            Observation::Written { key, .. } | Observation::Read { key, .. } => key_bytes(key),
            Observation::Committed { reads, writes, .. } => {
                reads.iter().map(|(key, _)| key_bytes(key) + 20).sum::<usize>()
                    + writes.iter().map(key_bytes).sum::<usize>()
            }
            Observation::Aborted { .. } => 0,
        }
}

#[cfg(test)]
mod tests;

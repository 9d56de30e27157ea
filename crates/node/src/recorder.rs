//! Recording what the clients of a keyspace do, for one of them.
//!
//! Clients report transactions to the first core of a node that asks them to, and the core passes the reports on. While
//! nobody records, clients send none. A core serves one recorder at a time, for at most ten minutes, and keeps nothing
//! but what waits on the recorder's link: 8 MiB before it drops reports, or half of what may wait there if that is less. It
//! counts what it drops. When the time is over, it tells clients, and waits for a moment for what they have not sent yet.

use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::NodeId;
use serried_wire::{
    BadFrame, Kind, LinkId, Links, MOST_REPORT_BYTES, RecordReply, RecordRequest, Report,
    ReportRequest, Shards, decode, encode,
};

/// The longest recording.
const MOST_TIME: Duration = Duration::from_secs(600);
/// After the end, reports are awaited for this long: a round trip around the world, and the pause between reports.
const GRACE: Duration = Duration::from_millis(500);
/// While more bytes than this wait for the recorder, reports are dropped.
const MOST_WAITING_BYTES: usize = 8 << 20;

/// A core's recording, if there is one.
#[derive(Default)]
pub(crate) struct Recorder {
    recording: Option<Recording>,
    /// The number of the last recording.
    last: u64,
    /// Clients that have connected and were not asked yet.
    newcomers: Vec<LinkId>,
}

struct Recording {
    /// The recorder, and its number for the recording.
    by: (LinkId, u64),
    number: u64,
    keyspace: u64,
    began: Timestamp,
    until: Timestamp,
    /// Whether clients were told that no more is wanted.
    is_over: bool,
    missed: u64,
    /// Whether the recorder's connection is lost.
    is_lost: bool,
}

impl Recording {
    fn asked(&self, now: Timestamp) -> ReportRequest {
        ReportRequest {
            recording: self.number,
            keyspace: self.keyspace,
            elapsed: now.since(self.began),
            lasts: self.until.since(now),
        }
    }

    fn reply(&self, reply: &RecordReply, links: &mut Links) {
        let (link, request) = self.by;
        links.push_frame(link, Kind::RecordReply, &encode(&(request, reply)));
    }
}

impl Recorder {
    /// A client wants to record.
    pub(crate) fn begin(
        &mut self,
        by: (LinkId, u64),
        wanted: &RecordRequest,
        shards: &Shards,
        now: Timestamp,
        links: &mut Links,
    ) {
        self.advance(now, links);
        if let Err(reason) = self.judge(wanted, shards) {
            let (link, request) = by;
            let reply = (request, RecordReply::Refused(reason));
            return links.push_frame(link, Kind::RecordReply, &encode(&reply));
        }
        self.last += 1;
        let recording = Recording {
            by,
            number: self.last,
            keyspace: wanted.keyspace,
            began: now,
            until: now + wanted.lasts,
            is_over: false,
            missed: 0,
            is_lost: false,
        };
        recording.reply(&RecordReply::Began, links);
        links.push_frame_to_clients(Kind::ReportRequest, &encode(&Some(recording.asked(now))));
        self.newcomers.clear();
        self.recording = Some(recording);
    }

    fn judge(&self, wanted: &RecordRequest, shards: &Shards) -> Result<(), String> {
        if self.recording.is_some() {
            return Err("another client records: try again when that one is done".to_string());
        }
        if wanted.lasts > MOST_TIME {
            return Err(format!("it can be recorded for {MOST_TIME:?} at most"));
        }
        match shards.of_keyspace(wanted.keyspace) {
            Some(_) => Ok(()),
            None => Err("it has no such keyspace".to_string()),
        }
    }

    /// A client reports transactions, in the payload of a frame.
    ///
    /// # Errors
    /// If it is no report, or longer than any that a client sends.
    pub(crate) fn take(
        &mut self,
        from: NodeId,
        payload: &[u8],
        now: Timestamp,
        links: &mut Links,
    ) -> Result<(), BadFrame> {
        let (bytes, limit) = (payload.len(), MOST_REPORT_BYTES);
        if bytes > limit {
            if let Some(recording) = &mut self.recording {
                recording.missed = recording.missed.saturating_add(1); // One at least.
            }
            return Err(BadFrame::TooLong { bytes, limit }); // Decoded, it would take many times as much memory.
        }
        let report: Report = decode(Kind::Report, payload)?;
        self.advance(now, links);
        let Some(recording) = &mut self.recording else { return Ok(()) };
        if report.recording != recording.number {
            return Ok(()); // An earlier recording.
        }
        // A client may claim to have missed any number.
        recording.missed = recording.missed.saturating_add(report.missed);
        if links.is_crowded(recording.by.0, MOST_WAITING_BYTES) {
            recording.missed = recording.missed.saturating_add(report.transactions.len() as u64);
        } else {
            recording.reply(&RecordReply::Reported(from, report.transactions), links);
        }
        Ok(())
    }

    /// A client has recorded enough.
    pub(crate) fn end(&mut self, by: (LinkId, u64), now: Timestamp, links: &mut Links) {
        if let Some(recording) = self.recording.as_mut().filter(|recording| recording.by == by) {
            recording.until = recording.until.min(now);
            self.advance(now, links);
        }
    }

    fn tell_clients(recording: &mut Recording, links: &mut Links) {
        if !std::mem::replace(&mut recording.is_over, true) {
            links.push_frame_to_clients(Kind::ReportRequest, &encode(&None::<ReportRequest>));
        }
    }

    fn finish(&mut self, links: &mut Links) {
        let Some(mut recording) = self.recording.take() else { return };
        Self::tell_clients(&mut recording, links);
        recording.reply(&RecordReply::Ended { missed: recording.missed }, links);
    }

    /// A link has its connection. If a client is at its other end, it is asked for reports.
    pub(crate) fn connected(&mut self, link: LinkId) {
        if self.recording.as_ref().is_some_and(|recording| !recording.is_over) {
            self.newcomers.push(link);
        }
    }

    /// A link has ended, and a recorder at its other end with it.
    pub(crate) fn lost(&mut self, link: LinkId) {
        self.newcomers.retain(|newcomer| *newcomer != link);
        if let Some(recording) = &mut self.recording {
            recording.is_lost |= recording.by.0 == link;
        }
    }

    /// When it has something to do.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let recording = self.recording.as_ref()?;
        let is_urgent = recording.is_lost || !self.newcomers.is_empty();
        Some(match (is_urgent, recording.is_over) {
            (true, _) => recording.began,
            (false, false) => recording.until,
            (false, true) => recording.until + GRACE,
        })
    }

    /// Does what is due.
    pub(crate) fn advance(&mut self, now: Timestamp, links: &mut Links) {
        let Some(recording) = &mut self.recording else { return };
        if recording.is_lost || recording.until + GRACE <= now {
            return self.finish(links);
        }
        if recording.until <= now {
            self.newcomers.clear();
            return Self::tell_clients(recording, links);
        }
        let asked = encode(&Some(recording.asked(now)));
        for newcomer in self.newcomers.drain(..) {
            links.push_frame_to_client(newcomer, Kind::ReportRequest, &asked);
        }
    }
}

#[cfg(test)]
mod tests;

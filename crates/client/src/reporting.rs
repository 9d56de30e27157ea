//! What a client reports of its transactions while a node asks for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serried_actor::Timestamp;
use serried_model::{Key, TransactionReport};
use serried_wire::{Kind, LinkId, Links, MOST_REPORT_BYTES, Report, ReportRequest, encode};

/// While more bytes than this wait on the link, transactions are not reported.
const MOST_WAITING_BYTES: usize = 4 << 20;

/// The recording that a client reports to, if there is one.
#[derive(Default)]
pub(crate) struct Reporting {
    wanted: Option<Wanted>,
    recorded: Recorded,
}

struct Wanted {
    link: LinkId,
    request: ReportRequest,
    /// When the request came.
    since: Timestamp,
    /// How many transactions were not reported since the last report.
    missed: u64,
}

/// Which keyspace is recorded. Sessions look at this after every transaction, so it takes no lock.
#[derive(Clone, Default)]
pub(crate) struct Recorded(Arc<AtomicU64>);

impl Recorded {
    /// Whether it is the keyspace with this number.
    pub(crate) fn is(&self, keyspace: u64) -> bool {
        self.0.load(Ordering::Relaxed) == keyspace.wrapping_add(1)
    }

    /// Sets the keyspace, by its number. The greatest number is no keyspace's.
    fn set(&self, keyspace: Option<u64>) {
        self.0.store(keyspace.map_or(0, |keyspace| keyspace.wrapping_add(1)), Ordering::Relaxed);
    }
}

impl Reporting {
    /// Which keyspace is recorded.
    pub(crate) fn recorded(&self) -> Recorded {
        self.recorded.clone()
    }

    /// A node asks for reports, or wants no more of them.
    pub(crate) fn ask(&mut self, link: LinkId, request: Option<ReportRequest>, now: Timestamp) {
        match request {
            Some(request) => {
                self.wanted = Some(Wanted { link, request, since: now, missed: 0 });
            }
            None => drop(self.wanted.take_if(|wanted| wanted.link == link)),
        }
        self.recorded.set(self.wanted.as_ref().map(|wanted| wanted.request.keyspace));
    }

    /// A link has ended, and with it what the node at its other end wanted.
    pub(crate) fn lost(&mut self, link: LinkId) {
        self.ask(link, None, Timestamp(0));
    }

    /// Reports a transaction of a keyspace, unless it began before the recording.
    pub(crate) fn report(
        &mut self,
        keyspace: u64,
        mut transaction: TransactionReport<Key>,
        now: Timestamp,
        links: &mut Links,
    ) {
        let Some(wanted) = self.wanted.as_mut() else { return };
        let Wanted { link, request, since, missed } = wanted;
        if now >= *since + request.lasts {
            let link = *link;
            return self.ask(link, None, now);
        }
        if request.keyspace != keyspace || transaction.began_ns < since.0 {
            return;
        }
        let elapsed_ns = u64::try_from(request.elapsed.as_nanos()).unwrap_or(u64::MAX);
        for time in [&mut transaction.began_ns, &mut transaction.ended_ns] {
            *time = (*time - since.0).saturating_add(elapsed_ns);
        }
        let report = Report { recording: request.recording, missed: *missed, transaction };
        let frame = encode(&report);
        if frame.len() > MOST_REPORT_BYTES || links.is_behind(*link, MOST_WAITING_BYTES) {
            *missed += 1;
        } else {
            *missed = 0;
            links.push_frame(*link, Kind::Report, &frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serried_model::{Form, ReportedRead};
    use serried_wire::{End, LinkOptions};

    use super::*;

    fn open(links: &mut Links, core: usize) -> LinkId {
        links.open(LinkOptions {
            end: End::Core { member: 0, core },
            route: true,
            internal: false,
            delay: Duration::ZERO,
            frame_bytes: 64 << 10,
            most_waiting_bytes: 64 << 20,
        })
    }

    fn request(keyspace: u64) -> ReportRequest {
        let (elapsed, lasts) = (Duration::from_nanos(500), Duration::from_secs(1));
        ReportRequest { recording: 3, keyspace, elapsed, lasts }
    }

    fn transaction(began_ns: u64, key: &str) -> TransactionReport<Key> {
        let read = ReportedRead { key: Key::from(key), round: 0, for_update: false, bytes: None };
        TransactionReport {
            began_ns,
            ended_ns: began_ns + 10,
            attempts: 1,
            form: Form::ReadOnly,
            reads: vec![read],
            writes: Vec::new(),
            modifies: Vec::new(),
        }
    }

    #[test]
    fn only_transactions_of_the_recorded_keyspace_within_the_recording_are_reported() {
        let mut links = Links::new();
        let (link, other) = (open(&mut links, 0), open(&mut links, 1));
        let mut reporting = Reporting::default();
        let recorded = reporting.recorded();
        let mut report = |reporting: &mut Reporting, keyspace, began_ns, now| {
            let before = links.waiting_bytes();
            reporting.report(keyspace, transaction(began_ns, "key"), Timestamp(now), &mut links);
            links.waiting_bytes() != before
        };
        assert!(!recorded.is(7) && !report(&mut reporting, 7, 150, 160));
        reporting.ask(link, Some(request(7)), Timestamp(100));
        assert!(recorded.is(7) && !recorded.is(6) && !recorded.is(u64::MAX));
        assert!(report(&mut reporting, 7, 150, 160));
        assert!(!report(&mut reporting, 6, 150, 160), "another keyspace");
        assert!(!report(&mut reporting, 7, 99, 160), "it began before");
        reporting.lost(other);
        assert!(recorded.is(7) && report(&mut reporting, 7, 150, 160));
        assert!(!report(&mut reporting, 7, 150, 1_000_000_100), "the time is over");
        assert!(!recorded.is(7));
        reporting.ask(link, Some(request(7)), Timestamp(100));
        reporting.lost(link);
        assert!(!recorded.is(7));
    }

    #[test]
    fn what_is_too_long_to_report_is_counted() {
        let mut links = Links::new();
        let link = open(&mut links, 0);
        let mut reporting = Reporting::default();
        reporting.ask(link, Some(request(7)), Timestamp(100));
        let missed = |reporting: &Reporting| reporting.wanted.as_ref().map(|wanted| wanted.missed);
        let long = "k".repeat(MOST_REPORT_BYTES);
        reporting.report(7, transaction(150, &long), Timestamp(170), &mut links);
        reporting.report(7, transaction(150, &long), Timestamp(170), &mut links);
        assert_eq!(missed(&reporting), Some(2));
        reporting.report(7, transaction(150, "short"), Timestamp(170), &mut links);
        assert_eq!(missed(&reporting), Some(0));
    }
}

//! What a client reports of its transactions while a node asks for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::{Key, TransactionReport};
use serried_wire::{End, Kind, LinkId, Links, MOST_REPORT_BYTES, Report, ReportRequest, encode};

/// While more bytes than this wait on the link, or half of what may wait there, transactions are not reported.
const MOST_WAITING_BYTES: usize = 4 << 20;
/// The times that a node's requests take to come differ by less than this.
const JITTER: Duration = Duration::from_secs(1);
/// Reports are collected for this long after others were sent, because every frame costs system calls.
const PAUSE: Duration = Duration::from_millis(5);
/// The most bytes of transactions in a report. What else it has takes less than the rest.
const MOST_BYTES: usize = MOST_REPORT_BYTES - 32;

/// The recordings that a client reports to: at most one for each node.
#[derive(Default)]
pub(crate) struct Reporting {
    wanted: Vec<Wanted>,
    recorded: RecordedKeyspaces,
}

/// What a node wants.
struct Wanted {
    /// None while the node can't be reached. It may ask again.
    link: Option<LinkId>,
    /// The node, if it is known.
    end: Option<End>,
    request: ReportRequest,
    /// When the request came.
    since: Timestamp,
    /// When the recording was first asked for: `since`, unless the link was lost and the node has asked again.
    first: Timestamp,
    /// How many transactions were not reported since the last report.
    missed: u64,
    /// What is to be sent, and how many bytes it takes at most.
    transactions: Vec<TransactionReport<Key>>,
    bytes: usize,
    /// When something was sent last.
    sent_at: Timestamp,
}

impl Wanted {
    fn new(link: LinkId, end: Option<End>, request: ReportRequest, now: Timestamp) -> Wanted {
        Wanted {
            link: Some(link),
            end,
            request,
            since: now,
            first: now,
            missed: 0,
            transactions: Vec::new(),
            bytes: 0,
            sent_at: Timestamp(0),
        }
    }

    /// Whether a request is for the recording that this is for. A node that was started again may give another recording the
    /// same number, but that begins later.
    fn is_for(&self, request: &ReportRequest, now: Timestamp) -> bool {
        let ReportRequest { recording, keyspace, elapsed, .. } = self.request;
        (recording, keyspace) == (request.recording, request.keyspace)
            && request.elapsed.saturating_add(JITTER)
                >= elapsed.saturating_add(now.since(self.since))
    }

    /// Takes a transaction of a keyspace, unless another one is recorded or it began before the recording.
    fn take(
        &mut self,
        keyspace: u64,
        mut transaction: TransactionReport<Key>,
        now: Timestamp,
        links: &mut Links,
    ) {
        let Wanted { link, request, since, first, .. } = *self;
        if request.keyspace != keyspace || transaction.began_ns < first.0 {
            return;
        }
        if link.is_none() || transaction.began_ns < since.0 {
            self.missed += 1;
            return;
        }
        let elapsed_ns = u64::try_from(request.elapsed.as_nanos()).unwrap_or(u64::MAX);
        for time in [&mut transaction.began_ns, &mut transaction.ended_ns] {
            *time = (*time - since.0).saturating_add(elapsed_ns);
        }
        let bytes = most_bytes(&transaction);
        if bytes > MOST_BYTES {
            self.missed += 1;
            return;
        }
        if self.bytes + bytes > MOST_BYTES {
            self.send(now, links);
        }
        self.transactions.push(transaction);
        self.bytes += bytes;
    }

    fn is_over(&self, now: Timestamp) -> bool {
        now >= self.since + self.request.lasts
    }

    /// When there is something to send.
    fn due(&self) -> Option<Timestamp> {
        let has_something = !self.transactions.is_empty() || self.missed > 0;
        (has_something && self.link.is_some()).then(|| self.sent_at + PAUSE)
    }

    fn send(&mut self, now: Timestamp, links: &mut Links) {
        let Some(link) = self.link else { return };
        let transactions = std::mem::take(&mut self.transactions);
        self.bytes = 0;
        self.sent_at = now;
        if links.is_crowded(link, MOST_WAITING_BYTES) {
            self.missed += transactions.len() as u64;
        } else if !transactions.is_empty() || self.missed > 0 {
            self.push(link, transactions, links);
        }
    }

    fn push(&mut self, link: LinkId, transactions: Vec<TransactionReport<Key>>, links: &mut Links) {
        let missed = std::mem::take(&mut self.missed);
        let report = Report { recording: self.request.recording, missed, transactions };
        links.push_frame(link, Kind::Report, &encode(&report));
    }

    /// Sends what is left. The number of what is missed is sent even if the link is behind.
    fn finish(mut self, now: Timestamp, links: &mut Links) {
        self.send(now, links);
        if let Some(link) = self.link.filter(|_| self.missed > 0) {
            self.push(link, Vec::new(), links);
        }
    }

    /// The link is lost, and with it what was not sent. What was given to the link and not written there is not counted.
    fn lose(&mut self) {
        self.link = None;
        self.missed += std::mem::take(&mut self.transactions).len() as u64;
        self.bytes = 0;
    }
}

/// The most bytes that a transaction takes in a report. No number takes more than ten.
fn most_bytes(transaction: &TransactionReport<Key>) -> usize {
    const FIXED: usize = 64;
    const EACH: usize = 22;
    let modified = transaction.modifies.iter().map(|modify| modify.modifications.len());
    FIXED
        + transaction.keys().map(|key| key.len() + EACH).sum::<usize>()
        + modified.sum::<usize>() * EACH
}

/// Which keyspace is recorded: 0 for none, [`SEVERAL`], or one more than its number. Sessions look at this after every
/// transaction, so it takes no lock.
#[derive(Clone, Default)]
pub(crate) struct RecordedKeyspaces(Arc<AtomicU64>);

/// Several keyspaces are recorded.
const SEVERAL: u64 = u64::MAX;

impl RecordedKeyspaces {
    /// Whether the keyspace with this number may be recorded.
    pub(crate) fn has(&self, keyspace: u64) -> bool {
        let recorded = self.0.load(Ordering::Relaxed);
        recorded != 0 && (recorded == keyspace.wrapping_add(1) || recorded == SEVERAL)
    }

    /// Sets the keyspaces, by their numbers.
    fn set(&self, mut keyspaces: impl Iterator<Item = u64>) {
        let recorded =
            keyspaces.next().map_or(0, |first| match keyspaces.all(|other| other == first) {
                true => first.wrapping_add(1),
                false => SEVERAL,
            });
        self.0.store(recorded, Ordering::Relaxed);
    }
}

impl Reporting {
    /// Which keyspace is recorded.
    pub(crate) fn recorded(&self) -> RecordedKeyspaces {
        self.recorded.clone()
    }

    /// A node asks for reports, or wants no more of them. What it has not been sent of those before is sent.
    pub(crate) fn ask(
        &mut self,
        link: LinkId,
        request: Option<ReportRequest>,
        now: Timestamp,
        links: &mut Links,
    ) {
        for ended in self.wanted.extract_if(.., |wanted| wanted.link == Some(link)) {
            ended.finish(now, links);
        }
        let end = links.end(link);
        let is_lost = |wanted: &mut Wanted| wanted.link.is_none() && wanted.end == end;
        let lost: Vec<Wanted> = self.wanted.extract_if(.., is_lost).collect();
        if let Some(request) = request {
            let mut wanted = Wanted::new(link, end, request, now);
            if let Some(lost) = lost.iter().find(|lost| lost.is_for(&request, now)) {
                (wanted.first, wanted.missed) = (lost.first, lost.missed);
            }
            self.wanted.push(wanted);
        }
        self.note_keyspaces();
    }

    fn note_keyspaces(&self) {
        self.recorded.set(self.wanted.iter().map(|wanted| wanted.request.keyspace));
    }

    /// A link has ended. What the node at its other end can't be told is counted until it asks again.
    pub(crate) fn lost(&mut self, link: LinkId) {
        self.wanted.retain(|wanted| wanted.link != Some(link) || wanted.end.is_some());
        let lost = self.wanted.iter_mut().filter(|wanted| wanted.link == Some(link));
        lost.for_each(Wanted::lose);
        self.note_keyspaces();
    }

    /// Reports a transaction of a keyspace to those who record it. Returns when to call [`Reporting::advance`], if
    /// something is to be sent then.
    pub(crate) fn report(
        &mut self,
        keyspace: u64,
        transaction: &TransactionReport<Key>,
        now: Timestamp,
        links: &mut Links,
    ) -> Option<Timestamp> {
        let before = self.wanted.len();
        for ended in self.wanted.extract_if(.., |wanted| wanted.is_over(now)) {
            ended.finish(now, links);
        }
        if self.wanted.len() != before {
            self.note_keyspaces();
        }
        for wanted in &mut self.wanted {
            wanted.take(keyspace, transaction.clone(), now, links);
        }
        self.advance(now, links);
        self.due()
    }

    /// When there is something to send.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.wanted.iter().filter_map(Wanted::due).min()
    }

    /// Sends what is due.
    pub(crate) fn advance(&mut self, now: Timestamp, links: &mut Links) {
        let is_due = |wanted: &&mut Wanted| wanted.due().is_some_and(|due| due <= now);
        self.wanted.iter_mut().filter(is_due).for_each(|wanted| wanted.send(now, links));
    }
}

#[cfg(test)]
mod tests {
    use serried_model::{Form, ReportedRead};
    use serried_wire::{End, LinkOptions};

    use super::*;

    fn open(links: &mut Links, core: usize) -> LinkId {
        open_for(links, core, 64 << 20)
    }

    /// A link on which so much may wait.
    fn open_for(links: &mut Links, core: usize, most_waiting_bytes: usize) -> LinkId {
        links.open(LinkOptions {
            end: End::Core { member: 0, core },
            route: true,
            internal: false,
            delay: Duration::ZERO,
            frame_bytes: 64 << 10,
            most_waiting_bytes,
        })
    }

    /// A client that a node has asked at 100 ns to report what happens in keyspace 7.
    fn asked() -> (Links, LinkId, Reporting) {
        let mut links = Links::new();
        let link = open(&mut links, 0);
        let mut reporting = Reporting::default();
        reporting.ask(link, Some(request(7)), Timestamp(100), &mut links);
        (links, link, reporting)
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

    /// Now and then, so that what is reported is sent at once.
    const LATER: u64 = 10_000_000;

    #[test]
    fn only_transactions_of_the_recorded_keyspace_within_the_recording_are_reported() {
        let mut links = Links::new();
        let (link, other) = (open(&mut links, 0), open(&mut links, 1));
        let mut reporting = Reporting::default();
        let recorded = reporting.recorded();
        let mut now = 100;
        let mut report = |reporting: &mut Reporting, keyspace, began_ns| {
            let before = links.waiting_bytes();
            now += LATER;
            reporting.report(keyspace, &transaction(began_ns, "key"), Timestamp(now), &mut links);
            links.waiting_bytes() != before
        };
        assert!(!recorded.has(7) && !report(&mut reporting, 7, 150));
        reporting.ask(link, Some(request(7)), Timestamp(100), &mut Links::new());
        assert!(recorded.has(7) && !recorded.has(6) && !recorded.has(u64::MAX));
        assert!(report(&mut reporting, 7, 150));
        assert!(!report(&mut reporting, 6, 150), "another keyspace");
        assert!(!report(&mut reporting, 7, 99), "it began before");
        reporting.lost(other);
        assert!(recorded.has(7) && report(&mut reporting, 7, 150));
        let over = Timestamp(1_000_000_100);
        reporting.report(7, &transaction(150, "key"), over, &mut Links::new());
        assert!(!recorded.has(7), "the time is over");
        reporting.ask(link, Some(request(7)), Timestamp(100), &mut Links::new());
        reporting.lost(link);
        assert!(!recorded.has(7));
    }

    #[test]
    fn every_node_that_records_is_told_also_of_different_keyspaces() {
        let mut links = Links::new();
        let (link, other) = (open(&mut links, 0), open(&mut links, 1));
        let mut reporting = Reporting::default();
        let recorded = reporting.recorded();
        let sent = |reporting: &Reporting| -> Vec<bool> {
            reporting.wanted.iter().map(|wanted| wanted.sent_at > Timestamp(0)).collect()
        };
        reporting.ask(link, Some(request(7)), Timestamp(100), &mut links);
        reporting.ask(other, Some(request(8)), Timestamp(100), &mut links);
        assert!(recorded.has(7) && recorded.has(8));
        reporting.report(8, &transaction(150, "key"), Timestamp(LATER), &mut links);
        assert_eq!(sent(&reporting), [false, true]);
        reporting.ask(other, Some(request(7)), Timestamp(100), &mut links);
        assert!(recorded.has(7) && !recorded.has(8));
        reporting.report(7, &transaction(150, "key"), Timestamp(LATER), &mut links);
        assert_eq!(sent(&reporting), [true, true]);
        reporting.lost(link);
        assert!(recorded.has(7));
        reporting.ask(other, None, Timestamp(100), &mut links);
        assert!(recorded.has(7), "the one whose link is lost may ask again");
        let over = Timestamp(100) + request(7).lasts;
        reporting.report(7, &transaction(150, "key"), over, &mut links);
        assert!(!recorded.has(7));
    }

    #[test]
    fn what_is_reported_soon_after_other_reports_is_sent_together_a_little_later() {
        let (mut links, _, mut reporting) = asked();
        let mut report = |reporting: &mut Reporting, now| {
            reporting.report(7, &transaction(150, "key"), Timestamp(now), &mut links)
        };
        let due = LATER + PAUSE.as_nanos() as u64;
        assert_eq!(report(&mut reporting, LATER), None);
        assert_eq!(report(&mut reporting, LATER + 1), Some(Timestamp(due)));
        assert_eq!(report(&mut reporting, LATER + 2), Some(Timestamp(due)));
        let waiting = links.waiting_bytes();
        reporting.advance(Timestamp(due - 1), &mut links);
        assert_eq!((links.waiting_bytes(), reporting.due()), (waiting, Some(Timestamp(due))));
        reporting.advance(Timestamp(due), &mut links);
        assert!(links.waiting_bytes() != waiting && reporting.due().is_none());
    }

    #[test]
    fn what_is_too_long_to_report_is_counted() {
        let (mut links, _, mut reporting) = asked();
        let missed = |reporting: &Reporting| reporting.wanted.first().map(|wanted| wanted.missed);
        let long = "k".repeat(MOST_REPORT_BYTES);
        let report = |reporting: &mut Reporting, key: &str, now, links: &mut Links| {
            reporting.report(7, &transaction(150, key), Timestamp(now), links)
        };
        let due = Timestamp(LATER) + PAUSE;
        assert_eq!(report(&mut reporting, "short", LATER, &mut links), None);
        for _ in 0..2 {
            assert_eq!(report(&mut reporting, &long, LATER, &mut links), Some(due));
        }
        assert_eq!(missed(&reporting), Some(2));
        // The number is sent though there is no transaction to send.
        let waiting = links.waiting_bytes();
        reporting.advance(due, &mut links);
        assert_eq!((missed(&reporting), reporting.due()), (Some(0), None));
        assert!(links.waiting_bytes() > waiting);
    }

    #[test]
    fn what_is_left_is_sent_when_the_node_wants_no_more_and_counted_while_the_link_is_behind() {
        let (mut links, link, mut reporting) = asked();
        for _ in 0..2 {
            reporting.report(7, &transaction(150, "key"), Timestamp(LATER), &mut links);
        }
        let waiting = links.waiting_bytes();
        reporting.ask(link, None, Timestamp(LATER), &mut links);
        assert!(links.waiting_bytes() > waiting && reporting.due().is_none());
        // Nobody reads.
        while !links.is_behind(link, MOST_WAITING_BYTES) {
            links.push_frame(link, Kind::Report, &vec![0; 60 << 10]);
        }
        reporting.ask(link, Some(request(7)), Timestamp(100), &mut links);
        let due = reporting.report(7, &transaction(150, "key"), Timestamp(LATER), &mut links);
        assert_eq!(reporting.wanted[0].missed, 1);
        assert_eq!(due, Some(Timestamp(LATER) + PAUSE), "it is said later");
        let waiting = links.waiting_bytes();
        reporting.ask(link, None, Timestamp(LATER), &mut links);
        assert!(links.waiting_bytes() > waiting);
    }

    #[test]
    fn a_transaction_takes_no_more_bytes_than_it_is_reckoned_with() {
        use serried_model::{ReportedModification, ReportedModify, ReportedWrite};
        let key = || Key::from("k".repeat(300));
        let read =
            ReportedRead { key: key(), round: u32::MAX, for_update: true, bytes: Some(u32::MAX) };
        let modifications = vec![ReportedModification::Replace(Some(u32::MAX)); 40];
        let transaction = TransactionReport {
            began_ns: u64::MAX,
            ended_ns: u64::MAX,
            attempts: u32::MAX,
            form: Form::Batch,
            reads: vec![read; 20],
            writes: vec![ReportedWrite { key: key(), bytes: Some(u32::MAX) }; 20],
            modifies: vec![ReportedModify { key: key(), modifications }],
        };
        assert!(encode(&transaction).len() <= most_bytes(&transaction));
    }

    #[test]
    fn a_full_report_is_sent_before_another_transaction_is_added() {
        let (mut links, _, mut reporting) = asked();
        let long = "k".repeat(MOST_BYTES / 3);
        let mut sent = Vec::new();
        let mut note = |links: &Links, before: usize| sent.push(links.waiting_bytes().1 - before);
        for _ in 0..10 {
            let before = links.waiting_bytes().1;
            reporting.report(7, &transaction(150, &long), Timestamp(LATER), &mut links);
            note(&links, before);
        }
        let before = links.waiting_bytes().1;
        reporting.advance(Timestamp(LATER) + PAUSE, &mut links);
        note(&links, before);
        // A frame has a header beside the report.
        assert!(sent.iter().all(|bytes| *bytes <= MOST_REPORT_BYTES + 12), "{sent:?}");
        assert!(sent.iter().sum::<usize>() > 10 * long.len(), "{sent:?}");
        assert_eq!(reporting.wanted[0].missed, 0);
    }

    #[test]
    fn times_count_from_the_beginning_of_the_recording_also_where_a_client_is_asked_later() {
        let (mut links, _, mut reporting) = asked();
        for _ in 0..2 {
            reporting.report(7, &transaction(150, "key"), Timestamp(LATER), &mut links);
        }
        // The first one is sent at once. The recording had been going on for 500 ns when the client was asked at 100.
        let [waiting] = &reporting.wanted[0].transactions[..] else { panic!("the second waits") };
        assert_eq!((waiting.began_ns, waiting.ended_ns), (550, 560));
    }

    /// What is reported as missed after a link was lost and the node has asked again `later` by the client's clock, when so
    /// much of its recording was over.
    fn missed_after_loss(recording: u64, elapsed: Duration, later: Duration) -> u64 {
        let mut links = Links::new();
        let link = open(&mut links, 0);
        let mut reporting = Reporting::default();
        let began = Timestamp(100);
        reporting.ask(link, Some(request(7)), began, &mut links);
        // One is sent, and two wait.
        for _ in 0..3 {
            reporting.report(7, &transaction(150, "key"), Timestamp(LATER), &mut links);
        }
        links.remove(link);
        reporting.lost(link);
        assert!(reporting.recorded().has(7) && reporting.due().is_none());
        // Nobody can be told of this one.
        reporting.report(7, &transaction(150, "key"), Timestamp(LATER), &mut links);
        reporting.report(6, &transaction(150, "key"), Timestamp(LATER), &mut links);
        let (link, again) = (open(&mut links, 0), began + later);
        let asked = ReportRequest { recording, elapsed, ..request(7) };
        reporting.ask(link, Some(asked), again, &mut links);
        // It began before the link was lost, or before the recording.
        for began_ns in [again.0 - 1, began.0 - 1] {
            reporting.report(7, &transaction(began_ns, "key"), Timestamp(1000), &mut links);
        }
        assert_eq!(reporting.wanted.len(), 1);
        reporting.wanted[0].missed
    }

    #[test]
    fn what_was_missed_before_a_link_was_lost_is_reported_when_the_node_asks_again() {
        let half = Duration::from_millis(500);
        let ReportRequest { recording, elapsed, .. } = request(7);
        assert_eq!(missed_after_loss(recording, elapsed + half, half), 4);
        assert_eq!(missed_after_loss(recording + 1, elapsed + half, half), 0);
        assert_eq!(missed_after_loss(recording, Duration::MAX, half), 4);
        // Another recording of the same number has begun since.
        assert_eq!(missed_after_loss(recording, elapsed, JITTER * 2), 0);
    }

    #[test]
    fn a_node_that_does_not_ask_again_is_forgotten_when_its_recording_is_over() {
        let (mut links, link, mut reporting) = asked();
        links.remove(link);
        reporting.lost(link);
        reporting.report(
            7,
            &transaction(150, "key"),
            Timestamp(100) + request(7).lasts,
            &mut links,
        );
        assert!(reporting.wanted.is_empty() && !reporting.recorded().has(7));
    }

    #[test]
    fn reports_that_a_link_would_refuse_are_counted_however_little_may_wait_there() {
        let mut links = Links::new();
        let link = open_for(&mut links, 0, 1000);
        let mut reporting = Reporting::default();
        reporting.ask(link, Some(request(7)), Timestamp(100), &mut links);
        let (reports, mut sent) = (100, 0);
        for number in 1..=reports {
            let before = links.waiting_bytes();
            let now = Timestamp(LATER * number);
            reporting.report(7, &transaction(150, "key"), now, &mut links);
            sent += u64::from(links.waiting_bytes() != before);
        }
        assert!((1..reports).contains(&sent));
        assert_eq!(reporting.wanted[0].missed, reports - sent);
    }
}

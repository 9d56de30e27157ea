use serried_model::{Form, TransactionReport};
use serried_wire::{End, LinkOptions};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const START: Timestamp = Timestamp(1000);

fn open(links: &mut Links, client: u64) -> LinkId {
    links.open(LinkOptions {
        end: End::Client(NodeId(u64::MAX - client)),
        route: true,
        internal: false,
        delay: Duration::ZERO,
        frame_bytes: 64 << 10,
        most_waiting_bytes: 64 << 20,
    })
}

fn begin(recorder: &mut Recorder, by: (LinkId, u64), links: &mut Links) {
    let wanted = RecordRequest { keyspace: 1, lasts: SECOND };
    recorder.begin(by, &wanted, &Shards::new([(0, 1), (1, 2)]), START, links);
}

fn report(recording: u64, missed: u64) -> Vec<u8> {
    let (reads, writes, modifies) = (Vec::new(), Vec::new(), Vec::new());
    let form = Form::Program;
    let transaction =
        TransactionReport { began_ns: 1, ended_ns: 2, attempts: 1, form, reads, writes, modifies };
    encode(&Report { recording, missed, transactions: vec![transaction] })
}

fn recorded_by(recorder: &Recorder) -> Option<LinkId> {
    recorder.recording.as_ref().map(|recording| recording.by.0)
}

#[test]
fn one_client_records_at_a_time_and_its_end_makes_room() {
    let (mut links, mut recorder) = (Links::new(), Recorder::default());
    let (first, second) = (open(&mut links, 1), open(&mut links, 2));
    begin(&mut recorder, (first, 7), &mut links);
    begin(&mut recorder, (second, 7), &mut links);
    recorder.end((second, 7), START, &mut links);
    recorder.advance(START + GRACE, &mut links);
    assert_eq!(recorded_by(&recorder), Some(first), "it is not the second one's to end");
    recorder.end((first, 7), START + GRACE, &mut links);
    recorder.advance(START + GRACE * 2, &mut links);
    begin(&mut recorder, (second, 7), &mut links);
    assert_eq!(recorded_by(&recorder), Some(second));
    recorder.lost(second);
    assert!(recorder.due().is_some_and(|due| due <= START));
    begin(&mut recorder, (first, 8), &mut links);
    assert_eq!(recorded_by(&recorder), Some(first), "the other one's connection is lost");
}

#[test]
fn what_clients_send_shortly_after_the_end_still_counts() {
    for ends_early in [false, true] {
        let (mut links, mut recorder) = (Links::new(), Recorder::default());
        let (link, newcomer) = (open(&mut links, 1), open(&mut links, 2));
        begin(&mut recorder, (link, 7), &mut links);
        let end = if ends_early { START + SECOND / 2 } else { START + SECOND };
        match ends_early {
            true => recorder.end((link, 7), end, &mut links),
            false => recorder.advance(end, &mut links),
        }
        assert_eq!(recorder.due(), Some(end + GRACE));
        recorder.connected(newcomer);
        assert!(recorder.newcomers.is_empty(), "its time is over");
        let soon = end + GRACE / 2;
        recorder.take(NodeId(9), &report(1, 3), soon, &mut links).unwrap();
        assert_eq!(recorder.recording.as_ref().map(|recording| recording.missed), Some(3));
        recorder.advance(end + GRACE, &mut links);
        assert_eq!((recorded_by(&recorder), recorder.due()), (None, None));
    }
}

#[test]
fn reports_for_earlier_recordings_are_ignored_and_what_clients_have_missed_is_counted() {
    let (mut links, mut recorder) = (Links::new(), Recorder::default());
    let link = open(&mut links, 1);
    recorder.take(NodeId(9), &report(0, 5), START, &mut links).unwrap();
    begin(&mut recorder, (link, 7), &mut links);
    recorder.end((link, 7), START, &mut links);
    recorder.advance(START + GRACE, &mut links);
    begin(&mut recorder, (link, 8), &mut links);
    for (recording, missed) in [(1, 10), (2, 3), (2, 0), (3, 10)] {
        recorder.take(NodeId(9), &report(recording, missed), START, &mut links).unwrap();
    }
    assert_eq!(recorder.recording.as_ref().map(|recording| recording.missed), Some(3));
}

#[test]
fn a_recorder_that_does_not_keep_up_is_sent_no_more_and_what_it_missed_is_counted() {
    let (mut links, mut recorder) = (Links::new(), Recorder::default());
    let link = open(&mut links, 1);
    begin(&mut recorder, (link, 7), &mut links);
    for _ in 0..MOST_WAITING_BYTES / 10 {
        recorder.take(NodeId(9), &report(1, 0), START, &mut links).unwrap();
    }
    let missed = recorder.recording.as_ref().map_or(0, |recording| recording.missed);
    assert!(missed > 0);
    assert!(!links.is_behind(link, MOST_WAITING_BYTES + 1000));
}

#[test]
fn a_hostile_report_is_refused_if_it_is_too_long_and_can_not_make_the_count_overflow() {
    let (mut links, mut recorder) = (Links::new(), Recorder::default());
    let link = open(&mut links, 1);
    begin(&mut recorder, (link, 7), &mut links);
    let missed = |recorder: &Recorder| recorder.recording.as_ref().map(|it| it.missed);
    let mut long = report(1, 0);
    long.resize(MOST_REPORT_BYTES + 1, 0);
    let refused = recorder.take(NodeId(9), &long, START, &mut links);
    assert!(matches!(refused, Err(BadFrame::TooLong { .. })), "{refused:?}");
    assert_eq!(missed(&recorder), Some(1));
    for _ in 0..2 {
        recorder.take(NodeId(9), &report(1, u64::MAX), START, &mut links).unwrap();
    }
    assert_eq!(missed(&recorder), Some(u64::MAX));
    assert!(recorder.take(NodeId(9), &[0xff; 3], START, &mut links).is_err());
}

#[test]
fn a_client_that_connects_later_is_asked_too() {
    let (mut links, mut recorder) = (Links::new(), Recorder::default());
    let (link, newcomer) = (open(&mut links, 1), open(&mut links, 2));
    recorder.connected(newcomer);
    assert!(recorder.newcomers.is_empty(), "nobody records");
    begin(&mut recorder, (link, 7), &mut links);
    assert_eq!(recorder.due(), Some(START + SECOND));
    recorder.connected(newcomer);
    assert!(recorder.due().is_some_and(|due| due <= START));
    recorder.advance(START + SECOND / 4, &mut links);
    assert_eq!(recorder.due(), Some(START + SECOND));
    let asked = recorder.recording.as_ref().unwrap().asked(START + SECOND / 4);
    assert_eq!((asked.elapsed, asked.lasts), (SECOND / 4, SECOND * 3 / 4));
}

#[test]
fn what_can_not_be_recorded_is_refused() {
    let (recorder, shards) = (Recorder::default(), Shards::new([(7, 1)]));
    let judge = |keyspace, lasts| recorder.judge(&RecordRequest { keyspace, lasts }, &shards);
    assert_eq!(judge(7, MOST_TIME), Ok(()));
    assert!(judge(1, SECOND).unwrap_err().contains("no such keyspace"));
    assert!(judge(7, MOST_TIME + SECOND).unwrap_err().contains("at most"));
}

#[test]
fn a_recorder_is_not_cut_off_for_reports_however_little_may_wait_for_it() {
    let (mut links, mut recorder) = (Links::new(), Recorder::default());
    let link = links.open(LinkOptions {
        end: End::Client(NodeId(u64::MAX)),
        route: true,
        internal: false,
        delay: Duration::ZERO,
        frame_bytes: 64 << 10,
        most_waiting_bytes: 1000,
    });
    begin(&mut recorder, (link, 7), &mut links);
    for _ in 0..100 {
        recorder.take(NodeId(9), &report(1, 0), START, &mut links).unwrap();
    }
    assert!(recorder.recording.as_ref().is_some_and(|recording| recording.missed > 0));
    assert_eq!(links.given_up(link), None);
}

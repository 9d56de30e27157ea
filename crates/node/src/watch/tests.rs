use serried_model::Version;
use serried_wire::{End, LinkOptions};

use super::*;

const NODE: NodeId = NodeId(0);
const START: Timestamp = Timestamp(1000);
const SECOND: Duration = Duration::from_secs(1);

fn version(timestamp_us: u64) -> Version {
    Version { timestamp_us, coordinator: NodeId(u64::MAX) }
}

fn committed(timestamp_us: u64, writes: &[&str]) -> Observation {
    let writes = writes.iter().map(|key| Key::from(*key)).collect();
    Observation::Committed { version: version(timestamp_us), reads: vec![], writes, leads: true }
}

fn open(links: &mut Links) -> LinkId {
    links.open(LinkOptions {
        end: End::Client(NodeId(u64::MAX)),
        route: true,
        internal: false,
        delay: Duration::ZERO,
        frame_bytes: 64 << 10,
        most_waiting_bytes: 64 << 20,
    })
}

/// Asks for a keyspace's keys, or for the hottest one of its two partitions.
fn begin(watcher: &mut Watcher, link: LinkId, links: &mut Links, keys: &[&str]) {
    let keys = keys.iter().map(|key| Key::from(*key)).collect();
    let wanted = WatchRequest { keyspace: 1, keys, hottest: 1, count: SECOND, record: SECOND };
    watcher.begin((link, 7), wanted, &Shards::new([(0, 1), (1, 2), (2, 1)]), START, links);
}

fn observe(watcher: &mut Watcher, place: usize, what: Observation, links: &mut Links) {
    let watch = watcher.of(place).expect("a client watches");
    watch.observations.push(what);
    watch.take(NODE, START, links);
}

#[test]
fn only_the_keyspace_that_was_asked_for_is_watched() {
    let (mut links, mut watcher) = (Links::new(), Watcher::default());
    let link = open(&mut links);
    assert!((0..4).all(|place| watcher.of(place).is_none()));
    begin(&mut watcher, link, &mut links, &["a"]);
    let watched: Vec<bool> = (0..4).map(|place| watcher.of(place).is_some()).collect();
    assert_eq!(watched, [false, true, true, false]);
}

#[test]
fn the_key_that_was_written_most_is_recorded_and_no_other_one() {
    let (mut links, mut watcher) = (Links::new(), Watcher::default());
    let link = open(&mut links);
    begin(&mut watcher, link, &mut links, &[]);
    for writes in [&["a", "b"][..], &["b"], &["c"]] {
        observe(&mut watcher, 1, committed(1, writes), &mut links);
    }
    watcher.advance(START + SECOND / 2, &mut links);
    observe(&mut watcher, 1, committed(2, &["b"]), &mut links);
    assert!(watcher.of(1).unwrap().chunk.is_empty(), "they are still being counted");
    watcher.advance(START + SECOND, &mut links);
    assert_eq!(watcher.due(), Some(START + SECOND * 2));
    observe(&mut watcher, 2, committed(3, &["a", "c"]), &mut links);
    observe(&mut watcher, 2, committed(4, &["a", "b"]), &mut links);
    let watch = watcher.of(2).unwrap();
    let recorded = watch.chunk.iter().map(|observed| observed.what.clone());
    assert_eq!(recorded.collect::<Vec<_>>(), [committed(4, &["a", "b"])]);
    watcher.advance(START + SECOND * 2, &mut links);
    assert!(watcher.of(2).is_none() && watcher.due().is_none(), "its time is over");
}

#[test]
fn one_client_watches_at_a_time_and_its_end_makes_room() {
    let (mut links, mut watcher) = (Links::new(), Watcher::default());
    let (first, second) = (open(&mut links), open(&mut links));
    begin(&mut watcher, first, &mut links, &["a"]);
    begin(&mut watcher, second, &mut links, &["b"]);
    assert_eq!(watcher.of(1).unwrap().link, first);
    watcher.end((second, 7), START, &mut links);
    assert_eq!(watcher.of(1).unwrap().link, first, "it is not the second one's to end");
    watcher.lost(first);
    begin(&mut watcher, second, &mut links, &["b"]);
    assert_eq!(watcher.of(1).unwrap().link, second);
    watcher.end((second, 7), START, &mut links);
    assert!(watcher.of(1).is_none());
}

#[test]
fn what_can_not_be_watched_is_refused() {
    let watcher = Watcher::default();
    let shards = Shards::new([(7, 1)]);
    let wanted =
        WatchRequest { keyspace: 7, keys: vec![], hottest: 1, count: SECOND, record: SECOND };
    assert_eq!(watcher.judge(&wanted, &shards), Ok(0..1));
    for wrong in [
        WatchRequest { keyspace: 1, ..wanted.clone() },
        WatchRequest { hottest: 0, ..wanted.clone() },
        WatchRequest { hottest: 65, ..wanted.clone() },
        WatchRequest { record: MOST_TIME + SECOND, ..wanted.clone() },
    ] {
        assert!(watcher.judge(&wrong, &shards).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_watcher_that_does_not_keep_up_is_sent_no_more_and_what_it_missed_is_counted() {
    let (mut links, mut watcher) = (Links::new(), Watcher::default());
    let link = open(&mut links);
    begin(&mut watcher, link, &mut links, &["a"]);
    let long = "k".repeat(CHUNK_BYTES / 2);
    let observations = 4 * MOST_WAITING_BYTES / CHUNK_BYTES;
    for i in 0..observations {
        observe(&mut watcher, 1, committed(i as u64, &["a", &long]), &mut links);
    }
    let watch = watcher.of(1).unwrap();
    assert!(watch.sent > 0 && watch.forgotten > 0);
    let in_chunk = watch.chunk.len();
    assert_eq!(watch.sent + watch.forgotten as usize + in_chunk, observations);
    assert!(!links.is_behind(link, MOST_WAITING_BYTES + 2 * CHUNK_BYTES));
}

#[test]
fn an_observation_takes_no_more_bytes_than_it_is_reckoned_with() {
    let found = Version { timestamp_us: u64::MAX, coordinator: NodeId(u64::MAX) };
    let key = Key::from("k".repeat(300));
    let reads = vec![(key.clone(), found); 300];
    let written = Observation::Written { key: key.clone(), version: found, revision: u32::MAX };
    let read = Observation::Read { key: key.clone(), reader: found, found };
    let writes = vec![key; 300];
    let committed = Observation::Committed { version: found, reads, writes, leads: true };
    for what in [written, read, committed, Observation::Aborted { version: found }] {
        let most = most_bytes(&what);
        let observed = Observed { at_ns: u64::MAX, node: NodeId(u64::MAX), what };
        assert!(encode(&observed).len() <= most, "{observed:?}");
    }
}

#[test]
fn what_commits_is_counted_and_apart_from_that_what_commits_where_the_node_leads() {
    let (mut links, mut watcher) = (Links::new(), Watcher::default());
    let link = open(&mut links);
    begin(&mut watcher, link, &mut links, &["a"]);
    for (number, leads) in [true, false, false].into_iter().enumerate() {
        let (version, writes) = (version(number as u64), vec![Key::from("b")]);
        let what = Observation::Committed { version, reads: vec![], writes, leads };
        observe(&mut watcher, 1, what, &mut links);
    }
    observe(&mut watcher, 1, Observation::Aborted { version: version(9) }, &mut links);
    let watch = watcher.of(1).unwrap();
    assert_eq!((watch.committed, watch.committed_where_it_leads, watch.aborted), (3, 1, 1));
}

#[test]
fn a_watcher_is_not_cut_off_for_observations_however_little_may_wait_for_it() {
    let (mut links, mut watcher) = (Links::new(), Watcher::default());
    let link = links.open(LinkOptions {
        end: End::Client(NodeId(u64::MAX)),
        route: true,
        internal: false,
        delay: Duration::ZERO,
        frame_bytes: 64 << 10,
        most_waiting_bytes: 2 * CHUNK_BYTES,
    });
    begin(&mut watcher, link, &mut links, &["a"]);
    let long = "k".repeat(CHUNK_BYTES / 2);
    for i in 0..20 {
        observe(&mut watcher, 1, committed(i, &["a", &long]), &mut links);
    }
    assert!(watcher.of(1).unwrap().forgotten > 0);
    assert_eq!(links.given_up(link), None);
}

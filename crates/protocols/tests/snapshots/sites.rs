//! Sites: one that is cut off for a minute, and what reads at several sites cost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_actor::{Protocol, Settings, Timestamp};
use serried_model::{Geography, Key, Snapshots, Value, Write};
use serried_protocols::eiger::Eiger;
use serried_protocols::eiger_port::EigerPort;
use serried_session::{BadToken, SnapshotError, SnapshotKeyspace};
use serried_sim::{Cluster, Configuration, Disk, Fault, Reach, Side};

const SITES: u16 = 3;
const PARTITIONS: u16 = 2;
const KEYS: u64 = 50;

fn key(number: u64) -> Key {
    Key::from(number.to_be_bytes())
}

/// Three sites with a client at each, and one that reads last.
fn cluster<P: Protocol<Family = Snapshots>>(site_backlog_bytes: u64) -> Cluster<P> {
    cluster_of(SITES, 2, site_backlog_bytes)
}

/// Sites of one replica for each partition, 10 ms apart, with so many clients each.
fn cluster_of<P: Protocol<Family = Snapshots>>(
    sites: u16,
    clients: usize,
    site_backlog_bytes: u64,
) -> Cluster<P> {
    Cluster::new(Configuration {
        seed: 7,
        sites,
        replicas: 1,
        partitions: PARTITIONS,
        clients: clients * usize::from(sites),
        geography: Geography::named("reg").unwrap(),
        disk: Disk { keep_records: true, ..Disk::MEMORY },
        settings: Settings { election_timeout_ms: 20, site_backlog_bytes, ..Settings::default() },
        ..Configuration::default()
    })
}

/// Writes and deletes two keys at a time until `until`, and counts.
async fn write(session: SnapshotKeyspace, seed: u64, until: Timestamp, count: Arc<Mutex<u64>>) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut number = 0;
    while session.now() < until {
        number += 1;
        let value = (!random.random_bool(0.2)).then(|| Value::from(format!("{seed} {number}")));
        let first = random.random_range(0..KEYS - 1);
        let write = |key_number| Write { key: key(key_number), value: value.clone() };
        session.write_all([write(first), write(first + 1)]).await.expect("its site is up");
        *count.lock().unwrap() += 1;
        let pause = Duration::from_millis(random.random_range(5..50));
        session.sleep_until(session.now() + pause).await;
    }
}

/// How many of the other sites a site has given up, by its leaders.
fn given_up<P: Protocol<Family = Snapshots>>(cluster: &Cluster<P>, site: u16) -> u64 {
    let partitions = site * PARTITIONS..(site + 1) * PARTITIONS;
    let of = |partition| cluster.gauge(partition, 0, "sites_without_backlog").unwrap_or_default();
    partitions.map(of).max().unwrap_or_default()
}

fn behind_ms<P: Protocol<Family = Snapshots>>(cluster: &Cluster<P>, site: u16) -> u64 {
    cluster.gauge(site * PARTITIONS, 0, "site_behind_ms").expect("it leads")
}

/// Site 2 is cut off for a minute while all sites write.
fn cut_off_for_a_minute<P: Protocol<Family = Snapshots>>(site_backlog_bytes: u64, copies: bool) {
    let mut cluster = cluster::<P>(site_backlog_bytes);
    let seconds = |s: u64| Timestamp(s * 1_000_000_000);
    let counts: Vec<Arc<Mutex<u64>>> = (0..SITES).map(|_| Arc::default()).collect();
    for (site, count) in counts.iter().enumerate() {
        let session = cluster.keyspace(site);
        cluster.spawn(site, write(session, site as u64, seconds(65), count.clone()));
    }
    let last_reads: Arc<Mutex<Vec<Vec<Option<Value>>>>> = Arc::default();
    for client in usize::from(SITES)..2 * usize::from(SITES) {
        let (session, reads) = (cluster.keyspace(client), last_reads.clone());
        cluster.spawn(client, async move {
            session.sleep_until(Timestamp(70_000_000_000)).await;
            let found = session.read_only((0..KEYS).map(key)).await.expect("its site is up");
            reads.lock().unwrap().push(found);
        });
    }
    cluster.run_until(seconds(2));
    assert!((0..SITES).all(|site| behind_ms(&cluster, site) < 100), "they keep up");
    let before: Vec<u64> = counts.iter().map(|count| *count.lock().unwrap()).collect();
    let cut = cluster.partition(Reach::around(Side::site(2)));
    for tenth in 20..620 {
        cluster.run_until(Timestamp(tenth * 100_000_000));
        // Sites 0 and 1 acknowledge what they get from each other meanwhile.
        let kept = cluster.gauge(0, 0, "site_backlog_bytes").expect("it leads");
        assert!(kept < site_backlog_bytes + site_backlog_bytes / 4, "{kept} bytes are kept");
    }
    cluster.run_until(seconds(62));
    for (count, before) in counts.iter().zip(before) {
        assert!(*count.lock().unwrap() > before + 1000, "each site goes on");
    }
    assert!(behind_ms(&cluster, 2) > 50_000);
    assert_eq!(given_up(&cluster, 0) > 0, copies, "site 0 has given site 2 up, or not");
    assert_eq!(given_up(&cluster, 2) > 0, copies);
    cluster.end(cut);
    cluster.run_until_done(seconds(100)).expect("everything finishes");
    for site in 0..SITES {
        assert_eq!(given_up(&cluster, site), 0);
        assert!(behind_ms(&cluster, site) < 100, "site {site} has caught up");
    }
    let reads = last_reads.lock().unwrap();
    assert_eq!(reads.len(), usize::from(SITES));
    assert!(reads[0].iter().flatten().count() > 10 && reads[0].iter().any(Option::is_none));
    assert!(reads.iter().all(|read| *read == reads[0]), "all sites end with the same: {reads:?}");
}

/// How long it takes until another site shows a write, in order: while another client writes all the time, with several
/// partitions, slow disks, and leaders that ask others for what they lack every second.
fn until_shown<P: Protocol<Family = Snapshots>>() -> Vec<Duration> {
    let millis = Duration::from_millis;
    let mut cluster = Cluster::<P>::new(Configuration {
        seed: 7,
        sites: SITES,
        replicas: 3,
        partitions: 4,
        clients: 3 * usize::from(SITES),
        geography: Geography::named("reg").unwrap(),
        disk: Disk { keep_records: true, flush: millis(3), ..Disk::MEMORY },
        settings: Settings { election_timeout_ms: 1000, ..Settings::default() },
        ..Configuration::default()
    });
    let ends = Timestamp(20_000_000_000);
    for client in [0, 1] {
        cluster.spawn(client, write(cluster.keyspace(client), 1, ends, Arc::default()));
    }
    let wrote: Arc<Mutex<Vec<Timestamp>>> = Arc::default();
    let number =
        |value: &Value| String::from_utf8_lossy(value.as_bytes()).parse::<usize>().unwrap();
    let (writer, times) = (cluster.keyspace(3), wrote.clone());
    cluster.spawn(3, async move {
        while writer.now() < ends {
            let next = times.lock().unwrap().len();
            writer.write("seen", next.to_string().as_str()).await.expect("its site is up");
            times.lock().unwrap().push(writer.now());
            writer.sleep_until(writer.now() + millis(211)).await;
        }
    });
    let shown: Arc<Mutex<Vec<Timestamp>>> = Arc::default();
    let (reader, times) = (cluster.keyspace(4), shown.clone());
    cluster.spawn(4, async move {
        while reader.now() < ends + Duration::from_secs(5) {
            let found = reader.read_only(["seen"]).await.expect("its site is up");
            let seen = found[0].as_ref().map_or(0, |value| 1 + number(value));
            times.lock().unwrap().resize(seen, reader.now());
            reader.sleep_until(reader.now() + millis(3)).await;
        }
    });
    cluster.run_until_done(Timestamp(60_000_000_000)).expect("everything finishes");
    let (wrote, shown) = (wrote.lock().unwrap(), shown.lock().unwrap());
    assert_eq!(wrote.len(), shown.len(), "all is shown");
    let mut took: Vec<Duration> =
        shown.iter().zip(wrote.iter()).map(|(shown, wrote)| shown.since(*wrote)).collect();
    took.sort_unstable();
    took
}

/// A partition that could not take part in an admission yet once took part when it was asked again.
#[test]
fn another_site_shows_writes_soon_although_others_write_all_the_time() {
    for (name, took) in
        [("eiger-port", until_shown::<EigerPort>()), ("eiger", until_shown::<Eiger>())]
    {
        let of = |percent: usize| took[took.len() * percent / 100];
        let (median, late) = (of(50), of(95));
        let most = Duration::from_millis(150);
        assert!(median < most / 2 && late < most, "{name}: {median:?}, p95 {late:?}");
    }
}

#[test]
fn a_site_that_is_cut_off_for_a_minute_goes_on_and_catches_up() {
    cut_off_for_a_minute::<EigerPort>(64 << 20, false);
    cut_off_for_a_minute::<Eiger>(64 << 20, false);
}

#[test]
fn a_site_that_lacks_more_than_is_kept_for_it_copies_what_has_changed() {
    cut_off_for_a_minute::<EigerPort>(10_000, true);
    cut_off_for_a_minute::<Eiger>(10_000, true);
}

#[test]
fn reads_take_one_round_and_wait_for_nothing_with_several_sites() {
    let mut cluster = cluster::<EigerPort>(64 << 20);
    let until = Timestamp(2_000_000_000);
    let costs: Arc<Mutex<Vec<(u32, u32)>>> = Arc::default();
    for client in 0..usize::from(SITES) {
        let session = cluster.keyspace(client);
        cluster.spawn(client, write(session, client as u64, until, Arc::default()));
        let (session, costs) = (cluster.keyspace(client), costs.clone());
        cluster.spawn(client, async move {
            // By then each partition has a leader. The first read asks for the clocks.
            session.sleep_until(Timestamp(50_000_000)).await;
            session.read(key(0)).await.expect("its site is up");
            while session.now() < until {
                let read = session.read_only_recorded((0..5).map(key).collect()).await;
                let read = read.expect("its site is up");
                costs.lock().unwrap().push((read.rounds, read.metadata_bytes));
            }
        });
    }
    cluster.run_until_done(Timestamp(20_000_000_000)).expect("everything finishes");
    let costs = costs.lock().unwrap();
    assert!(costs.len() > 1000, "{}", costs.len());
    assert!(costs.iter().all(|(rounds, _)| *rounds == 1), "O");
    // As with one site, and each key may have one versionstamp more.
    let most = costs.iter().map(|(_, bytes)| *bytes).max().unwrap_or_default();
    assert!(most <= 10 * (6 * u32::from(PARTITIONS) + 2 * 5), "C: {most} bytes");
    let all = 0..SITES * PARTITIONS;
    let blocked = all.filter_map(|partition| cluster.gauge(partition, 0, "blocked_reads"));
    assert_eq!(blocked.sum::<u64>(), 0, "N");
}

#[test]
fn a_session_that_moves_to_another_site_goes_on_there_once_all_that_it_has_seen_has_come() {
    let mut cluster = cluster::<EigerPort>(64 << 20);
    let (at_0, at_1) = (cluster.keyspace(0), cluster.keyspace(1));
    let done = Arc::new(Mutex::new(false));
    let is_done = done.clone();
    cluster.spawn(0, async move {
        at_0.sleep_until(Timestamp(50_000_000)).await;
        for number in 0..20 {
            let here = at_0.session();
            here.write(key(1), format!("{number}")).await.unwrap();
            let there = at_1.resume(here.token().unwrap()).await.unwrap();
            assert_eq!(there.read(key(1)).await.unwrap(), Some(Value::from(format!("{number}"))));
            there.write(key(1), "its own").await.unwrap();
            let back = at_0.resume(there.token().unwrap()).await.unwrap();
            assert_eq!(back.read(key(1)).await.unwrap(), Some(Value::from("its own")));
        }
        *is_done.lock().unwrap() = true;
    });
    cluster.run_until_done(Timestamp(20_000_000_000)).expect("everything finishes");
    assert!(*done.lock().unwrap());
}

#[test]
fn a_new_leader_knows_about_how_far_its_site_is_behind_although_nobody_writes() {
    let configuration = Configuration {
        seed: 7,
        sites: 2,
        replicas: 1,
        clients: 2,
        geography: Geography::named("reg").unwrap(),
        disk: Disk { keep_records: true, ..Disk::MEMORY },
        settings: Settings { election_timeout_ms: 20, ..Settings::default() },
        ..Configuration::default()
    };
    let mut cluster = Cluster::<EigerPort>::new(configuration);
    let seconds = |s: u64| Timestamp(s * 1_000_000_000);
    cluster.run_until(seconds(60));
    cluster.partition(Reach::around(Side::site(1)));
    cluster.run_until(seconds(62));
    cluster.crash(0);
    cluster.restart(0);
    cluster.run_until(seconds(63));
    let behind = cluster.gauge(0, 0, "site_behind_ms").expect("it leads");
    assert!((2_500..16_000).contains(&behind), "{behind} ms");
}

/// Whether a partition of a site says this of it.
fn says(cluster: &Cluster<EigerPort>, site: u16, gauge: &str) -> bool {
    let mut partitions = site * PARTITIONS..(site + 1) * PARTITIONS;
    partitions.any(|partition| cluster.gauge(partition, 0, gauge) == Some(1))
}

/// All machines of a site lose their disks, and start again.
fn lose_site<P: Protocol<Family = Snapshots>>(cluster: &mut Cluster<P>, site: u16) {
    let lost = cluster.begin(Fault::LostSite(site));
    cluster.run_until(cluster.now() + Duration::from_millis(5));
    cluster.end(lost);
}

/// A client writes long values to all keys.
fn write_all_keys(cluster: &mut Cluster<EigerPort>, client: usize) {
    let session = cluster.keyspace(client);
    cluster.spawn(client, async move {
        session.sleep_until(Timestamp(50_000_000)).await;
        for number in 0..KEYS {
            let value = "v".repeat(1000) + &number.to_string();
            session.write(key(number), value).await.expect("its site is up");
        }
    });
}

/// What a client reads now.
fn read(
    cluster: &mut Cluster<EigerPort>,
    client: usize,
    keys: Vec<Key>,
) -> Result<Vec<Option<Value>>, String> {
    let (keyspace, found) = (cluster.keyspace(client), Arc::new(Mutex::new(None)));
    let into = found.clone();
    cluster.spawn(client, async move {
        let read = keyspace.read_only(keys).await;
        *into.lock().unwrap() = Some(read.map_err(|error| error.to_string()));
    });
    cluster.run_until(cluster.now() + Duration::from_secs(15));
    let read = found.lock().unwrap().take();
    read.expect("it has ended")
}

/// What a client finds of an effect and of its causes: whether the effect is there, and how many of the causes.
fn found_of(
    cluster: &mut Cluster<EigerPort>,
    client: usize,
    effect: &Key,
    causes: &[Key],
) -> (bool, usize) {
    let keys = causes.iter().chain([effect]).cloned().collect();
    let found = read(cluster, client, keys).expect("the site is up");
    let (effect, causes) = found.split_last().expect("it has read something");
    (effect.is_some(), causes.iter().flatten().count())
}

#[test]
fn a_site_that_is_torn_serves_nobody_until_it_is_rebuilt_once_more() {
    // Parts of copies are small.
    let mut cluster = cluster_of::<EigerPort>(SITES, 4, 2_000);
    let seconds = |s: u64| Timestamp(s * 1_000_000_000);
    write_all_keys(&mut cluster, 2);
    cluster.run_until(seconds(3));
    lose_site(&mut cluster, 2);
    cluster.run_until(cluster.now() + Duration::from_millis(100));
    assert!(says(&cluster, 2, "site_rebuilding"), "it has got a part of what the others have");
    lose_site(&mut cluster, 1);
    cluster.run_until(seconds(10));
    assert!(says(&cluster, 2, "site_torn"));
    let read = |cluster: &mut Cluster<EigerPort>, client| {
        read(cluster, client, (0..KEYS).map(key).collect())
    };
    assert!(read(&mut cluster, 5).is_err(), "site 2 serves nobody");
    let expected = read(&mut cluster, 3).expect("site 0 goes on");
    assert!(expected.iter().all(Option::is_some));
    lose_site(&mut cluster, 2);
    cluster.run_until(cluster.now() + Duration::from_secs(5));
    for site in 0..SITES {
        assert!(!says(&cluster, site, "site_rebuilding") && !says(&cluster, site, "site_torn"));
        assert_eq!(read(&mut cluster, 6 + usize::from(site)).as_ref(), Ok(&expected));
    }
}

/// A session writes at a site that is cut off and then loses its disks. Afterwards it can't go on, and its token is
/// refused everywhere. What begins then goes on.
fn end_sessions_of_a_lost_site<P: Protocol<Family = Snapshots>>() {
    let mut cluster = cluster::<P>(64 << 20);
    let seconds = |s: u64| Timestamp(s * 1_000_000_000);
    let (at_0, at_1) = (cluster.keyspace(0), cluster.keyspace(1));
    let (reads, writes, done) = (at_0.session(), at_0.session(), Arc::new(Mutex::new(0)));
    let (is_written, is_done) = (done.clone(), done.clone());
    cluster.run_until(seconds(1));
    let cut = cluster.partition(Reach::around(Side::site(0)));
    let (first, second) = (reads.clone(), writes.clone());
    cluster.spawn(0, async move {
        for session in [&first, &second] {
            session.write(key(1), "lost").await.expect("its site is up");
            assert_eq!(session.read(key(1)).await.unwrap(), Some(Value::from("lost")));
        }
        *is_written.lock().unwrap() += 1;
    });
    // Later than the minute by which the clock of a site that is rebuilt begins later.
    cluster.run_until(seconds(100));
    assert_eq!(*done.lock().unwrap(), 1);
    lose_site(&mut cluster, 0);
    cluster.end(cut);
    cluster.run_until(seconds(105));
    cluster.spawn(0, async move {
        let error = reads.read(key(1)).await.unwrap_err();
        assert!(matches!(error, SnapshotError::SiteRebuilt { site: 0 }), "{error}");
        let error = writes.write(key(1), "after what is lost").await.unwrap_err();
        assert!(matches!(error, SnapshotError::SiteRebuilt { site: 0 }), "{error}");
        let token = reads.token().unwrap();
        for keyspace in [&at_0, &at_1] {
            let error = keyspace.session().resume(token).await.err().expect("it is refused");
            let is_it =
                matches!(error, SnapshotError::BadToken(BadToken::OfRebuiltSite { site: 0 }));
            assert!(is_it, "{error}");
        }
        let fresh = at_0.session();
        assert_eq!(fresh.read(key(1)).await.unwrap(), None, "it was not sent, or not written");
        fresh.write(key(1), "new").await.unwrap();
        let there = at_1.resume(fresh.token().unwrap()).await.unwrap();
        assert_eq!(there.read(key(1)).await.unwrap(), Some(Value::from("new")));
        *is_done.lock().unwrap() += 1;
    });
    cluster.run_until_done(seconds(200)).expect("everything finishes");
    assert_eq!(*done.lock().unwrap(), 2);
}

#[test]
fn a_session_of_a_site_that_was_lost_ends_and_its_token_is_refused() {
    end_sessions_of_a_lost_site::<EigerPort>();
    end_sessions_of_a_lost_site::<Eiger>();
}

/// A site is lost. Some time later, when it is being rebuilt, the site is lost that had what its writes depend on. Returns
/// what a new session finds at the first site at last: whether an effect is there, and how many of its causes. If the
/// site serves nobody, it finds nothing. `None` if the site was rebuilt before.
fn lost_behind_an_effect(sites: u16, delay: Duration) -> Option<(bool, usize)> {
    let mut cluster = cluster_of::<EigerPort>(sites, 2, 2_000);
    let seconds = |s: u64| Timestamp(s * 1_000_000_000);
    // A third site can reach the first one only.
    let cut = cluster.partition(Reach::between(Side::site(1), Side::site(2)));
    write_all_keys(&mut cluster, 1);
    let session = cluster.keyspace(0);
    cluster.spawn(0, async move {
        session.sleep_until(seconds(3)).await;
        let causes = session.read_only((0..KEYS).map(key)).await.expect("its site is up");
        assert!(causes.iter().all(Option::is_some), "all has come");
        session.write(key(KEYS), "effect").await.expect("its site is up");
    });
    cluster.run_until(seconds(5));
    lose_site(&mut cluster, 0);
    cluster.run_until(cluster.now() + delay);
    if !says(&cluster, 0, "site_rebuilding") {
        return None;
    }
    lose_site(&mut cluster, 1);
    cluster.end(cut);
    cluster.run_until(seconds(15));
    if says(&cluster, 0, "site_torn") || says(&cluster, 0, "site_rebuilding") {
        return Some((false, 0));
    }
    let causes: Vec<Key> = (0..KEYS).map(key).collect();
    Some(found_of(&mut cluster, usize::from(sites), &key(KEYS), &causes))
}

#[test]
fn an_effect_is_not_kept_without_its_causes_if_two_sites_are_lost_one_after_the_other() {
    for sites in [2, 3] {
        let mut in_time = 0;
        for delay_ms in (340..=400).step_by(10) {
            if let Some((has_effect, causes)) =
                lost_behind_an_effect(sites, Duration::from_millis(delay_ms))
            {
                assert!(!has_effect || causes == KEYS as usize, "{sites}, {delay_ms}: {causes}");
                in_time += 1;
            }
        }
        assert!(in_time > 0, "site 1 is lost while site 0 is being rebuilt");
    }
}

/// Long values of many keys are written at the site of a client, and site 0 writes an effect of them all, which site 1
/// admits. Then site 0 is lost. Returns the cluster, and the causes.
fn lose_after_an_effect(
    sites: u16,
    writer: usize,
    causes: impl Fn(&Key) -> bool,
    effect: &Key,
) -> (Cluster<EigerPort>, Vec<Key>) {
    let causes: Vec<Key> = (0..2000).map(key).filter(causes).take(700).collect();
    let mut cluster = cluster_of::<EigerPort>(sites, 3, 2_000);
    let (session, keys) = (cluster.keyspace(writer), causes.clone());
    cluster.spawn(writer, async move {
        session.sleep_until(Timestamp(50_000_000)).await;
        for key in keys {
            session.write(key, "v".repeat(1000)).await.expect("its site is up");
        }
    });
    let (session, keys, effect) = (cluster.keyspace(0), causes.clone(), effect.clone());
    cluster.spawn(0, async move {
        session.sleep_until(Timestamp(10_000_000_000)).await;
        let found = session.read_only(keys).await.expect("its site is up");
        assert!(found.iter().all(Option::is_some), "all has come");
        session.write(effect, "effect").await.expect("its site is up");
    });
    // A third site does not hear of the effect.
    cluster.run_until(Timestamp(9_900_000_000));
    let cut = cluster.partition(Reach::between(Side::site(0), Side::site(2)));
    cluster.run_until(Timestamp(12_000_000_000));
    lose_site(&mut cluster, 0);
    cluster.end(cut);
    (cluster, causes)
}

/// What a new session finds at site 0 later: whether the effect is there, and how many of the causes. `None` if the site
/// is torn.
fn left_of(
    mut cluster: Cluster<EigerPort>,
    client: usize,
    effect: &Key,
    causes: &[Key],
) -> Option<(bool, usize)> {
    cluster.run_until(cluster.now() + Duration::from_secs(20));
    if says(&cluster, 0, "site_torn") {
        return None;
    }
    assert!(!says(&cluster, 0, "site_rebuilding"));
    Some(found_of(&mut cluster, client, effect, causes))
}

#[test]
fn an_effect_is_not_kept_if_its_causes_of_another_partition_are_lost() {
    let group = serried_actor::Group::new(1, Duration::ZERO).with_partitions(PARTITIONS);
    let mut of_first = (0..1000).map(key).filter(|key| group.partition_of(key) == 0);
    let (effect, later) = (of_first.next().unwrap(), of_first.next().unwrap());
    let mut torn = 0;
    for delay_ms in (400..1000).step_by(100) {
        let is_cause = |key: &Key| group.partition_of(key) == 1;
        let (mut cluster, causes) = lose_after_an_effect(2, 1, is_cause, &effect);
        let lost_at = cluster.now() + Duration::from_millis(delay_ms);
        let (session, later) = (cluster.keyspace(3), later.clone());
        cluster.spawn(3, async move {
            session.sleep_until(lost_at).await;
            session.write(later, "later").await.expect("its site is up");
        });
        cluster.run_until(lost_at + Duration::from_millis(100));
        if !says(&cluster, 0, "site_rebuilding") {
            continue;
        }
        lose_site(&mut cluster, 1);
        let left = left_of(cluster, 2, &effect, &causes);
        assert!(
            left.is_none_or(|(has, left)| !has || left == causes.len()),
            "{delay_ms}: {left:?}"
        );
        torn += usize::from(left.is_none());
    }
    assert!(torn > 0, "it was lost in time");
}

#[test]
fn an_effect_is_not_kept_if_both_other_sites_lose_its_causes() {
    let effect = key(5000);
    let mut torn = 0;
    for delay_ms in (500..1500).step_by(100) {
        let (mut cluster, causes) = lose_after_an_effect(SITES, 2, |_| true, &effect);
        cluster.run_until(cluster.now() + Duration::from_millis(delay_ms));
        let cut = cluster.partition(Reach::between(Side::site(0), Side::site(2)));
        // Site 0 notes that it has all of site 1.
        cluster.run_until(cluster.now() + Duration::from_secs(15));
        if !says(&cluster, 0, "site_rebuilding") {
            continue;
        }
        lose_site(&mut cluster, 1);
        lose_site(&mut cluster, 2);
        cluster.end(cut);
        let left = left_of(cluster, 3, &effect, &causes);
        assert!(
            left.is_none_or(|(has, left)| !has || left == causes.len()),
            "{delay_ms}: {left:?}"
        );
        torn += usize::from(left.is_none());
    }
    assert!(torn > 0, "it was lost in time");
}

#[test]
fn what_a_rebuilt_site_has_written_comes_back_if_it_is_lost_again() {
    let mut cluster = cluster_of::<EigerPort>(2, 4, 64 << 20);
    let seconds = |s: u64| Timestamp(s * 1_000_000_000);
    write_all_keys(&mut cluster, 1);
    cluster.run_until(seconds(2));
    lose_site(&mut cluster, 1);
    cluster.run_until(seconds(10));
    assert!(!says(&cluster, 1, "site_rebuilding"));
    let session = cluster.keyspace(3);
    cluster.spawn(3, async move {
        session.write(key(1), "second").await.expect("its site is up");
    });
    // The other site has admitted it, and not stored it yet.
    cluster.run_until(seconds(10) + Duration::from_millis(300));
    lose_site(&mut cluster, 1);
    cluster.run_until(seconds(20));
    assert!(!says(&cluster, 1, "site_rebuilding"));
    let found = read(&mut cluster, 5, vec![key(1)]);
    assert_eq!(found, Ok(vec![Some(Value::from("second"))]));
}

/// Site 2 loses its disks. When it has begun to be rebuilt, site 0 loses its own, and the link between sites 1 and 2 is
/// cut. So site 1, whose clients only read, alone has what site 2 had written over what site 0 had written. Then site 1
/// loses its disks.
#[test]
fn an_effect_is_not_kept_without_its_cause_if_a_site_was_lost_before_the_one_that_is_rebuilt() {
    for delay_ms in (2..80).step_by(3) {
        let mut cluster = cluster_of::<EigerPort>(SITES, 3, 64 << 20);
        let seconds = |s: u64| Timestamp(s * 1_000_000_000);
        let session = cluster.keyspace(0);
        cluster.spawn(0, async move {
            session.sleep_until(seconds(1)).await;
            session.write(key(1), "cause").await.expect("its site is up");
            session.write(key(2), "effect").await.expect("its site is up");
        });
        let session = cluster.keyspace(2);
        cluster.spawn(2, async move {
            session.sleep_until(seconds(3)).await;
            assert_eq!(session.read(key(1)).await.unwrap(), Some(Value::from("cause")));
            session.write(key(1), "later").await.expect("its site is up");
            session.sleep_until(seconds(4)).await;
            session.write(key(1), "latest").await.expect("its site is up");
        });
        cluster.run_until(seconds(6));
        lose_site(&mut cluster, 2);
        cluster.run_until(cluster.now() + Duration::from_millis(delay_ms));
        let cut = cluster.partition(Reach::between(Side::site(1), Side::site(2)));
        lose_site(&mut cluster, 0);
        cluster.run_until(seconds(15));
        lose_site(&mut cluster, 1);
        cluster.end(cut);
        cluster.run_until(seconds(40));
        let torn: Vec<bool> = (0..SITES).map(|site| says(&cluster, site, "site_torn")).collect();
        if torn.iter().any(|is| *is) || says(&cluster, 0, "site_rebuilding") {
            continue;
        }
        let found = read(&mut cluster, 3, vec![key(1), key(2)]);
        let [cause, effect] = &found.expect("site 0 serves")[..] else { panic!("two keys") };
        assert!(effect.is_none() || cause.is_some(), "{delay_ms} ms: an effect without its cause");
    }
}

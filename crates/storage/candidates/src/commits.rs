//! Durable commits per second, by the number of clients.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::CLIENTS;
use crate::candidate::{Fjall, Group, OurLog, Redb, Single, record};

type Way = (&'static str, fn(&Path, usize, Duration) -> anyhow::Result<f64>);

const WAYS: [Way; 5] = [
    ("serried log, grouped", grouped::<OurLog>),
    ("fjall, grouped", grouped::<Fjall>),
    ("fjall, each by itself", singly::<Fjall>),
    ("redb, grouped", grouped::<Redb>),
    ("redb, each by itself", singly::<Redb>),
];

/// Prints a table of the medians of `rounds`, in each of which every candidate has its turn.
pub(crate) fn measure(directory: &Path, time: Duration, rounds: usize) -> anyhow::Result<()> {
    println!("durable commits per second, the median of {rounds} (ratio to the first line)\n");
    println!("| clients | {} |", CLIENTS.map(|clients| clients.to_string()).join(" | "));
    println!("|---|{}", "---|".repeat(CLIENTS.len()));
    let mut rates = vec![[const { Vec::new() }; CLIENTS.len()]; WAYS.len()];
    for round in 0..rounds {
        for (column, clients) in CLIENTS.into_iter().enumerate() {
            for (row, (name, way)) in WAYS.into_iter().enumerate() {
                let place = directory.join(format!("{round}-{clients}-{row}"));
                let rate = way(&place, clients, time)?;
                std::fs::remove_dir_all(&place)?;
                eprintln!("round {round}, {clients} clients, {name}: {rate:.0} per second");
                rates[row][column].push(rate);
            }
        }
    }
    let medians: Vec<_> = rates.into_iter().map(|row| row.map(median)).collect();
    for ((name, _), row) in WAYS.iter().zip(&medians) {
        let cell = |(rate, of): (&f64, &f64)| format!("{rate:.0} ({:.2})", rate / of);
        let cells: Vec<String> = row.iter().zip(&medians[0]).map(cell).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
    Ok(())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// What a client asks the flusher for: a record, and where to say that it is durable.
type Request = (Vec<u8>, mpsc::SyncSender<()>);

/// Clients wait for a flusher, which commits all that waits as one.
fn grouped<G: Group>(directory: &Path, clients: usize, time: Duration) -> anyhow::Result<f64> {
    let (mut group, _) = G::open(directory)?;
    // What is laid out at the first commit, files and tables, is not measured.
    group.commit(&[record(u64::MAX)])?;
    let (requests, inbox) = mpsc::channel::<Request>();
    thread::scope(|scope| {
        let flusher = scope.spawn(move || {
            while let Ok(first) = inbox.recv() {
                let waiting = std::iter::once(first).chain(inbox.try_iter());
                let (records, clients): (Vec<_>, Vec<_>) = waiting.unzip();
                group.commit(&records)?;
                for client in clients {
                    // A client that has ended wants no answer.
                    let _ = client.send(());
                }
            }
            anyhow::Ok(())
        });
        let rate = run(clients, time, || {
            let requests = requests.clone();
            let (done, wait) = mpsc::sync_channel(1);
            move |key| {
                requests.send((record(key), done.clone()))?;
                Ok(wait.recv()?)
            }
        });
        drop(requests);
        flusher.join().expect("the flusher does not panic")?;
        rate
    })
}

/// Every client commits by itself.
fn singly<S: Group + Single>(
    directory: &Path,
    clients: usize,
    time: Duration,
) -> anyhow::Result<f64> {
    let (store, _) = S::open(directory)?;
    let store = &store;
    store.commit_one(&record(u64::MAX))?;
    run(clients, time, || move |key| store.commit_one(&record(key)))
}

/// How many commits per second the clients get done, each with a function of its own for one.
fn run<C: FnMut(u64) -> anyhow::Result<()> + Send>(
    clients: usize,
    time: Duration,
    client: impl Fn() -> C,
) -> anyhow::Result<f64> {
    let (next, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let begun = Instant::now();
        let threads: Vec<_> = (0..clients)
            .map(|_| {
                let mut commit = client();
                let (next, over) = (&next, &over);
                scope.spawn(move || {
                    let mut done = 0u64;
                    while !over.load(Ordering::Relaxed) {
                        commit(next.fetch_add(1, Ordering::Relaxed))?;
                        done += 1;
                    }
                    anyhow::Ok(done)
                })
            })
            .collect();
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let mut done = 0;
        for thread in threads {
            done += thread.join().expect("clients do not panic")?;
        }
        Ok(done as f64 / begun.elapsed().as_secs_f64())
    })
}

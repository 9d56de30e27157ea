//! Group commit: what a core's partitions append until a flush begins becomes durable together.
//!
//! One flush for each record would limit a core to as many transactions as the disk has flushes per second. Here one flush
//! writes everything that was appended before it began, on another thread, while the core goes on. Messages that must not
//! leave before it is done wait in the buffers of their links for its number. If none of them is in a hurry, the flush waits
//! a little for more.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use serried_wire::{Core, Endpoint, Moment};

use crate::durable::Batch;
use crate::side::NodeSide;

/// If no message waits that is in a hurry, the disk is left alone for twice as long as the last flush took, at most so long.
/// A flush costs about as much as executing a transaction, whatever it writes, so it pays to write more with each.
const LONGEST_REST: Duration = Duration::from_millis(1);
/// How long to wait before what could not be written is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How many times the flusher yields to other tasks that are ready, so that what they append is flushed with the rest.
const PATIENCE: u8 = 1;

/// What a core notes about its logs. Flushes are numbered from 1. What is appended now is durable with the flush
/// `next`.
pub(crate) struct Flushing {
    next: u64,
    dirty: bool,
    /// A message in a hurry waits for the flush `next`.
    urgent: bool,
    /// When the last flush ended, and how long it took.
    ended: Option<(Instant, Duration)>,
    flusher: Option<Waker>,
    /// When the current flush began, if one is under way.
    began: Option<Instant>,
    /// Why nothing can be written, if that is so.
    pub(crate) obstacle: Option<String>,
    pub(crate) latency: Latency,
}

/// How long flushes took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    /// How many took up to each of [`Latency::BOUNDS_US`], and longer.
    pub(crate) counts: [u64; Latency::BOUNDS_US.len() + 1],
    pub(crate) total: Duration,
}

impl Latency {
    /// In microseconds.
    pub(crate) const BOUNDS_US: [u64; 12] =
        [50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 1_000_000];

    fn record(&mut self, took: Duration) {
        let bounds = Self::BOUNDS_US;
        let bucket = bounds.partition_point(|bound_us| u128::from(*bound_us) < took.as_micros());
        self.counts[bucket] += 1;
        self.total += took;
    }

    /// Both together.
    pub(crate) fn plus(mut self, other: &Latency) -> Latency {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.total += other.total;
        self
    }
}

impl Flushing {
    pub(crate) fn new() -> Flushing {
        Flushing {
            next: 1,
            dirty: false,
            urgent: false,
            ended: None,
            flusher: None,
            began: None,
            obstacle: None,
            latency: Latency::default(),
        }
    }

    /// Something was appended: the flush that makes it durable.
    pub(crate) fn request(&mut self) -> u64 {
        if !self.dirty {
            self.dirty = true;
            self.wake();
        }
        self.next
    }

    /// A message in a hurry waits for this flush.
    pub(crate) fn hurry(&mut self, flush: u64) {
        if flush == self.next && self.dirty && !self.urgent {
            self.urgent = true;
            self.wake();
        }
    }

    fn wake(&mut self) {
        if let Some(flusher) = self.flusher.take() {
            flusher.wake();
        }
    }

    /// How many flushes are under way or wanted.
    pub(crate) fn lag(&self, flushed: u64) -> u64 {
        self.next - 1 - flushed + u64::from(self.dirty)
    }

    /// The number of the flush that begins now.
    pub(crate) fn begin(&mut self) -> u64 {
        (self.dirty, self.urgent) = (false, false);
        self.next += 1;
        self.began = Some(Instant::now());
        self.next - 1
    }

    /// For how long the current flush has been under way, if one is.
    pub(crate) fn under_way(&self) -> Option<Duration> {
        self.began.map(|began| began.elapsed())
    }

    /// Notes that the current flush has ended.
    fn end(&mut self) {
        if let Some(began) = self.began.take() {
            let took = began.elapsed();
            self.ended = Some((Instant::now(), took));
            self.latency.record(took);
        }
    }

    /// How much longer to leave the disk alone.
    fn rest(&self) -> Duration {
        let Some((at, took)) = self.ended.filter(|_| !self.urgent) else { return Duration::ZERO };
        (took * 2).min(LONGEST_REST).saturating_sub(at.elapsed())
    }

    /// Waits until `is_due`.
    fn poll(&mut self, is_due: fn(&Flushing) -> bool, cx: &mut Context<'_>) -> Poll<()> {
        if is_due(self) {
            return Poll::Ready(());
        }
        self.flusher = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Flushes a core's logs whenever something was appended, until the endpoint is closed and everything
/// is durable.
pub(crate) async fn flush(endpoint: Arc<Endpoint<NodeSide>>, sync: bool) {
    let until = async |is_due: fn(&Flushing) -> bool| {
        tokio::select! {
            biased;
            () = poll_fn(|cx| endpoint.lock().side.flushing.poll(is_due, cx)) => {}
            // What is left is flushed once more.
            () = endpoint.closed() => {}
        }
    };
    loop {
        until(|flushing| flushing.dirty).await;
        let rest = {
            let flushing = &endpoint.lock().side.flushing;
            if !flushing.dirty {
                return;
            }
            flushing.rest()
        };
        if sync && !rest.is_zero() {
            // The runtime's timers are coarse, so it may be a millisecond longer.
            let _ = tokio::time::timeout(rest, until(|flushing| flushing.urgent)).await;
        }
        let mut patience = 0;
        poll_fn(|cx| poll_yielded(&mut patience, cx)).await;
        let (number, mut batches) = begin_flush(&mut endpoint.lock());
        let bytes: usize = batches.iter().map(|batch| batch.bytes()).sum();
        loop {
            let written;
            (batches, written) = write(batches, sync).await;
            let Err(error) = written else { break };
            obstructed(&endpoint, &error);
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                // What waits for it never leaves.
                () = endpoint.closed() => return,
            }
        }
        let mut core = endpoint.lock();
        core.links.counters.log_flushes += 1;
        core.links.counters.log_bytes += bytes as u64;
        let Core { side, links, .. } = &mut *core;
        side.flushing.end();
        if side.flushing.obstacle.is_some() {
            tracing::info!(node = %endpoint.id, "the log can be written again");
            side.set_obstacle(None, links);
        }
        end_flush(&mut core, number, endpoint.clock.moment());
    }
}

/// Yields to the tasks that are ready, without waiting for others to become so.
fn poll_yielded(yielded: &mut u8, cx: &mut Context<'_>) -> Poll<()> {
    if *yielded >= PATIENCE {
        return Poll::Ready(());
    }
    *yielded += 1;
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Begins a flush. Returns its number and the batches to write.
fn begin_flush(core: &mut Core<NodeSide>) -> (u64, Vec<Box<dyn Batch>>) {
    let batches = core.actors_mut().filter_map(|replica| replica.take_batch()).collect();
    (core.side.flushing.begin(), batches)
}

/// A flush has ended: the messages that wait for it leave, and the replicas that await it are called.
fn end_flush(core: &mut Core<NodeSide>, number: u64, moment: Moment) {
    core.links.release(number);
    for place in 0..core.places() {
        core.run(place, |replica, out| replica.on_flushed(number, moment, out));
    }
    core.settle(moment);
}

/// Writes the batches, away from the core's thread if that takes the disk's time; what is left of them.
async fn write(
    mut batches: Vec<Box<dyn Batch>>,
    sync: bool,
) -> (Vec<Box<dyn Batch>>, io::Result<()>) {
    let waits = sync || batches.iter().any(|batch| batch.waits());
    let mut work = move || {
        let mut written = 0;
        let result = batches.iter_mut().try_for_each(|batch| {
            batch.write(sync)?;
            written += 1;
            Ok(())
        });
        (batches.split_off(written), result)
    };
    if !waits {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The node is being killed; this is never polled again.
            Err(_) => std::future::pending().await,
        },
    }
}

fn obstructed(endpoint: &Endpoint<NodeSide>, error: &io::Error) {
    let reason = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("the disk is full ({error}): make room, and the node goes on by itself")
        }
        _ => format!("the log can't be written ({error}): see to the disk; the node tries again"),
    };
    let mut core = endpoint.lock();
    let Core { side, links, .. } = &mut *core;
    if side.flushing.obstacle.as_ref() != Some(&reason) {
        tracing::error!(node = %endpoint.id, reason, "read-only");
        side.set_obstacle(Some(reason), links);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts how often it was written. The first so many times the disk is full.
    struct Counted {
        written: Arc<AtomicUsize>,
        failures: usize,
    }

    impl Batch for Counted {
        fn write(&mut self, _: bool) -> io::Result<()> {
            if self.failures > 0 {
                self.failures -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn bytes(&self) -> usize {
            1
        }
    }

    #[tokio::test]
    async fn what_could_not_be_written_is_left_and_what_was_written_is_not() {
        for sync in [true, false] {
            let written: [Arc<AtomicUsize>; 3] = Default::default();
            let batch = |(failures, written): (usize, &Arc<AtomicUsize>)| {
                Box::new(Counted { written: written.clone(), failures }) as Box<dyn Batch>
            };
            let mut left = [0, 2, 1].into_iter().zip(&written).map(batch).collect();
            let counts = || written.each_ref().map(|written| written.load(Ordering::Relaxed));
            for (lacking, counted) in [(2, [1, 0, 0]), (2, [1, 0, 0]), (1, [1, 1, 0])] {
                let result;
                (left, result) = write(left, sync).await;
                assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
                assert_eq!((left.len(), counts()), (lacking, counted));
            }
            let result;
            (left, result) = write(left, sync).await;
            assert!(result.is_ok() && left.is_empty());
            assert_eq!(counts(), [1, 1, 1]);
        }
    }

    #[test]
    fn what_is_appended_during_a_flush_waits_for_the_next() {
        let mut flushing = Flushing::new();
        assert_eq!((flushing.lag(0), flushing.request(), flushing.request()), (0, 1, 1));
        assert_eq!((flushing.lag(0), flushing.begin(), flushing.lag(0)), (1, 1, 1));
        assert_eq!((flushing.request(), flushing.lag(0), flushing.lag(1)), (2, 2, 1));
    }

    #[test]
    fn the_disk_rests_until_a_message_in_a_hurry_waits() {
        let mut flushing = Flushing::new();
        let minute = Duration::from_secs(60);
        flushing.request();
        assert!(flushing.rest().is_zero(), "there was no flush yet");
        flushing.begin();
        flushing.ended = Some((Instant::now() + minute, minute));
        flushing.hurry(2);
        assert_eq!(
            (flushing.request(), flushing.rest()),
            (2, LONGEST_REST),
            "nothing was appended"
        );
        flushing.hurry(1);
        assert_eq!(flushing.rest(), LONGEST_REST, "what waits for the last flush needs no other");
        flushing.hurry(2);
        assert!(flushing.rest().is_zero());
        flushing.begin();
        flushing.request();
        assert_eq!(flushing.rest(), LONGEST_REST);
        flushing.ended = Some((Instant::now(), Duration::ZERO));
        assert!(flushing.rest().is_zero(), "it took no time");
    }

    struct Woken(AtomicUsize);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_message_in_a_hurry_ends_the_rest() {
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut flushing = Flushing::new();
        flushing.request();
        assert!(flushing.poll(|flushing| flushing.urgent, &mut cx).is_pending());
        flushing.hurry(1);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(flushing.poll(|flushing| flushing.urgent, &mut cx).is_ready());
    }

    #[test]
    fn latencies_are_counted_by_their_bounds() {
        let mut latency = Latency::default();
        for us in [50, 51, 2_000_000] {
            latency.record(Duration::from_micros(us));
        }
        assert_eq!((latency.counts[0], latency.counts[1], latency.counts[12]), (1, 1, 1));
    }
}

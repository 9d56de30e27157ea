//! Group commit: what a core's partitions append in one wake-up becomes durable together.
//!
//! One flush for each record would limit a core to as many transactions as the disk has flushes per second. Here one flush
//! writes everything that was appended before it began, on another thread, while the core goes on. Messages that must not
//! leave before it is done wait in the buffers of their links for its number.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use serried_wire::{Core, Endpoint, Moment};

use crate::durable::Batch;
use crate::side::NodeSide;

/// How long to wait before what could not be written is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How many times the flusher yields to other tasks that are ready, so that what they append is flushed with the rest.
const PATIENCE: u8 = 1;

/// What a core notes about its logs. Flushes are numbered from 1. What is appended now is durable with the flush
/// `next`.
pub(crate) struct Flushing {
    next: u64,
    dirty: bool,
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
            flusher: None,
            began: None,
            obstacle: None,
            latency: Latency::default(),
        }
    }

    /// Something was appended: the flush that makes it durable.
    pub(crate) fn request(&mut self) -> u64 {
        self.dirty = true;
        if let Some(flusher) = self.flusher.take() {
            flusher.wake();
        }
        self.next
    }

    /// How many flushes are under way or wanted.
    pub(crate) fn lag(&self, flushed: u64) -> u64 {
        self.next - 1 - flushed + u64::from(self.dirty)
    }

    /// The number of the flush that begins now.
    pub(crate) fn begin(&mut self) -> u64 {
        self.dirty = false;
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
            self.latency.record(began.elapsed());
        }
    }

    fn poll_requested(
        &mut self,
        closed: bool,
        patience: &mut u8,
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        if !self.dirty {
            self.flusher = Some(cx.waker().clone());
            *patience = 0;
            return if closed { Poll::Ready(false) } else { Poll::Pending };
        }
        if *patience < PATIENCE {
            *patience += 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        *patience = 0;
        Poll::Ready(true)
    }
}

/// Flushes a core's logs whenever something was appended, until the endpoint is closed and everything
/// is durable.
pub(crate) async fn flush(endpoint: Arc<Endpoint<NodeSide>>, sync: bool) {
    let mut patience = 0;
    loop {
        let requested = poll_fn(|cx| {
            let closed = endpoint.is_closed();
            endpoint.lock().side.flushing.poll_requested(closed, &mut patience, cx)
        });
        let requested = tokio::select! {
            biased;
            requested = requested => requested,
            // What is left is flushed once more.
            () = endpoint.closed(), if !endpoint.is_closed() => continue,
        };
        if !requested {
            return;
        }
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
    fn a_flush_waits_until_what_is_ready_has_run_and_the_last_one_is_not_forgotten() {
        let mut flushing = Flushing::new();
        let mut cx = Context::from_waker(Waker::noop());
        let mut patience = 0;
        assert!(flushing.poll_requested(false, &mut patience, &mut cx).is_pending());
        flushing.request();
        assert!(flushing.poll_requested(true, &mut patience, &mut cx).is_pending());
        assert_eq!(flushing.poll_requested(true, &mut patience, &mut cx), Poll::Ready(true));
        flushing.begin();
        assert_eq!(flushing.poll_requested(true, &mut patience, &mut cx), Poll::Ready(false));
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

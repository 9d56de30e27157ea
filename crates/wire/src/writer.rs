//! The loop that writes a connection.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::Instant;

use crate::endpoint::{Endpoint, Side};
use crate::links::LinkId;
use crate::out_buffer::OutBuffer;

/// How much is written at a time before it counts as a sign that the other end reads it.
const PIECE_BYTES: usize = 256 << 10;

/// Writes what waits on `link`, everything that has come meanwhile, again and again until the link ends.
///
/// There are two buffers: one is filled while the other is written. Headers and checksums are made here, outside of the
/// endpoint's lock.
pub(crate) async fn write_loop<S: Side>(
    endpoint: Arc<Endpoint<S>>,
    link: LinkId,
    mut write: OwnedWriteHalf,
) -> io::Result<()> {
    let mut spare = OutBuffer::default();
    let mut patience = 0;
    let mut line = DelayLine::default();
    let mut ended = false;
    while !ended || !line.is_empty() {
        let take =
            poll_fn(|cx| endpoint.lock().links.poll_take(link, &mut spare, &mut patience, cx));
        let taken = match line.next_due() {
            None => take.await,
            Some(due) => tokio::select! {
                biased;
                taken = take, if !ended => taken,
                () = tokio::time::sleep_until(due) => {
                    let bytes = line.due_by(Instant::now());
                    let count = bytes.len();
                    write_in_pieces(&endpoint, link, &mut write, bytes).await?;
                    line.advance(count);
                    endpoint.lock().links.written(link, count);
                    continue;
                }
            },
        };
        match taken {
            None => ended = true,
            Some(Duration::ZERO) if line.is_empty() => {
                write_buffer(&endpoint, link, &mut write, &mut spare).await?;
                endpoint.lock().links.written(link, spare.len());
            }
            Some(delay) => line.push(&spare.copy_all(), Instant::now() + delay),
        }
        spare.clear();
    }
    write.shutdown().await
}

/// Writes what a buffer has, and notes each time the other end has taken a piece of it.
async fn write_buffer<S: Side>(
    endpoint: &Endpoint<S>,
    link: LinkId,
    write: &mut (impl AsyncWrite + Unpin),
    buffer: &mut OutBuffer,
) -> io::Result<()> {
    let mut noted = 0;
    loop {
        let count = {
            let pieces = buffer.unwritten();
            if pieces.is_empty() {
                return Ok(());
            }
            write.write_vectored(&pieces).await?
        };
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        buffer.wrote(count);
        if buffer.written() - noted >= PIECE_BYTES {
            noted = buffer.written();
            endpoint.lock().links.progressed(link);
        }
    }
}

/// Writes `bytes`, and notes each time the other end has taken a piece of them.
async fn write_in_pieces<S: Side>(
    endpoint: &Endpoint<S>,
    link: LinkId,
    write: &mut OwnedWriteHalf,
    bytes: &[u8],
) -> io::Result<()> {
    for piece in bytes.chunks(PIECE_BYTES) {
        write.write_all(piece).await?;
        if bytes.len() > PIECE_BYTES {
            endpoint.lock().links.progressed(link);
        }
    }
    Ok(())
}

/// Frames under way on an emulated distance, in one piece of memory.
#[derive(Default)]
struct DelayLine {
    bytes: Vec<u8>,
    /// How much of `bytes` has left.
    start: usize,
    /// When each of the flushes in `bytes` is due, and where it ends, counted from the first byte that
    /// was ever pushed.
    flushes: VecDeque<(Instant, u64)>,
    pushed: u64,
    left: u64,
}

impl DelayLine {
    fn is_empty(&self) -> bool {
        self.flushes.is_empty()
    }

    fn push(&mut self, bytes: &[u8], due: Instant) {
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
        self.pushed += bytes.len() as u64;
        self.flushes.push_back((due, self.pushed));
    }

    fn next_due(&self) -> Option<Instant> {
        self.flushes.front().map(|(due, _)| *due)
    }

    /// All bytes that are due by `now`, which may belong to several flushes.
    fn due_by(&self, now: Instant) -> &[u8] {
        let due = self.flushes.iter().take_while(|(due, _)| *due <= now);
        let end = due.last().map_or(self.left, |(_, end)| *end);
        &self.bytes[self.start..][..(end - self.left) as usize]
    }

    /// The first `count` bytes have left.
    fn advance(&mut self, count: usize) {
        self.start += count;
        self.left += count as u64;
        while self.flushes.front().is_some_and(|(_, end)| *end <= self.left) {
            self.flushes.pop_front();
        }
        if self.flushes.is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use serried_actor::{Random, Wire};
    use serried_model::{NodeId, Value};
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::endpoint::tests::Bare;
    use crate::out_buffer::Route;
    use rand::SeedableRng;

    /// The other end's buffer holds little, so that nearly all writes are cut short.
    #[tokio::test]
    async fn a_buffer_with_long_values_arrives_whole_through_a_narrow_connection() {
        let random = Random::seed_from_u64(1);
        let options = crate::options::TransportOptions::default();
        let endpoint = Arc::new(Endpoint::new(NodeId(0), options, random, Bare));
        let link = endpoint.lock().links.open(crate::links::LinkOptions {
            end: crate::links::End::Core { member: 1, core: 0 },
            route: false,
            internal: false,
            delay: Duration::ZERO,
            frame_bytes: 1 << 20,
            most_waiting_bytes: 1 << 20,
        });
        let fill = || {
            let mut buffer = OutBuffer::default();
            let route = Route { keyspace: 1, to: 2, from: 3 };
            for length in [10, 2000, 70_000, 1500, 300] {
                let message = vec![Value::from(vec![length as u8; length]); 3];
                buffer.push_message(route, 1 << 20, |out| message.encode_into(out)).unwrap();
            }
            buffer
        };
        let (mut write, mut read) = tokio::io::duplex(777);
        let mut buffer = fill();
        let writing = write_buffer(&endpoint, link, &mut write, &mut buffer);
        let (expected, mut arrived) = (fill().copy_all(), Vec::new());
        let mut limited = (&mut read).take(expected.len() as u64);
        let (written, read) = tokio::join!(writing, limited.read_to_end(&mut arrived));
        written.unwrap();
        assert_eq!(read.unwrap(), expected.len());
        assert!(arrived == expected);
    }

    #[test]
    fn flushes_leave_together_when_they_are_due_and_not_before() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut line = DelayLine::default();
        line.push(b"one", at(1));
        line.push(b"two", at(2));
        line.push(b"three", at(9));
        assert_eq!(line.due_by(now), b"");
        assert_eq!(line.due_by(at(5)), b"onetwo");
        line.advance(6);
        assert_eq!(line.next_due(), Some(at(9)));
        line.push(b"four", at(10));
        assert_eq!(line.due_by(at(10)), b"threefour");
        line.advance(9);
        assert!(line.is_empty());
    }

    #[tokio::test]
    async fn each_piece_of_a_long_buffer_that_the_other_end_takes_is_a_sign_of_it() {
        let random = Random::seed_from_u64(1);
        let options = crate::options::TransportOptions::default();
        let endpoint = Endpoint::new(NodeId(0), options, random, Bare);
        let link = endpoint.lock().links.open(crate::links::LinkOptions {
            end: crate::links::End::Core { member: 1, core: 0 },
            route: false,
            internal: false,
            delay: Duration::ZERO,
            frame_bytes: 1 << 20,
            most_waiting_bytes: 1 << 20,
        });
        // A reader waits until what was sent is taken.
        endpoint.lock().links.push_frame(link, crate::frame::Kind::Obstacle, &[0; 100]);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(endpoint.lock().links.poll_drained(link, 50, &mut cx).is_pending());
        let mut buffer = OutBuffer::default();
        let route = Route { keyspace: 1, to: 2, from: 3 };
        let message = vec![7u8; PIECE_BYTES / 4];
        for _ in 0..11 {
            buffer.push_message(route, 1 << 20, |out| message.encode_into(out)).unwrap();
        }
        let (mut write, mut read) = tokio::io::duplex(10_000);
        let mut limited = (&mut read).take(buffer.copy_all().len() as u64);
        let mut arrived = Vec::new();
        let writing = write_buffer(&endpoint, link, &mut write, &mut buffer);
        let (written, read) = tokio::join!(writing, limited.read_to_end(&mut arrived));
        assert!(written.is_ok() && read.is_ok());
        assert_eq!(endpoint.lock().links.signs(link), Some(2), "there are nearly three pieces");
    }
}

//! Frames: how bytes are cut into pieces on a connection, and how damage is noticed.
//!
//! ```text
//! 0      2         3      4         8          12
//! | magic | version | kind | length | checksum | payload ...
//! ```
//!
//! Numbers are little-endian. The checksum (CRC-32) covers the first eight bytes and the payload. A
//! frame that is malformed ends its connection, because nobody knows where the next frame begins.

use core::fmt;
use std::io;

use serried_model::Value;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The first two bytes of every frame.
pub(crate) const MAGIC: u16 = 0x5e44;
/// The version of the frames and of everything in them.
pub const VERSION: u8 = 15;
/// How long a frame's header is, in bytes.
pub(crate) const HEADER_BYTES: usize = 12;
/// The size of a reader's buffer while frames are small. It is larger than what a read usually returns, so that a short
/// read shows that nothing is left, without a second system call.
const BUFFER_BYTES: usize = 128 << 10;
/// Below this much free space the rest of the buffer is moved to its front.
const LEAST_FREE_BYTES: usize = 32 << 10;
/// A frame whose payload is at least this long gets memory of its own, if values may point into it.
const OWN_BYTES: usize = 16 << 10;
/// How much is read at once where the next frame may be a long one. What was read of a long frame before its header was seen has
/// to be copied into the frame's own memory, so that should be little.
const HEAD_BYTES: usize = 4 << 10;
/// After a long frame, another is expected until this many short ones have come in a row.
const LONG_EXPECTED_FOR: usize = 64;
/// How much memory of its own a frame gets at first. It gets more when so much has arrived.
const OWN_AT_ONCE: usize = 2 << 20;

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A connection's first frame, from the side that opened it.
    Hello = 1,
    /// The answer to it.
    Welcome = 2,
    /// The other answer to it.
    Reject = 3,
    /// Protocol messages.
    Batch = 4,
    /// Asks for a [`Kind::Pong`], to measure the round trip.
    Ping = 5,
    /// The answer to it.
    Pong = 6,
    /// Asks how the node is doing.
    StatusRequest = 7,
    /// The answer to it.
    StatusReply = 8,
    /// Asks what a core observes.
    WatchRequest = 9,
    /// The answers to it.
    WatchReply = 10,
    /// Asks for the last answer.
    WatchEnd = 11,
    /// Says to a client why the node can't write, or that it can again.
    Obstacle = 12,
    /// Another answer to a hello: the node has as many connections as it may.
    Full = 13,
    /// Another answer to a hello: the data of the node that asks does not count, or not any more.
    Disowned = 14,
    /// Says to a client which data the other nodes have, by their numbers.
    Known = 15,
    /// Asks to record what clients do.
    RecordRequest = 16,
    /// The answers to it.
    RecordReply = 17,
    /// Asks for the last answer.
    RecordEnd = 18,
    /// Asks a client to report its transactions, or no more of them.
    ReportRequest = 19,
    /// A client's reports of transactions.
    Report = 20,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::*;
        let first = [Hello, Welcome, Reject, Batch, Ping, Pong];
        let requests = [StatusRequest, StatusReply, WatchRequest, WatchReply, WatchEnd];
        let records = [RecordRequest, RecordReply, RecordEnd, ReportRequest, Report];
        let all = first.into_iter().chain(requests).chain([Obstacle, Full, Disowned, Known]);
        all.chain(records).find(|kind| *kind as u8 == byte)
    }
}

/// Why a connection's bytes can't be understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadFrame {
    /// It does not begin as a frame does.
    #[error("not a Serried connection: it sent {0:#06x} where a frame begins with {MAGIC:#06x}")]
    Magic(u16),
    /// The other end has another version.
    #[error("it speaks version {0} of the protocol, this node version {VERSION}")]
    Version(u8),
    /// No kind has this number.
    #[error("there are no frames of kind {0}")]
    Kind(u8),
    /// It is too long.
    #[error("a frame of {bytes} bytes, the limit is {limit}")]
    TooLong {
        /// How long its payload is, in bytes.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// It is damaged.
    #[error("a frame's checksum is {found:#010x}, its content's {computed:#010x}")]
    Checksum {
        /// The checksum in its header.
        found: u32,
        /// The checksum of its content.
        computed: u32,
    },
    /// No frame of this kind may come here.
    #[error("{0:?}: no frame of this kind may come here")]
    Unexpected(Kind),
    /// Its payload is malformed.
    #[error("a {0:?} frame that is malformed: {1}")]
    Payload(Kind, String),
}

/// The header of a frame whose payload has `length` bytes, in these pieces.
pub(crate) fn header<'a>(
    kind: Kind,
    length: usize,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&MAGIC.to_le_bytes());
    header[2] = VERSION;
    header[3] = kind as u8;
    header[4..8].copy_from_slice(&(length as u32).to_le_bytes());
    let checksum = checksum(&header, pieces);
    header[8..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// Writes the header of the frame whose payload is `frame[HEADER_BYTES..]` into its first bytes.
pub(crate) fn finish_frame(frame: &mut [u8], kind: Kind) {
    let payload = &frame[HEADER_BYTES..];
    let header = header(kind, payload.len(), [payload]);
    frame[..HEADER_BYTES].copy_from_slice(&header);
}

/// The checksum of a frame with this header and a payload in these pieces.
fn checksum<'a>(header: &[u8], pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..8]);
    pieces.into_iter().for_each(|piece| hasher.update(piece));
    hasher.finalize()
}

/// A frame as it lies in its reader's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// What it holds.
    pub kind: Kind,
    /// The content.
    pub payload: &'a [u8],
    /// The memory that the content lies in, if values may point into it.
    pub(crate) memory: Option<&'a Value>,
}

/// Reads frames off a connection into one buffer that is used again and again.
///
/// If values may point into what was read ([`FrameReader::share`]), a long frame has memory of its own, which lives for as
/// long as these values do. All of it belongs to one frame, so a value keeps at most what came in the same frame: the answer
/// that it was read with, and what shares a batch with that.
pub(crate) struct FrameReader {
    /// What was read. The first `start` bytes were handled.
    buffer: Vec<u8>,
    start: usize,
    /// The longest payload that is accepted, in bytes.
    pub(crate) limit: usize,
    shares: bool,
    /// The long frame of which not all was read. The buffer is empty then.
    long: Option<Long>,
    /// The last long frame.
    memory: Value,
    /// For how many more short frames a long one is expected.
    long_expected: usize,
}

/// A long frame that has not come whole.
struct Long {
    kind: Kind,
    /// What was read of it, from its header on.
    bytes: Vec<u8>,
    /// How long it is with its header.
    length: usize,
}

impl fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReader").field("unread", &(self.buffer.len() - self.start)).finish()
    }
}

impl FrameReader {
    /// A reader of frames with payloads up to `limit` bytes.
    pub(crate) fn new(limit: usize) -> FrameReader {
        let (buffer, memory) = (Vec::with_capacity(BUFFER_BYTES), Value::default());
        FrameReader { buffer, start: 0, limit, shares: false, long: None, memory, long_expected: 0 }
    }

    /// From now on values may point into what was read.
    pub(crate) fn share(&mut self) {
        self.shares = true;
    }

    /// What it keeps of a frame that has not come whole, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        let long = self.long.as_ref().map_or(0, |long| long.bytes.capacity());
        let room = self.buffer.capacity();
        long + if room > BUFFER_BYTES { room } else { self.buffer.len() - self.start }
    }

    /// Waits for bytes and takes as many as one read gives; 0 at the end of the connection.
    pub(crate) async fn fill(
        &mut self,
        connection: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<usize> {
        let (room, at_most) = self.room();
        debug_assert!(at_most > 0, "a read of nothing looks like the end of the connection");
        connection.take(at_most as u64).read_buf(room).await
    }

    /// Where more bytes are to be appended without being moved, and how many at most.
    pub(crate) fn room(&mut self) -> (&mut Vec<u8>, usize) {
        self.memory = Value::default();
        if let Some(Long { bytes, length, .. }) = &mut self.long {
            if bytes.len() == bytes.capacity() {
                bytes.reserve_exact(bytes.len().min(*length - bytes.len()));
            }
            let free = bytes.capacity().min(*length) - bytes.len();
            return (bytes, free);
        }
        if self.start == self.buffer.len() {
            self.start = 0;
            self.buffer.clear();
            // A node keeps no more for each of its clients.
            if self.buffer.capacity() > BUFFER_BYTES {
                self.buffer = Vec::with_capacity(BUFFER_BYTES);
            }
        } else if self.buffer.capacity() - self.buffer.len() < LEAST_FREE_BYTES {
            self.buffer.drain(..self.start);
            self.start = 0;
            if self.buffer.capacity() - self.buffer.len() < LEAST_FREE_BYTES {
                // It grows with what has arrived, not with what a header announces.
                self.buffer.reserve_exact(self.buffer.capacity());
            }
        }
        let free = self.buffer.capacity() - self.buffer.len();
        let wanted = match self.long_expected {
            0 => free,
            // Up to the end of a frame whose length is known, and the beginning of the next.
            _ => missing(&self.buffer[self.start..]) + HEAD_BYTES,
        };
        (&mut self.buffer, wanted.min(free))
    }

    /// The next frame that has arrived whole.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame<'_>>, BadFrame> {
        if let Some(long) = &self.long
            && long.bytes.len() < long.length
        {
            return Ok(None);
        }
        if let Some(Long { kind, bytes, .. }) = self.long.take() {
            check(&bytes)?;
            self.memory = Value::from(bytes);
            let payload = &self.memory.as_bytes()[HEADER_BYTES..];
            return Ok(Some(Frame { kind, payload, memory: Some(&self.memory) }));
        }
        let bytes = &self.buffer[self.start..];
        let Some((kind, length)) = announced(bytes, self.limit)? else { return Ok(None) };
        let (is_long, whole) = (self.shares && length >= OWN_BYTES, HEADER_BYTES + length);
        if is_long {
            self.long_expected = LONG_EXPECTED_FOR;
        }
        let Some(frame) = bytes.get(..whole) else {
            if is_long {
                // More is not taken from the system before it is needed.
                let mut long = Vec::with_capacity(whole.min(OWN_AT_ONCE));
                long.extend_from_slice(bytes);
                self.long = Some(Long { kind, bytes: long, length: whole });
                self.start = self.buffer.len();
            }
            return Ok(None);
        };
        check(frame)?;
        if !is_long {
            self.long_expected = self.long_expected.saturating_sub(1);
        }
        let payload_start = self.start + HEADER_BYTES;
        self.start += whole;
        let payload = &self.buffer[payload_start..self.start];
        Ok(Some(Frame { kind, payload, memory: None }))
    }
}

/// How many bytes the frame that begins here lacks, if its length is known.
fn missing(bytes: &[u8]) -> usize {
    let header = bytes.first_chunk::<HEADER_BYTES>();
    let whole = header.map_or(0, |header| HEADER_BYTES + word(header, 4) as usize);
    whole.saturating_sub(bytes.len())
}

/// The kind of the frame that begins here and the length of its payload, once the whole header is there.
fn announced(bytes: &[u8], limit: usize) -> Result<Option<(Kind, usize)>, BadFrame> {
    // Every byte is checked as soon as it is there, because a stranger may never send a whole header.
    if bytes.len() >= 2 {
        let magic = u16::from_le_bytes([bytes[0], bytes[1]]);
        if magic != MAGIC {
            return Err(BadFrame::Magic(magic));
        }
    }
    if bytes.len() >= 3 && bytes[2] != VERSION {
        return Err(BadFrame::Version(bytes[2]));
    }
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let kind = Kind::from_byte(header[3]).ok_or(BadFrame::Kind(header[3]))?;
    let length = word(header, 4) as usize;
    match length > limit {
        true => Err(BadFrame::TooLong { bytes: length, limit }),
        false => Ok(Some((kind, length))),
    }
}

/// Checks that a frame is not damaged.
fn check(frame: &[u8]) -> Result<(), BadFrame> {
    match (word(frame, 8), checksum(frame, [&frame[HEADER_BYTES..]])) {
        (found, computed) if found != computed => Err(BadFrame::Checksum { found, computed }),
        _ => Ok(()),
    }
}

fn word(header: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADER_BYTES];
        frame.extend_from_slice(payload);
        finish_frame(&mut frame, kind);
        frame
    }

    /// Has a reader read some bytes, as if each read gave as many as there is room for.
    fn feed(reader: &mut FrameReader, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = feed_once(reader, bytes);
            bytes = &bytes[count..];
        }
    }

    fn feed_once(reader: &mut FrameReader, bytes: &[u8]) -> usize {
        let (room, at_most) = reader.room();
        assert!(at_most > 0 && room.capacity() - room.len() >= at_most);
        let count = at_most.min(bytes.len());
        room.extend_from_slice(&bytes[..count]);
        count
    }

    fn read(bytes: &[u8]) -> Result<Option<(Kind, Vec<u8>)>, BadFrame> {
        let mut reader = FrameReader::new(1000);
        feed(&mut reader, bytes);
        Ok(reader.next_frame()?.map(|frame| (frame.kind, frame.payload.to_vec())))
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let mut bytes = frame(Kind::Batch, b"one");
        bytes.extend(frame(Kind::Ping, b""));
        bytes.extend(frame(Kind::Hello, b"three"));
        for step in 1..bytes.len() {
            let mut reader = FrameReader::new(1000);
            let mut found = Vec::new();
            for piece in bytes.chunks(step) {
                feed(&mut reader, piece);
                while let Some(frame) = reader.next_frame().unwrap() {
                    found.push((frame.kind, frame.payload.to_vec()));
                }
            }
            let expected = [(Kind::Batch, b"one".to_vec()), (Kind::Ping, vec![])];
            assert_eq!(found[..2], expected);
            assert_eq!(found[2..], [(Kind::Hello, b"three".to_vec())]);
        }
    }

    #[test]
    fn a_frame_longer_than_the_buffer_is_read_and_the_buffer_shrinks_again() {
        let payload: Vec<u8> = (0..5 * BUFFER_BYTES).map(|i| i as u8).collect();
        let mut reader = FrameReader::new(payload.len());
        feed(&mut reader, &frame(Kind::Batch, &payload));
        assert_eq!(reader.next_frame().unwrap().unwrap().payload, payload);
        assert_eq!(reader.kept_bytes(), reader.buffer.capacity(), "until it reads again");
        assert_eq!(reader.room().1, BUFFER_BYTES);
        assert_eq!(reader.kept_bytes(), 0);
    }

    /// Frames of many lengths around those at which something changes.
    fn many() -> Vec<(Kind, Vec<u8>)> {
        let short = [0, 1, 100, HEAD_BYTES - HEADER_BYTES, HEAD_BYTES, OWN_BYTES - 1];
        let long = [OWN_BYTES, OWN_BYTES + 1, 5 * OWN_BYTES, BUFFER_BYTES, 2 * OWN_AT_ONCE + 7];
        let lengths = short.into_iter().chain(long).chain(short).chain([3 * OWN_BYTES, 5]);
        let payload = |length: usize| (0..length).map(|i| (i * length / 7) as u8).collect();
        lengths.map(|length| (Kind::Batch, payload(length))).collect()
    }

    #[test]
    fn a_reader_whose_memory_is_shared_reads_the_same_frames_however_they_are_cut() {
        let frames = many();
        let bytes: Vec<u8> =
            frames.iter().flat_map(|(kind, payload)| frame(*kind, payload)).collect();
        for step in [777, 4096, 16 << 10, 100_000, bytes.len()] {
            let mut reader = FrameReader::new(4 * OWN_AT_ONCE);
            reader.share();
            let (mut found, mut kept) = (Vec::new(), Vec::new());
            for mut piece in bytes.chunks(step) {
                while !piece.is_empty() {
                    let count = feed_once(&mut reader, piece);
                    piece = &piece[count..];
                    while let Some(frame) = reader.next_frame().unwrap() {
                        found.push((frame.kind, frame.payload.to_vec()));
                        kept.extend(frame.memory.map(|memory| (memory.clone(), found.len() - 1)));
                    }
                }
            }
            assert!(found == frames, "{step}");
            assert!(kept.len() > 1, "some long frames have memory of their own");
            for (memory, at) in kept {
                assert!(memory.as_bytes()[HEADER_BYTES..] == frames[at].1, "it is not used again");
            }
        }
    }

    #[test]
    fn where_a_long_frame_is_expected_the_rest_of_a_short_one_is_read_at_once() {
        let mut reader = FrameReader::new(4 * OWN_BYTES);
        reader.share();
        let long = frame(Kind::Batch, &vec![7; 2 * OWN_BYTES]);
        feed(&mut reader, &long[..HEAD_BYTES]);
        assert_eq!(reader.next_frame(), Ok(None));
        feed(&mut reader, &long[HEAD_BYTES..]);
        assert!(reader.next_frame().unwrap().unwrap().memory.is_some());
        let short = frame(Kind::Batch, &[5; OWN_BYTES - 1]);
        for _ in 0..LONG_EXPECTED_FOR {
            assert_eq!(feed_once(&mut reader, &short), HEAD_BYTES);
            for _ in 0..2 * LONG_EXPECTED_FOR {
                assert_eq!(reader.next_frame(), Ok(None));
            }
            assert_eq!(feed_once(&mut reader, &short[HEAD_BYTES..]), short.len() - HEAD_BYTES);
            assert!(reader.next_frame().unwrap().is_some_and(|frame| frame.memory.is_none()));
        }
        assert_eq!(feed_once(&mut reader, &short), short.len(), "none is expected any more");
    }

    #[test]
    fn memory_of_its_own_grows_with_what_arrives_and_damage_is_noticed_in_it() {
        let mut whole = frame(Kind::Batch, &vec![7; 8 * OWN_AT_ONCE]);
        let mut reader = FrameReader::new(whole.len());
        reader.share();
        feed(&mut reader, &whole[..HEADER_BYTES]);
        assert_eq!(reader.next_frame(), Ok(None));
        assert!(reader.kept_bytes() <= OWN_AT_ONCE);
        feed(&mut reader, &whole[HEADER_BYTES..OWN_AT_ONCE + 1]);
        assert!(reader.kept_bytes() <= 2 * OWN_AT_ONCE);
        *whole.last_mut().unwrap() ^= 1;
        feed(&mut reader, &whole[OWN_AT_ONCE + 1..]);
        assert!(matches!(reader.next_frame(), Err(BadFrame::Checksum { .. })));
    }

    #[test]
    fn only_a_reader_that_is_told_to_shares_its_memory() {
        let bytes = frame(Kind::Batch, &vec![7; 3 * BUFFER_BYTES]);
        let mut reader = FrameReader::new(bytes.len());
        for piece in bytes.chunks(1000) {
            assert_eq!(reader.next_frame(), Ok(None));
            feed(&mut reader, piece);
        }
        assert_eq!(reader.next_frame().unwrap().unwrap().memory, None);
    }

    #[test]
    fn each_kind_of_damage_is_told_apart() {
        let good = frame(Kind::Batch, b"payload");
        let damaged = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            read(&bytes).unwrap_err()
        };
        assert!(matches!(damaged(0, b'G'), BadFrame::Magic(_)));
        assert_eq!(damaged(2, VERSION + 1), BadFrame::Version(VERSION + 1));
        assert_eq!(damaged(3, 77), BadFrame::Kind(77));
        assert!(matches!(damaged(3, Kind::Hello as u8), BadFrame::Checksum { .. }));
        assert!(matches!(damaged(8, good[8] ^ 1), BadFrame::Checksum { .. }));
        assert!(matches!(damaged(HEADER_BYTES, b'P'), BadFrame::Checksum { .. }));
        let long = frame(Kind::Batch, &[0; 1001]);
        assert_eq!(read(&long).unwrap_err(), BadFrame::TooLong { bytes: 1001, limit: 1000 });
    }

    #[test]
    fn a_stranger_is_recognised_by_its_first_bytes() {
        assert!(matches!(read(b"GET"), Err(BadFrame::Magic(_))));
        assert_eq!(read(&frame(Kind::Batch, b"cut")[..13]), Ok(None));
    }

    #[test]
    fn a_reader_keeps_the_memory_of_a_long_frame_no_longer_than_until_it_reads_again() {
        let long = frame(Kind::Batch, &vec![7; 3 * BUFFER_BYTES]);
        let mut reader = FrameReader::new(long.len());
        reader.share();
        feed(&mut reader, &long[..HEAD_BYTES]);
        assert_eq!(reader.next_frame(), Ok(None));
        feed(&mut reader, &long[HEAD_BYTES..]);
        assert!(reader.next_frame().unwrap().is_some_and(|frame| frame.memory.is_some()));
        assert_eq!(reader.memory.len(), long.len());
        reader.room();
        assert!(reader.memory.is_empty(), "a quiet connection keeps nothing");
    }
}

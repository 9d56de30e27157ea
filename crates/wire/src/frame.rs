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
pub const VERSION: u8 = 14;
/// How long a frame's header is, in bytes.
pub(crate) const HEADER_BYTES: usize = 12;
/// The size of a reader's buffer while frames are small. It is larger than what a read usually returns, so that a short
/// read shows that nothing is left, without a second system call.
const BUFFER_BYTES: usize = 128 << 10;
/// Below this much free space the rest of the buffer is moved to its front.
const LEAST_FREE_BYTES: usize = 32 << 10;
/// A frame whose payload is at least this long gets memory of its own, if values may point into it.
const OWN_BYTES: usize = 16 << 10;
/// How much is read at first where frames with memory of their own are usual: so little of the next is copied into its memory.
const HEAD_BYTES: usize = 4 << 10;
/// They are usual until so many others have come in a row.
const HEADS: usize = 64;
/// How much memory of its own a frame gets before more of it than that has arrived.
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
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::*;
        let first = [Hello, Welcome, Reject, Batch, Ping, Pong];
        let requests = [StatusRequest, StatusReply, WatchRequest, WatchReply, WatchEnd];
        let mut all = first.into_iter().chain(requests).chain([Obstacle, Full, Disowned, Known]);
        all.find(|kind| *kind as u8 == byte)
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
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..8]);
    pieces.into_iter().for_each(|piece| hasher.update(piece));
    header[8..].copy_from_slice(&hasher.finalize().to_le_bytes());
    header
}

/// Writes the header of the frame whose payload is `frame[HEADER_BYTES..]` into its first bytes.
pub(crate) fn finish_frame(frame: &mut [u8], kind: Kind) {
    let payload = &frame[HEADER_BYTES..];
    let header = header(kind, payload.len(), [payload]);
    frame[..HEADER_BYTES].copy_from_slice(&header);
}

fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[..8]);
    hasher.update(&frame[HEADER_BYTES..]);
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
    /// What was read, behind what was handled.
    buffer: Vec<u8>,
    /// How much was handled.
    start: usize,
    /// The longest payload that is accepted, in bytes.
    pub(crate) limit: usize,
    shares: bool,
    /// The beginning of a long frame, and how long it is with its header. The buffer is empty then.
    long: Option<(Vec<u8>, usize)>,
    /// The last long frame.
    memory: Value,
    /// For how many more short frames little is read at first.
    heads: usize,
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
        FrameReader { buffer, start: 0, limit, shares: false, long: None, memory, heads: 0 }
    }

    /// One that has read these bytes.
    pub(crate) fn holding(bytes: &[u8], limit: usize) -> FrameReader {
        FrameReader { buffer: bytes.to_vec(), ..FrameReader::new(limit) }
    }

    /// From now on values may point into what was read.
    pub(crate) fn share(&mut self) {
        self.shares = true;
    }

    /// What it keeps of a frame that has not come whole, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        let long = self.long.as_ref().map_or(0, |(bytes, _)| bytes.capacity());
        let room = self.buffer.capacity();
        long + if room > BUFFER_BYTES { room } else { self.buffer.len() - self.start }
    }

    /// Waits for bytes and takes as many as one read gives; 0 at the end of the connection.
    pub(crate) async fn fill(
        &mut self,
        connection: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<usize> {
        let (room, at_most) = self.room();
        connection.take(at_most as u64).read_buf(room).await
    }

    /// Where more bytes are to be appended without being moved, and how many at most.
    pub(crate) fn room(&mut self) -> (&mut Vec<u8>, usize) {
        self.memory = Value::default();
        if let Some((bytes, length)) = &mut self.long {
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
        (&mut self.buffer, if self.heads > 0 { HEAD_BYTES.min(free) } else { free })
    }

    /// The next frame that has arrived whole.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame<'_>>, BadFrame> {
        if let Some((bytes, length)) = &mut self.long {
            if bytes.len() < *length {
                return Ok(None);
            }
            let (bytes, length) = (std::mem::take(bytes), *length);
            self.long = None;
            self.memory = Value::from(bytes);
            let memory = &self.memory;
            let Some((kind, _)) = check(memory.as_bytes(), self.limit)? else { return Ok(None) };
            let payload = &memory.as_bytes()[HEADER_BYTES..length];
            return Ok(Some(Frame { kind, payload, memory: Some(memory) }));
        }
        let bytes = &self.buffer[self.start..];
        let announced = announced(bytes, self.limit)?;
        if let Some((_, length)) = announced.filter(|_| self.shares) {
            let is_long = length >= OWN_BYTES;
            self.heads = if is_long { HEADS } else { self.heads.saturating_sub(1) };
            if is_long && bytes.len() < HEADER_BYTES + length {
                let whole = HEADER_BYTES + length;
                // More is not taken from the system before it is needed.
                let mut long = Vec::with_capacity(whole.min(OWN_AT_ONCE));
                long.extend_from_slice(bytes);
                self.long = Some((long, whole));
                self.start = self.buffer.len();
                return Ok(None);
            }
        }
        let Some((kind, length)) = check(bytes, self.limit)? else { return Ok(None) };
        let payload_start = self.start + HEADER_BYTES;
        self.start = payload_start + length;
        let payload = &self.buffer[payload_start..self.start];
        Ok(Some(Frame { kind, payload, memory: None }))
    }
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

/// The same once the frame is there as a whole and not damaged.
fn check(bytes: &[u8], limit: usize) -> Result<Option<(Kind, usize)>, BadFrame> {
    let Some((kind, length)) = announced(bytes, limit)? else { return Ok(None) };
    let Some(frame) = bytes.get(..HEADER_BYTES + length) else { return Ok(None) };
    match (word(frame, 8), checksum(frame)) {
        (found, computed) if found != computed => Err(BadFrame::Checksum { found, computed }),
        _ => Ok(Some((kind, length))),
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
}

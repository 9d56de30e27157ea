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

use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;

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
}

/// Reads frames off a connection into one buffer that is used again and again.
pub(crate) struct FrameReader {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The longest payload that is accepted, in bytes.
    pub(crate) limit: usize,
}

impl fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReader").field("unread", &(self.end - self.start)).finish()
    }
}

impl FrameReader {
    /// A reader of frames with payloads up to `limit` bytes.
    pub(crate) fn new(limit: usize) -> FrameReader {
        FrameReader { buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, limit }
    }

    /// One that has read these bytes.
    pub(crate) fn holding(bytes: &[u8], limit: usize) -> FrameReader {
        FrameReader { buffer: bytes.to_vec(), start: 0, end: bytes.len(), limit }
    }

    /// What it keeps of a frame that has not come whole, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        if self.buffer.len() > BUFFER_BYTES { self.buffer.len() } else { self.end - self.start }
    }

    /// Waits for bytes and takes as many as one read gives; 0 at the end of the connection.
    pub(crate) async fn fill(&mut self, connection: &mut OwnedReadHalf) -> io::Result<usize> {
        let count = connection.read(self.space()).await?;
        self.end += count;
        Ok(count)
    }

    /// Room for more bytes. It grows with what has arrived, not with what a header announces.
    fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > BUFFER_BYTES {
                self.buffer = vec![0; BUFFER_BYTES];
            }
        } else if self.buffer.len() - self.end < LEAST_FREE_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.buffer.len() - self.end < LEAST_FREE_BYTES {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// The next frame that has arrived whole.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame<'_>>, BadFrame> {
        let bytes = &self.buffer[self.start..self.end];
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
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let kind = Kind::from_byte(header[3]).ok_or(BadFrame::Kind(header[3]))?;
        let length = word(4) as usize;
        if length > self.limit {
            return Err(BadFrame::TooLong { bytes: length, limit: self.limit });
        }
        let Some(frame) = bytes.get(..HEADER_BYTES + length) else { return Ok(None) };
        let (found, computed) = (word(8), checksum(frame));
        if found != computed {
            return Err(BadFrame::Checksum { found, computed });
        }
        let payload_start = self.start + HEADER_BYTES;
        self.start = payload_start + length;
        Ok(Some(Frame { kind, payload: &self.buffer[payload_start..self.start] }))
    }
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

    fn feed(reader: &mut FrameReader, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = reader.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            reader.end += count;
            bytes = &bytes[count..];
        }
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
        assert_eq!(reader.space().len(), BUFFER_BYTES);
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

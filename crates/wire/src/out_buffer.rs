//! What waits to be sent on one connection.

use std::io::IoSlice;

use serried_actor::{Encoded, Mark, Place};
use smallvec::SmallVec;

use crate::frame::{HEADER_BYTES, Kind, header};

/// A message of a batch begins with its keyspace's number (8 bytes), the receiver's and the sender's
/// partition (2 bytes each) and its length (4 bytes). Clients have no partition: what they send and receive
/// has their replica's in both places.
pub(crate) const PREFIX_BYTES: usize = 16;
/// When a batch is this long, the next message begins another one, so that the receiver can answer the first before it has
/// handled all.
const BATCH_BYTES: usize = 4 << 10;
/// A buffer that has grown beyond this shrinks by half each time less than a quarter of it was used.
const KEPT_BYTES: usize = 1 << 20;

/// How many pieces of memory are written with one system call at most.
const SLICES: usize = 256;
/// Frames that begin within this many bytes are completed together, just before they are written. So the system call finds
/// the values in the cache that the checksum has just read.
const COMPLETED_BYTES: usize = 128 << 10;

/// Frames under construction, one after the other. Nothing is allocated for a message once the buffer has grown to what a
/// flush usually holds. Long values in messages are referenced, and written from where they are.
#[derive(Default)]
pub struct OutBuffer {
    content: Encoded,
    /// Where each frame begins, and its kind.
    frames: Vec<(Mark, Kind)>,
    /// How many frames are complete.
    completed: usize,
    /// How far it was written.
    written: Place,
    written_bytes: usize,
}

/// The receiver and the sender of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    /// The number of the keyspace.
    pub(crate) keyspace: u64,
    /// The receiver's partition.
    pub(crate) to: u16,
    /// The sender's partition.
    pub(crate) from: u16,
}

/// A message that no frame can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooLong {
    pub(crate) bytes: usize,
}

impl OutBuffer {
    /// How many bytes wait.
    pub fn len(&self) -> usize {
        self.content.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        let (used, room) = (self.content.bytes().len(), self.content.capacity());
        let keep = if used < room / 4 { (room / 2).max(KEPT_BYTES) } else { room.max(KEPT_BYTES) };
        self.content.clear(keep);
        self.frames.clear();
        self.frames.shrink_to(keep / 8 / size_of::<(Mark, Kind)>());
        (self.completed, self.written, self.written_bytes) = (0, Place::default(), 0);
    }

    /// Adds a frame of its own.
    pub(crate) fn push_frame(&mut self, kind: Kind, payload: &[u8]) {
        self.begin(kind);
        self.content.extend_from_slice(payload);
    }

    /// Adds a message, which `encode` appends, to the batch at the end, or begins a batch with it.
    /// Payloads stay within `limit` bytes. Returns how many bytes the message has.
    pub(crate) fn push_message(
        &mut self,
        route: Route,
        limit: usize,
        encode: impl FnOnce(&mut Encoded),
    ) -> Result<usize, TooLong> {
        let before = self.content.mark();
        match self.frames.last() {
            Some((start, Kind::Batch)) if before.total - start.total < BATCH_BYTES => {}
            _ => self.begin(Kind::Batch),
        }
        let payload = self.frames.last().map_or(0, |(start, _)| start.total + HEADER_BYTES);
        let message = self.content.mark();
        self.content.extend_from_slice(&route.keyspace.to_le_bytes());
        self.content.extend_from_slice(&route.to.to_le_bytes());
        self.content.extend_from_slice(&route.from.to_le_bytes());
        self.content.extend_from_slice(&[0; 4]);
        encode(&mut self.content);
        let end = self.content.mark();
        let length = end.total - message.total - PREFIX_BYTES;
        if PREFIX_BYTES + length > limit {
            self.content.truncate(before);
            if message.total == payload {
                self.frames.pop();
            }
            return Err(TooLong { bytes: length });
        }
        self.content.bytes_mut()[message.bytes + PREFIX_BYTES - 4..message.bytes + PREFIX_BYTES]
            .copy_from_slice(&(length as u32).to_le_bytes());
        if end.total - payload > limit {
            self.frames.push((message, Kind::Batch));
            self.content.insert(message, &[0; HEADER_BYTES]);
        }
        Ok(length)
    }

    /// Adds what `later` holds, which is left empty.
    pub(crate) fn append(&mut self, later: &mut OutBuffer) {
        if self.is_empty() {
            std::mem::swap(self, later);
            return;
        }
        let shift = self.content.mark();
        self.content.append_all(&mut later.content);
        self.frames.extend(later.frames.iter().map(|(start, kind)| (shift.and(*start), *kind)));
        later.clear();
    }

    /// What has to be written next, in pieces. None is left if everything was written.
    pub(crate) fn unwritten(&mut self) -> SmallVec<[IoSlice<'_>; 8]> {
        let ready = self.complete(self.written_bytes + COMPLETED_BYTES);
        self.content.pieces(self.written, ready).take(SLICES).map(IoSlice::new).collect()
    }

    /// The next `count` bytes were written.
    pub(crate) fn wrote(&mut self, count: usize) {
        self.written = self.content.after(self.written, count);
        self.written_bytes += count;
    }

    /// Writes as many bytes as a system would take that takes `at_most`.
    #[cfg(test)]
    pub(crate) fn write_some(&mut self, at_most: usize) -> Vec<u8> {
        let taken: Vec<u8> = {
            let slices = self.unwritten();
            slices.iter().flat_map(|slice| slice.iter().copied()).take(at_most).collect()
        };
        self.wrote(taken.len());
        taken
    }

    /// How many bytes were written.
    pub(crate) fn written(&self) -> usize {
        self.written_bytes
    }

    /// Completes the frames that begin before a number of bytes. Returns the end of those that are complete.
    fn complete(&mut self, bytes: usize) -> Place {
        while let Some((start, kind)) = self.frames.get(self.completed).copied() {
            if start.total >= bytes {
                return start.into();
            }
            let end = match self.frames.get(self.completed + 1) {
                Some((end, _)) => *end,
                None => self.content.mark(),
            };
            let payload = self.content.after(start.into(), HEADER_BYTES);
            let length = end.total - start.total - HEADER_BYTES;
            let header = header(kind, length, self.content.pieces(payload, end.into()));
            self.content.bytes_mut()[start.bytes..start.bytes + HEADER_BYTES]
                .copy_from_slice(&header);
            self.completed += 1;
        }
        self.content.end()
    }

    /// Completes the frames, and copies what can be written to the connection.
    pub(crate) fn copy_all(&mut self) -> Vec<u8> {
        let end = self.complete(usize::MAX);
        self.content.pieces(Place::default(), end).collect::<Vec<_>>().concat()
    }

    /// The frames' payloads, for a receiver in the same process.
    ///
    /// # Panics
    /// If values are referenced: those of messages that stay in the process are copied.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        assert_eq!(self.content.references(), 0, "what stays in the process is copied");
        let bytes = self.content.bytes();
        let ends = self.frames.iter().skip(1).map(|(start, _)| start.bytes).chain([bytes.len()]);
        let starts = self.frames.iter().map(|(start, _)| start.bytes + HEADER_BYTES);
        starts.zip(ends).map(|(start, end)| &bytes[start..end])
    }

    fn begin(&mut self, kind: Kind) {
        self.frames.push((self.content.mark(), kind));
        self.content.extend_from_slice(&[0; HEADER_BYTES]);
    }
}

/// The messages of a batch, with their receivers. It ends after the last one, or where the batch is malformed.
pub(crate) struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Messages<'a> {
        Messages { rest: payload }
    }

    /// Whether there is nothing left, as there should be after the last message.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.rest.is_empty()
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = (Route, &'a [u8]);

    fn next(&mut self) -> Option<(Route, &'a [u8])> {
        let (prefix, rest) = self.rest.split_first_chunk::<PREFIX_BYTES>()?;
        let (keyspace, ends) = prefix.split_first_chunk()?;
        let [to0, to1, from0, from1, length @ ..] = *ends.first_chunk::<8>()?;
        let (to, from) = (u16::from_le_bytes([to0, to1]), u16::from_le_bytes([from0, from1]));
        let (message, rest) = rest.split_at_checked(u32::from_le_bytes(length) as usize)?;
        self.rest = rest;
        Some((Route { keyspace: u64::from_le_bytes(*keyspace), to, from }, message))
    }
}

#[cfg(test)]
mod tests {
    use serried_actor::Wire;
    use serried_model::Value;

    use super::*;

    const KEYSPACE: u64 = 0x0123_4567_89ab_cdef;

    /// A frame's kind and its messages with their receivers' partitions.
    type Unpacked = (u8, Vec<(u16, Vec<u8>)>);

    fn unpack(bytes: &[u8]) -> Vec<Unpacked> {
        let mut frames = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]) as usize;
            let mut messages = Messages::new(&rest[HEADER_BYTES..HEADER_BYTES + length]);
            let found = messages.by_ref().map(|(route, bytes)| {
                assert_eq!((route.keyspace, route.from), (KEYSPACE, route.to + 1));
                (route.to, bytes.to_vec())
            });
            frames.push((rest[3], found.collect()));
            assert!(messages.is_exhausted());
            rest = &rest[HEADER_BYTES + length..];
        }
        frames
    }

    /// The messages of all batches.
    fn unpack_batches(bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
        unpack(bytes).into_iter().flat_map(|(_, messages)| messages).collect()
    }

    fn push(buffer: &mut OutBuffer, to: u16, bytes: &[u8]) -> Result<usize, TooLong> {
        let route = Route { keyspace: KEYSPACE, to, from: to + 1 };
        buffer.push_message(route, 100 + PREFIX_BYTES - 8, |out| out.extend_from_slice(bytes))
    }

    #[test]
    fn messages_share_a_batch_until_a_frame_of_another_kind_comes() {
        let mut buffer = OutBuffer::default();
        assert_eq!(push(&mut buffer, 1, b"a"), Ok(1));
        assert_eq!(push(&mut buffer, 2, b"bc"), Ok(2));
        buffer.push_frame(Kind::Ping, &[]);
        assert_eq!(push(&mut buffer, 1, b""), Ok(0));
        let batch = Kind::Batch as u8;
        assert_eq!(
            unpack(&buffer.copy_all()),
            [
                (batch, vec![(1, b"a".to_vec()), (2, b"bc".to_vec())]),
                (Kind::Ping as u8, vec![]),
                (batch, vec![(1, vec![])])
            ]
        );
    }

    #[test]
    fn a_batch_is_split_before_it_passes_the_limit() {
        let mut buffer = OutBuffer::default();
        for byte in 0..3u8 {
            assert_eq!(push(&mut buffer, 0, &[byte; 36]), Ok(36));
        }
        let frames = unpack(&buffer.copy_all());
        let lengths: Vec<usize> = frames.iter().map(|(_, messages)| messages.len()).collect();
        assert_eq!(lengths, [2, 1]);
        assert_eq!(frames[1].1, [(0, vec![2; 36])]);
    }

    #[test]
    fn a_message_that_no_frame_can_hold_is_refused_and_leaves_nothing_behind() {
        let mut buffer = OutBuffer::default();
        assert_eq!(push(&mut buffer, 0, &[0; 93]), Err(TooLong { bytes: 93 }));
        assert!(buffer.is_empty() && buffer.frames.is_empty());
        assert_eq!(push(&mut buffer, 0, &[7; 92]), Ok(92));
        assert_eq!(push(&mut buffer, 0, &[0; 93]), Err(TooLong { bytes: 93 }));
        assert_eq!(unpack(&buffer.copy_all()).len(), 1);
    }

    #[test]
    fn what_is_added_later_comes_after_what_was_there() {
        let (mut buffer, mut later) = (OutBuffer::default(), OutBuffer::default());
        push(&mut later, 1, b"one").unwrap();
        buffer.append(&mut later);
        push(&mut later, 2, b"two").unwrap();
        later.push_frame(Kind::Ping, &[]);
        buffer.append(&mut later);
        assert!(later.is_empty());
        assert_eq!(buffer.payloads().last(), Some(&b""[..]));
        let frames = unpack_batches(&buffer.copy_all());
        assert_eq!(frames, [(1, b"one".to_vec()), (2, b"two".to_vec())]);
    }

    #[test]
    fn a_buffer_keeps_the_room_that_it_needs_and_gives_back_what_it_does_not_bit_by_bit() {
        let mut buffer = OutBuffer::default();
        buffer.push_frame(Kind::Ping, &vec![0; 8 * KEPT_BYTES]);
        let room = buffer.content.capacity();
        buffer.clear();
        assert_eq!(buffer.content.capacity(), room);
        buffer.clear();
        assert!((room / 2..room).contains(&buffer.content.capacity()));
        (0..9).for_each(|_| buffer.clear());
        assert!(buffer.content.capacity() <= KEPT_BYTES);
    }

    /// Messages with long values, and between them others and frames of another kind.
    fn mixed() -> OutBuffer {
        let mut buffer = OutBuffer::default();
        let route = Route { keyspace: KEYSPACE, to: 3, from: 4 };
        for length in [1, 1500, 7, 1100, 1024, 1023, 2000] {
            let message = (length, vec![Value::from(vec![length as u8; length]); 2]);
            buffer.push_message(route, 20_000, |out| message.encode_into(out)).unwrap();
            buffer.push_message(route, 20_000, |out| length.encode_into(out)).unwrap();
        }
        buffer.push_frame(Kind::Ping, &[]);
        buffer
    }

    #[test]
    fn frames_with_referenced_values_have_the_same_bytes_as_frames_with_copies() {
        let (mut sharing, mut copying) = (mixed(), OutBuffer::default());
        let route = Route { keyspace: KEYSPACE, to: 3, from: 4 };
        for length in [1, 1500, 7, 1100, 1024, 1023, 2000] {
            let message = (length, vec![Value::from(vec![length as u8; length]); 2]);
            let copy = |out: &mut Encoded| {
                out.copy_values(true);
                message.encode_into(out);
            };
            copying.push_message(route, 20_000, copy).unwrap();
            copying.push_message(route, 20_000, |out| length.encode_into(out)).unwrap();
        }
        copying.push_frame(Kind::Ping, &[]);
        assert_eq!((sharing.content.references(), copying.content.references()), (8, 0));
        assert_eq!(sharing.len(), copying.len());
        assert_eq!(sharing.copy_all(), copying.copy_all());
        assert_eq!(copying.payloads().last(), Some(&b""[..]));
    }

    #[test]
    fn everything_is_written_once_however_little_the_system_takes() {
        let expected = mixed().copy_all();
        for step in [1, 2, 11, 12, 13, 1000, 1024, 4096, expected.len()] {
            let (mut buffer, mut written) = (mixed(), Vec::new());
            loop {
                let taken = buffer.write_some(step);
                if taken.is_empty() {
                    break;
                }
                written.extend_from_slice(&taken);
            }
            assert!(written == expected && buffer.written() == buffer.len(), "{step} at a time");
        }
    }

    #[test]
    fn frames_that_wait_are_completed_a_few_at_a_time() {
        let mut buffer = OutBuffer::default();
        let route = Route { keyspace: KEYSPACE, to: 0, from: 1 };
        let message = Value::from(vec![7; COMPLETED_BYTES / 2]);
        for _ in 0..8 {
            buffer.push_message(route, usize::MAX, |out| message.encode_into(out)).unwrap();
        }
        buffer.unwritten();
        assert_eq!(buffer.completed, 2);
        let expected = buffer.copy_all();
        assert_eq!(unpack_batches(&expected).len(), 8);
    }

    #[test]
    fn what_is_added_to_long_values_comes_with_its_long_values() {
        let expected = [mixed().copy_all(), mixed().copy_all()].concat();
        for written in [0, 1, 2000, expected.len() / 2 - 1] {
            let (mut buffer, mut later) = (mixed(), mixed());
            let mut arrived = buffer.write_some(written);
            buffer.append(&mut later);
            assert!(later.is_empty() && later.content.references() == 0);
            assert_eq!(buffer.len(), expected.len());
            while buffer.written() < buffer.len() {
                arrived.extend(buffer.write_some(1000));
            }
            assert!(arrived == expected, "{written} bytes were written before");
        }
    }

    #[test]
    fn a_buffer_that_is_cleared_keeps_no_values() {
        let value = Value::from(vec![7; 5000]);
        let mut buffer = OutBuffer::default();
        let route = Route { keyspace: KEYSPACE, to: 0, from: 1 };
        buffer.push_message(route, usize::MAX, |out| value.encode_into(out)).unwrap();
        assert!(buffer.content.bytes().len() < 50 && buffer.len() > 5000);
        buffer.clear();
        assert_eq!((buffer.len(), buffer.content.references()), (0, 0));
    }

    #[test]
    fn a_long_message_that_is_refused_or_begins_another_batch_takes_its_values_with_it() {
        let mut buffer = OutBuffer::default();
        let route = Route { keyspace: KEYSPACE, to: 0, from: 1 };
        let value = Value::from(vec![7; 2000]);
        let mut push = |limit| buffer.push_message(route, limit, |out| value.encode_into(out));
        assert_eq!(push(3000), Ok(2002));
        assert_eq!(push(2000), Err(TooLong { bytes: 2002 }));
        assert_eq!(push(3000), Ok(2002));
        assert_eq!((buffer.frames.len(), buffer.content.references()), (2, 2));
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(unpack_batches(&buffer.copy_all()), [(0, bytes.clone()), (0, bytes)]);
    }

    #[test]
    fn a_batch_that_is_cut_short_is_not_exhausted() {
        let mut messages = Messages::new(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 2]);
        assert_eq!(messages.next(), None);
        assert!(!messages.is_exhausted());
    }
}

//! What waits to be sent on one connection.

use crate::frame::{HEADER_BYTES, Kind, finish_frame};

/// A message of a batch begins with its keyspace's number (8 bytes), the receiver's and the sender's
/// partition (2 bytes each) and its length (4 bytes). Clients have no partition: what they send and receive
/// has their replica's in both places.
pub(crate) const PREFIX_BYTES: usize = 16;
/// When a batch is this long, the next message begins another one, so that the receiver can answer the first before it has
/// handled all.
const BATCH_BYTES: usize = 4 << 10;
/// A buffer that has grown beyond this shrinks by half each time less than a quarter of it was used.
const KEPT_BYTES: usize = 1 << 20;

/// Frames under construction, one after the other in one piece of memory. Nothing is allocated for a
/// message once the buffer has grown to what a flush usually holds.
#[derive(Default)]
pub struct OutBuffer {
    bytes: Vec<u8>,
    /// Where each frame begins, and its kind.
    frames: Vec<(usize, Kind)>,
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
        self.bytes.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        let (used, room) = (self.bytes.len(), self.bytes.capacity());
        self.bytes.clear();
        self.frames.clear();
        if room > KEPT_BYTES && used < room / 4 {
            self.bytes = Vec::with_capacity(room / 2);
        }
    }

    /// Adds a frame of its own.
    pub(crate) fn push_frame(&mut self, kind: Kind, payload: &[u8]) {
        self.begin(kind);
        self.bytes.extend_from_slice(payload);
    }

    /// Adds a message, which `encode` appends, to the batch at the end, or begins a batch with it.
    /// Payloads stay within `limit` bytes. Returns how many bytes the message has.
    pub(crate) fn push_message(
        &mut self,
        route: Route,
        limit: usize,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<usize, TooLong> {
        match self.frames.last() {
            Some((start, Kind::Batch)) if self.bytes.len() - start < BATCH_BYTES => {}
            _ => self.begin(Kind::Batch),
        }
        let payload = self.frames.last().map_or(0, |(start, _)| start + HEADER_BYTES);
        let message = self.bytes.len();
        self.bytes.extend_from_slice(&route.keyspace.to_le_bytes());
        self.bytes.extend_from_slice(&route.to.to_le_bytes());
        self.bytes.extend_from_slice(&route.from.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        encode(&mut self.bytes);
        let length = self.bytes.len() - message - PREFIX_BYTES;
        if PREFIX_BYTES + length > limit {
            self.bytes.truncate(message);
            if message == payload {
                self.frames.pop();
                self.bytes.truncate(payload - HEADER_BYTES);
            }
            return Err(TooLong { bytes: length });
        }
        self.bytes[message + PREFIX_BYTES - 4..message + PREFIX_BYTES]
            .copy_from_slice(&(length as u32).to_le_bytes());
        if self.bytes.len() - payload > limit {
            let end = self.bytes.len();
            self.frames.push((message, Kind::Batch));
            self.bytes.extend_from_slice(&[0; HEADER_BYTES]);
            self.bytes.copy_within(message..end, message + HEADER_BYTES);
        }
        Ok(length)
    }

    /// Adds what `later` holds, which is left empty.
    pub(crate) fn append(&mut self, later: &mut OutBuffer) {
        if self.is_empty() {
            std::mem::swap(self, later);
            return;
        }
        let shift = self.bytes.len();
        self.bytes.extend_from_slice(&later.bytes);
        self.frames.extend(later.frames.iter().map(|(start, kind)| (start + shift, *kind)));
        later.clear();
    }

    /// Completes the frames: what can be written to the connection.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let ends = self.frames.iter().skip(1).map(|(start, _)| *start).chain([self.bytes.len()]);
        for ((start, kind), end) in self.frames.iter().zip(ends) {
            finish_frame(&mut self.bytes[*start..end], *kind);
        }
        &self.bytes
    }

    /// The frames' payloads, for a receiver in the same process.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.frames.iter().skip(1).map(|(start, _)| *start).chain([self.bytes.len()]);
        let starts = self.frames.iter().map(|(start, _)| start + HEADER_BYTES);
        starts.zip(ends).map(|(start, end)| &self.bytes[start..end])
    }

    fn begin(&mut self, kind: Kind) {
        self.frames.push((self.bytes.len(), kind));
        self.bytes.extend_from_slice(&[0; HEADER_BYTES]);
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
            unpack(buffer.finish()),
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
        let frames = unpack(buffer.finish());
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
        assert_eq!(unpack(buffer.finish()).len(), 1);
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
        let frames = unpack_batches(buffer.finish());
        assert_eq!(frames, [(1, b"one".to_vec()), (2, b"two".to_vec())]);
    }

    #[test]
    fn a_buffer_keeps_the_room_that_it_needs_and_gives_back_what_it_does_not_bit_by_bit() {
        let mut buffer = OutBuffer::default();
        buffer.push_frame(Kind::Ping, &vec![0; 8 * KEPT_BYTES]);
        let room = buffer.bytes.capacity();
        buffer.clear();
        assert_eq!(buffer.bytes.capacity(), room);
        buffer.clear();
        assert!((room / 2..room).contains(&buffer.bytes.capacity()));
        (0..9).for_each(|_| buffer.clear());
        assert!(buffer.bytes.capacity() <= KEPT_BYTES);
    }

    #[test]
    fn a_batch_that_is_cut_short_is_not_exhausted() {
        let mut messages = Messages::new(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 2]);
        assert_eq!(messages.next(), None);
        assert!(!messages.is_exhausted());
    }
}

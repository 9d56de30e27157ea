//! Encodings of messages in which long values are not copied.

use serried_model::Value;

/// Long values, each with the place of the byte before which it belongs.
pub(crate) type Shared = Vec<(usize, Value)>;

/// Encodings, one after the other. Bytes lie in one piece of memory, except for long values, which are referenced. So a
/// message with many long values takes little memory of its own.
#[derive(Debug, Default)]
pub struct Encoded {
    bytes: Vec<u8>,
    /// In order.
    shared: Shared,
    /// The total length of the first `counted` values.
    shared_bytes: usize,
    counted: usize,
    /// Whether long values are copied like everything else.
    copies: bool,
}

/// The end of what was there at some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// How many bytes there were, without the values.
    pub bytes: usize,
    shared: usize,
    /// How many bytes there were.
    pub total: usize,
}

impl Mark {
    /// The same mark of another encoding after that has been [appended](Encoded::append) here.
    #[must_use]
    pub fn and(self, of_appended: Mark) -> Mark {
        Mark {
            bytes: self.bytes + of_appended.bytes,
            shared: self.shared + of_appended.shared,
            total: self.total + of_appended.total,
        }
    }
}

/// A place in it, which can be in the middle of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    bytes: usize,
    shared: usize,
    /// How far it is in the next value.
    within: usize,
}

impl From<Mark> for Place {
    fn from(Mark { bytes, shared, .. }: Mark) -> Place {
        Place { bytes, shared, within: 0 }
    }
}

impl Encoded {
    /// How many bytes it has, those of values included.
    pub fn len(&self) -> usize {
        let uncounted = self.shared[self.counted..].iter().map(|(_, value)| value.len());
        self.bytes.len() + self.shared_bytes + uncounted.sum::<usize>()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.shared.is_empty()
    }

    /// The bytes without the values.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// How many bytes it has room for, without the values.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// How many values it references.
    pub fn references(&self) -> usize {
        self.shared.len()
    }

    /// Sets whether long values of further messages are copied like everything else.
    pub fn copy_values(&mut self, copies: bool) {
        self.copies = copies;
    }

    /// The end of what is there.
    pub fn mark(&mut self) -> Mark {
        self.shared_bytes = self.len() - self.bytes.len();
        self.counted = self.shared.len();
        let total = self.bytes.len() + self.shared_bytes;
        Mark { bytes: self.bytes.len(), shared: self.shared.len(), total }
    }

    /// Where an encoder appends bytes, and where it puts long values if it may.
    pub(crate) fn tail(&mut self) -> (&mut Vec<u8>, Option<&mut Shared>) {
        let Encoded { bytes, shared, copies, .. } = self;
        (bytes, (!*copies).then_some(shared))
    }

    /// Appends bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends what another has.
    pub fn append(&mut self, other: &Encoded) {
        if self.copies {
            return other
                .pieces(Place::default(), other.end())
                .for_each(|piece| self.bytes.extend_from_slice(piece));
        }
        let shift = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.shared
            .extend(other.shared.iter().map(|(place, value)| (place + shift, value.clone())));
    }

    /// Appends what another has, which keeps none of its references.
    pub fn append_all(&mut self, other: &mut Encoded) {
        if self.copies {
            return self.append(other);
        }
        let shift = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.shared.extend(other.shared.drain(..).map(|(place, value)| (place + shift, value)));
        other.truncate(Mark::default());
    }

    /// Inserts bytes at a place where a message began.
    pub fn insert(&mut self, at: Mark, bytes: &[u8]) {
        let end = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.bytes.copy_within(at.bytes..end, at.bytes + bytes.len());
        self.bytes[at.bytes..at.bytes + bytes.len()].copy_from_slice(bytes);
        self.shared[at.shared..].iter_mut().for_each(|(place, _)| *place += bytes.len());
    }

    /// Removes everything from a place on where a message began.
    pub fn truncate(&mut self, at: Mark) {
        self.bytes.truncate(at.bytes);
        self.shared.truncate(at.shared);
        (self.counted, self.shared_bytes) = (at.shared, at.total - at.bytes);
    }

    /// Removes everything. It keeps memory for `room` bytes at most, and an eighth of that for references.
    pub fn clear(&mut self, room: usize) {
        self.truncate(Mark::default());
        self.bytes.shrink_to(room);
        self.shared.shrink_to(room / 8 / size_of::<(usize, Value)>());
    }

    /// The place after the last byte.
    pub fn end(&self) -> Place {
        Place { bytes: self.bytes.len(), shared: self.shared.len(), within: 0 }
    }

    /// The pieces of memory between two places, of which the second is not in the middle of a value. None is empty.
    pub fn pieces(&self, from: Place, to: Place) -> impl Iterator<Item = &[u8]> {
        let mut at = from;
        core::iter::from_fn(move || {
            let piece = self.piece(at, to);
            at = self.after(at, piece.len());
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// The place that is `count` bytes after another.
    pub fn after(&self, from: Place, count: usize) -> Place {
        let (mut at, mut left) = (from, count);
        while left > 0 {
            let step = self.piece(at, self.end()).len().min(left);
            match self.value_at(at) {
                Some(value) if at.within + step == value.len() => {
                    (at.shared, at.within) = (at.shared + 1, 0);
                }
                Some(_) => at.within += step,
                None => at.bytes += step,
            }
            left -= step;
        }
        at
    }

    /// The piece of memory that begins at a place, up to another place.
    fn piece(&self, at: Place, to: Place) -> &[u8] {
        if at.shared == to.shared {
            return &self.bytes[at.bytes..to.bytes];
        }
        match self.value_at(at) {
            Some(value) => &value.as_bytes()[at.within..],
            None => &self.bytes[at.bytes..self.shared[at.shared].0],
        }
    }

    /// The value that lies at a place.
    fn value_at(&self, at: Place) -> Option<&Value> {
        let (place, value) = self.shared.get(at.shared)?;
        (*place == at.bytes).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use serried_model::sharing::SHARED_BYTES;

    use super::*;
    use crate::Wire;

    fn long(byte: u8) -> Value {
        Value::from(vec![byte; SHARED_BYTES + usize::from(byte)])
    }

    fn whole(encoded: &Encoded) -> Vec<u8> {
        encoded.pieces(Place::default(), encoded.end()).collect::<Vec<_>>().concat()
    }

    fn message() -> (u64, Vec<Value>, Option<Value>) {
        (700, vec![long(1), long(2), Value::from("short")], Some(long(3)))
    }

    #[test]
    fn long_values_are_referenced_and_the_bytes_are_those_of_an_encoding_that_copies() {
        let (message, mut encoded, mut copied) = (message(), Encoded::default(), Vec::new());
        message.encode(&mut copied);
        message.encode_into(&mut encoded);
        assert_eq!((whole(&encoded), encoded.len()), (copied.clone(), copied.len()));
        assert_eq!(encoded.references(), 3);
        assert!(encoded.bytes().len() < 30);
        let of_first = |piece: &[u8]| core::ptr::eq(piece, message.1[0].as_bytes());
        assert!(encoded.pieces(Place::default(), encoded.end()).any(of_first));
        encoded.clear(0);
        encoded.copy_values(true);
        message.encode_into(&mut encoded);
        assert_eq!((encoded.bytes(), encoded.references()), (&copied[..], 0));
    }

    #[test]
    fn a_place_can_be_anywhere_and_the_rest_follows_from_there() {
        let mut encoded = Encoded::default();
        message().encode_into(&mut encoded);
        let all = whole(&encoded);
        for cut in 0..=all.len() {
            let at = encoded.after(Place::default(), cut);
            let rest: Vec<&[u8]> = encoded.pieces(at, encoded.end()).collect();
            assert!(rest.iter().all(|piece| !piece.is_empty()));
            assert_eq!(rest.concat(), all[cut..]);
        }
        assert_eq!(encoded.after(Place::default(), all.len()), encoded.end());
    }

    #[test]
    fn parts_are_appended_inserted_and_removed_with_their_values() {
        let (mut encoded, mut other) = (Encoded::default(), Encoded::default());
        long(1).encode_into(&mut encoded);
        let one = encoded.mark();
        (long(2), 5u8).encode_into(&mut other);
        encoded.append(&other);
        let two = encoded.mark();
        assert_eq!((two.total, encoded.len()), (one.total + other.len(), two.total));
        encoded.insert(one, b"between");
        let expected = |with: &[u8]| {
            let (mut first, mut second) = (Vec::new(), Vec::new());
            long(1).encode(&mut first);
            (long(2), 5u8).encode(&mut second);
            [first, with.to_vec(), second].concat()
        };
        assert_eq!(whole(&encoded), expected(b"between"));
        assert_eq!(encoded.len(), two.total + 7);
        encoded.truncate(one);
        assert_eq!((encoded.len(), encoded.references()), (one.total, 1));
        let (mut moved, mut again) = (Encoded::default(), Encoded::default());
        (long(2), 5u8).encode_into(&mut again);
        moved.append_all(&mut again);
        long(1).encode_into(&mut again);
        moved.append_all(&mut again);
        assert!(again.is_empty());
        let mut both = Vec::new();
        ((long(2), 5u8), long(1)).encode(&mut both);
        assert_eq!((whole(&moved), moved.len(), moved.references()), (both.clone(), both.len(), 2));
        encoded.copy_values(true);
        encoded.append(&other);
        assert_eq!((whole(&encoded), encoded.references()), (expected(b""), 1));
    }

    #[test]
    fn it_gives_back_memory_that_it_need_not_keep() {
        let mut encoded = Encoded::default();
        (0..100).for_each(|_| message().encode_into(&mut encoded));
        encoded.extend_from_slice(&vec![0; 10_000]);
        encoded.clear(1000);
        assert!(encoded.is_empty() && encoded.capacity() <= 1000);
        assert!(encoded.shared.capacity() * size_of::<(usize, Value)>() <= 1000 / 8);
    }
}

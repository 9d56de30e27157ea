//! Records that are written and flushed as one.

use crate::segment::BATCH_HEADER;

/// Records to be written to a [`crate::LogFiles`]. A batch is reused, and keeps its memory.
#[derive(Debug)]
pub struct Batch {
    /// Room for the header, then the records.
    pub(crate) bytes: Vec<u8>,
    pub(crate) first: u64,
    pub(crate) count: u32,
}

impl Batch {
    /// An empty batch. Its first record gets `position`.
    pub fn starting_at(position: u64) -> Batch {
        Batch { bytes: vec![0; BATCH_HEADER], first: position, count: 0 }
    }

    /// Adds a record, which `encode` appends to the buffer. Returns the position after it.
    pub fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        encode(&mut self.bytes);
        let length = (self.bytes.len() - start - 4) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
        self.count += 1;
        self.next_position()
    }

    /// The position of the next record.
    pub fn next_position(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its size in the log, in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Empties it. The next record gets `position`.
    pub fn restart_at(&mut self, position: u64) {
        self.bytes.truncate(BATCH_HEADER);
        (self.first, self.count) = (position, 0);
    }
}

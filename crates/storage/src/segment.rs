//! The format of a log's files.
//!
//! A segment is a header, followed by batches. All numbers are little-endian:
//!
//! | segment header | bytes |       | batch header | bytes |
//! |---|---|---|---|---|
//! | `SRDLOG` 0 1 | 8 |           | magic | 4 |
//! | identity of the log | 8 |    | bytes after the header | 4 |
//! | position of its first record | 8 | | position of its first record | 8 |
//! | 1 if the file was used before | 4 | | number of records | 4 |
//! | CRC-32 of the above | 4 |    | CRC-32 of the bytes after the header | 4 |
//! | | |                          | CRC-32 of the above and of the identity | 4 |
//!
//! The last batch is followed by zeros, or by older contents if the file was reused: batches of lower positions. An
//! incomplete batch is the last one and was torn by a crash, unless a batch of a higher position follows somewhere: a
//! batch is written only when the one before is complete.

use std::path::Path;

use crate::StorageError;

/// The length of a segment's header.
pub(crate) const SEGMENT_HEADER: usize = 32;
/// The length of a batch's header.
pub(crate) const BATCH_HEADER: usize = 28;

const SEGMENT_MAGIC: [u8; 8] = *b"SRDLOG\0\x01";
const BATCH_MAGIC: [u8; 4] = [0xb7, 0x5e, 0xd1, 0x0c];

/// The header of a segment, in a file that was used before or was not.
pub(crate) fn segment_header(identity: u64, first: u64, used: bool) -> [u8; SEGMENT_HEADER] {
    let mut header = [0; SEGMENT_HEADER];
    header[..8].copy_from_slice(&SEGMENT_MAGIC);
    header[8..16].copy_from_slice(&identity.to_le_bytes());
    header[16..24].copy_from_slice(&first.to_le_bytes());
    header[24..28].copy_from_slice(&u32::from(used).to_le_bytes());
    let crc = crc32fast::hash(&header[..28]);
    header[28..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Fills in the header of a batch.
pub(crate) fn seal(bytes: &mut [u8], identity: u64, first: u64, count: u32) {
    let (header, payload) = bytes.split_at_mut(BATCH_HEADER);
    header[..4].copy_from_slice(&BATCH_MAGIC);
    header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[8..16].copy_from_slice(&first.to_le_bytes());
    header[16..20].copy_from_slice(&count.to_le_bytes());
    header[20..24].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    let crc = header_crc(&header[..24], identity);
    header[24..28].copy_from_slice(&crc.to_le_bytes());
}

fn header_crc(header: &[u8], identity: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(&identity.to_le_bytes());
    hasher.finalize()
}

fn number_4(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn number_8(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The contents of a segment's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub identity: u64,
    pub first: u64,
    pub used: bool,
}

/// Reads a segment's header.
pub(crate) fn read_header(path: &Path, bytes: &[u8]) -> Result<Header, StorageError> {
    if bytes.len() < SEGMENT_HEADER || bytes[..6] != SEGMENT_MAGIC[..6] {
        return Err(StorageError::corrupt(path, 0, "this is no segment of a log"));
    }
    if bytes[..8] != SEGMENT_MAGIC {
        let reason = format!(
            "its format is {}, and this release reads up to {}; use a newer release",
            bytes[7], SEGMENT_MAGIC[7]
        );
        return Err(StorageError::refused(path, reason));
    }
    if crc32fast::hash(&bytes[..28]) != number_4(bytes, 28) {
        return Err(StorageError::corrupt(path, 0, "the header does not match its checksum"));
    }
    let (identity, first) = (number_8(bytes, 8), number_8(bytes, 16));
    Ok(Header { identity, first, used: number_4(bytes, 24) != 0 })
}

/// A batch's header, if there is one at the beginning of `bytes`: its length with the header, the
/// position of its first record and their number.
fn read_batch_header(bytes: &[u8], identity: u64) -> Option<(usize, u64, u32)> {
    let header = bytes.get(..BATCH_HEADER)?;
    let intact =
        header[..4] == BATCH_MAGIC && header_crc(&header[..24], identity) == number_4(header, 24);
    intact.then(|| {
        let length = BATCH_HEADER + number_4(header, 4) as usize;
        (length, number_8(header, 8), number_4(header, 16))
    })
}

/// A whole batch at the beginning of `bytes`: its length, the position of its first record, their
/// number.
pub(crate) fn read_batch(bytes: &[u8], identity: u64) -> Option<(usize, u64, u32)> {
    let (length, first, count) = read_batch_header(bytes, identity)?;
    let payload = bytes.get(BATCH_HEADER..length)?;
    (crc32fast::hash(payload) == number_4(bytes, 20)).then_some((length, first, count))
}

/// Goes through a segment's batches from `offset` on. The first one must begin at `position`. Returns where the last
/// complete one ends, and the position there.
pub(crate) fn read_batches(
    path: &Path,
    bytes: &[u8],
    identity: u64,
    mut position: u64,
    each: &mut dyn FnMut(u64, &[u8]),
) -> Result<(usize, u64), StorageError> {
    let mut offset = SEGMENT_HEADER;
    while let Some((length, first, count)) = read_batch(&bytes[offset..], identity) {
        if first != position {
            break; // Left from when the file was used before.
        }
        let Some(next) = position.checked_add(u64::from(count)) else {
            let what =
                "a batch has positions beyond the last that there is, and its checksum is right";
            return Err(StorageError::corrupt(path, offset as u64, what));
        };
        let mut rest = &bytes[offset + BATCH_HEADER..offset + length];
        for record in 0..u64::from(count) {
            let whole = rest.get(..4).map(|length| number_4(length, 0) as usize);
            let Some(bytes) = whole.and_then(|length| rest.get(4..4 + length)) else {
                let what = "a record is longer than its batch, whose checksum is right";
                return Err(StorageError::corrupt(path, offset as u64, what));
            };
            each(position + record, bytes);
            rest = &rest[4 + bytes.len()..];
        }
        position = next;
        offset += length;
    }
    Ok((offset, position))
}

/// The offset of a batch of `position` or above, at `offset` or behind it, if there is one.
pub(crate) fn find_batch(
    bytes: &[u8],
    offset: usize,
    identity: u64,
    position: u64,
) -> Option<usize> {
    let rest = bytes.get(offset..)?;
    let candidates = rest.windows(BATCH_HEADER).enumerate();
    let mut found =
        candidates.filter(|(_, window)| window[..4] == BATCH_MAGIC).filter(|(at, _)| {
            read_batch_header(&rest[*at..], identity).is_some_and(|(_, first, _)| first >= position)
        });
    found.next().map(|(at, _)| offset + at)
}

/// The length of the torn batch at the start of `rest`, which follows the last complete batch.
pub(crate) fn torn(rest: &[u8], used: bool, identity: u64, position: u64) -> u64 {
    if !used {
        return rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
    }
    match read_batch_header(rest, identity) {
        Some((length, first, _)) if first == position => length.min(rest.len()) as u64,
        _ => 0,
    }
}

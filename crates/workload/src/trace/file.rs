//! The file of a trace.
//!
//! ```text
//! | "SERRIED TRACE" and 3 zeros | version | block ...
//! block:  | kind | length | payload ... | checksum |
//! ```
//!
//! Numbers are little-endian: the version has 2 bytes, a kind 1, lengths and checksums 4. A checksum (CRC-32) covers
//! the kind, the length and the payload. There is one block with the header, then come those of keys, those of
//! transactions, and the last one, which has the numbers of both. Payloads are postcard.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serried_model::{Family, Key, Transactions};

use super::{Trace, TraceHeader, TracedTransaction};

/// How every trace begins.
const MAGIC: &[u8; 16] = b"SERRIED TRACE\0\0\0";
/// The version of the format.
const VERSION: u16 = 1;
const PREFIX_BYTES: usize = MAGIC.len() + 2;
/// How many bytes of a block come before its payload.
const BLOCK_BYTES: usize = 5;
const CHECKSUM_BYTES: usize = 4;
/// How many keys or transactions a block has, at most.
const EACH: usize = 512;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
enum Kind {
    Header = 1,
    Keys = 2,
    Transactions = 3,
    End = 4,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        let all = [Kind::Header, Kind::Keys, Kind::Transactions, Kind::End];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Why a file can't be read as a trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// It is something else.
    #[error("it is no trace: `serried record` writes traces")]
    NoTrace,
    /// It has another version.
    #[error(
        "it is a trace of version {found}, and this program reads version {VERSION}: \
         record it again, or use the program that has recorded it"
    )]
    Version {
        /// Its version.
        found: u16,
    },
    /// It is damaged.
    #[error("it is damaged at byte {at}: {reason}")]
    Damaged {
        /// Where.
        at: usize,
        /// Why.
        reason: String,
    },
    /// It is a trace of another family.
    #[error("it is a trace of {family}, and only traces of transactions can be run")]
    Family {
        /// The family.
        family: String,
    },
}

impl Trace {
    /// How many bytes show whether a file can be a trace.
    pub const BEGIN_BYTES: u64 = PREFIX_BYTES as u64;

    /// Whether a file that begins like this, with that many bytes, can be a trace of this version.
    pub fn may_begin(begin: &[u8]) -> bool {
        begin.starts_with(MAGIC) && begin[MAGIC.len()..].starts_with(&VERSION.to_le_bytes())
    }

    /// The bytes of its file.
    pub fn encode(&self) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_le_bytes());
        push(&mut file, Kind::Header, &self.header);
        for keys in self.keys.chunks(EACH) {
            push(&mut file, Kind::Keys, &keys);
        }
        for transactions in self.transactions.chunks(EACH) {
            push(&mut file, Kind::Transactions, &transactions);
        }
        push(&mut file, Kind::End, &(self.keys.len() as u64, self.transactions.len() as u64));
        file
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it is not exactly what [`Trace::encode`] returns for a trace.
    pub fn decode(file: &[u8]) -> Result<Trace, TraceError> {
        let Some((prefix, _)) = file.split_first_chunk::<PREFIX_BYTES>() else {
            return Err(TraceError::NoTrace);
        };
        if prefix[..MAGIC.len()] != *MAGIC {
            return Err(TraceError::NoTrace);
        }
        let found = u16::from_le_bytes([prefix[MAGIC.len()], prefix[MAGIC.len() + 1]]);
        if found != VERSION {
            return Err(TraceError::Version { found });
        }
        let mut blocks = Blocks { file, at: PREFIX_BYTES };
        let (kind, first) = blocks.next()?;
        if kind != Kind::Header {
            return Err(first.damaged("its first block is not the header"));
        }
        let header: TraceHeader = first.decode()?;
        let TraceHeader { family, cluster, keyspace, protocol, .. } = &header;
        if [family, cluster, keyspace, protocol].iter().any(|name| name.contains(char::is_control))
        {
            return Err(first.damaged("a name in its header has control characters"));
        }
        if header.family != Transactions::NAME.to_string() {
            return Err(TraceError::Family { family: header.family });
        }
        let (mut keys, mut transactions) = (Vec::new(), Vec::new());
        let mut last = Kind::Header;
        loop {
            let (kind, block) = blocks.next()?;
            if kind < last || kind == Kind::Header {
                return Err(block.damaged("its blocks are not in their order"));
            }
            last = kind;
            match kind {
                Kind::Keys => keys.extend(block.decode::<Vec<Key>>()?),
                Kind::Transactions => {
                    transactions.extend(block.decode::<Vec<TracedTransaction>>()?);
                }
                Kind::Header | Kind::End => {
                    let counts: (u64, u64) = block.decode()?;
                    if counts != (keys.len() as u64, transactions.len() as u64) {
                        return Err(block.damaged("blocks are missing before its last one"));
                    }
                    break;
                }
            }
        }
        let at = blocks.at;
        let damaged = |reason: String| TraceError::Damaged { at, reason };
        if at < file.len() {
            return Err(damaged("something follows its last block".to_string()));
        }
        Trace::new(header, keys, transactions).map_err(damaged)
    }
}

/// Appends a block.
fn push(file: &mut Vec<u8>, kind: Kind, content: &impl Serialize) {
    let payload = postcard::to_allocvec(content).expect("it can be written");
    let begin = file.len();
    file.push(kind as u8);
    file.extend((payload.len() as u32).to_le_bytes());
    file.extend(payload);
    let checksum = crc32fast::hash(&file[begin..]);
    file.extend(checksum.to_le_bytes());
}

/// The blocks of a file from `at` on.
struct Blocks<'a> {
    file: &'a [u8],
    at: usize,
}

/// A block whose checksum is right.
struct Block<'a> {
    at: usize,
    payload: &'a [u8],
}

impl<'a> Blocks<'a> {
    fn next(&mut self) -> Result<(Kind, Block<'a>), TraceError> {
        let at = self.at;
        let damaged = |reason: &str| Err(TraceError::Damaged { at, reason: reason.to_string() });
        let rest = &self.file[at..];
        let Some(first) = rest.first_chunk::<BLOCK_BYTES>() else {
            return damaged("it ends before its last block");
        };
        let length = u32::from_le_bytes([first[1], first[2], first[3], first[4]]) as usize;
        let end = BLOCK_BYTES.saturating_add(length);
        let Some(checksum) = rest.get(end..).and_then(|rest| rest.first_chunk::<CHECKSUM_BYTES>())
        else {
            return damaged("it ends within a block");
        };
        if u32::from_le_bytes(*checksum) != crc32fast::hash(&rest[..end]) {
            return damaged("the checksum of a block is wrong");
        }
        let Some(kind) = Kind::from_byte(first[0]) else {
            return damaged("no block is of this kind");
        };
        self.at += end + CHECKSUM_BYTES;
        Ok((kind, Block { at, payload: &rest[BLOCK_BYTES..end] }))
    }
}

impl Block<'_> {
    fn damaged(&self, reason: &str) -> TraceError {
        TraceError::Damaged { at: self.at, reason: reason.to_string() }
    }

    fn decode<T: DeserializeOwned>(&self) -> Result<T, TraceError> {
        match postcard::take_from_bytes(self.payload) {
            Ok((content, [])) => Ok(content),
            Ok(_) => Err(self.damaged("a block is longer than its content")),
            Err(error) => Err(self.damaged(&format!("a block can't be read: {error}"))),
        }
    }
}

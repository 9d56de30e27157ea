//! How the payloads of frames other than batches are encoded.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::frame::{BadFrame, Kind};

/// Reads the payload of a frame other than a batch.
///
/// # Errors
/// If it is malformed, or longer than it should be.
pub fn decode<T: DeserializeOwned>(kind: Kind, payload: &[u8]) -> Result<T, BadFrame> {
    match postcard::take_from_bytes(payload) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(BadFrame::Payload(kind, format!("{} bytes too many", rest.len()))),
        Err(error) => Err(BadFrame::Payload(kind, error.to_string())),
    }
}

/// Writes the payload of a frame other than a batch.
///
/// # Panics
/// If `value` contains a sequence that does not know its length.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("encoding fails only for types without a length")
}

//! Transactions of which each message is written by hand.

use std::sync::Arc;

use serried_parts::{Effect, WriteId};

use super::*;
use crate::morty::message::{Contents, Read, Request, TaggedWrite};

/// A transaction. The coordinators of a [`Net`] know nothing of it, so nobody takes care of it.
pub(super) fn version(timestamp_us: u64, client: u64) -> Version {
    Version { timestamp_us, coordinator: coordinator_id(client) }
}

/// What an execution reads, each key as another transaction wrote it first, and what it writes.
pub(super) fn contents(reads: &[(&str, Version)], writes: &[(&str, &str)]) -> Arc<Contents> {
    let read = |(key, version): &(&str, Version)| {
        let tag = u32::from(*version != Version::INITIAL);
        Read { key: Key::from(*key), found: WriteId { version: *version, tag }.into() }
    };
    let tagged = |(key, value): &(&str, &str)| {
        let Write { key, value } = write(key, value);
        TaggedWrite { key, tag: 1, effect: Effect::Put(value) }
    };
    Arc::new(Contents {
        participants: [0].into_iter().collect(),
        reads: reads.iter().map(read).collect(),
        writes: writes.iter().map(tagged).collect(),
        ..Contents::default()
    })
}

pub(super) fn prepare(version: Version, eid: u32, contents: &Arc<Contents>) -> Message {
    Message::Request(Request::Prepare { version, eid, next_tag: 2, contents: contents.clone() })
}

pub(super) fn finalize(version: Version, eid: u32, decision: Proposal) -> Message {
    Message::Request(Request::Finalize { version, eid, view: View::OWN, decision })
}

pub(super) fn decide(
    version: Version,
    eid: u32,
    decision: Decision,
    contents: &Arc<Contents>,
) -> Message {
    Message::Request(Request::Decide { version, eid, decision, contents: Some(contents.clone()) })
}

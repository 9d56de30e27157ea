//! For `serried-hostile` and its fuzz targets: reads frames as a connection does, without a connection.

use serried_model::NodeId;

use crate::core::{decode, encode};
use crate::frame::{FrameReader, HEADER_BYTES, Kind, finish_frame};
use crate::handshake::{Hello, Welcome};
use crate::out_buffer::{Messages, OutBuffer, Route};
use crate::shards::Shards;
use crate::watch::{WatchReply, WatchRequest};
use crate::{NodeStatus, TransportOptions};

/// Reads frames and their payloads from these bytes, up to the first that is not a frame. Must not panic.
#[doc(hidden)]
pub fn read_hostile_frames(bytes: &[u8]) {
    let shards = Shards::new([(7, 2)]);
    let mut reader = FrameReader::holding(bytes, TransportOptions::LEAST_FRAME_BYTES);
    while let Ok(Some(frame)) = reader.next_frame() {
        read_payload(frame.kind, frame.payload, &shards);
    }
    // Also reads the rest as the payload of each kind, since random bytes never have the right checksum.
    let kinds = [Kind::Hello, Kind::Welcome, Kind::Batch, Kind::StatusReply, Kind::WatchRequest];
    for kind in kinds.into_iter().chain([Kind::WatchReply, Kind::Obstacle]) {
        read_payload(kind, bytes.get(HEADER_BYTES..).unwrap_or_default(), &shards);
    }
}

fn read_payload(kind: Kind, payload: &[u8], shards: &Shards) {
    match kind {
        Kind::Hello => drop(decode::<Hello>(kind, payload)),
        Kind::Welcome => drop(decode::<Welcome>(kind, payload)),
        Kind::Reject => drop(decode::<String>(kind, payload)),
        Kind::Batch => {
            for (route, _) in Messages::new(payload) {
                let known = shards.locate(route).is_some();
                assert!(!known || route.keyspace == 7, "{route:?} is not known");
            }
        }
        Kind::StatusRequest | Kind::WatchEnd => drop(decode::<u64>(kind, payload)),
        Kind::StatusReply => drop(decode::<(u64, NodeStatus)>(kind, payload)),
        Kind::WatchRequest => drop(decode::<(u64, WatchRequest)>(kind, payload)),
        Kind::WatchReply => drop(decode::<(u64, WatchReply)>(kind, payload)),
        Kind::Obstacle => drop(decode::<Option<String>>(kind, payload)),
        Kind::Ping | Kind::Pong => {}
    }
}

/// Some valid frames.
#[doc(hidden)]
pub fn example_frames() -> Vec<Vec<u8>> {
    let hello = Hello {
        node: NodeId(NodeId::FIRST_COORDINATOR),
        incarnation: 3,
        core: 1,
        cluster: Some("bank".to_string()),
        site: None,
        frame_bytes: 1 << 20,
        provenance: None,
    };
    let mut first = vec![0; HEADER_BYTES];
    first.extend(encode(&hello));
    finish_frame(&mut first, Kind::Hello);
    let mut batch = OutBuffer::default();
    for partition in 0..3 {
        let route = Route { keyspace: 7, to: partition, from: 0 };
        let pushed = batch.push_message(route, 1000, |out| out.extend_from_slice(b"message"));
        pushed.expect("it is short");
    }
    batch.push_frame(Kind::Ping, &[]);
    batch.push_frame(Kind::Obstacle, &encode(&Some("no room")));
    vec![first, batch.finish().to_vec()]
}

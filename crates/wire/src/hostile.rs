//! For `serried-hostile` and its fuzz targets: reads frames as a connection does, without a connection.

use std::time::Duration;

use serried_model::{Form, Key, NodeId, ReportedRead, ReportedWrite, TransactionReport};

use crate::codec::{decode, encode};
use crate::frame::{FrameReader, HEADER_BYTES, Kind, finish_frame};
use crate::handshake::{Hello, KnownData, Welcome};
use crate::options::TransportOptions;
use crate::out_buffer::{Messages, OutBuffer, Route};
use crate::record::{RecordReply, RecordRequest, Report, ReportRequest};
use crate::shards::Shards;
use crate::status::NodeStatus;
use crate::watch::{Recorded, WatchReply, WatchRequest};

/// Reads frames and their payloads from these bytes, up to the first that is not a frame. Returns whether any of them
/// could be read. Must not panic.
#[doc(hidden)]
pub fn read_hostile_frames(bytes: &[u8]) -> bool {
    let shards = Shards::new([(7, 2)]);
    let mut understood = false;
    for shares in [false, true] {
        let mut reader = FrameReader::new(TransportOptions::LEAST_FRAME_BYTES);
        if shares {
            reader.share();
        }
        let mut rest = bytes;
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => understood |= read_payload(frame.kind, frame.payload, &shards),
                Ok(None) if !rest.is_empty() => {
                    let (room, at_most) = reader.room();
                    let (read, later) = rest.split_at(at_most.min(rest.len()));
                    room.extend_from_slice(read);
                    rest = later;
                }
                _ => break,
            }
        }
    }
    // Also reads the rest as the payload of each kind, since random bytes never have the right checksum.
    let kinds = [Kind::Hello, Kind::Welcome, Kind::Batch, Kind::StatusReply, Kind::WatchRequest];
    let others = [Kind::WatchReply, Kind::Obstacle, Kind::Known, Kind::RecordRequest];
    let reports = [Kind::RecordReply, Kind::ReportRequest, Kind::Report];
    for kind in kinds.into_iter().chain(others).chain(reports) {
        understood |= read_payload(kind, bytes.get(HEADER_BYTES..).unwrap_or_default(), &shards);
    }
    understood
}

fn read_payload(kind: Kind, payload: &[u8], shards: &Shards) -> bool {
    match kind {
        Kind::Hello => decode::<Hello>(kind, payload).is_ok(),
        Kind::Welcome => decode::<Welcome>(kind, payload).is_ok_and(|w| w.check().is_ok()),
        Kind::Known => decode::<KnownData>(kind, payload).is_ok(),
        Kind::Reject | Kind::Full | Kind::Disowned => decode::<String>(kind, payload).is_ok(),
        Kind::Batch => {
            let mut messages = Messages::new(payload);
            for (route, _) in &mut messages {
                let known = shards.locate(route).is_some();
                assert!(!known || route.keyspace == 7, "{route:?} is not known");
            }
            messages.is_exhausted()
        }
        Kind::StatusRequest | Kind::WatchEnd | Kind::RecordEnd => {
            decode::<u64>(kind, payload).is_ok()
        }
        Kind::StatusReply => decode::<(u64, NodeStatus)>(kind, payload).is_ok(),
        Kind::WatchRequest => decode::<(u64, WatchRequest)>(kind, payload).is_ok(),
        Kind::WatchReply => decode::<(u64, WatchReply)>(kind, payload).is_ok(),
        Kind::RecordRequest => decode::<(u64, RecordRequest)>(kind, payload).is_ok(),
        Kind::RecordReply => decode::<(u64, RecordReply)>(kind, payload).is_ok(),
        Kind::ReportRequest => decode::<Option<ReportRequest>>(kind, payload).is_ok(),
        Kind::Report => decode::<Report>(kind, payload).is_ok(),
        Kind::Obstacle => decode::<Option<String>>(kind, payload).is_ok(),
        Kind::Ping | Kind::Pong => false,
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
        inquires: false,
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
    batch.push_frame(Kind::Known, &encode(&Welcome::example().known));
    let frame = |kind, payload: Vec<u8>| {
        let mut frame = vec![0; HEADER_BYTES];
        frame.extend(payload);
        finish_frame(&mut frame, kind);
        frame
    };
    let wanted = WatchRequest {
        keyspace: 7,
        keys: vec![Key::from("key")],
        hottest: 3,
        count: Duration::from_secs(1),
        record: Duration::from_secs(2),
    };
    let recorded = WatchReply::Ended(Recorded {
        from_ns: 1,
        until_ns: 1 << 60,
        forgotten: 0,
        until_us: 1 << 50,
        committed: 5,
        committed_where_it_leads: 4,
        aborted: 1,
        committed_before: 3,
    });
    let asked = ReportRequest {
        recording: 3,
        keyspace: 7,
        elapsed: Duration::ZERO,
        lasts: Duration::from_secs(9),
    };
    let read = ReportedRead { key: Key::from("key"), round: 1, for_update: true, bytes: Some(8) };
    let transaction = TransactionReport {
        began_ns: 5,
        ended_ns: 1 << 40,
        attempts: 2,
        form: Form::Program,
        reads: vec![read],
        writes: vec![ReportedWrite { key: Key::from("key"), bytes: None }],
        modifies: Vec::new(),
    };
    let reported = RecordReply::Reported(NodeId(9), vec![transaction.clone()]);
    let others = [
        frame(Kind::ReportRequest, encode(&Some(asked))),
        frame(
            Kind::Report,
            encode(&Report { recording: 3, missed: 0, transactions: vec![transaction] }),
        ),
        frame(Kind::RecordReply, encode(&(1u64, reported))),
        frame(Kind::Welcome, encode(&Welcome::example())),
        frame(Kind::WatchRequest, encode(&(1u64, wanted))),
        frame(Kind::WatchReply, encode(&(1u64, recorded))),
    ];
    [vec![first, batch.copy_all()], others.to_vec()].concat()
}

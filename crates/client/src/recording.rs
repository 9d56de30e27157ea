//! A client's view of a recording of what all clients of a keyspace do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serried_model::{Key, NodeId, TransactionReport};
use serried_wire::{Endpoint, Kind, RecordReply, RecordRequest, encode};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::error::ConnectError;
use crate::side::{ClientSide, Replies, report_bytes};

/// How long a node may take to begin.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a keyspace is not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no such keyspace.
    #[error(transparent)]
    Keyspace(#[from] ConnectError),
    /// No node answered.
    #[error("nothing can be recorded, as no node answers: see `serried status`")]
    Unreachable,
    /// The nearest node that answers refuses.
    #[error("{node} can't record: {reason}")]
    Refused {
        /// The node.
        node: NodeId,
        /// Why.
        reason: String,
    },
    /// The node does not answer any more.
    #[error("{node} answers no more: try again")]
    Lost {
        /// The node.
        node: NodeId,
    },
}

/// What a recording brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordingEvent {
    /// A connection has committed transactions. The times count from the beginning of the recording.
    Transactions(NodeId, Vec<TransactionReport<Key>>),
    /// The recording has ended.
    Ended {
        /// How many transactions were not reported because there was no room.
        missed: u64,
    },
}

/// A recording in progress. Dropped, it ends.
pub struct Recording {
    node: NodeId,
    endpoint: Arc<Endpoint<ClientSide>>,
    request: u64,
    inbox: mpsc::UnboundedReceiver<RecordReply>,
    /// How many bytes of reports wait in the inbox.
    waiting_bytes: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
}

impl Client {
    /// Records all transactions that clients of a keyspace begin and commit from now on, for at most ten minutes. One
    /// node asks all clients that are connected to it: the nearest that answers. Returns once it does.
    ///
    /// # Errors
    /// If there is no such keyspace, no node answers, or the node refuses: it has one recorder at a time.
    pub async fn record(&self, keyspace: &str, lasts: Duration) -> Result<Recording, RecordError> {
        let info = self.find(keyspace)?;
        let wanted = RecordRequest { keyspace: info.number, lasts };
        let nodes = self.nodes_of(self.home_of(&info)?, &info);
        for member in self.nearest_first().iter().filter(|node| nodes.contains(node)) {
            let Some(mut recording) = Recording::ask(&self.endpoint, *member, &wanted) else {
                continue;
            };
            let node = recording.node;
            match tokio::time::timeout(BEGIN_TIMEOUT, recording.inbox.recv()).await {
                Ok(Some(RecordReply::Began)) => return Ok(recording),
                Ok(Some(RecordReply::Refused(reason))) => {
                    return Err(RecordError::Refused { node, reason });
                }
                Ok(_) | Err(_) => {}
            }
        }
        Err(RecordError::Unreachable)
    }
}

impl Recording {
    /// Asks the first core of a node; `None` if there is no connection to it.
    fn ask(
        endpoint: &Arc<Endpoint<ClientSide>>,
        member: usize,
        wanted: &RecordRequest,
    ) -> Option<Recording> {
        let (sender, inbox) = mpsc::unbounded_channel();
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let mut core = endpoint.lock();
        let request = core.side.next_request();
        let asked = encode(&(request, wanted));
        if !core.links.push_frame_to(member, 0, Kind::RecordRequest, &asked) {
            return None;
        }
        let dropped = Arc::new(AtomicU64::new(0));
        let replies = Replies {
            sender,
            waiting_bytes: waiting_bytes.clone(),
            dropped: dropped.clone(),
            link: None,
        };
        core.side.recordings.insert(request, replies);
        drop(core);
        let (node, endpoint) = (NodeId::replica(0, member), endpoint.clone());
        Some(Recording { node, endpoint, request, inbox, waiting_bytes, dropped })
    }

    /// The node that asks clients for reports.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// How many transactions this client has dropped so far because too much waited to be taken. They are among those that
    /// [`RecordingEvent::Ended`] counts. If the connection is lost before that, they are all that is known to be missing.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Asks the node to end before the time is over. What clients have committed until then still comes.
    pub fn stop(&self) {
        let mut core = self.endpoint.lock();
        let member = self.node.member();
        core.links.push_frame_to(member, 0, Kind::RecordEnd, &encode(&self.request));
    }

    /// Waits for the next report, or the end, for at most this time. What has come and is not taken is kept in
    /// memory, up to 256 MiB; what comes above that counts as missed.
    ///
    /// # Errors
    /// If nothing comes, or the connection to the node is lost.
    pub async fn next(&mut self, timeout: Duration) -> Result<RecordingEvent, RecordError> {
        let lost = || RecordError::Lost { node: self.node };
        loop {
            let reply = tokio::time::timeout(timeout, self.inbox.recv()).await;
            match reply.map_err(|_| lost())?.ok_or_else(lost)? {
                RecordReply::Reported(client, reports) => {
                    self.waiting_bytes.fetch_sub(report_bytes(&reports), Ordering::Relaxed);
                    return Ok(RecordingEvent::Transactions(client, reports));
                }
                RecordReply::Ended { missed } => return Ok(RecordingEvent::Ended { missed }),
                RecordReply::Began | RecordReply::Refused(_) => {}
            }
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.endpoint.is_sound() {
            return;
        }
        self.stop();
        self.endpoint.lock().side.recordings.remove(&self.request);
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use serried_actor::Random;
    use serried_model::Form;
    use serried_wire::{End, LinkOptions, TransportOptions};

    use super::*;

    /// A recording of node 0, to which there is a link.
    fn recording() -> (Arc<Endpoint<ClientSide>>, Recording) {
        let random = Random::seed_from_u64(1);
        let id = NodeId(NodeId::FIRST_COORDINATOR);
        let side = ClientSide::default();
        let endpoint = Arc::new(Endpoint::new(id, TransportOptions::default(), random, side));
        endpoint.lock().links.open(LinkOptions {
            end: End::Core { member: 0, core: 0 },
            route: true,
            internal: false,
            delay: Duration::ZERO,
            frame_bytes: 64 << 10,
            most_waiting_bytes: 64 << 20,
        });
        let wanted = RecordRequest { keyspace: 7, lasts: Duration::from_secs(1) };
        let recording = Recording::ask(&endpoint, 0, &wanted).expect("there is a link");
        (endpoint, recording)
    }

    fn report() -> TransactionReport<Key> {
        TransactionReport {
            began_ns: 1,
            ended_ns: 2,
            attempts: 1,
            form: Form::Program,
            reads: Vec::new(),
            writes: Vec::new(),
            modifies: Vec::new(),
        }
    }

    #[tokio::test]
    async fn reports_that_are_taken_make_room_for_others() {
        let (endpoint, mut recording) = recording();
        let waiting = |recording: &Recording| recording.waiting_bytes.load(Ordering::Relaxed);
        let reports = vec![report(); 3];
        for _ in 0..2 {
            let reply = RecordReply::Reported(NodeId(1), reports.clone());
            let side = &mut endpoint.lock().side;
            side.recordings.get_mut(&recording.request).unwrap().pass_on(reply);
        }
        for left in [1, 0] {
            let event = recording.next(Duration::ZERO).await.unwrap();
            assert_eq!(event, RecordingEvent::Transactions(NodeId(1), reports.clone()));
            assert_eq!(waiting(&recording), left * report_bytes(&reports));
        }
    }

    #[test]
    fn a_recording_that_is_dropped_tells_its_node_and_is_forgotten() {
        let (endpoint, recording) = recording();
        let before = endpoint.lock().links.waiting_bytes();
        drop(recording);
        let core = endpoint.lock();
        assert!(core.links.waiting_bytes() > before, "the node is to end it");
        assert!(core.side.recordings.is_empty());
    }

    #[test]
    fn what_is_dropped_is_known_before_the_end() {
        let (endpoint, recording) = recording();
        // Nobody takes what waits.
        recording.waiting_bytes.store(usize::MAX / 2, Ordering::Relaxed);
        let reply = RecordReply::Reported(NodeId(1), vec![report(); 3]);
        let mut core = endpoint.lock();
        core.side.recordings.get_mut(&recording.request).unwrap().pass_on(reply);
        drop(core);
        assert_eq!(recording.dropped(), 3);
    }
}

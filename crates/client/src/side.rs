//! What only a client's endpoint has: its requests to nodes, its alarms, and what nodes report to it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serried_actor::{NodeSet, Timestamp};
use serried_model::{Key, NodeId, ReportedModification, ReportedModify, TransactionReport};
use serried_session::Alarms;
use serried_wire::{
    BadFrame, Core, Endpoint, Frame, Kind, KnownData, LinkId, Links, Moment, NodeStatus,
    RecordReply, Side, WatchReply, Welcome, decode,
};
use tokio::sync::{mpsc, oneshot};

use crate::coordinator::ErasedCoordinator;
use crate::obstacles::Obstacles;
use crate::reporting::Reporting;

/// Where the answers go to a request to record.
pub(crate) struct Replies {
    pub(crate) sender: mpsc::UnboundedSender<RecordReply>,
    /// How many bytes of reports wait for the task that records, which subtracts those that it has taken.
    pub(crate) waiting_bytes: Arc<AtomicUsize>,
    /// How many transactions were dropped because too many waited. The task that records sees it, too.
    pub(crate) dropped: Arc<AtomicU64>,
    /// The link over which they come, once one has come. Nothing more comes when it has ended.
    pub(crate) link: Option<LinkId>,
}

/// While reports of more bytes than this wait for the task that records, others are dropped.
const MOST_WAITING_BYTES: usize = 256 << 20;

/// About how many bytes of memory a report of transactions takes.
pub(crate) fn report_bytes(transactions: &[TransactionReport<Key>]) -> usize {
    let bytes = |transaction: &TransactionReport<Key>| {
        let modified = transaction.modifies.iter().map(|modify| modify.modifications.len());
        let keys = transaction.keys().map(|key| size_of::<ReportedModify<Key>>() + key.len());
        size_of::<TransactionReport<Key>>()
            + keys.sum::<usize>()
            + modified.sum::<usize>() * size_of::<ReportedModification>()
    };
    transactions.iter().map(bytes).sum()
}

impl Replies {
    /// Passes an answer on to the task that records, unless too much waits for it.
    pub(crate) fn pass_on(&mut self, mut reply: RecordReply) {
        match &mut reply {
            RecordReply::Reported(_, transactions) => {
                let bytes = report_bytes(transactions);
                if self.waiting_bytes.load(Ordering::Relaxed) + bytes > MOST_WAITING_BYTES {
                    self.dropped.fetch_add(transactions.len() as u64, Ordering::Relaxed);
                    return;
                }
                self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            RecordReply::Ended { missed } => {
                *missed = missed.saturating_add(self.dropped.load(Ordering::Relaxed));
            }
            RecordReply::Began | RecordReply::Refused(_) => {}
        }
        // The task that records may be gone.
        let _ = self.sender.send(reply);
    }
}

/// The client's side of an endpoint.
#[derive(Default)]
pub(crate) struct ClientSide {
    pub(crate) alarms: Alarms,
    /// Requests for nodes' statuses that have not been answered.
    pub(crate) requests: HashMap<u64, oneshot::Sender<NodeStatus>>,
    /// Where the answers go to requests for what nodes observe.
    pub(crate) watches: HashMap<u64, mpsc::UnboundedSender<WatchReply>>,
    /// Where the answers go to requests to record.
    pub(crate) recordings: HashMap<u64, Replies>,
    /// What nodes want to be told of this client's transactions.
    pub(crate) reporting: Reporting,
    /// Nodes that can't write.
    pub(crate) obstacles: Obstacles,
    newest: NewestData,
    last_request: u64,
}

impl ClientSide {
    /// A number that no request has had.
    pub(crate) fn next_request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    /// Notes which data a node has, and which data it says that others have. Returns whether its own data counts.
    /// All links to a node are to the newest data that is known, since others are cut when it becomes known.
    pub(crate) fn meet(&mut self, welcome: &Welcome, links: &mut Links) -> bool {
        for (member, number) in &welcome.known {
            self.newest.meet(usize::from(*member), *number, links);
        }
        let member = welcome.node.member();
        let provenance = welcome.provenance;
        provenance.is_none_or(|has| self.newest.meet(member, has.incarnation, links))
    }
}

impl Side for ClientSide {
    type Actor = dyn ErasedCoordinator;
    type Outside = ();
    type Deferred = core::convert::Infallible;

    fn home(&self) -> Option<usize> {
        None
    }

    fn on_frame(
        core: &mut Core<Self>,
        from: NodeId,
        link: LinkId,
        Frame { kind, payload, .. }: Frame<'_>,
        Moment { now, .. }: Moment,
    ) -> Result<Option<Self::Deferred>, BadFrame> {
        let Core { side, links, .. } = core;
        match kind {
            Kind::StatusReply => {
                let (request, status) = decode(kind, payload)?;
                if let Some(reply) = side.requests.remove(&request) {
                    // The task that has asked may be gone.
                    let _ = reply.send(status);
                }
            }
            Kind::WatchReply => {
                let (request, reply) = decode(kind, payload)?;
                if let Some(watch) = side.watches.get(&request) {
                    // The task that watches may be gone.
                    let _ = watch.send(reply);
                }
            }
            Kind::RecordReply => {
                let (request, reply) = decode(kind, payload)?;
                if let Some(recording) = side.recordings.get_mut(&request) {
                    recording.link = Some(link);
                    recording.pass_on(reply);
                }
            }
            Kind::ReportRequest => side.reporting.ask(link, decode(kind, payload)?, now, links),
            Kind::Obstacle => side.obstacles.set(link, from, decode(kind, payload)?),
            Kind::Known => {
                let known: KnownData = decode(kind, payload)?;
                for (member, number) in known.into_iter().take(NodeSet::CAPACITY) {
                    side.newest.meet(usize::from(member), number, links);
                }
            }
            _ => return Err(BadFrame::Unexpected(kind)),
        }
        Ok(None)
    }

    /// A client defers nothing.
    fn answer(_: &Endpoint<Self>, _: LinkId, _: Vec<Self::Deferred>) {}

    fn lost(&mut self, link: LinkId) {
        self.obstacles.lost(link);
        self.reporting.lost(link);
        self.recordings.retain(|_, recording| recording.link != Some(link));
    }

    fn next_due(&self) -> Option<Timestamp> {
        [self.alarms.next(), self.reporting.due()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Timestamp, links: &mut Links) {
        self.alarms.ring(now);
        self.reporting.advance(now, links);
    }
}

/// By member: the number of the newest data that it is known to have.
#[derive(Default)]
struct NewestData(BTreeMap<usize, u64>);

impl NewestData {
    /// Notes which data a node has, by its number. If it had other data before, the connections with older data are given
    /// up. Returns whether it is as new as what is known.
    fn meet(&mut self, member: usize, number: u64, links: &mut Links) -> bool {
        match self.0.insert(member, number) {
            Some(known) if known > number => {
                self.0.insert(member, known);
                return false;
            }
            Some(known) if known < number => links.cut_node(member),
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serried_model::Form;
    use serried_wire::{Cut, End, LinkOptions};

    use super::*;

    #[test]
    fn older_data_is_refused_however_often_it_comes_and_newer_data_cuts_it() {
        let (mut links, mut newest) = (Links::new(), NewestData::default());
        let link = links.open(LinkOptions {
            end: End::Core { member: 1, core: 0 },
            route: true,
            internal: false,
            delay: Duration::ZERO,
            frame_bytes: 1000,
            most_waiting_bytes: 1000,
        });
        assert!(newest.meet(1, 5, &mut links) && newest.meet(1, 5, &mut links));
        for _ in 0..3 {
            assert!(!newest.meet(1, 4, &mut links));
        }
        assert!(newest.meet(2, 9, &mut links), "that is another node");
        assert_eq!(links.given_up(link), None);
        assert!(newest.meet(1, 6, &mut links));
        assert_eq!(links.given_up(link), Some(Cut::Disowned));
        assert!(!newest.meet(1, 5, &mut links));
    }

    #[test]
    fn reports_that_nobody_takes_are_dropped_and_counted_and_the_end_still_comes() {
        let (sender, mut inbox) = mpsc::unbounded_channel();
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let dropped = Arc::new(AtomicU64::new(0));
        let mut replies = Replies {
            sender,
            waiting_bytes: waiting_bytes.clone(),
            dropped: dropped.clone(),
            link: None,
        };
        let transaction = TransactionReport {
            began_ns: 1,
            ended_ns: 2,
            attempts: 1,
            form: Form::Program,
            reads: Vec::new(),
            writes: Vec::new(),
            modifies: Vec::new(),
        };
        let reported = || RecordReply::Reported(NodeId(1), vec![transaction.clone(); 3]);
        replies.pass_on(reported());
        let bytes = waiting_bytes.load(Ordering::Relaxed);
        assert!(bytes >= 3 * size_of::<TransactionReport<Key>>());
        waiting_bytes.store(MOST_WAITING_BYTES - bytes + 1, Ordering::Relaxed);
        replies.pass_on(reported());
        assert_eq!(dropped.load(Ordering::Relaxed), 3, "if no end comes, this is known");
        replies.pass_on(RecordReply::Ended { missed: 4 });
        assert!(matches!(inbox.try_recv(), Ok(RecordReply::Reported(..))));
        assert!(matches!(inbox.try_recv(), Ok(RecordReply::Ended { missed: 7 })));
    }
}

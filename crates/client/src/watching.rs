//! A client's view of a node that it watches.

use std::sync::Arc;
use std::time::Duration;

use serried_actor::Observed;
use serried_model::{Key, NodeId};
use serried_wire::{Endpoint, Kind, Recorded, WatchReply, WatchRequest, encode};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::ConnectError;
use crate::side::ClientSide;

/// How long a node may take to begin.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a node may take to report its end, beyond the time for which it was asked to record.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What to watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchOptions {
    /// The keys, at most 64. If there are none, the keys that transactions write most often.
    pub keys: Vec<Key>,
    /// How many keys each of the node's cores chooses if none are named, from 1 to 64. Default 3.
    pub hottest: u16,
    /// For how long writes are counted to choose the keys, at most two minutes. Default 1 s.
    pub count: Duration,
    /// For how long to record after that, at most two minutes. Default 1 s.
    pub record: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        WatchOptions { keys: Vec::new(), hottest: 3, count: second, record: second }
    }
}

/// Why a node is not watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// There is no such keyspace.
    #[error(transparent)]
    Keyspace(#[from] ConnectError),
    /// No node answered.
    #[error("no node can be watched, as none answers: see `serried status`")]
    Unreachable,
    /// The nearest node that answers refuses.
    #[error("{node} can't be watched: {reason}")]
    Refused {
        /// The node.
        node: NodeId,
        /// Why.
        reason: String,
    },
    /// The node did not say when it ended.
    #[error("{node} answers no more: what it had recorded is lost, try again")]
    Lost {
        /// The node.
        node: NodeId,
    },
}

/// What a node has observed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watched {
    /// The node.
    pub node: NodeId,
    /// When all of its cores had begun to record, in nanoseconds by its clock.
    pub from_ns: u64,
    /// When the first of them ended.
    pub until_ns: u64,
    /// What happened to the keys, in the order of its clock.
    pub observed: Vec<Observed>,
    /// How many observations it has forgotten because there was no room. If there are any, windows are missing.
    pub forgotten: u64,
    /// How many transactions committed meanwhile at its partitions, whatever their keys.
    pub committed: u64,
    /// How many of these did so at partitions that it leads, or whose protocol has no leaders.
    pub committed_where_it_leads: u64,
    /// How many attempts of transactions were aborted at these partitions meanwhile. It sees no others.
    pub aborted: u64,
    /// How many transactions committed while it counted writes to choose the keys. It sends nothing then, so this is what
    /// commits when it is not watched.
    pub committed_before: u64,
    /// What its wall clock showed when its clock was at 0, in microseconds since the Unix epoch.
    pub clock_began_us: u64,
}

impl Watched {
    /// Adds what a core has counted. A node may claim any numbers.
    fn add(&mut self, recorded: &Recorded) {
        for (sum, counted) in [
            (&mut self.forgotten, recorded.forgotten),
            (&mut self.committed, recorded.committed),
            (&mut self.committed_where_it_leads, recorded.committed_where_it_leads),
            (&mut self.aborted, recorded.aborted),
            (&mut self.committed_before, recorded.committed_before),
        ] {
            *sum = sum.saturating_add(counted);
        }
    }
}

/// A node that is being watched, until this is dropped.
pub struct Watching {
    node: NodeId,
    endpoint: Arc<Endpoint<ClientSide>>,
    /// By core: the request's number.
    requests: Vec<u64>,
    inbox: mpsc::UnboundedReceiver<WatchReply>,
    options: WatchOptions,
    /// What cores have said before all of them had begun.
    early: Vec<WatchReply>,
}

impl Client {
    /// Watches all partitions of a keyspace at one node, the nearest of this client's site that answers. Returns once
    /// it watches.
    ///
    /// # Errors
    /// If there is no such keyspace, no node answers, or the node refuses: it has one watcher at a time.
    pub async fn watch(
        &self,
        keyspace: &str,
        options: WatchOptions,
    ) -> Result<Watching, WatchError> {
        let info = self.find(keyspace)?;
        let id = info.number;
        let nodes = self.nodes_of(self.home_of(&info)?, &info);
        for member in self.nearest_first().iter().filter(|node| nodes.contains(node)) {
            let Some(mut watching) = Watching::ask(&self.endpoint, *member, id, &options) else {
                continue;
            };
            match tokio::time::timeout(BEGIN_TIMEOUT, watching.begin()).await {
                Ok(Ok(())) => return Ok(watching),
                Ok(Err(refused)) => return Err(refused),
                Err(_) => {}
            }
        }
        Err(WatchError::Unreachable)
    }
}

impl Watching {
    /// Asks every core of a node; `None` if one has no connection.
    fn ask(
        endpoint: &Arc<Endpoint<ClientSide>>,
        member: usize,
        keyspace: u64,
        options: &WatchOptions,
    ) -> Option<Watching> {
        let WatchOptions { ref keys, hottest, count, record } = *options;
        let wanted = WatchRequest { keyspace, keys: keys.clone(), hottest, count, record };
        let (sender, inbox) = mpsc::unbounded_channel();
        let mut core = endpoint.lock();
        let cores = core.links.connected_cores(member)?;
        let mut requests = Vec::new();
        for to in 0..cores {
            let request = core.side.next_request();
            core.links.push_frame_to(member, to, Kind::WatchRequest, &encode(&(request, &wanted)));
            core.side.watches.insert(request, sender.clone());
            requests.push(request);
        }
        drop(core);
        let (node, endpoint) = (NodeId::replica(0, member), endpoint.clone());
        Some(Watching {
            node,
            endpoint,
            requests,
            inbox,
            options: options.clone(),
            early: Vec::new(),
        })
    }

    /// Waits until every core watches.
    async fn begin(&mut self) -> Result<(), WatchError> {
        let mut began = 0;
        while began < self.requests.len() {
            match self.inbox.recv().await {
                Some(WatchReply::Began) => began += 1,
                Some(WatchReply::Refused(reason)) => {
                    return Err(WatchError::Refused { node: self.node, reason });
                }
                // Cores that began earlier record already, and may even have ended.
                Some(reply @ (WatchReply::Observed(_) | WatchReply::Ended(_))) => {
                    self.early.push(reply);
                }
                None => return Err(WatchError::Lost { node: self.node }),
            }
        }
        Ok(())
    }

    /// The node that is watched.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Asks the node to end before the time is over.
    pub fn stop(&self) {
        let mut core = self.endpoint.lock();
        for (to, request) in self.requests.iter().enumerate() {
            core.links.push_frame_to(self.node.member(), to, Kind::WatchEnd, &encode(request));
        }
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// If the node does not answer any more.
    pub async fn finish(mut self) -> Result<Watched, WatchError> {
        let until = Instant::now() + self.options.count + self.options.record + END_TIMEOUT;
        let node = self.node;
        let mut watched = Watched {
            node,
            from_ns: 0,
            until_ns: u64::MAX,
            observed: Vec::new(),
            forgotten: 0,
            committed: 0,
            committed_where_it_leads: 0,
            aborted: 0,
            committed_before: 0,
            clock_began_us: 0,
        };
        let mut early = std::mem::take(&mut self.early).into_iter();
        let mut ended = 0;
        while ended < self.requests.len() {
            let reply = match early.next() {
                Some(reply) => reply,
                None => match tokio::time::timeout_at(until, self.inbox.recv()).await {
                    Ok(Some(reply)) => reply,
                    Ok(None) | Err(_) => return Err(WatchError::Lost { node }),
                },
            };
            match reply {
                WatchReply::Observed(observed) => watched.observed.extend(observed),
                WatchReply::Ended(recorded) => {
                    watched.from_ns = watched.from_ns.max(recorded.from_ns);
                    watched.until_ns = watched.until_ns.min(recorded.until_ns);
                    watched.add(&recorded);
                    let began_us = recorded.until_us.saturating_sub(recorded.until_ns / 1000);
                    watched.clock_began_us = watched.clock_began_us.max(began_us);
                    ended += 1;
                }
                WatchReply::Began | WatchReply::Refused(_) => {}
            }
        }
        // Each core's come in order.
        watched.observed.sort_by_key(|observed| observed.at_ns);
        Ok(watched)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if !self.endpoint.is_sound() {
            return;
        }
        self.stop();
        let mut core = self.endpoint.lock();
        for request in &self.requests {
            core.side.watches.remove(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_of_what_cores_claim_do_not_overflow() {
        let most = u64::MAX;
        let recorded = Recorded {
            from_ns: 0,
            until_ns: 1,
            forgotten: most,
            until_us: 0,
            committed: most,
            committed_where_it_leads: most,
            aborted: most,
            committed_before: most,
        };
        let mut watched = Watched {
            node: NodeId(0),
            from_ns: 0,
            until_ns: 1,
            observed: Vec::new(),
            forgotten: 1,
            committed: 1,
            committed_where_it_leads: 1,
            aborted: 1,
            committed_before: 1,
            clock_began_us: 0,
        };
        let expected = Watched {
            forgotten: most,
            committed: most,
            committed_where_it_leads: most,
            aborted: most,
            committed_before: most,
            ..watched.clone()
        };
        watched.add(&recorded);
        assert_eq!(watched, expected);
    }

    #[test]
    fn each_count_of_a_core_is_added_to_its_own_sum() {
        let recorded = Recorded {
            from_ns: 0,
            until_ns: 1,
            forgotten: 1,
            until_us: 0,
            committed: 50,
            committed_where_it_leads: 20,
            aborted: 3,
            committed_before: 4,
        };
        let mut watched = Watched {
            node: NodeId(0),
            from_ns: 0,
            until_ns: 1,
            observed: Vec::new(),
            forgotten: 0,
            committed: 0,
            committed_where_it_leads: 0,
            aborted: 0,
            committed_before: 0,
            clock_began_us: 0,
        };
        for _ in 0..2 {
            watched.add(&recorded);
        }
        let Watched { forgotten, committed, aborted, committed_before, .. } = watched;
        let led = watched.committed_where_it_leads;
        assert_eq!([forgotten, committed, led, aborted, committed_before], [2, 100, 40, 6, 8]);
    }
}

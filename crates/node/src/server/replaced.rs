//! Which of a node's data counts, where the node was replaced.
//!
//! A node whose disk was lost is replaced by `--rejoin`. Its old process may still live: it was only cut off from the other
//! nodes, or was started again. If the votes of both counted, one node would vote twice. Therefore the data of
//! each node has a number, and newer data has the greater one ([`serried_model::Provenance`]).
//!
//! - **Only what is confirmed is noted.** The process that answers at a node's address, as this node's `peers` has it,
//!   says which data the node has now. That is noted when this node dials it. If a connection brings a number that is
//!   not known, this node asks at the address first, and takes no message before it has noted the answer. So a process
//!   does not become the successor of a node by saying so.
//! - **Nothing is taken from older data.** A process that connects with it is turned away, and a connection to
//!   one that answers with it is closed. When newer data is met, all connections with older data are cut.
//! - **The old process ends.** The first node that it reaches and that knows of newer data says so
//!   ([`Kind::Disowned`]). A process that starts on older data, or without `--rejoin` on new data, does not start.
//! - **Clients learn** which data this node knows, when they connect and when newer data is met ([`Kind::Known`]). They
//!   cut connections with older data.
//!
//! This is why it suffices. A successor counts as failed until it has copied what f + 1 others have. It has a
//! connection with each of these only after that node has noted the successor's data, has cut the connections with the
//! old process and has written to its clients ([`Provenances::meet`]). Take an operation that is acknowledged with the
//! vote of the old process and those of f others. One of these, X, is among those from which the successor copies,
//! since f + (f + 1) > 2f. If X had voted when the successor copied, the successor has what was voted. If X votes
//! later, the client reads of the successor before it reads the vote, and has no connection with the old process any
//! more.
//!
//! One case is left: a client that had the vote of the old process before it learned of the new data, and gets that of
//! X when the successor has copied everything. Under Morty and MVTSO no transaction lasts so long: copying takes longer
//! than `truncation_lag_ms`. Registers do not count what names an old incarnation. Clients of shards and of MultiPaxos
//! count no votes: their leader counts those of replicas, and the other nodes have cut the old process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serried_model::{NodeId, Provenance};
use serried_wire::{Hello, Kind, KnownData, Welcome, encode};

use super::cores::Cores;
use super::handshake::Refusal;
use crate::durable::Disks;

/// Which data each node has, as it is noted on this node's disk. Nothing is noted without a disk.
pub(crate) struct Provenances {
    disks: Option<Arc<dyn Disks>>,
    /// How many nodes there are.
    nodes: usize,
    /// Held while another node is met.
    meeting: Mutex<()>,
}

impl Provenances {
    /// Those of so many nodes.
    pub(super) fn new(disks: Option<Arc<dyn Disks>>, nodes: usize) -> Provenances {
        Provenances { disks, nodes, meeting: Mutex::default() }
    }

    /// The data that the other nodes had when they were last met.
    pub(super) fn known(&self) -> KnownData {
        let Some(disks) = &self.disks else { return Vec::new() };
        let members = 0..self.nodes;
        members.filter_map(|member| Some((member as u16, disks.met(member)?))).collect()
    }

    /// Another node has answered at its address. Its data is noted. If the node had other data before, connections
    /// with that are cut, and clients learn of it.
    pub(crate) fn meet(&self, other: &Welcome, cores: &Cores) -> Result<(), String> {
        let (Some(disks), Some(has)) = (&self.disks, other.provenance) else { return Ok(()) };
        let (member, node) = (other.node.member(), other.node);
        let _meeting = self.meeting();
        let before = disks.met(member);
        disks.meet(member, has)?;
        if before.is_some_and(|before| before != has.incarnation) {
            tracing::info!(%node, "another node's data was replaced");
            let known = encode(&self.known());
            for mut core in cores.look() {
                core.links.cut_node(member);
                core.links.tell_clients(Kind::Known, &known);
            }
        }
        Ok(())
    }

    /// While this lives, no other task is in the middle of [`Provenances::meet`].
    fn meeting(&self) -> MutexGuard<'_, ()> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a node has the data that it was last met with. If not, it is not known.
    pub(super) fn judge(&self, hello: &Hello) -> Result<bool, Refusal> {
        let (Some(disks), Some(has)) = (&self.disks, hello.provenance) else { return Ok(true) };
        if hello.inquires && has.incarnation == 0 {
            return Ok(true);
        }
        let judged = disks.judge(hello.node.member(), has).map_err(Refusal::Disowned);
        // Those that are connected learn of new data before it takes part.
        drop(self.meeting());
        judged
    }

    /// Whether the data of a node that was let in still counts.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn judge_again(&self, node: NodeId, has: Option<Provenance>) -> Result<(), String> {
        let (Some(disks), Some(has)) = (&self.disks, has) else { return Ok(()) };
        disks.judge(node.member(), has).map(drop)
    }
}

//! What is at the other end of a connection, and whether it is let in.

use std::fmt;
use std::time::Duration;

use serried_model::{NodeId, Provenance};
use serried_wire::{
    BadFrame, Connection, Ended, Hello, Kind, KnownData, Place, TransportOptions, Welcome, decode,
    dial, encode, legible,
};

use super::Server;
use crate::admission::{Admitted, Sort};

/// What is wrong with a node that has no disk among others that have.
const FORGETS: &str =
    "forgets everything when it ends (durability memory): start all with the same durability";

/// The other end of a connection.
pub(super) struct Met {
    pub(super) node: NodeId,
    pub(super) incarnation: u64,
    pub(super) provenance: Option<Provenance>,
    /// The data that the nodes have, as this node has reported it to the other end.
    pub(super) reported: KnownData,
    pub(super) delay: Duration,
    pub(super) frame_bytes: usize,
    pub(super) _admitted: Admitted,
}

/// Why a connection is turned away.
pub(super) enum Refusal {
    /// It does not fit.
    Unfit(String),
    /// Its data does not count, or not any more.
    Disowned(String),
    /// There is no room for it now.
    Full(String),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Refusal {
        Refusal::Unfit(reason)
    }
}

impl Server {
    /// Learns what is at the other end, and how far away it is meant to be.
    pub(super) async fn shake_hands(
        &self,
        connection: &mut Connection,
    ) -> Result<(u16, Met), Ended> {
        let hello: Hello = match connection.receive().await? {
            (kind @ Kind::Hello, payload) => decode(kind, &payload)?,
            (kind, _) => return Err(BadFrame::Unexpected(kind).into()),
        };
        match self.judge(&hello).await {
            Ok(_) if hello.inquires => {
                connection.send(Kind::Welcome, &encode(&self.welcome())).await?;
                Err(Ended::Closed)
            }
            Ok((delay, _admitted)) => {
                let welcome = self.welcome();
                connection.send(Kind::Welcome, &encode(&welcome)).await?;
                let (Hello { node, incarnation, frame_bytes, provenance, core, .. }, reported) =
                    (hello, welcome.known);
                let met =
                    Met { node, incarnation, provenance, reported, delay, frame_bytes, _admitted };
                Ok((core, met))
            }
            Err(Refusal::Disowned(reason)) => {
                connection.send(Kind::Disowned, &encode(&reason)).await?;
                Err(Ended::Disowned(reason))
            }
            Err(Refusal::Unfit(reason)) => {
                connection.send(Kind::Reject, &encode(&reason)).await?;
                Err(Ended::Rejected(reason))
            }
            Err(Refusal::Full(reason)) => {
                connection.send(Kind::Full, &encode(&reason)).await?;
                Err(Ended::Full(reason))
            }
        }
    }

    /// Whether a connection is let in. Its sender is judged first: what is noted of a node's data must come from the
    /// one process that passes for it.
    async fn judge(&self, hello: &Hello) -> Result<(Duration, Admitted), Refusal> {
        self.judge_sender(hello)?;
        // It must learn that its data does not count, although its successor is here, and passes for its node.
        let is_known = self.provenances.judge(hello)?;
        let (id, cluster) = (self.id(), &self.welcome.cluster);
        let sort = Sort::of(hello.node);
        let full = || {
            let most = self.admission.most(sort);
            Refusal::Full(format!("{id} has {most} connections, as many as it may"))
        };
        let admitted = self.admission.admit(sort).ok_or_else(full)?;
        let heartbeat = self.configuration.transport.heartbeat();
        if !hello.node.is_coordinator()
            && self.neighbours.is_taken(hello.node, hello.incarnation, heartbeat).await
        {
            let node = hello.node;
            return Err(Refusal::Unfit(format!(
                "another process passes for {node} of cluster `{cluster}`: stop one of the two"
            )));
        }
        if !is_known && !hello.inquires {
            self.confirm_data(hello).await?;
        }
        let Some(place) = self.place else { return Ok((Duration::ZERO, admitted)) };
        let number = if hello.node.is_coordinator() { 0 } else { hello.node.member() };
        let other = Place::find(place.geography, hello.site.as_deref(), number)?;
        Ok((place.delay_to(other), admitted))
    }

    /// Notes which data a node has that is not known, if the process that answers at the node's address says the same.
    /// Before that no message of it is taken.
    async fn confirm_data(&self, hello: &Hello) -> Result<(), Refusal> {
        let member = hello.node.member();
        let address = &self.configuration.peers[member];
        let inquiry = Hello { inquires: true, ..self.hello(0) };
        let patience = self.configuration.transport.handshake_timeout() / 2;
        let met = tokio::time::timeout(patience, dial(address, &inquiry, false)).await;
        let node = hello.node;
        let unconfirmed = |why: &dyn fmt::Display| {
            let address = legible(address);
            format!(
                "{node} is not known with this data, and at its address {address} nobody confirms it: {why}"
            )
        };
        let welcome = match met.unwrap_or(Err(Ended::TimedOut)) {
            Ok(met) => met.welcome,
            Err(ended) => return Err(unconfirmed(&ended).into()),
        };
        if (welcome.node, welcome.provenance) != (node, hello.provenance) {
            let other = welcome.node;
            return Err(unconfirmed(&format!("{other} answers with other data")).into());
        }
        Ok(self.provenances.meet(&welcome, &self.cores)?)
    }

    /// Whether the sender of a hello may connect, apart from its data.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn judge_sender(&self, hello: &Hello) -> Result<(), String> {
        let Welcome { cluster, node, .. } = &self.welcome;
        if let Some(wanted) = hello.cluster.as_ref().filter(|wanted| *wanted != cluster) {
            return Err(format!("{node} is of cluster `{cluster}`, not `{wanted}`"));
        }
        let least = TransportOptions::LEAST_FRAME_BYTES;
        if hello.frame_bytes < least {
            return Err(format!("frames of {least} bytes must be accepted"));
        }
        let nodes = self.configuration.peers.len() as u64;
        if !hello.node.is_coordinator() && (hello.node.0 >= nodes || hello.node == *node) {
            return Err(format!("{} is not another node of cluster `{cluster}`", hello.node));
        }
        let own = self.disks.as_ref().and_then(|disks| disks.provenance());
        match (own, hello.provenance) {
            (_, None) if hello.node.is_coordinator() => Ok(()),
            (_, Some(_)) if hello.node.is_coordinator() => {
                Err("a client has no data: only nodes say which they have".to_string())
            }
            (Some(_), None) => Err(format!("{} {FORGETS}, and {node} does not", hello.node)),
            (None, Some(_)) => Err(format!("{node} {FORGETS}, and {} does not", hello.node)),
            (None, None) | (Some(_), Some(_)) => Ok(()),
        }
    }
}

//! How a former leader sends its clients to the new one.

use std::collections::BTreeSet;

use serried_actor::Context;
use serried_model::NodeId;

use super::super::control::Control;
use super::super::message::{Message, Reply};
use super::Replica;
use super::leader::Shard;

type Cx<'a, C> = Context<'a, Replica<C>>;

impl<C: Control> Shard<C> {
    /// Tells all clients with something under way here who leads now, so that they need not wait for a time-out.
    pub(super) fn redirect(&mut self, leader: NodeId, cx: &mut Cx<'_, C>) {
        if !self.serves() {
            return;
        }
        self.acknowledge(cx);
        let open = self.leader_mut().open.values();
        let clients: BTreeSet<NodeId> = open.flat_map(|open| open.concerned()).collect();
        for client in clients {
            cx.send_before_durable(client, Message::Reply(Reply::Follow { leader }));
        }
    }
}

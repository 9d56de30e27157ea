//! How the cores of a node pass messages among themselves: in memory, in the buffers in which they were
//! encoded. So a message costs the same wherever it goes, and no types are shared between cores.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use serried_wire::{End, Endpoint, LinkOptions, OutBuffer};
use tokio::sync::mpsc::{Receiver, Sender};

use crate::side::NodeSide;

/// How many buffers may wait at a core. Further buffers stay at the senders, whose links have bounds.
pub(crate) const INBOX_BUFFERS: usize = 64;

/// Carries what waits on the link from this core to the `core`-th of its node, until the link is closed.
pub(crate) async fn carry(
    endpoint: Arc<Endpoint<NodeSide>>,
    core: usize,
    inbox: Sender<OutBuffer>,
) {
    let link = endpoint.lock().links.open(LinkOptions {
        end: End::Core { member: endpoint.id.member(), core },
        route: true,
        internal: true,
        delay: Duration::ZERO,
        frame_bytes: endpoint.transport.frame_bytes,
        most_waiting_bytes: endpoint.transport.most_waiting_bytes,
    });
    let mut patience = 0;
    loop {
        let mut taken = OutBuffer::default();
        let take =
            poll_fn(|cx| endpoint.lock().links.poll_take(link, &mut taken, &mut patience, cx));
        if take.await.is_none() {
            return;
        }
        let bytes = taken.len();
        if inbox.send(taken).await.is_err() {
            return;
        }
        endpoint.lock().links.delivered(link, bytes);
    }
}

/// Hands a core what the other cores send to it.
pub(crate) async fn take_in(endpoint: Arc<Endpoint<NodeSide>>, mut inbox: Receiver<OutBuffer>) {
    while let Some(buffer) = inbox.recv().await {
        let moment = endpoint.clock.moment();
        endpoint.lock().on_internal(&buffer, moment);
    }
}

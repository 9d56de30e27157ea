//! A node's own connection to another node: opened when a machine first sends to it.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use serried_model::NodeId;

use crate::connection::Ended;
use crate::handshake::{Met, Place, dial};
use crate::links::LinkOptions;
use crate::node::Server;
use crate::redial::Redial;

/// Keeps a link to node `number`, connected whenever something waits on it. What it answers comes
/// over the connection that it opens itself.
pub(crate) async fn keep(server: Arc<Server>, number: usize) {
    let endpoint = &server.endpoint;
    let node = NodeId(number as u64);
    let address = &server.configuration.peers[number];
    let mut redial = Redial::new();
    let mut connected_before = false;
    loop {
        let link = endpoint.lock().links.open(LinkOptions {
            node,
            route: true,
            delay: Duration::ZERO,
            frame_bytes: endpoint.transport.frame_bytes,
            most_waiting_bytes: endpoint.transport.most_waiting_bytes,
        });
        if endpoint.is_closed() || !poll_fn(|cx| endpoint.lock().links.poll_waiting(link, cx)).await
        {
            return;
        }
        let ended = match open(&server, number).await {
            Ok((met, delay)) => {
                redial = Redial::new();
                {
                    let mut core = endpoint.lock();
                    core.links.counters.reconnects += u64::from(connected_before);
                    core.links.adjust(link, delay, met.welcome.frame_bytes);
                }
                connected_before = true;
                met.connection.run(endpoint, node, link).await
            }
            Err(ended) => {
                endpoint.lock().links.remove(link);
                ended
            }
        };
        if endpoint.is_closed() {
            return;
        }
        tracing::warn!(%node, address, reason = %ended, "no connection to another node");
        let wait = redial.wait(&mut endpoint.lock().random);
        tokio::select! {
            () = endpoint.closed() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn open(server: &Server, number: usize) -> Result<(Met, Duration), Ended> {
    let timeout = server.endpoint.transport.handshake_timeout();
    let address = &server.configuration.peers[number];
    let hello = server.hello();
    let met = tokio::select! {
        () = server.endpoint.closed() => return Err(Ended::Closed),
        met = tokio::time::timeout(timeout, dial(address, &hello, false)) => met,
    };
    let met = met.unwrap_or(Err(Ended::TimedOut))?;
    if met.welcome.node != NodeId(number as u64) {
        let found = met.welcome.node;
        return Err(Ended::Rejected(format!("{found} answers there: correct `peers`")));
    }
    let delay = match server.place {
        None => Duration::ZERO,
        Some(place) => {
            let other = Place::find(place.geography, met.welcome.site.as_deref(), number);
            place.delay_to(other.map_err(Ended::Rejected)?)
        }
    };
    Ok((met, delay))
}

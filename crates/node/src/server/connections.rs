//! The connections that others open, each from its first byte to its last.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use serried_wire::{Connection, Detached, End, Ended, Kind, LinkOptions, Sparing, encode, legible};
use tokio::net::TcpStream;

use super::Server;
use super::handshake::Met;
use crate::admission::Sort;
use crate::neighbours::Present;

/// A connection that has been accepted for another core.
pub(super) struct Arrival {
    connection: Detached,
    met: Met,
}

/// One connection, from its first byte to its last, or until it is handed to another core.
pub(super) async fn meet(server: Arc<Server>, core: usize, stream: TcpStream, peer: SocketAddr) {
    let ended = greet(server.clone(), core, stream).await;
    report(&server.sparing, &peer.to_string(), ended);
}

/// One connection that another core has accepted, to its last byte.
pub(super) async fn arrive(server: Arc<Server>, core: usize, arrival: Arrival) {
    let Arrival { connection, met } = arrival;
    let node = met.node.to_string();
    let ended = match Connection::attach(connection) {
        Ok(connection) => converse(server.clone(), core, connection, met).await,
        Err(error) => Ended::Lost(error),
    };
    report(&server.sparing, &node, ended);
}

/// Logs why a connection has ended. The other end decides how often that happens, and what the reason names.
fn report(sparing: &Sparing, peer: &str, ended: Ended) {
    match &ended {
        Ended::Closed => tracing::debug!(peer, "connection closed"),
        Ended::Lost(error) => tracing::debug!(peer, %error, "connection lost"),
        Ended::HandedOver => {}
        _ => {
            let reason = legible(&ended.to_string());
            match sparing.may_say(ended.cause(), Instant::now().into()) {
                Some(more) => {
                    tracing::warn!(peer, reason, more, "connection closed by this node");
                }
                None => tracing::debug!(peer, reason, "connection closed by this node"),
            }
        }
    }
}

/// Shakes hands, and serves the connection or hands it to another core.
pub(super) async fn greet(server: Arc<Server>, core: usize, stream: TcpStream) -> Ended {
    let endpoint = server.cores.endpoint(core);
    let Some(stranger) = server.admission.admit(Sort::Stranger) else {
        let most = server.admission.most(Sort::Stranger);
        return Ended::Full(format!("{most} others have not said yet who they are"));
    };
    let mut connection = match Connection::new(stream) {
        Ok(connection) => connection,
        Err(error) => return Ended::Lost(error),
    };
    let handshake = tokio::select! {
        () = endpoint.closed() => return Ended::Closed,
        handshake = tokio::time::timeout(
            endpoint.transport.handshake_timeout(),
            server.shake_hands(&mut connection),
        ) => handshake,
    };
    drop(stranger);
    let (wanted, met) = match handshake {
        Ok(Ok(met)) => met,
        Ok(Err(ended)) => return ended,
        Err(_) => return Ended::TimedOut,
    };
    let wanted = usize::from(wanted) % server.cores.count();
    if wanted == core {
        return converse(server.clone(), core, connection, met).await;
    }
    match connection.detach() {
        Ok(connection) => {
            server.cores.hand_over(wanted, Arrival { connection, met });
            Ended::HandedOver
        }
        Err(error) => Ended::Lost(error),
    }
}

/// Serves a connection that has been let in.
async fn converse(server: Arc<Server>, core: usize, connection: Connection, met: Met) -> Ended {
    let endpoint = server.cores.endpoint(core);
    let Met { node, incarnation, provenance, reported, delay, frame_bytes, _admitted } = met;
    let end = match node.is_coordinator() {
        true => End::Client(node),
        false => End::Core { member: node.member(), core: 0 },
    };
    let link = endpoint.lock().links.open(LinkOptions {
        end,
        route: false,
        internal: false,
        delay,
        frame_bytes,
        most_waiting_bytes: endpoint.transport.most_waiting_bytes,
    });
    // What was learned since it was judged concerns it too. What is learned from now on finds its link.
    let known = server.provenances.known();
    if node.is_coordinator() && known != reported {
        endpoint.lock().links.push_frame(link, Kind::Known, &encode(&known));
    }
    if let Err(reason) = server.provenances.judge_again(node, provenance) {
        endpoint.lock().lose(link);
        return Ended::Disowned(reason);
    }
    let present = match node.is_coordinator() {
        true => None,
        false => {
            let present = Present::new(&server.neighbours, node, incarnation, (endpoint, link));
            if present.is_none() {
                endpoint.lock().lose(link);
                return Ended::Rejected(format!("another process passes for {node}"));
            }
            present
        }
    };
    let ended = connection.run(endpoint, node, link).await;
    drop(present);
    ended
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    /// Counts the warnings.
    struct Warnings(Arc<AtomicUsize>);

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == Level::WARN
        }

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn others_can_not_fill_the_log_with_bad_connections() {
        let (sparing, count) = (Sparing::default(), Arc::new(AtomicUsize::new(0)));
        let warnings = |ends: &dyn Fn() -> Ended| {
            count.store(0, Ordering::Relaxed);
            tracing::subscriber::with_default(Warnings(count.clone()), || {
                (0..1000).for_each(|_| report(&sparing, "1.2.3.4:5", ends()));
            });
            count.load(Ordering::Relaxed)
        };
        assert!((1..100).contains(&warnings(&|| Ended::Rejected("no".to_string()))));
        assert!((1..100).contains(&warnings(&|| Ended::TimedOut)), "another cause");
        assert_eq!(warnings(&|| Ended::Closed), 0);
    }
}

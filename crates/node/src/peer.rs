//! A core's own connection to another node: opened when one of its replicas first sends there, and that of core 0 at once.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use serried_model::NodeId;
use serried_wire::{End, Ended, LinkOptions, Met, Place, Redial, Sparing, dial, legible};
use tokio::time::Instant;
use tracing::Level;

use crate::server::Server;

/// Counts the tries to connect that failed one after another for the same reason.
#[derive(Default)]
struct Failures {
    reason: String,
    tries: u64,
}

impl Failures {
    /// Counts a failed try. Returns the level at which it is logged, if it is: the first, second, fourth and so on of the
    /// same reason are. The first ones are usual while a node restarts.
    fn add(&mut self, reason: String) -> Option<Level> {
        self.tries = if reason == self.reason { self.tries + 1 } else { 1 };
        self.reason = reason;
        match self.tries {
            1 | 2 | 4 => Some(Level::INFO),
            tries if tries.is_power_of_two() => Some(Level::WARN),
            _ => None,
        }
    }
}

/// Keeps a link from core `core` to node `member`. It is connected when something waits on it. The link of core 0 is
/// always connected, so that the node knows which others it reaches. A link leads to the core of the same number,
/// modulo the number of cores there, because replicas of one partition mostly talk among themselves. That core passes
/// on what is not for it. The other node answers over a connection that it opens itself.
pub(crate) async fn keep(server: Arc<Server>, core: usize, member: usize) {
    let endpoint = server.cores.endpoint(core);
    let node = NodeId::replica(0, member);
    let address = &server.configuration.peers[member];
    let mut redial = Redial::new();
    let mut connected_before = false;
    let mut failures = Failures::default();
    // A connection may be opened and lost many times.
    let sparing = Sparing::default();
    let may_say = |cause| sparing.may_say(cause, Instant::now());
    loop {
        let link = endpoint.lock().links.open(LinkOptions {
            end: End::Core { member, core: 0 },
            route: true,
            internal: false,
            delay: Duration::ZERO,
            frame_bytes: endpoint.transport.frame_bytes,
            most_waiting_bytes: endpoint.transport.most_waiting_bytes,
        });
        let waiting = poll_fn(|cx| endpoint.lock().links.poll_waiting(link, cx));
        if endpoint.is_closed() || core != 0 && !waiting.await {
            return;
        }
        // Why there is no connection; none if there was one.
        let failed = match open(&server, core, member).await {
            Ok((met, delay)) => {
                redial = Redial::new();
                {
                    let mut locked = endpoint.lock();
                    locked.links.counters.reconnects += u64::from(connected_before);
                    locked.links.adjust(link, delay, met.welcome.frame_bytes);
                }
                server.keyspaces.learn(&met.welcome);
                let differences =
                    if core == 0 { server.keyspaces.differences(&met.welcome) } else { vec![] };
                if !differences.is_empty()
                    && let Some(more) = may_say("keyspaces")
                {
                    for difference in differences {
                        tracing::warn!(%node, difference = legible(&difference), more, "a keyspace is not the same on two nodes, and they do not serve it together: give both the same (`serried status` says which node takes no part)");
                    }
                }
                let settings =
                    if core == 0 { server.keyspaces.other_settings(&met.welcome) } else { vec![] };
                if !settings.is_empty()
                    && let Some(more) = may_say("settings")
                {
                    for difference in settings {
                        tracing::warn!(%node, difference, more, "a keyspace is not set to the same on two nodes: some promises rest on that, so give all nodes the same settings");
                    }
                }
                if (connected_before || failures.tries > 0)
                    && let Some(more) = may_say("connected")
                {
                    tracing::info!(%node, core, address, more, "connected to another node again");
                }
                (connected_before, failures) = (true, Failures::default());
                let ended = met.connection.run(endpoint, node, link).await;
                match ended {
                    _ if endpoint.is_closed() => {}
                    Ended::Closed => {
                        if let Some(more) = may_say("closed") {
                            tracing::info!(%node, core, address, more, "another node has closed the connection");
                        }
                    }
                    ended => {
                        if let Some(more) = may_say("lost") {
                            tracing::warn!(%node, core, address, reason = %ended, more, "lost the connection to another node");
                        }
                    }
                }
                None
            }
            Err(ended) => {
                endpoint.lock().links.remove(link);
                if let Ended::Disowned(reason) = ended {
                    return server.life.disowned(reason);
                }
                Some(ended)
            }
        };
        if endpoint.is_closed() {
            return;
        }
        if let Some(failed) = failed {
            let level = failures.add(failed.to_string());
            let Failures { reason, tries } = &failures;
            if level == Some(Level::INFO) {
                tracing::info!(%node, core, address, reason, tries, "no connection to another node");
            } else if level == Some(Level::WARN) {
                tracing::warn!(%node, core, address, reason, tries, "no connection to another node");
            }
        }
        let wait = redial.wait(&mut endpoint.lock().random);
        tokio::select! {
            () = endpoint.closed() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn open(server: &Server, core: usize, member: usize) -> Result<(Met, Duration), Ended> {
    let endpoint = server.cores.endpoint(core);
    let timeout = endpoint.transport.handshake_timeout();
    let address = &server.configuration.peers[member];
    let hello = server.hello(core);
    let met = tokio::select! {
        () = endpoint.closed() => return Err(Ended::Closed),
        met = tokio::time::timeout(timeout, dial(address, &hello, false)) => met,
    };
    let met = met.unwrap_or(Err(Ended::TimedOut))?;
    if met.welcome.node != NodeId::replica(0, member) {
        let found = met.welcome.node;
        return Err(Ended::Rejected(format!("{found} answers there: correct `peers`")));
    }
    server.provenances.meet(&met.welcome, &server.cores).map_err(Ended::Rejected)?;
    let delay = match server.place {
        None => Duration::ZERO,
        Some(place) => {
            let other = Place::find(place.geography, met.welcome.site.as_deref(), member);
            place.delay_to(other.map_err(Ended::Rejected)?)
        }
    };
    Ok((met, delay))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serried_model::Provenance;
    use serried_wire::Welcome;

    use super::*;
    use crate::configuration::NodeConfiguration;
    use crate::durable::{Disks, Opened};
    use crate::joining::tests::answering;
    use crate::replica::Replicas;

    /// The directory of a node that has met the others with data number 5.
    #[derive(Default)]
    struct Noted(Mutex<Vec<(usize, u64)>>);

    impl Disks for Noted {
        fn open(&self, _: &str, _: u16) -> Result<Opened, String> {
            Err("no thread runs".to_string())
        }

        fn provenance(&self) -> Option<Provenance> {
            Some(Provenance { incarnation: 9, rejoined: false })
        }

        fn meet(&self, member: usize, has: Provenance) -> Result<(), String> {
            self.0.lock().unwrap().push((member, has.incarnation));
            if has.incarnation < 5 { Err("it was met with newer data".to_string()) } else { Ok(()) }
        }
    }

    /// Opens a connection from node 0 to node 1, at whose address this is the answer: why it was refused, if it was, and what
    /// was noted.
    async fn opened(welcome: Welcome) -> (Option<String>, Vec<(usize, u64)>) {
        let address = answering(welcome).await;
        let [nobody, other] = ["127.0.0.1:0"; 2].map(str::to_string);
        let configuration = NodeConfiguration {
            cores: Some(1),
            ..NodeConfiguration::new(0, vec![nobody, address, other])
        };
        let disks = Arc::new(Noted::default());
        let kept = disks.clone() as Arc<dyn Disks>;
        let (server, _) =
            Server::new(configuration, None, &Replicas::default(), Some(kept)).unwrap();
        // What it asked when it joined does not matter here.
        disks.0.lock().unwrap().clear();
        let refused = open(&server, 0, 1).await.err().map(|ended| ended.to_string());
        let noted = disks.0.lock().unwrap().clone();
        (refused, noted)
    }

    #[test]
    fn ever_fewer_failures_of_one_reason_are_logged() {
        let mut failures = Failures::default();
        let mut logged = |reason: &str, tries: u64| -> Vec<_> {
            let level = |number| Some((number, failures.add(reason.to_string())?));
            (1..=tries).filter_map(level).collect()
        };
        let first = [(1, Level::INFO), (2, Level::INFO), (4, Level::INFO)];
        let mut expected = first.to_vec();
        expected.extend([8, 16, 32, 64].map(|number| (number, Level::WARN)));
        assert_eq!(logged("refused", 100), expected);
        assert_eq!(logged("timed out", 7), first);
        assert_eq!(logged("refused", 7), first, "another reason was between");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_is_met_at_its_own_address_and_with_the_data_that_counts() {
        let welcome = Welcome::example();
        assert_eq!(opened(welcome.clone()).await, (None, vec![(1, 5)]));
        let another = Welcome { node: NodeId(2), ..welcome.clone() };
        let (refused, noted) = opened(another).await;
        assert!(refused.as_ref().unwrap().contains("n2 answers there"), "{refused:?}");
        assert_eq!(noted, []);
        let older = Provenance { incarnation: 4, rejoined: false };
        let (refused, _) = opened(Welcome { provenance: Some(older), ..welcome }).await;
        assert!(refused.as_ref().unwrap().contains("newer data"), "{refused:?}");
    }
}

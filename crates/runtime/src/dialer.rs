//! A client's connection to one address: opened, kept, and opened again.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serried_model::{Geography, Limits, NodeId};
use tokio::sync::mpsc::UnboundedSender;

use crate::connection::Ended;
use crate::core::Endpoint;
use crate::handshake::{Hello, KeyspaceInfo, Met, Place, Welcome, dial};
use crate::links::LinkOptions;
use crate::redial::Redial;

/// What a client knows of its cluster. The first node that answers says it; the others must agree.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct View {
    pub(crate) cluster: String,
    pub(crate) peers: Vec<String>,
    pub(crate) keyspaces: Vec<KeyspaceInfo>,
    pub(crate) limits: Limits,
    /// Where the client is, if a geography is emulated.
    pub(crate) place: Option<Place>,
}

impl View {
    fn new(welcome: &Welcome, site: Option<&str>) -> Result<View, String> {
        let geography = match &welcome.geography {
            None => None,
            Some(name) => Some(Geography::named(name).map_err(|error| error.to_string())?),
        };
        let place = geography.map(|geography| Place::find(geography, site, 0)).transpose()?;
        Ok(View {
            cluster: welcome.cluster.clone(),
            peers: welcome.peers.clone(),
            keyspaces: welcome.keyspaces.clone(),
            limits: welcome.limits,
            place,
        })
    }

    /// How `other` differs, if it does in anything that matters.
    fn disagreement(&self, other: &View) -> Option<String> {
        if self.cluster != other.cluster {
            let (this, other) = (&self.cluster, &other.cluster);
            return Some(format!("it is of cluster `{other}`, another node of `{this}`"));
        }
        let what = if self.keyspaces != other.keyspaces {
            "keyspaces"
        } else if self.peers.len() != other.peers.len() {
            "number of nodes"
        } else if self.limits != other.limits {
            "limits"
        } else if self.place != other.place {
            "geography"
        } else {
            return None;
        };
        Some(format!("it differs in its {what} from another node: give all nodes the same"))
    }
}

/// How the first try to reach an address went.
pub(crate) enum Report {
    Met {
        replica: u64,
        round_trip: Duration,
    },
    /// A replica answered to which there is a connection already.
    Duplicate,
    Failed {
        address: String,
        reason: String,
        disagrees: bool,
    },
}

/// One address.
pub(crate) struct Dialer {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) address: String,
    pub(crate) hello: Hello,
    pub(crate) view: Arc<OnceLock<View>>,
    /// Where the first try's outcome goes.
    pub(crate) report: Option<UnboundedSender<Report>>,
}

impl Dialer {
    /// Keeps a connection to the address until the endpoint is closed.
    pub(crate) async fn run(mut self) {
        let endpoint = self.endpoint.clone();
        let mut redial = Redial::new();
        let mut replica = None;
        loop {
            let timeout = endpoint.transport.handshake_timeout();
            let measure = self.report.is_some();
            let met = tokio::select! {
                () = endpoint.closed() => return,
                met = tokio::time::timeout(timeout, dial(&self.address, &self.hello, measure)) => met,
            };
            match met.unwrap_or(Err(Ended::TimedOut)) {
                Ok(met) => match self.join(met, &mut replica).await {
                    Joined::Connected => redial = Redial::new(),
                    Joined::Duplicate if replica.is_none() => {
                        self.tell(Report::Duplicate);
                        return;
                    }
                    Joined::Duplicate => {}
                    Joined::Disagrees(reason) => self.failed(reason, true),
                },
                Err(ended) => {
                    let disagrees = matches!(ended, Ended::Rejected(_));
                    self.failed(ended.to_string(), disagrees);
                }
            }
            // An address that never answered is not needed once every replica is connected.
            if endpoint.is_closed() || replica.is_none() && self.is_superfluous() {
                return;
            }
            let wait = redial.wait(&mut endpoint.lock().random);
            tokio::select! {
                () = endpoint.closed() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Takes a node that has been met into service, for as long as its connection lasts.
    async fn join(&mut self, met: Met, replica: &mut Option<NodeId>) -> Joined {
        let Met { connection, welcome, round_trip } = met;
        let view = match View::new(&welcome, self.hello.site.as_deref()) {
            Ok(view) => view,
            Err(reason) => return Joined::Disagrees(reason),
        };
        let agreed = self.view.get_or_init(|| view.clone());
        if let Some(reason) = agreed.disagreement(&view) {
            return Joined::Disagrees(reason);
        }
        let node = welcome.node;
        if node.0 >= agreed.peers.len() as u64 {
            return Joined::Disagrees(format!("it calls itself {node}, which there is not"));
        }
        let delay = match agreed.place {
            None => Duration::ZERO,
            Some(here) => {
                let site = welcome.site.as_deref();
                match Place::find(here.geography, site, node.0 as usize) {
                    Ok(there) => here.delay_to(there),
                    Err(reason) => return Joined::Disagrees(reason),
                }
            }
        };
        let link = {
            let mut core = self.endpoint.lock();
            if core.links.leads_to(node) {
                return Joined::Duplicate;
            }
            core.links.counters.reconnects += u64::from(replica.is_some());
            core.links.open(LinkOptions {
                node,
                route: true,
                delay,
                frame_bytes: welcome.frame_bytes.min(self.endpoint.transport.frame_bytes),
                most_waiting_bytes: self.endpoint.transport.most_waiting_bytes,
            })
        };
        *replica = Some(node);
        self.tell(Report::Met { replica: node.0, round_trip });
        tracing::debug!(%node, address = self.address, "connected");
        let ended = connection.run(&self.endpoint, node, link).await;
        if !self.endpoint.is_closed() {
            tracing::info!(%node, address = self.address, reason = %ended, "lost a connection");
        }
        Joined::Connected
    }

    fn failed(&mut self, reason: String, disagrees: bool) {
        if self.report.is_none() {
            tracing::debug!(address = self.address, reason, "can't connect");
        }
        let address = self.address.clone();
        self.tell(Report::Failed { address, reason, disagrees });
    }

    fn tell(&mut self, report: Report) {
        if let Some(sender) = self.report.take() {
            // Nobody listens any more once the client is connected.
            let _ = sender.send(report);
        }
    }

    fn is_superfluous(&self) -> bool {
        self.view.get().is_some_and(|view| {
            let core = self.endpoint.lock();
            (0..view.peers.len() as u64).all(|replica| core.links.leads_to(NodeId(replica)))
        })
    }
}

enum Joined {
    /// It was connected, and no longer is.
    Connected,
    Duplicate,
    Disagrees(String),
}

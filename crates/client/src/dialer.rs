//! A client's connection to one address: opened, kept, and opened again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serried_model::{Geography, Limits, NodeId};
use serried_wire::{
    Core, End, Ended, Endpoint, Hello, LinkOptions, Met, Place, Redial, Tables, Welcome, dial,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use crate::side::ClientSide;

/// What a client knows of its cluster. The first node that answers says it; the others must agree.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct View {
    pub(crate) cluster: String,
    pub(crate) peers: Vec<String>,
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
        let what = if self.peers.len() != other.peers.len() {
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

/// How the first try to reach a core at an address went.
pub(crate) enum Report {
    Met {
        replica: u64,
        round_trip: Duration,
        /// The site of the emulated geography at which it is, if there is one.
        site: Option<usize>,
    },
    /// A core answered to which there is a connection already.
    Duplicate,
    Failed {
        address: String,
        reason: String,
        disagrees: bool,
    },
}

/// A client's dialers, one for each core at each address.
pub(crate) struct Dialers {
    pub(crate) endpoint: Arc<Endpoint<ClientSide>>,
    hello: Hello,
    /// What the cluster is, once a node has answered.
    pub(crate) view: OnceLock<View>,
    /// Which keyspaces the nodes have.
    pub(crate) tables: Mutex<Tables>,
    /// By member: the incarnation of the process that was met last.
    processes: Mutex<BTreeMap<usize, u64>>,
    reports: UnboundedSender<Report>,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    dialed: BTreeSet<(String, u16)>,
    set: JoinSet<()>,
}

impl Dialers {
    /// Dialers that introduce themselves with `hello`, and report how their first tries went.
    pub(crate) fn new(
        endpoint: Arc<Endpoint<ClientSide>>,
        hello: Hello,
        reports: UnboundedSender<Report>,
    ) -> Arc<Dialers> {
        let tasks = Mutex::default();
        let (tables, processes) = (Mutex::default(), Mutex::default());
        Arc::new(Dialers {
            endpoint,
            hello,
            view: OnceLock::new(),
            tables,
            processes,
            reports,
            tasks,
        })
    }

    /// Dials a core at an address, unless that has been done.
    pub(crate) fn dial(self: &Arc<Self>, address: &str, core: u16) {
        let mut tasks = self.tasks();
        if tasks.dialed.insert((address.to_string(), core)) {
            let hello = Hello { core, ..self.hello.clone() };
            let (dialers, address) = (self.clone(), address.to_string());
            tasks.set.spawn(Dialer { dialers, address, hello, reported: false }.run());
        }
    }

    /// Notes which process a node is, and its keyspaces.
    fn meet(&self, welcome: &Welcome) {
        let member = welcome.node.member();
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.put(member, welcome.peers.len(), welcome.keyspaces.clone());
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.insert(member, welcome.incarnation);
    }

    /// Whether a node's process is the one that was met last.
    fn is_met(&self, welcome: &Welcome) -> bool {
        let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let met = processes.get(&welcome.node.member());
        met.is_none_or(|incarnation| *incarnation == welcome.incarnation)
    }

    /// How many have been dialed.
    pub(crate) fn dialed(&self) -> usize {
        self.tasks().dialed.len()
    }

    /// Takes the tasks away, which end where they are dropped.
    pub(crate) fn take(&self) -> JoinSet<()> {
        std::mem::take(&mut self.tasks().set)
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One core at one address.
struct Dialer {
    dialers: Arc<Dialers>,
    address: String,
    hello: Hello,
    /// Whether the outcome of the first try has been reported.
    reported: bool,
}

impl Dialer {
    /// Keeps a connection to the core until the endpoint is closed.
    async fn run(mut self) {
        let endpoint = self.dialers.endpoint.clone();
        let mut redial = Redial::new();
        let mut replica = None;
        loop {
            let timeout = endpoint.transport.handshake_timeout();
            let measure = !self.reported && self.hello.core == 0;
            let met = tokio::select! {
                () = endpoint.closed() => return,
                met = tokio::time::timeout(timeout, dial(&self.address, &self.hello, measure)) => met,
            };
            match met.unwrap_or(Err(Ended::TimedOut)) {
                Ok(met) => match self.join(met, &mut replica).await {
                    Joined::Connected => redial = Redial::new(),
                    Joined::Duplicate if replica.is_none() => {
                        self.report(Report::Duplicate);
                        return;
                    }
                    Joined::Duplicate => {}
                    Joined::Outdated(reason) => self.failed(reason, false),
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
        let agreed = self.dialers.view.get_or_init(|| view.clone());
        if let Some(reason) = agreed.disagreement(&view) {
            return Joined::Disagrees(reason);
        }
        let node = welcome.node;
        if node.0 >= agreed.peers.len() as u64 {
            return Joined::Disagrees(format!("it calls itself {node}, which there is not"));
        }
        let (delay, site) = match agreed.place {
            None => (Duration::ZERO, None),
            Some(here) => {
                let site = welcome.site.as_deref();
                match Place::find(here.geography, site, node.0 as usize) {
                    Ok(there) => (here.delay_to(there), Some(there.site)),
                    Err(reason) => return Joined::Disagrees(reason),
                }
            }
        };
        if self.hello.core >= welcome.cores {
            // The node was started again with fewer of them.
            return Joined::Duplicate;
        }
        let endpoint = self.dialers.endpoint.clone();
        let link = {
            let mut core = endpoint.lock();
            let Core { side, links, .. } = &mut *core;
            if !side.meet(&welcome, links) {
                return Joined::Outdated(format!(
                    "{node} was replaced, and the process that answers there has the data from before: stop it"
                ));
            }
            let end = End::Core { member: node.member(), core: usize::from(self.hello.core) };
            if core.links.leads_to(end) {
                return match self.dialers.is_met(&welcome) {
                    true => Joined::Duplicate,
                    false => Joined::Disagrees(format!(
                        "another process than the one at another address calls itself {node}: give the \
                         addresses of one cluster"
                    )),
                };
            }
            if self.hello.core == 0 {
                let firsts = welcome.keyspaces.iter().map(|k| (k.number, k.first_shard));
                core.links.set_cores(node.member(), usize::from(welcome.cores), firsts);
                self.dialers.meet(&welcome);
            }
            core.links.counters.reconnects += u64::from(replica.is_some());
            core.links.open(LinkOptions {
                end,
                route: true,
                internal: false,
                delay,
                frame_bytes: welcome.frame_bytes.min(endpoint.transport.frame_bytes),
                most_waiting_bytes: endpoint.transport.most_waiting_bytes,
            })
        };
        *replica = Some(node);
        if self.hello.core == 0 {
            (1..welcome.cores).for_each(|core| self.dialers.dial(&self.address, core));
        }
        self.report(Report::Met { replica: node.0, round_trip, site });
        tracing::debug!(%node, address = self.address, "connected");
        let ended = connection.run(&endpoint, node, link).await;
        if !endpoint.is_closed() {
            tracing::info!(%node, address = self.address, reason = %ended, "lost a connection");
        }
        Joined::Connected
    }

    fn failed(&mut self, reason: String, disagrees: bool) {
        if self.reported {
            tracing::debug!(address = self.address, reason, "can't connect");
        }
        let address = self.address.clone();
        self.report(Report::Failed { address, reason, disagrees });
    }

    fn report(&mut self, report: Report) {
        if !std::mem::replace(&mut self.reported, true) {
            // The receiver is gone once the client is connected.
            let _ = self.dialers.reports.send(report);
        }
    }

    fn is_superfluous(&self) -> bool {
        self.dialers.view.get().is_some_and(|view| {
            let core = self.dialers.endpoint.lock();
            (0..view.peers.len()).all(|member| core.links.leads_to(End::Core { member, core: 0 }))
        })
    }
}

enum Joined {
    /// It was connected, and no longer is.
    Connected,
    Duplicate,
    /// It has data that was replaced.
    Outdated(String),
    Disagrees(String),
}

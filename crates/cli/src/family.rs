//! The two families: what clients do, to a keyspace of which kind, under which protocol.

use std::sync::{Arc, Mutex};

use serried::{Database, KeyspaceInfo};
use serried_actor::{Protocol, Timestamp};
use serried_model::{Family, Guarantee, Modification};
use serried_protocols::{ProtocolInfo, Visitor};
use serried_session::{Error, Keyspace, Registers, TransactOptions};
use serried_sim::{Cluster, Configuration};
use serried_workload::{RegisterWorkload, Workload};

/// What clients do.
#[derive(Clone)]
pub(crate) enum Clients {
    /// Transactions.
    Transactions(Arc<dyn Workload>),
    /// Operations on registers.
    Registers(Arc<dyn RegisterWorkload>),
}

impl Clients {
    /// The workload's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Clients::Transactions(workload) => workload.name(),
            Clients::Registers(workload) => workload.name(),
        }
    }

    /// What they do something to.
    pub(crate) fn family(&self) -> Family {
        match self {
            Clients::Transactions(_) => Family::Transactions,
            Clients::Registers(_) => Family::Registers,
        }
    }

    fn modify(&self) -> bool {
        matches!(self, Clients::Registers(workload) if workload.modifies())
    }
}

/// A keyspace of either family, as a client sees it.
#[derive(Clone)]
pub(crate) enum Place {
    /// One with transactions.
    Keyspace(Keyspace),
    /// One whose keys are registers.
    Registers(Registers),
}

impl Place {
    /// That of a simulated client.
    pub(crate) fn simulated<P: Protocol>(cluster: &Cluster<P>, client: usize) -> Place {
        match P::GUARANTEE.family() {
            Family::Transactions => Place::Keyspace(cluster.keyspace(client)),
            Family::Registers => Place::Registers(cluster.registers(client)),
        }
    }

    /// The keyspace of a database that is called `name`, whatever its family.
    pub(crate) async fn open(database: &Database, name: &str) -> anyhow::Result<Place> {
        let keyspaces = database.keyspaces();
        let known = keyspaces.iter().find(|info| info.name == name);
        Ok(match known.and_then(of_keyspace) {
            Some(Family::Registers) => Place::Registers(database.registers(name).await?),
            _ => Place::Keyspace(database.keyspace(name).await?),
        })
    }

    /// The same with other options.
    pub(crate) fn with_options(&self, options: TransactOptions) -> Place {
        match self {
            Place::Keyspace(keyspace) => Place::Keyspace(keyspace.with_options(options)),
            Place::Registers(registers) => Place::Registers(registers.with_options(options)),
        }
    }

    /// The driver's monotonic time.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Place::Keyspace(keyspace) => keyspace.now(),
            Place::Registers(registers) => registers.now(),
        }
    }

    /// Waits until the driver's time is `at`.
    pub(crate) async fn sleep_until(&self, at: Timestamp) {
        match self {
            Place::Keyspace(keyspace) => keyspace.sleep_until(at).await,
            Place::Registers(registers) => registers.sleep_until(at).await,
        }
    }
}

/// The family of a cluster's keyspace, if this build knows what it promises.
pub(crate) fn of_keyspace(info: &KeyspaceInfo) -> Option<Family> {
    Some(Guarantee::named(&info.guarantee)?.family())
}

/// What the registry knows of `protocol`.
pub(crate) fn info(protocol: &str) -> Option<&'static ProtocolInfo> {
    serried_protocols::list().iter().find(|known| known.name == protocol)
}

/// Whether nothing can be checked of what a protocol does.
pub(crate) fn promises_nothing(protocol: &str) -> bool {
    info(protocol).is_some_and(|info| info.guarantee == Guarantee::Nothing)
}

/// The protocols that are compared if none are chosen.
pub(crate) fn usual_protocols(clients: &Clients) -> Vec<String> {
    match clients.family() {
        Family::Transactions => ["morty", "mvtso"].map(str::to_string).into(),
        family => {
            let all = serried_protocols::of(family).map(|protocol| protocol.name);
            let able = all.filter(|protocol| !clients.modify() || offers_rmws(protocol));
            able.map(str::to_string).collect()
        }
    }
}

/// Checks that clients can do what they do under `protocol`.
pub(crate) fn fits(clients: &Clients, protocol: &str) -> anyhow::Result<()> {
    let (workload, wanted) = (clients.name(), clients.family());
    let Some(family) = info(protocol).map(|info| info.guarantee.family()) else {
        return Ok(()); // It is not here; whoever runs it says so.
    };
    let others = || usual_protocols(clients).join(", ");
    anyhow::ensure!(
        family == wanted,
        "`{workload}` is a workload of {wanted}, and `{protocol}` has {family}: choose one of {}",
        others()
    );
    anyhow::ensure!(
        !clients.modify() || offers_rmws(protocol),
        "`{protocol}` has no read-modify-writes, and `{workload}` does some: choose one of {}, or shares \
         that leave none, as --reads 0.5 --writes 0.5",
        others()
    );
    Ok(())
}

/// Whether a protocol of registers has read-modify-writes.
///
/// It is asked: a client of a small simulated cluster tries one, which takes no time worth speaking of.
pub(crate) fn offers_rmws(protocol: &str) -> bool {
    serried_protocols::visit(protocol, Attempt).unwrap_or(false)
}

struct Attempt;

impl Visitor for Attempt {
    type Output = bool;

    fn visit<P: Protocol>(self) -> bool {
        if P::GUARANTEE.family() != Family::Registers {
            return false;
        }
        let mut cluster = Cluster::<P>::new(Configuration::default());
        let (registers, refused) = (cluster.registers(0), Arc::new(Mutex::new(false)));
        let answer = refused.clone();
        cluster.spawn(0, async move {
            let tried = registers.rmw("key", Modification::add(1)).await;
            let not_offered = matches!(tried, Err(Error::NotOffered { .. }));
            *answer.lock().expect("nobody panics with it") = not_offered;
        });
        // Longer than any operation takes.
        let limit = Timestamp(0) + TransactOptions::default().deadline * 2;
        let finished = cluster.run_until_done(limit).is_ok();
        let refused = *refused.lock().expect("nobody panics with it");
        finished && !refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_known_by_whether_it_does_a_read_modify_write() {
        assert!(!offers_rmws("abd"));
        assert!(offers_rmws("epaxos"));
        assert!(!offers_rmws("morty") && !offers_rmws("no such protocol"));
    }
}

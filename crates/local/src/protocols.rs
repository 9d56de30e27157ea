//! The protocols of a cluster in one process.

use serried::Coordinators;
use serried_actor::Protocol;
use serried_node::Replicas;

/// The protocols that the nodes and the clients of a cluster have: by default those of the registry.
#[derive(Clone, Debug, Default)]
pub struct Protocols {
    /// Those of the nodes.
    pub replicas: Replicas,
    /// Those of the clients.
    pub coordinators: Coordinators,
}

impl Protocols {
    /// The same with `P` as well, in the place of one of the same name.
    #[must_use]
    pub fn with<P: Protocol>(self) -> Protocols {
        let Protocols { replicas, coordinators } = self;
        Protocols { replicas: replicas.with::<P>(), coordinators: coordinators.with::<P>() }
    }
}

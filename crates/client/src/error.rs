//! What can go wrong before a keyspace is open.

use std::io;

use serried_model::FamilyName;
use serried_wire::{NotServed, Unresolved};

/// Why there is no connection to a cluster, or no such keyspace in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address can't be understood.
    #[error(
        "`{given}` is not the address of a cluster ({reason}): write serried://host:port,host:port"
    )]
    Address {
        /// What was given.
        given: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No node answered.
    #[error("no node answered ({tried}): check the addresses, and that the nodes are running")]
    Unreachable {
        /// What was tried, and what came of it.
        tried: String,
    },
    /// A node turned the client away, or belongs to another cluster than the others.
    #[error("{address} does not fit: {reason}")]
    Disagreement {
        /// The node's address.
        address: String,
        /// Why.
        reason: String,
    },
    /// The keyspace is of another family than it was opened as.
    #[error(
        "keyspace `{name}` has {found} ({guarantee}), and was opened for {wanted}: open it for {found}"
    )]
    WrongFamily {
        /// The name asked for.
        name: String,
        /// What the keyspace promises.
        guarantee: String,
        /// The family of the keyspace.
        found: FamilyName,
        /// The family that it was opened as.
        wanted: FamilyName,
    },
    /// The cluster has no such keyspace.
    #[error("there is no keyspace `{name}`; the cluster has {}", list(.existing))]
    UnknownKeyspace {
        /// The name asked for.
        name: String,
        /// The names that there are.
        existing: Vec<String>,
    },
    /// A majority of the nodes has no keyspace of this name, or other ones.
    #[error("{}", .0.reason)]
    NotServed(NotServed),
    /// The keyspace has no such site.
    #[error(
        "keyspace `{name}` has no site {home}, its sites are 0 to {last}: choose one of them as `home`"
    )]
    NoSuchSite {
        /// The keyspace.
        name: String,
        /// The site asked for.
        home: u16,
        /// Its last site.
        last: u16,
    },
    /// The keyspace runs a protocol that this client does not have.
    #[error("keyspace `{name}` can't be used by this client: {reason}")]
    UnknownProtocol {
        /// The keyspace.
        name: String,
        /// What is missing.
        reason: String,
    },
    /// The operating system gave no random numbers, from which a client's identity is made.
    #[error("the operating system gives no random numbers ({0}): make its random device available")]
    System(io::Error),
}

impl ConnectError {
    /// The keyspace called `name` can't be used.
    pub(crate) fn unresolved(name: &str, unresolved: Unresolved) -> ConnectError {
        match unresolved {
            Unresolved::Unknown { existing } => {
                ConnectError::UnknownKeyspace { name: name.to_string(), existing }
            }
            Unresolved::NotServed(refused) => ConnectError::NotServed(refused),
        }
    }
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

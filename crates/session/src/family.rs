//! The families that have sessions.

use core::fmt::Debug;
use std::sync::Arc;

use serried_model::{Family, Limits};

use crate::{Driver, Port};

/// A family of keyspaces that has sessions: it names the handle through which a client uses a keyspace.
pub trait Session: Family {
    /// The handle. Cheap to clone; works from many tasks at once.
    type Keyspace: Clone + Send + Sync + 'static;
    /// For how long to try an operation, and where it matters how often.
    type Options: Copy + Debug + Default + Send + Sync + 'static;
    /// Why an operation failed, or is not known to have succeeded.
    type Error: std::error::Error + Debug + Send + Sync + 'static;

    /// For drivers: a handle to the keyspace behind `port`, whose protocol offers `offers`.
    fn keyspace(port: Arc<dyn Port<Self>>, limits: Limits, offers: Self::Offers) -> Self::Keyspace;

    /// The same handle with other options.
    fn with_options(keyspace: &Self::Keyspace, options: Self::Options) -> Self::Keyspace;

    /// The driver of the handle's client.
    fn driver(keyspace: &Self::Keyspace) -> Arc<dyn Driver>;
}

//! How far a replica takes part.

/// How far a replica takes part in its partition. While a replica does not take part fully, no other replica should be
/// stopped, because the rest may be no majority.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Standing {
    /// It takes part in everything.
    #[default]
    Full,
    /// It was down or cut off, and is fetching what it has missed.
    CatchingUp {
        /// How many keys it has fetched so far.
        keys: u64,
    },
    /// It replaces a replica whose disk was lost, and does not have all of its data yet.
    Rejoining {
        /// How many keys it has fetched so far.
        keys: u64,
    },
}

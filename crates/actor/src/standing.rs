//! How far a replica takes part.

/// How far a replica takes part in what its partition does. While it does not fully, another replica that
/// stops may be one too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Standing {
    /// In everything.
    #[default]
    Full,
    /// It was away, and gets what it has missed.
    CatchingUp {
        /// How many keys it has taken over so far.
        keys: u64,
    },
    /// It takes the place of one whose disk was lost, and does not have everything that the other had.
    Rejoining {
        /// How many keys it has taken over so far.
        keys: u64,
    },
}

//! How far a replica takes part.

/// How far a replica takes part in its partition. While one does not take part fully, another one should not be stopped,
/// because the rest may be no majority.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Standing {
    /// It takes part in everything.
    #[default]
    Full,
    /// It was away, and is getting what it has missed.
    CatchingUp {
        /// How many keys it has taken over so far.
        keys: u64,
    },
    /// It replaces one whose disk was lost, and does not have everything yet that the other had.
    Rejoining {
        /// How many keys it has taken over so far.
        keys: u64,
    },
}

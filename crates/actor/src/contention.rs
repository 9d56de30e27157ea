//! What a protocol does with keys that many transactions change, as far as advice on hot keys needs it.

/// Whether transactions that read a key and then write it take turns, so that each finds what the one before it wrote,
/// or abort one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turns {
    /// They take turns, however they read.
    Always,
    /// They take turns if they read the key for update. Otherwise they abort one another.
    ForUpdate,
    /// They abort one another.
    Never,
}

/// What a protocol does with hot keys, for estimates. Work is in events, the unit that `serried calibrate` measures: what
/// a participant does on average for one message, when messages travel together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Contention {
    /// Whether transactions that read a key and then write it take turns.
    pub turns: Turns,
    /// Whether a key's leader decides the order, which is then one round trip of the client away. Otherwise the next
    /// transaction finds a write at the replica that is nearest to its client.
    pub at_leader: bool,
    /// How many round trips between the leader and other replicas a commit takes.
    pub replications: f64,
    /// Whether modifications of one key commit side by side, as long as nobody looks at their results.
    pub merges: bool,
    /// The work of a transaction that reads a contended key and writes it, of all participants.
    pub update_events: f64,
    /// The work of a modification that is merged with others, of all participants.
    pub modify_events: f64,
    /// The part of it that is done for one modification of the key after the other.
    pub serial_events: f64,
}

impl Contention {
    /// A protocol whose replicas are all alike.
    pub const ALIKE: Contention = Contention {
        turns: Turns::Never,
        at_leader: false,
        replications: 0.0,
        merges: false,
        update_events: 12.0,
        modify_events: 4.0,
        serial_events: 0.5,
    };

    /// A protocol with leaders.
    pub const LED: Contention = Contention {
        turns: Turns::Never,
        at_leader: true,
        replications: 1.0,
        merges: false,
        update_events: 12.0,
        modify_events: 6.5,
        serial_events: 2.8,
    };
}

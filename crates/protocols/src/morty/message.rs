//! What coordinators and replicas exchange, and what replicas make durable.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_model::{Key, Value, Version};
use serried_parts::WriteId;

/// A message. `version` is always that of the transaction concerned.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// Coordinator to its nearest replica: read `key`.
    Get {
        /// The reader.
        version: Version,
        /// What to read.
        key: Key,
    },
    /// The answer to a `Get`, and again whenever the reader would now find something else.
    GetReply {
        /// The reader.
        version: Version,
        /// What was read.
        key: Key,
        /// The write that was found.
        write: WriteId,
        /// Its value.
        value: Option<Value>,
        /// The write that this replica had answered before and that is withdrawn; the new one may
        /// then be an older one.
        instead_of: Option<WriteId>,
    },
    /// Coordinator to all replicas, while the transaction is still executing: a write.
    Put {
        /// The writer.
        version: Version,
        /// What is written.
        key: Key,
        /// Orders the values that one transaction writes.
        tag: u32,
        /// The new value.
        value: Option<Value>,
    },
    /// Coordinator to all replicas: vote on this execution, and abandon all earlier ones of the
    /// transaction.
    Prepare {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// Every `Put` with a smaller tag is superseded by what the execution writes.
        next_tag: u32,
        /// What it read and writes.
        contents: Arc<Contents>,
    },
    /// A replica's vote. It implies that the replica has abandoned all earlier executions.
    PrepareReply {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// The vote.
        vote: Vote,
        /// The key over which it was not `Commit`.
        conflict: Option<Key>,
    },
    /// Coordinator to all replicas: accept this decision. `Abandon` is for `eid` and all executions
    /// before it.
    Finalize {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// The view in which it is proposed; 0 for the transaction's own coordinator.
        view: u32,
        /// What is proposed.
        decision: Proposal,
    },
    /// The replica is in this view for the execution; if it is the one proposed in, it has accepted.
    FinalizeReply {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// The replica's view.
        view: u32,
    },
    /// Coordinator to all replicas: this is decided, durably.
    Decide {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// The decision.
        decision: Decision,
        /// What the execution read and writes, in case the replica has not heard of it. Left out the
        /// first time.
        contents: Option<Arc<Contents>>,
    },
    /// Replica to coordinator: these transactions' decisions have been carried out.
    Acknowledge {
        /// The transactions.
        versions: Vec<Version>,
    },
}

/// What an execution read and what it writes, one entry per key.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Contents {
    /// The reads.
    pub reads: Vec<Read>,
    /// The writes.
    pub writes: Vec<TaggedWrite>,
}

/// A read and the write that it found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Read {
    /// What was read.
    pub key: Key,
    /// What was found. The tag stands for the value: each value that a transaction writes has its own.
    pub write: WriteId,
}

/// A write of an execution.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TaggedWrite {
    /// What is written.
    pub key: Key,
    /// Orders the values that one transaction writes.
    pub tag: u32,
    /// The new value.
    pub value: Option<Value>,
}

/// A replica's vote on an execution (000 Table 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Vote {
    /// It is serializable as far as this replica knows, and all that it read is committed.
    Commit,
    /// The same, if what it read commits as it was read. A Commit or AbandonFinal follows when that is
    /// known.
    Provisional,
    /// It conflicts with something that is not committed, and may yet succeed.
    AbandonTentative,
    /// It conflicts with something that is committed, and never can succeed.
    AbandonFinal,
}

/// What a coordinator proposes for an execution in the Finalize phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Proposal {
    /// Commit it, and with it the transaction.
    Commit,
    /// Abandon it, and those before it.
    Abandon,
}

/// What is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Decision {
    /// The execution commits, and with it the transaction.
    Commit,
    /// The execution is abandoned; the transaction goes on with another.
    Abandon,
    /// The execution is abandoned, and the transaction with it.
    Abort,
}

/// What a replica makes durable before it answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// Its vote on an execution.
    Voted {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// See [`Message::Prepare`].
        next_tag: u32,
        /// The vote.
        vote: Vote,
        /// What was voted on.
        contents: Arc<Contents>,
    },
    /// Its vote for good on an execution for which it had voted provisionally.
    Confirmed {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// The vote.
        vote: Vote,
    },
    /// A decision that it accepted.
    Accepted {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// The view in which it was proposed.
        view: u32,
        /// What was proposed.
        decision: Proposal,
    },
    /// A transaction's decision; `contents` if it is to commit.
    Decided {
        /// The transaction.
        version: Version,
        /// The contents of the execution that commits; none for an abort.
        contents: Option<Arc<Contents>>,
    },
}

//! MVTSO: multi-version timestamp ordering, replicated (000 §5, "Baselines").
//!
//! It is Morty without re-execution:
//!
//! - A replica does not tell readers of writes that they missed. What its checks find that should be read instead is
//!   discarded. So a transaction that has missed a write is aborted when it is validated, and starts over.
//! - An execution that was voted down tentatively is not prepared again.
//! - Replicas do not vote provisionally. Provisional votes help transactions that are re-executed, and cost those that
//!   are not: with them MVTSO commits about half as much on a contended workload. Where a read has found many modifications
//!   that are undecided, a Prepare waits for the latest of them first: each time that it is looked at takes as long as there
//!   are many.

use serried_actor::{Contention, Group, Protocol, Settings};
use serried_model::transactions::Offers;
use serried_model::{Guarantee, NodeId, Transactions};

use crate::Mutated;
use crate::morty::{Checks, Control, Coordinator, Crowds, FastQuorum, Message, Options, Replica};

const OPTIONS: Options = Options {
    control: Control::Ordering,
    fast_quorum: FastQuorum::All,
    re_execution: false,
    provisional_votes: false,
    checks: Checks::ALL,
    crowds: Crowds::USUAL,
    mutation: Mutated::NONE,
};

/// The protocol.
#[derive(Debug)]
pub struct Mvtso;

impl Protocol for Mvtso {
    const NAME: &'static str = "mvtso";
    const SUMMARY: &'static str =
        "multi-version timestamp ordering: aborts transactions that missed a write";
    const GUARANTEE: Guarantee = Guarantee::Serializable;
    type Family = Transactions;
    const OFFERS: Offers = Offers { one_shots: false, past: true, modifies: true };
    const FIRST_FORMAT: u32 = 4;
    const CONTENTION: Option<Contention> = Some(Contention { merges: true, ..Contention::ALIKE });
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings, OPTIONS)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, OPTIONS)
    }
}

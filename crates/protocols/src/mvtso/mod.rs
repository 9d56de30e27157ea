//! MVTSO: multi-version timestamp ordering, replicated (000 §5, "Baselines").
//!
//! It is Morty without re-execution: a replica does not tell readers of writes that they missed, so
//! such a transaction is aborted when it is validated, and starts over. Nor does it vote provisionally,
//! which helps transactions that are re-executed and costs those that are not: MVTSO commits about half
//! as much with it on a contended workload.

use serried_actor::{Group, Protocol, Settings};
use serried_model::transactions::Offers;
use serried_model::{Guarantee, NodeId, Transactions};

use crate::morty::{Checks, Coordinator, Message, Options, Replica};

const OPTIONS: Options =
    Options { re_execution: false, provisional_votes: false, checks: Checks::ALL, mutation: None };

/// The protocol.
#[derive(Debug)]
pub struct Mvtso;

impl Protocol for Mvtso {
    const NAME: &'static str = "mvtso";
    const SUMMARY: &'static str =
        "multi-version timestamp ordering: aborts transactions that missed a write";
    const GUARANTEE: Guarantee = Guarantee::Serializable;
    type Family = Transactions;
    const OFFERS: Offers = Offers { one_shots: false, past: true };
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

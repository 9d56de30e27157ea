//! Registers with consensus on a network that is moved by hand: the messages of each rule, one by one.

mod agreement;
mod ahead;
mod clocks;
mod dependency;
mod duplicates;
mod forgetting;
mod net;
mod pages;
mod places;
mod reads;
mod recovery;
mod replaced;
mod survival;
mod thrift;
mod twice;

use serried_actor::Settings;
use serried_model::{Access, Carstamp, Modification, NodeId, Value};
use serried_parts::Stamped;

use super::{Mutation, Rules, Variant};
use net::Net;

const BOTH: [Variant; 2] = [Variant::Epaxos, Variant::Gryff];

fn write(value: &str) -> Access {
    Access::Write(Some(Value::from(value)))
}

fn add(delta: i64) -> Access {
    Access::Modify(Modification::add(delta))
}

fn append(suffix: &str) -> Access {
    Access::Modify(Modification::Append(Value::from(suffix)))
}

/// What a write by nobody in particular makes of a key.
fn stamped(value: &str, timestamp: u64) -> Stamped {
    let carstamp = Carstamp { timestamp, writer: NodeId(0), rmwc: 0 };
    Stamped { value: Some(Value::from(value)), carstamp }
}

fn thrifty() -> Settings {
    Settings { thrifty: true, ..Settings::default() }
}

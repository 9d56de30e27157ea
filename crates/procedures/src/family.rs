//! The requests of sessions to coordinators of keyspaces with stored procedures, and the answers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_model::{Family, FamilyName, Version};

use crate::{Datum, Field, InvalidInputs, ProcedureSet, Refused};

/// The family of keyspaces that run stored procedures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Procedures;

impl Family for Procedures {
    const NAME: FamilyName = FamilyName::Procedures;
    type Operation = Operation;
    type Output = Output;
    type Offers = Offers;
}

/// One request of a session to its coordinator.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    /// Call a procedure of the set that is registered. The answers are [`Output::Began`], unless the call is refused before
    /// it has an id, and then an [`Output::Outcome`].
    Call {
        /// The procedure.
        procedure: Arc<str>,
        /// Its inputs, in their order.
        inputs: Vec<Datum>,
        /// The id of the call's first attempt, if this is another one. A protocol that prefers older calls takes it for the
        /// call's age.
        age: Option<Version>,
    },
    /// A question: how did the call with this id end? If it has not, it is finished. The answer is an
    /// [`Output::Outcome`].
    Inquire {
        /// The id of the call.
        call: Version,
    },
    /// Register a set of procedures in place of the one that is registered. The set was checked. It takes effect when all
    /// calls under the former set have ended. The answer is an [`Output::Registered`].
    Register {
        /// The set.
        set: Arc<ProcedureSet>,
        /// The version of the set that it replaces, if it is to replace no other; 0 if none is registered.
        replaces: Option<u64>,
    },
    /// A question: which set is registered? The answer is an [`Output::Set`].
    List,
    /// Give the request up. The answer to a call is an [`Output::Outcome`]; other requests get none.
    GiveUp,
}

/// One answer of a coordinator to a session.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// The call has this id.
    Began(Version),
    /// How the call ended. Nothing follows it.
    Outcome(Outcome),
    /// The end of a registration.
    Registered(Registration),
    /// The set that is registered, and its version; 0 if none was ever registered.
    Set(u64, Arc<ProcedureSet>),
}

/// How a call ended, as far as its coordinator can know.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// It took effect, durably.
    Done(Results),
    /// A check of the procedure does not hold, or an expression failed. Nothing was written.
    Refused(Refused),
    /// There is no such procedure in the set that is registered. Nothing was executed.
    NoSuchProcedure {
        /// The version of the set.
        version: u64,
        /// The procedures that there are.
        known: Vec<String>,
    },
    /// The inputs are wrong. Nothing was executed.
    InvalidInputs(InvalidInputs),
    /// It met a conflict with other calls. It did not take effect, and never will. The session may call again.
    Conflict,
    /// The client's clock is off by more than servers allow. It did not take effect, and never will.
    ClockSkew {
        /// By how much it is ahead, in microseconds; negative if it is behind.
        ahead_us: i64,
    },
    /// It was given up. It did not take effect, and never will.
    NoEffect,
    /// It was given up, and may still take effect.
    Unknown,
    /// The servers have forgotten whether and how it took effect.
    Forgotten,
}

/// The results of a call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Their names and types.
    pub fields: Arc<[Field]>,
    /// What they are, in the same order.
    pub data: Vec<Datum>,
}

impl Results {
    /// The result of this name.
    pub fn get(&self, name: &str) -> Option<&Datum> {
        let at = self.fields.iter().position(|field| field.name == name)?;
        self.data.get(at)
    }
}

/// How a registration ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Registration {
    /// The set is registered and in use at all servers.
    InUse {
        /// Its version.
        version: u64,
    },
    /// Another set is registered than the one that was to be replaced, or another registration is under way. Nothing
    /// was changed.
    Superseded {
        /// The version of the set that is registered, or is being registered.
        version: u64,
    },
    /// The set can't replace the one that is registered, and this says why. Nothing was changed.
    Unfit(String),
}

/// The optional operations that a protocol offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offers {
    /// Whether procedures may have merged pieces (002 §4.2).
    pub merged: bool,
}

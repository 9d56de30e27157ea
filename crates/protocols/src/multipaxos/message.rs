//! What participants exchange and what replicas keep.

use serried_model::Access;
use serried_parts::Stamped;

use crate::frameworks::replicated_objects;

/// A message.
pub type Message = replicated_objects::Message<Access, Stamped>;
/// A client's request.
pub type Request = replicated_objects::Request<Access>;
/// A write or a read-modify-write, as an entry of the log, or the refusal of one.
pub type Update = replicated_objects::Update<Access>;
/// The result of an operation.
pub type Answer = replicated_objects::Answer<Stamped>;
/// What a replica makes durable.
pub type Record = replicated_objects::Record<Access>;

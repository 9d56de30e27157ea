//! What a protocol says about its objects.

use core::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serried_model::Value;

/// An object: what a key holds. Its default is an object that nothing was done to.
///
/// It is a deterministic state machine: the same updates in the same order have the same results everywhere.
pub trait Object:
    Clone + PartialEq + Debug + Default + Serialize + DeserializeOwned + Send + 'static
{
    /// An operation on an object.
    type Operation: Operation;
    /// The result of an operation.
    type Found: Clone + PartialEq + Debug + Serialize + DeserializeOwned + Send + 'static;

    /// An object that holds a value before the first update.
    fn holding(value: Value) -> Self;

    /// The result of an operation that is no update.
    fn read(&self, operation: &Self::Operation) -> Self::Found;

    /// Executes an update.
    fn update(&mut self, operation: &Self::Operation) -> Self::Found;
}

/// An operation on an object.
pub trait Operation:
    Clone + PartialEq + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// An operation that is no update. As the operation of an entry of the log, it stands for the refusal of an update.
    const REFUSAL: Self;

    /// Whether it can change the object.
    fn is_update(&self) -> bool;

    /// About how many bytes its values take up.
    fn value_bytes(&self) -> usize;
}

//! Whether a protocol has versionstamps.

use core::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serried_model::Versionstamp;

/// What messages and entries contain as versionstamps: [`Versionstamp`], or nothing.
pub trait Stamp: Copy + Eq + Debug + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Whether there are versionstamps.
    const VERSIONS: bool;

    /// This versionstamp, if there are any.
    fn of(stamp: Versionstamp) -> Self;

    /// The versionstamp. [`Versionstamp::ZERO`] if there are none.
    fn stamp(self) -> Versionstamp;

    /// How many bytes it takes in a message.
    fn bytes(self) -> u32 {
        if Self::VERSIONS { self.stamp().bytes() } else { 0 }
    }
}

impl Stamp for Versionstamp {
    const VERSIONS: bool = true;

    fn of(stamp: Versionstamp) -> Versionstamp {
        stamp
    }

    fn stamp(self) -> Versionstamp {
        self
    }
}

impl Stamp for () {
    const VERSIONS: bool = false;

    fn of(_: Versionstamp) {}

    fn stamp(self) -> Versionstamp {
        Versionstamp::ZERO
    }
}

//! Deliberate mistakes, for tests.

use core::marker::PhantomData;

/// The deliberate mistake that an actor makes, if it makes one.
///
/// A suite that never fails proves little. For each protocol there are broken variants that its suite has to catch.
/// Their mistakes are made in the protocol's own code, so that a variant differs from the protocol in one decision.
/// None of this is in what ships: without the feature `mutations`, which only tests enable, this type is empty,
/// `is` is the constant `false`, and no value with a mistake can be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mutated<M> {
    #[cfg(feature = "mutations")]
    by: Option<M>,
    kind: PhantomData<M>,
}

impl<M> Mutated<M> {
    /// No mistake: the protocol.
    pub const NONE: Mutated<M> = Mutated {
        #[cfg(feature = "mutations")]
        by: None,
        kind: PhantomData,
    };

    /// The variant that makes the mistake `mutation`.
    #[cfg(feature = "mutations")]
    pub const fn by(mutation: M) -> Mutated<M> {
        Mutated { by: Some(mutation), kind: PhantomData }
    }

    /// Whether this is the variant that makes the mistake `mutation`.
    #[cfg(feature = "mutations")]
    #[inline]
    pub(crate) fn is(&self, mutation: M) -> bool
    where
        M: PartialEq,
    {
        self.by.as_ref() == Some(&mutation)
    }

    /// Whether this is the variant that makes the mistake `mutation`.
    #[cfg(not(feature = "mutations"))]
    #[inline(always)]
    pub(crate) fn is(&self, _mutation: M) -> bool {
        false
    }
}

impl<M> Default for Mutated<M> {
    fn default() -> Mutated<M> {
        Mutated::NONE
    }
}

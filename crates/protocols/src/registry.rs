//! The one place that names protocols one by one.

use core::fmt;

use serried_actor::Protocol;
use serried_model::{Family, Guarantee};

/// Something to be done with a protocol that is chosen by name at run time.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Does it with `P`.
    fn visit<P: Protocol>(self) -> Self::Output;
}

/// What the registry knows of a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolInfo {
    /// Its name.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// What it promises.
    pub guarantee: Guarantee,
}

macro_rules! registry {
    ($($protocol:ty),* $(,)?) => {
        const PROTOCOLS: &[ProtocolInfo] = &[$(ProtocolInfo {
            name: <$protocol>::NAME,
            summary: <$protocol>::SUMMARY,
            guarantee: <$protocol>::GUARANTEE,
        }),*];

        /// Does what `visitor` does with the protocol called `name`.
        ///
        /// # Errors
        /// If there is none; the error lists those that there are.
        pub fn visit<V: Visitor>(name: &str, visitor: V) -> Result<V::Output, UnknownProtocol> {
            $(if name == <$protocol>::NAME {
                return Ok(visitor.visit::<$protocol>());
            })*
            let _ = visitor;
            Err(UnknownProtocol(name.to_string()))
        }
    };
}

registry! {
    crate::morty::Morty,
    crate::mvtso::Mvtso,
    crate::ncc::Ncc,
    crate::ncc::NccRw,
    crate::two_phase_locking::TwoPhaseLockingWoundWait,
    crate::two_phase_locking::TwoPhaseLockingNoWait,
    crate::occ::Occ,
    crate::tapir_cc::TapirCc,
    crate::mvto::Mvto,
    crate::plain::Plain,
    crate::abd::Abd,
    crate::epaxos::Epaxos,
    crate::gryff::Gryff,
    crate::gryff::GryffRsc,
    crate::multipaxos::Multipaxos,
}

/// All protocols.
pub fn list() -> &'static [ProtocolInfo] {
    PROTOCOLS
}

/// Those with keyspaces of a family.
pub fn of(family: Family) -> impl Iterator<Item = &'static ProtocolInfo> {
    PROTOCOLS.iter().filter(move |protocol| protocol.guarantee.family() == family)
}

/// Those of them that promise something, so that what they do can be judged.
pub fn promising(family: Family) -> impl Iterator<Item = &'static ProtocolInfo> {
    of(family).filter(|protocol| protocol.guarantee != Guarantee::Nothing)
}

/// There is no protocol of that name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownProtocol(String);

impl fmt::Display for UnknownProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = PROTOCOLS.iter().map(|protocol| protocol.name).collect();
        write!(f, "there is no protocol `{}`; choose one of {}", self.0, names.join(", "))
    }
}

impl core::error::Error for UnknownProtocol {}

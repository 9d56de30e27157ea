//! The one place that names protocols one by one.

use core::fmt;

use serried_actor::{Contention, Protocol};
use serried_model::{Family, FamilyName, Guarantee, Registers, Snapshots, Transactions};
use serried_procedures::Procedures;

/// Something to be done with a protocol of the family `F`, which is chosen by name at run time.
pub trait Visitor<F: Family> {
    /// What comes of it.
    type Output;

    /// Does it with `P`.
    fn visit<P: Protocol<Family = F>>(self) -> Self::Output;
}

/// A family that has protocols here.
pub trait Registered: Family {
    /// Does what `visitor` does with the protocol called `name`.
    ///
    /// # Errors
    /// If the family has none of that name; the error lists those that it has.
    fn visit<V: Visitor<Self>>(name: &str, visitor: V) -> Result<V::Output, UnknownProtocol>;
}

/// What the registry knows of a protocol.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProtocolInfo {
    /// Its name.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// What it promises.
    pub guarantee: Guarantee,
    /// Its family.
    pub family: FamilyName,
    /// Whether each of its partitions has a leader.
    pub has_leaders: bool,
    /// See [`Protocol::FIRST_FORMAT`].
    pub first_format: u32,
    /// What it does with hot keys, if that is known.
    pub contention: Option<Contention>,
}

/// Lists the protocols of each family.
macro_rules! registry {
    ($($family:ident: [$($protocol:ty),* $(,)?])*) => {
        const PROTOCOLS: &[ProtocolInfo] = &[$($(ProtocolInfo {
            name: <$protocol>::NAME,
            summary: <$protocol>::SUMMARY,
            guarantee: <$protocol>::GUARANTEE,
            family: $family::NAME,
            has_leaders: <$protocol>::HAS_LEADERS,
            first_format: <$protocol>::FIRST_FORMAT,
            contention: <$protocol>::CONTENTION,
        }),*),*];

        $(impl Registered for $family {
            fn visit<V: Visitor<Self>>(name: &str, visitor: V) -> Result<V::Output, UnknownProtocol> {
                $(if name == <$protocol>::NAME {
                    return Ok(visitor.visit::<$protocol>());
                })*
                let _ = visitor;
                Err(UnknownProtocol { name: name.to_string(), family: Some($family::NAME) })
            }
        })*

        /// Does what `visitor` does with the protocol called `name`, whatever its family.
        ///
        /// # Errors
        /// If there is none; the error lists those that there are.
        pub fn visit_any<T, V>(name: &str, visitor: V) -> Result<T, UnknownProtocol>
        where
            $(V: Visitor<$family, Output = T>,)*
        {
            let Some(info) = info(name) else {
                return Err(UnknownProtocol { name: name.to_string(), family: None });
            };
            match info.family {
                $(FamilyName::$family => visit::<$family, V>(name, visitor),)*
            }
        }
    };
}

registry! {
    Transactions: [
        crate::morty::Morty,
        crate::mvtso::Mvtso,
        crate::tapir::Tapir,
        crate::ncc::Ncc,
        crate::ncc::NccRw,
        crate::two_phase_locking::TwoPhaseLockingWoundWait,
        crate::two_phase_locking::TwoPhaseLockingNoWait,
        crate::occ::Occ,
        crate::tapir_cc::TapirCc,
        crate::mvto::Mvto,
        crate::spanner::Spanner,
        crate::plain_transactions::PlainTransactions,
    ]
    Registers: [
        crate::abd::Abd,
        crate::epaxos::Epaxos,
        crate::gryff::Gryff,
        crate::gryff::GryffRsc,
        crate::multipaxos::Multipaxos,
    ]
    Procedures: [
        crate::rococo::Rococo,
        crate::janus::Janus,
        crate::janus::JanusCc,
        crate::ncc::NccProcedures,
        crate::two_phase_locking::TwoPhaseLockingWoundWaitProcedures,
        crate::two_phase_locking::TwoPhaseLockingNoWaitProcedures,
        crate::occ::OccProcedures,
        crate::plain_transactions::PlainProcedures,
    ]
    Snapshots: [
        crate::port::Port,
        crate::port_seo::PortSeo,
        crate::scylla_occ::ScyllaOcc,
        crate::eiger_port::EigerPort,
        crate::eiger::Eiger,
        crate::plain::Plain,
    ]
}

/// Does what `visitor` does with the protocol called `name`, which is of its family.
///
/// # Errors
/// If the family has none of that name; the error lists those that it has.
pub fn visit<F: Registered, V: Visitor<F>>(
    name: &str,
    visitor: V,
) -> Result<V::Output, UnknownProtocol> {
    F::visit(name, visitor)
}

/// What the registry knows of the protocol called `name`.
pub fn info(name: &str) -> Option<&'static ProtocolInfo> {
    PROTOCOLS.iter().find(|protocol| protocol.name == name)
}

/// The protocol of keyspaces for which none is named.
pub const DEFAULT: &str = crate::morty::Morty::NAME;

/// The protocols of transactions that are compared if none are named: with re-execution and without.
pub const COMPARED: [&str; 2] = [crate::morty::Morty::NAME, crate::mvtso::Mvtso::NAME];

/// All protocols.
pub fn list() -> &'static [ProtocolInfo] {
    PROTOCOLS
}

/// Those with keyspaces of a family.
pub fn of(family: FamilyName) -> impl Iterator<Item = &'static ProtocolInfo> {
    PROTOCOLS.iter().filter(move |protocol| protocol.family == family)
}

/// Those of them that promise something, so that what they do can be judged.
pub fn promising(family: FamilyName) -> impl Iterator<Item = &'static ProtocolInfo> {
    of(family).filter(|protocol| protocol.guarantee != Guarantee::Nothing)
}

/// There is no protocol of that name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownProtocol {
    name: String,
    /// Of which family it should have been, if of a certain one.
    family: Option<FamilyName>,
}

impl fmt::Display for UnknownProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownProtocol { name, family } = self;
        let fits = |protocol: &&ProtocolInfo| family.is_none_or(|family| protocol.family == family);
        let names: Vec<_> = PROTOCOLS.iter().filter(fits).map(|protocol| protocol.name).collect();
        let of = family.map_or(String::new(), |family| format!(" of {family}"));
        write!(f, "there is no protocol{of} `{name}`; choose one of {}", names.join(", "))
    }
}

impl core::error::Error for UnknownProtocol {}

#[cfg(test)]
mod tests {
    use serried_actor::Actor;

    use super::*;
    use crate::frameworks::replicated_log;

    #[test]
    fn all_families_have_protocols_and_no_two_protocols_have_the_same_name() {
        // There is none of procedures yet.
        let mut families =
            FamilyName::ALL.into_iter().filter(|family| *family != FamilyName::Procedures);
        assert!(families.all(|family| of(family).count() > 0));
        assert!(list().iter().all(|protocol| FamilyName::ALL.contains(&protocol.family)));
        let mut names: Vec<_> = list().iter().map(|protocol| protocol.name).collect();
        names.sort();
        assert!(names.is_sorted_by(|one, other| one != other), "{names:?}");
    }
    /// The type of a protocol's records, and the first format with its present records.
    struct Records;

    impl<F: Family> Visitor<F> for Records {
        type Output = (&'static str, u32);

        fn visit<P: Protocol<Family = F>>(self) -> Self::Output {
            (core::any::type_name::<<P::Replica as Actor>::Record>(), P::FIRST_FORMAT)
        }
    }

    #[test]
    fn protocols_with_a_replicated_log_read_no_earlier_format_than_the_log() {
        let mut logged = 0;
        for protocol in list() {
            let (record, first) = visit_any(protocol.name, Records).expect("it is listed");
            assert_eq!(first, protocol.first_format);
            if record.contains("replicated_log") {
                logged += 1;
                assert!(first >= replicated_log::FIRST_FORMAT, "{}", protocol.name);
            }
        }
        assert!(logged > list().len() / 2, "{logged} have one");
    }
}

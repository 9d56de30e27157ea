//! The protocols that an endpoint can run, by name.

use std::any::Any;
use std::sync::Arc;

use serried_actor::{Group, Protocol, Settings};
use serried_model::{Family, FamilyName, Guarantee};
use serried_protocols::Visitor;

use crate::desk::Desk;
use crate::durable::Opened;
use crate::machine::{self, Machine, Role};

/// Protocols by name: those of the registry, and whatever an experiment adds to them.
///
/// Here, and nowhere else, a protocol's types are erased.
#[derive(Clone, Debug)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

/// A protocol without its types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) guarantee: Guarantee,
    pub(crate) replica: MakeReplica,
    pub(crate) family: FamilyName,
    pub(crate) coordinator: MakeCoordinator,
}

/// Makes a replica, as its disk has it if it has one, or says what is wrong with that.
type MakeReplica = fn(Group, &Settings, Role, Option<Opened>) -> Result<Box<dyn Machine>, String>;

/// Makes a coordinator whose desk has room for so many recipients. The desk is a [`Desk`] of the protocol's family.
type MakeCoordinator = fn(Group, &Settings, Role, usize) -> (Box<dyn Machine>, AnyDesk);

/// A [`Desk`] of any family.
pub(crate) type AnyDesk = Arc<dyn Any + Send + Sync>;

impl Default for Catalogue {
    /// The protocols of the registry.
    fn default() -> Catalogue {
        struct Erase;
        impl<F: Family> Visitor<F> for Erase {
            type Output = Entry;

            fn visit<P: Protocol<Family = F>>(self) -> Entry {
                Entry::of::<P>()
            }
        }
        let protocols = serried_protocols::list().iter();
        let entries =
            protocols.filter_map(|info| serried_protocols::visit_any(info.name, Erase).ok());
        Catalogue { entries: entries.collect() }
    }
}

impl Catalogue {
    /// The same with `P` as well, in the place of one of the same name.
    #[must_use]
    pub fn with<P: Protocol>(mut self) -> Catalogue {
        self.entries.retain(|entry| entry.name != P::NAME);
        self.entries.push(Entry::of::<P>());
        self
    }

    /// The names of its protocols.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.entries.iter().map(|entry| entry.name)
    }

    /// The protocol called `name`.
    pub(crate) fn find(&self, name: &str) -> Result<&Entry, String> {
        self.entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let names: Vec<_> = self.names().collect();
            format!("there is no protocol `{name}`; choose one of {}", names.join(", "))
        })
    }
}

impl Entry {
    fn of<P: Protocol>() -> Entry {
        Entry {
            name: P::NAME,
            guarantee: P::GUARANTEE,
            family: P::Family::NAME,
            replica: |group, settings, role, disk| {
                machine::replica::<P>(P::replica(role.id, group, settings), role, disk)
            },
            coordinator: |group, settings, role, capacity| {
                let desk = Arc::new(Desk::<P::Family>::new(P::OFFERS, capacity));
                let coordinator = P::coordinator(group, settings);
                (machine::coordinator::<P>(coordinator, role, desk.clone()), desk)
            },
        }
    }
}

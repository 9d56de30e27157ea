//! Protocols by name, with what a driver makes of each when it erases their types.

use serried_actor::Protocol;
use serried_model::{Family, FamilyName, Guarantee};

use crate::Visitor;

/// What one side of a driver makes of a protocol: nodes make replicas, clients make coordinators.
pub trait Erase: Clone + Copy {
    /// What it makes of `P`.
    fn of<P: Protocol>() -> Self;
}

/// Protocols by name: by default those of the registry, to which an experiment can add others.
#[derive(Clone, Debug)]
pub struct Catalogue<E> {
    entries: Vec<Entry<E>>,
}

/// A protocol without its types.
#[derive(Clone, Copy, Debug)]
pub struct Entry<E> {
    /// Its name.
    pub name: &'static str,
    /// What it promises.
    pub guarantee: Guarantee,
    /// Its family.
    pub family: FamilyName,
    /// Whether its replicas forget results by the clocks of clients ([`Protocol::FORGETS_BY_CLIENT_CLOCKS`]).
    pub forgets_by_client_clocks: bool,
    /// Whether its keyspaces can have several sites ([`Family::offers_sites`]).
    pub offers_sites: bool,
    /// What is made of it.
    pub make: E,
}

impl<E: Erase> Default for Catalogue<E> {
    /// The protocols of the registry.
    fn default() -> Catalogue<E> {
        struct Make<E>(core::marker::PhantomData<E>);
        impl<F: Family, E: Erase> Visitor<F> for Make<E> {
            type Output = Entry<E>;

            fn visit<P: Protocol<Family = F>>(self) -> Entry<E> {
                Entry::of::<P>()
            }
        }
        let make = || Make(core::marker::PhantomData);
        let entries =
            crate::list().iter().filter_map(|info| crate::visit_any(info.name, make()).ok());
        Catalogue { entries: entries.collect() }
    }
}

impl<E: Erase> Catalogue<E> {
    /// The same with `P` as well, in the place of one of the same name.
    #[must_use]
    pub fn with<P: Protocol>(mut self) -> Catalogue<E> {
        self.entries.retain(|entry| entry.name != P::NAME);
        self.entries.push(Entry::of::<P>());
        self
    }
}

impl<E> Catalogue<E> {
    /// The names of its protocols.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.entries.iter().map(|entry| entry.name)
    }

    /// The names of the protocols whose keyspaces can have several sites.
    pub fn with_sites(&self) -> impl Iterator<Item = &'static str> {
        self.entries.iter().filter(|entry| entry.offers_sites).map(|entry| entry.name)
    }

    /// The protocol called `name`.
    ///
    /// # Errors
    /// If there is none; the error lists those that there are.
    pub fn find(&self, name: &str) -> Result<&Entry<E>, String> {
        self.entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let names: Vec<_> = self.names().collect();
            format!("there is no protocol `{name}`; choose one of {}", names.join(", "))
        })
    }
}

impl<E: Erase> Entry<E> {
    fn of<P: Protocol>() -> Entry<E> {
        Entry {
            name: P::NAME,
            guarantee: P::GUARANTEE,
            family: P::Family::NAME,
            forgets_by_client_clocks: P::FORGETS_BY_CLIENT_CLOCKS,
            offers_sites: P::Family::offers_sites(&P::OFFERS),
            make: E::of::<P>(),
        }
    }
}

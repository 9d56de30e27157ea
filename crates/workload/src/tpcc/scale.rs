//! How large a warehouse is.

use serde::Serialize;

use crate::WorkloadError;

/// The cardinalities of one warehouse (TPC-C clause 1.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Scale {
    /// Items, from 15 to 100,000. They are the same for all warehouses, each of which stocks them all.
    pub items: u32,
    /// Districts, from 1 to 10.
    pub districts: u8,
    /// Customers of each district, from 1 to 3,000. Each has an order to begin with.
    pub customers: u32,
    /// How many of a district's first orders have not been delivered, at most as many as there are.
    pub undelivered: u32,
}

impl Scale {
    /// That of the specification.
    pub const FULL: Scale =
        Scale { items: 100_000, districts: 10, customers: 3_000, undelivered: 900 };
    /// A warehouse of some 400 rows, which is contended everywhere: for tests.
    pub const SMALL: Scale = Scale { items: 40, districts: 2, customers: 12, undelivered: 4 };

    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        let bounds = [
            ("items", self.items, 15, Scale::FULL.items),
            ("districts", self.districts.into(), 1, Scale::FULL.districts.into()),
            ("customers", self.customers, 1, Scale::FULL.customers),
            ("undelivered orders", self.undelivered, 0, self.customers),
        ];
        match bounds.into_iter().find(|(_, number, least, most)| number < least || number > most) {
            None => Ok(()),
            Some((what, number, least, most)) => {
                let reason = format!("{number} {what}, choose from {least} to {most}");
                Err(WorkloadError::Scale(reason))
            }
        }
    }

    /// How many last names its customers have: each has one customer at least.
    pub(super) fn names(&self) -> u32 {
        self.customers.min(1000)
    }

    /// The last order that has been delivered to begin with.
    pub(super) fn delivered(&self) -> u32 {
        self.customers - self.undelivered
    }
}

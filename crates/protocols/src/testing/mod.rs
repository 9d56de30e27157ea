//! What the unit tests of several protocols share: participants whose messages, clocks and disks a test moves by hand.

mod net;
mod node;
mod tests;

/// Lets a protocol's own network do all that the [`Net`] in one of its fields does.
macro_rules! derefs_to_net {
    ([$($generics:tt)*] $own:ty, $field:tt: $net:ty) => {
        impl<$($generics)*> core::ops::Deref for $own {
            type Target = $net;

            fn deref(&self) -> &Self::Target {
                &self.$field
            }
        }

        impl<$($generics)*> core::ops::DerefMut for $own {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.$field
            }
        }
    };
}

pub(crate) use derefs_to_net;
pub(crate) use net::{Envelope, Net};
pub(crate) use node::{Node, client_id, set};

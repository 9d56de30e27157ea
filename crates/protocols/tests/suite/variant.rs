//! Morty, MVTSO and TAPIR with other options.

/// Declares a protocol of the coordinators and replicas of Morty, each with options of its own.
macro_rules! variant {
    ($name:ident, $summary:literal, $coordinator:expr, $replica:expr) => {
        pub(crate) struct $name;

        impl serried_actor::Protocol for $name {
            const NAME: &'static str = stringify!($name);
            const SUMMARY: &'static str = $summary;
            const GUARANTEE: serried_model::Guarantee = serried_model::Guarantee::Serializable;
            type Family = serried_model::Transactions;
            const OFFERS: serried_model::transactions::Offers =
                serried_protocols::morty::Morty::OFFERS;
            type Message = serried_protocols::morty::Message;
            type Coordinator = serried_protocols::morty::Coordinator;
            type Replica = serried_protocols::morty::Replica;

            fn coordinator(
                group: serried_actor::Group,
                settings: &serried_actor::Settings,
            ) -> Self::Coordinator {
                Self::Coordinator::new(group, settings, $coordinator)
            }

            fn replica(
                id: serried_model::NodeId,
                group: serried_actor::Group,
                settings: &serried_actor::Settings,
            ) -> Self::Replica {
                Self::Replica::new(id, group, settings, $replica)
            }
        }
    };
}

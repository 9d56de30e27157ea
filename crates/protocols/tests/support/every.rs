//! Scenes under every protocol of transactions.

use serried_model::{FamilyName, Transactions};
use serried_protocols::{Visitor, promising, visit};

/// Runs `scene` for every protocol that promises something, or for the one of them that was asked for.
pub(crate) fn each<S: Visitor<Transactions, Output = ()> + Copy>(scene: S) {
    run(scene, |_| true);
}

/// The same, for those whose shards have leaders.
pub(crate) fn each_with_leaders<S: Visitor<Transactions, Output = ()> + Copy>(scene: S) {
    run(scene, |name| !["morty", "mvtso"].contains(&name));
}

fn run<S: Visitor<Transactions, Output = ()> + Copy>(scene: S, fits: impl Fn(&str) -> bool) {
    let wanted = std::env::var("SERRIED_PROTOCOL").ok();
    for protocol in promising(FamilyName::Transactions) {
        if fits(protocol.name) && wanted.as_deref().is_none_or(|name| name == protocol.name) {
            visit(protocol.name, scene).unwrap();
        }
    }
}

//! Scenes under every protocol of transactions.

use serried_model::{FamilyName, Transactions};
use serried_protocols::{ProtocolInfo, Visitor, promising, visit};

/// Runs `scene` for every protocol that promises something, or for the one of them that was asked for.
pub(crate) fn each<S: Visitor<Transactions, Output = ()> + Copy>(scene: S) {
    run(scene, |_| true);
}

/// The same, for those whose partitions have leaders.
pub(crate) fn each_with_leaders<S: Visitor<Transactions, Output = ()> + Copy>(scene: S) {
    run(scene, |protocol| protocol.has_leaders);
}

fn run<S: Visitor<Transactions, Output = ()> + Copy>(
    scene: S,
    fits: impl Fn(&ProtocolInfo) -> bool,
) {
    let wanted = std::env::var("SERRIED_PROTOCOL").ok();
    for protocol in promising(FamilyName::Transactions) {
        if fits(protocol) && wanted.as_deref().is_none_or(|name| name == protocol.name) {
            visit(protocol.name, scene).unwrap();
        }
    }
}

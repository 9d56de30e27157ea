//! What the suites of both families share.

use serried_actor::Protocol;
use serried_sim::{Cluster, Fate};

/// The seeds to go through, `usual` many unless the environment says otherwise.
pub(crate) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let first = number("SERRIED_FIRST_SEED").unwrap_or(0);
    first..first + number("SERRIED_SEEDS").unwrap_or(usual)
}

/// Has the messages printed of which `SERRIED_TRACE` is a part, if it is set.
pub(crate) fn trace<P: Protocol>(cluster: &mut Cluster<P>) {
    let Ok(traced) = std::env::var("SERRIED_TRACE") else { return };
    cluster.set_interceptor(Box::new(move |passing| {
        let text = format!("{:?}", passing.message);
        if text.contains(&traced) {
            println!("{} {} -> {}: {text}", passing.at, passing.from, passing.to);
        }
        Fate::Pass
    }));
}

//! How far the replicas of a core take part.

use std::time::Duration;

use serried_actor::{Standing, Timestamp};
use serried_wire::{AtSite, Behind, Core, NotVoting};

use crate::side::NodeSide;

/// The gauge of a replica that says below which time, in microseconds, it votes on nothing. Where there is none, the
/// protocol has no such time.
const STOPPED_BELOW: &str = "stopped_below_us";
/// The gauges of a replica that say how far its site is behind the others, what it keeps because others lack it, and
/// how many need more than that.
const BEHIND_MS: &str = "site_behind_ms";
const BACKLOG_BYTES: &str = "site_backlog_bytes";
const WITHOUT_BACKLOG: &str = "sites_without_backlog";
/// The gauge of a replica that says by how much its clock disagrees with a majority's, if by more than is allowed.
const CLOCK_OFF_MS: &str = "clock_off_ms";
/// A time that is no further ahead than this is not reported. Truncations usually lie in the past, because
/// `truncation_lag_ms` is more than clocks may differ. If it is set to less, a truncation may be ahead for a moment.
const SHORT_US: u64 = 1_000_000;

/// The partitions of a core that do not take part fully.
pub(crate) fn behind(core: &Core<NodeSide>, now: Timestamp) -> Option<Behind> {
    let behind = core.actors().filter_map(|replica| {
        let (standing, since) = replica.standing(core.links.flushed());
        one_behind(standing, now.since(since))
    });
    behind.reduce(Behind::plus)
}

/// The partitions of a core that vote on nothing yet, when the clock says `now_us`.
pub(crate) fn not_voting(core: &Core<NodeSide>, now_us: u64) -> Option<NotVoting> {
    let not_voting = core.actors().filter_map(|replica| one_not_voting(&replica.gauges(), now_us));
    not_voting.reduce(NotVoting::plus)
}

/// By how much the node's clock disagrees with a majority's, as far as the partitions of a core know.
pub(crate) fn clock_off(core: &Core<NodeSide>) -> Option<Duration> {
    core.actors().filter_map(|replica| one_clock_off(&replica.gauges())).max()
}

fn one_clock_off(gauges: &[(&'static str, u64)]) -> Option<Duration> {
    let off = gauges.iter().find(|(name, ms)| *name == CLOCK_OFF_MS && *ms > 0);
    off.map(|(_, ms)| Duration::from_millis(*ms))
}

/// One partition that has this standing for so long. `None` if it takes part fully.
fn one_behind(standing: Standing, lasting: Duration) -> Option<Behind> {
    let (catching_up, rejoining, keys) = match standing {
        Standing::Full => return None,
        Standing::CatchingUp { keys } => (1, 0, keys),
        Standing::Rejoining { keys } => (0, 1, keys),
    };
    Some(Behind { catching_up, rejoining, keys, lasting })
}

/// One partition whose replica has these gauges, when the node's clock says `now_us`. `None` if it votes.
fn one_not_voting(gauges: &[(&'static str, u64)], now_us: u64) -> Option<NotVoting> {
    let (_, stopped_us) = gauges.iter().find(|(name, _)| *name == STOPPED_BELOW)?;
    let ahead_us = stopped_us.saturating_sub(now_us);
    let remaining = Duration::from_micros(ahead_us);
    (ahead_us > SHORT_US).then_some(NotVoting { partitions: 1, remaining })
}

/// Adds what the gauges of one of the replicas say of how far sites are behind.
pub(crate) fn note_lag(at: &mut AtSite, gauges: &[(&'static str, u64)]) {
    for (name, value) in gauges {
        match *name {
            BEHIND_MS => at.behind = at.behind.max(Some(Duration::from_millis(*value))),
            BACKLOG_BYTES => at.backlog_bytes += value,
            WITHOUT_BACKLOG => {
                let sites = u16::try_from(*value).unwrap_or(u16::MAX);
                at.without_backlog = at.without_backlog.max(sites);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_behind_until_it_takes_part_fully() {
        let lasting = Duration::from_secs(3);
        assert_eq!(one_behind(Standing::Full, lasting), None);
        let away = Behind { catching_up: 1, rejoining: 0, keys: 7, lasting };
        assert_eq!(one_behind(Standing::CatchingUp { keys: 7 }, lasting), Some(away));
        let lost = Behind { catching_up: 0, rejoining: 1, keys: 5, lasting };
        assert_eq!(one_behind(Standing::Rejoining { keys: 5 }, lasting), Some(lost));
    }

    #[test]
    fn a_partition_does_not_vote_until_its_clock_has_come_to_where_it_stopped() {
        let of = |stopped_us, now_us| {
            one_not_voting(&[("resident_keys", 9), (STOPPED_BELOW, stopped_us)], now_us)
        };
        let (hour, second) = (3_600_000_000, 1_000_000);
        assert_eq!(one_not_voting(&[("resident_keys", u64::MAX)], 0), None);
        assert_eq!((of(0, hour), of(hour, hour + 10 * second)), (None, None), "as usual");
        assert_eq!(of(hour + second, hour), None, "that is over soon");
        let remaining = Duration::from_secs(3600);
        let one = NotVoting { partitions: 1, remaining };
        assert_eq!(of(hour + 10 * second, 10 * second), Some(one));
    }

    #[test]
    fn a_clock_that_is_not_off_is_not_reported() {
        let of = |ms| one_clock_off(&[("resident_keys", 9), (CLOCK_OFF_MS, ms)]);
        assert_eq!((of(0), one_clock_off(&[])), (None, None));
        assert_eq!(of(7), Some(Duration::from_millis(7)));
    }

    #[test]
    fn a_site_is_as_far_behind_as_the_partition_that_lacks_most() {
        let mut at = AtSite {
            keyspace: "a".to_string(),
            site: 0,
            sites: 3,
            nodes: 1,
            reached: 1,
            behind: None,
            backlog_bytes: 0,
            without_backlog: 0,
        };
        note_lag(&mut at, &[("resident_keys", 9)]);
        assert_eq!(at.behind, None, "its protocol does not say");
        note_lag(&mut at, &[(BEHIND_MS, 20), (BACKLOG_BYTES, 5), (WITHOUT_BACKLOG, 0)]);
        note_lag(&mut at, &[(BEHIND_MS, 10), (BACKLOG_BYTES, 6), (WITHOUT_BACKLOG, 1)]);
        let found = (at.behind, at.backlog_bytes, at.without_backlog);
        assert_eq!(found, (Some(Duration::from_millis(20)), 11, 1));
    }
}

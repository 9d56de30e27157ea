//! Named geographies: where sites are, as round-trip times between them.

use core::fmt;
use core::time::Duration;

/// Sites and the round trips between them. The simulator's network and the nodes' emulation of a
/// wide-area network both take their delays from here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geography {
    /// Its name in configurations and on the command line.
    pub name: &'static str,
    /// One line on what it stands for.
    pub summary: &'static str,
    /// The sites' names. Replica `i` is at site `i` modulo their number.
    pub sites: &'static [&'static str],
    /// Round trips between different sites in microseconds. Row `i` has the round trips from site `i` to sites `0..i`.
    round_trips_us: &'static [&'static [u64]],
    /// The round trip within a site, in microseconds.
    local_us: u64,
}

/// 000 §5, "Network Setup" and Table 2; 001 §4.5.2 and Table 4.1.
const GEOGRAPHIES: &[Geography] = &[
    Geography {
        name: "loopback",
        summary: "one machine, 0.06 ms from process to process and back",
        sites: &["here"],
        round_trips_us: &[&[]],
        local_us: 60,
    },
    Geography {
        name: "lan",
        summary: "machines in one room, 0.1 ms apart",
        sites: &["a", "b", "c", "d", "e", "f", "g"],
        round_trips_us: &[&[], &[100; 1], &[100; 2], &[100; 3], &[100; 4], &[100; 5], &[100; 6]],
        local_us: 100,
    },
    Geography {
        name: "reg",
        summary: "three availability zones of one region, 10 ms apart (000 §5)",
        sites: &["zone-1", "zone-2", "zone-3"],
        round_trips_us: &[&[], &[10_000], &[10_000, 10_000]],
        local_us: 100,
    },
    Geography {
        name: "con",
        summary: "one continent: us-east-1, us-west-1, us-west-2 (000 Table 2)",
        sites: &["us-east-1", "us-west-1", "us-west-2"],
        round_trips_us: &[&[], &[62_000], &[68_000, 22_000]],
        local_us: 100,
    },
    Geography {
        name: "glo",
        summary: "two continents: us-east-1, us-west-1, eu-west-1 (000 Table 2)",
        sites: &["us-east-1", "us-west-1", "eu-west-1"],
        round_trips_us: &[&[], &[62_000], &[68_000, 138_000]],
        local_us: 100,
    },
    Geography {
        name: "gryff-3",
        summary: "California, Virginia and Ireland (001 Figure 4.6 and Table 4.1)",
        sites: &["ca", "va", "ir"],
        round_trips_us: &[&[], &[72_000], &[151_000, 88_000]],
        local_us: 200,
    },
    Geography {
        name: "gryff-5",
        summary: "the same with Oregon and Japan (001 Figure 4.6 and Table 4.1)",
        sites: &["ca", "va", "ir", "or", "jp"],
        round_trips_us: &[
            &[],
            &[72_000],
            &[151_000, 88_000],
            &[59_000, 93_000, 145_000],
            &[113_000, 162_000, 220_000, 121_000],
        ],
        local_us: 200,
    },
];

impl Geography {
    /// All of them.
    pub fn all() -> &'static [Geography] {
        GEOGRAPHIES
    }

    /// The geography called `name`.
    ///
    /// # Errors
    /// If there is none. The error lists the geographies that exist.
    pub fn named(name: &str) -> Result<Geography, UnknownGeography> {
        let found = GEOGRAPHIES.iter().find(|geography| geography.name == name);
        found.copied().ok_or_else(|| UnknownGeography(name.to_string()))
    }

    /// The site called `name`, as a number.
    pub fn site(&self, name: &str) -> Option<usize> {
        self.sites.iter().position(|site| *site == name)
    }

    /// The site of the `i`-th replica or client.
    pub fn site_of(&self, i: usize) -> usize {
        i % self.sites.len()
    }

    /// The round trip between two sites.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn round_trip(&self, a: usize, b: usize) -> Duration {
        let microseconds = match a.cmp(&b) {
            core::cmp::Ordering::Equal => self.local_us,
            core::cmp::Ordering::Less => self.round_trips_us[b][a],
            core::cmp::Ordering::Greater => self.round_trips_us[a][b],
        };
        Duration::from_micros(microseconds)
    }

    /// The longest round trip from `site`.
    pub fn longest_round_trip(&self, site: usize) -> Duration {
        let round_trips = (0..self.sites.len()).map(|other| self.round_trip(site, other));
        round_trips.max().unwrap_or_default()
    }

    /// Replicas `0..n` in the order of their distance from `site`.
    pub fn nearest_first(&self, site: usize, n: usize) -> Vec<usize> {
        let places: Vec<usize> = (0..n).map(|replica| self.site_of(replica)).collect();
        // Each site starts with a different one of several equally near replicas. This spreads the load.
        self.nearest_first_of(&places, site, site)
    }

    /// Replicas that are at these sites, in the order of their distance from `site`. Of several equally near ones,
    /// `first` is the first, modulo their number, and the others follow in order.
    pub fn nearest_first_of(&self, places: &[usize], site: usize, first: usize) -> Vec<usize> {
        let n = places.len();
        let mut replicas: Vec<usize> = (0..n).collect();
        replicas.sort_by_key(|replica| {
            (self.round_trip(site, places[*replica]), (replica + n - first % n) % n)
        });
        replicas
    }
}

/// There is no geography of that name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownGeography(String);

impl fmt::Display for UnknownGeography {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = GEOGRAPHIES.iter().map(|geography| geography.name).collect();
        write!(f, "there is no geography `{}`; choose one of {}", self.0, names.join(", "))
    }
}

impl core::error::Error for UnknownGeography {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_symmetric_and_as_in_the_paper() {
        let glo = Geography::named("glo").unwrap();
        let (west, europe) = (glo.site("us-west-1").unwrap(), glo.site("eu-west-1").unwrap());
        assert_eq!(glo.round_trip(west, europe), Duration::from_millis(138));
        assert_eq!(glo.round_trip(europe, west), Duration::from_millis(138));
        assert_eq!(glo.nearest_first(west, 3), [1, 0, 2]);
        assert_eq!(glo.longest_round_trip(0), Duration::from_millis(68));
    }

    #[test]
    fn distances_to_a_quorum_are_those_of_gryffs_paper() {
        // "CA and VA (72 ms)", "IR and VA (88 ms)": 001 §4.5.3.
        let three = Geography::named("gryff-3").unwrap();
        let nearest = |site| three.round_trip(site, three.nearest_first(site, 3)[1]);
        assert_eq!([0, 1, 2].map(nearest), [72, 72, 88].map(Duration::from_millis));
        // Two other replicas complete a quorum of five. The farthest one is 145 ms away from the clients.
        let five = Geography::named("gryff-5").unwrap();
        let second = |site| five.round_trip(site, five.nearest_first(site, 5)[2]);
        assert_eq!([0, 1, 2, 3, 4].map(second), [72, 88, 145, 93, 121].map(Duration::from_millis));
        assert_eq!(five.round_trip(2, 4), Duration::from_millis(220));
    }

    #[test]
    fn the_error_for_an_unknown_name_lists_those_that_exist() {
        let error = Geography::named("moon").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no geography `moon`; choose one of loopback, lan, reg, con, glo, gryff-3, gryff-5"
        );
    }

    #[test]
    fn equally_near_replicas_are_spread_over_the_sites() {
        let reg = Geography::named("reg").unwrap();
        let first = |site| reg.nearest_first(site, 3);
        assert_eq!((first(0), first(1), first(2)), (vec![0, 1, 2], vec![1, 2, 0], vec![2, 0, 1]));
    }
}

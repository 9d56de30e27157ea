//! The systems that the papers compare.

/// A system of a paper, by the name under which the registry has it, or will.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Series {
    /// Its name in the registry.
    pub(crate) protocol: &'static str,
    /// Its name in the paper.
    pub(crate) label: &'static str,
    pub(crate) layout: Layout,
}

/// How a system uses the cores of its machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// One replica group, whose replicas have all cores of their machines.
    OneGroup,
    /// A replica group per core, each with a part of the keys.
    GroupPerCore,
}

impl Layout {
    /// How many partitions there are, and how many cores a replica of each has.
    pub(crate) fn of(self, cores: u32) -> (u16, u32) {
        match self {
            Layout::OneGroup => (1, cores),
            Layout::GroupPerCore => (cores as u16, 1),
        }
    }
}

/// In the order of reports. "Morty and MVTSO use one replica group, while TAPIR and Spanner use 20"
/// (000 §5, "Setup"), as their replicas have one thread.
pub(crate) const SERIES: &[Series] = &[
    Series { protocol: "morty", label: "Morty", layout: Layout::OneGroup },
    Series { protocol: "mvtso", label: "MVTSO", layout: Layout::OneGroup },
    Series { protocol: "tapir", label: "TAPIR", layout: Layout::GroupPerCore },
    Series { protocol: "spanner", label: "Spanner", layout: Layout::GroupPerCore },
];

/// The series of a protocol.
pub(crate) fn series(protocol: &str) -> Option<Series> {
    SERIES.iter().find(|series| series.protocol == protocol).copied()
}

/// How a protocol uses cores; one that is not in the papers is given them all.
pub(crate) fn layout(protocol: &str) -> Layout {
    series(protocol).map_or(Layout::OneGroup, |series| series.layout)
}

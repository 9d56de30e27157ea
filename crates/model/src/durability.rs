//! When records count as durable.

use serde::{Deserialize, Serialize};

/// When what a node has appended counts as durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// When it is on the disk: it survives a power cut.
    Sync,
    /// When the operating system has it: it survives the end of the process, but not a power cut.
    Buffered,
    /// At once: nothing is written, and nothing survives.
    #[default]
    Memory,
}

impl Durability {
    /// All of them, the most durable first.
    pub const ALL: [Durability; 3] = [Durability::Sync, Durability::Buffered, Durability::Memory];

    /// Its name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Buffered => "buffered",
            Durability::Memory => "memory",
        }
    }
}

impl core::str::FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Durability::ALL.into_iter().find(|durability| durability.name() == text).ok_or_else(|| {
            format!("there is no durability `{text}`; choose one of sync, buffered, memory")
        })
    }
}

impl core::fmt::Display for Durability {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

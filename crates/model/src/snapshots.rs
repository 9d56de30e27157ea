//! Snapshots: the requests of sessions to coordinators, and the answers.

use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Key, NodeId, Value, Version, Write};

/// A place in the order of a keyspace's writes: a version's name, and a reading of a version clock (004 §6.1).
///
/// Its upper 54 bits count ticks of 256 ns, and its lower 10 bits name the partition that has given it to a write. So
/// no two writes have the same one, and 146 years pass before there are none left. Ticks are counted by no wall
/// clock. The clocks of a keyspace's partitions begin at zero, advance with time, and take over what is later.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Versionstamp(pub u64);

const _: () =
    assert!(NodeId::PARTITIONS == 1 << Versionstamp::PARTITION_BITS, "each partition has a number");

impl Versionstamp {
    /// Before all writes.
    pub const ZERO: Versionstamp = Versionstamp(0);
    /// How many bits name the partition.
    pub const PARTITION_BITS: u32 = 10;
    /// The nanoseconds of a tick, as a power of two.
    const TICK_BITS: u32 = 8;

    /// The first one of `partition` that is after this one.
    #[must_use]
    pub fn next_of(self, partition: u16) -> Versionstamp {
        let partition = u64::from(partition);
        let mask = (1 << Self::PARTITION_BITS) - 1;
        let (tick, own) = (self.0 & !mask, self.0 & mask);
        let tick = if own < partition { tick } else { tick.saturating_add(mask + 1) };
        Versionstamp(tick | partition)
    }

    /// The one right after it, of whatever partition.
    #[must_use]
    pub fn next(self) -> Versionstamp {
        Versionstamp(self.0.saturating_add(1))
    }

    fn ticks(duration: Duration) -> u64 {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        (ns >> Self::TICK_BITS).saturating_mul(1 << Self::PARTITION_BITS)
    }

    /// How many bytes it takes in a message.
    pub fn bytes(self) -> u32 {
        (u64::BITS - self.0.leading_zeros()).div_ceil(7).max(1)
    }

    /// The one that a clock shows this much later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Versionstamp {
        Versionstamp(self.0.saturating_add(Self::ticks(duration)))
    }

    /// The one that a clock showed this much earlier.
    #[must_use]
    pub fn before(self, duration: Duration) -> Versionstamp {
        Versionstamp(self.0.saturating_sub(Self::ticks(duration)))
    }

    /// How long a clock takes from `earlier` to this one; zero if that is later.
    pub fn since(self, earlier: Versionstamp) -> Duration {
        let ticks = self.0.saturating_sub(earlier.0) >> Self::PARTITION_BITS;
        Duration::from_nanos(ticks << Self::TICK_BITS)
    }

    /// The partition that has given it to a write.
    pub fn partition(self) -> u16 {
        (self.0 & ((1 << Self::PARTITION_BITS) - 1)) as u16
    }
}

impl fmt::Display for Versionstamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One request of a session to its coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Read keys as one read-only transaction. The answer is [`Outcome::Read`].
    Read {
        /// The keys, at least one.
        keys: Vec<Key>,
        /// What the session's version clock shows: the transaction must not read an earlier state. `None` if the
        /// session has not heard from any server yet.
        at: Option<Versionstamp>,
        /// The session, and what it must see of its own. Only for [`VersionClocks::Safe`].
        own: Own,
    },
    /// Write or delete keys: several at once only if the protocol has write transactions. The answers are
    /// [`Output::Began`] and then [`Outcome::Written`].
    Write {
        /// The writes, at least one; of different keys.
        writes: Vec<Write>,
        /// What the session's version clock shows: the writes' place must not be before it. `None` as for a read.
        at: Option<Versionstamp>,
        /// The number of the session. Only for [`VersionClocks::Safe`].
        session: u64,
        /// The era of its site in which the session has seen something: see [`Own::era`].
        era: Option<u32>,
        /// The token of the write, if it was tried before and it is not known whether it took effect.
        token: Option<WriteToken>,
    },
    /// Find out what the version clocks of all partitions show. The answer is [`Outcome::Clocks`].
    ReadClocks,
    /// Wait until all can be read at this site that could be read at another one when its clock showed `stamp`. The
    /// answer is [`Outcome::Clocks`]. It can be read as of the highest of them. Only for keyspaces with several sites.
    Reach {
        /// The other site.
        site: u16,
        /// What its clock showed.
        stamp: Versionstamp,
        /// The era of that site then: see [`Own::era`].
        era: Option<u32>,
    },
    /// Give the operation up. The answer is an [`Output::Outcome`]. It is ignored if the operation has ended.
    GiveUp,
}

/// A session, as far as its reads depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Own {
    /// The number of the session, which is random.
    pub session: u64,
    /// Of its own writes, it must see those that are not after this.
    pub written: Versionstamp,
    /// How old what the client knows of a server may be.
    pub freshness: Duration,
    /// How often its site had been rebuilt from other sites when the session saw something of it: the site's era. `None`
    /// if it has seen nothing. If the site has been rebuilt since, what the session has seen is perhaps lost, and the
    /// answer is [`Outcome::Rebuilt`].
    pub era: Option<u32>,
}

/// One answer of a coordinator to a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// The write has this token from now on.
    Began(WriteToken),
    /// The outcome, which follows, is of this era of the client's site: see [`Own::era`]. Only for keyspaces with several
    /// sites.
    Era(u32),
    /// How the operation ended. Nothing follows it.
    Outcome(Outcome),
}

/// Identifies a write when it is tried again. What it consists of depends on the protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum WriteToken {
    /// The versionstamp with which it was requested.
    Requested(Versionstamp),
    /// An id that its client has given it.
    Named(Version),
    /// The versionstamp with which it was requested, and the number of its session.
    OfSession(Versionstamp, u64),
}

/// `v` and the versionstamp, perhaps with a hyphen and the session, or the id.
impl fmt::Display for WriteToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteToken::Requested(at) => write!(f, "v{at}"),
            WriteToken::OfSession(at, session) => write!(f, "v{at}-{session:x}"),
            WriteToken::Named(id) => id.fmt(f),
        }
    }
}

impl core::str::FromStr for WriteToken {
    type Err = String;

    fn from_str(text: &str) -> Result<WriteToken, String> {
        let wrong = || format!("`{text}` is no token of a write: v123 or 123.4, for example");
        if let Some((at, session)) = text.strip_prefix('v').and_then(|text| text.split_once('-')) {
            let at = at.parse().map(Versionstamp).map_err(|_| wrong())?;
            let session = u64::from_str_radix(session, 16).map_err(|_| wrong())?;
            return Ok(WriteToken::OfSession(at, session));
        }
        if let Some(at) = text.strip_prefix('v') {
            return at.parse().map(Versionstamp).map(WriteToken::Requested).map_err(|_| wrong());
        }
        text.parse().map(WriteToken::Named).map_err(|_| wrong())
    }
}

/// What a partition's version clock showed when it sent an answer.
pub type Shown = (u16, Versionstamp);

/// How an operation ended, as far as its coordinator can know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The read-only transaction has read all keys.
    Read(Read),
    /// The write took effect, durably.
    Written(Written),
    /// What the version clocks of all partitions have shown. No versionstamp that any session was given before is
    /// higher than all of them.
    Clocks(Vec<Shown>),
    /// It did not take effect, and never will.
    NoEffect,
    /// It is a read that was given up because no two rounds of it have found the same.
    Contended {
        /// How many rounds it has begun.
        rounds: u32,
    },
    /// It was given up, and may still take effect.
    Unknown,
    /// It did not take effect, and never will: the clock of its coordinator is off.
    ClockSkew {
        /// By how much the clock is ahead of a replica's, in microseconds; negative if it is behind.
        ahead_us: i64,
    },
    /// It was tried again so late that the replicas no longer know whether it took effect.
    Forgotten,
    /// It was begun at another site, and only that one knows whether it took effect.
    OfAnotherSite {
        /// The site.
        site: u16,
    },
    /// The keyspace has no such site.
    NoSuchSite,
    /// The site of the session has lost its disks since the session has seen something of it, and was rebuilt from other
    /// sites. What the session has seen is perhaps lost. A write that was tried before has perhaps taken effect.
    Rebuilt,
}

/// The result of a read-only transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// What the keys had, in their order: a value or `None`, and the versionstamp of the write that it is from, as in
    /// [`Written::stamp`]. It is [`Versionstamp::ZERO`] if the key was never written.
    pub found: Vec<(Option<Value>, Versionstamp)>,
    /// It was read as of this versionstamp. [`Versionstamp::ZERO`] if the protocol has none.
    pub at: Versionstamp,
    /// What the clocks of the partitions showed.
    pub shown: Vec<Shown>,
    /// How many rounds of requests there were (004 §3.3).
    pub rounds: u32,
    /// How many bytes of requests and answers were needed only to coordinate the reads: versionstamps and versions
    /// (004 §3.3, "Constant metadata").
    pub metadata_bytes: u32,
}

/// The result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// The write's versionstamp, or that of the write that it was omitted for. If the protocol has no version clocks,
    /// it may be another number that rises with each write of the key, or [`Versionstamp::ZERO`].
    pub stamp: Versionstamp,
    /// Whether it was omitted: it comes right before another write of the key, which has overwritten it (004 §6.3).
    /// Also a write that is sent again after it has taken effect may count as omitted.
    pub omitted: bool,
    /// What the clock of the key's partition showed: the place of the write, or of the one that it was omitted for,
    /// or a later one. All that the session does later must not be before it.
    pub shown: Option<Shown>,
}

/// The optional operations that a protocol offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offers {
    /// The version clocks of its sessions.
    pub version_clocks: VersionClocks,
    /// Whether a session can write several keys at once.
    pub write_transactions: bool,
    /// Whether a keyspace can have several sites, each of which holds all keys.
    pub sites: bool,
}

/// What kind of version clocks the sessions of a protocol have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VersionClocks {
    /// None, and so no tokens that continue sessions elsewhere.
    None,
    /// A session chooses as of when it reads, and servers place later writes after that (004 §6).
    Promoted,
    /// The coordinator chooses as of when a session reads, among what all servers have made safe. Of its own writes
    /// the session sees later ones, too (004 §8).
    Safe,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_versionstamp_names_its_partition_and_how_much_later_it_is() {
        let early = Versionstamp::ZERO.next_of(1023);
        assert_eq!(
            (early.partition(), early.after(Duration::from_secs(9)).partition()),
            (1023, 1023)
        );
        let later = early.after(Duration::from_millis(512));
        assert_eq!(later.since(early), Duration::from_millis(512));
        assert_eq!(early.since(later), Duration::ZERO);
    }

    #[test]
    fn the_next_of_a_partition_is_the_first_after_it() {
        for from in [0, 1, 5, 1023, 1024, 1029, 5000] {
            for partition in [0, 5, 1023] {
                let next = Versionstamp(from).next_of(partition);
                let slow = (from + 1..).find(|stamp| stamp % 1024 == u64::from(partition));
                assert_eq!(Some(next.0), slow, "{from} {partition}");
            }
        }
    }

    #[test]
    fn time_passes_in_ticks() {
        let at = Versionstamp(3 << 10 | 7);
        let later = at.after(Duration::from_micros(1));
        assert_eq!(later, Versionstamp(6 << 10 | 7));
        assert_eq!(later.before(Duration::from_micros(1)), at);
        assert_eq!(at.before(Duration::from_secs(1)), Versionstamp::ZERO);
        assert_eq!(at.after(Duration::MAX), Versionstamp(u64::MAX));
    }

    #[test]
    fn its_bytes_are_those_of_its_encoding() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::MAX >> 1, u64::MAX] {
            let stamp = Versionstamp(number);
            let expected = [
                0x7f,
                0x3fff,
                0x1f_ffff,
                0x0fff_ffff,
                0x07_ffff_ffff,
                0x03ff_ffff_ffff,
                0x01_ffff_ffff_ffff,
                0x00ff_ffff_ffff_ffff,
                0x7fff_ffff_ffff_ffff,
                u64::MAX,
            ];
            let place = expected.iter().position(|most| number <= *most).unwrap();
            assert_eq!(stamp.bytes() as usize, place + 1, "{number}");
        }
    }

    #[test]
    fn a_token_survives_its_text() {
        let named = WriteToken::Named(Version { timestamp_us: 5, coordinator: NodeId(9) });
        let of_session = WriteToken::OfSession(Versionstamp(77), u64::MAX);
        for token in [WriteToken::Requested(Versionstamp(77)), named, of_session] {
            assert_eq!(token.to_string().parse(), Ok(token));
        }
        for wrong in ["", "v", "vx", "5", "v5.9", "v5-", "v-5", "v5-x"] {
            assert!(wrong.parse::<WriteToken>().is_err(), "{wrong}");
        }
    }
}

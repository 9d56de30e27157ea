//! The token of a session, by which another process continues it (004 §6.5, "Failures").

use core::fmt;
use core::str::FromStr;

use serried_model::Versionstamp;
#[cfg(doc)]
use serried_model::snapshots::VersionClocks;

/// What a session has to see, in a form that can be stored and sent: as a cookie, for example. A session that is
/// [resumed](crate::SnapshotKeyspace::resume) with it sees all that the other one has written and read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionToken {
    /// The keyspace of the session.
    pub(super) keyspace: u64,
    /// The site of the session.
    pub(super) site: u16,
    /// The highest versionstamp that was acknowledged to it. With [`VersionClocks::Safe`], as of when it has read.
    pub(super) at: Versionstamp,
    /// The session, with [`VersionClocks::Safe`]. Otherwise 0.
    pub(super) session: u64,
    /// What it must see of its own writes, with [`VersionClocks::Safe`]. Otherwise [`Versionstamp::ZERO`].
    pub(super) written: Versionstamp,
    /// Of which era of its site that is, if the keyspace has several sites and the session has seen anything.
    pub(super) era: Option<u32>,
}

/// The first part of a token.
const FORM: &str = "s3";

impl SessionToken {
    fn checksum(self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(FORM.as_bytes());
        hasher.update(&self.keyspace.to_le_bytes());
        hasher.update(&self.site.to_le_bytes());
        hasher.update(&self.at.0.to_le_bytes());
        hasher.update(&self.session.to_le_bytes());
        hasher.update(&self.written.0.to_le_bytes());
        hasher.update(&self.era_number().to_le_bytes());
        hasher.finalize()
    }

    /// Zero if it has none.
    fn era_number(self) -> u64 {
        self.era.map_or(0, |era| u64::from(era) + 1)
    }
}

/// Eight parts of digits and small letters, with hyphens between them.
impl fmt::Display for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SessionToken { keyspace, site, at, session, written, .. } = self;
        let (at, written, era, checksum) = (at.0, written.0, self.era_number(), self.checksum());
        write!(
            f,
            "{FORM}-{keyspace:x}-{site:x}-{at:x}-{session:x}-{written:x}-{era:x}-{checksum:08x}"
        )
    }
}

impl FromStr for SessionToken {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<SessionToken, BadToken> {
        let parts: Vec<&str> = text.trim().split('-').collect();
        let [FORM, keyspace, site, at, session, written, era, checksum] = parts[..] else {
            return Err(BadToken::Damaged);
        };
        let number = |text| u64::from_str_radix(text, 16).map_err(|_| BadToken::Damaged);
        let token = SessionToken {
            keyspace: number(keyspace)?,
            site: u16::from_str_radix(site, 16).map_err(|_| BadToken::Damaged)?,
            at: Versionstamp(number(at)?),
            session: number(session)?,
            written: Versionstamp(number(written)?),
            era: match number(era)?.checked_sub(1) {
                None => None,
                Some(era) => Some(u32::try_from(era).map_err(|_| BadToken::Damaged)?),
            },
        };
        match number(checksum)? == u64::from(token.checksum()) {
            true => Ok(token),
            false => Err(BadToken::Damaged),
        }
    }
}

/// Why the token of a session is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadToken {
    /// It is not as a session has given it out.
    #[error("it is not as a session has given it out: some of it is missing or changed")]
    Damaged,
    /// It belongs to another keyspace, or to one of another cluster, or to a former one of that name.
    #[error(
        "it belongs to another keyspace: one of another name or cluster, or one that was dropped"
    )]
    OfAnotherKeyspace,
    /// No session of this keyspace can have been given it.
    #[error(
        "it is from the future: the keyspace has given out no versionstamp as high; perhaps its data was lost"
    )]
    OfTheFuture,
    /// Its site has lost all its disks since, and was rebuilt from other sites.
    #[error(
        "site {site} has lost its disks since and was rebuilt from other sites: what the session has seen and written is perhaps lost"
    )]
    OfRebuiltSite {
        /// The site.
        site: u16,
    },
    /// The protocol has no version clocks.
    #[error("sessions of this keyspace have no tokens, because its protocol has no version clocks")]
    NotOffered,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_text_and_no_change_of_it_goes_unnoticed() {
        let token = SessionToken {
            keyspace: 0x1234_5678_9abc_def0,
            site: 7,
            at: Versionstamp(77 << 10),
            session: 0x77,
            written: Versionstamp(7),
            era: Some(7),
        };
        let text = token.to_string();
        assert_eq!(text.parse(), Ok(token));
        assert_eq!(format!(" {text}\n").parse(), Ok(token));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'7' { b'8' } else { b'7' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(changed.parse::<SessionToken>(), Err(BadToken::Damaged), "{changed}");
            let cut = &text[..at];
            assert_eq!(cut.parse::<SessionToken>(), Err(BadToken::Damaged), "{cut}");
        }
    }
}

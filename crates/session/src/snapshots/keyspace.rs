//! A keyspace with read-only transactions of many keys, and simple writes or write transactions (004 §2).

use std::sync::{Arc, Mutex, MutexGuard};

use serried_actor::Timestamp;
use serried_model::snapshots::{
    Offers, Operation, Outcome, Output, Own, Read, Shown, VersionClocks, Written,
};
use serried_model::{Key, Limits, Snapshots, Value, Versionstamp, Write, WriteToken};

use super::clock::{Clock, Known};
use super::{BadToken, SessionToken, SnapshotError, SnapshotOptions};
use crate::call::{Answer, Call};
use crate::{Alarm, Driver, Port, Session};

/// A client's session in a keyspace of snapshots. Cheap to clone; clones are the same session, and many operations
/// can be in progress at once.
///
/// In a keyspace that is `process-ordered`, everything that is done in a session takes effect in the order in which
/// it is done: what begins after something else has ended comes after it. In one that is `causal`, a session sees what
/// it has written at once, and what others have written later. [`SnapshotKeyspace::session`] begins
/// another session. A session for each end user keeps independent users independent. If they share one, each also
/// sees what the others have seen, which may be newer.
#[derive(Clone)]
pub struct SnapshotKeyspace {
    port: Arc<dyn Port<Snapshots>>,
    limits: Limits,
    offers: Offers,
    options: SnapshotOptions,
    clock: Arc<Mutex<Clock>>,
    known: Arc<Mutex<Known>>,
    /// The session's number.
    number: u64,
}

impl Session for Snapshots {
    type Keyspace = SnapshotKeyspace;
    type Options = SnapshotOptions;
    type Error = SnapshotError;

    fn keyspace(port: Arc<dyn Port<Self>>, limits: Limits, offers: Offers) -> SnapshotKeyspace {
        let (options, clock, known) = (SnapshotOptions::default(), Arc::default(), Arc::default());
        let number = port.random();
        SnapshotKeyspace { port, limits, offers, options, clock, known, number }
    }

    fn with_options(keyspace: &SnapshotKeyspace, options: SnapshotOptions) -> SnapshotKeyspace {
        keyspace.with_options(options)
    }

    fn driver(keyspace: &SnapshotKeyspace) -> Arc<dyn Driver> {
        keyspace.port.clone()
    }
}

/// What a read-only transaction has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadOnly {
    /// The values of the keys, in their order; `None` for a key that is absent.
    pub values: Vec<Option<Value>>,
    /// By key, [`WriteOutcome::stamp`] of the write that the value is from. [`Versionstamp::ZERO`] if it was never
    /// written.
    pub stamps: Vec<Versionstamp>,
    /// As of which versionstamp it has read.
    pub at: Versionstamp,
    /// How many rounds of requests it took.
    pub rounds: u32,
    /// How many bytes of its requests and answers were needed only to coordinate the reads.
    pub metadata_bytes: u32,
}

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteOutcome {
    /// Its versionstamp; if it was omitted, that of the write which has overwritten it. Without version clocks,
    /// another number that rises with each write of the key, or [`Versionstamp::ZERO`].
    pub stamp: Versionstamp,
    /// Whether a concurrent write of the key counts as a later one, and has overwritten it at once (004 §6.3). The
    /// session sees the value of that write from now on. A write that had to be sent again may be reported as omitted
    /// although it took effect like any other.
    pub omitted: bool,
}

/// The answer to an operation.
#[derive(Default)]
struct Answered {
    token: Option<WriteToken>,
    era: Option<u32>,
    outcome: Option<Outcome>,
}

impl Answer<Snapshots> for Answered {
    fn take_in(&mut self, output: Output) -> bool {
        match output {
            Output::Began(token) => self.token = Some(token),
            Output::Era(era) => self.era = Some(era),
            Output::Outcome(outcome) => self.outcome = Some(outcome),
        }
        self.outcome.is_some()
    }
}

impl SnapshotKeyspace {
    /// The same session with other options for its operations.
    pub fn with_options(&self, options: SnapshotOptions) -> SnapshotKeyspace {
        SnapshotKeyspace { options, ..self.clone() }
    }

    /// The options of its operations.
    pub fn options(&self) -> &SnapshotOptions {
        &self.options
    }

    /// Whether the protocol has version clocks, and sessions so have tokens.
    pub fn has_version_clocks(&self) -> bool {
        self.offers.version_clocks != VersionClocks::None
    }

    /// Whether several keys can be written at once.
    pub fn has_write_transactions(&self) -> bool {
        self.offers.write_transactions
    }

    fn is_safe(&self) -> bool {
        self.offers.version_clocks == VersionClocks::Safe
    }

    /// The driver's monotonic time, for measurements.
    pub fn now(&self) -> Timestamp {
        self.port.now()
    }

    /// Waits until the driver's time is `at`.
    pub fn sleep_until(&self, at: Timestamp) -> impl Future<Output = ()> + Send + 'static {
        Alarm::at(self.port.clone(), at).wait()
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A new session. It need not see what this one has written or seen. The two share what they know of the servers'
    /// version clocks, so that what each of them reads is not older than the client knows.
    pub fn session(&self) -> SnapshotKeyspace {
        SnapshotKeyspace { clock: Arc::default(), number: self.port.random(), ..self.clone() }
    }

    /// The token by which another process can continue this session, with all that it has done so far. Operations that
    /// are in progress are not part of it.
    ///
    /// # Errors
    /// [`BadToken::NotOffered`] if the protocol has no version clocks.
    pub fn token(&self) -> Result<SessionToken, SnapshotError> {
        if !self.has_version_clocks() {
            return Err(BadToken::NotOffered.into());
        }
        let clock = self.clock();
        let session = if self.is_safe() { self.number } else { 0 };
        Ok(SessionToken {
            keyspace: self.port.keyspace_id(),
            site: self.port.site(),
            at: clock.acknowledged(),
            session,
            written: clock.written(),
            era: clock.era,
        })
    }

    /// A session that continues the one whose token this is: what it does comes after all that the other had done. All
    /// servers are asked for their version clocks, unless this session or one that shares its knowledge has heard of
    /// anything as late. If the token is of another site of the keyspace, this waits until that site has sent all that
    /// the session has seen there.
    ///
    /// # Errors
    /// [`SnapshotError::BadToken`] if the token is not of this keyspace, or no session of the keyspace can have been
    /// given it, or its site was rebuilt since. [`SnapshotError::NoClocks`] if the servers do not answer in time.
    /// [`SnapshotError::SiteBehind`] if this site does not have in time what the session has seen at another one.
    pub async fn resume(&self, token: SessionToken) -> Result<SnapshotKeyspace, SnapshotError> {
        if !self.has_version_clocks() {
            return Err(BadToken::NotOffered.into());
        }
        if token.keyspace != self.port.keyspace_id() {
            return Err(BadToken::OfAnotherKeyspace.into());
        }
        let mut session = self.session();
        let latest = token.at.max(token.written);
        if token.site != self.port.site() {
            let site = token.site;
            let reach = Operation::Reach { site, stamp: latest, era: token.era };
            let Answered { era, outcome, .. } = self.call(reach, false).await;
            let shown = match outcome {
                Some(Outcome::Clocks(shown)) => shown,
                Some(Outcome::Rebuilt) => return Err(BadToken::OfRebuiltSite { site }.into()),
                // No session has given it out.
                Some(Outcome::NoSuchSite) => return Err(BadToken::Damaged.into()),
                _ => {
                    let deadline = self.options.deadline;
                    return Err(SnapshotError::SiteBehind { site, deadline });
                }
            };
            session.clock().era = era;
            let at = shown.iter().map(|(_, shown)| *shown).max().unwrap_or_default();
            self.saw(shown);
            // Its own writes come before that, so it need not be the same session.
            session.clock().adopt(at);
            return Ok(session);
        }
        let has_seen = {
            let known = self.known();
            known.has_seen(latest) && !known.is_rebuilt_less_often_than(token.era)
        };
        if !has_seen {
            let deadline = self.options.deadline;
            let answer = self.call(Operation::ReadClocks, false).await;
            let Some(Outcome::Clocks(shown)) = answer.outcome else {
                return Err(SnapshotError::NoClocks { deadline });
            };
            // After a rebuild, the clocks may show less than before.
            let is_rebuilt = self.known().is_rebuilt_since(token.era);
            let is_future = shown.iter().all(|(_, shown)| *shown < latest)
                || self.known().is_rebuilt_less_often_than(token.era);
            if !is_rebuilt && is_future {
                return Err(BadToken::OfTheFuture.into());
            }
            self.saw(shown);
        }
        if self.known().is_rebuilt_since(token.era) {
            return Err(BadToken::OfRebuiltSite { site: token.site }.into());
        }
        if self.is_safe() {
            session.number = token.session;
        }
        session.clock().adopt(token.at);
        session.clock().wrote(token.written);
        session.clock().era = token.era;
        Ok(session)
    }

    /// Reads keys in one read-only transaction.
    ///
    /// # Errors
    /// [`SnapshotError::Unavailable`] if too few replicas answer before the deadline; [`SnapshotError::EmptyKey`] and
    /// [`SnapshotError::TooLarge`] for keys that can't be.
    pub async fn read_only<K: Into<Key>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>, SnapshotError> {
        Ok(self.read_only_recorded(keys.into_iter().map(Into::into).collect()).await?.values)
    }

    /// As [`SnapshotKeyspace::read_only`], with the versionstamps of what was found, for histories.
    ///
    /// # Errors
    /// As [`SnapshotKeyspace::read_only`].
    pub async fn read_only_recorded(&self, keys: Vec<Key>) -> Result<ReadOnly, SnapshotError> {
        let (mut bytes, count) = (0, keys.len());
        for key in &keys {
            self.limits.check_key(key)?;
            bytes += key.len();
            self.limits.check_transaction(key, bytes)?;
        }
        let Some(first) = keys.first().cloned() else {
            let (values, stamps) = (Vec::new(), Vec::new());
            return Ok(ReadOnly {
                values,
                stamps,
                at: Versionstamp::ZERO,
                rounds: 0,
                metadata_bytes: 0,
            });
        };
        let (now, freshness, deadline) =
            (self.now(), self.options.freshness, self.options.deadline);
        let (at, written, era) = {
            let mut clock = self.clock();
            let at = match self.is_safe() {
                true => Some(clock.acknowledged()),
                false => clock.for_read(&self.known(), now, freshness),
            };
            (at, clock.written(), clock.era)
        };
        let own = Own { session: self.number, written, freshness, era };
        let answer = self.call(Operation::Read { keys, at, own }, false).await;
        self.is_of_era(&answer)?;
        if let Some(Outcome::Contended { rounds }) = answer.outcome {
            return Err(SnapshotError::Contended { key: first, keys: count, rounds, deadline });
        }
        let Some(Outcome::Read(Read { found, at, shown, rounds, metadata_bytes })) = answer.outcome
        else {
            return Err(SnapshotError::Unavailable { key: first, keys: count, deadline });
        };
        self.saw(shown);
        self.clock().adopt(at);
        let (values, stamps) = found.into_iter().unzip();
        Ok(ReadOnly { values, stamps, at, rounds, metadata_bytes })
    }

    /// Reads a key; `None` if it is absent.
    ///
    /// # Errors
    /// As [`SnapshotKeyspace::read_only`].
    pub async fn read(&self, key: impl Into<Key>) -> Result<Option<Value>, SnapshotError> {
        let values = self.read_only([key.into()]).await?;
        Ok(values.into_iter().next().flatten())
    }

    /// Writes a key, whatever value it has.
    ///
    /// # Errors
    /// See [`SnapshotError`]. Only [`SnapshotError::Unknown`] leaves open whether it took effect.
    pub async fn write(
        &self,
        key: impl Into<Key>,
        value: impl Into<Value>,
    ) -> Result<WriteOutcome, SnapshotError> {
        self.carry_out(vec![Write { key: key.into(), value: Some(value.into()) }], None).await
    }

    /// Deletes a key; deleting an absent key is no error.
    ///
    /// # Errors
    /// As [`SnapshotKeyspace::write`].
    pub async fn delete(&self, key: impl Into<Key>) -> Result<WriteOutcome, SnapshotError> {
        self.carry_out(vec![Write { key: key.into(), value: None }], None).await
    }

    /// Tries a write again that failed with [`SnapshotError::Unknown`], with the token of that error. It then takes
    /// effect exactly once, unless the keyspace promises nothing. It must be the same write. Any session of any client
    /// may try it, until one was told its outcome, but not two at a time: one of them may be told that the write was
    /// omitted, and the write of the other one may take effect later. What this session does afterwards comes after the
    /// write. It may come before what this session has done. [`SnapshotError::Unavailable`] then says that the write has
    /// not taken effect and never will with this token, if the keyspace has write transactions.
    ///
    /// # Errors
    /// [`SnapshotError::Forgotten`] if it is too late to try again, or the token is one of a keyspace with another
    /// protocol. Otherwise as [`SnapshotKeyspace::write`].
    pub async fn retry(
        &self,
        write: Write,
        token: WriteToken,
    ) -> Result<WriteOutcome, SnapshotError> {
        self.carry_out(vec![write], Some(token)).await
    }

    /// Tries a write transaction again, as [`SnapshotKeyspace::retry`] does for a single write.
    ///
    /// # Errors
    /// As [`SnapshotKeyspace::retry`] and [`SnapshotKeyspace::write_all`].
    pub async fn retry_all(
        &self,
        writes: impl IntoIterator<Item = Write>,
        token: WriteToken,
    ) -> Result<Option<WriteOutcome>, SnapshotError> {
        self.write_together(writes.into_iter().collect(), Some(token)).await
    }

    /// Writes several keys in one write transaction: every session sees all of the writes or none. A protocol without
    /// write transactions can do one. Without writes, nothing happens.
    ///
    /// # Errors
    /// [`SnapshotError::ManyWrites`] if there are several, and the protocol has no write transactions.
    /// [`SnapshotError::TwiceWritten`] if two are of the same key. Otherwise as [`SnapshotKeyspace::write`].
    pub async fn write_all(
        &self,
        writes: impl IntoIterator<Item = Write>,
    ) -> Result<Option<WriteOutcome>, SnapshotError> {
        self.write_together(writes.into_iter().collect(), None).await
    }

    async fn write_together(
        &self,
        writes: Vec<Write>,
        token: Option<WriteToken>,
    ) -> Result<Option<WriteOutcome>, SnapshotError> {
        if writes.len() > 1 && !self.offers.write_transactions {
            return Err(SnapshotError::ManyWrites { writes: writes.len() });
        }
        let mut keys: Vec<&Key> = writes.iter().map(|write| &write.key).collect();
        keys.sort_unstable();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SnapshotError::TwiceWritten { key: twice[0].clone() });
        }
        match writes.is_empty() {
            true => Ok(None),
            false => self.carry_out(writes, token).await.map(Some),
        }
    }

    /// Carries out writes of different keys, at least one.
    async fn carry_out(
        &self,
        writes: Vec<Write>,
        token: Option<WriteToken>,
    ) -> Result<WriteOutcome, SnapshotError> {
        let (key, keys, deadline) = (writes[0].key.clone(), writes.len(), self.options.deadline);
        let mut bytes = 0;
        for Write { key, value } in &writes {
            self.limits.check_key(key)?;
            let of_value = value.as_ref().map_or(0, Value::len);
            self.limits.check_value_bytes(key, of_value)?;
            bytes += key.len() + of_value;
            self.limits.check_transaction(key, bytes)?;
        }
        if let Some(reason) = self.port.obstacle() {
            return Err(match token {
                // An earlier try may have taken effect.
                Some(token) => SnapshotError::Unknown { key, keys, token, deadline },
                None => SnapshotError::ReadOnly { reason },
            });
        }
        let at = match self.is_safe() {
            true => Some(self.clock().before_writes()),
            false => self.clock().for_write(&self.known(), self.now(), self.options.freshness),
        };
        let (session, era) = (self.number, self.clock().era);
        let write = Operation::Write { writes, at, session, era, token };
        let answer = self.call(write, true).await;
        self.is_of_era(&answer)?;
        let unavailable = || SnapshotError::Unavailable { key: key.clone(), keys, deadline };
        let named = token.or(answer.token);
        Err(match (answer.outcome, named) {
            (Some(Outcome::Written(Written { stamp, omitted, shown })), _) => {
                self.saw(shown);
                let is_of_another = matches!(
                    named, Some(WriteToken::OfSession(_, session)) if session != self.number
                );
                match self.is_safe() {
                    // It is no write of this session, which so can read it only when it is safe.
                    true if is_of_another => self.clock().adopt(stamp),
                    true => self.clock().wrote(stamp),
                    false => self.clock().adopt(shown.map_or(Versionstamp::ZERO, |(_, at)| at)),
                }
                return Ok(WriteOutcome { stamp, omitted });
            }
            (Some(Outcome::ClockSkew { ahead_us }), _) => SnapshotError::ClockSkew { ahead_us },
            (Some(Outcome::Forgotten), Some(token)) => SnapshotError::Forgotten { key, token },
            (Some(Outcome::OfAnotherSite { site }), Some(token)) => {
                SnapshotError::OfAnotherSite { key, token, site }
            }
            // With safe clocks, whoever tries it finds out the same.
            (Some(Outcome::NoEffect), Some(_)) if self.is_safe() => unavailable(),
            // Another try may have taken effect, even if this one has not.
            (Some(Outcome::Unknown), Some(token)) => {
                SnapshotError::Unknown { key, keys, token, deadline }
            }
            (_, _) => match token {
                Some(token) => SnapshotError::Unknown { key, keys, token, deadline },
                None => unavailable(),
            },
        })
    }

    /// Whether an answer is of the era of the site of which the session has seen something.
    fn is_of_era(&self, answer: &Answered) -> Result<(), SnapshotError> {
        let mut clock = self.clock();
        // With other outcomes it has seen nothing.
        let sees = matches!(
            answer.outcome,
            Some(Outcome::Read(_) | Outcome::Written(_) | Outcome::Unknown)
        );
        let era = answer.era.filter(|_| sees);
        let is_other = era.is_some_and(|era| era != *clock.era.get_or_insert(era));
        match is_other || answer.outcome == Some(Outcome::Rebuilt) {
            true => Err(SnapshotError::SiteRebuilt { site: self.port.site() }),
            false => Ok(()),
        }
    }

    /// Servers have shown their clocks.
    fn saw(&self, shown: impl IntoIterator<Item = Shown>) {
        let (now, mut known) = (self.now(), self.known());
        shown.into_iter().for_each(|shown| known.saw(shown, now));
    }

    async fn call(&self, operation: Operation, writes: bool) -> Answered {
        let call = Call {
            operation,
            give_up: Operation::GiveUp,
            answers_when_given_up: writes,
            deadline: self.options.deadline,
        };
        let answer: Answered = call.answer(&self.port).await.unwrap_or_default();
        answer.era.into_iter().for_each(|era| self.known().saw_era(era));
        answer
    }
}

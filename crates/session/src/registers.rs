//! A keyspace whose keys are registers: each is read and updated by itself (001 §4.1.3).

use std::sync::Arc;

use serried_actor::Timestamp;
use serried_model::{
    Access, Accessed, Change, Key, Limits, Modification, Operation, Outcome, Token, Value,
};

use crate::{Error, Keyspace, Port, TransactOptions};

/// A keyspace that promises [`serried_model::Guarantee::Linearizable`] or
/// [`serried_model::Guarantee::RegularSequential`], as a client sees it. Cheap to clone; many operations
/// can be under way at once, on the same key too.
#[derive(Clone)]
pub struct Registers {
    keyspace: Keyspace,
}

/// What came of a read-modify-write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Modified {
    /// What was there before.
    pub found: Option<Value>,
    /// What is there after it.
    pub value: Option<Value>,
    /// Whether its condition held; if not, nothing was changed.
    pub applied: bool,
}

impl Registers {
    /// For drivers: a keyspace behind `port`.
    pub fn new(port: Arc<dyn Port>, limits: Limits) -> Registers {
        Registers { keyspace: Keyspace::new(port, limits) }
    }

    /// The same keyspace with other options for its operations, of which the deadline alone means
    /// something to them.
    pub fn with_options(&self, options: TransactOptions) -> Registers {
        Registers { keyspace: self.keyspace.with_options(options) }
    }

    /// The driver's monotonic time, for measurements.
    pub fn now(&self) -> Timestamp {
        self.keyspace.now()
    }

    /// Waits until the driver's time is `at`.
    pub fn sleep_until(&self, at: Timestamp) -> impl Future<Output = ()> + Send + 'static {
        self.keyspace.sleep_until(at)
    }

    /// Reads a key; `None` if it is absent.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if too few replicas answer before the deadline.
    pub async fn read(&self, key: impl Into<Key>) -> Result<Option<Value>, Error> {
        Ok(self.access(key.into(), Access::Read, None).await?.found)
    }

    /// Writes a key, whatever it holds.
    ///
    /// # Errors
    /// See [`Error`]. Only [`Error::UnknownUpdate`] leaves open whether it took effect.
    pub async fn write(&self, key: impl Into<Key>, value: impl Into<Value>) -> Result<(), Error> {
        let write = Access::Write(Some(value.into()));
        self.access(key.into(), write, None).await.map(drop)
    }

    /// Deletes a key; deleting an absent key is no error.
    ///
    /// # Errors
    /// As [`Registers::write`].
    pub async fn delete(&self, key: impl Into<Key>) -> Result<(), Error> {
        self.access(key.into(), Access::Write(None), None).await.map(drop)
    }

    /// Atomically reads a key and makes something else of its value, no longer than values may be.
    ///
    /// # Errors
    /// [`Error::WrongType`] if the value is none that this can be done with; [`Error::TooLarge`] if it can't
    /// be appended to, and nothing was changed; as [`Registers::write`].
    pub async fn rmw(
        &self,
        key: impl Into<Key>,
        modification: Modification,
    ) -> Result<Modified, Error> {
        let (key, limits) = (key.into(), self.keyspace.limits);
        let modification = modification.within(limits.value_bytes);
        let modify = Access::Modify(modification.clone());
        let found = self.access(key.clone(), modify, None).await?.found;
        if let Modification::AppendWithin { suffix, .. } = &modification {
            let bytes = found.as_ref().map_or(0, Value::len) + suffix.len();
            limits.check_value_bytes(&key, bytes)?;
        }
        modified(key, &modification, found)
    }

    /// Replaces the value of a key if it is exactly as expected; whether it was.
    ///
    /// # Errors
    /// As [`Registers::rmw`].
    pub async fn compare_and_swap(
        &self,
        key: impl Into<Key>,
        expected: Option<Value>,
        new: Option<Value>,
    ) -> Result<bool, Error> {
        let swap = Modification::CompareAndSwap { expected, new };
        Ok(self.rmw(key, swap).await?.applied)
    }

    /// Adds to an integer, and returns the sum; a key that is absent counts as 0. `None`, and nothing is
    /// changed, if the sum does not fit into 64 bits, or into as many digits as values may have.
    ///
    /// # Errors
    /// As [`Registers::rmw`].
    pub async fn increment(&self, key: impl Into<Key>, delta: i64) -> Result<Option<i64>, Error> {
        let modified = self.rmw(key, Modification::add(delta)).await?;
        let sum = modified.value.filter(|_| modified.applied);
        let sum = sum.and_then(|sum| core::str::from_utf8(sum.as_bytes()).ok()?.parse().ok());
        Ok(sum)
    }

    /// Any operation on a key. An update that has failed with [`Error::UnknownUpdate`] is tried again
    /// with its token, from any client, and then takes effect once in all; it must be the same update.
    ///
    /// # Errors
    /// [`Error::ForgottenUpdate`] if it is too late for that. As [`Registers::write`]; what type a value
    /// has is not looked at.
    pub async fn access(
        &self,
        key: Key,
        access: Access,
        token: Option<Token>,
    ) -> Result<Accessed, Error> {
        let limits = self.keyspace.limits;
        limits.check_key(&key)?;
        let access = match access {
            Access::Modify(modification) => Access::Modify(modification.within(limits.value_bytes)),
            access => access,
        };
        let bytes = match &access {
            Access::Read => 0,
            Access::Write(value) => value.as_ref().map_or(0, Value::len),
            Access::Modify(modification) => modification.value_bytes(),
        };
        limits.check_value_bytes(&key, bytes)?;
        let updates = access != Access::Read;
        if updates && let Some(reason) = self.keyspace.port.obstacle() {
            return Err(Error::ReadOnly { reason });
        }
        let operation = Operation::Access { key: key.clone(), access, token };
        let (attempt, outcome) = self.keyspace.ask_and(operation, updates).await;
        match (&outcome, attempt.accessed()) {
            (Some(Outcome::Committed), Some(accessed)) => return Ok(accessed),
            (Some(Outcome::Forgotten), _) => {
                let token = token.or(attempt.token()).expect("it was told by its token");
                return Err(Error::ForgottenUpdate { key, token });
            }
            (Some(Outcome::NotOffered), _) => return Err(Error::NotOffered { key }),
            (Some(Outcome::ClockSkew { ahead_us }), _) => {
                return Err(Error::ClockSkew { ahead_us: *ahead_us });
            }
            _ => {}
        }
        match (outcome, attempt.token()) {
            (Some(Outcome::Unknown), Some(token)) => {
                let deadline = self.keyspace.options.deadline;
                Err(Error::UnknownUpdate { key, token, deadline })
            }
            _ => Err(self.keyspace.unavailable(format!("the value of `{key}`"))),
        }
    }
}

fn modified(
    key: Key,
    modification: &Modification,
    found: Option<Value>,
) -> Result<Modified, Error> {
    match modification.apply(found.as_ref()) {
        Ok(Change::None) => Ok(Modified { value: found.clone(), found, applied: false }),
        Ok(Change::To(value)) => Ok(Modified { found, value, applied: true }),
        Err(wrong) => Err(Error::WrongType { key, wrong }),
    }
}

//! A keyspace whose keys are registers: each is read and updated by itself (001 §4.1.3).

use std::sync::Arc;

use serried_actor::Timestamp;
use serried_model::registers::{Offers, Operation, Outcome, Output};
use serried_model::{
    Access, Accessed, Carstamp, Key, Limits, Modification, Modified, Registers, Token, Value,
    Version,
};

use super::{RegisterError, RegisterOptions};
use crate::call::{Answer, Call};
use crate::{Alarm, Driver, Port, Session};

/// A client's handle to a keyspace of registers. Cheap to clone. Many operations can be in progress at once, also on
/// the same key.
#[derive(Clone)]
pub struct RegisterKeyspace {
    port: Arc<dyn Port<Registers>>,
    limits: Limits,
    offers: Offers,
    options: RegisterOptions,
}

impl Session for Registers {
    type Keyspace = RegisterKeyspace;
    type Options = RegisterOptions;
    type Error = RegisterError;

    fn keyspace(port: Arc<dyn Port<Self>>, limits: Limits, offers: Offers) -> RegisterKeyspace {
        RegisterKeyspace { port, limits, offers, options: RegisterOptions::default() }
    }

    fn with_options(keyspace: &RegisterKeyspace, options: RegisterOptions) -> RegisterKeyspace {
        keyspace.with_options(options)
    }

    fn driver(keyspace: &RegisterKeyspace) -> Arc<dyn Driver> {
        keyspace.port.clone()
    }
}

/// The answer to an operation.
#[derive(Default)]
struct Accessing {
    /// The id of an update, once it has begun.
    id: Option<Version>,
    /// The place of a write, once it has one.
    placed: Option<Carstamp>,
    outcome: Option<Outcome>,
}

impl Answer<Registers> for Accessing {
    fn take_in(&mut self, output: Output) -> bool {
        match output {
            Output::Began(id) => self.id = Some(id),
            Output::Placed(carstamp) => self.placed = Some(carstamp),
            Output::Outcome(outcome) => self.outcome = Some(outcome),
        }
        self.outcome.is_some()
    }
}

impl Accessing {
    fn token(&self) -> Option<Token> {
        self.id.map(|id| Token { id, carstamp: self.placed })
    }
}

impl RegisterKeyspace {
    /// The same keyspace with other options for its operations.
    pub fn with_options(&self, options: RegisterOptions) -> RegisterKeyspace {
        RegisterKeyspace { options, ..self.clone() }
    }

    /// The options of its operations.
    pub fn options(&self) -> &RegisterOptions {
        &self.options
    }

    /// The driver's monotonic time, for measurements.
    pub fn now(&self) -> Timestamp {
        self.port.now()
    }

    /// Waits until the driver's time is `at`.
    pub fn sleep_until(&self, at: Timestamp) -> impl Future<Output = ()> + Send + 'static {
        Alarm::at(self.port.clone(), at).wait()
    }

    /// Reads a key; `None` if it is absent.
    ///
    /// # Errors
    /// [`RegisterError::Unavailable`] if too few replicas answer before the deadline.
    pub async fn read(&self, key: impl Into<Key>) -> Result<Option<Value>, RegisterError> {
        Ok(self.access(key.into(), Access::Read, None).await?.found)
    }

    /// Writes a key, whatever value it has.
    ///
    /// # Errors
    /// See [`RegisterError`]. Only [`RegisterError::Unknown`] leaves open whether it took effect.
    pub async fn write(
        &self,
        key: impl Into<Key>,
        value: impl Into<Value>,
    ) -> Result<(), RegisterError> {
        let write = Access::Write(Some(value.into()));
        self.access(key.into(), write, None).await.map(drop)
    }

    /// Deletes a key; deleting an absent key is no error.
    ///
    /// # Errors
    /// As [`RegisterKeyspace::write`].
    pub async fn delete(&self, key: impl Into<Key>) -> Result<(), RegisterError> {
        self.access(key.into(), Access::Write(None), None).await.map(drop)
    }

    /// Atomically reads a key and modifies its value. The new value is subject to the limit on values.
    ///
    /// # Errors
    /// [`RegisterError::WrongType`] if the modification needs a value of another type. [`RegisterError::TooLarge`] if
    /// the value would become too long by appending; nothing was changed then. Otherwise as
    /// [`RegisterKeyspace::write`].
    pub async fn rmw(
        &self,
        key: impl Into<Key>,
        modification: Modification,
    ) -> Result<Modified, RegisterError> {
        self.modify(key.into(), modification, None).await
    }

    /// Tries a read-modify-write again that failed with [`RegisterError::Unknown`], with the token of that error. It
    /// then takes effect exactly once. It must be the same modification of the same key. Any client may try it.
    ///
    /// ```
    /// # use serried_model::Modification;
    /// # use serried_session::{Modified, RegisterError, RegisterKeyspace};
    /// async fn take_a_seat(seats: &RegisterKeyspace) -> Result<Modified, RegisterError> {
    ///     let take_one = Modification::add(-1);
    ///     match seats.rmw("seats", take_one.clone()).await {
    ///         Err(RegisterError::Unknown { token, .. }) => {
    ///             seats.retry_rmw("seats", take_one, token).await
    ///         }
    ///         known => known,
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`RegisterError::Forgotten`] if it is too late to try again. Otherwise as [`RegisterKeyspace::rmw`].
    pub async fn retry_rmw(
        &self,
        key: impl Into<Key>,
        modification: Modification,
        token: Token,
    ) -> Result<Modified, RegisterError> {
        self.modify(key.into(), modification, Some(token)).await
    }

    async fn modify(
        &self,
        key: Key,
        modification: Modification,
        token: Option<Token>,
    ) -> Result<Modified, RegisterError> {
        let limits = self.limits;
        let modification = modification.within(limits.value_bytes);
        let modify = Access::Modify(modification.clone());
        let found = self.access(key.clone(), modify, token).await?.found;
        if let Modification::AppendWithin { suffix, .. } = &modification {
            let bytes = found.as_ref().map_or(0, Value::len) + suffix.len();
            limits.check_value_bytes(&key, bytes)?;
        }
        Modified::by(&modification, found).map_err(|wrong| RegisterError::WrongType { key, wrong })
    }

    /// Replaces the value of a key if it is exactly as expected. Returns whether it was.
    ///
    /// # Errors
    /// As [`RegisterKeyspace::rmw`].
    pub async fn compare_and_swap(
        &self,
        key: impl Into<Key>,
        expected: Option<Value>,
        new: Option<Value>,
    ) -> Result<bool, RegisterError> {
        let swap = Modification::CompareAndSwap { expected, new };
        Ok(self.rmw(key, swap).await?.applied)
    }

    /// Adds to an integer and returns the sum. An absent key counts as 0. If the sum does not fit into 64 bits, or has
    /// more digits than a value may have bytes, nothing is changed and `None` is returned.
    ///
    /// # Errors
    /// As [`RegisterKeyspace::rmw`].
    pub async fn increment(
        &self,
        key: impl Into<Key>,
        delta: i64,
    ) -> Result<Option<i64>, RegisterError> {
        let modified = self.rmw(key, Modification::add(delta)).await?;
        Ok(modified.integer().filter(|_| modified.applied))
    }

    /// Runs any operation on a key. An update that failed with [`RegisterError::Unknown`] can be tried again with its
    /// token, by any client. It then takes effect exactly once. It must be the same update.
    ///
    /// # Errors
    /// [`RegisterError::Forgotten`] if it is too late to try again. Otherwise as [`RegisterKeyspace::write`]. The type
    /// of a value is not checked.
    pub async fn access(
        &self,
        key: Key,
        access: Access,
        token: Option<Token>,
    ) -> Result<Accessed, RegisterError> {
        let limits = self.limits;
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
        if matches!(access, Access::Modify(_)) && !self.offers.rmws {
            return Err(RegisterError::NoReadModifyWrites { key });
        }
        let updates = access != Access::Read;
        let deadline = self.options.deadline;
        if updates && let Some(reason) = self.port.obstacle() {
            return Err(match token {
                // An earlier try may have taken effect.
                Some(token) => RegisterError::Unknown { key, token, deadline },
                None => RegisterError::ReadOnly { reason },
            });
        }
        let call = Call {
            operation: Operation::Access { key: key.clone(), access, token },
            give_up: Operation::GiveUp,
            answers_when_given_up: updates,
            deadline,
        };
        let answer: Option<Accessing> = call.answer(&self.port).await;
        if updates
            && answer.is_none()
            && let Some(token) = token
        {
            // This try was never passed on, but an earlier one may have taken effect.
            return Err(RegisterError::Unknown { key, token, deadline });
        }
        let answer = answer.unwrap_or_default();
        let named = answer.token();
        Err(match (answer.outcome, named) {
            (Some(Outcome::Done(accessed)), _) => return Ok(accessed),
            (Some(Outcome::Forgotten), named) => {
                let token = token.or(named).expect("an update that has begun has a token");
                RegisterError::Forgotten { key, token }
            }
            (Some(Outcome::ClockSkew { ahead_us }), _) => RegisterError::ClockSkew { ahead_us },
            (Some(Outcome::Unknown), Some(token)) => {
                RegisterError::Unknown { key, token, deadline }
            }
            (Some(Outcome::Unknown | Outcome::NoEffect) | None, _) => {
                RegisterError::Unavailable { key, deadline }
            }
        })
    }
}

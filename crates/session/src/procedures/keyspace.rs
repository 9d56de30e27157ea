//! A keyspace of stored procedures.

use std::sync::Arc;
use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::{Limits, Version};
use serried_procedures::{
    Datum, Offers, Operation, Outcome, Output, ProcedureSet, Procedures, Refused, Registration,
    Results,
};

use super::{CallError, CallOptions};
use crate::call::{Answer, Call};
use crate::{Alarm, Driver, Port, Session};

/// A client's handle to a keyspace of stored procedures. Cheap to clone. Many calls can be in progress at once.
#[derive(Clone)]
pub struct ProcedureKeyspace {
    port: Arc<dyn Port<Procedures>>,
    limits: Limits,
    offers: Offers,
    options: CallOptions,
}

impl Session for Procedures {
    type Keyspace = ProcedureKeyspace;
    type Options = CallOptions;
    type Error = CallError;

    fn keyspace(port: Arc<dyn Port<Self>>, limits: Limits, offers: Offers) -> ProcedureKeyspace {
        ProcedureKeyspace { port, limits, offers, options: CallOptions::default() }
    }

    fn with_options(keyspace: &ProcedureKeyspace, options: CallOptions) -> ProcedureKeyspace {
        keyspace.with_options(options)
    }

    fn driver(keyspace: &ProcedureKeyspace) -> Arc<dyn Driver> {
        keyspace.port.clone()
    }
}

/// How a call ended that was asked for by its id.
#[derive(Clone, PartialEq, Debug)]
pub enum CallOutcome {
    /// It took effect, durably.
    Done(Results),
    /// It was refused. Nothing was written.
    Refused(Refused),
    /// It did not take effect, and never will.
    NoEffect,
}

/// The set of procedures that is registered.
#[derive(Clone, PartialEq, Debug)]
pub struct RegisteredSet {
    /// Its version; 0 if none was ever registered.
    pub version: u64,
    /// The set.
    pub set: Arc<ProcedureSet>,
}

/// The answer to a call.
#[derive(Default)]
struct Calling {
    /// The id of the call, once it has one.
    id: Option<Version>,
    outcome: Option<Outcome>,
    /// Is told of the id.
    noted: Option<Noted>,
}

/// What a program does with the id of a call.
type Noted = Box<dyn Fn(Version) + Send>;

impl Answer<Procedures> for Calling {
    fn take_in(&mut self, output: Output) -> bool {
        match output {
            Output::Began(id) => {
                self.id = Some(id);
                self.noted.iter().for_each(|noted| noted(id));
            }
            Output::Outcome(outcome) => self.outcome = Some(outcome),
            Output::Registered(_) | Output::Set(..) => {}
        }
        self.outcome.is_some()
    }
}

/// The answer to anything else.
#[derive(Default)]
struct Answered(Option<Output>);

impl Answer<Procedures> for Answered {
    fn take_in(&mut self, output: Output) -> bool {
        self.0 = Some(output);
        true
    }
}

impl ProcedureKeyspace {
    /// The same keyspace with other options for its calls.
    pub fn with_options(&self, options: CallOptions) -> ProcedureKeyspace {
        ProcedureKeyspace { options, ..self.clone() }
    }

    /// The options of its calls.
    pub fn options(&self) -> &CallOptions {
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

    /// Calls a procedure of the set that is registered, and returns its results. `inputs` are in the order of their
    /// declaration.
    ///
    /// ```
    /// # use serried_procedures::Datum;
    /// # use serried_session::{CallError, ProcedureKeyspace};
    /// async fn transfer(bank: &ProcedureKeyspace) -> Result<i64, CallError> {
    ///     let results = bank.call("transfer", [1, 2, 30].map(Datum::Int)).await?;
    ///     match results.get("left") {
    ///         Some(Datum::Int(left)) => Ok(*left),
    ///         other => panic!("`transfer` returns `left`, an integer: {other:?}"),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// See [`CallError`]. Only [`CallError::Unknown`] and [`CallError::Forgotten`] leave open whether it took effect.
    pub async fn call(
        &self,
        procedure: &str,
        inputs: impl Into<Vec<Datum>>,
    ) -> Result<Results, CallError> {
        self.call_counted(procedure, inputs).await.1
    }

    /// As [`ProcedureKeyspace::call`], and also returns how many attempts the call took. A call that meets a conflict with
    /// others is tried again until the deadline.
    pub async fn call_counted(
        &self,
        procedure: &str,
        inputs: impl Into<Vec<Datum>>,
    ) -> (u32, Result<Results, CallError>) {
        let mut attempts = 0;
        let result = self.try_call(None, procedure, inputs.into(), &mut attempts).await;
        (attempts.max(1), result)
    }

    /// As [`ProcedureKeyspace::call`], and tells `noted` the call's id as soon as it has one, or has another one. A program
    /// that writes it down can ask for the [outcome](ProcedureKeyspace::outcome) after it has died. `noted` must not use the
    /// keyspace.
    ///
    /// # Errors
    /// As [`ProcedureKeyspace::call`].
    pub async fn call_noted(
        &self,
        procedure: &str,
        inputs: impl Into<Vec<Datum>>,
        noted: impl Fn(Version) + Send + 'static,
    ) -> Result<Results, CallError> {
        self.try_call(Some(Box::new(noted)), procedure, inputs.into(), &mut 0).await
    }

    async fn try_call(
        &self,
        mut noted: Option<Noted>,
        procedure: &str,
        inputs: Vec<Datum>,
        attempts: &mut u32,
    ) -> Result<Results, CallError> {
        let bytes = inputs.iter().map(Datum::bytes).fold(procedure.len(), usize::saturating_add);
        let limit = self.limits.transaction_bytes;
        let named = || procedure.to_owned();
        if bytes > limit {
            return Err(CallError::TooLarge { procedure: named(), bytes, limit });
        }
        self.check_writable()?;
        let limit = self.port.now() + self.options.deadline;
        let name: Arc<str> = procedure.into();
        let mut age = None;
        let Calling { id, outcome, .. } = loop {
            *attempts += 1;
            let (procedure, inputs) = (name.clone(), inputs.clone());
            let operation = Operation::Call { procedure, inputs, age };
            let began = self.port.now();
            let left = limit.since(began);
            let begun = Calling { noted: noted.take(), ..Calling::default() };
            let mut calling = self.request(begun, operation, true, left).await.unwrap_or_default();
            if calling.outcome != Some(Outcome::Conflict) {
                break calling;
            }
            let took = self.port.now().since(began);
            let wait = self.options.backoff.wait(*attempts, took, self.port.random());
            let resume = self.port.now() + wait;
            if resume >= limit {
                break calling;
            }
            noted = calling.noted.take();
            age = age.or(calling.id);
            self.sleep_until(resume).await;
        };
        let deadline = self.options.deadline;
        let call = || id.expect("a call that may have taken effect has an id");
        Err(match outcome {
            Some(Outcome::Done(results)) => return Ok(results),
            Some(Outcome::Refused(refused)) => CallError::Refused { procedure: named(), refused },
            Some(Outcome::NoSuchProcedure { version, known }) => {
                CallError::NoSuchProcedure { procedure: named(), version, known }
            }
            Some(Outcome::InvalidInputs(invalid)) => CallError::InvalidInputs(invalid),
            Some(Outcome::Unknown) => {
                CallError::Unknown { procedure: named(), call: call(), deadline }
            }
            Some(Outcome::Forgotten) => CallError::Forgotten { call: call() },
            Some(Outcome::ClockSkew { ahead_us }) => CallError::ClockSkew { ahead_us },
            Some(Outcome::Conflict) => {
                CallError::Conflict { procedure: named(), attempts: *attempts, deadline }
            }
            Some(Outcome::NoEffect) | None => self.unavailable(format!("`{procedure}`")),
        })
    }

    /// Finds out how a call ended, for example after [`CallError::Unknown`]. If it has not ended, it is finished first.
    ///
    /// # Errors
    /// [`CallError::Forgotten`] if the servers no longer know. [`CallError::Unavailable`] if too few servers answer before
    /// the deadline; [`CallError::ReadOnly`] if they can't, because a majority of the nodes can't write.
    pub async fn outcome(&self, call: Version) -> Result<CallOutcome, CallError> {
        match self.ask(Operation::Inquire { call }).await {
            Some(Output::Outcome(Outcome::Done(results))) => Ok(CallOutcome::Done(results)),
            Some(Output::Outcome(Outcome::Refused(refused))) => Ok(CallOutcome::Refused(refused)),
            Some(Output::Outcome(
                Outcome::NoEffect
                | Outcome::Conflict
                | Outcome::ClockSkew { .. }
                | Outcome::NoSuchProcedure { .. }
                | Outcome::InvalidInputs(_),
            )) => Ok(CallOutcome::NoEffect),
            Some(Output::Outcome(Outcome::Forgotten)) => Err(CallError::Forgotten { call }),
            _ => Err(self.unavailable(format!("the outcome of call {call}"))),
        }
    }

    /// The set of procedures that is registered.
    ///
    /// # Errors
    /// [`CallError::Unavailable`] if too few servers answer before the deadline; [`CallError::ReadOnly`] if they can't,
    /// because a majority of the nodes can't write.
    pub async fn procedures(&self) -> Result<RegisteredSet, CallError> {
        match self.ask(Operation::List).await {
            Some(Output::Set(version, set)) => Ok(RegisteredSet { version, set }),
            _ => Err(self.unavailable("the list of procedures".to_owned())),
        }
    }

    /// Registers a set of procedures in place of the one that is registered, whichever that is. It was checked by
    /// `serried-chop`. It takes effect when all calls under the former set have ended. Returns its version.
    ///
    /// # Errors
    /// [`CallError::Unfit`] if the set can't replace the registered one. [`CallError::Superseded`] if another registration
    /// is under way. [`CallError::NoMergedPieces`] if a procedure has merged pieces, and the keyspace's protocol has none.
    /// [`CallError::RegistrationUnknown`] if there is no answer before the deadline.
    pub async fn register(&self, set: impl Into<Arc<ProcedureSet>>) -> Result<u64, CallError> {
        self.replace(None, set.into()).await
    }

    /// As [`ProcedureKeyspace::register`], but only in place of the set of this version; 0 if none is registered. So of
    /// two clients that change a set at the same time, one is told of the other.
    ///
    /// # Errors
    /// As [`ProcedureKeyspace::register`]. [`CallError::Superseded`] also if another set is registered.
    pub async fn register_in_place_of(
        &self,
        version: u64,
        set: impl Into<Arc<ProcedureSet>>,
    ) -> Result<u64, CallError> {
        self.replace(Some(version), set.into()).await
    }

    async fn replace(
        &self,
        replaces: Option<u64>,
        set: Arc<ProcedureSet>,
    ) -> Result<u64, CallError> {
        let merged = set.procedures.iter().find(|procedure| !procedure.merged.is_empty());
        if let Some(procedure) = merged.filter(|_| !self.offers.merged) {
            return Err(CallError::NoMergedPieces { procedure: procedure.name.clone() });
        }
        self.check_writable()?;
        match self.ask(Operation::Register { set, replaces }).await {
            Some(Output::Registered(Registration::InUse { version })) => Ok(version),
            Some(Output::Registered(Registration::Superseded { version })) => {
                Err(CallError::Superseded { version })
            }
            Some(Output::Registered(Registration::Unfit(why))) => Err(CallError::Unfit(why)),
            _ => Err(CallError::RegistrationUnknown { deadline: self.options.deadline }),
        }
    }

    fn check_writable(&self) -> Result<(), CallError> {
        match self.port.obstacle() {
            Some(reason) => Err(CallError::ReadOnly { reason }),
            None => Ok(()),
        }
    }

    /// The answer to a question; `None` if there is none before the deadline.
    async fn ask(&self, operation: Operation) -> Option<Output> {
        let answer = self.request(Answered::default(), operation, false, self.options.deadline);
        answer.await.and_then(|Answered(output)| output)
    }

    async fn request<A: Answer<Procedures>>(
        &self,
        answer: A,
        operation: Operation,
        answers_when_given_up: bool,
        deadline: Duration,
    ) -> Option<A> {
        let give_up = Operation::GiveUp;
        Call { operation, give_up, answers_when_given_up, deadline }
            .answer_into(answer, &self.port)
            .await
    }

    /// Why there was no answer in time. Nothing took effect.
    fn unavailable(&self, waiting_for: String) -> CallError {
        match self.port.obstacle() {
            Some(reason) => CallError::ReadOnly { reason },
            None => CallError::Unavailable { waiting_for, deadline: self.options.deadline },
        }
    }
}

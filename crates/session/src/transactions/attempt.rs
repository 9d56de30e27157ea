//! One attempt of a transaction: the values that it has read, and what its current run has done so far.

use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex, MutexGuard};

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use indexmap::map::Entry;
use serried_model::transactions::{Operation, Outcome, Output};
use serried_model::{Key, Limits, ReadStamp, ReadValue, Transactions, Value, Version, Write};

use crate::{Abort, Recipient};

type Writes = IndexMap<Key, Option<Value>, FixedState>;

/// The state that an attempt's program, its session and its driver share.
pub(crate) struct Attempt {
    limits: Limits,
    /// The program must write nothing.
    pub(crate) only_reads: bool,
    /// The version of the transaction's first attempt, if this is another one.
    age: Option<Version>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    version: Option<Version>,
    /// Whether to wake the session as soon as there is a version.
    version_awaited: bool,
    /// Every read of this attempt, by any run. Entries are never removed, so positions stay valid.
    reads: IndexMap<Key, Read, FixedState>,
    run: Run,
    /// Reads that the program has requested and that the coordinator does not have yet, and whether they are for update.
    requests: Vec<(Key, bool)>,
    /// Keys written since writes were last announced to the coordinator.
    unannounced: Vec<Key>,
    signals: Signals,
    waker: Option<Waker>,
    requested_in_re_executions: u32,
}

/// What the current run has done.
#[derive(Clone, Default)]
struct Run {
    number: u32,
    /// Positions in `reads`, in the order in which the run first asked for them.
    reads: Vec<usize>,
    writes: Writes,
    bytes: usize,
    unfit: Option<serried_model::Unfit>,
    /// The key that it wrote although it must write nothing.
    forbidden: Option<Key>,
}

#[derive(Default)]
struct Read {
    found: Option<Found>,
    /// The run that last asked for it.
    asked_by: Option<u32>,
    wakers: Vec<Waker>,
}

/// An answer to a read.
struct Found {
    version: Version,
    value: Option<Value>,
    stamp: u32,
}

/// What has happened to an attempt since its session last looked.
#[derive(Default)]
pub(crate) struct Signals {
    /// Reads of the current run whose value has changed.
    pub rewound: Vec<Key>,
    /// A read of the current run has the same value, but from another version.
    pub refreshed: bool,
    /// The attempt has ended.
    pub outcome: Option<Outcome>,
}

impl Signals {
    fn is_empty(&self) -> bool {
        self.rewound.is_empty() && !self.refreshed && self.outcome.is_none()
    }
}

/// A run's reads and writes up to some point. The run can be restored to it.
#[derive(Clone)]
pub(crate) struct Checkpoint(Run);

impl Attempt {
    pub(crate) fn new(limits: Limits, only_reads: bool, age: Option<Version>) -> Arc<Attempt> {
        Arc::new(Attempt { limits, only_reads, age, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // If it is poisoned, the program has panicked, and its attempt is being rolled back.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What has happened since the last call. `waker` is woken as soon as more happens.
    pub(crate) fn signals(&self, waker: &Waker) -> Option<Signals> {
        let mut state = self.lock();
        match &mut state.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        (!state.signals.is_empty()).then(|| core::mem::take(&mut state.signals))
    }

    /// Forgets what the current run did, and begins the next one.
    pub(crate) fn begin_run(&self) -> u32 {
        let mut state = self.lock();
        let number = state.run.number + 1;
        state.run.reads.clear();
        state.run.writes.clear();
        state.run.bytes = 0;
        state.run.unfit = None;
        state.run.forbidden = None;
        state.run.number = number;
        number
    }

    /// Begins the only run of this attempt, with all its reads and writes.
    pub(crate) fn begin_one_shot(&self, reads: &[Key], writes: &[Write]) {
        let number = self.begin_run();
        let mut state = self.lock();
        let State { reads: held, run, .. } = &mut *state;
        for key in reads {
            if let Entry::Vacant(vacant) = held.entry(key.clone()) {
                run.reads.push(vacant.index());
                vacant.insert(Read { asked_by: Some(number), ..Read::default() });
            }
        }
        let writes = writes.iter().map(|write| (write.key.clone(), write.value.clone()));
        run.writes.extend(writes);
    }

    /// Its first operation.
    pub(crate) fn begin(&self) -> Operation {
        Operation::Begin { only_reads: self.only_reads, age: self.age }
    }

    /// The operations of a one-shot attempt.
    pub(crate) fn whole(&self) -> Vec<Operation> {
        let state = self.lock();
        let reads = state.run_reads().map(|(key, _)| key.clone()).collect();
        vec![self.begin(), Operation::OneShot { reads, writes: state.run_writes() }]
    }

    /// The values of these keys, all of which the run has read.
    pub(crate) fn values(&self, keys: &[Key]) -> Vec<Option<Value>> {
        let state = self.lock();
        let value = |key: &Key| {
            let found = state.reads.get(key).and_then(|read| read.found.as_ref());
            let Some(found) = found else {
                panic!("transaction {:?} committed without the value of `{key}`", state.version)
            };
            found.value.clone()
        };
        keys.iter().map(value).collect()
    }

    /// Saves the current run, so that it can be restored.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint(self.lock().run.clone())
    }

    /// Restores the run to `checkpoint`. What follows counts as a new run.
    pub(crate) fn restore(&self, checkpoint: &Checkpoint) -> u32 {
        let mut state = self.lock();
        let number = state.run.number + 1;
        state.run = checkpoint.0.clone();
        state.run.number = number;
        for position in state.run.reads.clone() {
            state.reads[position].asked_by = Some(number);
        }
        number
    }

    /// A read by run `number`. If the attempt does not have the value, it is requested.
    pub(crate) fn poll_read(
        &self,
        number: u32,
        (key, for_update): (&Key, bool),
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Value>, Abort>> {
        if let Err(error) = self.limits.check_key(key) {
            return Poll::Ready(Err(Abort::unfit(error)));
        }
        let mut state = self.lock();
        let State { reads, run, requests, requested_in_re_executions, .. } = &mut *state;
        if number != run.number {
            return Poll::Pending; // A handle that outlived its run; nobody waits for it.
        }
        if let Some(value) = run.writes.get(key) {
            return Poll::Ready(Ok(value.clone()));
        }
        let known = reads.get_index_of(key);
        if known.is_some() && for_update {
            // It may have been requested otherwise just before.
            let before = requests.iter_mut().filter(|(other, _)| other == key);
            before.for_each(|(_, for_update)| *for_update = true);
        }
        let position = known.unwrap_or_else(|| {
            requests.push((key.clone(), for_update));
            *requested_in_re_executions += u32::from(number > 1);
            reads.insert_full(key.clone(), Read::default()).0
        });
        let read = &mut reads[position];
        if read.asked_by != Some(number) {
            read.asked_by = Some(number);
            run.reads.push(position);
        }
        match &read.found {
            Some(found) => Poll::Ready(Ok(found.value.clone())),
            None => {
                if !read.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                    read.wakers.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// A write by run `number`. If it is over a limit, the end of the run reports that.
    pub(crate) fn write(&self, number: u32, key: Key, value: Option<Value>) {
        let mut state = self.lock();
        let State { run, unannounced, .. } = &mut *state;
        if number != run.number || run.unfit.is_some() {
            return;
        }
        if self.only_reads {
            run.forbidden.get_or_insert(key);
            return;
        }
        let length = |value: &Option<Value>| key.len() + value.as_ref().map_or(0, Value::len);
        run.bytes += length(&value);
        run.bytes -= run.writes.get(&key).map_or(0, length);
        let within = self.limits.check_key(&key).and_then(|()| {
            value.as_ref().map_or(Ok(()), |value| self.limits.check_value(&key, value))?;
            self.limits.check_transaction(&key, run.bytes)
        });
        match within {
            Ok(()) => {
                unannounced.push(key.clone());
                run.writes.insert(key, value);
            }
            Err(error) => run.unfit = Some(error),
        }
    }

    /// The operations of a program that now waits: its new reads, and the writes that other transactions may already
    /// see.
    pub(crate) fn take_operations(&self, operations: &mut Vec<Operation>) {
        let mut state = self.lock();
        let State { run, requests, unannounced, .. } = &mut *state;
        for key in unannounced.drain(..) {
            if let Some(value) = run.writes.get(&key) {
                let value = value.clone();
                operations.push(Operation::Put(Write { key, value }));
            }
        }
        let get = |(key, for_update)| Operation::Get { key, for_update };
        operations.extend(requests.drain(..).map(get));
    }

    /// The commit of the finished run, without its writes if `writes` is false. Returns `None` if one of its reads has
    /// changed in the meantime, so that the program has to run again.
    pub(crate) fn commit(&self, writes: bool) -> Option<Operation> {
        let mut state = self.lock();
        state.unannounced.clear();
        if !state.signals.rewound.is_empty() {
            return None;
        }
        // A read whose future was dropped before the answer came is not part of this run.
        let State { reads, run, .. } = &mut *state;
        run.reads.retain(|position| {
            let read = &mut reads[*position];
            if read.found.is_none() {
                read.asked_by = None;
            }
            read.found.is_some()
        });
        let stamp =
            |(key, found): (&Key, &Found)| ReadStamp { key: key.clone(), stamp: found.stamp };
        let reads = state.answered_reads().map(stamp).collect();
        let writes = match writes {
            true => state.run_writes(),
            false => Vec::new(),
        };
        // The commit carries the latest stamps.
        state.signals.refreshed = false;
        Some(Operation::Commit { reads, writes })
    }

    /// Which limit the current run has exceeded, if any.
    pub(crate) fn unfit(&self) -> Option<serried_model::Unfit> {
        self.lock().run.unfit.clone()
    }

    /// The first key that the current run has written although it must write nothing.
    pub(crate) fn forbidden_write(&self) -> Option<Key> {
        self.only_reads.then(|| self.lock().run.forbidden.clone())?
    }

    /// The version, once the attempt has begun.
    pub(crate) fn version(&self) -> Option<Version> {
        self.lock().version
    }

    /// The version. If there is none yet, the session is woken as soon as there is one.
    pub(crate) fn version_or_wake(&self) -> Option<Version> {
        let mut state = self.lock();
        state.version_awaited = state.version.is_none();
        state.version
    }

    /// Whether the current run has received the answer to a read.
    pub(crate) fn has_read(&self) -> bool {
        self.lock().answered_reads().next().is_some()
    }

    /// Whether the current run has written anything.
    pub(crate) fn has_written(&self) -> bool {
        !self.lock().run.writes.is_empty()
    }

    /// A read of the current run that has not been answered.
    pub(crate) fn unanswered_read(&self) -> Option<Key> {
        let state = self.lock();
        state.run_reads().find(|(_, read)| read.found.is_none()).map(|(key, _)| key.clone())
    }

    /// Everything that the current run has read and written, and how many reads re-executions had to request.
    pub(crate) fn footprint(&self) -> (Vec<ReadValue>, Vec<Write>, u32) {
        let state = self.lock();
        let reads = state.answered_reads().map(|(key, found)| {
            let Found { version, value, stamp } = found;
            ReadValue { key: key.clone(), version: *version, value: value.clone(), stamp: *stamp }
        });
        (reads.collect(), state.run_writes(), state.requested_in_re_executions)
    }
}

impl Recipient<Transactions> for Attempt {
    fn deliver(&self, output: Output) {
        let mut state = self.lock();
        match output {
            Output::Began(version) => {
                state.version = Some(version);
                if !core::mem::take(&mut state.version_awaited) {
                    return;
                }
            }
            Output::Value(read) | Output::Rewind(read) => {
                if !state.learn(read) {
                    return;
                }
            }
            Output::Outcome(outcome) => state.signals.outcome = Some(outcome),
            // These answer questions, and attempts do not ask any.
            Output::Ending(_) | Output::Past(_) => return,
        }
        let waker = state.waker.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    /// Stores a read's new value and version. Returns whether the session has to react.
    fn learn(&mut self, new: ReadValue) -> bool {
        let Some(read) = self.reads.get_mut(&new.key) else { return false };
        for waker in read.wakers.drain(..) {
            waker.wake();
        }
        let used = read.found.is_some() && read.asked_by == Some(self.run.number);
        let same_value = read.found.as_ref().is_some_and(|found| found.value == new.value);
        let ReadValue { version, value, stamp, .. } = new;
        read.found = Some(Found { version, value, stamp });
        if used && same_value {
            self.signals.refreshed = true;
        } else if used {
            self.signals.rewound.push(new.key);
        }
        used
    }

    fn run_reads(&self) -> impl Iterator<Item = (&Key, &Read)> {
        self.run.reads.iter().filter_map(|position| self.reads.get_index(*position))
    }

    fn answered_reads(&self) -> impl Iterator<Item = (&Key, &Found)> {
        self.run_reads().filter_map(|(key, read)| Some((key, read.found.as_ref()?)))
    }

    fn run_writes(&self) -> Vec<Write> {
        let write =
            |(key, value): (&Key, &Option<Value>)| Write { key: key.clone(), value: value.clone() };
        self.run.writes.iter().map(write).collect()
    }
}

//! One attempt of a transaction: the reads it holds, and what its current run has done so far.

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
    /// Its program is to write nothing.
    pub(crate) only_reads: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    version: Option<Version>,
    /// Whether the session is to be woken when there is one.
    version_awaited: bool,
    /// Every read of this attempt, by any run. Entries are never removed, so positions stay good.
    reads: IndexMap<Key, Read, FixedState>,
    run: Run,
    /// Reads asked for and not yet passed to the coordinator.
    requests: Vec<Key>,
    /// Keys written since the coordinator was last told.
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
    /// What it wrote although it was to write nothing.
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
    /// Reads of the current run that now have another value.
    pub rewound: Vec<Key>,
    /// A read of the current run has the same value from another version.
    pub refreshed: bool,
    /// It is over.
    pub outcome: Option<Outcome>,
}

impl Signals {
    fn is_empty(&self) -> bool {
        self.rewound.is_empty() && !self.refreshed && self.outcome.is_none()
    }
}

/// A run's reads and writes up to some point, to which it can be taken back.
#[derive(Clone)]
pub(crate) struct Checkpoint(Run);

impl Attempt {
    pub(crate) fn new(limits: Limits, only_reads: bool) -> Arc<Attempt> {
        Arc::new(Attempt { limits, only_reads, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned state belongs to a program that panicked; its attempt is being rolled back.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What has happened since the last call; `waker` is woken when more does.
    pub(crate) fn signals(&self, waker: &Waker) -> Option<Signals> {
        let mut state = self.lock();
        match &mut state.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        (!state.signals.is_empty()).then(|| core::mem::take(&mut state.signals))
    }

    /// Forgets what the current run did, and begins another.
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

    /// Has the one run of this attempt read and write all of this.
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

    /// The operations of an attempt that does all at once.
    pub(crate) fn whole(&self) -> Vec<Operation> {
        let state = self.lock();
        let reads = state.run_reads().map(|(key, _)| key.clone()).collect();
        let begin = Operation::Begin { only_reads: self.only_reads };
        vec![begin, Operation::OneShot { reads, writes: state.run_writes() }]
    }

    /// What the run has found under these keys, all of which it has read.
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

    /// The current run, to return to.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint(self.lock().run.clone())
    }

    /// Takes the current run back to `checkpoint`, as a run of its own.
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

    /// A read by run `number`; requested if it is not held, and ready once it is.
    pub(crate) fn poll_read(
        &self,
        number: u32,
        key: &Key,
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
        let position = reads.get_index_of(key).unwrap_or_else(|| {
            requests.push(key.clone());
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

    /// A write by run `number`. What is over a limit is reported when the run ends.
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

    /// The operations that the waiting program has asked for: its new reads, and the writes that may
    /// be shown to others.
    pub(crate) fn take_operations(&self, operations: &mut Vec<Operation>) {
        let mut state = self.lock();
        let State { run, requests, unannounced, .. } = &mut *state;
        for key in unannounced.drain(..) {
            if let Some(value) = run.writes.get(&key) {
                let value = value.clone();
                operations.push(Operation::Put(Write { key, value }));
            }
        }
        operations.extend(requests.drain(..).map(|key| Operation::Get { key }));
    }

    /// The commit of the finished run, without its writes if `writes` is false; none if a read of it
    /// has changed in the meantime, so that it has to run again.
    pub(crate) fn commit(&self, writes: bool) -> Option<Operation> {
        let mut state = self.lock();
        state.unannounced.clear();
        if !state.signals.rewound.is_empty() {
            return None;
        }
        // A read that was given up before its answer is none of this run's, whatever comes of it.
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
        // What it carries is the latest.
        state.signals.refreshed = false;
        Some(Operation::Commit { reads, writes })
    }

    /// What was over a limit in the current run.
    pub(crate) fn unfit(&self) -> Option<serried_model::Unfit> {
        self.lock().run.unfit.clone()
    }

    /// What the current run of a program that is to write nothing has written.
    pub(crate) fn forbidden_write(&self) -> Option<Key> {
        self.only_reads.then(|| self.lock().run.forbidden.clone())?
    }

    /// The version, once the attempt has begun.
    pub(crate) fn version(&self) -> Option<Version> {
        self.lock().version
    }

    /// The same; the session is woken once there is one.
    pub(crate) fn version_or_wake(&self) -> Option<Version> {
        let mut state = self.lock();
        state.version_awaited = state.version.is_none();
        state.version
    }

    /// Whether the current run has been given the answer to a read.
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

    /// Everything that the current run has read and written, and how many reads re-executions had
    /// to send for.
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
            // Answers to questions, which no attempt asks.
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
    /// Takes a read's new content in; whether the session has to look at it.
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

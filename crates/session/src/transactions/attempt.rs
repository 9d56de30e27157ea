//! One attempt of a transaction: the values that it has read, and what its current run has done so far.

use core::task::{Context, Poll, Waker, ready};
use std::sync::{Arc, Mutex, MutexGuard};

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use indexmap::map::Entry;
use serried_actor::Timestamp;
use serried_model::transactions::{Operation, Outcome, Output};
use serried_model::{
    Change, Form, Key, Limits, Modification, Modify, ReadStamp, ReadValue, ReportedModify,
    ReportedRead, ReportedWrite, TransactionReport, Transactions, Unfit, Value, Version, Write,
    reported_bytes,
};

use crate::{Abort, Recipient};

pub(super) type Writes = IndexMap<Key, Option<Value>, FixedState>;
pub(super) type Modifies = IndexMap<Key, Vec<Modification>, FixedState>;

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
    /// Whether the servers execute modifications. Otherwise the session reads the keys and writes them.
    modifies: bool,
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
    /// The round of the reads that are requested now.
    round: u32,
    /// Whether a read of this round has been answered. The next request is then of another one.
    round_is_answered: bool,
}

/// What the current run has done.
#[derive(Clone, Default)]
struct Run {
    number: u32,
    /// Positions in `reads`, in the order in which the run first asked for them.
    reads: Vec<usize>,
    writes: Writes,
    /// What is done to keys whose values the run has not looked at. No key is among the writes, too.
    modifies: Modifies,
    /// What was done to keys before the run looked at their values, or wrote them: for results that are awaited later.
    looked_at: Modifies,
    /// Positions in `reads` of the modified keys, if the session executes modifications. The program has not asked for these,
    /// so it need not run again when they change.
    bases: Vec<usize>,
    bytes: usize,
    unfit: Option<Unfit>,
    /// The key that it wrote although it must write nothing.
    forbidden: Option<Key>,
}

#[derive(Default)]
struct Read {
    found: Option<Found>,
    /// The run that last asked for it.
    asked_by: Option<u32>,
    /// The run that last modified the key, if the session executes that.
    base_of: Option<u32>,
    wakers: Vec<Waker>,
    /// When it was requested, among all reads of the attempt, and whether it was for update.
    round: u32,
    /// Whether the program has never asked for it: the session has, to execute modifications.
    is_base_only: bool,
    for_update: bool,
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
    /// A read of the current run has the same value, but from another version; or the session has to execute the run's
    /// modifications.
    pub refreshed: bool,
    /// The attempt has ended.
    pub outcome: Option<Outcome>,
}

impl Signals {
    fn is_empty(&self) -> bool {
        self.rewound.is_empty() && !self.refreshed && self.outcome.is_none()
    }
}

/// How much a modification counts against the limit on transactions.
pub(super) fn modification_bytes(key: &Key, modification: &Modification) -> usize {
    key.len() + modification.value_bytes() + Modify::BYTES_EACH
}

/// What is known of a value before a modification.
pub(crate) enum Before {
    /// This was the value.
    Known(Option<Value>),
    /// The value is what a read finds, after so many modifications of the same run.
    Read(usize),
}

/// A run's reads and writes up to some point. The run can be restored to it.
#[derive(Clone)]
pub(crate) struct Checkpoint(Run);

impl Attempt {
    /// `modifies` is whether the servers execute modifications.
    pub(crate) fn new(
        limits: Limits,
        only_reads: bool,
        age: Option<Version>,
        modifies: bool,
    ) -> Arc<Attempt> {
        let state = Mutex::new(State { modifies, ..State::default() });
        Arc::new(Attempt { limits, only_reads, age, state })
    }

    /// The longest value that may be written, in bytes.
    pub(crate) fn value_bytes(&self) -> usize {
        self.limits.value_bytes
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
        state.run.modifies.clear();
        state.run.looked_at.clear();
        state.run.bases.clear();
        state.run.bytes = 0;
        state.run.unfit = None;
        state.run.forbidden = None;
        state.run.number = number;
        number
    }

    /// Begins the only run of this attempt, with all its reads and writes.
    pub(crate) fn begin_one_shot(&self, reads: &[Key], writes: Writes, modifies: Modifies) {
        let number = self.begin_run();
        let mut state = self.lock();
        let State { reads: held, run, .. } = &mut *state;
        for key in reads {
            if let Entry::Vacant(vacant) = held.entry(key.clone()) {
                run.reads.push(vacant.index());
                vacant.insert(Read { asked_by: Some(number), ..Read::default() });
            }
        }
        (run.writes, run.modifies) = (writes, modifies);
    }

    /// Its first operation.
    pub(crate) fn begin(&self) -> Operation {
        Operation::Begin { only_reads: self.only_reads, age: self.age }
    }

    /// The operations of a one-shot attempt.
    pub(crate) fn whole(&self) -> Vec<Operation> {
        let state = self.lock();
        let reads = state.run_reads().map(|(key, _)| key.clone()).collect();
        let (writes, modifies) = (state.run_writes(), state.run_modifies());
        vec![self.begin(), Operation::OneShot { reads, writes, modifies }]
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
        for position in state.run.bases.clone() {
            let (key, read) = state.reads.get_index_mut(position).expect("reads are never removed");
            // It may have looked at the value since.
            read.base_of = checkpoint.0.modifies.contains_key(key).then_some(number);
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
        let state = &mut *self.lock();
        if let Some(value) = state.run.writes.get(key).filter(|_| number == state.run.number) {
            return Poll::Ready(Ok(value.clone()));
        }
        let for_update = for_update || state.run.modifies.contains_key(key);
        let found = ready!(state.poll_read(number, (key, for_update), cx));
        Poll::Ready(Ok(state.look_at(key, found, &self.limits)))
    }

    /// Reads what run `number` has found in a key after so many modifications of it.
    pub(crate) fn poll_modified(
        &self,
        number: u32,
        (key, modifications): (&Key, usize),
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Value>, Abort>> {
        let state = &mut *self.lock();
        if let Some(error) = state.run.unfit.clone().filter(|_| number == state.run.number) {
            return Poll::Ready(Err(Abort::unfit(error)));
        }
        let found = ready!(state.poll_read(number, (key, true), cx));
        state.look_at(key, found.clone(), &self.limits);
        let made = state.run.looked_at.get(key).map_or(&[][..], Vec::as_slice);
        Poll::Ready(Ok(Modification::apply_all(
            &made[..modifications.min(made.len())],
            found.as_ref(),
        )))
    }

    /// A write by run `number`. If it is over a limit, the end of the run reports that.
    pub(crate) fn write(&self, number: u32, key: Key, value: Option<Value>) {
        let state = &mut *self.lock();
        if self.may_change(number, &key, state) {
            state.forget_modifications(&key);
            state.write(key, value, &self.limits);
        }
    }

    /// A modification by run `number`. Returns what is known of the value before it.
    pub(crate) fn modify(&self, number: u32, key: Key, modification: Modification) -> Before {
        let state = &mut *self.lock();
        if !self.may_change(number, &key, state) {
            return Before::Read(0);
        }
        let known = match state.run.writes.get(&key) {
            Some(written) => Some(written.clone()),
            None => {
                let read = state.reads.get(&key).filter(|read| read.asked_by == Some(number));
                let found = read.and_then(|read| read.found.as_ref());
                let found = found.map(|found| found.value.clone());
                // What the run did to the key before the value was known comes first.
                found.map(|found| state.look_at(&key, found, &self.limits))
            }
        };
        if let Some(value) = known {
            if let Ok(Change::To(new)) = modification.apply(value.as_ref()) {
                state.write(key, new, &self.limits);
            }
            return Before::Known(value);
        }
        let limits = &self.limits;
        state.run.bytes += modification_bytes(&key, &modification);
        let within = limits
            .check_key(&key)
            .and_then(|()| limits.check_value_bytes(&key, modification.value_bytes()))
            .and_then(|()| limits.check_transaction(&key, state.run.bytes));
        if let Err(error) = within {
            state.run.unfit = Some(error);
            return Before::Read(0);
        }
        if !state.modifies {
            state.request_base(&key);
        }
        let modifications = state.run.modifies.entry(key).or_default();
        modifications.push(modification);
        Before::Read(modifications.len() - 1)
    }

    /// Whether run `number` may change a key.
    fn may_change(&self, number: u32, key: &Key, state: &mut State) -> bool {
        let run = &mut state.run;
        if number != run.number || run.unfit.is_some() {
            return false;
        }
        if self.only_reads {
            run.forbidden.get_or_insert_with(|| key.clone());
        }
        !self.only_reads
    }

    /// Whether everything is known that the commit of the finished run needs. If not, the session is woken when more is.
    pub(crate) fn knows_bases(&self) -> bool {
        let state = self.lock();
        state.bases().all(|(_, read)| read.found.is_some())
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
    pub(crate) fn commit(&self, writes: bool) -> Option<(Operation, Option<Unfit>)> {
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
        // The program may have asked for some of them.
        let unasked = |read: &Read| read.asked_by != Some(state.run.number);
        let bases = state.bases().filter(|(_, read)| writes && unasked(read));
        let bases = bases.filter_map(|(key, read)| Some((key, read.found.as_ref()?)));
        let reads = state.answered_reads().chain(bases).map(stamp).collect();
        let (mut writes, modifies) = match writes {
            true if state.modifies => (state.run_writes(), state.run_modifies()),
            true => (state.executed(), Vec::new()),
            false => Default::default(),
        };
        let unfit = self.check_written(&writes).err();
        if unfit.is_some() {
            writes.clear();
        }
        // The commit carries the latest stamps.
        state.signals.refreshed = false;
        Some((Operation::Commit { reads, writes, modifies }, unfit))
    }

    /// What the session writes for modifications may be more than a transaction may write.
    fn check_written(&self, writes: &[Write]) -> Result<(), Unfit> {
        let mut bytes = 0;
        for Write { key, value } in writes {
            bytes += key.len() + value.as_ref().map_or(0, Value::len);
            self.limits.check_transaction(key, bytes)?;
        }
        Ok(())
    }

    /// Which limit the current run has exceeded, if any.
    pub(crate) fn unfit(&self) -> Option<Unfit> {
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
        let run = &self.lock().run;
        !run.writes.is_empty() || !run.modifies.is_empty()
    }

    /// A read of the current run that has not been answered.
    pub(crate) fn unanswered_read(&self) -> Option<Key> {
        let state = self.lock();
        let mut all = state.run_reads().chain(state.bases());
        all.find(|(_, read)| read.found.is_none()).map(|(key, _)| key.clone())
    }

    /// A report of the run, which has committed.
    pub(super) fn report(
        &self,
        (began, ended): (Timestamp, Timestamp),
        attempts: u32,
        is_batch: bool,
    ) -> TransactionReport<Key> {
        let state = self.lock();
        let bytes = |value: &Option<Value>| value.as_ref().map(|value| reported_bytes(value.len()));
        let read = |(key, read): (&Key, &Read)| {
            let bytes = bytes(&read.found.as_ref()?.value);
            let Read { round, for_update, .. } = *read;
            Some(ReportedRead { key: key.clone(), round, for_update, bytes })
        };
        let write = |(key, value)| ReportedWrite { key: Key::clone(key), bytes: bytes(value) };
        let modify = |(key, modifications): (&Key, &Vec<Modification>)| ReportedModify {
            key: key.clone(),
            modifications: modifications.iter().map(Into::into).collect(),
        };
        TransactionReport {
            began_ns: began.0,
            ended_ns: ended.0,
            attempts,
            form: match (is_batch, self.only_reads) {
                (true, _) => Form::Batch,
                (false, true) => Form::ReadOnly,
                (false, false) => Form::Program,
            },
            reads: state.run_reads().filter_map(read).collect(),
            writes: state.run.writes.iter().map(write).collect(),
            modifies: state.run.modifies.iter().map(modify).collect(),
        }
    }

    /// Everything that the current run has read, written and modified, and how many reads re-executions had to request.
    pub(crate) fn footprint(&self) -> (Vec<ReadValue>, Vec<Write>, Vec<Modify>, u32) {
        let state = self.lock();
        let reads = state.answered_reads().map(|(key, found)| {
            let Found { version, value, stamp } = found;
            ReadValue { key: key.clone(), version: *version, value: value.clone(), stamp: *stamp }
        });
        let (writes, modifies) = (state.run_writes(), state.run_modifies());
        (reads.collect(), writes, modifies, state.requested_in_re_executions)
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
        self.round_is_answered |= !read.is_base_only; // The program knows nothing of bases.
        if used && same_value {
            self.signals.refreshed = true;
        } else if used {
            self.signals.rewound.push(new.key);
        }
        // The run stands, and commits what comes of the new value.
        let is_base = read.base_of == Some(self.run.number);
        self.signals.refreshed |= is_base;
        used || is_base
    }

    /// A read by run `number`, as if it had not written the key.
    fn poll_read(
        &mut self,
        number: u32,
        (key, for_update): (&Key, bool),
        cx: &mut Context<'_>,
    ) -> Poll<Option<Value>> {
        if number != self.run.number {
            return Poll::Pending; // A handle that outlived its run; nobody waits for it.
        }
        let position = self.request(key, for_update, true);
        let read = &mut self.reads[position];
        if read.asked_by != Some(number) {
            read.asked_by = Some(number);
            self.run.reads.push(position);
        }
        match &read.found {
            Some(found) => Poll::Ready(found.value.clone()),
            None => {
                if !read.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                    read.wakers.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// The place of a read, which is requested if that was not done before. Only what the program asks for makes rounds.
    fn request(&mut self, key: &Key, for_update: bool, by_program: bool) -> usize {
        let known = self.reads.get_index_of(key);
        let State { reads, run, requests, requested_in_re_executions, round, .. } = self;
        let was_base = known.filter(|place| by_program && reads[*place].is_base_only);
        if by_program && (known.is_none() || was_base.is_some()) {
            *round += u32::from(core::mem::take(&mut self.round_is_answered));
        }
        if let Some(place) = was_base {
            let read = &mut reads[place];
            (read.is_base_only, read.round) = (false, *round);
            self.round_is_answered = read.found.is_some();
        }
        if let Some(place) = known.filter(|_| for_update) {
            // It may have been requested otherwise just before.
            let before = requests.iter_mut().filter(|(other, _)| other == key);
            before.for_each(|(_, for_update)| *for_update = true);
            reads[place].for_update = true;
        }
        known.unwrap_or_else(|| {
            requests.push((key.clone(), for_update));
            *requested_in_re_executions += u32::from(run.number > 1);
            let is_base_only = !by_program;
            let read = Read { round: *round, for_update, is_base_only, ..Read::default() };
            reads.insert_full(key.clone(), read).0
        })
    }

    /// Requests the value of a key that the run modifies.
    fn request_base(&mut self, key: &Key) {
        let position = self.request(key, true, false);
        let read = &mut self.reads[position];
        if read.base_of.replace(self.run.number) != Some(self.run.number) {
            self.run.bases.push(position);
        }
    }

    /// The run looks at the value of a key, so what it does to the key is no modification any more. Returns the value.
    fn look_at(&mut self, key: &Key, found: Option<Value>, limits: &Limits) -> Option<Value> {
        let Some(modifications) = self.forget_modifications(key) else { return found };
        let value = Modification::apply_all(&modifications, found.as_ref());
        if value != found {
            self.write(key.clone(), value.clone(), limits);
        }
        value
    }

    /// The run does not modify a key any more. Returns what it has done.
    fn forget_modifications(&mut self, key: &Key) -> Option<Vec<Modification>> {
        let State { reads, run, .. } = self;
        let modifications = run.modifies.shift_remove(key)?;
        let bytes = modifications.iter().map(|modification| modification_bytes(key, modification));
        run.bytes -= bytes.sum::<usize>();
        if let Some(read) = reads.get_mut(key) {
            read.base_of = None;
        }
        run.looked_at.entry(key.clone()).or_insert_with(|| modifications.clone());
        Some(modifications)
    }

    fn write(&mut self, key: Key, value: Option<Value>, limits: &Limits) {
        let State { run, unannounced, .. } = self;
        let length = |value: &Option<Value>| key.len() + value.as_ref().map_or(0, Value::len);
        run.bytes += length(&value);
        run.bytes -= run.writes.get(&key).map_or(0, length);
        let within = limits.check_key(&key).and_then(|()| {
            value.as_ref().map_or(Ok(()), |value| limits.check_value(&key, value))?;
            limits.check_transaction(&key, run.bytes)
        });
        match within {
            Ok(()) => {
                unannounced.push(key.clone());
                run.writes.insert(key, value);
            }
            Err(error) => run.unfit = Some(error),
        }
    }

    /// The reads that the session needs to execute the run's modifications.
    fn bases(&self) -> impl Iterator<Item = (&Key, &Read)> {
        let bases = self.run.bases.iter().filter_map(|position| self.reads.get_index(*position));
        bases.filter(|(_, read)| read.base_of == Some(self.run.number))
    }

    /// The run's writes, and what its modifications write, given their bases.
    fn executed(&self) -> Vec<Write> {
        let mut writes = self.run_writes();
        for (key, modifications) in &self.run.modifies {
            let found = self.reads.get(key).and_then(|read| read.found.as_ref());
            let Found { value: found, .. } = found.expect("a run ends when its bases are known");
            let value = Modification::apply_all(modifications, found.as_ref());
            if value != *found {
                writes.push(Write { key: key.clone(), value });
            }
        }
        writes
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

    fn run_modifies(&self) -> Vec<Modify> {
        let modify = |(key, modifications): (&Key, &Vec<Modification>)| Modify {
            key: key.clone(),
            modifications: modifications.clone(),
        };
        self.run.modifies.iter().map(modify).collect()
    }
}

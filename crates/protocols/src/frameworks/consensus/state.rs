//! Execution: the effects of commands on a key.

use serde::{Deserialize, Serialize};
use serried_model::{Access, Carstamp, Change, NodeId, Value, Version};
use serried_parts::{Recalled, Results, Stamped};

use super::instance::{Command, Dependencies, InstanceId};
use super::message::{Answer, Found};

/// A replica's state of a key, without its instances. It is the same at all replicas that have
/// executed the same instances, except for `held` and for reads in `last_done`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// The value that the key holds.
    pub held: Stamped,
    /// If there are registers, the result of the last executed read-modify-write (001 §4.3.3).
    pub previous: Stamped,
    /// The executed instances.
    pub executed: Dependencies,
    /// For rows with executed no-ops, the last instance with a command.
    last_done: Vec<InstanceId>,
    /// The results of updates.
    results: Results<Found>,
}

impl State {
    /// The state of a key that holds `value` before the first operation.
    pub(super) fn initial(value: Value) -> State {
        let held = Stamped { value: Some(value), carstamp: Carstamp::INITIAL };
        State { held, ..State::default() }
    }

    /// The executed instances, up to the last one with a command in each row.
    pub(super) fn done(&self) -> Dependencies {
        let mut done = self.executed.clone();
        self.last_done.iter().for_each(|id| *done.row_mut(*id) = id.number);
        done
    }

    /// For rows with executed no-ops, the last instance with a command.
    pub(super) fn last_done(&self) -> &[InstanceId] {
        &self.last_done
    }

    /// The time before which results of updates are forgotten, in microseconds since the Unix
    /// epoch.
    pub(super) fn forgotten_before_us(&self) -> u64 {
        self.results.forgotten_before_us()
    }

    /// Records that an instance with a command was executed.
    pub(super) fn has_done_something(&mut self, id: InstanceId) {
        if let Some(last) = self.last_done.iter_mut().find(|last| last.is_in_row_of(id)) {
            last.number = last.number.max(id.number);
        }
    }

    /// Records that a no-op was executed. `last` is the last instance of its row that was executed
    /// before.
    pub(super) fn has_done_nothing(&mut self, id: InstanceId, last: u64) {
        if !self.last_done.iter().any(|last| last.is_in_row_of(id)) {
            self.last_done.push(InstanceId { number: last, ..id });
            self.last_done.sort_unstable();
        }
    }

    /// Records that all rows have been executed up to `executed`. `last` returns the last executed
    /// instance of a row.
    pub(super) fn are_executed(
        &mut self,
        executed: &Dependencies,
        last: impl Fn(InstanceId) -> u64,
    ) {
        self.executed = executed.clone();
        self.last_done.retain(|done| done.number < last(*done));
    }

    /// Whether all updates that were executed here are among `executed`.
    pub(super) fn has_done_no_update_beyond(&self, executed: &Dependencies) -> bool {
        self.done().updates.iter().zip(&executed.updates).all(|(done, executed)| done <= executed)
    }

    /// Adds the instances that another replica has executed, if that one has executed no update
    /// that is unknown here. `last` is the last executed instance of each row: a no-op may have
    /// been executed before an earlier instance, and must not count as done when that one is
    /// executed. A read that was executed early counts as not done then. That can only hide that it
    /// preceded an update which was not acknowledged at that time.
    pub(super) fn join(&mut self, other: &State, executed: Dependencies, last: &Dependencies) {
        let mut done = self.done();
        if !other.executed.updates.is_empty() {
            done.add(&other.done());
        }
        let beyond = last.ranges(&done).into_iter();
        let last_done = beyond.map(|(last, first)| InstanceId { number: first - 1, ..last });
        self.last_done = last_done.collect();
        self.executed = executed;
    }

    /// Executes a command. An update that was executed before is not executed again. Without a
    /// `base`, the command is executed on the value that the key holds. With a base, the key may
    /// hold a value that no command has written. Then the command is executed on its base or on the
    /// result of the preceding command, whichever is later ([`Stamped::modify`]).
    ///
    /// A `fresh` write is executed although its result may be forgotten: no replica has executed it
    /// before.
    ///
    /// Results are remembered until their clients no longer retry the commands, or for
    /// `remembered_us` by the tokens' times. All replicas execute updates in the same order, so
    /// they remember the same results.
    pub(super) fn execute(
        &mut self,
        command: &Command,
        (base, fresh): (Option<&Stamped>, bool),
        remembered_us: u64,
    ) -> Answer {
        if command.access == Access::Read {
            return Answer::Done(Found(self.held.clone()));
        }
        let Command { token, settled, .. } = *command;
        match self.results.recall_and_settle(token, settled) {
            Recalled::Forgotten if !fresh => return Answer::Forgotten,
            Recalled::Result(found) => return Answer::Done(found),
            Recalled::Nothing | Recalled::Forgotten => {}
        }
        let found = match base {
            None => self.replace(&command.access),
            Some(base) => self.modify(&command.access, base),
        };
        self.results.remember(token, settled, found.clone(), remembered_us);
        Answer::Done(found)
    }

    /// Executes an update if all updates are commands. Then the updates have the commands' order.
    fn replace(&mut self, access: &Access) -> Found {
        let (found, change) = match access {
            Access::Read => (None, Change::None),
            Access::Write(value) => (None, Change::To(value.clone())),
            Access::Modify(modification) => {
                let found = self.held.value.clone();
                let change = modification.apply(found.as_ref()).unwrap_or(Change::None);
                (found, change)
            }
        };
        if let Change::To(value) = change {
            let carstamp = self.held.carstamp.next_write(NodeId(0));
            self.held = Stamped { value, carstamp };
        }
        Found(Stamped { value: found, carstamp: self.held.carstamp })
    }

    fn modify(&mut self, access: &Access, base: &Stamped) -> Found {
        let Access::Modify(modification) = access else {
            unreachable!("only read-modify-writes are commands if there are registers")
        };
        let found = self.previous.modify(base, modification);
        // If it changes nothing, it has read the value that it was executed on. That value must not
        // get lost.
        self.held.hold(&self.previous);
        Found(found)
    }

    /// The known outcome of an update, without executing it.
    pub(super) fn recall(&self, token: Version) -> Recalled<Found> {
        self.results.recall(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::Modification;

    fn token(us: u64, client: u64) -> Version {
        Version { timestamp_us: us, coordinator: NodeId(client) }
    }

    fn add(us: u64, client: u64, settled_us: u64) -> Command {
        let access = Access::Modify(Modification::add(1));
        let settled = token(settled_us, client);
        Command { token: token(us, client), settled, access, brings: Vec::new() }
    }

    fn done(value: Option<&str>, carstamp: Carstamp) -> Answer {
        Answer::Done(Found(Stamped { value: value.map(Value::from), carstamp }))
    }

    fn stamped(value: &str, timestamp: u64, rmwc: u64) -> Stamped {
        let carstamp = Carstamp { timestamp, writer: NodeId(7), rmwc };
        Stamped { value: Some(Value::from(value)), carstamp }
    }

    #[test]
    fn an_update_is_executed_at_most_once() {
        let mut state = State::default();
        let nth = |timestamp| Carstamp { timestamp, ..Carstamp::INITIAL };
        let mut execute = |us, client| state.execute(&add(us, client, 0), (None, false), 50);
        assert_eq!(execute(100, 1), done(None, nth(1)));
        assert_eq!(execute(90, 1), done(Some("1"), nth(2)));
        assert_eq!(execute(100, 1), done(None, nth(1)), "it gets its first result");
        assert_eq!(execute(90, 2), done(Some("2"), nth(3)));
        execute(145, 1);
        assert_eq!(execute(90, 1), Answer::Forgotten);
        assert_eq!(execute(100, 1), done(None, nth(1)));
        assert_eq!(state.held.value, Some(Value::from("4")));
    }

    #[test]
    fn a_read_modify_write_is_executed_on_the_later_of_base_and_last_result() {
        let mut state = State::default();
        let mut execute =
            |us, base: &Stamped| state.execute(&add(us, 1, 0), (Some(base), false), 1000);
        let base = stamped("10", 3, 0);
        assert_eq!(execute(1, &base), done(Some("10"), stamped("", 3, 1).carstamp));
        assert_eq!(execute(2, &base), done(Some("11"), stamped("", 3, 2).carstamp));
        let base = stamped("50", 4, 0);
        assert_eq!(execute(3, &base), done(Some("50"), stamped("", 4, 1).carstamp));
        // A concurrent write that is not the base stays.
        assert!(state.held.hold(&stamped("90", 5, 0)));
        assert_eq!(
            state.execute(&add(4, 1, 0), (Some(&base), false), 1000),
            done(Some("51"), stamped("", 4, 2).carstamp)
        );
        assert_eq!(state.held, stamped("90", 5, 0));
        assert_eq!(state.previous, stamped("52", 4, 2));
    }

    #[test]
    fn an_unchanging_read_modify_write_makes_its_replica_hold_the_value() {
        let mut state = State::default();
        let swap = Modification::CompareAndSwap { expected: None, new: None };
        let command = Command { access: Access::Modify(swap), ..add(1, 1, 0) };
        let base = stamped("10", 3, 0);
        assert_eq!(
            state.execute(&command, (Some(&base), false), 1000),
            done(Some("10"), base.carstamp)
        );
        assert_eq!(state.held, base);
    }
}

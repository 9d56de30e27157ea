//! Execution: what commands do to a key.

use serried_model::{Access, Carstamp, Change, Version};

use super::instance::Command;
use super::message::{Answer, Found, State};

impl State {
    /// Executes a command; an update that was executed before is not executed again. Results are kept for
    /// `remembered_us` by the tokens' times: all replicas execute updates in the same order, so that they
    /// remember the same.
    pub(super) fn execute(&mut self, command: &Command, remembered_us: u64) -> Answer {
        let modification = match &command.access {
            Access::Read => return Answer::Done(Found(self.held.clone())),
            Access::Write(_) => None,
            Access::Modify(modification) => Some(modification),
        };
        if command.token.timestamp_us < self.forgotten_before_us {
            return Answer::Forgotten;
        }
        if let Some(found) = self.result(command.token) {
            return Answer::Done(found.clone());
        }
        let found = self.held.value.clone();
        let change = match (&command.access, modification) {
            (Access::Write(value), _) => Change::To(value.clone()),
            (_, Some(modification)) => modification.apply(found.as_ref()).unwrap_or(Change::None),
            (_, None) => Change::None,
        };
        if let Change::To(value) = change {
            self.held.value = value;
            let timestamp = self.held.carstamp.timestamp + 1;
            self.held.carstamp = Carstamp { timestamp, ..Carstamp::INITIAL };
        }
        let value = if modification.is_some() { found } else { None };
        let found = Found(serried_parts::Stamped { value, carstamp: self.held.carstamp });
        self.remember(command.token, found.clone(), remembered_us);
        Answer::Done(found)
    }

    /// What an update came to.
    pub(super) fn result(&self, token: Version) -> Option<&Found> {
        let at = self.results.binary_search_by_key(&token, |(token, _)| *token).ok()?;
        Some(&self.results[at].1)
    }

    fn remember(&mut self, token: Version, found: Found, remembered_us: u64) {
        let at = self.results.partition_point(|(other, _)| *other < token);
        self.results.insert(at, (token, found));
        let (latest, _) = self.results.last().expect("one was added");
        let before_us = latest.timestamp_us.saturating_sub(remembered_us);
        self.forgotten_before_us = self.forgotten_before_us.max(before_us);
        let forgotten = self.results.partition_point(|(token, _)| token.timestamp_us < before_us);
        self.results.drain(..forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::{Modification, Value};

    #[test]
    fn an_update_is_executed_once_and_too_late_it_is_not_executed_at_all() {
        let mut state = State::default();
        let add =
            |us| Command { token: Version::at(us), access: Access::Modify(Modification::add(1)) };
        let found = |value: Option<&str>, timestamp| {
            let carstamp = Carstamp { timestamp, ..Carstamp::INITIAL };
            let value = value.map(Value::from);
            Answer::Done(Found(serried_parts::Stamped { value, carstamp }))
        };
        assert_eq!(state.execute(&add(100), 50), found(None, 1));
        assert_eq!(state.execute(&add(90), 50), found(Some("1"), 2));
        assert_eq!(state.execute(&add(100), 50), found(None, 1), "it is told what it found then");
        assert_eq!(state.held.value, Some(Value::from("2")));
        state.execute(&add(145), 50);
        assert_eq!(state.execute(&add(90), 50), Answer::Forgotten);
        assert_eq!(state.execute(&add(100), 50), found(None, 1));
        assert_eq!((state.held.value, state.results.len()), (Some(Value::from("3")), 2));
    }
}

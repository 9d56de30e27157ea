//! The first half of a recovery: the home partition chooses which execution may commit, if any.

use super::choose::{Choice, Proposed};
use super::{Action, Recovery, Stage};

impl Recovery {
    /// Continues as far as the answers of home's replicas allow.
    pub(super) fn go_on_at_home(&mut self, actions: &mut Vec<Action>) {
        let (home, majority) = (self.home, self.rules.quorums.majority);
        let instance = self.instances.entry(home).or_default();
        if instance.proposed().is_none() {
            let other = instance.homes().find(|other| *other != home);
            if let Some(other) = other {
                return self.go_home(other, actions);
            }
            match instance.choose(None, self.rules) {
                Choice::Open | Choice::Unresolved => return,
                Choice::Doubtful(eid, contents) => {
                    let participants = &contents.participants;
                    if instance.doubts_for_the_first_time() {
                        actions.push(Action::Ask(home));
                        participants[1..].iter().for_each(|other| self.ask(*other, actions));
                    }
                    return self.go_on_in_doubt(eid, participants, actions);
                }
                Choice::Commit(eid, contents) => instance.propose(Proposed::Commit(eid, contents)),
                Choice::Abandon => instance.propose(Proposed::Abandon(u32::MAX)),
            }
            actions.push(Action::Propose(home));
        }
        match instance.decided(majority).cloned() {
            None => {}
            Some(Proposed::Abandon(_)) => self.end([(home, None)].into(), 0, actions),
            Some(Proposed::Commit(eid, contents)) => self.ask_others(eid, contents, actions),
        }
    }

    /// Another partition turns out to be the home.
    fn go_home(&mut self, home: u16, actions: &mut Vec<Action>) {
        if self.instances.contains_key(&home) {
            return; // That partition was asked and has named another home, so these executions are not real.
        }
        self.home = home;
        self.stage = Stage::Home;
        self.ask(home, actions);
    }
}

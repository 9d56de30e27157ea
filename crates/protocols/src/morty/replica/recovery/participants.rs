//! The second half of a recovery: whether the execution that home has chosen commits in each of the
//! other partitions that take part in it.

use std::sync::Arc;

use super::choose::{Choice, Instance, Proposed, Rules};
use super::{Action, Recovery, Stage};
use crate::morty::message::Contents;

impl Recovery {
    /// Home has chosen this execution.
    pub(super) fn ask_others(
        &mut self,
        eid: u32,
        contents: Arc<Contents>,
        actions: &mut Vec<Action>,
    ) {
        for partition in &contents.participants[1..] {
            self.ask(*partition, actions);
        }
        self.stage = Stage::Others(eid, contents);
        self.go_on_at_others(actions);
    }

    /// Home is in doubt. If another participant abandons the execution, it commits nowhere, whatever home would choose.
    pub(super) fn go_on_in_doubt(
        &mut self,
        eid: u32,
        participants: &[u16],
        actions: &mut Vec<Action>,
    ) {
        for partition in &participants[1..] {
            let instance = self.instances.entry(*partition).or_default();
            if instance.proposed().is_none()
                && instance.choose(Some(eid), self.rules) == Choice::Abandon
            {
                instance.propose(Proposed::Abandon(eid));
                actions.push(Action::Propose(*partition));
            }
            if let Some(Proposed::Abandon(_)) = instance.decided(self.rules.quorums.majority) {
                return self.end_nowhere(eid, participants, actions);
            }
        }
    }

    /// One of the participants has decided to abandon the execution, so it commits in none.
    fn end_nowhere(&mut self, eid: u32, participants: &[u16], actions: &mut Vec<Action>) {
        let nothing = participants.iter().map(|partition| (*partition, None));
        self.end(nothing.collect(), eid, actions);
    }

    /// Continues as far as the answers of the other participants' replicas allow.
    pub(super) fn go_on_at_others(&mut self, actions: &mut Vec<Action>) {
        let Stage::Others(eid, home_contents) = &self.stage else { return };
        let (eid, home_contents) = (*eid, home_contents.clone());
        let participants = &home_contents.participants;
        let mut ends: Vec<(u16, Option<Arc<Contents>>)> =
            vec![(self.home, Some(home_contents.clone()))];
        for partition in &participants[1..] {
            let instance = self.instances.entry(*partition).or_default();
            if instance.proposed().is_none() {
                actions.extend(instance.begin(*partition, eid, self.rules));
            }
            match instance.decided(self.rules.quorums.majority) {
                None => {}
                Some(Proposed::Commit(_, contents)) => {
                    ends.push((*partition, Some(contents.clone())))
                }
                // The transaction commits nowhere, whatever the others decide.
                Some(Proposed::Abandon(_)) => return self.end_nowhere(eid, participants, actions),
            }
        }
        if ends.len() == participants.len() {
            self.end(ends.into_iter().collect(), eid, actions);
        }
    }
}

impl Instance {
    /// Makes the proposal that the answers allow, if they allow one. Returns what is to be sent.
    fn begin(&mut self, partition: u16, chosen: u32, rules: Rules) -> Option<Action> {
        match self.choose(Some(chosen), rules) {
            Choice::Open | Choice::Unresolved => return None,
            Choice::Doubtful(..) => {
                return self.doubts_for_the_first_time().then_some(Action::Ask(partition));
            }
            Choice::Commit(eid, contents) if eid == chosen => {
                self.propose(Proposed::Commit(eid, contents));
            }
            Choice::Commit(..) | Choice::Abandon => self.propose(Proposed::Abandon(chosen)),
        }
        Some(Action::Propose(partition))
    }
}

//! The order in which a key's committed instances are executed (001 §4.3.1, "Execution").

use std::collections::{BTreeMap, BTreeSet};

use super::executed::Executed;
use super::instance::{Dependencies, InstanceId, Status};
use super::rows::Rows;

/// The committed instances of a key that are not executed.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The instances that no search has visited since they were committed, or since the instance
    /// that they waited for was.
    unexamined: Vec<InstanceId>,
    /// The instances that wait for one that is not committed, each with that one.
    blocked: BTreeMap<InstanceId, InstanceId>,
    /// The reverse of `blocked`.
    blocks: BTreeMap<InstanceId, Vec<InstanceId>>,
}

impl Order {
    /// Adds a committed instance.
    pub(super) fn add(&mut self, id: InstanceId) {
        self.unexamined.push(id);
        for waiting in self.blocks.remove(&id).unwrap_or_default() {
            self.blocked.remove(&waiting);
            self.unexamined.push(waiting);
        }
    }

    /// The instances that can be executed now, in order: those that are committed with all of their
    /// dependencies, one strongly connected component after the other, and by sequence number
    /// within each. Also returns the instances that others have just begun to wait for.
    pub(super) fn executable(
        &mut self,
        instances: &Rows,
        executed: &Executed,
    ) -> (Vec<InstanceId>, Vec<InstanceId>) {
        let (mut order, mut missing) = (Vec::new(), Vec::new());
        let mut done = BTreeSet::new();
        for id in core::mem::take(&mut self.unexamined) {
            if executed.cover(id) || self.blocked.contains_key(&id) || done.contains(&id) {
                continue;
            }
            let instance = instances.get(id).expect("a committed instance");
            if instance.attributes.dependencies.are_within(executed.up_to()) {
                done.insert(id);
                order.push(id);
                continue;
            }
            let (found, open) = (BTreeMap::new(), Vec::new());
            let (blocked, done) = (&self.blocked, &mut done);
            let mut search = Search { instances, executed, blocked, done, found, open };
            let blocker = search.run(id, &mut order);
            let open = search.open;
            if let Some(blocker) = blocker {
                for waiting in &open {
                    self.blocked.insert(*waiting, blocker);
                }
                let waiting = self.blocks.entry(blocker).or_default();
                if waiting.is_empty() {
                    missing.push(blocker);
                }
                waiting.extend(open);
            }
        }
        (order, missing)
    }

    /// Records that these instances were executed elsewhere, and their effects were copied.
    /// Instances that waited for one of them can continue.
    pub(super) fn skip(&mut self, executed: &Dependencies) {
        let mut unblocked = Vec::new();
        self.blocks.retain(|id, waiting| {
            let covered = executed.cover(*id);
            if covered {
                unblocked.append(waiting);
            }
            !covered
        });
        self.blocked.retain(|id, _| !executed.cover(*id));
        for id in unblocked {
            self.blocked.remove(&id);
            self.unexamined.push(id);
        }
    }
}

/// Tarjan's search for strongly connected components, without recursion. It ends at the first
/// instance that is not committed, because all open instances lead to that one.
struct Search<'a> {
    instances: &'a Rows,
    executed: &'a Executed,
    /// The instances that earlier searches found to be blocked, with the instances that they wait
    /// for.
    blocked: &'a BTreeMap<InstanceId, InstanceId>,
    /// The instances that earlier searches found to be executable.
    done: &'a mut BTreeSet<InstanceId>,
    /// For each instance, its position in the search and the lowest position that it leads to.
    found: BTreeMap<InstanceId, (usize, usize)>,
    /// The instances that are in no component yet.
    open: Vec<InstanceId>,
}

/// The remaining edges of an instance: for each row, the last instance and the number of the first.
type Edges = Vec<(InstanceId, u64)>;

impl Search<'_> {
    /// Adds the instances that can be executed from `start` on to `order`. Returns the instance
    /// that blocks them, if there is one.
    fn run(&mut self, start: InstanceId, order: &mut Vec<InstanceId>) -> Option<InstanceId> {
        let mut path = vec![(start, self.enter(start))];
        while let Some((id, edges)) = path.last_mut() {
            let id = *id;
            let Some(other) = next(edges) else {
                path.pop();
                self.leave(id, path.last().map(|(parent, _)| *parent), order);
                continue;
            };
            if other == id || self.executed.cover(other) || self.done.contains(&other) {
                continue;
            }
            if let Some((number, _)) = self.found.get(&other).copied() {
                // The instance is open. Otherwise it would be done.
                let low = &mut self.found.get_mut(&id).expect("it was entered").1;
                *low = (*low).min(number);
            } else if let Some(blocker) = self.blocked.get(&other) {
                return Some(*blocker);
            } else if self.instances.get(other).is_some_and(|i| i.status == Status::Committed) {
                let edges = self.enter(other);
                path.push((other, edges));
            } else {
                return Some(other);
            }
        }
        None
    }

    /// Enters an instance, and returns its edges.
    fn enter(&mut self, id: InstanceId) -> Edges {
        let number = self.found.len();
        self.found.insert(id, (number, number));
        self.open.push(id);
        let instance = self.instances.get(id).expect("a committed instance");
        match instance.command {
            Some(_) => instance.attributes.dependencies.ranges(self.executed.up_to()),
            None => Edges::new(),
        }
    }

    /// Leaves an instance after all of its edges were followed.
    fn leave(&mut self, id: InstanceId, parent: Option<InstanceId>, order: &mut Vec<InstanceId>) {
        let (number, low) = self.found[&id];
        if let Some(parent) = parent {
            let theirs = &mut self.found.get_mut(&parent).expect("it was entered").1;
            *theirs = (*theirs).min(low);
        }
        if low == number {
            let at = self.open.iter().rposition(|other| *other == id).expect("it is open");
            let mut component = self.open.split_off(at);
            let sequence = |id: &InstanceId| {
                let instance = self.instances.get(*id).expect("it was entered");
                instance.attributes.sequence
            };
            component.sort_unstable_by_key(|id| (sequence(id), *id));
            self.done.extend(component.iter().copied());
            order.extend(component);
        }
    }
}

/// The next instance that an edge leads to.
fn next(edges: &mut Edges) -> Option<InstanceId> {
    loop {
        let (id, first) = edges.last_mut()?;
        if id.number >= *first {
            let next = *id;
            id.number -= 1;
            return Some(next);
        }
        edges.pop();
    }
}

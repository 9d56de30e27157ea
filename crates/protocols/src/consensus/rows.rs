//! Instances by their numbers.

use std::collections::VecDeque;

use super::instance::{Dependencies, Instance, InstanceId, Kind};

/// The instances of a key that are not forgotten: a row for each coordinator and kind, without great gaps.
#[derive(Debug)]
pub(super) struct Rows {
    members: usize,
    rows: Vec<Row>,
    len: usize,
}

#[derive(Clone, Debug, Default)]
struct Row {
    /// The number of the first.
    first: u64,
    instances: VecDeque<Option<Box<Instance>>>,
}

impl Rows {
    /// None, of a group of so many.
    pub(super) fn new(members: usize) -> Rows {
        Rows { members, rows: vec![Row::default(); 2 * members], len: 0 }
    }

    fn of(&self, id: InstanceId) -> usize {
        let kind = if id.kind == Kind::Update { 0 } else { self.members };
        kind + usize::from(id.member)
    }

    /// What is known of an instance.
    pub(super) fn get(&self, id: InstanceId) -> Option<&Instance> {
        let row = &self.rows[self.of(id)];
        let at = usize::try_from(id.number.checked_sub(row.first)?).ok()?;
        row.instances.get(at)?.as_deref()
    }

    /// The same, to change; there is one of which nothing is known, if there was none.
    pub(super) fn get_mut(&mut self, id: InstanceId) -> &mut Instance {
        let (members, at) = (self.members, self.of(id));
        let row = &mut self.rows[at];
        if row.instances.is_empty() {
            row.first = id.number;
        }
        while id.number < row.first {
            row.instances.push_front(None);
            row.first -= 1;
        }
        let at = (id.number - row.first) as usize;
        if row.instances.len() <= at {
            row.instances.resize(at + 1, None);
        }
        self.len += usize::from(row.instances[at].is_none());
        row.instances[at].get_or_insert_with(|| Box::new(Instance::unknown(members)))
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (InstanceId, &Instance)> {
        let members = self.members;
        self.rows.iter().enumerate().flat_map(move |(at, row)| {
            let kind = if at < members { Kind::Update } else { Kind::Read };
            let member = (at % members) as u8;
            let numbered = (row.first..).zip(&row.instances);
            numbered.filter_map(move |(number, instance)| {
                Some((InstanceId { kind, member, number }, instance.as_deref()?))
            })
        })
    }

    /// Removes those that are covered, in each row up to the first that is to be kept.
    pub(super) fn remove(&mut self, covered: &Dependencies, keep: impl Fn(InstanceId) -> bool) {
        for at in 0..self.rows.len() {
            let kind = if at < self.members { Kind::Update } else { Kind::Read };
            let member = (at % self.members) as u8;
            let row = &mut self.rows[at];
            while !row.instances.is_empty() {
                let id = InstanceId { kind, member, number: row.first };
                if !covered.cover(id) || keep(id) {
                    break;
                }
                let removed = row.instances.pop_front().flatten();
                self.len -= usize::from(removed.is_some());
                row.first += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_come_in_any_order_and_go_from_the_first_on() {
        let mut rows = Rows::new(3);
        let id = |kind, member, number| InstanceId { kind, member, number };
        let ids = [
            id(Kind::Update, 0, 4),
            id(Kind::Update, 0, 7),
            id(Kind::Update, 2, 1),
            id(Kind::Read, 1, 2),
        ];
        for at in [1, 3, 0, 2, 1] {
            rows.get_mut(ids[at]).barred = true;
        }
        assert_eq!(rows.iter().map(|(id, _)| id).collect::<Vec<_>>(), ids);
        assert!(ids.iter().all(|id| rows.get(*id).is_some_and(|instance| instance.barred)));
        for other in [id(Kind::Update, 0, 3), id(Kind::Update, 0, 5), id(Kind::Update, 0, 8)] {
            assert_eq!(rows.get(other), None);
        }
        let mut covered = Dependencies::none(3);
        *covered.row_mut(ids[0]) = 7;
        *covered.row_mut(ids[3]) = 1;
        rows.remove(&covered, |id| id == ids[1]);
        assert_eq!(rows.iter().map(|(id, _)| id).collect::<Vec<_>>(), ids[1..]);
        *covered.row_mut(ids[2]) = 9;
        *covered.row_mut(ids[3]) = 2;
        rows.remove(&covered, |_| false);
        assert!(rows.is_empty());
        rows.get_mut(ids[0]);
        assert!(!rows.is_empty() && rows.get(ids[0]).is_some());
    }
}

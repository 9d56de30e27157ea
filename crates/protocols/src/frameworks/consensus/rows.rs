//! Instances, by their numbers.

use std::collections::VecDeque;

use super::instance::{Dependencies, Instance, InstanceId, Kind};

/// The instances of a key that are not forgotten: a row for each coordinator and kind. An instance
/// takes the same memory even if its number is far from the others: the number may be forged, or
/// this replica may have been away for long.
#[derive(Debug)]
pub(super) struct Rows {
    members: usize,
    rows: Vec<Row>,
    len: usize,
}

/// Instances with their numbers, ascending.
#[derive(Clone, Debug, Default)]
struct Row(VecDeque<(u64, Box<Instance>)>);

impl Row {
    /// The index of an instance, or the index where it would be inserted.
    fn find(&self, number: u64) -> Result<usize, usize> {
        let Some((first, _)) = self.0.front() else { return Err(0) };
        let Some(at) = number.checked_sub(*first) else { return Err(0) };
        // The index if there are no gaps, which is the usual case.
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        match self.0.get(at) {
            Some((found, _)) if *found == number => Ok(at),
            _ => self.0.binary_search_by_key(&number, |(number, _)| *number),
        }
    }
}

impl Rows {
    /// Creates empty rows, in a group of `members`.
    pub(super) fn new(members: usize) -> Rows {
        Rows { members, rows: vec![Row::default(); 2 * members], len: 0 }
    }

    fn of(&self, id: InstanceId) -> usize {
        let kind = if id.kind == Kind::Update { 0 } else { self.members };
        kind + usize::from(id.member)
    }

    /// A known instance.
    pub(super) fn get(&self, id: InstanceId) -> Option<&Instance> {
        let row = &self.rows[self.of(id)];
        Some(&row.0[row.find(id.number).ok()?].1)
    }

    /// Mutable access to an instance. Inserts an unknown one if there is none.
    pub(super) fn get_mut(&mut self, id: InstanceId) -> &mut Instance {
        let (members, at) = (self.members, self.of(id));
        let row = &mut self.rows[at];
        let at = row.find(id.number).unwrap_or_else(|at| {
            row.0.insert(at, (id.number, Box::new(Instance::unknown(members))));
            self.len += 1;
            at
        });
        &mut row.0[at].1
    }

    /// Whether there are no instances.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All instances, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (InstanceId, &Instance)> {
        let members = self.members;
        self.rows.iter().enumerate().flat_map(move |(at, row)| {
            let kind = if at < members { Kind::Update } else { Kind::Read };
            let member = (at % members) as u8;
            row.0.iter().map(move |(number, instance)| {
                (InstanceId { kind, member, number: *number }, &**instance)
            })
        })
    }

    /// Removes covered instances: in each row, up to the first that `keep` retains.
    pub(super) fn remove(&mut self, covered: &Dependencies, keep: impl Fn(InstanceId) -> bool) {
        for at in 0..self.rows.len() {
            let kind = if at < self.members { Kind::Update } else { Kind::Read };
            let member = (at % self.members) as u8;
            let row = &mut self.rows[at];
            while let Some((number, _)) = row.0.front() {
                let id = InstanceId { kind, member, number: *number };
                if !covered.cover(id) || keep(id) {
                    break;
                }
                row.0.pop_front();
                self.len -= 1;
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
            rows.get_mut(ids[at]).recorded = 7;
        }
        assert_eq!(rows.iter().map(|(id, _)| id).collect::<Vec<_>>(), ids);
        assert!(ids.iter().all(|id| rows.get(*id).is_some_and(|instance| instance.recorded == 7)));
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

    #[test]
    fn a_number_that_is_far_off_takes_no_more_memory_than_any() {
        let mut rows = Rows::new(3);
        let id = |number| InstanceId { kind: Kind::Update, member: 1, number };
        for number in [1 << 40, 7, 1 << 60, 8] {
            rows.get_mut(id(number)).recorded = number;
        }
        let found: Vec<u64> = rows.iter().map(|(_, known)| known.recorded).collect();
        assert_eq!(found, [7, 8, 1 << 40, 1 << 60]);
        assert!(rows.rows[1].0.capacity() < 64);
        assert_eq!(rows.get(id(9)), None);
    }
}

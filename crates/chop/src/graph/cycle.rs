//! Unreorderable cycles.

use core::fmt;
use std::collections::VecDeque;

use fixedbitset::FixedBitSet;
use serried_procedures::PieceId;

use super::siblings_and_conflicts::Graph;

/// A cycle of S- and C-edges whose C-edges all join immediate pieces: no order of deferred pieces makes the interleaving
/// that it stands for serializable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cycle {
    /// The way around. Its first and last step belong to one instance; an S-edge between them closes the cycle.
    pub steps: Vec<Step>,
    /// For each procedure of which the cycle has several pieces: its place in the set, its name, and the pieces, which
    /// would have to be merged.
    pub merges: Vec<Merge>,
}

/// A piece on the way, and the edge that leads to the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The name, such as `new_order#2.stock`: a piece of the second instance.
    pub name: String,
    /// The columns because of which it conflicts with the next step; `None` if the next one is its sibling, or if it is
    /// the last.
    pub conflicts: Option<Vec<String>>,
}

/// Pieces of one procedure that would have to be executed as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Merge {
    /// The place of the procedure in its set.
    pub procedure: usize,
    /// Its name.
    pub name: String,
    /// The pieces.
    pub pieces: Vec<PieceId>,
    /// Their names.
    pub names: Vec<String>,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "two concurrent calls, #1 and #2, may interleave in a way that no serial order explains:"
        )?;
        for Step { name, conflicts } in &self.steps {
            match conflicts {
                Some(conflicts) => {
                    writeln!(f, "  {name} conflicts on {} with", conflicts.join(", "))?
                }
                None => writeln!(f, "  {name}, a sibling of")?,
            }
        }
        let first = self.steps.first().map_or("", |step| step.name.as_str());
        write!(f, "  {first}")?;
        for Merge { name, names, .. } in &self.merges {
            write!(
                f,
                "\nmerge the pieces `{}` of `{name}` into one atomic piece",
                names.join("`, `")
            )?;
        }
        Ok(())
    }
}

impl core::error::Error for Cycle {}

/// A shortest unreorderable cycle, if there is one.
pub(super) fn find(graph: &Graph<'_>) -> Option<Cycle> {
    find_path(graph).map(|path| describe(graph, &path))
}

/// The vertices of a shortest unreorderable cycle, if there is one.
///
/// A cycle with edges of both kinds leaves some instance by a C-edge and comes back to another of its vertices by a
/// C-edge; an S-edge of this instance closes it. A shortest one does not pass through the instance in between. So it is
/// enough to search from each vertex along C-edges between immediate pieces and along the S-edges of other instances,
/// until another vertex of the first one's instance is met. The two instances of a procedure are alike, so one of them is
/// enough.
pub(super) fn find_path(graph: &Graph<'_>) -> Option<Vec<usize>> {
    /// There are two C-edges at least, and an S-edge.
    const SHORTEST: usize = 3;
    let mut shortest: Option<Vec<usize>> = None;
    for (from, vertex) in graph.vertices().iter().enumerate() {
        let length = shortest.as_ref().map_or(usize::MAX, Vec::len);
        if length == SHORTEST {
            break;
        }
        if vertex.instance == 0 && graph.instance(from).len() > 1 {
            shortest = search(graph, from, length).or(shortest);
        }
    }
    shortest
}

/// A shortest way of fewer than `limit` vertices from one to another of its instance.
fn search(graph: &Graph<'_>, from: usize, limit: usize) -> Option<Vec<usize>> {
    let mut reached_from: Vec<Option<usize>> = vec![None; graph.vertices().len()];
    let mut reached = FixedBitSet::with_capacity(graph.vertices().len());
    reached.insert(from);
    let mut open = VecDeque::from([(from, 1)]);
    let home = graph.instance(from);
    while let Some((at, length)) = open.pop_front() {
        if length + 1 >= limit {
            return None;
        }
        let mut next = graph.unreorderable(at);
        next.difference_with(&reached);
        for to in next.ones() {
            reached_from[to] = Some(at);
            if home.contains(&to) {
                return Some(path(&reached_from, from, to));
            }
            open.push_back((to, length + 1));
        }
        reached.union_with(&next);
        if home.contains(&at) {
            continue;
        }
        for to in graph.siblings(at) {
            if !reached.put(to) {
                reached_from[to] = Some(at);
                open.push_back((to, length + 1));
            }
        }
    }
    None
}

fn path(reached_from: &[Option<usize>], from: usize, to: usize) -> Vec<usize> {
    let mut path = vec![to];
    while let Some(before) = path.last().filter(|at| **at != from).and_then(|at| reached_from[*at])
    {
        path.push(before);
    }
    path.reverse();
    path
}

fn describe(graph: &Graph<'_>, path: &[usize]) -> Cycle {
    let step = |(at, vertex): (usize, &usize)| {
        let next = path.get(at + 1).filter(|next| !graph.are_siblings(*vertex, **next));
        Step {
            name: graph.name(*vertex),
            conflicts: next.map(|next| graph.conflicts(*vertex, *next)),
        }
    };
    let steps = path.iter().enumerate().map(step).collect();
    let mut merges: Vec<Merge> = Vec::new();
    for (at, one) in path.iter().enumerate() {
        let siblings = path
            .iter()
            .enumerate()
            .filter(|(other, vertex)| *other != at && graph.are_siblings(*one, **vertex));
        if siblings.count() == 0 {
            continue;
        }
        let vertex = &graph.vertices()[*one];
        let declared = &graph.set.procedures[vertex.procedure];
        let found = merges.iter().position(|merge| merge.procedure == vertex.procedure);
        let place = found.unwrap_or_else(|| {
            let (procedure, name) = (vertex.procedure, declared.name.clone());
            merges.push(Merge { procedure, name, pieces: Vec::new(), names: Vec::new() });
            merges.len() - 1
        });
        for piece in &vertex.pieces {
            if !merges[place].pieces.contains(piece) {
                merges[place].pieces.push(*piece);
                merges[place].names.push(declared.pieces[usize::from(piece.0)].name.clone());
            }
        }
    }
    Cycle { steps, merges }
}

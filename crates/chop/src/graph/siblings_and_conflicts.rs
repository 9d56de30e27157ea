//! The graph of siblings and conflicts (SC-graph).

use core::ops::Range;
use std::collections::BTreeMap;
use std::rc::Rc;

use fixedbitset::FixedBitSet;
use serried_procedures::{Multiplicity, PieceId, Procedure, ProcedureSet};

use super::access::Accesses;

/// Each procedure that writes stands in the graph as two instances, and each piece that may occur more than once as two
/// vertices of each instance (Fig. 4). Read-only procedures are not in the graph that is drawn.
pub struct Graph<'s> {
    pub(super) set: &'s ProcedureSet,
    vertices: Vec<Vertex>,
    /// For each vertex, the vertices of its instance.
    instances: Vec<Range<usize>>,
    /// The vertices with which each conflicts, in another instance.
    conflicts: Vec<FixedBitSet>,
    immediate: FixedBitSet,
    accesses: Rc<Accesses>,
}

/// An occurrence of a piece, or of a merged piece, in one of the two instances of its procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vertex {
    /// The place of the procedure in its set.
    pub procedure: usize,
    /// Which of the two instances this is: 0 or 1.
    pub instance: usize,
    /// The piece, or the pieces of a merged one.
    pub pieces: Vec<PieceId>,
    /// Which of two occurrences this is: 0 or 1.
    pub occurrence: usize,
}

impl<'s> Graph<'s> {
    /// The graph of a set whose immediate pieces are marked.
    pub fn new(set: &'s ProcedureSet) -> Graph<'s> {
        Graph::of(set, Rc::new(Accesses::of(set)), |procedure| !procedure.is_read_only())
    }

    /// The graph of those procedures that `stands` chooses. Their accesses are known.
    pub(super) fn of(
        set: &'s ProcedureSet,
        accesses: Rc<Accesses>,
        stands: impl Fn(&Procedure) -> bool,
    ) -> Graph<'s> {
        let (mut vertices, mut instances) = (Vec::new(), Vec::new());
        for (procedure, declared) in
            set.procedures.iter().enumerate().filter(|(_, procedure)| stands(procedure))
        {
            for instance in 0..2 {
                let first = vertices.len();
                for pieces in &declared.merged {
                    vertices.push(Vertex {
                        procedure,
                        instance,
                        pieces: pieces.clone(),
                        occurrence: 0,
                    });
                }
                for (id, piece) in declared.pieces() {
                    if declared.merged.iter().any(|pieces| pieces.contains(&id)) {
                        continue;
                    }
                    let twice =
                        matches!(piece.multiplicity, Multiplicity::ForEach { max, .. } if max > 1);
                    for occurrence in 0..=usize::from(twice) {
                        vertices.push(Vertex { procedure, instance, pieces: vec![id], occurrence });
                    }
                }
                let instance = first..vertices.len();
                instances.extend(instance.clone().map(|_| instance.clone()));
            }
        }
        let conflicts = find_conflicts(&vertices, &instances, &accesses);
        let is_immediate = |Vertex { procedure, pieces, .. }: &Vertex| {
            let declared = &set.procedures[*procedure].pieces;
            pieces.iter().all(|PieceId(id)| declared[usize::from(*id)].immediate)
        };
        let immediate = (0..vertices.len()).filter(|at| is_immediate(&vertices[*at])).collect();
        Graph { set, vertices, instances, conflicts, immediate, accesses }
    }

    /// The vertices.
    pub fn vertices(&self) -> &[Vertex] {
        &self.vertices
    }

    /// The vertices with which the one at this place conflicts.
    pub fn conflicting(&self, at: usize) -> impl Iterator<Item = usize> {
        self.conflicts[at].ones()
    }

    /// The vertices with which the one at this place conflicts so that no order is left to choose: all are immediate.
    pub(super) fn unreorderable(&self, at: usize) -> FixedBitSet {
        let mut found = FixedBitSet::with_capacity(self.vertices.len());
        if self.is_immediate(at) {
            found.union_with(&self.conflicts[at]);
            found.intersect_with(&self.immediate);
        }
        found
    }

    /// All vertices of the instance of the one at this place.
    pub(super) fn instance(&self, at: usize) -> Range<usize> {
        self.instances[at].clone()
    }

    /// The other vertices of the same instance.
    pub fn siblings(&self, at: usize) -> impl Iterator<Item = usize> {
        self.instance(at).filter(move |other| *other != at)
    }

    /// Whether two vertices belong to one instance.
    pub fn are_siblings(&self, one: usize, other: usize) -> bool {
        self.instances[one].contains(&other)
    }

    /// Whether the pieces of a vertex are executed when they are started.
    pub fn is_immediate(&self, at: usize) -> bool {
        self.immediate.contains(at)
    }

    /// The name of a vertex: its procedure and its pieces, with a mark for the second instance and the second occurrence.
    pub fn name(&self, at: usize) -> String {
        let Vertex { procedure, instance, pieces, occurrence } = &self.vertices[at];
        let declared = &self.set.procedures[*procedure];
        let pieces: Vec<&str> = pieces
            .iter()
            .map(|PieceId(id)| declared.pieces[usize::from(*id)].name.as_str())
            .collect();
        let again = if *occurrence == 0 { "" } else { " (again)" };
        format!("{}#{}.{}{again}", declared.name, instance + 1, pieces.join("+"))
    }

    /// The columns because of which two vertices conflict, such as `district.next_order`; a table alone, if a row is
    /// created or deleted.
    pub fn conflicts(&self, one: usize, other: usize) -> Vec<String> {
        let (one, other) = (&self.vertices[one], &self.vertices[other]);
        let mut conflicts = std::collections::BTreeSet::new();
        for piece in &one.pieces {
            for with in &other.pieces {
                conflicts.extend(
                    self.accesses.conflicts((one.procedure, *piece), (other.procedure, *with)),
                );
            }
        }
        let name = |(table, column): &(u16, Option<u16>)| {
            let table = &self.set.tables[usize::from(*table)];
            match column {
                Some(column) => {
                    format!("{}.{}", table.name, table.columns[usize::from(*column)].name)
                }
                None => format!("rows of {}", table.name),
            }
        };
        conflicts.iter().map(name).collect()
    }
}

/// For each vertex, those with which it conflicts in other instances.
fn find_conflicts(
    vertices: &[Vertex],
    instances: &[Range<usize>],
    accesses: &Accesses,
) -> Vec<FixedBitSet> {
    let mut of_piece: BTreeMap<(usize, PieceId), Vec<usize>> = BTreeMap::new();
    for (at, Vertex { procedure, pieces, .. }) in vertices.iter().enumerate() {
        for piece in pieces {
            of_piece.entry((*procedure, *piece)).or_default().push(at);
        }
    }
    // The instances and occurrences of a piece conflict with the same, but for their own instance.
    let mut known: BTreeMap<(usize, PieceId), FixedBitSet> = BTreeMap::new();
    let of_vertex = |(Vertex { procedure, pieces, .. }, instance): (&Vertex, &Range<usize>)| {
        let mut conflicts = FixedBitSet::with_capacity(vertices.len());
        for piece in pieces {
            let place = (*procedure, *piece);
            conflicts.union_with(known.entry(place).or_insert_with(|| {
                let mut conflicts = FixedBitSet::with_capacity(vertices.len());
                for other in accesses.conflicting(place) {
                    of_piece.get(&other).into_iter().flatten().for_each(|at| conflicts.insert(*at));
                }
                conflicts
            }));
        }
        conflicts.remove_range(instance.clone());
        conflicts
    };
    vertices.iter().zip(instances).map(of_vertex).collect()
}

//! The graph of siblings and conflicts (SC-graph).

use serried_procedures::{Multiplicity, PieceId, ProcedureSet};

use super::access::Accesses;

/// Each procedure that writes stands in the graph as two instances, and each piece that may occur more than once as two
/// vertices of each instance (Fig. 4).
pub struct Graph<'s> {
    pub(super) set: &'s ProcedureSet,
    vertices: Vec<Vertex>,
    /// The vertices with which each conflicts, in another instance.
    conflicts: Vec<Vec<usize>>,
    accesses: Accesses,
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

impl Vertex {
    fn is_sibling(&self, other: &Vertex) -> bool {
        (self.procedure, self.instance) == (other.procedure, other.instance)
    }
}

impl<'s> Graph<'s> {
    /// The graph of a set whose immediate pieces are marked.
    pub fn new(set: &'s ProcedureSet) -> Graph<'s> {
        let mut vertices = Vec::new();
        for (procedure, declared) in
            set.procedures.iter().enumerate().filter(|(_, procedure)| !procedure.is_read_only())
        {
            for instance in 0..2 {
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
            }
        }
        let accesses = Accesses::of(set);
        let conflicts = vertices.iter().map(|vertex| {
            let others = vertices.iter().enumerate();
            let conflicting = others.filter(|(_, other)| {
                !vertex.is_sibling(other) && conflict(&accesses, vertex, other)
            });
            conflicting.map(|(at, _)| at).collect()
        });
        Graph { set, conflicts: conflicts.collect(), vertices, accesses }
    }

    /// The vertices.
    pub fn vertices(&self) -> &[Vertex] {
        &self.vertices
    }

    /// The vertices with which the one at this place conflicts.
    pub fn conflicting(&self, at: usize) -> &[usize] {
        &self.conflicts[at]
    }

    /// The other vertices of the same instance.
    pub fn siblings(&self, at: usize) -> impl Iterator<Item = usize> {
        (0..self.vertices.len()).filter(move |other| *other != at && self.are_siblings(at, *other))
    }

    /// Whether two vertices belong to one instance.
    pub fn are_siblings(&self, one: usize, other: usize) -> bool {
        self.vertices[one].is_sibling(&self.vertices[other])
    }

    /// Whether the pieces of a vertex are executed when they are started.
    pub fn is_immediate(&self, at: usize) -> bool {
        let Vertex { procedure, pieces, .. } = &self.vertices[at];
        pieces
            .iter()
            .all(|PieceId(id)| self.set.procedures[*procedure].pieces[usize::from(*id)].immediate)
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

fn conflict(accesses: &Accesses, one: &Vertex, other: &Vertex) -> bool {
    one.pieces.iter().any(|piece| {
        other.pieces.iter().any(|with| {
            !accesses.conflicts((one.procedure, *piece), (other.procedure, *with)).is_empty()
        })
    })
}

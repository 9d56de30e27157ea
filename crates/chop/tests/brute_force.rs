//! The offline checker against all interleavings of small sets of procedures.
//!
//! ROCOCO fixes the order of two conflicting pieces when they are started, if both are immediate, and can choose it
//! otherwise. So an interleaving has no serial order if the conflicts of immediate pieces, in the order in which they are
//! started, form a cycle of transactions. This also holds for read-only procedures that can be ordered. All of their pieces
//! are started in any order.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_chop::{check, check_and_merge};
use serried_procedures::{
    Body, Code, Column, Datum, Field, Multiplicity, Piece, PieceId, Procedure, ProcedureSet,
    RowAccess, Slot, Table, Type, WriteColumn,
};

/// How many pieces the instances of an interleaving have together. More take too long.
const MAX_STARTED: usize = 6;

fn table(at: usize) -> Table {
    Table {
        name: format!("t{at}"),
        key: vec![Field { name: "id".into(), of: Type::Int }],
        placed_by: 1,
        columns: vec![Column { name: "c".into(), of: Type::Int, default: Datum::Int(0) }],
    }
}

fn piece(at: usize, rng: &mut Pcg64Mcg) -> Piece {
    let writes = rng.random_bool(0.7);
    let row = RowAccess {
        table: rng.random_range(0..2),
        key: vec![Code::Constant(Datum::Int(0))],
        known: 1,
        reads: if writes { Vec::new() } else { vec![(0, Slot(0))] },
        exists: None,
    };
    let can_fail = !writes && rng.random_bool(0.1);
    let write = WriteColumn { row: 0, column: 0, to: Code::Constant(Datum::Int(1)) };
    let lists =
        Multiplicity::ForEach { arguments: Vec::new(), lists: Vec::new(), slots: 0, max: 2 };
    Piece {
        name: format!("p{at}"),
        multiplicity: if rng.random_bool(0.2) { lists } else { Multiplicity::Once },
        arguments: Vec::new(),
        argument_types: Vec::new(),
        body: Body {
            rows: vec![row],
            writes: writes.then_some(write).into_iter().collect(),
            slots: 1,
            can_fail,
            ..Body::default()
        },
        after: (0..at as u16).filter(|_| rng.random_bool(0.3)).map(PieceId).collect(),
        needed: rng.random_bool(0.4) || can_fail,
        immediate: false,
    }
}

fn random_set(rng: &mut Pcg64Mcg) -> ProcedureSet {
    let procedure = |at: usize, rng: &mut Pcg64Mcg| Procedure {
        name: format!("f{at}"),
        inputs: Vec::new(),
        pieces: (0..rng.random_range(1..=3)).map(|at| piece(at, rng)).collect(),
        merged: Vec::new(),
        returns: Vec::new(),
        ordered: false,
    };
    let procedures = (0..rng.random_range(1..=2)).map(|at| procedure(at, rng)).collect();
    ProcedureSet { tables: vec![table(0), table(1)], procedures }
}

/// What is executed at once: an occurrence of a piece, or a merged piece with all occurrences of its pieces.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Occurrence(PieceId, usize),
    Merged(usize),
}

impl Unit {
    fn of(procedure: &Procedure, id: PieceId, occurrence: usize) -> Unit {
        let merged = procedure.merged.iter().position(|merged| merged.contains(&id));
        merged.map_or(Unit::Occurrence(id, occurrence), Unit::Merged)
    }

    fn contains(self, procedure: &Procedure, id: PieceId) -> bool {
        match self {
            Unit::Occurrence(piece, _) => piece == id,
            Unit::Merged(merged) => procedure.merged[merged].contains(&id),
        }
    }
}

/// An occurrence of an immediate piece in a running instance.
struct Started {
    instance: usize,
    unit: Unit,
    table: u16,
    writes: bool,
    row: usize,
    /// The pieces that come before those of its unit.
    after: Vec<Unit>,
}

/// The immediate pieces of an instance, each as often as it occurs.
fn started(procedure: &Procedure, instance: usize) -> Vec<Started> {
    let occurrences =
        procedure.pieces().filter(|(_, piece)| piece.immediate).flat_map(|(id, piece)| {
            let count = if piece.multiplicity == Multiplicity::Once { 1 } else { 2 };
            (0..count).map(move |occurrence| (Unit::of(procedure, id, occurrence), piece))
        });
    let occurrences: Vec<(Unit, &Piece)> = occurrences.collect();
    let after = |unit: Unit| {
        if procedure.ordered {
            return Vec::new();
        }
        let own = procedure.pieces().filter(|(id, _)| unit.contains(procedure, *id));
        let before: Vec<PieceId> = own.flat_map(|(_, piece)| before(procedure, piece)).collect();
        let units = occurrences.iter().map(|(unit, _)| *unit);
        units
            .filter(|other| {
                *other != unit && before.iter().any(|id| other.contains(procedure, *id))
            })
            .collect()
    };
    let started = occurrences.iter().map(|(unit, piece)| Started {
        instance,
        unit: *unit,
        table: piece.body.rows[0].table,
        writes: piece.body.writes(),
        row: 0,
        after: after(*unit),
    });
    started.collect()
}

/// All pieces that are started before this one.
fn before(procedure: &Procedure, piece: &Piece) -> Vec<PieceId> {
    let mut all = piece.after.clone();
    for id in &piece.after {
        all.extend(before(procedure, &procedure.pieces[usize::from(id.0)]));
    }
    all
}

/// Whether some interleaving of these pieces has a cycle of conflicts. Tries all rows, and all orders that are possible.
fn has_cycle(pieces: &mut [Started]) -> bool {
    (0..1 << pieces.len()).any(|rows: usize| {
        for (at, piece) in pieces.iter_mut().enumerate() {
            piece.row = rows >> at & 1;
        }
        extend(pieces, &mut Vec::new())
    })
}

/// Extends an interleaving by one unit in all possible ways.
fn extend(pieces: &[Started], order: &mut Vec<usize>) -> bool {
    if order.len() == pieces.len() {
        return is_cyclic(pieces, order);
    }
    let mut stuck = true;
    for next in 0..pieces.len() {
        let Started { instance, unit, after, .. } = &pieces[next];
        let pending = |other: usize| !order.contains(&other) && pieces[other].instance == *instance;
        let waits =
            (0..pieces.len()).any(|other| pending(other) && after.contains(&pieces[other].unit));
        if order.contains(&next) || waits {
            continue;
        }
        let together: Vec<usize> = (0..pieces.len())
            .filter(|other| pending(*other) && pieces[*other].unit == *unit)
            .collect();
        if together[0] != next {
            continue;
        }
        stuck = false;
        let length = order.len();
        order.extend(&together);
        let cyclic = extend(pieces, order);
        order.truncate(length);
        if cyclic {
            return true;
        }
    }
    assert!(!stuck, "the units wait for each other: a merged piece is not executed as a whole");
    false
}

/// Whether the conflicts, in this order, form a cycle of instances. There are at most three.
fn is_cyclic(pieces: &[Started], order: &[usize]) -> bool {
    let mut precedes = [[false; 3]; 3];
    for (at, early) in order.iter().enumerate() {
        for late in &order[at + 1..] {
            let (early, late) = (&pieces[*early], &pieces[*late]);
            let same = early.table == late.table && early.row == late.row;
            precedes[early.instance][late.instance] |=
                early.instance != late.instance && same && (early.writes || late.writes);
        }
    }
    for by in 0..3 {
        for from in 0..3 {
            for to in 0..3 {
                precedes[from][to] |= precedes[from][by] && precedes[by][to];
            }
        }
    }
    (0..3).any(|instance| precedes[instance][instance])
}

/// Whether some two or three concurrent calls have an interleaving without a serial order.
fn is_unserializable(set: &ProcedureSet) -> bool {
    let procedures = set.procedures.len();
    let calls = |count: usize| {
        (0..procedures.pow(count as u32)).map(move |code| {
            (0..count).map(|at| code / procedures.pow(at as u32) % procedures).collect::<Vec<_>>()
        })
    };
    calls(2).chain(calls(3)).filter(|calls| calls.is_sorted()).any(|calls| {
        let ordered = calls.iter().enumerate().filter(|(_, call)| {
            let procedure = &set.procedures[**call];
            procedure.ordered || !procedure.is_read_only()
        });
        let mut pieces: Vec<Started> = ordered
            .flat_map(|(instance, call)| started(&set.procedures[*call], instance))
            .collect();
        pieces.len() <= MAX_STARTED && has_cycle(&mut pieces)
    })
}

/// Whether an immediate piece of an ordered read-only procedure uses what a deferred one writes. It would not see that.
fn reads_deferred(set: &ProcedureSet) -> bool {
    let table = |piece: &Piece| piece.body.rows[0].table;
    let pieces = || set.procedures.iter().flat_map(|procedure| &procedure.pieces);
    let mut reading = set.procedures.iter().filter(|procedure| procedure.ordered);
    reading.any(|procedure| {
        let mut immediate = procedure.pieces.iter().filter(|piece| piece.immediate);
        immediate.any(|piece| {
            let of_table = |other: &&Piece| table(other) == table(piece) && other.body.writes();
            pieces().filter(of_table).any(|other| !other.immediate)
        })
    })
}

#[test]
fn no_accepted_set_has_an_interleaving_without_a_serial_order() {
    let (mut accepted, mut refused, mut needlessly) = (0, 0, 0);
    let (mut read_only, mut ordered) = (0, 0);
    for seed in 0..1_500 {
        let mut set = random_set(&mut Pcg64Mcg::seed_from_u64(seed));
        let mut checked = set.clone();
        let verdict = check(&mut checked);
        let unserializable = is_unserializable(&checked);
        match verdict {
            Ok(()) => {
                accepted += 1;
                assert!(!unserializable, "seed {seed}: accepted {checked:#?}");
                assert!(!reads_deferred(&checked), "seed {seed}: {checked:#?}");
                let reading = checked.procedures.iter().filter(|known| known.is_read_only());
                read_only += reading.clone().count();
                ordered += reading.filter(|known| known.ordered).count();
            }
            Err(cycle) => {
                refused += 1;
                needlessly += usize::from(!unserializable);
                check_and_merge(&mut set);
                assert!(!is_unserializable(&set), "seed {seed}: merged after {cycle}: {set:#?}");
            }
        }
    }
    println!(
        "{accepted} accepted, {refused} refused, {needlessly} of them without a counterexample of this size; {ordered} of \
         {read_only} read-only procedures can be ordered"
    );
    assert!(
        accepted > 300 && refused > 300,
        "the sets are no test: {accepted} accepted, {refused} refused"
    );
    assert!(ordered > 50 && read_only > ordered, "{ordered} of {read_only} can be ordered");
}

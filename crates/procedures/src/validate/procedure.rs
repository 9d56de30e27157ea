//! Validation of procedures: what their pieces and results get, and what a call takes.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::frame::Frame;
use super::{
    Checked, NotCompiled, Shaped, Wrong, at_most, body, check, check_holds, check_name, found,
    order, quoted, shape,
};
use crate::limits::{self, MAX_INPUTS, MAX_LISTS, MAX_OUTPUTS, MAX_PIECES, MAX_RESULTS};
use crate::{Argument, Cost, Multiplicity, Piece, PieceId, Procedure, Returned, Type};

/// Checks a procedure.
pub(super) fn validate(
    procedure: &Procedure,
    tables: &[Shaped<'_>],
    bytes: &[(u64, u64)],
) -> Result<(), NotCompiled> {
    let name = quoted(&procedure.name);
    let here = |wrong: Wrong| wrong.of(format!("procedure {name}"));
    let known = Known::of(procedure).map_err(here)?;
    let (mut pieces, mut other) = (Vec::with_capacity(procedure.pieces.len()), Cost::NONE);
    for piece in &procedure.pieces {
        let (steps, lists) = known.piece(piece, tables).map_err(|wrong| {
            wrong.of(format!("piece {} of procedure {name}", quoted(&piece.name)))
        })?;
        pieces.push((piece.most_occurrences(), steps));
        other = other.and(lists);
    }
    order::validate(procedure).map_err(here)?;
    let mut results = Cost::NONE;
    for returned in &procedure.returns {
        results = known.result(returned, procedure.is_read_only(), results).map_err(|wrong| {
            wrong.of(format!("result {} of procedure {name}", quoted(&returned.field.name)))
        })?;
    }
    let call = limits::check_call(&pieces, other.and(results).steps)
        .and_then(|()| limits::check_data(procedure, bytes));
    call.map_err(|much| here(much.into()))
}

/// The shapes of what the coordinator of a call knows.
struct Known {
    inputs: Vec<Rc<Type>>,
    /// The outputs of each piece, as others see them.
    outputs: Vec<Vec<Rc<Type>>>,
}

impl Known {
    fn of(procedure: &Procedure) -> Checked<Known> {
        let fields = procedure.inputs.iter().chain(procedure.returns.iter().map(|of| &of.field));
        let pieces = procedure.pieces.iter();
        let outputs = pieces.clone().flat_map(|piece| piece.body.outputs.iter().map(|(of, _)| of));
        let names = fields.chain(outputs).map(|field| &field.name);
        let names = names.chain(pieces.map(|piece| &piece.name)).chain([&procedure.name]);
        names.into_iter().try_for_each(|name| check_name(name))?;
        check(!procedure.pieces.is_empty(), || "it has no pieces".to_owned())?;
        at_most(procedure.pieces.len(), MAX_PIECES, "pieces")?;
        at_most(procedure.inputs.len(), MAX_INPUTS, "inputs")?;
        at_most(procedure.returns.len(), MAX_RESULTS, "results")?;
        let inputs = procedure.inputs.iter().map(|input| shape(&input.of));
        let outputs = procedure.pieces.iter().map(|Piece { body, multiplicity, .. }| {
            at_most(body.outputs.len(), MAX_OUTPUTS, "outputs")?;
            let seen = |of: Rc<Type>| match multiplicity {
                Multiplicity::Once => of,
                Multiplicity::ForEach { max, .. } => {
                    Rc::new(Type::List { element: Box::new(Rc::unwrap_or_clone(of)), max: *max })
                }
            };
            body.outputs.iter().map(|(field, _)| shape(&field.of).map(seen)).collect()
        });
        Ok(Known {
            inputs: inputs.collect::<Checked<_>>()?,
            outputs: outputs.collect::<Checked<_>>()?,
        })
    }

    /// The types of arguments, among which may be elements of these types. None is passed twice, because it may be long.
    fn arguments(&self, all: &[Argument], elements: &[Rc<Type>]) -> Checked<Vec<Rc<Type>>> {
        let mut passed = BTreeSet::new();
        for argument in all {
            check(passed.insert(argument), || format!("{argument:?} is an argument twice"))?;
        }
        all.iter().map(|argument| self.argument(*argument, elements)).collect()
    }

    fn argument(&self, argument: Argument, elements: &[Rc<Type>]) -> Checked<Rc<Type>> {
        let known = match argument {
            Argument::Input(at) => self.inputs.get(usize::from(at)).cloned(),
            Argument::Output(PieceId(piece), at) => {
                let outputs = self.outputs.get(usize::from(piece));
                outputs.and_then(|outputs| outputs.get(usize::from(at))).cloned()
            }
            Argument::Element(at) => elements.get(usize::from(at)).cloned(),
            Argument::Index => Some(Rc::new(Type::Int)),
        };
        found(known, || format!("an argument is {argument:?}, which there is not"))
    }

    /// A frame of arguments whose types are not declared.
    fn frame(&self, arguments: &[Argument], slots: u16) -> Checked<Frame> {
        Frame::new(slots, self.arguments(arguments, &[])?)
    }

    /// Checks a piece. Returns how many steps an occurrence takes, and what its lists take.
    fn piece(&self, piece: &Piece, tables: &[Shaped<'_>]) -> Checked<(u64, Cost)> {
        let (elements, lists) = self.elements(&piece.multiplicity)?;
        let Piece { arguments, argument_types, body, .. } = piece;
        check(arguments.len() == argument_types.len(), || {
            format!("{} arguments have {} types", arguments.len(), argument_types.len())
        })?;
        let mut declared = Vec::with_capacity(arguments.len());
        let passed = self.arguments(arguments, &elements)?;
        for (at, (passed, of)) in passed.iter().zip(argument_types).enumerate() {
            let wanted = shape(of)?;
            check_holds(&wanted, passed, || format!("argument {at}"))?;
            declared.push(wanted);
        }
        let cost = body::validate(body, Frame::new(body.slots, declared)?, tables)?;
        cost.check()?;
        let can_fail = lists.fails.or(cost.fails);
        let can_fail = can_fail.or((!body.checks.is_empty()).then_some("it has a check"));
        check(body.can_fail || can_fail.is_none(), || {
            format!("it says that it can't fail: {}", can_fail.unwrap_or_default())
        })?;
        Ok((cost.steps, lists))
    }

    /// The types of the elements that occurrences get, and what computing the lists takes.
    fn elements(&self, multiplicity: &Multiplicity) -> Checked<(Vec<Rc<Type>>, Cost)> {
        let Multiplicity::ForEach { arguments, lists, slots, max } = multiplicity else {
            return Ok((Vec::new(), Cost::NONE));
        };
        at_most(lists.len(), MAX_LISTS, "lists to iterate")?;
        let mut frame = self.frame(arguments, *slots)?;
        let (mut elements, mut cost, mut least) = (Vec::new(), Cost::NONE, None);
        for list in lists {
            let inferred = frame.infer(list)?;
            cost = cost.and(inferred.cost);
            cost.check()?;
            let (element, length) = inferred.list()?;
            least = Some(least.map_or(length, |least: u32| least.min(length)));
            elements.push(Rc::new(element.clone()));
        }
        check(least == Some(*max), || {
            let least =
                least.map_or("no list".to_owned(), |least| format!("at most {least} elements"));
            format!("it occurs up to {max} times and iterates {least}")
        })?;
        Ok((elements, cost))
    }

    /// Checks a result, where those before it take `cost`. Returns what they take with it.
    fn result(
        &self,
        Returned { field, arguments, code, slots }: &Returned,
        is_read_only: bool,
        cost: Cost,
    ) -> Checked<Cost> {
        let inferred = self.frame(arguments, *slots)?.infer(code)?;
        let cost = cost.and(inferred.cost);
        cost.check()?;
        check_holds(&*shape(&field.of)?, &inferred.of, || "the result".to_owned())?;
        check(is_read_only || inferred.cost.fails.is_none(), || {
            let how = inferred.cost.fails.unwrap_or_default();
            format!("it can fail when the call has written: {how}")
        })?;
        Ok(cost)
    }
}

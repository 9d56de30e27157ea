//! Types of the slots of a frame, and of expressions that use them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::{Checked, at_most, check, found};
use crate::limits::{MAX_OPERATIONS, MAX_SLOTS};
use crate::{Code, Inferred, Slot, Type};

/// The slots of a frame that are filled, with their types.
pub(super) struct Frame {
    slots: u16,
    filled: BTreeMap<u16, Rc<Type>>,
    /// Slots that have had elements. A later evaluation may put an element there again, so nothing else may be in them.
    of_elements: BTreeSet<u16>,
    /// How many operations of the expression have been inferred. Their types are in memory together.
    operations: usize,
}

impl Frame {
    /// A frame whose first slots have these arguments.
    pub(super) fn new(slots: u16, arguments: Vec<Rc<Type>>) -> Checked<Frame> {
        at_most(usize::from(slots), MAX_SLOTS, "slots")?;
        check(arguments.len() <= usize::from(slots), || {
            format!("{} arguments are more than {slots} slots", arguments.len())
        })?;
        let filled = (0..slots).zip(arguments).collect();
        Ok(Frame { slots, filled, of_elements: BTreeSet::new(), operations: 0 })
    }

    /// Fills a slot that is not filled. The compiler uses no slot for two purposes.
    pub(super) fn fill(&mut self, slot: Slot, of: Rc<Type>) -> Checked {
        check(!self.of_elements.contains(&slot.0), || {
            format!("slot {} is filled, and elements of lists are put there", slot.0)
        })?;
        self.put(slot, of)
    }

    fn put(&mut self, Slot(at): Slot, of: Rc<Type>) -> Checked {
        check(at < self.slots, || format!("there is no slot {at}; the frame has {}", self.slots))?;
        let before = self.filled.insert(at, of);
        check(before.is_none(), || format!("slot {at} is filled twice"))
    }

    /// Infers the type of an expression, and what it takes.
    pub(super) fn infer(&mut self, code: &Code) -> Checked<Inferred> {
        self.operations = 0;
        self.infer_operand(code)
    }

    fn infer_operand(&mut self, code: &Code) -> Checked<Inferred> {
        self.operations += 1;
        at_most(self.operations, MAX_OPERATIONS, "operations in an expression, or more")?;
        let operands: &[&Code] = match code {
            Code::Constant(_) => &[],
            Code::Slot(Slot(at)) => {
                let of = self.filled.get(at).cloned();
                let of = found(of, || format!("slot {at} is used before it is filled"))?;
                return Ok(Inferred::known(of));
            }
            Code::Field(operand, _)
            | Code::Not(operand)
            | Code::Size(operand)
            | Code::Sum(operand)
            | Code::Left(operand, _)
            | Code::Decimal(operand)
            | Code::Distinct(operand)
            | Code::Flatten(operand) => &[operand],
            Code::Logic(_, left, right)
            | Code::Compare(_, left, right)
            | Code::Arithmetic(_, left, right)
            | Code::Concatenate(left, right)
            | Code::Element(left, right)
            | Code::In(left, right)
            | Code::Range(left, right, _) => &[left, right],
            Code::If(condition, then, otherwise) => &[condition, then, otherwise],
            Code::List(all) | Code::Record(all) => return self.infer_each(code, all),
            Code::Map { list, element, condition, body } => {
                let each = condition.as_deref().into_iter().chain([&**body]);
                return self.infer_iteration(code, list, *element, each);
            }
            Code::Quantify { list, element, condition, .. } => {
                return self.infer_iteration(code, list, *element, [&**condition]);
            }
        };
        self.infer_each(code, operands.iter().copied())
    }

    fn infer_each<'c>(
        &mut self,
        code: &Code,
        operands: impl IntoIterator<Item = &'c Code>,
    ) -> Checked<Inferred> {
        let operands = operands.into_iter().map(|operand| self.infer_operand(operand));
        Ok(code.infer(&operands.collect::<Checked<Vec<_>>>()?)?)
    }

    /// Infers an expression that evaluates `each` for the elements of a list. Before and after, the slot of the element is
    /// not filled.
    fn infer_iteration<'c>(
        &mut self,
        code: &Code,
        list: &Code,
        element: Slot,
        each: impl IntoIterator<Item = &'c Code>,
    ) -> Checked<Inferred> {
        let list = self.infer_operand(list)?;
        let (of, _) = list.list()?;
        self.put(element, Rc::new(of.clone()))?;
        self.of_elements.insert(element.0);
        let mut operands = vec![list];
        for code in each {
            operands.push(self.infer_operand(code)?);
        }
        self.filled.remove(&element.0);
        Ok(code.infer(&operands)?)
    }
}

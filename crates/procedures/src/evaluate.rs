//! Evaluation of compiled expressions.

use core::cmp::Ordering;
use core::fmt;

use crate::{Arithmetic, Code, Comparison, Datum, Logic, Slot};

/// An expression that could not be evaluated. The compiler accepts such an expression only where nothing has been
/// written yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A division by zero, or the remainder of one.
    DivisionByZero,
    /// Data that the compiler has not expected. Compiled expressions and checked arguments never lead to this.
    NotCompiled,
    /// A list has no element at this index.
    NoElement {
        /// The index.
        index: i64,
        /// How many elements the list has.
        length: usize,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::DivisionByZero => f.write_str("division by zero"),
            Failure::NotCompiled => f.write_str("data of types that no compiler has accepted"),
            Failure::NoElement { index, length } => {
                write!(f, "no element {index} in a list of {length}; the first is 0")
            }
        }
    }
}

impl core::error::Error for Failure {}

impl Code {
    /// Evaluates the expression in a frame.
    ///
    /// # Errors
    /// See [`Failure`]. [`Failure::NotCompiled`] if the expression was not compiled for this frame.
    pub fn evaluate(&self, frame: &mut [Datum]) -> Result<Datum, Failure> {
        Ok(match self {
            Code::Constant(datum) => datum.clone(),
            Code::Slot(slot) => slot.get(frame)?.clone(),
            Code::Field(record, at) => match record.existing(frame) {
                Some(record) => field(record, *at)?.clone(),
                None => field(&record.evaluate(frame)?, *at)?.clone(),
            },
            Code::Not(operand) => Datum::Bool(!operand.bool(frame)?),
            Code::Logic(logic, left, right) => {
                let left = left.bool(frame)?;
                let decided = left == logic.deciding();
                Datum::Bool(if decided { left } else { right.bool(frame)? })
            }
            Code::If(condition, then, otherwise) => {
                let branch = if condition.bool(frame)? { then } else { otherwise };
                branch.evaluate(frame)?
            }
            Code::Compare(..) => Datum::Bool(self.bool(frame)?),
            Code::Arithmetic(..) => Datum::Int(self.int(frame)?),
            Code::Concatenate(left, right) => {
                concatenate(&left.evaluate(frame)?, &right.evaluate(frame)?)?
            }
            Code::Size(operand) => Datum::Int(size(&operand.evaluate(frame)?)? as i64),
            Code::Sum(list) => {
                let list = list.evaluate(frame)?;
                let sum = |sum: i64, datum| Ok(sum.saturating_add(int(datum)?));
                Datum::Int(elements(&list)?.iter().try_fold(0, sum)?)
            }
            Code::Element(list, index) => {
                let (list, index) = (list.evaluate(frame)?, index.int(frame)?);
                let elements = elements(&list)?;
                let found = usize::try_from(index).ok().and_then(|at| elements.get(at));
                found.cloned().ok_or(Failure::NoElement { index, length: elements.len() })?
            }
            Code::In(operand, list) => {
                let operand = operand.evaluate(frame)?;
                Datum::Bool(elements(&list.evaluate(frame)?)?.contains(&operand))
            }
            Code::Left(operand, max) => left(operand.evaluate(frame)?, *max as usize),
            Code::Range(from, to, max) => {
                let (from, to) = (from.int(frame)?, to.int(frame)?);
                Datum::list((from..to).take(*max as usize).map(Datum::Int))
            }
            Code::Decimal(operand) => Datum::from(operand.int(frame)?.to_string().as_str()),
            Code::Distinct(list) => distinct(elements(&list.evaluate(frame)?)?),
            Code::Flatten(lists) => {
                let lists = lists.evaluate(frame)?;
                let mut flat = Vec::new();
                for list in elements(&lists)? {
                    flat.extend_from_slice(elements(list)?);
                }
                Datum::List(flat.into())
            }
            Code::List(all) => Datum::List(evaluate_all(all, frame)?.into()),
            Code::Record(all) => Datum::Record(evaluate_all(all, frame)?.into()),
            Code::Map { list, element, condition, body } => {
                let list = list.evaluate(frame)?;
                let elements = elements(&list)?;
                let mut yielded = Vec::with_capacity(elements.len());
                for datum in elements {
                    element.set(frame, datum.clone())?;
                    if condition.as_ref().map_or(Ok(true), |condition| condition.bool(frame))? {
                        yielded.push(body.evaluate(frame)?);
                    }
                }
                Datum::List(yielded.into())
            }
            Code::Quantify { logic, list, element, condition } => {
                let list = list.evaluate(frame)?;
                for datum in elements(&list)? {
                    element.set(frame, datum.clone())?;
                    if condition.bool(frame)? == logic.deciding() {
                        return Ok(Datum::Bool(logic.deciding()));
                    }
                }
                Datum::Bool(!logic.deciding())
            }
        })
    }

    /// The datum, if the frame or the expression has it. Most operands are such, and need no clone.
    pub(crate) fn existing<'f>(&'f self, frame: &'f [Datum]) -> Option<&'f Datum> {
        match self {
            Code::Constant(datum) => Some(datum),
            Code::Slot(slot) => slot.get(frame).ok(),
            Code::Field(record, at) => field(record.existing(frame)?, *at).ok(),
            _ => None,
        }
    }

    /// Evaluates an expression of type `bool`.
    pub(crate) fn bool(&self, frame: &mut [Datum]) -> Result<bool, Failure> {
        if let Code::Compare(comparison, left, right) = self {
            let ordering = match (left.existing(frame), right.existing(frame)) {
                (Some(left), Some(right)) => left.cmp(right),
                _ => left.evaluate(frame)?.cmp(&right.evaluate(frame)?),
            };
            return Ok(comparison.holds(ordering));
        }
        match self.evaluate(frame)? {
            Datum::Bool(bool) => Ok(bool),
            _ => Err(Failure::NotCompiled),
        }
    }

    /// Evaluates an expression of type `int`.
    fn int(&self, frame: &mut [Datum]) -> Result<i64, Failure> {
        if let Code::Arithmetic(operation, left, right) = self {
            return operation.apply(left.int(frame)?, right.int(frame)?);
        }
        match self.existing(frame) {
            Some(datum) => int(datum),
            None => int(&self.evaluate(frame)?),
        }
    }
}

impl Logic {
    /// The operand that decides the result, whatever the others are.
    fn deciding(self) -> bool {
        matches!(self, Logic::Or)
    }
}

impl Comparison {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Comparison::Equal => ordering.is_eq(),
            Comparison::NotEqual => ordering.is_ne(),
            Comparison::Less => ordering.is_lt(),
            Comparison::LessOrEqual => ordering.is_le(),
            Comparison::Greater => ordering.is_gt(),
            Comparison::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

impl Arithmetic {
    fn apply(self, left: i64, right: i64) -> Result<i64, Failure> {
        let divides = matches!(self, Arithmetic::Divide | Arithmetic::Remainder);
        if divides && right == 0 {
            return Err(Failure::DivisionByZero);
        }
        Ok(match self {
            Arithmetic::Add => left.saturating_add(right),
            Arithmetic::Subtract => left.saturating_sub(right),
            Arithmetic::Multiply => left.saturating_mul(right),
            Arithmetic::Divide => left.saturating_div(right),
            Arithmetic::Remainder => left.wrapping_rem(right),
            Arithmetic::Least => left.min(right),
            Arithmetic::Greatest => left.max(right),
        })
    }
}

/// The data of expressions.
pub(crate) fn evaluate_all<'a>(
    all: impl IntoIterator<Item = &'a Code, IntoIter: ExactSizeIterator>,
    frame: &mut [Datum],
) -> Result<Vec<Datum>, Failure> {
    let all = all.into_iter();
    let mut data = Vec::with_capacity(all.len());
    for code in all {
        data.push(code.evaluate(frame)?);
    }
    Ok(data)
}

impl Slot {
    /// What is in the slot.
    pub(crate) fn get(self, frame: &[Datum]) -> Result<&Datum, Failure> {
        frame.get(usize::from(self.0)).ok_or(Failure::NotCompiled)
    }

    /// Puts a datum into the slot.
    pub(crate) fn set(self, frame: &mut [Datum], datum: Datum) -> Result<(), Failure> {
        *frame.get_mut(usize::from(self.0)).ok_or(Failure::NotCompiled)? = datum;
        Ok(())
    }
}

fn int(datum: &Datum) -> Result<i64, Failure> {
    match datum {
        Datum::Int(int) => Ok(*int),
        _ => Err(Failure::NotCompiled),
    }
}

fn elements(datum: &Datum) -> Result<&[Datum], Failure> {
    match datum {
        Datum::List(elements) => Ok(elements),
        _ => Err(Failure::NotCompiled),
    }
}

fn field(datum: &Datum, at: u16) -> Result<&Datum, Failure> {
    match datum {
        Datum::Record(fields) => fields.get(usize::from(at)).ok_or(Failure::NotCompiled),
        _ => Err(Failure::NotCompiled),
    }
}

fn size(datum: &Datum) -> Result<usize, Failure> {
    match datum {
        Datum::String(text) => Ok(text.chars().count()),
        Datum::Bytes(bytes) => Ok(bytes.len()),
        Datum::List(elements) => Ok(elements.len()),
        _ => Err(Failure::NotCompiled),
    }
}

fn concatenate(left: &Datum, right: &Datum) -> Result<Datum, Failure> {
    Ok(match (left, right) {
        (Datum::String(left), Datum::String(right)) => {
            Datum::String([&**left, &**right].concat().into())
        }
        (Datum::Bytes(left), Datum::Bytes(right)) => {
            Datum::Bytes([left.as_bytes(), right.as_bytes()].concat().into())
        }
        (left, right) => Datum::List([elements(left)?, elements(right)?].concat().into()),
    })
}

fn left(datum: Datum, max: usize) -> Datum {
    match datum {
        Datum::String(text) if text.len() > max => {
            let end = (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            Datum::from(&text[..end])
        }
        Datum::Bytes(bytes) if bytes.len() > max => Datum::Bytes(bytes.as_bytes()[..max].into()),
        short => short,
    }
}

/// Finds repeated elements in a sorted list of references.
fn distinct(elements: &[Datum]) -> Datum {
    let mut kept: Vec<Datum> = Vec::new();
    let mut sorted: Vec<&Datum> = Vec::new();
    for datum in elements {
        if let Err(at) = sorted.binary_search(&datum) {
            sorted.insert(at, datum);
            kept.push(datum.clone());
        }
    }
    Datum::List(kept.into())
}

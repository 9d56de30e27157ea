//! Types of expressions, and bounds of what they take.
//!
//! The compiler asks for them when it makes an operation, and servers when they validate a set. So both know the same.

use core::fmt;
use std::rc::Rc;

use crate::cost::BYTES_A_STEP;
use crate::{Arithmetic, Code, Cost, Datum, Field, Type};

/// What is known of an expression before it is evaluated.
#[derive(Clone, Debug)]
pub struct Inferred {
    /// Its type, with the greatest size that its datum may have.
    pub of: Rc<Type>,
    /// What its evaluation takes at most.
    pub cost: Cost,
}

/// An operation on an operand that it does not take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistyped {
    /// Which operand is wrong, from 0, if it is one alone.
    pub operand: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Mistyped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for Mistyped {}

impl Mistyped {
    fn whole(message: impl Into<String>) -> Mistyped {
        Mistyped { operand: None, message: message.into() }
    }
}

impl Inferred {
    /// A datum that exists already, such as that of a slot.
    pub fn known(of: Rc<Type>) -> Inferred {
        Inferred { of, cost: Cost::STEP }
    }

    /// The type of the elements of a list, and the greatest number of them.
    ///
    /// # Errors
    /// If it is no list.
    pub fn list(&self) -> Result<(&Type, u32), Mistyped> {
        match &*self.of {
            Type::List { element, max } => Ok((element, *max)),
            of => Err(needs(of, "a list")),
        }
    }
}

fn needs(of: &Type, wanted: impl fmt::Display) -> Mistyped {
    Mistyped::whole(format!("this is {of}, and {wanted} is needed here"))
}

/// Checks that an operand is of a type without a size.
fn expect(operands: &[Inferred], at: usize, wanted: &Type) -> Result<(), Mistyped> {
    let of = &*operands[at].of;
    if of == wanted { Ok(()) } else { Err(Mistyped { operand: Some(at), ..needs(of, wanted) }) }
}

fn list(operands: &[Inferred], at: usize) -> Result<(&Type, u32), Mistyped> {
    operands[at].list().map_err(|wrong| Mistyped { operand: Some(at), ..wrong })
}

fn list_of(element: &Type, max: u32) -> Type {
    Type::List { element: Box::new(element.clone()), max }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Code {
    /// Infers the type of the outermost operation, and what the whole expression takes, from what is known of the operands.
    /// These are in the order of the variant's fields. What is in a slot is known to the frame: see [`Inferred::known`].
    ///
    /// Fields of a [`Code::Record`] get no names. Types are compared with their names. So either all types of an expression
    /// have the names that they were declared with, or none has any ([`Type::shape`]).
    ///
    /// # Errors
    /// If the operation does not take such operands, or if the type is too large.
    pub fn infer(&self, operands: &[Inferred]) -> Result<Inferred, Mistyped> {
        let (of, cost) = self.infer_unbounded(operands)?;
        of.check_size().map_err(|much| Mistyped::whole(much.to_string()))?;
        Ok(Inferred { of, cost })
    }

    fn infer_unbounded(&self, operands: &[Inferred]) -> Result<(Rc<Type>, Cost), Mistyped> {
        let cost = operands.iter().fold(Cost::STEP, |cost, operand| cost.and(operand.cost));
        let typed = |of: Type, cost: Cost| Ok((Rc::new(of), cost));
        let allocated = |of: Type| {
            let cost = cost.and_datum(&of);
            typed(of, cost)
        };
        match (self, operands) {
            (Code::Constant(datum), []) => typed(scalar(datum)?, cost),
            (Code::Field(_, at), [record]) => {
                let Type::Record(fields) = &*record.of else {
                    return Err(Mistyped { operand: Some(0), ..needs(&record.of, "a record") });
                };
                let field = fields.get(usize::from(*at));
                let none = || Mistyped::whole(format!("there is no field {at} in {}", record.of));
                typed(field.ok_or_else(none)?.of.clone(), cost)
            }
            (Code::Not(_), [_]) => {
                expect(operands, 0, &Type::Bool)?;
                typed(Type::Bool, cost)
            }
            (Code::Logic(..), [_, _]) => {
                expect(operands, 0, &Type::Bool)?;
                expect(operands, 1, &Type::Bool)?;
                typed(Type::Bool, cost)
            }
            (Code::If(..), [_, then, otherwise]) => {
                expect(operands, 0, &Type::Bool)?;
                let joined = join(&then.of, &otherwise.of).ok_or_else(|| {
                    let (then, otherwise) = (&then.of, &otherwise.of);
                    Mistyped::whole(format!(
                        "one branch is {then} and the other {otherwise}; they need one type"
                    ))
                });
                Ok((joined?, cost))
            }
            (Code::Compare(..), [left, right]) => {
                let (left, right) = (&left.of, &right.of);
                if join(left, right).is_none() {
                    return Err(Mistyped::whole(format!("{left} and {right} can't be compared")));
                }
                let compared = left.max_bytes().min(right.max_bytes());
                typed(Type::Bool, cost.and_steps(compared / BYTES_A_STEP))
            }
            (Code::Arithmetic(operation, _, right), [_, _]) => {
                expect(operands, 0, &Type::Int)?;
                expect(operands, 1, &Type::Int)?;
                let divides = matches!(operation, Arithmetic::Divide | Arithmetic::Remainder);
                let known = matches!(**right, Code::Constant(Datum::Int(divisor)) if divisor != 0);
                let how = "it divides by what may be zero; a literal other than 0 can't be";
                typed(Type::Int, if divides && !known { cost.failing(how) } else { cost })
            }
            (Code::Concatenate(..), [left, right]) => {
                allocated(concatenation(&left.of, &right.of)?)
            }
            (Code::Size(_), [operand]) => {
                let counted = match &*operand.of {
                    Type::String { max } => u64::from(*max),
                    Type::Bytes { .. } | Type::List { .. } => 0,
                    of => return Err(Mistyped::whole(format!("{of} has no size"))),
                };
                typed(Type::Int, cost.and_steps(counted / BYTES_A_STEP))
            }
            (Code::Sum(_), [_]) => match list(operands, 0)? {
                (Type::Int, max) => typed(Type::Int, cost.and_steps(u64::from(max))),
                (element, _) => Err(not_applied("sum", element)),
            },
            (Code::Element(..), [_, _]) => {
                let (element, _) = list(operands, 0)?;
                expect(operands, 1, &Type::Int)?;
                let how = "it takes an element of a list that may be too short; `for_each` over several lists can't fail";
                typed(element.clone(), cost.failing(how))
            }
            (Code::In(..), [operand, _]) => {
                let (element, max) = list(operands, 1)?;
                if max > 0 && operand.of.join(element).is_none() {
                    let message = format!("a list of {element} has no {}", operand.of);
                    return Err(Mistyped::whole(message));
                }
                let each = 1 + element.max_bytes() / BYTES_A_STEP;
                typed(Type::Bool, cost.and_steps(u64::from(max).saturating_mul(each)))
            }
            (Code::Left(_, length), [text]) => match &*text.of {
                Type::String { max } => allocated(Type::String { max: *max.min(length) }),
                Type::Bytes { max } => allocated(Type::Bytes { max: *max.min(length) }),
                of => Err(Mistyped { operand: Some(0), ..needs(of, "a string") }),
            },
            (Code::Range(_, _, most), [_, _]) => {
                expect(operands, 0, &Type::Int)?;
                expect(operands, 1, &Type::Int)?;
                allocated(list_of(&Type::Int, *most))
            }
            (Code::Decimal(_), [_]) => {
                expect(operands, 0, &Type::Int)?;
                // The longest is the least: 19 digits and a sign.
                allocated(Type::String { max: 20 })
            }
            (Code::Distinct(_), [operand]) => {
                let (element, max) = list(operands, 0)?;
                let max = u64::from(max);
                // A search by halves for each, and a move of what is larger.
                let search = (1 + element.max_bytes() / BYTES_A_STEP).saturating_mul(16);
                let cost = cost.and_steps(max.saturating_mul(search.saturating_add(max / 8)));
                Ok((operand.of.clone(), cost.and_datum(&operand.of)))
            }
            (Code::Flatten(_), [_]) => match list(operands, 0)? {
                (Type::List { element, max: inner }, max) => {
                    let of = list_of(element, max.saturating_mul(*inner));
                    let cost = cost.and_datum(&of).and_steps(u64::from(max));
                    typed(of, cost)
                }
                (element, _) => Err(not_applied("flatten", element)),
            },
            (Code::List(_), elements) => {
                allocated(list_of(&*joined(elements)?, length(elements.len())))
            }
            (Code::Record(_), values) => {
                let field =
                    |value: &Inferred| Field { name: String::new(), of: (*value.of).clone() };
                allocated(Type::Record(values.iter().map(field).collect()))
            }
            (Code::Map { condition, .. }, [of, each @ .., body])
                if each.len() == usize::from(condition.is_some()) =>
            {
                let (_, max) = list(operands, 0)?;
                if condition.is_some() {
                    expect(operands, 1, &Type::Bool)?;
                }
                let each = each.iter().fold(body.cost, |cost, condition| cost.and(condition.cost));
                let cost = Cost::STEP.and(of.cost).and(each.times(max));
                let of = list_of(&body.of, max);
                let cost = cost.and_datum(&of);
                typed(of, cost)
            }
            (Code::Quantify { .. }, [of, condition]) => {
                let (_, max) = list(operands, 0)?;
                expect(operands, 1, &Type::Bool)?;
                typed(Type::Bool, Cost::STEP.and(of.cost).and(condition.cost.times(max)))
            }
            _ => Err(Mistyped::whole("too many or too few operands are known")),
        }
    }
}

/// The compiler makes lists and records of their parts.
fn scalar(datum: &Datum) -> Result<Type, Mistyped> {
    match datum {
        Datum::Bool(_) => Ok(Type::Bool),
        Datum::Int(_) => Ok(Type::Int),
        Datum::String(text) => Ok(Type::String { max: length(text.len()) }),
        Datum::Bytes(bytes) => Ok(Type::Bytes { max: length(bytes.len()) }),
        Datum::List(_) | Datum::Record(_) => {
            Err(Mistyped::whole(format!("a constant is a {}", datum.kind())))
        }
    }
}

fn concatenation(left: &Type, right: &Type) -> Result<Type, Mistyped> {
    match (left, right) {
        (Type::String { max }, Type::String { max: other }) => {
            Ok(Type::String { max: max.saturating_add(*other) })
        }
        (Type::Bytes { max }, Type::Bytes { max: other }) => {
            Ok(Type::Bytes { max: max.saturating_add(*other) })
        }
        (Type::List { max, .. }, Type::List { max: other, .. }) => match left.join(right) {
            Some(Type::List { element, .. }) => {
                Ok(Type::List { element, max: max.saturating_add(*other) })
            }
            _ => Err(Mistyped::whole("lists are joined if their elements have one type")),
        },
        (left, right) => Err(Mistyped::whole(format!("{left} and {right} can't be added"))),
    }
}

/// The type that holds the data of both. Most types are those of the same slots, or hold each other, and are not made anew.
fn join(left: &Rc<Type>, right: &Rc<Type>) -> Option<Rc<Type>> {
    match Rc::ptr_eq(left, right) || left.holds(right) {
        true => Some(left.clone()),
        false => left.join(right).map(Rc::new),
    }
}

/// The type that holds all elements of a list.
fn joined(elements: &[Inferred]) -> Result<Rc<Type>, Mistyped> {
    let Some((first, others)) = elements.split_first() else { return Ok(Rc::new(Type::Bool)) };
    others.iter().try_fold(first.of.clone(), |of, other| {
        join(&of, &other.of).ok_or_else(|| Mistyped::whole("the elements of a list have one type"))
    })
}

fn not_applied(name: &str, element: &Type) -> Mistyped {
    Mistyped::whole(format!("`{name}` can't be applied to a list of {element}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Slot;

    const DATUM: u64 = size_of::<Datum>() as u64;

    /// The steps of an operation on data that exist, and the bytes that it allocates.
    fn cost(code: &Code, operands: &[&Type]) -> (u64, u64) {
        let known = |of: &&Type| Inferred::known(Rc::new((*of).clone()));
        let operands: Vec<Inferred> = operands.iter().map(known).collect();
        let cost = code.infer(&operands).unwrap().cost;
        (cost.steps - operands.len() as u64 - 1, cost.bytes)
    }

    #[test]
    fn what_is_looked_at_and_copied_costs_steps() {
        let slot = || Box::new(Code::Slot(Slot(0)));
        let (text, long) = (Type::String { max: 640 }, Type::String { max: 6_400 });
        let (ints, texts) = (list_of(&Type::Int, 100), list_of(&text, 100));
        let compare = Code::Compare(crate::Comparison::Equal, slot(), slot());
        assert_eq!(cost(&compare, &[&text, &long]), ((640 + DATUM) / 64, 0));
        assert_eq!(cost(&Code::Size(slot()), &[&text]), (10, 0));
        assert_eq!(cost(&Code::Size(slot()), &[&texts]), (0, 0));
        assert_eq!(cost(&Code::Sum(slot()), &[&ints]), (100, 0));
        assert_eq!(cost(&Code::In(slot(), slot()), &[&Type::Int, &ints]), (100, 0));
        let each = 1 + (640 + DATUM) / 64;
        assert_eq!(cost(&Code::In(slot(), slot()), &[&text, &texts]), (100 * each, 0));
        let bytes = 101 * DATUM;
        assert_eq!(cost(&Code::Distinct(slot()), &[&ints]), (100 * 28 + bytes / 64, bytes));
        let bytes = 101 * (640 + DATUM) - 640;
        let search = 16 * each + 100 / 8;
        assert_eq!(cost(&Code::Distinct(slot()), &[&texts]), (100 * search + bytes / 64, bytes));
        let empty = list_of(&list_of(&Type::Int, 0), 6_400);
        assert_eq!(cost(&Code::Flatten(slot()), &[&empty]), (6_400 + DATUM / 64, DATUM));
        let bytes = 7_040 + DATUM;
        assert_eq!(cost(&Code::Concatenate(slot(), slot()), &[&text, &long]), (bytes / 64, bytes));
    }
}

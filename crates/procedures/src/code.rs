//! Compiled expressions.

use serde::{Deserialize, Serialize};

use crate::Datum;
use crate::nested::nested;

/// A place in the frame of a body: its arguments come first, then the columns that it reads, then what it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Slot(pub u16);

/// A compiled expression.
///
/// The compiler has checked the types of all operands. So evaluation fails only where a variant says so, and the
/// compiler knows of each expression whether it can fail.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum Code {
    /// A datum that is known when the body is compiled.
    Constant(Datum),
    /// What is in a slot of the frame.
    Slot(Slot),
    /// A field of a record, by its place.
    Field(Box<Code>, u16),
    /// `!operand`
    Not(Box<Code>),
    /// `left && right` or `left || right`; the right operand is evaluated only if it matters.
    Logic(Logic, Box<Code>, Box<Code>),
    /// `condition ? then : otherwise`
    If(Box<Code>, Box<Code>, Box<Code>),
    /// A comparison of two data of one type.
    Compare(Comparison, Box<Code>, Box<Code>),
    /// An operation on two integers. **Fails** if it divides by zero.
    Arithmetic(Arithmetic, Box<Code>, Box<Code>),
    /// `left + right` of two strings, byte strings or lists.
    Concatenate(Box<Code>, Box<Code>),
    /// How many elements a list has, characters a string, or bytes a byte string.
    Size(Box<Code>),
    /// The sum of a list of integers; saturates.
    Sum(Box<Code>),
    /// The element at an index that counts from 0. **Fails** if there is none.
    Element(Box<Code>, Box<Code>),
    /// Whether a list has an element that equals the first operand.
    In(Box<Code>, Box<Code>),
    /// The first bytes of a string, at most as many as given, without cutting a character.
    Left(Box<Code>, u32),
    /// The integers from the first operand to the one before the second; at most as many as given.
    Range(Box<Code>, Box<Code>, u32),
    /// The decimal notation of an integer.
    Decimal(Box<Code>),
    /// A list without repeated elements, each where it was first.
    Distinct(Box<Code>),
    /// The elements of a list's lists.
    Flatten(Box<Code>),
    /// A list of these elements.
    List(Vec<Code>),
    /// A record of these fields.
    Record(Vec<Code>),
    /// For the elements of `list` that satisfy `condition`, each in slot `element` in turn: the list of what `body`
    /// yields.
    Map {
        /// What is iterated.
        list: Box<Code>,
        /// Where the element is while `condition` and `body` are evaluated.
        element: Slot,
        /// Which elements count; all, if there is no condition.
        condition: Option<Box<Code>>,
        /// What is yielded for each of them.
        body: Box<Code>,
    },
    /// Whether `condition` holds for all elements of `list` ([`Logic::And`]) or for one of them ([`Logic::Or`]).
    Quantify {
        /// All, or at least one.
        logic: Logic,
        /// What is iterated.
        list: Box<Code>,
        /// Where the element is while `condition` is evaluated.
        element: Slot,
        /// The condition.
        condition: Box<Code>,
    },
}

nested!(Code);

impl Code {
    /// Calls `change` with every slot of the expression.
    pub fn for_each_slot(&mut self, change: &mut impl FnMut(&mut Slot)) {
        match self {
            Code::Constant(_) => {}
            Code::Slot(slot) => change(slot),
            Code::Field(operand, _)
            | Code::Not(operand)
            | Code::Size(operand)
            | Code::Sum(operand)
            | Code::Left(operand, _)
            | Code::Decimal(operand)
            | Code::Distinct(operand)
            | Code::Flatten(operand) => operand.for_each_slot(change),
            Code::Logic(_, left, right)
            | Code::Compare(_, left, right)
            | Code::Arithmetic(_, left, right)
            | Code::Concatenate(left, right)
            | Code::Element(left, right)
            | Code::In(left, right)
            | Code::Range(left, right, _) => {
                left.for_each_slot(change);
                right.for_each_slot(change);
            }
            Code::If(condition, then, otherwise) => {
                condition.for_each_slot(change);
                then.for_each_slot(change);
                otherwise.for_each_slot(change);
            }
            Code::List(all) | Code::Record(all) => {
                all.iter_mut().for_each(|code| code.for_each_slot(change))
            }
            Code::Map { list, element, condition, body } => {
                list.for_each_slot(change);
                change(element);
                condition.iter_mut().for_each(|condition| condition.for_each_slot(change));
                body.for_each_slot(change);
            }
            Code::Quantify { list, element, condition, .. } => {
                list.for_each_slot(change);
                change(element);
                condition.for_each_slot(change);
            }
        }
    }
}

/// A logical connective.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Logic {
    /// Both, or all.
    And,
    /// Either, or one.
    Or,
}

/// A comparison. Strings and bytes compare bytewise, lists and records element by element.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "they are what their names say")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An operation on two integers. All saturate: a result beyond the bounds of 64 bits is the bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "they are what their names say")]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    /// Rounds towards zero.
    Divide,
    /// Has the sign of the dividend.
    Remainder,
    Least,
    Greatest,
}

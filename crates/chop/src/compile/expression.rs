//! Compilation of one expression of the Common Expression Language.
//!
//! The parser is that of the `cel` crate; types are checked here. The dialect is CEL without dynamic types, maps,
//! floating-point numbers, time and regular expressions. Arithmetic saturates where CEL fails, since a body must not
//! fail once something is written.

use cel::common::ast::{
    CallExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr, SourceInfo,
    operators,
};
use serried_procedures::{Arithmetic, Code, Comparison, Datum, Field, Logic, Slot, Type};

use super::cost::{BYTES_A_STEP, Cost, Typed};
use super::scope::{Meaning, Scope};
use crate::file::{Text, bound_type};
use crate::mistake::{Compiled, Misplaced};

/// How deep parentheses and other brackets nest at most. It bounds the stack of the parser.
const MAX_NESTED: u16 = 32;

/// How deep operations nest at most. The operands of `a + b + c` nest too: it is `(a + b) + c`. It bounds the stack of the
/// compiler, of evaluation, and of all that walks through a compiled expression.
const MAX_DEPTH: usize = 64;

/// How many words and signs an expression may have. The parser's trees are not deeper than this, however they are built:
/// it bounds the stack that it takes to build and to drop them.
const MAX_WORDS: usize = 512;

/// How long an expression may be, in bytes.
const MAX_TEXT: usize = 16 << 10;

/// Compiles the expression in `text` of the file `source`.
pub(crate) fn compile(text: &Text<'_>, scope: &mut Scope<'_>) -> Compiled<Typed> {
    if text.text.len() > MAX_TEXT {
        return Err(Misplaced::new(
            &text.span,
            format!("an expression has at most {MAX_TEXT} bytes; name parts of it with `let`"),
        ));
    }
    if let Some(within) = word_after(text.text, MAX_WORDS) {
        let message = format!(
            "an expression has at most {MAX_WORDS} words and signs; name parts of it with `let`"
        );
        return Err(Misplaced { at: text.start + within, message });
    }
    // Without macros, so that `list.map(x, y)` is parsed as the call that it is written as.
    let parser =
        cel::Env::default().with_optional_support(false).parser().max_recursion_depth(MAX_NESTED);
    let parsed = parser.parse_with_source_info(text.text);
    let (parsed, info) = parsed.map_err(|errors| unparsable(text, &errors))?;
    Compiler { text, info: &info, scope, depth: 0 }.compile(&parsed)
}

/// Where the word or sign after the first `count` is. Those in literal strings and comments count too, so that none can
/// be hidden from this and seen by the parser.
fn word_after(text: &str, count: usize) -> Option<usize> {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut in_word = false;
    let starts = text.char_indices().filter(|(_, character)| {
        let continues = in_word && is_word(*character);
        in_word = is_word(*character);
        !continues && !character.is_ascii_whitespace()
    });
    starts.map(|(at, _)| at).nth(count)
}

fn unparsable(text: &Text<'_>, errors: &cel::ParseErrors) -> Misplaced {
    let Some(first) = errors.errors.first() else {
        return Misplaced::new(&text.span, "this is not an expression");
    };
    let (line, column) = (first.pos.0.max(1) as usize, first.pos.1.max(1) as usize);
    let before: usize = text.text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let within = text.text[before..]
        .char_indices()
        .nth(column - 1)
        .map_or(text.text.len(), |(at, _)| before + at);
    let message = if first.msg.contains("Recursion limit") {
        format!("its brackets nest more than {MAX_NESTED} deep; name parts of it with `let`")
    } else {
        // The parser lists every token that it would take.
        first.msg.split(" expecting ").next().unwrap_or_default().to_owned()
    };
    Misplaced { at: text.start + within, message: format!("this is not an expression: {message}") }
}

struct Compiler<'c, 'a> {
    text: &'c Text<'c>,
    info: &'c SourceInfo,
    scope: &'c mut Scope<'a>,
    /// How many operations are around the one that is compiled.
    depth: usize,
}

impl Compiler<'_, '_> {
    fn wrong(&self, at: &IdedExpr, message: impl Into<String>) -> Misplaced {
        // A selection is where its first name is; the parser has the place of its dot. It counts characters.
        let mut at = at;
        while let Expr::Select(select) = &at.expr {
            at = &select.operand;
        }
        let start = self.info.offset_for(at.id).map_or(0, |(start, _)| start as usize);
        let within = self.text.text.char_indices().nth(start).map_or(0, |(at, _)| at);
        Misplaced { at: self.text.start + within, message: message.into() }
    }

    fn compile(&mut self, at: &IdedExpr) -> Compiled<Typed> {
        if self.depth == MAX_DEPTH {
            let message = format!(
                "operations nest more than {MAX_DEPTH} deep here, and each of `a + b + c` is one deeper than the next; name \
                 parts of the expression with `let`, or use `sum([..])`"
            );
            return Err(self.wrong(at, message));
        }
        self.depth += 1;
        let compiled = self.compile_one(at);
        self.depth -= 1;
        let compiled = compiled?;
        bound_type(&compiled.of).map_err(|message| self.wrong(at, message))?;
        Ok(compiled)
    }

    fn compile_one(&mut self, at: &IdedExpr) -> Compiled<Typed> {
        match &at.expr {
            Expr::Literal(literal) => self.literal(at, literal),
            Expr::Ident(name) => match self.scope.meaning(name, None) {
                Ok(Meaning::Datum(code, of) | Meaning::Member(code, of)) => {
                    Ok(Typed::known(code, of))
                }
                Err(message) => Err(self.wrong(at, message)),
            },
            Expr::Select(select) => self.select(at, select),
            Expr::List(list) => self.list(at, list),
            Expr::Map(map) => self.record(at, map),
            Expr::Call(call) => self.call(at, call),
            Expr::Struct(_) | Expr::Comprehension(_) | Expr::Unspecified => {
                Err(self.wrong(at, "expressions of procedures have no types of their own"))
            }
        }
    }

    fn literal(&self, at: &IdedExpr, literal: &LiteralValue) -> Compiled<Typed> {
        let (datum, of) = match literal {
            LiteralValue::Boolean(bool) => (Datum::Bool(**bool), Type::Bool),
            LiteralValue::Int(int) => (Datum::Int(**int), Type::Int),
            LiteralValue::String(text) => {
                (Datum::from(text.inner()), Type::String { max: text.inner().len() as u32 })
            }
            LiteralValue::Bytes(bytes) => (
                Datum::Bytes(bytes.inner().into()),
                Type::Bytes { max: bytes.inner().len() as u32 },
            ),
            LiteralValue::Double(_) | LiteralValue::UInt(_) | LiteralValue::Null => {
                return Err(self.wrong(
                    at,
                    "procedures have data of the types bool, int, string, bytes, lists and records",
                ));
            }
        };
        Ok(Typed::known(Code::Constant(datum), of))
    }

    fn select(
        &mut self,
        at: &IdedExpr,
        SelectExpr { operand, field, .. }: &SelectExpr,
    ) -> Compiled<Typed> {
        if let Expr::Ident(first) = &operand.expr {
            return match self.scope.meaning(first, Some(field)) {
                Ok(Meaning::Member(code, of)) => Ok(Typed::known(code, of)),
                Ok(Meaning::Datum(code, of)) => self.field(at, Typed::known(code, of), field),
                Err(message) => Err(self.wrong(at, message)),
            };
        }
        let operand = self.compile(operand)?;
        self.field(at, operand, field)
    }

    fn field(&self, at: &IdedExpr, record: Typed, name: &str) -> Compiled<Typed> {
        let Type::Record(fields) = &record.of else {
            return Err(self.wrong(
                at,
                format!("`.{name}` needs a record before it, and this is {}", record.of),
            ));
        };
        let Some(place) = fields.iter().position(|field| field.name == name) else {
            return Err(self.wrong(at, format!("there is no field `{name}` in {}", record.of)));
        };
        let of = fields[place].of.clone();
        Ok(record.then(of, |record| Code::Field(record, place as u16)))
    }

    fn list(&mut self, at: &IdedExpr, list: &ListExpr) -> Compiled<Typed> {
        let elements = list
            .elements
            .iter()
            .map(|element| self.compile(element))
            .collect::<Compiled<Vec<_>>>()?;
        let mut of: Option<Type> = None;
        for element in &elements {
            let joined = of.as_ref().map_or(Some(element.of.clone()), |of| of.join(&element.of));
            of =
                Some(joined.ok_or_else(|| self.wrong(at, "the elements of a list have one type"))?);
        }
        let of =
            Type::List { element: Box::new(of.unwrap_or(Type::Bool)), max: elements.len() as u32 };
        Ok(gather(elements, of, Code::List))
    }

    /// A map literal whose keys are literal strings is a record.
    fn record(&mut self, at: &IdedExpr, map: &MapExpr) -> Compiled<Typed> {
        let mut fields = Vec::new();
        let mut values = Vec::new();
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err(self.wrong(at, "a record is written as {\"name\": value}"));
            };
            let Expr::Literal(LiteralValue::String(name)) = &entry.key.expr else {
                return Err(
                    self.wrong(&entry.key, "the name of a record's field is a literal string")
                );
            };
            let value = self.compile(&entry.value)?;
            fields.push(Field { name: name.inner().to_owned(), of: value.of.clone() });
            values.push(value);
        }
        Ok(gather(values, Type::Record(fields), Code::Record))
    }

    fn call(&mut self, at: &IdedExpr, call: &CallExpr) -> Compiled<Typed> {
        let name = call.func_name.as_str();
        match (&call.target, name, call.args.as_slice()) {
            (Some(list), "map", [element, body]) => self.map(list, element, None, Some(body)),
            (Some(list), "map", [element, condition, body]) => {
                self.map(list, element, Some(condition), Some(body))
            }
            (Some(list), "filter", [element, condition]) => {
                self.map(list, element, Some(condition), None)
            }
            (Some(list), "all", [element, condition]) => {
                self.quantify(Logic::And, list, element, condition)
            }
            (Some(list), "exists", [element, condition]) => {
                self.quantify(Logic::Or, list, element, condition)
            }
            (None, "exists", [row]) => self.exists(row),
            (Some(target), "least" | "greatest", [left, right]) if matches!(&target.expr, Expr::Ident(math) if math == "math") =>
            {
                let operation =
                    if name == "least" { Arithmetic::Least } else { Arithmetic::Greatest };
                self.arithmetic(operation, left, right)
            }
            (Some(target), "size" | "distinct" | "flatten" | "sum", []) => {
                self.unary(at, name, target)
            }
            (None, "size" | "sum", [operand]) => self.unary(at, name, operand),
            (None, "string", [operand]) => {
                let operand = self.compile_as(operand, &Type::Int)?;
                // The longest is the least: 19 digits and a sign.
                Ok(operand.then(Type::String { max: 20 }, Code::Decimal).allocating())
            }
            (None, "left", [text, length]) => self.left(text, length),
            (None, "range", [from, to, most]) => self.range(from, to, most),
            (None, operators::CONDITIONAL, [condition, then, otherwise]) => {
                self.conditional(at, condition, then, otherwise)
            }
            (None, operators::LOGICAL_NOT, [operand]) => {
                let operand = self.compile_as(operand, &Type::Bool)?;
                Ok(operand.then(Type::Bool, Code::Not))
            }
            (None, operators::NEGATE, [operand]) => {
                let operand = self.compile_as(operand, &Type::Int)?;
                let zero = Typed::known(Code::Constant(Datum::Int(0)), Type::Int);
                Ok(zero.with(operand, Type::Int, |zero, operand| {
                    Code::Arithmetic(Arithmetic::Subtract, zero, operand)
                }))
            }
            (None, operators::ADD, [left, right]) => self.add(at, left, right),
            (None, operators::INDEX, [list, index]) => self.element(list, index),
            (None, operators::IN, [operand, list]) => self.contains(at, operand, list),
            (None, operator, [left, right]) => match binary(operator) {
                Some(Binary::Logic(logic)) => {
                    let (left, right) =
                        (self.compile_as(left, &Type::Bool)?, self.compile_as(right, &Type::Bool)?);
                    Ok(left.with(right, Type::Bool, |left, right| Code::Logic(logic, left, right)))
                }
                Some(Binary::Comparison(comparison)) => self.compare(at, comparison, left, right),
                Some(Binary::Arithmetic(operation)) => self.arithmetic(operation, left, right),
                None => Err(self.no_function(at, name)),
            },
            _ => Err(self.no_function(at, name)),
        }
    }

    fn no_function(&self, at: &IdedExpr, name: &str) -> Misplaced {
        const FUNCTIONS: &str = "size(x), sum(list), list.map(x, y), list.map(x, condition, y), list.filter(x, condition), \
            list.all(x, condition), list.exists(x, condition), list.distinct(), list.flatten(), exists(row), \
            left(text, bytes), range(from, to, most), string(int), math.least(a, b) and math.greatest(a, b)";
        self.wrong(
            at,
            format!("there is no function `{name}` with these operands; there are {FUNCTIONS}"),
        )
    }

    /// Compiles an operand that has to have the shape of `wanted`. Sizes do not matter.
    fn compile_as(&mut self, operand: &IdedExpr, wanted: &Type) -> Compiled<Typed> {
        let compiled = self.compile(operand)?;
        match compiled.of.join(wanted) {
            Some(_) => Ok(compiled),
            None => Err(self
                .wrong(operand, format!("this is {}, and {wanted} is needed here", compiled.of))),
        }
    }

    /// Compiles a list, and returns the type and the greatest number of its elements too.
    fn compile_list(&mut self, operand: &IdedExpr) -> Compiled<(Typed, Type, u32)> {
        let compiled = self.compile(operand)?;
        match compiled.of.clone() {
            Type::List { element, max } => Ok((compiled, *element, max)),
            of => Err(self.wrong(operand, format!("this is {of}, and a list is needed here"))),
        }
    }

    fn conditional(
        &mut self,
        at: &IdedExpr,
        condition: &IdedExpr,
        then: &IdedExpr,
        otherwise: &IdedExpr,
    ) -> Compiled<Typed> {
        let condition = self.compile_as(condition, &Type::Bool)?;
        let (then, otherwise) = (self.compile(then)?, self.compile(otherwise)?);
        let of = then.of.join(&otherwise.of).ok_or_else(|| {
            self.wrong(
                at,
                format!(
                    "one branch is {} and the other {}; they need one type",
                    then.of, otherwise.of
                ),
            )
        })?;
        let cost = condition.cost.and(then.cost).and(otherwise.cost);
        let code =
            Code::If(Box::new(condition.code), Box::new(then.code), Box::new(otherwise.code));
        Ok(Typed::new(code, of, cost))
    }

    fn add(&mut self, at: &IdedExpr, left: &IdedExpr, right: &IdedExpr) -> Compiled<Typed> {
        let (left, right) = (self.compile(left)?, self.compile(right)?);
        let of = match (&left.of, &right.of) {
            (Type::Int, Type::Int) => {
                return Ok(left.with(right, Type::Int, |left, right| {
                    Code::Arithmetic(Arithmetic::Add, left, right)
                }));
            }
            (Type::String { max }, Type::String { max: other }) => {
                Type::String { max: max.saturating_add(*other) }
            }
            (Type::Bytes { max }, Type::Bytes { max: other }) => {
                Type::Bytes { max: max.saturating_add(*other) }
            }
            (Type::List { max, .. }, Type::List { max: other, .. }) => {
                let joined = left.of.join(&right.of);
                let Some(Type::List { element, .. }) = joined else {
                    return Err(self.wrong(at, "lists are joined if their elements have one type"));
                };
                Type::List { element, max: max.saturating_add(*other) }
            }
            (left, right) => {
                return Err(self.wrong(at, format!("{left} and {right} can't be added")));
            }
        };
        Ok(left.with(right, of, Code::Concatenate).allocating())
    }

    fn arithmetic(
        &mut self,
        operation: Arithmetic,
        left: &IdedExpr,
        right: &IdedExpr,
    ) -> Compiled<Typed> {
        let left = self.compile_as(left, &Type::Int)?;
        let right = self.compile_as(right, &Type::Int)?;
        let divides = matches!(operation, Arithmetic::Divide | Arithmetic::Remainder);
        let known = matches!(right.code, Code::Constant(Datum::Int(divisor)) if divisor != 0);
        let whole =
            left.with(right, Type::Int, |left, right| Code::Arithmetic(operation, left, right));
        let may_fail = divides && !known;
        Ok(if may_fail {
            whole.failing("it divides by what may be zero; a literal other than 0 can't be")
        } else {
            whole
        })
    }

    fn compare(
        &mut self,
        at: &IdedExpr,
        comparison: Comparison,
        left: &IdedExpr,
        right: &IdedExpr,
    ) -> Compiled<Typed> {
        let (left, right) = (self.compile(left)?, self.compile(right)?);
        if left.of.join(&right.of).is_none() {
            return Err(self.wrong(at, format!("{} and {} can't be compared", left.of, right.of)));
        }
        let compared = left.of.max_bytes().min(right.of.max_bytes());
        let whole =
            left.with(right, Type::Bool, |left, right| Code::Compare(comparison, left, right));
        Ok(whole.taking(compared / BYTES_A_STEP))
    }

    fn unary(&mut self, at: &IdedExpr, name: &str, operand: &IdedExpr) -> Compiled<Typed> {
        if name == "size" {
            let compiled = self.compile(operand)?;
            let counted = match compiled.of {
                Type::String { max } => max,
                Type::Bytes { .. } | Type::List { .. } => 0,
                _ => return Err(self.wrong(at, format!("{} has no size", compiled.of))),
            };
            let whole = compiled.then(Type::Int, Code::Size);
            return Ok(whole.taking(u64::from(counted) / BYTES_A_STEP));
        }
        let (list, element, max) = self.compile_list(operand)?;
        let steps = u64::from(max);
        match (name, element) {
            ("sum", Type::Int) => Ok(list.then(Type::Int, Code::Sum).taking(steps)),
            ("distinct", _) => {
                let of = list.of.clone();
                // A search by halves for each, and a move of what is larger.
                let steps = steps.saturating_mul(16 + steps / 8);
                Ok(list.then(of, Code::Distinct).taking(steps).allocating())
            }
            ("flatten", Type::List { element, max: inner }) => {
                let of = Type::List { element, max: max.saturating_mul(inner) };
                Ok(list.then(of, Code::Flatten).allocating())
            }
            (_, element) => {
                Err(self.wrong(at, format!("`{name}` can't be applied to a list of {element}")))
            }
        }
    }

    fn exists(&mut self, row: &IdedExpr) -> Compiled<Typed> {
        let Expr::Ident(name) = &row.expr else {
            return Err(self.wrong(row, "`exists` is asked of a row, by its name"));
        };
        let Some(at) = self.scope.row(name) else {
            return Err(self.wrong(row, format!("there is no row `{name}`")));
        };
        match self.scope.scoped_row(at).exists {
            Some(slot) => Ok(Typed::known(Code::Slot(slot), Type::Bool)),
            None => {
                let advice = format!(
                    "whether `{name}` exists is used and not declared; add `{name}` to the piece's `reads`"
                );
                Err(self.wrong(row, advice))
            }
        }
    }

    fn left(&mut self, text: &IdedExpr, length: &IdedExpr) -> Compiled<Typed> {
        let length = self.literal_length(length)?;
        let compiled = self.compile(text)?;
        let of = match compiled.of {
            Type::String { max } => Type::String { max: max.min(length) },
            Type::Bytes { max } => Type::Bytes { max: max.min(length) },
            of => {
                return Err(self.wrong(text, format!("this is {of}, and a string is needed here")));
            }
        };
        Ok(compiled.then(of, |text| Code::Left(text, length)).allocating())
    }

    fn range(&mut self, from: &IdedExpr, to: &IdedExpr, most: &IdedExpr) -> Compiled<Typed> {
        let most = self.literal_length(most)?;
        let (from, to) = (self.compile_as(from, &Type::Int)?, self.compile_as(to, &Type::Int)?);
        let of = Type::List { element: Box::new(Type::Int), max: most };
        Ok(from.with(to, of, |from, to| Code::Range(from, to, most)).allocating())
    }

    fn literal_length(&self, at: &IdedExpr) -> Compiled<u32> {
        let literal = match &at.expr {
            Expr::Literal(LiteralValue::Int(int)) => u32::try_from(**int).ok(),
            _ => None,
        };
        literal.ok_or_else(|| {
            self.wrong(at, "this bounds the result, so it is a literal number from 0 to 4294967295")
        })
    }

    fn element(&mut self, list: &IdedExpr, index: &IdedExpr) -> Compiled<Typed> {
        let (list, element, _) = self.compile_list(list)?;
        let index = self.compile_as(index, &Type::Int)?;
        let whole = list.with(index, element, Code::Element);
        Ok(whole.failing("it takes an element of a list that may be too short; `for_each` over several lists can't fail"))
    }

    fn contains(&mut self, at: &IdedExpr, operand: &IdedExpr, list: &IdedExpr) -> Compiled<Typed> {
        let operand = self.compile(operand)?;
        let (list, element, max) = self.compile_list(list)?;
        if max > 0 && operand.of.join(&element).is_none() {
            return Err(self.wrong(at, format!("a list of {element} has no {}", operand.of)));
        }
        let steps = u64::from(max).saturating_mul(1 + element.max_bytes() / BYTES_A_STEP);
        Ok(operand.with(list, Type::Bool, Code::In).taking(steps))
    }

    /// Compiles something in which the element of a list has a name.
    fn with_element<T>(
        &mut self,
        name: &IdedExpr,
        of: Type,
        compile: impl FnOnce(&mut Self) -> Compiled<T>,
    ) -> Compiled<(Slot, T)> {
        let Expr::Ident(text) = &name.expr else {
            return Err(self.wrong(name, "this is a name for the element"));
        };
        let at = self.wrong(name, "").at;
        self.scope.refuse_taken(text, &(at..at))?;
        let slot = self.scope.add_named(text, of);
        let compiled = compile(self);
        self.scope.remove_last_named();
        Ok((slot, compiled?))
    }

    fn map(
        &mut self,
        list: &IdedExpr,
        name: &IdedExpr,
        condition: Option<&IdedExpr>,
        body: Option<&IdedExpr>,
    ) -> Compiled<Typed> {
        let (list, element_type, max) = self.compile_list(list)?;
        let (element, (condition, body)) =
            self.with_element(name, element_type.clone(), |compiler| {
                let condition = condition
                    .map(|condition| compiler.compile_as(condition, &Type::Bool))
                    .transpose()?;
                Ok((condition, body.map(|body| compiler.compile(body)).transpose()?))
            })?;
        let body = body.unwrap_or_else(|| Typed::known(Code::Slot(element), element_type));
        let each = condition.as_ref().map_or(Cost::NONE, |condition| condition.cost).and(body.cost);
        let cost = list.cost.and(each.times(max));
        let of = Type::List { element: Box::new(body.of), max };
        let condition = condition.map(|condition| Box::new(condition.code));
        let code =
            Code::Map { list: Box::new(list.code), element, condition, body: Box::new(body.code) };
        Ok(Typed::new(code, of, cost).allocating())
    }

    fn quantify(
        &mut self,
        logic: Logic,
        list: &IdedExpr,
        name: &IdedExpr,
        condition: &IdedExpr,
    ) -> Compiled<Typed> {
        let (list, element_type, max) = self.compile_list(list)?;
        let (element, condition) = self.with_element(name, element_type, |compiler| {
            compiler.compile_as(condition, &Type::Bool)
        })?;
        let cost = list.cost.and(condition.cost.times(max));
        let code = Code::Quantify {
            logic,
            list: Box::new(list.code),
            element,
            condition: Box::new(condition.code),
        };
        Ok(Typed::new(code, Type::Bool, cost))
    }
}

/// A list or a record of these expressions.
fn gather(parts: Vec<Typed>, of: Type, make: impl FnOnce(Vec<Code>) -> Code) -> Typed {
    let cost = parts.iter().fold(Cost::NONE, |cost, part| cost.and(part.cost));
    Typed::new(make(parts.into_iter().map(|part| part.code).collect()), of, cost).allocating()
}

enum Binary {
    Logic(Logic),
    Comparison(Comparison),
    Arithmetic(Arithmetic),
}

fn binary(operator: &str) -> Option<Binary> {
    Some(match operator {
        operators::LOGICAL_AND => Binary::Logic(Logic::And),
        operators::LOGICAL_OR => Binary::Logic(Logic::Or),
        operators::EQUALS => Binary::Comparison(Comparison::Equal),
        operators::NOT_EQUALS => Binary::Comparison(Comparison::NotEqual),
        operators::LESS => Binary::Comparison(Comparison::Less),
        operators::LESS_EQUALS => Binary::Comparison(Comparison::LessOrEqual),
        operators::GREATER => Binary::Comparison(Comparison::Greater),
        operators::GREATER_EQUALS => Binary::Comparison(Comparison::GreaterOrEqual),
        operators::SUBSTRACT => Binary::Arithmetic(Arithmetic::Subtract),
        operators::MULTIPLY => Binary::Arithmetic(Arithmetic::Multiply),
        operators::DIVIDE => Binary::Arithmetic(Arithmetic::Divide),
        operators::MODULO => Binary::Arithmetic(Arithmetic::Remainder),
        _ => return None,
    })
}

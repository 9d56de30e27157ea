//! Compilation of one expression of the Common Expression Language.
//!
//! The parser is that of the `cel` crate. `serried_procedures` infers types and costs. The dialect is CEL without dynamic
//! types, maps, floating-point numbers, time and regular expressions. Arithmetic saturates where CEL fails, since a body
//! must not fail once something is written.

use std::rc::Rc;

use cel::common::ast::{
    CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, MapExpr, SelectExpr, SourceInfo, operators,
};
use serried_procedures::{
    Arithmetic, Code, Comparison, Datum, Inferred, Logic, Mistyped, Slot, Type,
};

use super::scope::{Meaning, Scope};
use super::typed::Typed;
use crate::file::Text;
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
        let message = first.msg.split(" expecting ").next().unwrap_or_default();
        if message.contains("<EOF>") { "it ends too early".to_owned() } else { message.to_owned() }
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
        compiled
    }

    fn compile_one(&mut self, at: &IdedExpr) -> Compiled<Typed> {
        match &at.expr {
            Expr::Literal(literal) => self.literal(at, literal),
            Expr::Ident(name) => match self.scope.meaning(name, None) {
                Ok(Meaning::Datum(code, of) | Meaning::Member(code, of)) => {
                    self.known(at, code, of)
                }
                Err(message) => Err(self.wrong(at, message)),
            },
            Expr::Select(select) => self.select(at, select),
            Expr::List(list) => {
                let elements: Vec<&IdedExpr> = list.elements.iter().collect();
                self.all(at, &elements, Code::List)
            }
            Expr::Map(map) => self.record(at, map),
            Expr::Call(call) => self.call(at, call),
            Expr::Struct(_) | Expr::Comprehension(_) | Expr::Unspecified => {
                Err(self.wrong(at, "expressions of procedures have no types of their own"))
            }
        }
    }

    /// A datum that exists already. The outputs of all occurrences of a piece may be of a type that is too large.
    fn known(&self, at: &IdedExpr, code: Code, of: Type) -> Compiled<Typed> {
        of.check_size().map_err(|much| self.wrong(at, much.to_string()))?;
        Ok(Typed::known(code, of))
    }

    /// An operation on compiled operands, which are at `places`.
    fn operation(
        &self,
        at: &IdedExpr,
        places: &[&IdedExpr],
        code: Code,
        operands: &[Inferred],
    ) -> Compiled<Typed> {
        match code.infer(operands) {
            Ok(inferred) => Ok(Typed { code, inferred }),
            Err(Mistyped { operand, message }) => {
                let place = operand.and_then(|operand| places.get(operand).copied());
                Err(self.wrong(place.unwrap_or(at), message))
            }
        }
    }

    fn unary(
        &mut self,
        at: &IdedExpr,
        operand: &IdedExpr,
        make: impl FnOnce(Box<Code>) -> Code,
    ) -> Compiled<Typed> {
        let (code, inferred) = self.compile(operand)?.operand();
        self.operation(at, &[operand], make(code), &[inferred])
    }

    fn binary(
        &mut self,
        at: &IdedExpr,
        left: &IdedExpr,
        right: &IdedExpr,
        make: impl FnOnce(Box<Code>, Box<Code>) -> Code,
    ) -> Compiled<Typed> {
        let (left_code, of_left) = self.compile(left)?.operand();
        let (right_code, of_right) = self.compile(right)?.operand();
        self.operation(at, &[left, right], make(left_code, right_code), &[of_left, of_right])
    }

    /// An operation on any number of operands.
    fn all(
        &mut self,
        at: &IdedExpr,
        operands: &[&IdedExpr],
        make: impl FnOnce(Vec<Code>) -> Code,
    ) -> Compiled<Typed> {
        let (mut codes, mut inferred) = (Vec::new(), Vec::new());
        for operand in operands {
            let compiled = self.compile(operand)?;
            codes.push(compiled.code);
            inferred.push(compiled.inferred);
        }
        self.operation(at, operands, make(codes), &inferred)
    }

    fn literal(&self, at: &IdedExpr, literal: &LiteralValue) -> Compiled<Typed> {
        let datum = match literal {
            LiteralValue::Boolean(bool) => Datum::Bool(**bool),
            LiteralValue::Int(int) => Datum::Int(**int),
            LiteralValue::String(text) => Datum::from(text.inner()),
            LiteralValue::Bytes(bytes) => Datum::Bytes(bytes.inner().into()),
            LiteralValue::Double(_) | LiteralValue::UInt(_) | LiteralValue::Null => {
                return Err(self.wrong(
                    at,
                    "procedures have data of the types bool, int, string, bytes, lists and records",
                ));
            }
        };
        self.operation(at, &[], Code::Constant(datum), &[])
    }

    fn select(
        &mut self,
        at: &IdedExpr,
        SelectExpr { operand, field, .. }: &SelectExpr,
    ) -> Compiled<Typed> {
        if let Expr::Ident(first) = &operand.expr {
            return match self.scope.meaning(first, Some(field)) {
                Ok(Meaning::Member(code, of)) => self.known(at, code, of),
                Ok(Meaning::Datum(code, of)) => {
                    self.field(at, operand, Typed::known(code, of), field)
                }
                Err(message) => Err(self.wrong(at, message)),
            };
        }
        let record = self.compile(operand)?;
        self.field(at, operand, record, field)
    }

    fn field(
        &self,
        at: &IdedExpr,
        operand: &IdedExpr,
        record: Typed,
        name: &str,
    ) -> Compiled<Typed> {
        let Type::Record(fields) = record.of() else {
            let message =
                format!("`.{name}` needs a record before it, and this is {}", record.of());
            return Err(self.wrong(at, message));
        };
        let Some(place) = fields.iter().position(|field| field.name == name) else {
            return Err(self.wrong(at, format!("there is no field `{name}` in {}", record.of())));
        };
        let (code, inferred) = record.operand();
        self.operation(at, &[operand], Code::Field(code, place as u16), &[inferred])
    }

    /// A map literal whose keys are literal strings is a record.
    fn record(&mut self, at: &IdedExpr, map: &MapExpr) -> Compiled<Typed> {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err(self.wrong(at, "a record is written as {\"name\": value}"));
            };
            let Expr::Literal(LiteralValue::String(name)) = &entry.key.expr else {
                return Err(
                    self.wrong(&entry.key, "the name of a record's field is a literal string")
                );
            };
            names.push(name.inner());
            values.push(&entry.value);
        }
        let mut record = self.all(at, &values, Code::Record)?;
        if let Type::Record(fields) = Rc::make_mut(&mut record.inferred.of) {
            for (field, name) in fields.iter_mut().zip(names) {
                field.name = name.to_owned();
            }
        }
        Ok(record)
    }

    fn call(&mut self, at: &IdedExpr, call: &CallExpr) -> Compiled<Typed> {
        let name = call.func_name.as_str();
        match (call.target.as_deref(), name, call.args.as_slice()) {
            (Some(list), "map", [element, body]) => self.map(at, list, element, None, Some(body)),
            (Some(list), "map", [element, condition, body]) => {
                self.map(at, list, element, Some(condition), Some(body))
            }
            (Some(list), "filter", [element, condition]) => {
                self.map(at, list, element, Some(condition), None)
            }
            (Some(list), "all", [element, condition]) => {
                self.quantify(at, Logic::And, list, element, condition)
            }
            (Some(list), "exists", [element, condition]) => {
                self.quantify(at, Logic::Or, list, element, condition)
            }
            (None, "exists", [row]) => self.exists(row),
            (Some(target), "least" | "greatest", [left, right]) if matches!(&target.expr, Expr::Ident(math) if math == "math") =>
            {
                let operation =
                    if name == "least" { Arithmetic::Least } else { Arithmetic::Greatest };
                self.arithmetic(at, operation, left, right)
            }
            (Some(operand), "size", []) | (None, "size", [operand]) => {
                self.unary(at, operand, Code::Size)
            }
            (Some(list), "sum", []) | (None, "sum", [list]) => self.unary(at, list, Code::Sum),
            (Some(list), "distinct", []) => self.unary(at, list, Code::Distinct),
            (Some(lists), "flatten", []) => self.unary(at, lists, Code::Flatten),
            (None, "string", [operand]) => self.unary(at, operand, Code::Decimal),
            (None, "left", [text, length]) => {
                let length = self.literal_length(length)?;
                self.unary(at, text, |text| Code::Left(text, length))
            }
            (None, "range", [from, to, most]) => {
                let most = self.literal_length(most)?;
                self.binary(at, from, to, |from, to| Code::Range(from, to, most))
            }
            (None, operators::CONDITIONAL, [condition, then, otherwise]) => {
                self.conditional(at, condition, then, otherwise)
            }
            (None, operators::LOGICAL_NOT, [operand]) => self.unary(at, operand, Code::Not),
            (None, operators::NEGATE, [operand]) => {
                let zero = self.operation(at, &[], Code::Constant(Datum::Int(0)), &[])?;
                let ((zero, of_zero), (code, inferred)) =
                    (zero.operand(), self.compile(operand)?.operand());
                let code = Code::Arithmetic(Arithmetic::Subtract, zero, code);
                self.operation(at, &[operand, operand], code, &[of_zero, inferred])
            }
            (None, operators::ADD, [left, right]) => self.add(at, left, right),
            (None, operators::INDEX, [list, index]) => self.binary(at, list, index, Code::Element),
            (None, operators::IN, [operand, list]) => self.binary(at, operand, list, Code::In),
            (None, operator, [left, right]) => match binary(operator) {
                Some(Binary::Logic(logic)) => {
                    self.binary(at, left, right, |left, right| Code::Logic(logic, left, right))
                }
                Some(Binary::Comparison(comparison)) => {
                    self.binary(at, left, right, |left, right| {
                        Code::Compare(comparison, left, right)
                    })
                }
                Some(Binary::Arithmetic(operation)) => self.arithmetic(at, operation, left, right),
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

    fn arithmetic(
        &mut self,
        at: &IdedExpr,
        operation: Arithmetic,
        left: &IdedExpr,
        right: &IdedExpr,
    ) -> Compiled<Typed> {
        self.binary(at, left, right, |left, right| Code::Arithmetic(operation, left, right))
    }

    fn conditional(
        &mut self,
        at: &IdedExpr,
        condition: &IdedExpr,
        then: &IdedExpr,
        otherwise: &IdedExpr,
    ) -> Compiled<Typed> {
        let (condition_code, of_condition) = self.compile(condition)?.operand();
        let (then_code, of_then) = self.compile(then)?.operand();
        let (otherwise_code, of_otherwise) = self.compile(otherwise)?.operand();
        let code = Code::If(condition_code, then_code, otherwise_code);
        let operands = [of_condition, of_then, of_otherwise];
        self.operation(at, &[condition, then, otherwise], code, &operands)
    }

    fn add(&mut self, at: &IdedExpr, left: &IdedExpr, right: &IdedExpr) -> Compiled<Typed> {
        let (left_code, of_left) = self.compile(left)?.operand();
        let (right_code, of_right) = self.compile(right)?.operand();
        let code = match (&*of_left.of, &*of_right.of) {
            (Type::Int, Type::Int) => Code::Arithmetic(Arithmetic::Add, left_code, right_code),
            _ => Code::Concatenate(left_code, right_code),
        };
        self.operation(at, &[left, right], code, &[of_left, of_right])
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

    fn literal_length(&self, at: &IdedExpr) -> Compiled<u32> {
        let literal = match &at.expr {
            Expr::Literal(LiteralValue::Int(int)) => u32::try_from(**int).ok(),
            _ => None,
        };
        literal.ok_or_else(|| {
            self.wrong(at, "this bounds the result, so it is a literal number from 0 to 4294967295")
        })
    }

    /// Compiles a list, and returns the type of its elements too.
    fn compile_list(&mut self, list: &IdedExpr) -> Compiled<(Box<Code>, Inferred, Type)> {
        let compiled = self.compile(list)?;
        let element = compiled.inferred.list().map(|(element, _)| element.clone());
        let element = element.map_err(|wrong| self.wrong(list, wrong.message))?;
        let (code, inferred) = compiled.operand();
        Ok((code, inferred, element))
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
        at: &IdedExpr,
        list: &IdedExpr,
        name: &IdedExpr,
        condition: Option<&IdedExpr>,
        body: Option<&IdedExpr>,
    ) -> Compiled<Typed> {
        let (list_code, of_list, of_element) = self.compile_list(list)?;
        let (element, (condition_of_each, body_of_each)) =
            self.with_element(name, of_element.clone(), |compiler| {
                let condition =
                    condition.map(|condition| compiler.compile(condition)).transpose()?;
                Ok((condition, body.map(|body| compiler.compile(body)).transpose()?))
            })?;
        let body_of_each =
            body_of_each.unwrap_or_else(|| Typed::known(Code::Slot(element), of_element));
        let (condition_code, of_condition) = condition_of_each.map(Typed::operand).unzip();
        let (body_code, of_body) = body_of_each.operand();
        let operands: Vec<Inferred> =
            [Some(of_list), of_condition, Some(of_body)].into_iter().flatten().collect();
        let places: Vec<&IdedExpr> = [Some(list), condition, body].into_iter().flatten().collect();
        let code =
            Code::Map { list: list_code, element, condition: condition_code, body: body_code };
        self.operation(at, &places, code, &operands)
    }

    fn quantify(
        &mut self,
        at: &IdedExpr,
        logic: Logic,
        list: &IdedExpr,
        name: &IdedExpr,
        condition: &IdedExpr,
    ) -> Compiled<Typed> {
        let (list_code, of_list, of_element) = self.compile_list(list)?;
        let (element, of_each) =
            self.with_element(name, of_element, |compiler| compiler.compile(condition))?;
        let (code, inferred) = of_each.operand();
        let code = Code::Quantify { logic, list: list_code, element, condition: code };
        self.operation(at, &[list, condition], code, &[of_list, inferred])
    }
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

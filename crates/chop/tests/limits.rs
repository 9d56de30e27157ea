//! Limits of procedure files: whatever a file says, the compiler and the checker return soon, on a small stack.

use serried_chop::{Mistake, compile};
use serried_procedures::{Datum, ProcedureSet};

/// Half of what a thread has by default. Without optimization, frames are several times as large as otherwise.
const STACK: usize = 1 << 20;

/// Runs `work` on a small stack. If that overflows, the whole process ends.
fn on_a_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work).unwrap();
    thread.join().unwrap()
}

/// A file with one procedure of one piece, whose output is `expression`.
fn file(expression: &str) -> String {
    format!(
        r#"
[tables.t]
key = {{ id = "int" }}
columns = {{ a = "int" }}
[procedures.p]
inputs = {{ x = "int", b = "bool", list = {{ list = "int", max = 1 }} }}
[procedures.p.pieces.q]
rows = {{ t = ["0"] }}
reads = ["t.a"]
outputs.out = """{expression}"""
"#
    )
}

fn compiled(text: String) -> Result<ProcedureSet, Mistake> {
    on_a_small_stack(move || compile(&text))
}

/// Compiles the expression on a small stack, and executes, copies and drops it if it is accepted.
fn expression(expression: &str) -> Result<(), Mistake> {
    let text = file(expression);
    on_a_small_stack(move || {
        let set = compile(&text)?;
        let piece = &set.procedures[0].pieces[0];
        let arguments: Vec<Datum> = piece
            .arguments
            .iter()
            .map(|argument| match argument {
                serried_procedures::Argument::Input(0) => Datum::Int(1),
                serried_procedures::Argument::Input(1) => Datum::Bool(true),
                _ => Datum::list([Datum::Int(1)]),
            })
            .collect();
        let copy = piece.body.clone();
        assert!(copy == piece.body && !format!("{copy:?}").is_empty());
        piece.body.execute(&set.tables, &arguments, &mut NoRows).unwrap();
        Ok(())
    })
}

struct NoRows;

impl serried_procedures::RowStore for NoRows {
    fn read(&mut self, _: u16, _: &[Datum]) -> Option<Vec<Datum>> {
        None
    }

    fn write(&mut self, _: u16, _: &[Datum], _: Vec<Datum>) {}

    fn delete(&mut self, _: u16, _: &[Datum]) {}
}

/// Expressions whose trees are as deep as they are long.
fn deep_expressions(depth: usize) -> Vec<String> {
    let around = |open: &str, middle: &str, close: &str| {
        format!("{}{middle}{}", open.repeat(depth), close.repeat(depth))
    };
    vec![
        vec!["x"; depth].join("+"),
        vec!["b"; depth].join(" && "),
        vec!["b"; depth].join(" || "),
        vec!["b"; depth].join(" == "),
        around("", "x", ".f"),
        around("", "list", "[0]"),
        around("", "list", ".map(e, e)"),
        around("", "list", ".distinct()"),
        around("(", "x", ")"),
        around("[", "x", "]"),
        around("[", "", ""),
        around("(", "", ""),
        around("{'a': ", "x", "}"),
        around("b ? x : ", "x", ""),
        around("b ? ", "x", " : x"),
        around("b ? (", "x", ") : x"),
        around("!", "b", ""),
        around("!(", "b", ")"),
        around("-", "x", ""),
        around("- ", "x", ""),
        around("-(", "x", ")"),
        around("list.map(e, ", "x", ")"),
        around("size(", "list", ")"),
        around("math.least(x, ", "x", ")"),
        around("x + (", "x", ")"),
        around("x in [", "x", "]"),
        around("'", "", ""),
        around("//'", "", "\n"),
        around("@", "", ""),
    ]
}

#[test]
fn deep_and_long_expressions_overflow_no_stack() {
    for depth in [15, 31, 63, 64, 120, 250, 500, 1_000, 4_000, 16_000] {
        for deep in deep_expressions(depth) {
            let lines = file(&deep).lines().count();
            if let Err(mistake) = expression(&deep) {
                assert!((10..=lines).contains(&mistake.line), "{mistake}");
            }
        }
    }
}

#[test]
fn a_long_sum_compiles_and_a_very_long_one_is_refused_with_its_place() {
    let sum = |terms: usize| vec!["x"; terms].join(" + ");
    for terms in [30, 64] {
        expression(&sum(terms)).unwrap();
    }
    let refused = |terms: usize| expression(&sum(terms)).unwrap_err().to_string();
    assert_eq!(
        refused(65),
        "10:18: operations nest more than 64 deep here, and each of `a + b + c` is one deeper than the next; name parts of \
         the expression with `let`, or use `sum([..])`"
    );
    assert_eq!(
        refused(300),
        "10:1042: an expression has at most 512 words and signs; name parts of it with `let`"
    );
    // A list is flat.
    expression(&format!("sum([{}])", vec!["x"; 250].join(", "))).unwrap();
}

#[test]
fn brackets_that_nest_too_deep_are_refused_with_their_place() {
    let nested = |depth| expression(&format!("{}x{}", "[".repeat(depth), "]".repeat(depth)));
    nested(15).unwrap();
    assert_eq!(
        nested(40).unwrap_err().to_string(),
        "10:51: this is not an expression: its brackets nest more than 32 deep; name parts of it with `let`"
    );
}

#[test]
fn words_can_not_be_hidden_from_their_limit() {
    let sum = vec!["x"; 300].join("+");
    let hidden = [
        format!("r'\\\\' + {sum} + '"),
        format!("x // don't\n + {sum}"),
        format!("'''it's''' + {sum}"),
    ];
    for hidden in hidden {
        let mistake = expression(&hidden).unwrap_err();
        assert!(mistake.message.contains("at most 512 words and signs"), "{mistake}");
    }
}

/// Files whose trees are as deep as they are long, before any expression is read.
#[test]
fn deep_and_long_toml_overflows_no_stack() {
    for depth in [10, 30, 75, 79, 81, 200, 5_000, 100_000] {
        let keys = format!("a{}", ".a".repeat(depth.min(78)));
        let files = [
            format!("a = {}{}", "[".repeat(depth), "]".repeat(depth)),
            "a = [".repeat(depth),
            "a = ".to_owned() + &"[".repeat(depth),
            format!("a = {}1{}", "{a = ".repeat(depth), "}".repeat(depth)),
            format!("[a{}]", ".a".repeat(depth)),
            format!("a{} = 1", ".a".repeat(depth)),
            format!(
                "[{keys}]\n{}1{}",
                format!("{keys} = {{").repeat(depth.min(79)),
                "}".repeat(depth)
            ),
            format!("[{keys}]\n{keys} = {}", format!("{{ {keys} = ").repeat(depth.min(79))),
            format!(
                "[{keys}]\n{keys} = {}1{}",
                format!("{{ {keys} = ").repeat(depth.min(79)),
                " }".repeat(depth.min(79))
            ),
            "[[a]]\n".repeat(depth),
        ];
        for file in files {
            let lines = file.lines().count();
            let mistake = compiled(file).unwrap_err();
            assert!((1..=lines).contains(&mistake.line), "{mistake}");
        }
    }
}

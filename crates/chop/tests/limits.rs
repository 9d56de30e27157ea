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
    fn read(&mut self, _: u16, _: &[Datum]) -> Option<serried_procedures::StoredRow> {
        None
    }

    fn write(&mut self, _: u16, _: &[Datum], _: serried_procedures::StoredRow) {}

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

/// `count` copies of `each`, with their numbers in the place of `#`.
fn numbered(count: usize, each: &str) -> String {
    (0..count).map(|at| each.replace('#', &at.to_string())).collect()
}

/// A file with `count` columns in each of two tables, and these procedures.
fn with_procedures(columns: usize, procedures: &str) -> String {
    format!(
        "[tables.t]\nkey = {{ id = \"int\" }}\n[tables.t.columns]\n{}[tables.u]\nkey = {{ id = \"int\" }}\n\
         [tables.u.columns]\n{}{procedures}",
        numbered(columns, "c# = \"int\"\n"),
        numbered(columns, "c# = \"int\"\n"),
    )
}

/// The most that a file may have of something is accepted, and one more is refused at its place.
#[track_caller]
fn at_most(most: usize, text: impl Fn(usize) -> String, message: &str) {
    if let Err(mistake) = compiled(text(most)) {
        panic!("{most}: {mistake}");
    }
    let text = text(most + 1);
    let lines = text.lines().count();
    let mistake = compiled(text).unwrap_err();
    assert!(mistake.message.contains(message), "{mistake}");
    assert!(mistake.line > 1 && mistake.line <= lines, "{mistake}");
}

const WRITE: &str = "rows={t=[\"0\"]},writes.t.c0=\"1\"";

#[test]
fn everything_is_counted() {
    let procedure = |inputs: &str, piece: &str, returns: &str| {
        with_procedures(
            256,
            &format!(
                "[procedures.p]\n[procedures.p.inputs]\nl = {{ list = \"int\", max = 1 }}\n{inputs}[procedures.p.pieces.q]\n\
                 {piece}\n[procedures.p.returns]\n{returns}"
            ),
        )
    };
    let rows = "rows = { t = [\"0\"] }\nreads = [\"t\"]\n";
    at_most(
        256,
        |count| numbered(count, "[tables.t#]\nkey={i=\"int\"}\ncolumns={c=\"int\"}\n"),
        "a procedure file has at most 256 tables",
    );
    at_most(
        1_024,
        |count| {
            let each = "p#.pieces = { q = { rows = { t = [\"0\"] }, reads = [\"t\"] } }\n";
            with_procedures(1, &format!("[procedures]\n{}", numbered(count, each)))
        },
        "a procedure file has at most 1024 procedures",
    );
    at_most(
        64,
        |count| {
            with_procedures(
                1,
                &format!(
                    "[procedures.p.pieces]\n{}",
                    numbered(count, &format!("q#={{{WRITE}}}\n"))
                ),
            )
        },
        "procedure `p` has at most 64 pieces",
    );
    at_most(
        4,
        |count| {
            let pieces = numbered(64, &format!("q#={{{WRITE}}}\n"));
            with_procedures(1, &numbered(count, "[procedures.p#.pieces]\n@").replace('@', &pieces))
        },
        "the procedures of a file that write have at most 256 pieces together",
    );
    at_most(
        255,
        |count| procedure(&numbered(count, "i# = \"int\"\n"), rows, ""),
        "procedure `p` has at most 256 inputs",
    );
    at_most(
        256,
        |count| procedure("", rows, &numbered(count, "r# = \"1\"\n")),
        "procedure `p` has at most 256 results",
    );
    at_most(
        256,
        |count| {
            procedure(
                "",
                &format!("{rows}[procedures.p.pieces.q.let]\n{}", numbered(count, "n# = \"1\"\n")),
                "",
            )
        },
        "piece `q` has at most 256 named expressions",
    );
    at_most(
        256,
        |count| {
            procedure(
                "",
                &format!(
                    "{rows}[procedures.p.pieces.q.outputs]\n{}",
                    numbered(count, "n# = \"1\"\n")
                ),
                "",
            )
        },
        "piece `q` has at most 256 outputs",
    );
    at_most(
        64,
        |count| {
            procedure(
                "",
                &format!(
                    "{rows}[procedures.p.pieces.q.for_each]\n{}",
                    numbered(count, "n# = \"l\"\n")
                ),
                "",
            )
        },
        "piece `q` has at most 64 lists to iterate",
    );
    at_most(
        1_024,
        |count| {
            procedure(
                "",
                &format!(
                    "rows = {{ t = [\"0\"] }}\nreads = [{}]\n",
                    numbered(count, "\"t.c0\",\n")
                ),
                "",
            )
        },
        "a piece reads at most 1024 columns",
    );
    // An input, whether the row exists, and an element for each of the lists that are iterated.
    at_most(
        4_094,
        |count| {
            let each = |at: usize| {
                format!(
                    "n{at} = \"[{}]\"\n",
                    "l.map(e,e),".repeat(count / 256 + usize::from(at < count % 256) - 1)
                )
            };
            let named: String = (0..256).map(each).collect();
            procedure("", &format!("{rows}[procedures.p.pieces.q.let]\n{named}"), "")
        },
        "the limit is 4096",
    );
}

/// A row of the table takes up a little more than 1 MiB. All data of a call are logged together, and have to fit.
#[test]
fn the_data_of_a_call_are_bounded() {
    let table = "[tables.t]\nkey = { i = \"int\" }\ncolumns = { c = \"string(1048576)\" }\n";
    let piece = "[procedures.p.pieces.q]\nrows = { t = [\"0\"] }\n";
    at_most(
        15,
        |count| {
            format!(
                "{table}[procedures.p]\ninputs.l = {{ list = \"int\", max = {count} }}\n[procedures.p.pieces.q]\n\
                 for_each = {{ e = \"l\" }}\nrows = {{ t = [\"e\"] }}\nwrites.t.c = \"''\"\n"
            )
        },
        "the inputs of a call, its keys and what its pieces get, return and write take up to 16779296 bytes",
    );
    at_most(
        7,
        |count| {
            format!(
                "[tables.t]\nkey = {{ g = \"int\", i = \"int\" }}\nplaced_by = 1\n\
                 columns = {{ c = \"string(1048576)\" }}\n[procedures.p]\ninputs.l = {{ list = \"int\", max = {count} }}\n\
                 [procedures.p.pieces.q]\nfor_each = {{ e = \"l\" }}\n\
                 rows = {{ t = [\"e\", \"0\"], u = {{ table = \"t\", key = [\"e\", \"1\"] }} }}\n\
                 writes.t.c = \"''\"\nwrites.u.c = \"''\"\n"
            )
        },
        "the inputs of a call, its keys and what its pieces get, return and write take up to 1677",
    );
    at_most(
        15,
        |count| {
            format!(
                "{table}[procedures.p.inputs]\n{}{piece}reads = [\"t.c\"]\noutputs.o = \"size(t.c)\"\n",
                numbered(count, "i# = \"string(1048576)\"\n")
            )
        },
        "the inputs of a call, its keys and what its pieces get, return and write take up to 16777",
    );
    // A row that is only read.
    at_most(
        15,
        |count| {
            format!(
                "[tables.t]\nkey = {{ g = \"int\", s = \"string(1048576)\" }}\nplaced_by = 1\n\
                 columns = {{ c = \"int\" }}\n[procedures.p]\ninputs.l = {{ list = \"int\", max = {count} }}\n\
                 [procedures.p.pieces.q]\nfor_each = {{ e = \"l\" }}\nrows = {{ t = [\"e\", \"''\"] }}\n\
                 reads = [\"t.c\"]\noutputs.o = \"t.c\"\n"
            )
        },
        "the inputs of a call, its keys and what its pieces get, return and write take up to 1677",
    );
    at_most(
        15,
        |count| {
            format!(
                "{table}{piece}reads = [\"t.c\"]\n[procedures.p.pieces.q.outputs]\n{}",
                numbered(count, "o# = \"t.c\"\n")
            )
        },
        "or so do its results, and the limit is 16777216",
    );
    at_most(
        15,
        |count| {
            format!(
                "{table}{piece}reads = [\"t.c\"]\noutputs.o = \"t.c\"\n[procedures.p.returns]\n{}",
                numbered(count, "r# = \"q.o\"\n")
            )
        },
        "lower the `max` of the lists and the lengths of the strings in inputs and columns",
    );
}

#[test]
fn types_do_not_grow_without_bound() {
    // Each name is twice as large as the one before it.
    let doubled = (1..40).map(|at| format!("n{at} = \"{{'l': n{0}, 'r': n{0}}}\"\n", at - 1));
    let nested = (1..60).map(|at| format!("n{at} = \"[n{}]\"\n", at - 1));
    for named in [doubled.collect::<String>(), nested.collect()] {
        let piece = format!(
            "[procedures.p.pieces.q]\nrows = {{ t = [\"0\"] }}\nreads = [\"t\"]\n[procedures.p.pieces.q.let]\nn0 = \"1\"\n{named}"
        );
        let mistake = compiled(with_procedures(1, &piece)).unwrap_err();
        let limit = "a type nests at most 32 lists and records, and has at most 128 fields in all";
        assert_eq!(mistake.message, limit);
    }
}

/// The largest files for which the compiler or the checker has most to do. They take some seconds without optimization.
fn laborious_files() -> Vec<(&'static str, String)> {
    let writes = |table: &str, column: usize| {
        format!(
            "rows={{{table}=[\"0\"]}},reads=[\"{table}.c{column}\"],writes.{table}.c{column}=\"1\",\
             outputs.o=\"{table}.c{column}\""
        )
    };
    // The last piece needs the others, so these are immediate.
    let needs = "s={rows={t=[\"q.o+r.o\"]},reads=[\"t.c255\"]}";
    let pieces =
        |count: usize, each: &dyn Fn(usize) -> String| -> String { (0..count).map(each).collect() };
    let one = |at: usize| format!("p{at}.pieces={{q={{{}}}}}\n", writes("t", 0));
    let shared = |at: usize| {
        format!(
            "p{at}.pieces={{q={{{}}},r={{{}}},{needs}}}\n",
            writes("t", 0),
            writes("u", at % 256)
        )
    };
    let own = |at: usize| {
        let table = if at < 128 { "t" } else { "u" };
        let [q, r] = [0, 1].map(|piece| writes(table, at * 2 % 254 + piece));
        format!("p{at}.pieces={{q={{{q}}},r={{{r}}},{needs}}}\n")
    };
    // Each procedure reads what the one before it in its ring writes.
    let ring = |length: usize| {
        move |at: usize| {
            let (ring, place) = (at / length % (256 / length) * length, at % length);
            let (reads, writes) = (ring + place, ring + (place + 1) % length);
            format!(
                "p{at}.pieces={{q={{rows={{t=[\"0\"]}},reads=[\"t.c{reads}\"],outputs.o=\"t.c{reads}\"}},\
                 r={{rows={{t=[\"q.o\"]}},writes.t.c{writes}=\"1\"}}}}\n"
            )
        }
    };
    let repeated = |at: usize| {
        let each = format!("q#={{for_each={{e=\"[0,1]\"}},{}}}\n", writes("t", 0));
        let needs = "s={for_each={o=\"q0.o\"},rows={t=[\"o\"]},reads=[\"t.c255\"]}";
        format!("[procedures.p{at}.pieces]\n{}{needs}\n", numbered(63, &each))
    };
    let section = |body: String| with_procedures(256, &format!("[procedures]\n{body}"));
    let record: String = numbered(100, "f#=\"int\",");
    let uses = "[x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x].size()";
    vec![
        ("one shared column", section(pieces(256, &one))),
        ("shared and private columns", section(pieces(85, &shared))),
        ("own columns", section(pieces(85, &own))),
        ("rings of 4", section(pieces(128, &ring(4)))),
        ("rings of 32", section(pieces(128, &ring(32)))),
        ("a ring of 128", section(pieces(128, &ring(128)))),
        ("repeated pieces", with_procedures(256, &pieces(4, &repeated))),
        (
            "large types",
            with_procedures(
                1,
                &pieces(60, &|at| {
                    format!(
                        "[procedures.p{at}]\ninputs={{x={{{record}}}}}\n[procedures.p{at}.pieces.q]\nrows={{t=[\"0\"]}}\nreads=[\"t\"]\n\
                         [procedures.p{at}.pieces.q.let]\n{}",
                        numbered(40, &format!("n#=\"{uses}\"\n"))
                    )
                }),
            ),
        ),
    ]
}

#[test]
fn the_most_laborious_files_are_checked_and_merged() {
    for (name, text) in laborious_files() {
        let mut set = compiled(text).unwrap_or_else(|mistake| panic!("{name}: {mistake}"));
        let accepted = serried_chop::check(&mut set).is_ok();
        let merged = serried_chop::check_and_merge(&mut set);
        assert_eq!(accepted, merged.is_empty(), "{name}");
        serried_chop::check(&mut set).unwrap();
    }
}

/// A server executes the pieces of a call one after the other, and meanwhile its core does nothing else.
#[test]
fn the_steps_of_a_call_are_bounded() {
    at_most(
        10,
        |count| {
            format!(
                "[tables.t]\nkey = {{ i = \"int\" }}\ncolumns = {{ c = \"int\" }}\n[procedures.p]\n\
                 inputs = {{ m = \"int\", l = {{ list = \"int\", max = {count} }} }}\n[procedures.p.pieces.q]\n\
                 for_each = {{ e = \"l\" }}\nrows = {{ t = [\"e\"] }}\nlet = {{ k = \"range(0, m, 430)\" }}\n\
                 writes.t.c = \"k.all(x, k.all(y, x + y >= 0)) ? 1 : 2\"\n"
            )
        },
        "steps together, and the limit is 10000000; lower the `max` of the lists that `for_each` iterates",
    );
}

#[test]
fn what_results_gather_is_bounded() {
    let sum = "size(q.o0) + size(q.o1) + size(q.o2) + size(q.o3) + size(q.o4) + size(q.o5) + size(q.o6) + size(q.o7)";
    at_most(
        6_248,
        |count| {
            format!(
                "[tables.t]\nkey = {{ i = \"int\" }}\ncolumns = {{ c = \"int\" }}\n[procedures.p]\n\
                 inputs.l = {{ list = \"int\", max = {count} }}\n[procedures.p.pieces.q]\nfor_each = {{ e = \"l\" }}\n\
                 rows = {{ t = [\"e\"] }}\nreads = [\"t.c\"]\n[procedures.p.pieces.q.outputs]\n{}[procedures.p.returns]\n{}",
                numbered(8, "o# = \"t.c\"\n"),
                numbered(200, &format!("r# = \"{sum}\"\n"))
            )
        },
        "the lists that pieces iterate and the results use up to",
    );
}

//! Languages for the bodies of pieces: what TPC-C's `stock` piece costs in each. `cargo run --release`, here.
//!
//! The body computes four columns from four columns and three arguments. Each candidate gets its arguments as its own
//! values, and its results are read back as integers.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use serried_procedures::{Datum, RowStore, StoredRow};

const RUNS: u32 = 300_000;

/// Arguments: what the line orders, who supplies it, and the warehouse; then the columns of the row.
const INPUT: [i64; 7] = [7, 2, 1, 50, 100, 10, 1];
const WANTED: [i64; 4] = [43, 107, 11, 2];

fn compiled(line: i64, supplier: i64, warehouse: i64, [quantity, ytd, orders, remote]: [i64; 4]) -> [i64; 4] {
    let left = quantity - line;
    [if left >= 10 { left } else { left + 91 }, ytd + line, orders + 1, if supplier == warehouse { remote } else { remote + 1 }]
}

fn measure(name: &str, mut run: impl FnMut() -> [i64; 4]) {
    assert_eq!(run(), WANTED, "{name}");
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let began = Instant::now();
        for _ in 0..RUNS {
            black_box(run());
        }
        best = best.min(began.elapsed().as_secs_f64() / f64::from(RUNS) * 1e9);
    }
    println!("{name:32} {best:8.0} ns");
}

/// One row, as the store of a server would have it decoded.
struct One(StoredRow);

impl RowStore for One {
    fn read(&mut self, _: u16, _: &[Datum]) -> Option<StoredRow> {
        Some(self.0.clone())
    }

    fn write(&mut self, _: u16, _: &[Datum], row: StoredRow) {
        black_box(row);
    }

    fn delete(&mut self, _: u16, _: &[Datum]) {}
}

fn main() {
    let [line, supplier, warehouse, columns @ ..] = INPUT;
    measure("compiled Rust", || compiled(black_box(line), supplier, warehouse, black_box(columns)));

    let set = serried_chop::compile(include_str!("../../procedures/tpcc.toml")).unwrap();
    let piece = set.procedures[0].pieces.iter().find(|piece| piece.name == "stock").unwrap();
    let stock = set.tables.iter().find(|table| table.name == "stock").unwrap();
    let mut row = stock.defaults();
    for (at, column) in columns.iter().enumerate() {
        row[at] = Datum::Int(*column);
    }
    let mut store = One(row.into());
    let arguments: Vec<Datum> = piece
        .arguments
        .iter()
        .map(|argument| match argument {
            serried_procedures::Argument::Element(_) => {
                Datum::record([Datum::Int(9), Datum::Int(supplier), Datum::Int(line)])
            }
            _ => Datum::Int(warehouse),
        })
        .collect();
    let mut frame = arguments.clone();
    frame.extend(columns.map(Datum::Int));
    measure("Code: the four expressions", || {
        let mut results = piece.body.writes.iter().map(|write| match write.to.evaluate(&mut frame) {
            Ok(Datum::Int(int)) => int,
            other => panic!("{other:?}"),
        });
        std::array::from_fn(|_| results.next().unwrap())
    });
    measure("Code: the piece with its row", || {
        piece.body.execute(&set.tables, black_box(&arguments), &mut store).unwrap();
        WANTED
    });

    let expressions = [
        "quantity - line >= 10 ? quantity - line : quantity - line + 91",
        "ytd + line",
        "orders + 1",
        "supplier == warehouse ? remote : remote + 1",
    ];
    let names = ["line", "supplier", "warehouse", "quantity", "ytd", "orders", "remote"];
    let programs = expressions.map(|expression| cel::Program::compile(expression).unwrap());
    let env = Arc::new(cel::Env::stdlib());
    measure("cel 0.15, its interpreter", || {
        let mut context = cel::Context::with_env(env.clone());
        for (name, value) in names.into_iter().zip(INPUT) {
            context.add_variable_from_value(name, value);
        }
        programs.each_ref().map(|program| match program.execute(&context) {
            Ok(cel::Value::Int(int)) => int,
            other => panic!("{other:?}"),
        })
    });

    let mut engine = rhai::Engine::new_raw();
    engine.set_max_operations(100_000);
    let script = format!(
        "[{}]",
        "if quantity - line >= 10 { quantity - line } else { quantity - line + 91 }, ytd + line, orders + 1, \
         if supplier == warehouse { remote } else { remote + 1 }"
    );
    let script = engine.compile(script).unwrap();
    measure("rhai 1.27, metered", || {
        let mut scope = rhai::Scope::new();
        for (name, value) in names.into_iter().zip(INPUT) {
            scope.push(name, value);
        }
        let results: rhai::Array = engine.eval_ast_with_scope(&mut scope, &script).unwrap();
        std::array::from_fn(|at| results[at].as_int().unwrap())
    });

    let module = r#"(module (func (export "stock") (param $line i64) (param $supplier i64) (param $warehouse i64)
        (param $quantity i64) (param $ytd i64) (param $orders i64) (param $remote i64) (result i64 i64 i64 i64)
        (local $left i64) (local.set $left (i64.sub (local.get $quantity) (local.get $line)))
        (select (local.get $left) (i64.add (local.get $left) (i64.const 91)) (i64.ge_s (local.get $left) (i64.const 10)))
        (i64.add (local.get $ytd) (local.get $line)) (i64.add (local.get $orders) (i64.const 1))
        (select (local.get $remote) (i64.add (local.get $remote) (i64.const 1)) (i64.eq (local.get $supplier) (local.get $warehouse)))))"#;
    let mut config = wasmi::Config::default();
    config.consume_fuel(true);
    let engine = wasmi::Engine::new(&config);
    let module = wasmi::Module::new(&engine, wat::parse_str(module).unwrap()).unwrap();
    type Arguments = (i64, i64, i64, i64, i64, i64, i64);
    measure("wasmi 2, metered, new instance", || {
        let mut store = wasmi::Store::new(&engine, ());
        store.set_fuel(100_000).unwrap();
        let instance = wasmi::Linker::new(&engine).instantiate_and_start(&mut store, &module).unwrap();
        let stock = instance.get_typed_func::<Arguments, (i64, i64, i64, i64)>(&store, "stock").unwrap();
        let [a, b, c, d, e, f, g] = INPUT;
        stock.call(&mut store, (a, b, c, d, e, f, g)).unwrap().into()
    });
    let mut store = wasmi::Store::new(&engine, ());
    store.set_fuel(100_000).unwrap();
    let instance = wasmi::Linker::new(&engine).instantiate_and_start(&mut store, &module).unwrap();
    let stock = instance.get_typed_func::<Arguments, (i64, i64, i64, i64)>(&store, "stock").unwrap();
    measure("wasmi 2, metered, kept instance", || {
        store.set_fuel(100_000).unwrap();
        let [a, b, c, d, e, f, g] = INPUT;
        stock.call(&mut store, (a, b, c, d, e, f, g)).unwrap().into()
    });
}

//! Lists that calls append to and read, so that a history shows in which order they took effect.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;
use serried_procedures::{Datum, ProcedureSet, Results};

use super::{
    PlannedCall, ProcedureParameters, ProcedureWorkload, ReadList, compile, list, numbers,
};

/// A list that has been appended to so often is no longer used, and another one takes its place. The text of so many
/// elements, each with a blank, fits into the column.
const LONGEST: u64 = 64;
/// Added to the number of a row of `heads`, to distinguish it from one of `lists` in a history.
const HEAD: u64 = 1 << 62;
/// How many lists an `append` or a `read` uses at most, of each table.
const MOST_PER_CALL: u64 = 4;

/// A list is a text of numbers with a blank after each, because a text can be bounded without a failure.
///
/// All pieces of `append` can be deferred. The first piece of `chain` is immediate, and its output is needed by the second
/// one, which can be deferred. `guard` has a check, so it reads what is immediate, and may be refused. Each piece of `follow`
/// decides which list the next one reads.
const PROCEDURES: &str = r#"
[tables.lists]
key = { list = "int" }
columns = { text = "string(1536)", after = "int" }

[tables.heads]
key = { head = "int" }
columns = { text = "string(1536)" }

[procedures.append]
inputs = { lists = { list = "int", max = 4 }, element = "int" }
returns = { before = "append.before" }

[procedures.append.pieces.append]
for_each = { list = "lists" }
rows = { row = { table = "lists", key = ["list"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(element) + ' ', 1536)"
outputs.before = "row.text"

[procedures.chain]
inputs = { head = "int", list = "int", element = "int" }
returns = { head = "first.before", before = "second.before" }

[procedures.chain.pieces.first]
rows = { row = { table = "heads", key = ["head"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(element) + ' ', 1536)"
outputs = { before = "row.text", appended = "string(element) + ' '", bytes = "size(row.text)" }

[procedures.chain.pieces.second]
rows = { row = { table = "lists", key = ["list"] } }
reads = ["row.text"]
writes.row = { text = "left(row.text + first.appended, 1536)", after = "first.bytes" }
outputs.before = "row.text"

[procedures.guard]
inputs = { head = "int", most = "int", lists = { list = "int", max = 4 }, element = "int" }
returns = { head = "look.text", before = "append.before" }

[procedures.guard.pieces.look]
rows = { row = { table = "heads", key = ["head"] } }
reads = ["row.text"]
checks = [{ that = "size(row.text) <= most", otherwise = "the list is too long" }]
outputs.text = "row.text"

[procedures.guard.pieces.append]
for_each = { list = "lists" }
rows = { row = { table = "lists", key = ["list"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(element) + ' ', 1536)"
outputs.before = "row.text"

[procedures.read]
inputs = { lists = { list = "int", max = 4 }, heads = { list = "int", max = 4 } }
returns = { lists = "list.text", heads = "head.text" }

[procedures.read.pieces.list]
for_each = { list = "lists" }
rows = { row = { table = "lists", key = ["list"] } }
reads = ["row.text"]
outputs.text = "row.text"

[procedures.read.pieces.head]
for_each = { head = "heads" }
rows = { row = { table = "heads", key = ["head"] } }
reads = ["row.text"]
outputs.text = "row.text"

[procedures.follow]
inputs = { head = "int", first = "int", second = "int", third = "int" }
returns = { head = "begin.text", first = "one.text", second = "two.text", third = "three.text" }

[procedures.follow.pieces.begin]
rows = { row = { table = "heads", key = ["head"] } }
reads = ["row.text"]
outputs = { text = "row.text", step = "size(row.text) % 2" }

[procedures.follow.pieces.one]
rows = { row = { table = "lists", key = ["first + begin.step"] } }
reads = ["row.text"]
outputs = { text = "row.text", step = "size(row.text) % 2" }

[procedures.follow.pieces.two]
rows = { row = { table = "lists", key = ["second + one.step"] } }
reads = ["row.text"]
outputs = { text = "row.text", step = "size(row.text) % 2" }

[procedures.follow.pieces.three]
rows = { row = { table = "lists", key = ["third + two.step"] } }
reads = ["row.text"]
outputs.text = "row.text"
"#;

/// Both pieces of `link` are immediate and conflict with each other, so the checker merges them.
const MERGED: &str = r#"
[procedures.link]
inputs = { from = "int", to = "int", element = "int" }
returns = { from = "first.before", to = "second.before" }

[procedures.link.pieces.first]
rows = { row = { table = "heads", key = ["from"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(element) + ' ', 1536)"
outputs = { before = "row.text", appended = "string(element) + ' '" }

[procedures.link.pieces.second]
rows = { row = { table = "heads", key = ["to"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + first.appended, 1536)"
outputs.before = "row.text"
"#;

/// Calls that append a unique number to lists at several servers, and return what was there before; and calls that read
/// several lists.
#[derive(Debug)]
pub struct ListCalls {
    set: Arc<ProcedureSet>,
    keys: u64,
    merged: bool,
    popularity: Zipf<f64>,
    /// How often each list that is in use, and those that were before, were appended to: lists, then heads.
    appended: [Vec<AtomicU64>; 2],
    /// The first list's number. Runs on one database use different lists.
    first: AtomicU64,
    elements: AtomicU64,
    /// Whether lists are used only as [`ProcedureWorkload::begin_at`] says, however often they were appended to.
    shared: bool,
    /// All lists that were used.
    used: Mutex<BTreeSet<u64>>,
}

/// A table.
#[derive(Clone, Copy)]
enum Table {
    Lists,
    Heads,
}

impl ListCalls {
    /// By default eight lists at a time, and as many heads.
    pub fn new(parameters: &ProcedureParameters) -> ListCalls {
        let keys = parameters.keys.unwrap_or(8).max(1);
        let popularity = Zipf::new(keys as f64, parameters.theta.unwrap_or(0.9).max(0.0));
        let text = match parameters.merged {
            true => &[PROCEDURES, MERGED].concat(),
            false => PROCEDURES,
        };
        let unused = || (0..keys).map(|_| AtomicU64::new(0)).collect();
        ListCalls {
            set: compile(text, |_| true),
            keys,
            merged: parameters.merged,
            popularity: popularity.expect("a positive number of keys and an exponent from 0 on"),
            appended: [unused(), unused()],
            first: AtomicU64::new(0),
            elements: AtomicU64::new(1),
            shared: false,
            used: Mutex::default(),
        }
    }

    /// The same, for processes that do not talk to each other. [`ProcedureWorkload::begin_at`] decides which lists are in
    /// use. Elements are numbered from `first_element` on, and no other process may have them.
    pub fn shared(self, first_element: u64) -> ListCalls {
        ListCalls { elements: AtomicU64::new(first_element), shared: true, ..self }
    }

    /// Calls that read these lists, by their numbers in a history.
    pub fn reads(keys: impl IntoIterator<Item = u64>) -> Vec<PlannedCall> {
        let (heads, lists): (Vec<u64>, Vec<u64>) =
            keys.into_iter().partition(|list| list & HEAD > 0);
        let heads: Vec<u64> = heads.into_iter().map(|head| head & !HEAD).collect();
        let of_lists =
            lists.chunks(MOST_PER_CALL as usize).map(|lists| Self::plan_read(lists, &[]));
        let of_heads =
            heads.chunks(MOST_PER_CALL as usize).map(|heads| Self::plan_read(&[], heads));
        of_lists.chain(of_heads).collect()
    }

    /// A list by its popularity, that is appended to or not.
    fn draw(&self, table: Table, appends: bool, random: &mut Pcg64Mcg) -> u64 {
        let place = self.popularity.sample(random) as u64 - 1;
        let appended = &self.appended[table as usize][place as usize];
        let count = appended.fetch_add(u64::from(appends), Ordering::Relaxed);
        let first = self.first.load(Ordering::Relaxed);
        first + place + if self.shared { 0 } else { self.keys * (count / LONGEST) }
    }

    /// Up to [`MOST_PER_CALL`] different lists.
    fn draw_some(&self, table: Table, appends: bool, random: &mut Pcg64Mcg) -> Vec<u64> {
        let mut drawn: Vec<u64> = Vec::new();
        for _ in 0..random.random_range(1..=MOST_PER_CALL) {
            let list = self.draw(table, appends, random);
            if !drawn.contains(&list) {
                drawn.push(list);
            }
        }
        drawn
    }

    fn plan_read(lists: &[u64], heads: &[u64]) -> PlannedCall {
        let reads = lists.iter().copied().chain(heads.iter().map(|head| head | HEAD));
        PlannedCall {
            reads: reads.collect(),
            ..PlannedCall::new("read", [lists, heads].map(|keys| numbers(keys.iter().copied())))
        }
    }

    fn element(&self) -> u64 {
        self.elements.fetch_add(1, Ordering::Relaxed)
    }
}

impl ProcedureWorkload for ListCalls {
    fn name(&self) -> &'static str {
        "list-append-calls"
    }

    fn set(&self) -> &Arc<ProcedureSet> {
        &self.set
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> PlannedCall {
        let int = |number: u64| Datum::Int(number as i64);
        let kinds = if self.merged { 7 } else { 6 };
        let mut planned = match random.random_range(0..kinds) {
            0 => {
                let (lists, element) = (self.draw_some(Table::Lists, true, random), self.element());
                PlannedCall {
                    appends: lists.iter().map(|list| (*list, element)).collect(),
                    reads: lists.clone(),
                    ..PlannedCall::new("append", [numbers(lists), int(element)])
                }
            }
            1 | 2 => {
                let head = self.draw(Table::Heads, true, random);
                let (list, element) = (self.draw(Table::Lists, true, random), self.element());
                PlannedCall {
                    appends: vec![(head | HEAD, element), (list, element)],
                    reads: vec![head | HEAD, list],
                    ..PlannedCall::new("chain", [head, list, element].map(int))
                }
            }
            3 => {
                let head = self.draw(Table::Heads, false, random);
                let (lists, element) = (self.draw_some(Table::Lists, true, random), self.element());
                // It is refused more often the longer the list is.
                let most = random.random_range(0..8 * LONGEST);
                let reads = [head | HEAD].into_iter().chain(lists.iter().copied());
                PlannedCall {
                    appends: lists.iter().map(|list| (*list, element)).collect(),
                    reads: reads.collect(),
                    ..PlannedCall::new(
                        "guard",
                        [int(head), int(most), numbers(lists.clone()), int(element)],
                    )
                }
            }
            4 => {
                let lists = self.draw_some(Table::Lists, false, random);
                Self::plan_read(&lists, &self.draw_some(Table::Heads, false, random))
            }
            5 => {
                let head = self.draw(Table::Heads, false, random);
                let [first, second, third] =
                    [(); 3].map(|()| self.draw(Table::Lists, false, random));
                PlannedCall::new("follow", [head, first, second, third].map(int))
            }
            _ => {
                let from = self.draw(Table::Heads, true, random);
                let (to, element) = (self.draw(Table::Heads, true, random), self.element());
                if from == to {
                    return Self::plan_read(&[], &[from]);
                }
                PlannedCall {
                    appends: vec![(from | HEAD, element), (to | HEAD, element)],
                    reads: vec![from | HEAD, to | HEAD],
                    ..PlannedCall::new("link", [from, to, element].map(int))
                }
            }
        };
        planned.appends.sort_unstable();
        let mut used = self.used.lock().expect("nobody panics while planning");
        used.extend(planned.reads.iter().copied());
        planned
    }

    /// Numbers lists from `first` on: those that other runs have used are not empty.
    fn begin_at(&self, first: u64) {
        self.first.store(first % HEAD, Ordering::Relaxed);
    }

    fn observe(&self, planned: &PlannedCall, results: &Results) -> Result<Vec<ReadList>, String> {
        if planned.procedure == "follow" {
            return followed(planned, results);
        }
        let single = |name| results.get(name).into_iter();
        let texts: Vec<&Datum> = match planned.procedure {
            "append" => list(results, "before")?.iter().collect(),
            "chain" => single("head").chain(single("before")).collect(),
            "guard" => single("head").chain(list(results, "before")?).collect(),
            "link" => single("from").chain(single("to")).collect(),
            _ => list(results, "lists")?.iter().chain(list(results, "heads")?).collect(),
        };
        if texts.len() != planned.reads.len() {
            return Err(format!(
                "{} lists were read, and {} found",
                planned.reads.len(),
                texts.len()
            ));
        }
        planned.reads.iter().zip(texts).map(|(list, text)| Ok((*list, elements(text)?))).collect()
    }

    fn audits(&self) -> Vec<PlannedCall> {
        let used = self.used.lock().expect("nobody panics while planning");
        Self::reads(used.iter().copied())
    }
}

/// The lists that `follow` has read. How long a text is decides which list comes next.
fn followed(planned: &PlannedCall, results: &Results) -> Result<Vec<ReadList>, String> {
    let (mut all, mut step, mut mark) = (Vec::new(), 0, HEAD);
    for (name, input) in ["head", "first", "second", "third"].into_iter().zip(&planned.inputs) {
        let (Datum::Int(input), Some(Datum::String(text))) = (input, results.get(name)) else {
            return Err(format!("`follow` returned {:?} as `{name}`", results.get(name)));
        };
        let list = (*input as u64 + step) | mark;
        all.push((list, elements(&Datum::String(text.clone()))?));
        (step, mark) = (text.len() as u64 % 2, 0);
    }
    Ok(all)
}

/// The elements of a list.
fn elements(text: &Datum) -> Result<Vec<u64>, String> {
    let Datum::String(text) = text else { return Err(format!("a list is no text: {text}")) };
    let elements = text.split_terminator(' ').map(str::parse);
    elements
        .collect::<Result<_, _>>()
        .map_err(|_| format!("a list is no list of numbers: {text:?}"))
}

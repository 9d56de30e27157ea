//! Every execution of Gryff-RSC's algorithms, as printed (001 Algorithms 8 to 10) and as mended, for programs of
//! a few operations on two keys: each message is delivered at any time, or not at all.
//!
//! `SERRIED_EXPLORE=1 cargo test --release -p serried-protocols --test rsc_exploration -- --nocapture` goes
//! through more and longer programs, which takes some minutes.

mod model;
mod order;

use model::{Access, Form, Lane, Model, Operation};
use order::{Event, is_regular_sequential, judged};
use serried_history::RegisterVerdict;

const STATES_AT_MOST: usize = 50_000_000;

/// What clients do: in `rx wy | my rx` one reads `x` and then writes `y`, and another one read-modify-writes
/// `y` and then reads `x`; `&` is between lanes of the same client.
fn program(text: &str) -> Vec<Lane> {
    let operation = |word: &str| {
        let (access, key) = word.split_at(1);
        let access = match access {
            "r" => Access::Read,
            "w" => Access::Write,
            "m" => Access::Modify,
            other => panic!("`{other}` is nothing that can be done"),
        };
        Operation { access, key: usize::from(key == "y") }
    };
    let lane = |client, text: &str| Lane {
        client,
        operations: text.split_whitespace().map(operation).collect(),
    };
    let clients = text.split('|').enumerate();
    clients.flat_map(|(client, text)| text.split('&').map(move |text| lane(client, text))).collect()
}

/// What a program can come to.
struct Explored {
    lanes: Vec<Lane>,
    right: Vec<Vec<Event>>,
    /// The histories that are not regular sequential.
    wrong: Vec<Vec<Event>>,
}

fn explore(text: &str, form: Form) -> Explored {
    let lanes = program(text);
    let model = Model { lanes: &lanes, form, unfinished_arrives: is_long() };
    let model::Explored { states, histories } = model.explore(STATES_AT_MOST);
    let mut histories = Vec::from_iter(histories);
    histories.sort_unstable();
    let is_right = |history: &Vec<Event>| is_regular_sequential(&lanes, history);
    let (right, wrong): (Vec<_>, Vec<_>) = histories.into_iter().partition(is_right);
    let (rights, wrongs) = (right.len(), wrong.len());
    println!("{text}, {form:?}: {states} states, {rights} histories are right, {wrongs} are not");
    assert!(rights > 0, "`{text}` never ends");
    Explored { lanes, right, wrong }
}

/// Whether longer programs are wanted.
fn is_long() -> bool {
    std::env::var("SERRIED_EXPLORE").is_ok()
}

/// Programs of two clients, the first of which reads `x` and then does something to `y`.
fn programs() -> Vec<String> {
    let seconds: &[&str] =
        if is_long() { &["rx", "wx", "mx", "ry", "wy", "my"] } else { &["rx", "mx", "ry"] };
    let mut programs = Vec::new();
    for then in ["ry", "wy", "my"] {
        for first in ["wy", "my"] {
            programs.extend(seconds.iter().map(|second| format!("rx {then} | {first} {second}")));
        }
    }
    let others = ["rx & ry | wy rx", "rx & wy | wy rx", "rx & my | wy rx", "rx wx ry | wy rx"];
    programs.extend(others.map(str::to_string));
    if !is_long() {
        return programs;
    }
    for then in ["ry", "wy", "my"] {
        for between in ["rx", "wx", "mx", "ry"] {
            programs.push(format!("rx {between} {then} | wy rx"));
            programs.push(format!("rx {between} {then} | my rx"));
        }
        for third in ["ry", "wy", "my"] {
            programs.push(format!("rx {then} | wy rx {third}"));
            programs.push(format!("rx {then} {third} | wy rx"));
        }
    }
    let others =
        ["rx ry | wy | ry rx", "rx my | wy | ry rx", "rx ry & rx | wy rx", "rx ry | wy & rx"];
    programs.extend(others.map(str::to_string));
    programs
}

#[test]
fn as_printed_there_are_executions_that_are_not_regular_sequential() {
    for text in [
        "rx ry | wy rx",
        "rx ry | my rx",
        "rx my | wy rx",
        "rx ry | wy | ry rx",
        "rx wy | wy rx ry",
        "rx & ry | wy rx",
    ] {
        assert!(!explore(text, Form::AsPrinted).wrong.is_empty(), "{text}");
    }
}

#[test]
fn if_updates_alone_wait_there_are_such_executions_too() {
    assert!(!explore("rx ry | wy rx", Form::UpdatesWait).wrong.is_empty());
}

#[test]
fn the_checker_says_the_same_of_what_is_printed() {
    for text in ["rx ry | wy rx", "rx wy | wy rx ry"] {
        let Explored { lanes, right, wrong } = explore(text, Form::AsPrinted);
        for history in right {
            let verdict = judged(&lanes, &history);
            assert!(matches!(verdict, RegisterVerdict::Holds(_)), "{history:?}\n{verdict:?}");
        }
        for history in wrong {
            let verdict = judged(&lanes, &history);
            assert!(matches!(verdict, RegisterVerdict::Violation(_)), "{history:?}\n{verdict:?}");
        }
    }
}

fn assert_all_right(form: Form) {
    for text in programs() {
        let wrong = explore(&text, form).wrong;
        assert!(wrong.is_empty(), "{text}, {form:?}: {:?}", wrong[0]);
    }
}

#[test]
fn every_execution_is_regular_sequential_if_majorities_hold_what_was_read_of_other_keys_first() {
    assert_all_right(Form::AtNextOperation);
}

#[test]
fn every_execution_is_regular_sequential_if_what_was_read_goes_to_a_majority_in_the_background() {
    assert_all_right(Form::InBackground);
}

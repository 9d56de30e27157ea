//! `serried shell`: statements by hand.

pub(crate) mod braces;
mod modification;
mod printer;
mod words;

use std::io::{BufRead, ErrorKind, IsTerminal, stdin};
use std::pin::Pin;
use std::time::Duration;

use clap::Args;
use serried::Database;
use tokio::sync::mpsc;

use crate::misuse::{LEAST_DEADLINE, MOST_SECONDS, number};
use crate::wing::{Wing, with_wing};
use crate::{Ended, output};

pub(crate) use modification::{modification, modification_help};
pub(crate) use printer::Printer;
pub(crate) use words::{Quoted, Word, statements};

const QUOTES: &str = "\
Quote a key or a value with spaces, semicolons, quotes or backslashes, as in a Unix shell:
'...'               everything between single quotes is literal
\"...\"               between double quotes, and without quotes, there are escapes:
\\n \\r \\t \\0 \\xNN    a byte; before anything else but a letter or digit, \\ makes it literal";

/// Talk to a running cluster: get, put, delete, and transactions of several statements.
///
/// The statements depend on the keyspace, which has transactions, registers, stored procedures or snapshots. In transactions
/// and registers, values can also be added to, appended to, compared and swapped. Procedures are called. Snapshots
/// have sessions. `help` lists the statements. A key that is read in a transaction (after `begin`) may change before the transaction commits.
/// The shell then shows the new value and ends the transaction without any effect, because what you have typed since
/// may depend on the old value. Begin it again.
///
/// If a statement fails within a transaction, and the statements do not come from a terminal, the transaction is rolled
/// back and all later statements are left out. They are also left out if `begin`, `use`, `session` or `resume` fails,
/// because they were meant to come after it. After any other failure the shell goes on with the next statement.
///
/// Semicolons separate statements. Quote a key or a value with spaces, semicolons, quotes or backslashes, as in a Unix
/// shell: everything is literal between single quotes; between double quotes there are the escapes \n, \r, \t, \0 and
/// \xNN for any byte, and \ before a sign makes it literal. Keys and values are printed so that they can be typed back.
#[derive(Args)]
#[command(after_help = "\
Examples:
  serried shell serried://127.0.0.1:7400,127.0.0.1:7401,127.0.0.1:7402
  serried shell serried://127.0.0.1:7400 -e 'put alice 10; get alice'
  serried shell serried://127.0.0.1:7400 -e 'put \"carol d\" \"a; b\"; get \"carol d\"'
  serried shell serried://127.0.0.1:7400 -e 'begin; add visits 1; append log hello; commit'
  serried shell serried://127.0.0.1:7400 --keyspace flags -e 'add visits 1; cas leader - node-2'
  serried shell serried://127.0.0.1:7400 --keyspace shop -e 'procedures; call transfer from=1 to=2 amount=30'
  echo 'get alice' | serried shell serried://127.0.0.1:7400 --json")]
pub(crate) struct Shell {
    /// The cluster's address: serried://host:port,host:port
    address: String,
    /// The keyspace to begin with
    #[arg(long, default_value = "default")]
    keyspace: String,
    /// Run these statements, separated by semicolons or line ends, and exit
    #[arg(short, long, value_name = "STATEMENTS")]
    execute: Option<String>,
    /// Give up a statement after this many seconds
    #[arg(long, default_value_t = 10.0, value_parser = number(LEAST_DEADLINE..=MOST_SECONDS))]
    deadline: f64,
    /// Print results as JSON, one object a line; bytes that are not UTF-8 are in key_hex and value_hex
    #[arg(long)]
    json: bool,
}

impl Shell {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.talk())
    }

    async fn talk(self) -> anyhow::Result<Ended> {
        let database = Database::connect(&self.address).await?;
        let deadline = Duration::from_secs_f64(self.deadline);
        let keyspace = open(&database, &self.keyspace, deadline).await?;
        let interactive = self.execute.is_none() && stdin().is_terminal();
        let mut lines = match &self.execute {
            Some(statements) => given(statements),
            None => typed(),
        };
        let printer = Printer { json: self.json };
        let mut session = Session { database, keyspace, deadline, printer };
        let (mut failed, mut stopped) = (false, false);
        loop {
            if interactive {
                print!("{}> ", if session.keyspace.is_open() { "serried*" } else { "serried" });
                output::flush();
            }
            let Some(line) = lines.recv().await else { break };
            let line = match line {
                Ok(line) => line,
                Err(unreadable) => {
                    failed = true;
                    printer.report("error", &unreadable);
                    break;
                }
            };
            match session.obey_line(&line, interactive).await {
                Flow::Continue => {}
                Flow::ContinueFailed => failed = true,
                Flow::Quit => break,
                Flow::Stop => {
                    (failed, stopped) = (true, true);
                    break;
                }
            }
        }
        if session.keyspace.is_open() {
            printer.report("error", "the transaction was not committed, and is rolled back");
            failed = true;
            session.keyspace.roll_back().await;
        }
        // What was rolled back has to reach the nodes, or others would wait for it.
        session.database.close().await;
        anyhow::ensure!(
            interactive || !stopped,
            "a statement failed, and what may follow it was not run"
        );
        anyhow::ensure!(interactive || !failed, "some statements failed");
        Ok(Ended::Well)
    }
}

/// A line, or why there are no more.
type Line = Result<String, String>;

/// Statements from the command line.
fn given(statements: &str) -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(1);
    sender.try_send(Ok(statements.to_string())).expect("there is room for one");
    receiver
}

/// Lines from standard input, which is read by a thread, as it can't be waited for otherwise. A line that can't be read is
/// the last: what comes after may depend on it.
fn typed() -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for (i, line) in stdin().lock().lines().enumerate() {
            let line = line.map_err(|error| unreadable(i + 1, &error));
            let is_last = line.is_err();
            if sender.blocking_send(line).is_err() || is_last {
                break;
            }
        }
    });
    receiver
}

/// Says what is wrong with a line of standard input.
fn unreadable(number: usize, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::InvalidData => format!(
            "line {number} of the input is not UTF-8: it and what follows is left out; correct it, and \
             give the rest again"
        ),
        _ => {
            format!("line {number} of the input can't be read ({error}): what follows is left out")
        }
    }
}

/// How the shell goes on after a line.
enum Flow {
    Continue,
    /// Some of the line's statements have failed.
    ContinueFailed,
    /// The user asks to end.
    Quit,
    /// A statement has failed, and what follows must not be run.
    Stop,
}

/// What can be typed for the keyspace in use, which depends on its family.
pub(crate) trait Statements {
    /// The statements, one a line.
    fn help(&self) -> &'static str;

    /// Runs a statement; `None` if there is none called `name` with such arguments.
    fn run<'a>(&'a mut self, name: &'a str, arguments: &'a [Word], printer: Printer)
    -> Running<'a>;

    /// The statement to type after `words`, which failed with `error`, if that left an unknown outcome.
    fn advice(&self, error: &anyhow::Error, words: &[Word]) -> Option<String>;

    /// Whether a transaction of several statements is open.
    fn is_open(&self) -> bool {
        false
    }

    /// Whether a statement is a part of the transaction that is open. If it fails, later statements must not be run,
    /// because they were meant to take effect together with it, or not at all.
    fn is_part(&self, _words: &[Word]) -> bool {
        false
    }

    /// Rolls back the transaction that is open.
    fn roll_back(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(std::future::ready(()))
    }
}

/// A statement that is run; `None` if there is no such statement.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Option<()>>> + 'a>>;

/// Opens the keyspace called `name`.
async fn open(
    database: &Database,
    name: &str,
    deadline: Duration,
) -> anyhow::Result<Box<dyn Statements>> {
    with_wing!(database.family(name)?, W => {
        Ok(W::statements(database.open::<W>(name).await?, deadline))
    })
}

struct Session {
    database: Database,
    keyspace: Box<dyn Statements>,
    deadline: Duration,
    printer: Printer,
}

impl Session {
    /// Runs the statements of a line.
    async fn obey_line(&mut self, line: &str, interactive: bool) -> Flow {
        let statements = match statements(line) {
            Ok(statements) => statements,
            Err(malformed) => {
                self.printer.report("error", &malformed.to_string());
                return failed(self.keyspace.is_open(), interactive);
            }
        };
        let mut flow = Flow::Continue;
        for words in statements {
            let within = self.keyspace.is_part(&words) || is_beginning(&words);
            match self.obey(&words).await {
                Ok(true) => {}
                Ok(false) => return Flow::Quit,
                Err(error) => {
                    let advice = self.keyspace.advice(&error, &words);
                    let advice = advice.map_or(String::new(), |next| format!(": type `{next}`"));
                    self.printer.report("error", &format!("{error:#}{advice}"));
                    flow = failed(within, interactive);
                }
            }
            if let Flow::Stop = flow {
                break;
            }
        }
        flow
    }

    /// Runs a statement, which has a word at least; false at the end.
    async fn obey(&mut self, words: &[Word]) -> anyhow::Result<bool> {
        let name = words[0].text();
        let arguments = &words[1..];
        match (&*name, arguments) {
            ("quit" | "exit", []) => return Ok(false),
            ("help" | "?", []) => {
                let help = format!("{}\n\n{QUOTES}", self.keyspace.help());
                match self.printer.json {
                    true => self.printer.report("help", &help),
                    false => println!("{help}"),
                }
            }
            ("keyspaces", []) => {
                for info in self.database.keyspaces() {
                    if self.printer.json {
                        let (protocol, guarantee) = (&info.protocol, &info.guarantee);
                        println!(
                            "{}",
                            serde_json::json!({ "keyspace": info.name, "protocol": protocol, "guarantee": guarantee })
                        );
                        continue;
                    }
                    let name = Quoted(info.name.as_bytes());
                    println!("{name} ({}, {})", info.protocol, info.guarantee);
                }
            }
            ("use", [name]) if !self.keyspace.is_open() => {
                self.keyspace = open(&self.database, &name.text(), self.deadline).await?;
            }
            _ => {
                let known = self.keyspace.run(&name, arguments, self.printer).await?;
                known.ok_or_else(|| self.misunderstood(&name, arguments.len()))?;
            }
        }
        Ok(true)
    }

    /// Why a statement that begins with `name` and has so many words behind it is none of those that there are.
    fn misunderstood(&self, name: &str, arguments: usize) -> anyhow::Error {
        let usage = |line: &'static str| line.split("  ").next().unwrap_or(line);
        let mut usages = self.keyspace.help().lines().map(usage);
        match usages.find(|usage| usage.split(' ').next() == Some(name)) {
            Some(usage) => {
                let problem = miscounted(usage, arguments);
                anyhow::anyhow!("`{name}` is written as `{usage}`: {problem}")
            }
            None => anyhow::anyhow!("`{name}` can't be understood: try `help`"),
        }
    }
}

/// What is wrong with a statement that is written as `usage` and has another number of words behind its name.
fn miscounted(usage: &str, arguments: usize) -> String {
    let words = usage.split(' ').skip(1);
    let needed = words.clone().take_while(|word| !word.starts_with('[')).count();
    let wanted: Vec<&str> = words.map(|word| word.trim_matches(['[', ']', '.'])).collect();
    // Words between brackets are left out together.
    let end = if arguments < needed { needed } else { wanted.len() };
    match wanted.get(arguments..end) {
        Some([missing]) => format!("{missing} is missing"),
        Some([others @ .., last]) => format!("{} and {last} are missing", others.join(", ")),
        _ if wanted.contains(&"KEY") => "quote a key or a value with spaces".to_string(),
        _ if wanted.contains(&"FILE") || wanted.contains(&"KEYSPACE") => {
            "quote a name with spaces".to_string()
        }
        _ => "there are too many words".to_string(),
    }
}

/// Whether a statement says to what the following ones belong. If it fails, they must not be run, because they would
/// belong to something else.
fn is_beginning(words: &[Word]) -> bool {
    matches!(&*words[0].text(), "begin" | "use" | "session" | "resume")
}

/// How to go on after a failure, if that was `within` a transaction, or at the beginning of something.
fn failed(within: bool, interactive: bool) -> Flow {
    match within && !interactive {
        true => Flow::Stop,
        false => Flow::ContinueFailed,
    }
}

/// The words of a command line.
#[cfg(test)]
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let statements = statements(line).ok()?;
    let [words] = &*statements else { return None };
    Some(words.iter().map(Word::text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_and_quotes_are_for_too_many_words() {
        assert_eq!(miscounted("put KEY VALUE", 0), "KEY and VALUE are missing");
        assert_eq!(miscounted("put KEY VALUE", 1), "VALUE is missing");
        assert_eq!(miscounted("put KEY VALUE", 3), "quote a key or a value with spaces");
        assert_eq!(miscounted("get KEY...", 0), "KEY is missing");
        assert_eq!(miscounted("cas KEY EXPECTED NEW", 0), "KEY, EXPECTED and NEW are missing");
        assert_eq!(miscounted("add KEY NUMBER [LEAST MOST]", 1), "NUMBER is missing");
        assert_eq!(miscounted("add KEY NUMBER [LEAST MOST]", 3), "MOST is missing");
        assert_eq!(miscounted("call NAME [INPUT=VALUE]...", 0), "NAME is missing");
        assert_eq!(miscounted("register FILE", 2), "quote a name with spaces");
        assert_eq!(miscounted("outcome TXN", 2), "there are too many words");
        assert_eq!(miscounted("begin", 1), "there are too many words");
    }
}

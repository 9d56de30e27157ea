//! Log lines that other processes can cause: few of them, and legible.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How many lines of one cause are logged in how long a time. The others are counted.
const LINES: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);
/// How much of a text that comes from outside is logged, in characters.
const MOST_CHARACTERS: usize = 300;

/// What was logged lately.
#[derive(Default)]
pub struct Sparing(Mutex<BTreeMap<&'static str, Said>>);

struct Said {
    since: Instant,
    lines: u32,
    kept_back: u64,
}

impl Sparing {
    /// Whether a line may be logged, and how many of its cause have not been since the last one.
    pub fn may_say(&self, cause: &'static str, now: Instant) -> Option<u64> {
        let mut causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let said = causes.entry(cause).or_insert(Said { since: now, lines: 0, kept_back: 0 });
        if now.saturating_duration_since(said.since) >= WINDOW {
            (said.since, said.lines) = (now, 0);
        }
        if said.lines == LINES {
            said.kept_back += 1;
            return None;
        }
        said.lines += 1;
        Some(std::mem::take(&mut said.kept_back))
    }
}

/// A text that may come from outside, for a line of a log or of a terminal: without control characters and not too long.
pub fn legible(text: &str) -> String {
    let mut legible = String::new();
    for (i, character) in text.chars().enumerate() {
        match character {
            _ if i == MOST_CHARACTERS => {
                legible.push('…');
                break;
            }
            '\'' | '"' | '\\' => legible.push(character),
            character => legible.extend(character.escape_debug()),
        }
    }
    legible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_a_few_lines_in_a_while_and_the_rest_are_counted() {
        let (sparing, start) = (Sparing::default(), Instant::now());
        let lines =
            |now| (0..1000).filter_map(|_| sparing.may_say("frame", now)).collect::<Vec<_>>();
        assert_eq!(lines(start), [0; 5]);
        assert_eq!(lines(start + WINDOW / 2), []);
        assert_eq!(sparing.may_say("hello", start), Some(0), "another cause");
        assert_eq!(lines(start + WINDOW), [1995, 0, 0, 0, 0]);
    }

    #[test]
    fn what_comes_from_outside_can_not_pass_for_other_lines() {
        assert_eq!(legible("n1's `bänk`"), "n1's `bänk`");
        assert_eq!(legible("a\nWARN \u{1b}[2Jb\u{202e}"), "a\\nWARN \\u{1b}[2Jb\\u{202e}");
        assert_eq!(legible(&"x".repeat(1 << 20)).chars().count(), MOST_CHARACTERS + 1);
    }
}

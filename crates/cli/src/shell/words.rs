//! The words of a line, with the quotes of a Unix shell.
//!
//! Words are separated by white space, and statements by semicolons or line ends. Between single quotes everything is
//! literal. Between double quotes, and outside of quotes, a backslash begins an escape. Keys and values are byte strings,
//! so there is an escape for any byte: `\xNN`. [`Quoted`] writes bytes so that they can be typed back. The inputs of a
//! call between braces are one word, as they are typed.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

use serried::{Key, Value};

/// A word without its quotes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Word {
    bytes: Vec<u8>,
    /// Whether a part of it was quoted or escaped.
    is_quoted: bool,
    /// Whether there was an escape for a byte.
    has_byte: bool,
}

impl Word {
    /// The word as text. Bytes that are not UTF-8 are replaced.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether a byte of it was typed as an escape, such as `\x0a` or `\n`.
    pub(crate) fn has_byte(&self) -> bool {
        self.has_byte
    }

    /// Whether it is `name`, as a name and not as a quoted key or value.
    pub(crate) fn is_bare(&self, name: &str) -> bool {
        !self.is_quoted && self.bytes == name.as_bytes()
    }
}

impl From<&Word> for Key {
    fn from(word: &Word) -> Key {
        Key::from(&*word.bytes)
    }
}

impl From<&Word> for Value {
    fn from(word: &Word) -> Value {
        Value::from(&*word.bytes)
    }
}

/// As it can be typed.
impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_quoted {
            true => Quoted(&self.bytes).fmt(f),
            false => f.write_str(&self.text()),
        }
    }
}

/// Why a line can't be split into words.
#[derive(Debug, thiserror::Error)]
#[error("column {column}: {problem}")]
pub(crate) struct Malformed {
    /// Counts characters, from 1.
    column: usize,
    problem: String,
}

/// The statements of a text, each with its words. There are no statements without words.
pub(crate) fn statements(text: &str) -> Result<Vec<Vec<Word>>, Malformed> {
    let mut reader = Reader { characters: text.chars().peekable(), column: 0 };
    let (mut statements, mut words) = (Vec::new(), Vec::new());
    while let Some(next) = reader.peek() {
        match next {
            ';' | '\n' => {
                reader.next();
                statements.push(std::mem::take(&mut words));
            }
            next if next.is_whitespace() => {
                reader.next();
            }
            '{' if is_call(&words) => words.push(reader.braces()?),
            _ => words.push(reader.word()?),
        }
    }
    statements.push(words);
    statements.retain(|words| !words.is_empty());
    Ok(statements)
}

/// Whether the inputs of a call follow these words.
fn is_call(words: &[Word]) -> bool {
    matches!(words, [call, _] if call.is_bare("call"))
}

struct Reader<'a> {
    characters: Peekable<Chars<'a>>,
    /// Of the character that was read last.
    column: usize,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<char> {
        self.characters.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        self.column += 1;
        self.characters.next()
    }

    fn word(&mut self) -> Result<Word, Malformed> {
        let mut word = Word::default();
        while let Some(next) = self.peek().filter(|c| !c.is_whitespace() && *c != ';') {
            self.next();
            word.is_quoted |= matches!(next, '\'' | '"' | '\\');
            match next {
                '\'' | '"' => self.until_quote(next, &mut word)?,
                '\\' => self.escape(&mut word)?,
                _ => push(next, &mut word.bytes),
            }
        }
        Ok(word)
    }

    /// The inputs of a call, as they are typed, up to the brace that closes the first one.
    fn braces(&mut self) -> Result<Word, Malformed> {
        let column = self.column + 1;
        let mut word = Word::default();
        let (mut open, mut quote) = (0, None);
        while let Some(next) = self.next() {
            push(next, &mut word.bytes);
            match (quote, next) {
                (Some(_), '\\') => {
                    let escaped = self.next();
                    escaped.into_iter().for_each(|escaped| push(escaped, &mut word.bytes));
                }
                (Some(open), close) if open == close => quote = None,
                (None, '\'' | '"') => quote = Some(next),
                (None, '{') => open += 1,
                (None, '}') => open -= 1,
                _ => {}
            }
            if open == 0 {
                return Ok(word);
            }
        }
        let problem = match quote {
            Some(quote) => {
                format!("the inputs that begin here have a quote {quote} that is not closed")
            }
            None => "the brace that begins here is not closed".to_string(),
        };
        Err(Malformed { column, problem })
    }

    /// The rest of a quotation, behind its opening quote.
    fn until_quote(&mut self, quote: char, word: &mut Word) -> Result<(), Malformed> {
        let column = self.column;
        loop {
            match self.next() {
                Some(end) if end == quote => return Ok(()),
                Some('\\') if quote == '"' => self.escape(word)?,
                Some(character) => push(character, &mut word.bytes),
                None => {
                    let problem = format!("the quote {quote} that begins here is not closed");
                    return Err(Malformed { column, problem });
                }
            }
        }
    }

    /// The rest of an escape, behind its backslash.
    fn escape(&mut self, word: &mut Word) -> Result<(), Malformed> {
        let column = self.column;
        let malformed = |problem| Err(Malformed { column, problem });
        let byte = match self.next() {
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some('0') => 0,
            Some('x') => match (self.digit(), self.digit()) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => {
                    return malformed("\\x has two hexadecimal digits, as in \\x0a".to_string());
                }
            },
            Some(character) if !character.is_alphanumeric() => {
                push(character, &mut word.bytes);
                return Ok(());
            }
            Some(character) => {
                return malformed(format!("there is no escape \\{character}: a backslash is \\\\"));
            }
            None => {
                let problem = "nothing follows the backslash: a backslash is \\\\";
                return malformed(problem.to_string());
            }
        };
        word.bytes.push(byte);
        word.has_byte = true;
        Ok(())
    }

    fn digit(&mut self) -> Option<u8> {
        let digit = self.peek()?.to_digit(16)?;
        self.next();
        u8::try_from(digit).ok()
    }
}

fn push(character: char, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// A key or a value as it can be typed: as it is if that is one word, and between double quotes otherwise.
pub(crate) struct Quoted<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| !c.is_whitespace() && !"'\"\\;".contains(c) && is_visible(c);
        match std::str::from_utf8(self.0) {
            // A single dash stands for an absent key.
            Ok(text) if !["", "-"].contains(&text) && text.chars().all(is_plain) => {
                return f.write_str(text);
            }
            _ => {}
        }
        f.write_str("\"")?;
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    '"' | '\\' => write!(f, "\\{character}")?,
                    character if is_visible(character) => write!(f, "{character}")?,
                    character => bytes(character.encode_utf8(&mut [0; 4]).as_bytes(), f)?,
                }
            }
            bytes(chunk.invalid(), f)?;
        }
        f.write_str("\"")
    }
}

fn bytes(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

/// Whether a terminal shows the character as one that it is. Control characters and those that change the direction of
/// text are not visible; marks that combine with the letter before them are.
fn is_visible(character: char) -> bool {
    let is_quote = matches!(character, '\'' | '"' | '\\');
    is_quote || String::from_iter(['x', character]).escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a line of one statement, without their quotes.
    fn words(line: &str) -> Vec<String> {
        let statements = statements(line).unwrap();
        assert!(statements.len() < 2, "{statements:?}");
        statements.iter().flatten().map(Word::text).collect()
    }

    fn error(line: &str) -> String {
        statements(line).unwrap_err().to_string()
    }

    #[test]
    fn quotes_and_escapes_are_those_of_a_shell() {
        assert_eq!(words("put  k\tv"), ["put", "k", "v"]);
        assert_eq!(words(" 'a b' \"c d\" e\\ f "), ["a b", "c d", "e f"]);
        assert_eq!(words(r#"'a\n"' "a\n'" a\n"#), ["a\\n\"", "a\n'", "a\n"]);
        assert_eq!(words(r#"a'b 'c"d "e"#), ["ab cd e"]);
        assert_eq!(words(r#""\"\\\$\r\t\0" \; \'"#), ["\"\\$\r\t\0", ";", "'"]);
        assert_eq!(words("'' \"\""), ["", ""]);
        let found = statements(r"\xff\x0A \; 'x\n'").unwrap();
        assert_eq!(found[0][0].bytes, b"\xff\n");
        let has_byte: Vec<bool> = found[0].iter().map(Word::has_byte).collect();
        assert_eq!(has_byte, [true, false, false]);
        assert_eq!(words("größe"), ["größe"]);
    }

    #[test]
    fn semicolons_and_line_ends_separate_statements_unless_they_are_quoted() {
        let texts: Vec<Vec<String>> = statements("put a 'x;y'; get a;;\nget \"\n\";")
            .unwrap()
            .iter()
            .map(|words| words.iter().map(Word::text).collect())
            .collect();
        assert_eq!(texts, [vec!["put", "a", "x;y"], vec!["get", "a"], vec!["get", "\n"]]);
        assert_eq!(statements(" ;\n ").unwrap(), Vec::<Vec<Word>>::new());
    }

    #[test]
    fn the_inputs_of_a_call_between_braces_are_one_word() {
        assert_eq!(words("call p {a: 1, b: {}}"), ["call", "p", "{a: 1, b: {}}"]);
        assert_eq!(words(r#"call p {a: "}\";", b: '"'}"#)[2], r#"{a: "}\";", b: '"'}"#);
        let two = statements("call p {a: 1;\n} ; procedures").unwrap();
        assert_eq!((two.len(), two[0][2].text()), (2, "{a: 1;\n}".to_string()));
        assert_eq!(words("put k {a b"), ["put", "k", "{a", "b"], "a value is no call");
        let open = "column 8: the brace that begins here is not closed";
        assert_eq!(error("call p {a: {}"), open);
        let quote = "column 8: the inputs that begin here have a quote \" that is not closed";
        assert_eq!(error("call p {a: \"}"), quote);
    }

    #[test]
    fn what_can_not_be_split_is_refused_with_the_column() {
        assert_eq!(error("put k 'it"), "column 7: the quote ' that begins here is not closed");
        assert_eq!(error("put ü \"\\\""), "column 7: the quote \" that begins here is not closed");
        assert_eq!(error("put k a\\q"), "column 8: there is no escape \\q: a backslash is \\\\");
        assert_eq!(
            error("put k \\"),
            "column 7: nothing follows the backslash: a backslash is \\\\"
        );
        for malformed in ["\\x", "\\x1", "'a'\\xg0"] {
            assert!(error(malformed).contains("two hexadecimal digits"), "{malformed}");
        }
    }

    #[test]
    fn a_dash_is_bare_unless_it_is_quoted() {
        let found = statements("- '-' \\-").unwrap();
        let bare: Vec<bool> = found[0].iter().map(|word| word.is_bare("-")).collect();
        assert_eq!(bare, [true, false, false]);
    }

    #[test]
    fn what_is_printed_can_be_typed_back() {
        for (bytes, printed) in [
            (&b"alice"[..], "alice"),
            ("größe".as_bytes(), "größe"),
            (b"", "\"\""),
            (b"-", "\"-\""),
            (b"a b", "\"a b\""),
            (b"it's", "\"it's\""),
            (b"a\n\x1b[2J", "\"a\\n\\x1b[2J\""),
            (b"\xffa", "\"\\xffa\""),
            ("\u{202e}".as_bytes(), "\"\\xe2\\x80\\xae\""),
            ("e\u{301}".as_bytes(), "e\u{301}"),
        ] {
            assert_eq!(Quoted(bytes).to_string(), printed);
        }
        let all = (0..=255).flat_map(|first| (0..=255).map(move |second| [first, second]));
        for bytes in all {
            let line = format!("put {} end", Quoted(&bytes));
            let found = statements(&line).unwrap();
            assert_eq!(found.len(), 1, "{line}");
            assert_eq!(found[0][1].bytes, bytes, "{line}");
            assert!(!found[0][1].is_bare("-"), "{line}");
        }
    }
}

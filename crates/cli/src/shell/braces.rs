//! Inputs between braces: JSON, in which names need no quotes.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Value};

/// How deep lists and records may nest.
const DEEPEST: usize = 32;

/// Why inputs can't be read, and where.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column} of the {of}: {problem}")]
pub(crate) struct Misread {
    /// What is read: inputs, or a value.
    of: &'static str,
    /// Both count from 1, columns in characters, from the first one.
    line: usize,
    column: usize,
    problem: String,
}

/// Reads `{name: value, ..}`, and nothing behind it.
pub(crate) fn read(text: &str) -> Result<Map<String, Value>, Misread> {
    let mut reader = Reader::new("inputs", text);
    reader.skip_space();
    let fields = reader.record(0)?;
    reader.end("the closing brace")?;
    Ok(fields)
}

/// Reads one value, and nothing behind it.
pub(crate) fn value(text: &str) -> Result<Value, Misread> {
    let mut reader = Reader::new("value", text);
    let value = reader.value(0)?;
    reader.end("the value")?;
    Ok(value)
}

struct Reader<'a> {
    /// What it reads, for messages.
    of: &'static str,
    rest: Peekable<Chars<'a>>,
    /// Of the next character.
    line: usize,
    column: usize,
}

impl<'a> Reader<'a> {
    fn new(of: &'static str, text: &'a str) -> Reader<'a> {
        Reader { of, rest: text.chars().peekable(), line: 1, column: 1 }
    }

    /// Refuses what is behind the last part.
    fn end(&mut self, last: &str) -> Result<(), Misread> {
        self.skip_space();
        match self.peek() {
            None => Ok(()),
            Some(behind) => Err(self.wrong(format!("`{behind}` is behind {last}"))),
        }
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next()?;
        match next {
            '\n' => (self.line, self.column) = (self.line + 1, 1),
            _ => self.column += 1,
        }
        Some(next)
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next();
        }
    }

    /// At the next character, there is this problem.
    fn wrong(&self, problem: String) -> Misread {
        self.wrong_at((self.line, self.column), problem)
    }

    fn wrong_at(&self, (line, column): (usize, usize), problem: String) -> Misread {
        Misread { of: self.of, line, column, problem }
    }

    /// Something else was wanted than the next character.
    fn wanted(&mut self, wanted: &str) -> Misread {
        let found = self.peek().map_or("the end".to_string(), |found| format!("`{found}`"));
        self.wrong(format!("wanted {wanted}, found {found}"))
    }

    fn take(&mut self, wanted: char) -> Result<(), Misread> {
        if self.peek() != Some(wanted) {
            return Err(self.wanted(&format!("`{wanted}`")));
        }
        self.next();
        Ok(())
    }

    /// Behind an element of a list or a record: whether another one follows. `close` ends it.
    fn goes_on(&mut self, close: char) -> Result<bool, Misread> {
        self.skip_space();
        match self.peek() {
            Some(',') => {
                self.next();
                self.skip_space();
                Ok(self.peek() != Some(close))
            }
            Some(end) if end == close => Ok(false),
            _ => Err(self.wanted(&format!("`,` or `{close}`"))),
        }
    }

    fn record(&mut self, depth: usize) -> Result<Map<String, Value>, Misread> {
        self.take('{')?;
        self.skip_space();
        let mut fields = Map::new();
        let mut goes_on = self.peek() != Some('}');
        while goes_on {
            let place = (self.line, self.column);
            let name = self.name()?;
            self.skip_space();
            self.take(':')?;
            let value = self.value(depth + 1)?;
            if fields.insert(name.clone(), value).is_some() {
                return Err(self.wrong_at(place, format!("`{name}` is there twice")));
            }
            goes_on = self.goes_on('}')?;
        }
        self.take('}')?;
        Ok(fields)
    }

    fn name(&mut self) -> Result<String, Misread> {
        match self.peek() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote),
            Some(first) if first.is_alphabetic() || first == '_' => Ok(self.word()),
            _ => Err(self.wanted("the name of an input")),
        }
    }

    /// Letters, digits and the signs of names and numbers.
    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(next) =
            self.peek().filter(|next| next.is_alphanumeric() || "_-+.".contains(*next))
        {
            word.push(next);
            self.next();
        }
        word
    }

    fn value(&mut self, depth: usize) -> Result<Value, Misread> {
        self.skip_space();
        if depth > DEEPEST {
            return Err(self.wrong(format!("lists and records nest {DEEPEST} deep at most")));
        }
        match self.peek() {
            Some('{') => Ok(Value::Object(self.record(depth)?)),
            Some('[') => self.list(depth),
            Some(quote @ ('"' | '\'')) => Ok(Value::String(self.quoted(quote)?)),
            _ => self.plain(),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Misread> {
        self.take('[')?;
        self.skip_space();
        let mut elements = Vec::new();
        let mut goes_on = self.peek() != Some(']');
        while goes_on {
            elements.push(self.value(depth + 1)?);
            goes_on = self.goes_on(']')?;
        }
        self.take(']')?;
        Ok(Value::Array(elements))
    }

    /// A number, `true` or `false`; or `null`, which is no input, and is refused with the type that is wanted.
    fn plain(&mut self) -> Result<Value, Misread> {
        let place = (self.line, self.column);
        let word = self.word();
        match &*word {
            "" => return Err(self.wanted("a value")),
            "true" => return Ok(Value::Bool(true)),
            "false" => return Ok(Value::Bool(false)),
            "null" => return Ok(Value::Null),
            _ => {}
        }
        let is_number = |first: char| first.is_ascii_digit() || "+-.".contains(first);
        word.parse::<i64>().map(Value::from).map_err(|_| {
            // There are no other numbers. As JSON it would be shown otherwise than it was typed.
            let problem = match word.starts_with(is_number) {
                true => "is no integer of 64 bits; a text needs quotes",
                false => "is neither a number nor true or false: put a text in quotes",
            };
            self.wrong_at(place, format!("`{word}` {problem}"))
        })
    }

    /// A text between these quotes, with the escapes of JSON.
    fn quoted(&mut self, quote: char) -> Result<String, Misread> {
        let opened = self.wrong(format!("the quote {quote} that begins here is not closed"));
        self.next();
        let mut text = String::new();
        loop {
            let place = (self.line, self.column);
            match self.next() {
                None => return Err(opened),
                Some(end) if end == quote => return Ok(text),
                Some('\\') => text.push(self.escape(place)?),
                Some(character) => text.push(character),
            }
        }
    }

    /// The rest of an escape, behind the backslash at `place`.
    fn escape(&mut self, place: (usize, usize)) -> Result<char, Misread> {
        let escaped = match self.next() {
            Some('b') => Ok('\u{8}'),
            Some('f') => Ok('\u{c}'),
            Some('n') => Ok('\n'),
            Some('r') => Ok('\r'),
            Some('t') => Ok('\t'),
            Some('u') => self.unicode().ok_or("\\u has four hexadecimal digits"),
            Some(character @ ('"' | '\'' | '\\' | '/')) => Ok(character),
            _ => Err("there is no such escape, only \\n \\r \\t \\b \\f \\uNNNN \\\" \\' \\/ \\\\"),
        };
        escaped.map_err(|problem| self.wrong_at(place, problem.to_string()))
    }

    /// The character behind `\u`. JSON writes one that has more than 16 bits as two.
    fn unicode(&mut self) -> Option<char> {
        let first = self.unit()?;
        let mut units = vec![first];
        if matches!(first, 0xd800..0xdc00) {
            let goes_on = self.next() == Some('\\') && self.next() == Some('u');
            units.push(self.unit().filter(|_| goes_on)?);
        }
        char::decode_utf16(units).next()?.ok()
    }

    fn unit(&mut self) -> Option<u16> {
        let digits: String = (0..4).filter_map(|_| self.next()).collect();
        u16::from_str_radix(&digits, 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn names_need_no_quotes_and_json_can_be_read() {
        let wanted =
            json!({ "w": -1, "by_name": true, "last": "it's", "lines": [{ "item": 7 }, {}] });
        let plain = "{w: -1, by_name: true, last: \"it's\",\n lines: [{item: 7}, {},]}";
        assert_eq!(Value::Object(read(plain).unwrap()), wanted);
        assert_eq!(Value::Object(read(&wanted.to_string()).unwrap()), wanted);
        assert_eq!(read(" { } ").unwrap(), Map::new());
        let escapes = read(r#"{a: '\'\n\u00fc\ud83d\ude00'}"#).unwrap();
        assert_eq!(Value::Object(escapes), json!({ "a": "'\nü😀" }));
        assert_eq!(value(" [1, {a: 2}] ").unwrap(), json!([1, { "a": 2 }]));
    }

    #[test]
    fn a_mistake_is_refused_with_its_line_and_column() {
        let at = |line, column, problem: &str| {
            format!("line {line}, column {column} of the inputs: {problem}")
        };
        assert_eq!(wrong("{w 1}"), at(1, 4, "wanted `:`, found `1`"));
        assert_eq!(wrong("{w: 1 d: 2}"), at(1, 7, "wanted `,` or `}`, found `d`"));
        assert_eq!(wrong("{w: 1,\n  7: 2}"), at(2, 3, "wanted the name of an input, found `7`"));
        assert_eq!(wrong("{w: }"), at(1, 5, "wanted a value, found `}`"));
        let text = "`seven` is neither a number nor true or false: put a text in quotes";
        assert_eq!(wrong("{w: 1,\nd: seven}"), at(2, 4, text));
        let large = "`100000000000000000000` is no integer of 64 bits; a text needs quotes";
        assert_eq!(wrong("{w: 100000000000000000000}"), at(1, 5, large));
        assert!(wrong("{w: [1.5]}").contains("column 6 of the inputs: `1.5` is no integer"));
        assert!(wrong("{w: '\\ud83d'}").contains("\\u has four hexadecimal digits"));
        let behind = value("[1] 2").unwrap_err().to_string();
        assert_eq!(behind, "line 1, column 5 of the value: `2` is behind the value");
        assert_eq!(wrong("{w: 1, w: 2}"), at(1, 8, "`w` is there twice"));
        assert_eq!(wrong("{w: [1, 2"), at(1, 10, "wanted `,` or `]`, found the end"));
        let quote = "the quote \" that begins here is not closed";
        assert_eq!(wrong("{w: \"a}"), at(1, 5, quote));
        assert_eq!(wrong("{} x"), at(1, 4, "`x` is behind the closing brace"));
        assert!(wrong("{w: '\\q'}").contains("column 6 of the inputs: there is no such escape"));
        let deep = format!("{{w: {}", "[".repeat(1_000_000));
        assert!(wrong(&deep).contains("nest 32 deep at most"));
    }
}

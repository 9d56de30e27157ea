//! Inputs between braces: JSON, in which names need no quotes.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Number, Value};

/// How deep lists and records may nest.
const DEEPEST: usize = 32;

/// Why inputs can't be read, and where.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column} of the inputs: {problem}")]
pub(crate) struct Misread {
    /// Both count from 1, columns in characters, from the opening brace.
    line: usize,
    column: usize,
    problem: String,
}

/// Reads `{name: value, ..}`, and nothing behind it.
pub(crate) fn read(text: &str) -> Result<Map<String, Value>, Misread> {
    let mut reader = Reader { rest: text.chars().peekable(), line: 1, column: 1 };
    reader.skip_space();
    let fields = reader.record(0)?;
    reader.skip_space();
    match reader.peek() {
        None => Ok(fields),
        Some(behind) => Err(reader.wrong(format!("`{behind}` is behind the closing brace"))),
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    /// Of the next character.
    line: usize,
    column: usize,
}

impl Reader<'_> {
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
        Misread { line: self.line, column: self.column, problem }
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
            let (line, column) = (self.line, self.column);
            let name = self.name()?;
            self.skip_space();
            self.take(':')?;
            let value = self.value(depth + 1)?;
            if fields.insert(name.clone(), value).is_some() {
                return Err(Misread { line, column, problem: format!("`{name}` is there twice") });
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

    /// A number, `true`, `false` or `null`. No input is null, and its type is named if it is refused.
    fn plain(&mut self) -> Result<Value, Misread> {
        let (line, column) = (self.line, self.column);
        let word = self.word();
        match &*word {
            "" => return Err(self.wanted("a value")),
            "true" => return Ok(Value::Bool(true)),
            "false" => return Ok(Value::Bool(false)),
            "null" => return Ok(Value::Null),
            _ => {}
        }
        // A number that is not whole is no input, and is refused with the input's name.
        let number = word.parse::<i64>().map(Number::from);
        let number = number.ok().or_else(|| word.parse().ok().and_then(Number::from_f64));
        let problem =
            || format!("`{word}` is neither a number nor true or false: put a text in quotes");
        number.map(Value::Number).ok_or_else(|| Misread { line, column, problem: problem() })
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
    fn escape(&mut self, (line, column): (usize, usize)) -> Result<char, Misread> {
        let wrong = |problem: &str| Misread { line, column, problem: problem.to_string() };
        match self.next() {
            Some('n') => Ok('\n'),
            Some('r') => Ok('\r'),
            Some('t') => Ok('\t'),
            Some('u') => {
                let digits: String = (0..4).filter_map(|_| self.next()).collect();
                let code = u32::from_str_radix(&digits, 16).ok();
                code.and_then(char::from_u32)
                    .ok_or_else(|| wrong("\\u has four hexadecimal digits"))
            }
            Some(character @ ('"' | '\'' | '\\' | '/')) => Ok(character),
            _ => Err(wrong("there is no such escape: a backslash is \\\\")),
        }
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
        let escapes = read(r#"{a: '\'\n\u00fc', b: 1.5}"#).unwrap();
        assert_eq!(Value::Object(escapes), json!({ "a": "'\nü", "b": 1.5 }));
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

//! Access to a TOML document that keeps the places of everything.

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::mistake::{Compiled, Misplaced, Span};

/// A table of the document.
pub(super) struct Section<'t> {
    entries: &'t DeTable<'t>,
    span: Span,
    /// What it declares, for messages: "table `stock`".
    what: String,
}

/// A key of the document.
pub(super) struct Name<'t> {
    pub(super) text: &'t str,
    pub(super) span: Span,
}

/// A value of the document.
#[derive(Clone, Copy)]
pub(super) struct Entry<'t> {
    value: &'t Spanned<DeValue<'t>>,
}

/// A string of the document.
pub(crate) struct Text<'t> {
    pub(crate) text: &'t str,
    /// Where its first character is, if no escapes come before any other; otherwise where it is opened.
    pub(crate) start: usize,
    pub(crate) span: Span,
}

impl<'t> Section<'t> {
    pub(super) fn root(document: &'t Spanned<DeTable<'t>>) -> Section<'t> {
        Section {
            entries: document.get_ref(),
            span: document.span(),
            what: "a procedure file".to_owned(),
        }
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Refuses keys that mean nothing here.
    pub(super) fn allow(&self, keys: &[&str]) -> Compiled<()> {
        for key in self.entries.keys() {
            let text: &str = key.get_ref();
            if !keys.contains(&text) {
                let keys = keys.join("`, `");
                let message = format!("{} has no `{text}`; it may have `{keys}`", self.what);
                return Err(Misplaced::new(&key.span(), message));
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, key: &str) -> Option<Entry<'t>> {
        self.entries
            .iter()
            .find(|(name, _)| name.get_ref() == key)
            .map(|(_, value)| Entry { value })
    }

    pub(super) fn require(&self, key: &str) -> Compiled<Entry<'t>> {
        self.get(key)
            .ok_or_else(|| Misplaced::new(&self.span, format!("{} needs `{key}`", self.what)))
    }

    /// The entries in the order of the file.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Name<'t>, Entry<'t>)> + use<'t> {
        self.entries.iter().map(|(name, value)| {
            (Name { text: name.get_ref(), span: name.span() }, Entry { value })
        })
    }

    /// The entries of a section below this one; none, if there is no such section.
    pub(super) fn entries_of(&self, key: &str) -> Compiled<Vec<(Name<'t>, Entry<'t>)>> {
        match self.get(key) {
            Some(entry) => Ok(entry.section(&format!("`{key}`"))?.entries().collect()),
            None => Ok(Vec::new()),
        }
    }

    /// Like [`Section::entries_of`], but refuses more than `most` entries. `what` names them.
    pub(super) fn at_most(
        &self,
        most: usize,
        what: &str,
        key: &str,
    ) -> Compiled<Vec<(Name<'t>, Entry<'t>)>> {
        let entries = self.entries_of(key)?;
        match entries.get(most) {
            Some((name, _)) => Err(Misplaced::new(
                &name.span,
                format!("{} has at most {most} {what}, and this is one more", self.what),
            )),
            None => Ok(entries),
        }
    }

    /// The elements of an array below this section; none, if there is no such array.
    pub(super) fn elements_of(&self, key: &str) -> Compiled<Vec<Entry<'t>>> {
        self.get(key).map_or(Ok(Vec::new()), |entry| entry.elements(key))
    }
}

impl<'t> Entry<'t> {
    pub(super) fn span(self) -> Span {
        self.value.span()
    }

    pub(super) fn value(self) -> &'t DeValue<'t> {
        self.value.get_ref()
    }

    pub(super) fn section(self, what: &str) -> Compiled<Section<'t>> {
        match self.value() {
            DeValue::Table(entries) => {
                Ok(Section { entries, span: self.span(), what: what.to_owned() })
            }
            _ => Err(self.wanted(what, "a table")),
        }
    }

    pub(super) fn elements(self, what: &str) -> Compiled<Vec<Entry<'t>>> {
        match self.value() {
            DeValue::Array(elements) => Ok(elements.iter().map(|value| Entry { value }).collect()),
            _ => Err(self.wanted(&format!("`{what}`"), "an array")),
        }
    }

    pub(super) fn text(self, what: &str, source: &str) -> Compiled<Text<'t>> {
        let DeValue::String(text) = self.value() else {
            return Err(self.wanted(what, "a string"));
        };
        Ok(Text { text, start: self.first_character(text, source), span: self.span() })
    }

    /// A whole number from `least` to `most`.
    pub(super) fn number(self, what: &str, least: u32, most: u32) -> Compiled<u32> {
        let number = match self.value() {
            DeValue::Integer(integer) => {
                i64::from_str_radix(integer.as_str(), integer.radix()).ok()
            }
            _ => None,
        };
        let within = number
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| (least..=most).contains(number));
        within.ok_or_else(|| self.wanted(what, &format!("a whole number from {least} to {most}")))
    }

    fn wanted(self, what: &str, wanted: &str) -> Misplaced {
        Misplaced::new(&self.span(), format!("{what} is {wanted}, found {}", kind(self.value())))
    }

    fn first_character(self, text: &DeString<'_>, source: &str) -> usize {
        let span = self.span();
        let written = &source[span.clone()];
        // The quotes, and the newline that follows those of a string of several lines, are not part of it.
        written.find(&**text).map_or(span.start, |offset| span.start + offset)
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

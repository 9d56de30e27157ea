//! Tables of a file.

use serried_procedures::limits::{MAX_COLUMNS, MAX_KEY};
use serried_procedures::{Column, Field, Table, Type};
use toml::de::DeValue;

use super::document::{Entry, Name};
use super::{check_name, types};
use crate::mistake::{Compiled, Misplaced};

pub(super) fn compile(name: &Name<'_>, entry: Entry<'_>, source: &str) -> Compiled<Table> {
    let section = entry.section(&format!("table `{}`", name.text))?;
    section.allow(&["key", "placed_by", "columns"])?;
    let mut key = Vec::new();
    for (part, entry) in section.require("key")?.section("`key`")?.entries() {
        check_name(&part)?;
        let of = types::compile(entry, source)?;
        if matches!(of, Type::List { .. } | Type::Record(_)) {
            return Err(Misplaced::new(
                &entry.span(),
                "a part of a key is an int, a bool, a string or bytes",
            ));
        }
        key.push(Field { name: part.text.to_owned(), of });
    }
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(Misplaced::new(section.span(), format!("a key has 1 to {MAX_KEY} parts")));
    }
    let most = key.len() as u32;
    let placed_by =
        section.get("placed_by").map(|entry| entry.number("`placed_by`", 1, most)).transpose()?;
    let columns = section.entries_of("columns")?;
    if columns.is_empty() || columns.len() > MAX_COLUMNS {
        return Err(Misplaced::new(
            section.span(),
            format!("a table has 1 to {MAX_COLUMNS} columns"),
        ));
    }
    Ok(Table {
        name: name.text.to_owned(),
        key,
        placed_by: placed_by.unwrap_or(most) as usize,
        columns: columns
            .into_iter()
            .map(|(name, entry)| column(&name, entry, source))
            .collect::<Compiled<_>>()?,
    })
}

/// A column: its type, or a table of its type and its default.
fn column(name: &Name<'_>, entry: Entry<'_>, source: &str) -> Compiled<Column> {
    check_name(name)?;
    let with_default = match entry.value() {
        DeValue::Table(_) => Some(entry.section(&format!("column `{}`", name.text))?)
            .filter(|section| section.get("type").is_some()),
        _ => None,
    };
    let (of, default) = match with_default {
        Some(section) => {
            section.allow(&["type", "default"])?;
            let of = types::compile(section.require("type")?, source)?;
            let default =
                section.get("default").map(|entry| types::datum(entry, &of)).transpose()?;
            (of, default)
        }
        None => (types::compile(entry, source)?, None),
    };
    let default = default.unwrap_or_else(|| of.zero());
    Ok(Column { name: name.text.to_owned(), of, default })
}

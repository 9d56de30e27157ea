//! How deep a document nests, found before it is parsed.
//!
//! The parser bounds the brackets of a value and the names of a key, but not both together: a key of many names in each of
//! many brackets makes a tree whose end overflows the stack.

use toml_parser::Source;
use toml_parser::lexer::TokenKind;

use crate::mistake::{Compiled, Misplaced};

/// How many names and brackets may be around anything, but for the names of its section's header.
const MAX_DEPTH: usize = 32;

/// Refuses a document that nests too deep. It need not be sound.
pub(super) fn bound(text: &str) -> Compiled<()> {
    // For each open bracket, what closes it, and the names before it that are around it.
    let mut open: Vec<(TokenKind, usize)> = Vec::new();
    let (mut names, mut depth) = (0, 0);
    let mut last = TokenKind::Newline;
    for token in Source::new(text).lex() {
        let kind = token.kind();
        match kind {
            TokenKind::Dot => names += 1,
            TokenKind::Comma => names = 0,
            TokenKind::Newline if !matches!(last, TokenKind::Equals | TokenKind::Dot) => names = 0,
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => {
                let closes = if kind == TokenKind::LeftSquareBracket {
                    TokenKind::RightSquareBracket
                } else {
                    TokenKind::RightCurlyBracket
                };
                open.push((closes, names));
                depth += names + 1;
                names = 0;
            }
            _ => {
                if let Some((_, before)) = open.pop_if(|(closes, _)| *closes == kind) {
                    depth -= before + 1;
                    names = before;
                }
            }
        }
        if depth + names > MAX_DEPTH {
            return Err(Misplaced {
                at: token.span().start(),
                message: format!("keys and brackets nest more than {MAX_DEPTH} deep here"),
            });
        }
        if !matches!(kind, TokenKind::Whitespace | TokenKind::Comment | TokenKind::Newline) {
            last = kind;
        }
    }
    Ok(())
}

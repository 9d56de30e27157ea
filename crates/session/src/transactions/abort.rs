//! Why a program gives up.

use core::fmt;
use std::error::Error as StdError;

use serried_model::{Key, Unfit, WrongType};

/// What a transaction's program returns to give up: the application's own error, or an error of the session that `?`
/// passed on.
///
/// Every error type converts into it, so a program can use `?` on all results. Therefore it is no error type itself: a
/// conversion from each of these would contradict the conversion from itself.
pub struct Abort(pub(crate) Reason);

pub(crate) enum Reason {
    /// The application's error.
    Application(Box<dyn StdError + Send + Sync>),
    /// A key or a value was refused.
    Unfit(Unfit),
    /// A modification needs a value of another type.
    WrongType { key: Key, wrong: WrongType },
}

impl Abort {
    /// Gives up with a message.
    pub fn new(message: impl Into<String>) -> Abort {
        Abort(Reason::Application(message.into().into()))
    }

    pub(crate) fn wrong_type(key: Key, wrong: WrongType) -> Abort {
        Abort(Reason::WrongType { key, wrong })
    }

    pub(crate) fn unfit(error: Unfit) -> Abort {
        Abort(Reason::Unfit(error))
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Abort {
    fn from(error: E) -> Abort {
        Abort(Reason::Application(Box::new(error)))
    }
}

impl fmt::Debug for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::Application(error) => fmt::Debug::fmt(error, f),
            Reason::Unfit(error) => fmt::Debug::fmt(error, f),
            Reason::WrongType { key, wrong } => write!(f, "`{key}`: {wrong:?}"),
        }
    }
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::Application(error) => fmt::Display::fmt(error, f),
            Reason::Unfit(error) => fmt::Display::fmt(error, f),
            Reason::WrongType { key, wrong } => write!(f, "`{key}` was not modified: {wrong}"),
        }
    }
}

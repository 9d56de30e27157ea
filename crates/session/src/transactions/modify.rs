//! Modifications of values whose results a program may wait for, or not.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use serried_model::{Key, Modification, Modified};

use super::attempt::Before;
use crate::{Abort, Transaction};

/// The result of a modification, for a program that wants to know it. The key is modified whether this is awaited or not.
///
/// Awaiting it reads the key. The result is an error if the modification needs a value of another type.
pub struct Modifying {
    transaction: Transaction,
    key: Key,
    modification: Modification,
    before: Before,
}

impl Modifying {
    /// Modifies a key.
    pub(super) fn new(transaction: Transaction, key: Key, modification: Modification) -> Modifying {
        let Transaction { attempt, run } = &transaction;
        let modification = modification.within(attempt.value_bytes());
        let before = attempt.modify(*run, key.clone(), modification.clone());
        Modifying { transaction, key, modification, before }
    }
}

impl Future for Modifying {
    type Output = Result<Modified, Abort>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Modifying { transaction, key, modification, before } = self.get_mut();
        let found = match before {
            Before::Known(value) => value.clone(),
            Before::Read(earlier) => {
                let modified = (&*key, *earlier);
                ready!(transaction.attempt.poll_modified(transaction.run, modified, cx))?
            }
        };
        let modified = Modified::by(modification, found);
        Poll::Ready(modified.map_err(|wrong| Abort::wrong_type(key.clone(), wrong)))
    }
}

//! Lists: every read of a list contains its history.

use super::display::Elements;
use super::recovered::{KeyHistory, Problem, Reader, Slot};
use super::transaction::{Access, Context};
use super::{Installed, ViolationKind};
use crate::{MicroOperation, ReadResult};

/// One append, by any transaction.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Append {
    element: u64,
    failed: bool,
    transaction: u32,
    position: u32,
}

/// What a committed transaction read.
struct Observation<'a> {
    transaction: u32,
    /// The elements of its last read, followed by its own appends.
    seen: &'a [u64],
    /// How many elements of `seen` come before its own appends.
    found: usize,
}

struct List<'c, 'a> {
    context: &'c Context<'a>,
    key: u64,
    /// Sorted; one per element.
    appends: Vec<Append>,
}

/// Recovers one list from its longest read. All other reads must be prefixes of it.
pub(super) fn recover(context: &Context<'_>, accesses: &[Access]) -> Result<KeyHistory, Problem> {
    let key = accesses[0].key;
    let list = List { context, key, appends: appends(context, accesses)? };

    let mut observations = Vec::new();
    for accesses in accesses.chunk_by(|left, right| left.transaction == right.transaction) {
        if context.at(accesses[0].transaction).is_committed() {
            observations.extend(list.observe(accesses)?);
        }
    }
    let order = list.order(&observations)?;

    let mut read = vec![false; list.appends.len()];
    let mut slots = Vec::with_capacity(list.appends.len());
    for &element in order {
        let at = list.find(element).expect("an ordered element without its append");
        read[at] = true;
        slots.push(list.slot(&list.appends[at]));
    }
    let ordered = slots.len();
    list.check_program_order(&slots, &observations)?;
    list.check_last_elements(&slots, accesses, &observations)?;
    list.check_own_elements(order, accesses, &observations)?;

    let unread = list.appends.iter().zip(&read).filter(|&(append, read)| !read && !append.failed);
    slots.extend(unread.map(|(append, _)| list.slot(append)));
    let observed = slots[..ordered].iter().map(|slot| slot.transaction);
    let observed = observed.filter(|&writer| !context.at(writer).is_committed()).collect();
    let readers = observations
        .iter()
        .map(|observation| Reader::at(observation.transaction, observation.found as u32));
    Ok(KeyHistory {
        key,
        readers: readers.collect(),
        slots,
        ordered,
        observed,
        unplaced: Vec::new(),
    })
}

/// All appends, sorted by element. If an append failed and another one added the same element, the other one counts,
/// because a retry may use an element again.
fn appends(context: &Context<'_>, accesses: &[Access]) -> Result<Vec<Append>, Problem> {
    let mut appends = Vec::new();
    for access in accesses {
        if let MicroOperation::Append { element, .. } = *context.operation(access) {
            let Access { transaction, position, .. } = *access;
            let failed = context.at(transaction).is_failed();
            appends.push(Append { element, failed, transaction, position });
        }
    }
    appends.sort_unstable();
    for pair in appends.windows(2) {
        if pair[0].element == pair[1].element && !pair[1].failed {
            return Err(Problem::Unknown(format!(
                "element {} of key {} is appended twice, by {} and {}, so that it is not known \
                 which one a read found: append every element once",
                pair[0].element,
                accesses[0].key,
                context.name(0, pair[0].transaction),
                context.name(1, pair[1].transaction),
            )));
        }
    }
    appends.dedup_by_key(|append| append.element);
    Ok(appends)
}

impl<'a> List<'_, 'a> {
    fn find(&self, element: u64) -> Option<usize> {
        self.appends.binary_search_by_key(&element, |append| append.element).ok()
    }

    fn slot(&self, append: &Append) -> Slot {
        Slot { transaction: append.transaction, installed: Installed::Element(append.element) }
    }

    /// Follows one transaction through its operations on the list. Each read must contain what the first one found and
    /// what the transaction has appended since, and nothing else.
    fn observe(&self, accesses: &[Access]) -> Result<Option<Observation<'a>>, Problem> {
        let transaction = accesses[0].transaction;
        let mut own: Vec<u64> = Vec::new();
        let mut found: Option<&'a [u64]> = None;
        let mut last: Option<&'a [u64]> = None;
        for access in accesses {
            let seen: &'a [u64] = match self.context.operation(access) {
                MicroOperation::Append { element, .. } => {
                    own.push(*element);
                    continue;
                }
                MicroOperation::Read { result: ReadResult::List(seen), .. } => seen,
                MicroOperation::Read { result: ReadResult::Register(None), .. } => &[],
                _ => continue,
            };
            let consistent = match found {
                None => seen.ends_with(&own),
                Some(found) => seen.strip_prefix(found) == Some(own.as_slice()),
            };
            if !consistent {
                let expected = match found {
                    None => format!("a list that ends with {}", Elements(&own)),
                    Some(found) => Elements(&[found, &own].concat()).to_string(),
                };
                let reader = self.context.name(0, transaction);
                let reason = format!(
                    "{reader} read {} of key {}; after its own earlier operations it should have \
                     found {expected}",
                    Elements(seen),
                    self.key
                );
                let kind = ViolationKind::InternalInconsistency;
                return Err(self.context.violation(kind, self.key, &[transaction], reason));
            }
            found.get_or_insert(&seen[..seen.len() - own.len()]);
            last = Some(seen);
        }
        Ok(found.zip(last).map(|(found, seen)| Observation {
            transaction,
            seen,
            found: found.len(),
        }))
    }

    /// The elements in order, up to the last one that was read.
    fn order(&self, observations: &[Observation<'a>]) -> Result<&'a [u64], Problem> {
        let Some(longest) = observations.iter().rev().max_by_key(|read| read.seen.len()) else {
            return Ok(&[]);
        };
        self.check_elements(longest)?;
        for read in observations {
            if longest.seen.starts_with(read.seen) {
                continue;
            }
            self.check_elements(read)?;
            let reason = format!(
                "{} read {} of key {} and {} read {}; a list only grows at its end, so one of them \
                 should be a prefix of the other",
                self.context.name(0, longest.transaction),
                Elements(longest.seen),
                self.key,
                self.context.name(1, read.transaction),
                Elements(read.seen)
            );
            let involved = [longest.transaction, read.transaction];
            let kind = ViolationKind::IncompatibleOrder;
            return Err(self.context.violation(kind, self.key, &involved, reason));
        }
        Ok(longest.seen)
    }

    /// Checks that every element was appended by a transaction that did not fail, and occurs once.
    fn check_elements(&self, read: &Observation<'_>) -> Result<(), Problem> {
        let reader = || self.context.name(0, read.transaction);
        let seen = Elements(read.seen);
        let key = self.key;
        let mut sorted = read.seen.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let element = pair[0];
            let mut involved = vec![read.transaction];
            let mut reason = format!("{} read {seen} of key {key}, twice with {element}", reader());
            if let Some(at) = self.find(element) {
                let writer = self.appends[at].transaction;
                if writer != read.transaction {
                    involved.push(writer);
                    let writer = self.context.name(1, writer);
                    reason.push_str(&format!(", which {writer} appended once"));
                }
            }
            let kind = ViolationKind::DuplicateElement;
            return Err(self.context.violation(kind, key, &involved, reason));
        }
        for &element in read.seen {
            let Some(at) = self.find(element) else {
                return Err(self.garbage(read, element));
            };
            let append = &self.appends[at];
            if append.failed {
                let writer = self.context.name(1, append.transaction);
                let reason = format!(
                    "{writer} appended {element} to key {key} and failed; {} read {seen}, which \
                     contains it",
                    reader()
                );
                let involved = [read.transaction, append.transaction];
                let kind = ViolationKind::AbortedRead;
                return Err(self.context.violation(kind, key, &involved, reason));
            }
        }
        Ok(())
    }

    fn garbage(&self, read: &Observation<'_>, element: u64) -> Problem {
        let key = self.key;
        if let Some(opaque) = self.context.opaque() {
            return Problem::Unknown(format!(
                "no recorded operation appended {element} to key {key}, but {}, whose outcome \
                 is unknown and whose operations were not recorded, may have: record them",
                self.context.name(0, opaque)
            ));
        }
        let reason = format!(
            "{} read {} of key {key}; no transaction appended {element}",
            self.context.name(0, read.transaction),
            Elements(read.seen)
        );
        self.context.violation(ViolationKind::GarbageRead, key, &[read.transaction], reason)
    }

    /// Checks that adjacent elements of one transaction are in its program order.
    fn check_program_order(
        &self,
        slots: &[Slot],
        observations: &[Observation<'_>],
    ) -> Result<(), Problem> {
        for (at, pair) in slots.windows(2).enumerate() {
            let appended = |slot: &Slot| match slot.installed {
                Installed::Element(element) => {
                    self.find(element).map(|at| (self.appends[at].position, element))
                }
                _ => None,
            };
            let (Some((first, earlier)), Some((second, later))) =
                (appended(&pair[0]), appended(&pair[1]))
            else {
                continue;
            };
            if pair[0].transaction != pair[1].transaction || first < second {
                continue;
            }
            let read = observations
                .iter()
                .find(|read| read.seen.len() >= at + 2)
                .expect("ordered elements that were never read");
            let reason = format!(
                "{} read {} of key {}, in which {earlier} comes before {later}; {} appended {later} \
                 before {earlier}",
                self.context.name(0, read.transaction),
                Elements(read.seen),
                self.key,
                self.context.name(1, pair[0].transaction)
            );
            let involved = [read.transaction, pair[0].transaction];
            let kind = ViolationKind::IncompatibleOrder;
            return Err(self.context.violation(kind, self.key, &involved, reason));
        }
        Ok(())
    }

    /// Checks that no transaction reads between the appends of another one (001 Definition A.1.6).
    fn check_last_elements(
        &self,
        slots: &[Slot],
        accesses: &[Access],
        observations: &[Observation<'_>],
    ) -> Result<(), Problem> {
        let last_appends: Vec<(u32, u64)> = accesses
            .chunk_by(|left, right| left.transaction == right.transaction)
            .filter_map(|accesses| {
                let last = accesses.iter().rev().find_map(|access| {
                    match *self.context.operation(access) {
                        MicroOperation::Append { element, .. } => Some(element),
                        _ => None,
                    }
                });
                Some((accesses[0].transaction, last?))
            })
            .collect();
        for read in observations {
            let Some(slot) = read.found.checked_sub(1).map(|at| &slots[at]) else {
                continue;
            };
            let at = last_appends
                .binary_search_by_key(&slot.transaction, |&(transaction, _)| transaction)
                .expect("a slot whose transaction appended nothing");
            let (writer, last) = last_appends[at];
            if slot.installed == Installed::Element(last) || writer == read.transaction {
                continue;
            }
            let reason = format!(
                "{} appended to key {} several times, last {last}; {} read {}, which ends before that",
                self.context.name(1, writer),
                self.key,
                self.context.name(0, read.transaction),
                Elements(&read.seen[..read.found])
            );
            let kind = ViolationKind::IntermediateRead;
            let involved = [read.transaction, writer];
            return Err(self.context.violation(kind, self.key, &involved, reason));
        }
        Ok(())
    }

    /// Checks that no transaction finds an element that it appends later.
    fn check_own_elements(
        &self,
        order: &[u64],
        accesses: &[Access],
        observations: &[Observation<'_>],
    ) -> Result<(), Problem> {
        let mut places: Vec<(u64, usize)> =
            order.iter().enumerate().map(|(place, &element)| (element, place)).collect();
        places.sort_unstable();
        for access in accesses {
            let MicroOperation::Append { element, .. } = *self.context.operation(access) else {
                continue;
            };
            let Ok(place) = places.binary_search_by_key(&element, |&(element, _)| element) else {
                continue;
            };
            let transaction = access.transaction;
            let Ok(read) = observations.binary_search_by_key(&transaction, |read| read.transaction)
            else {
                continue;
            };
            let read = &observations[read];
            if places[place].1 < read.found {
                let reason = format!(
                    "{} read {} of key {}, and appended {element} only afterwards",
                    self.context.name(0, transaction),
                    Elements(read.seen),
                    self.key
                );
                let kind = ViolationKind::InternalInconsistency;
                return Err(self.context.violation(kind, self.key, &[transaction], reason));
            }
        }
        Ok(())
    }
}

//! Stores whose journals have lost batches that the log depends on, and stores whose last batch was torn by a crash.

use std::fs;
use std::path::PathBuf;

use serried_actor::Store;

use super::Scratch;
use super::base::{all, copy};
use crate::{Base, Batch, Durability, LogFiles, LogOptions, is_store_refused};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The bytes that end a batch in fjall's journal.
const END: &[u8] = b"FJL\x03";
/// How many batches are written after those that are settled.
const BATCHES: u8 = 4;

/// Where the batches of a short journal end.
fn ends(journal: &[u8]) -> Vec<usize> {
    (0..=journal.len().min(1 << 16)).filter(|at| journal[..*at].ends_with(END)).collect()
}

/// A store, and the journal that it was written to.
struct Written {
    scratch: Scratch,
    /// The contents of the journal, up to the end of its last batch.
    journal: Vec<u8>,
    /// Where the batches end in it.
    ends: Vec<usize>,
    /// The contents of the store before the last batches, and after each of them.
    states: Vec<Entries>,
    /// The number of the last batch.
    last: u64,
}

impl Written {
    /// A store whose first batches are in tables if it `settles`.
    fn new(settles: bool) -> Written {
        let scratch = Scratch::new();
        let mut base =
            Base::open(&scratch.path().join("sound"), Durability::Buffered, 1 << 20).unwrap();
        let flush = base.flusher();
        if settles {
            for key in [b"settled", b"removed"] {
                base.put(key, Some(b"value"));
                flush.flush().unwrap();
            }
            while flush.settle(1).unwrap().is_none() {
                std::thread::yield_now();
            }
        }
        let mut states = vec![all(&base, 1 << 20)];
        for batch in 0..BATCHES {
            base.put(b"key", Some(&[batch; 9]));
            base.put(&[batch], Some(b"later"));
            base.put(b"removed", (batch != 2).then_some(&[batch]));
            flush.flush().unwrap();
            states.push(all(&base, 1 << 20));
        }
        let last = flush.last();
        drop((base, flush));
        let path = scratch.path().join("sound/0.jnl");
        let mut journal = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        let ends = ends(&journal);
        journal.truncate(*ends.last().unwrap());
        Written { scratch, journal, ends, states, last }
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("damaged")
    }

    /// Opens the store with these journals. It must have all batches up to `noted`.
    fn open(&self, journals: &[&[u8]], noted: u64) -> Result<Base, String> {
        drop(fs::remove_dir_all(self.path()));
        copy(&self.scratch.path().join("sound"), &self.path());
        for (number, journal) in journals.iter().enumerate() {
            fs::write(self.path().join(format!("{number}.jnl")), journal).unwrap();
        }
        self.open_again(noted)
    }

    fn open_again(&self, noted: u64) -> Result<Base, String> {
        let open = || {
            let base = Base::open(&self.path(), Durability::Buffered, 1 << 20)?;
            base.flusher().verify(noted, false)?;
            Ok(base)
        };
        open().map_err(|error: crate::StorageError| error.to_string())
    }

    fn read(&self, journals: &[&[u8]], noted: u64) -> Result<Entries, String> {
        self.open(journals, noted).map(|base| all(&base, 1 << 20))
    }

    /// Opens the store with these journals, which lack something that was noted.
    #[track_caller]
    fn refused(&self, journals: &[&[u8]], noted: u64, damage: &str) {
        let error = self.read(journals, noted).map(|_| damage).unwrap_err();
        let told = error.contains(self.path().to_str().unwrap()) && error.contains("--rejoin");
        assert!(told, "{damage}: {error}");
    }

    /// How many of the journal's batches are in tables.
    fn settled(&self) -> usize {
        self.ends.len() - usize::from(BATCHES)
    }

    /// The contents of the store after batch `number`, which is not before those in tables.
    fn state(&self, number: u64) -> &Entries {
        &self.states[self.states.len() - 1 - (self.last - number) as usize]
    }
}

/// fjall has a debug assertion about torn batches. Without it, as in release builds, fjall continues.
fn is_asserted(found: &Result<Entries, String>) -> bool {
    cfg!(debug_assertions) && found.as_ref().is_err_and(|error| error.contains("assertion"))
}

#[test]
fn a_journal_that_is_cut_off_anywhere_has_what_is_noted_or_is_refused() {
    for settles in [false, true] {
        let written = Written::new(settles);
        let is_at_end = |cut: usize| written.ends.iter().any(|end| end.abs_diff(cut) <= 1);
        for cut in
            (0..=written.journal.len()).filter(|cut| cut.is_multiple_of(17) || is_at_end(*cut))
        {
            let whole = written.ends.iter().filter(|end| **end <= cut).count();
            // Batches that are in tables are not lost. The journal has all batches, and batch 0.
            let has = whole.max(written.settled()) as u64 - 1;
            let mut cut_off = written.journal[..cut].to_vec();
            if cut % 2 == 0 {
                cut_off.resize(written.journal.len() + 9, 0);
            }
            let found = written.read(&[&cut_off], has);
            let place = format!("cut at {cut}");
            assert!(is_asserted(&found) || found.as_ref() == Ok(written.state(has)), "{place}");
            if has < written.last {
                written.refused(&[&cut_off], has + 1, &place);
            }
        }
        assert_eq!(written.read(&[], 0).as_ref(), Ok(&written.states[0]));
        written.refused(&[], written.last, "no journal");
        assert!(written.open_again(written.last).is_err(), "nor the next time");
    }
}

#[test]
fn any_flipped_bit_in_the_journal_is_found() {
    let written = Written::new(true);
    let [.., begin, end, last] = written.ends[..] else { panic!("several batches") };
    let is_looked_at =
        |at: &usize| (begin..end).contains(at) || at.is_multiple_of(19) || last - at < 20;
    for at in (0..last).filter(is_looked_at) {
        let mut flipped = written.journal.clone();
        flipped[at] ^= 1 << (at % 8);
        match written.read(&[&flipped], written.last) {
            Ok(found) => assert_eq!(found, *written.state(written.last), "bit {} of {at}", at % 8),
            Err(error) => assert!(error.contains("--rejoin"), "{at}: {error}"),
        }
    }
}

#[test]
fn a_sequence_number_that_is_wrong_is_found() {
    let written = Written::new(false);
    for begin in &written.ends[..written.ends.len() - 1] {
        for bit in 0..5 {
            let mut flipped = written.journal.clone();
            // The sequence number follows the kind of the entry and the number of the batch's items.
            flipped[begin + 5] ^= 1 << bit;
            let found = written.read(&[&flipped], written.last);
            assert!(found.is_err() || found.as_ref() == Ok(written.state(written.last)));
        }
    }
}

#[test]
fn a_gap_before_a_later_journal_is_found_even_if_nothing_is_noted() {
    for settles in [false, true] {
        let written = Written::new(settles);
        // Batches that are in tables can't be missing.
        let begin = written.ends[written.settled() - 1];
        // Another journal begins behind each batch but the last.
        for split in written.ends.iter().filter(|end| **end < written.journal.len()) {
            let (sealed, active) = written.journal.split_at(*split);
            let found = written.read(&[sealed, active], written.last);
            assert_eq!(found.as_ref(), Ok(written.state(written.last)));
            if *split > begin {
                written.refused(&[active], 0, &format!("the first {split} bytes removed"));
            }
            for cut in (begin..*split).step_by(29) {
                written.refused(&[&sealed[..cut], active], 0, &format!("{split} cut at {cut}"));
            }
        }
    }
}

#[test]
fn a_store_continues_after_an_accepted_loss_and_loses_nothing_more() {
    let written = Written::new(true);
    let cut = written.ends[written.settled()];
    let behind_gap = &written.journal[written.ends[written.settled() + 1]..];
    for journals in [vec![&written.journal[..cut]], vec![&written.journal[..cut], behind_gap]] {
        let mut base = written.open(&journals, 0).unwrap_or_else(|_| {
            Base::open(&written.path(), Durability::Buffered, 1 << 20).unwrap()
        });
        let flush = base.flusher();
        assert!(flush.verify(written.last, false).is_err());
        let lost = flush.verify(written.last, true).unwrap().unwrap().to_string();
        assert!(lost.contains(written.path().to_str().unwrap()), "{lost}");
        assert!(flush.verify(flush.last(), true).unwrap().is_none(), "once");
        let (kept, noted) = (all(&base, 1 << 20), flush.last());
        assert!(noted > written.last);
        drop((base, flush));
        base = written.open_again(noted).unwrap();
        assert_eq!(all(&base, 1 << 20), kept);
        base.put(b"key", Some(b"new"));
        let flush = base.flusher();
        flush.flush().unwrap();
        let noted = flush.last();
        drop((base, flush));
        assert_eq!(written.open_again(noted).unwrap().get(b"key").as_deref(), Some(&b"new"[..]));
        assert!(written.open_again(noted + 1).is_err());
    }
}

#[test]
fn a_store_of_a_release_without_marks_gets_one_before_it_is_written_to() {
    let written = Written::new(false);
    let path = written.scratch.path().join("old");
    {
        let database = fjall::Database::builder(&path).open().unwrap();
        let items = database.keyspace("items", Default::default).unwrap();
        items.insert("key", "old").unwrap();
    }
    let mut base = Base::open(&path, Durability::Buffered, 1 << 20).unwrap();
    assert_eq!(all(&base, 1), [(b"key".to_vec(), b"old".to_vec())]);
    assert!(base.flusher().verify(0, false).unwrap().is_none());
    for value in [b"1", b"2"] {
        base.put(b"key", Some(value));
        base.flusher().flush().unwrap();
    }
    drop(base);
    let journal = fs::read(path.join("0.jnl")).unwrap();
    let [.., before, _, first, second] = ends(&journal)[..] else { panic!("several batches") };
    // As if another journal had begun with the last batch, and all batches before it except old ones were lost.
    fs::write(path.join("0.jnl"), &journal[..before]).unwrap();
    fs::write(path.join("1.jnl"), &journal[first..second]).unwrap();
    let base = Base::open(&path, Durability::Buffered, 1 << 20).unwrap();
    assert!(base.flusher().verify(0, false).is_err());
}

#[test]
fn each_batch_of_a_large_flush_has_its_number() {
    let scratch = Scratch::new();
    let mut base = Base::open(scratch.path(), Durability::Buffered, 1 << 20).unwrap();
    for key in 0..3000u16 {
        base.put(&key.to_be_bytes(), Some(b"value"));
    }
    let flush = base.flusher();
    flush.flush().unwrap();
    assert_eq!(flush.last(), 3);
    flush.flush().unwrap();
    assert_eq!(flush.last(), 3, "there was nothing to be written");
    assert!(flush.verify(3, false).unwrap().is_none() && flush.verify(4, false).is_err());
}

#[test]
fn a_store_that_has_lost_noted_batches_is_refused() {
    let scratch = Scratch::new();
    let (store, log) = (scratch.path().join("base"), scratch.path().join("log"));
    let mut base = Base::open(&store, Durability::Buffered, 0).unwrap();
    let options = LogOptions::new(7, Durability::Buffered);
    let (mut beside, _) = LogFiles::open(&log, options, &mut |_, _| {}).unwrap();
    let mut batch = Batch::starting_at(0);
    batch.push(|out| out.extend_from_slice(b"record"));
    beside.write(&mut batch).unwrap();
    for value in [b"1", b"2"] {
        base.put(b"key", Some(value));
        base.flusher().flush().unwrap();
    }
    beside.note_store(1).unwrap();
    drop((base, beside));
    assert!(!is_store_refused(&store, &log).unwrap());
    let journal = fs::read(store.join("0.jnl")).unwrap();
    for (lost, refused) in [(1, false), (2, true)] {
        let ends = ends(&journal);
        fs::write(store.join("0.jnl"), &journal[..ends[ends.len() - 1 - lost]]).unwrap();
        assert_eq!(is_store_refused(&store, &log).unwrap(), refused);
    }
}

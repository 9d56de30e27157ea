//! Readers of untrusted bytes: connections, logs, configurations, histories and procedure files. Each function here takes any bytes and must
//! return. It returns whether some of the bytes were valid.
//!
//! They are the targets of `fuzz/`, which libFuzzer runs until it is interrupted (`fuzz/run frames`). The tests here
//! feed them with damaged examples, so that `cargo test` covers some of this. `SERRIED_CASES=1000000` tries more
//! examples, and `SERRIED_FIRST_SEED=3` others.

use serried_node::{NodeConfiguration, Replicas};

/// The bytes of a connection: frames, and the payloads of those of the handshake and of batches.
pub fn frames(bytes: &[u8]) -> bool {
    serried_wire::read_hostile_frames(bytes)
}

/// A segment of a log.
///
/// # Panics
/// If the directory for temporary files can't be written.
pub fn log_segment(bytes: &[u8]) -> bool {
    let place = std::env::temp_dir().join(format!("serried-hostile-{}", std::process::id()));
    serried_storage::read_hostile_segment(&place, bytes).expect("temporary files can be written")
}

/// A node's configuration.
pub fn configuration(bytes: &[u8]) -> bool {
    let Ok(text) = core::str::from_utf8(bytes) else { return false };
    match NodeConfiguration::parse(text, "node.toml", &Replicas::default()) {
        Ok(_) => true,
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "an error has one line: {error}");
            false
        }
    }
}

/// A history of any family. It is checked if it can be read.
pub fn history(bytes: &[u8]) -> bool {
    serried_history::read_hostile_history(bytes)
}

/// A file of procedures. They are checked if they can be compiled.
pub fn procedures(bytes: &[u8]) -> bool {
    let Ok(text) = core::str::from_utf8(bytes) else { return false };
    match serried_chop::compile(text) {
        Ok(mut set) => {
            serried_chop::check_and_merge(&mut set);
            assert_eq!(serried_chop::check(&mut set), Ok(()), "all that must be merged is merged");
            true
        }
        Err(mistake) => {
            assert!(!mistake.to_string().contains('\n'), "a mistake has one line: {mistake}");
            let line = text.split('\n').nth(mistake.line - 1).expect("the line is in the file");
            let columns = 1..=line.chars().count() + 1;
            assert!(columns.contains(&mistake.column), "the column is in the line: {mistake}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// Numbers for texts. Readers often fail on such numbers.
    const NUMBERS: [&str; 9] = [
        "0",
        "-1",
        "1",
        "65536",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "1e9",
        "null",
    ];

    /// The number in an environment variable, or the usual one.
    fn number(name: &str, usual: u64) -> u64 {
        let asked = std::env::var(name).ok();
        asked.map_or(usual, |number| number.parse().expect(name))
    }

    /// Passes damaged `examples` to `target`. It must refuse most, but not all.
    fn feed(target: fn(&[u8]) -> bool, examples: &[Vec<u8>], usual: u64) {
        let mut random = Pcg64Mcg::seed_from_u64(number("SERRIED_FIRST_SEED", 7));
        for example in examples {
            assert!(target(example), "{:?} is sound", String::from_utf8_lossy(example));
        }
        let (cases, mut understood) = (number("SERRIED_CASES", usual), 0);
        for _ in 0..cases {
            let mut bytes = examples[random.random_range(0..examples.len())].clone();
            for _ in 0..random.random_range(1..5u32) {
                match random.random() {
                    true => damage(&mut bytes, &mut random),
                    false => damage_text(&mut bytes, &mut random),
                }
            }
            understood += u64::from(target(&bytes));
        }
        println!("{understood} of {cases} were understood");
        assert!(understood > cases / 100, "{understood} of {cases} is too few to say much");
    }

    /// Changes, cuts out or repeats a few bytes.
    fn damage(bytes: &mut Vec<u8>, random: &mut Pcg64Mcg) {
        let at = random.random_range(0..=bytes.len());
        let until = (at + random.random_range(0..9usize)).min(bytes.len());
        match random.random_range(0..6u32) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8u32),
            1 if at < bytes.len() => bytes[at] = b"\0\x01\xff\x80\"{[,-9e"[at % 11],
            2 => drop(bytes.drain(at..until)),
            3 => bytes.extend_from_within(at..until),
            4 => bytes[at..until].fill(0xff),
            _ => bytes.truncate(until),
        }
    }

    /// Replaces a number of a text, or moves, repeats or removes one of its lines.
    fn damage_text(bytes: &mut Vec<u8>, random: &mut Pcg64Mcg) {
        let from = random.random_range(0..=bytes.len());
        let other = NUMBERS[random.random_range(0..NUMBERS.len())].bytes();
        let mut lines: Vec<Vec<u8>> =
            bytes.split_inclusive(|b| *b == b'\n').map(Vec::from).collect();
        let [one, two] = [0, 1].map(|_| random.random_range(0..lines.len().max(1)));
        match random.random_range(0..5u32) {
            0 if lines.len() > 1 => lines.swap(one, two),
            1 if lines.len() > 1 => lines.insert(one, lines[two].clone()),
            2 if lines.len() > 1 => drop(lines.remove(one)),
            _ => {
                let Some(first) = bytes[from..].iter().position(u8::is_ascii_digit) else { return };
                let first = from + first;
                let digits = bytes[first..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                bytes.splice(first..first + digits, other);
                return;
            }
        }
        *bytes = lines.concat();
    }

    #[test]
    fn a_connection_may_bring_anything() {
        feed(frames, &serried_wire::example_frames(), 50_000);
    }

    #[test]
    fn a_log_may_hold_anything() {
        let name = format!("serried-example-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&place).unwrap();
        let example = serried_storage::example_segment(&place).unwrap();
        std::fs::remove_dir_all(&place).unwrap();
        // The bytes after the last batch are unused.
        let used = example.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        feed(log_segment, &[example[..used].to_vec(), example], 50_000);
    }

    #[test]
    fn a_configuration_may_say_anything() {
        let example = "cluster = \"bank\"\nnode = 1\nlisten = \"127.0.0.1:1\"\npeers = [\"a:1\", \"b:1\", \
                       \"c:1\"]\ngeography = \"reg\"\ncores = 2\n[[keyspace]]\nname = \"a\"\nid = \"a@3\"\n\
                       protocol = \"ncc\"\npartitions = 4\n[keyspace.settings]\nclock_bound_ms = 5\n\
                       [limits]\nkey_bytes = 100\n[transport]\nframe_bytes = 70000000\n";
        feed(configuration, &[example.as_bytes().to_vec()], 50_000);
    }

    #[test]
    fn a_procedure_file_may_say_anything() {
        let tpcc = include_str!("../../chop/procedures/tpcc.toml");
        let deposit = "[tables.account]\nkey = { id = \"int\" }\ncolumns = { balance = \"int\", log = { list = \"int\", \
                       max = 9 } }\n[procedures.deposit]\ninputs = { id = \"int\", amounts = { list = \"int\", max = 5 } \
                       }\nreturns = { left = \"add.left\" }\n[procedures.deposit.pieces.add]\nrows = { account = \
                       [\"id\"] }\nreads = [\"account.balance\", \"account.log\"]\nchecks = [{ that = \"amounts.all(a, a \
                       > 0 && a < 9)\", otherwise = \"no\" }]\nwrites.account.balance = \"account.balance + \
                       sum(amounts)\"\nwrites.account.log = \"account.log.filter(e, e in amounts)\"\noutputs.left = \
                       \"account.balance > 0 ? account.balance / 2 : -1 - (2 * 3)\"\n";
        feed(procedures, &[deposit.into()], 20_000);
        feed(procedures, &[tpcc.into()], 500);
    }

    #[test]
    fn a_history_may_say_anything() {
        feed(history, &serried_history::example_histories(), 50_000);
    }
}

//! What reads bytes that nobody vouches for: connections, logs, configurations and histories. Each function here
//! takes any bytes and must come back, whatever they are.
//!
//! They are the targets of `fuzz/`, which needs a nightly compiler and runs for as long as one likes. The tests
//! here feed them with damaged examples, so that some of that is run with everything else.

use serried_history::{Budget, History, RegisterHistory, check_linearizable, check_serializable};
use serried_runtime::{Catalogue, NodeConfiguration};

/// What a connection brings: frames, and what lies in those of the handshake and in batches.
pub fn frames(bytes: &[u8]) {
    serried_runtime::read_hostile_frames(bytes);
}

/// A segment of a log.
///
/// # Panics
/// If the directory for temporary files can't be written.
pub fn log_segment(bytes: &[u8]) {
    let place = std::env::temp_dir().join(format!("serried-hostile-{}", std::process::id()));
    serried_storage::read_hostile_segment(&place, bytes).expect("temporary files can be written");
}

/// A node's configuration.
pub fn configuration(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    if let Err(error) = NodeConfiguration::parse(text, "node.toml", &Catalogue::default()) {
        assert!(!error.to_string().contains('\n'), "an error has one line: {error}");
    }
}

/// A history of transactions or of registers, which is checked if it can be read.
pub fn history(bytes: &[u8]) {
    let budget = Budget { states: 1000, ..Budget::default() };
    if let Ok(history) = RegisterHistory::read_json_lines(bytes) {
        check_linearizable(&history, &budget);
    }
    if let Ok(history) = History::read_json_lines(bytes) {
        check_serializable(&history);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// How many with each target, unless the environment says otherwise.
    fn cases(usual: usize) -> usize {
        let asked = std::env::var("SERRIED_CASES").ok();
        asked.map_or(usual, |cases| cases.parse().expect("SERRIED_CASES"))
    }

    /// Feeds `target` with what becomes of `examples` when a few bytes are changed, cut out or repeated.
    fn feed(target: fn(&[u8]), examples: &[Vec<u8>], usual: usize) {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        examples.iter().for_each(|example| target(example));
        for _ in 0..cases(usual) {
            let mut bytes = examples[random.random_range(0..examples.len())].clone();
            for _ in 0..random.random_range(1..5u32) {
                let at = random.random_range(0..=bytes.len());
                let until = (at + random.random_range(0..9usize)).min(bytes.len());
                match random.random_range(0..5u32) {
                    0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8u32),
                    1 if at < bytes.len() => bytes[at] = b"\0\x01\xff\x80\"{[,-9e"[at % 11],
                    2 => drop(bytes.drain(at..until)),
                    3 => bytes.extend_from_within(at..until),
                    _ => bytes.truncate(until),
                }
            }
            target(&bytes);
        }
    }

    #[test]
    fn a_connection_may_bring_anything() {
        feed(frames, &serried_runtime::example_frames(), 20_000);
    }

    #[test]
    fn a_log_may_hold_anything() {
        let name = format!("serried-example-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&place).unwrap();
        let example = serried_storage::example_segment(&place).unwrap();
        std::fs::remove_dir_all(&place).unwrap();
        // What lies behind the last batch is room.
        let used = example.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        feed(log_segment, &[example[..used].to_vec(), example], 2000);
    }

    #[test]
    fn a_configuration_may_say_anything() {
        let example = "cluster = \"bank\"\nnode = 1\nlisten = \"127.0.0.1:1\"\npeers = [\"a:1\", \"b:1\", \
                       \"c:1\"]\ngeography = \"reg\"\ncores = 2\n[[keyspace]]\nname = \"a\"\nid = \"a@3\"\n\
                       protocol = \"ncc\"\npartitions = 4\n[keyspace.settings]\nclock_bound_ms = 5\n\
                       [limits]\nkey_bytes = 100\n[transport]\nframe_bytes = 70000\n";
        feed(configuration, &[example.as_bytes().to_vec()], 20_000);
    }

    #[test]
    fn a_history_may_say_anything() {
        let registers = r#"{"type":"invoke","process":3,"time":1200,"f":"write","value":[5,7]}
{"type":"invoke","process":4,"time":1300,"f":"cas","value":[5,[7,8]]}
{"type":"ok","process":3,"time":1900,"f":"write","value":[5,7]}
{"type":"ok","process":4,"time":2000,"f":"cas","value":[5,[7,8],7]}
{"type":"invoke","process":3,"time":2100,"f":"read","value":[5,null]}
{"type":"ok","process":3,"time":2900,"f":"read","value":[5,8]}
"#;
        let transactions = r#"{"type":"invoke","process":0,"time":1,"f":"txn","value":[["append",1,2],["r",1,null]]}
{"type":"ok","process":0,"time":2,"f":"txn","value":[["append",1,2],["r",1,[2]]]}
{"type":"invoke","process":1,"time":3,"f":"txn","value":[["r",1,null],["w",3,4]]}
{"type":"ok","process":1,"time":4,"f":"txn","value":[["r",1,[2]],["w",3,4]]}
"#;
        feed(history, &[registers, transactions].map(|text| text.as_bytes().to_vec()), 20_000);
    }
}

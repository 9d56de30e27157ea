//! For `serried-hostile` and its fuzz targets: histories of every family.

use crate::{
    Budget, CallHistory, History, RegisterHistory, TransactionGuarantee, check_calls, check_causal,
    check_causal_convergent, check_linearizable, check_process_ordered, check_serializable,
    check_strict_serializable,
};

/// The histories of a family.
struct Format {
    /// Reads bytes as such a history, and checks it if it is one. Returns whether it is one.
    read: fn(&[u8]) -> bool,
    /// A valid history.
    example: &'static str,
}

const FORMATS: [Format; 3] = [
    Format {
        read: |bytes| {
            let budget = Budget { states: 1000, ..Budget::default() };
            let history = RegisterHistory::read_json_lines(bytes);
            history.map(|history| check_linearizable(&history, &budget)).is_ok()
        },
        example: r#"{"type":"invoke","process":3,"time":1200,"f":"write","value":[5,7]}
{"type":"invoke","process":4,"time":1300,"f":"cas","value":[5,[7,8]]}
{"type":"ok","process":3,"time":1900,"f":"write","value":[5,7]}
{"type":"ok","process":4,"time":2000,"f":"cas","value":[5,[7,8],7]}
{"type":"invoke","process":3,"time":2100,"f":"read","value":[5,null]}
{"type":"ok","process":3,"time":2900,"f":"read","value":[5,8]}
"#,
    },
    Format {
        read: |bytes| {
            let history = History::read_json_lines(bytes);
            let checks = [
                check_serializable,
                check_process_ordered,
                check_strict_serializable,
                check_causal,
                check_causal_convergent,
            ];
            history.map(|history| checks.map(|check| check(&history))).is_ok()
        },
        example: r#"{"type":"invoke","process":0,"time":1,"f":"txn","value":[["append",1,2],["r",1,null]]}
{"type":"ok","process":0,"time":2,"f":"txn","value":[["append",1,2],["r",1,[2]]]}
{"type":"invoke","process":1,"time":3,"f":"txn","value":[["r",1,null],["w",3,4]]}
{"type":"ok","process":1,"time":4,"f":"txn","value":[["r",1,[2]],["w",3,4]]}
"#,
    },
    Format {
        read: |bytes| {
            let history = CallHistory::read_json_lines(bytes);
            let strictly = TransactionGuarantee::StrictlySerializable;
            history.map(|history| check_calls(&history, strictly)).is_ok()
        },
        example: r#"{"type":"invoke","process":0,"time":1,"f":"call","procedure":"append","value":[["append",1,2]]}
{"type":"invoke","process":1,"time":2,"f":"call","procedure":"read","value":[]}
{"type":"ok","process":0,"time":3,"f":"call","procedure":"append","value":[["r",1,[]],["append",1,2]]}
{"type":"ok","process":1,"time":4,"f":"call","procedure":"read","value":[["r",1,[2]]]}
{"type":"invoke","process":1,"time":5,"f":"call","procedure":"append","value":[["append",1,3]]}
{"type":"fail","process":1,"time":6,"f":"call","procedure":"append","value":[],"refused":true,"error":"full"}
"#,
    },
];

/// Reads these bytes as a history of each family, and checks it if it is one. Returns whether it is one of any family.
/// Must not panic.
#[doc(hidden)]
pub fn read_hostile_history(bytes: &[u8]) -> bool {
    FORMATS.iter().filter(|format| (format.read)(bytes)).count() > 0
}

/// A valid history of each family.
#[doc(hidden)]
pub fn example_histories() -> Vec<Vec<u8>> {
    FORMATS.iter().map(|format| format.example.as_bytes().to_vec()).collect()
}

//! What is on disks.

use serried_actor::Wire;

use super::super::Led;
use super::*;

/// The records, and how they were encoded when the format of data directories became 4.
fn records() -> Vec<(Record<Led<Add>>, &'static [u8])> {
    let promised = Ballot { round: 5, member: 2 };
    let led = Led { by: Ballot { round: 4, member: 1 }, number: 6, entry: Add(7) };
    let entries = [None, Some(led)].into();
    vec![
        (
            Record::Accepted { ballot: promised, first: 300, entries },
            &[0, 5, 2, 0xac, 2, 2, 0, 1, 4, 1, 6, 7],
        ),
        (
            Record::Mark { promised, applied: 300, lost: true, anew: false },
            &[1, 5, 2, 0xac, 2, 1, 0],
        ),
        (Record::TakenOver(300), &[2, 0xac, 2]),
    ]
}

/// If this fails because a record has changed, existing data can't be read any more. Then the format of directories has to
/// rise, and [`super::super::FIRST_FORMAT`] with it.
#[test]
fn records_are_encoded_as_they_are_on_existing_disks() {
    for (record, bytes) in records() {
        assert_eq!(Record::decode(bytes), Ok(record.clone()));
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        assert_eq!(encoded, bytes, "{record:?}");
    }
}

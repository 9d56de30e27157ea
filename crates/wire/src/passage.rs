//! Tests of the way from one end's buffer to the values at the other end.

use proptest::prelude::*;
use serried_actor::Wire;
use serried_model::{Value, sharing};

use crate::frame::{FrameReader, Kind};
use crate::out_buffer::{Messages, OutBuffer, Route};

type Message = Vec<(u32, Value)>;

const ROUTE: Route = Route { keyspace: 9, to: 1, from: 2 };

fn messages() -> impl Strategy<Value = Vec<Message>> {
    // Lengths around those at which values are shared and frames get memory of their own.
    let length = prop_oneof![0..40usize, 1000..1050usize, 4000..5000usize, 16_000..40_000usize];
    let value = (any::<u32>(), length, any::<u8>());
    let message = prop::collection::vec(value, 0..6);
    let of = |(number, length, byte): (u32, usize, u8)| (number, Value::from(vec![byte; length]));
    let message = message.prop_map(move |values| values.into_iter().map(of).collect());
    prop::collection::vec(message, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn messages_arrive_as_they_were_sent_however_writes_and_reads_are_cut(
        sent in messages(),
        steps in prop::collection::vec(1..50_000usize, 1..8),
        shares in any::<bool>(),
    ) {
        let mut buffer = OutBuffer::default();
        for message in &sent {
            buffer.push_message(ROUTE, 1 << 20, |out| message.encode_into(out)).unwrap();
        }
        let mut reader = FrameReader::new(1 << 20);
        if shares {
            reader.share();
        }
        let mut steps = steps.into_iter().cycle();
        let mut arrived: Vec<Message> = Vec::new();
        while buffer.written() < buffer.len() {
            let taken = buffer.write_some(steps.next().unwrap());
            let mut rest = &taken[..];
            while !rest.is_empty() {
                let (room, at_most) = reader.room();
                let count = at_most.min(rest.len());
                room.extend_from_slice(&rest[..count]);
                rest = &rest[count..];
                while let Some(frame) = reader.next_frame().unwrap() {
                    prop_assert_eq!(frame.kind, Kind::Batch);
                    for (route, message) in Messages::new(frame.payload) {
                        prop_assert_eq!(route, ROUTE);
                        let decode = || Message::decode(message).unwrap();
                        arrived.push(match frame.memory {
                            Some(memory) => sharing::sharing(memory, decode),
                            None => decode(),
                        });
                    }
                }
            }
        }
        // The reader's memory was used again for what came later, and none of the values has changed.
        prop_assert_eq!(arrived, sent);
    }
}

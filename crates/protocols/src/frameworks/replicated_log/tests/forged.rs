//! Messages that no replica sends.

use rand::RngExt;
use serried_model::Value;

use super::super::Accepted;
use super::*;

/// Numbers that a damaged message may contain.
const ODD: [u64; 6] = [0, 1, 2, 1 << 20, u64::MAX - 1, u64::MAX];

/// A forged message with unusual numbers.
fn forged(pick: &mut impl FnMut(usize) -> usize) -> Message<Add> {
    let number = |pick: &mut dyn FnMut(usize) -> usize| ODD[pick(ODD.len())];
    let ballot = |pick: &mut dyn FnMut(usize) -> usize| Ballot {
        round: ODD[pick(ODD.len())],
        member: [0, 1, 2, 200][pick(4)],
    };
    let count = [0, 1, 3][pick(3)];
    match pick(14) {
        0 => Message::Accept {
            ballot: ballot(pick),
            first: number(pick),
            chosen: number(pick),
            entries: (0..count).map(|n| Some(Add(n))).collect(),
        },
        1 => Message::Beat {
            ballot: ballot(pick),
            number: number(pick),
            chosen: number(pick),
            base: number(pick),
            behind: pick(2) == 0,
        },
        2 => Message::Accepted {
            ballot: ballot(pick),
            incarnation: number(pick),
            beat: number(pick),
            matched: number(pick),
        },
        3 => Message::Prepare { ballot: ballot(pick), from: number(pick), after: ballot(pick) },
        4 => {
            let accepted =
                |_| Accepted { slot: number(pick), ballot: ballot(pick), entry: Some(Add(1)) };
            let accepted = (0..count).map(accepted).collect();
            Message::Promise { ballot: ballot(pick), applied: number(pick), accepted }
        }
        5 => Message::Behind { ballot: ballot(pick) },
        6 => Message::Refused { promised: ballot(pick) },
        7 => Message::Rejoin { nonce: number(pick), question: number(pick) },
        8 => Message::Standing {
            nonce: number(pick),
            question: number(pick),
            promised: ballot(pick),
            is_blank: number(pick) % 2 == 0,
            is_anew: number(pick) % 2 == 0,
        },
        9 => Message::Scan { after: Some(Key::from("")) },
        10 => Message::Scanned {
            after: None,
            incarnation: number(pick),
            at: number(pick),
            entries: vec![(Key::from(["", "k"][pick(2)]), Value::from(["", "?"][pick(2)]))],
            more: pick(2) == 0,
        },
        11 => Message::Canvass { nonce: number(pick) },
        12 => Message::Willing { nonce: number(pick) },
        _ => Message::HandOver { ballot: ballot(pick) },
    }
}

#[test]
fn no_message_ends_a_replica() {
    let mut random = Pcg64Mcg::new(7);
    let mut pick = |of: usize| random.random_range(0..of);
    for _ in 0..300 {
        let mut net = Net::new();
        net.forged = true;
        net.propose(0, 7);
        net.settle();
        for _ in 0..60 {
            let to = pick(3);
            // The message names the ballot of the leader or candidate itself. Otherwise it would be
            // ignored.
            let mut message = forged(&mut pick);
            let own = net.nodes[to].log.acceptor.promised();
            if let Message::Promise { ballot, .. } | Message::Accepted { ballot, .. } = &mut message
                && pick(2) == 0
            {
                *ballot = own;
            }
            let from = NodeId([0, 1, 2, 9, NodeId::FIRST_COORDINATOR][pick(5)]);
            net.deliver((from, NodeId(to as u64), message));
            if pick(4) == 0 {
                net.wait(Duration::from_millis(300));
                let timer = [Timer::Flush, Timer::Lead, Timer::Elect, Timer::Restore][pick(4)];
                net.timer(pick(3), timer);
            }
            if pick(3) == 0 {
                net.network.truncate(30);
                (0..net.network.len()).for_each(|_| {
                    let next = net.network.pop_front().unwrap();
                    net.deliver(next);
                });
            }
            assert!(net.nodes.values().all(|node| node.log.kept() < 50_000));
        }
    }
}

use serried_model::Value;

use super::*;

const NODE: NodeId = NodeId(1);
const END: End = End::Core { member: 1, core: 0 };
/// A message in a keyspace with one site.
fn sending() -> Sending {
    Sending { from: NodeId(0), keyspace: 7, placement: Placement::from(2), after: 0 }
}

fn options() -> LinkOptions {
    LinkOptions {
        end: END,
        route: true,
        internal: false,
        delay: Duration::ZERO,
        frame_bytes: 1000,
        most_waiting_bytes: 140,
    }
}

fn take(links: &mut Links, id: LinkId) -> Option<OutBuffer> {
    let (mut spare, mut patience) = (OutBuffer::default(), PATIENCE);
    let mut cx = Context::from_waker(Waker::noop());
    match links.poll_take(id, &mut spare, &mut patience, &mut cx) {
        Poll::Ready(Some(_)) => Some(spare),
        _ => None,
    }
}

#[test]
fn messages_beyond_the_mark_are_dropped_until_the_writer_has_caught_up() {
    let mut links = Links::new();
    let id = links.open(options());
    for _ in 0..10 {
        links.send(sending(), NODE, &vec![7u8; 50]);
    }
    assert_eq!((links.counters.messages_sent, links.counters.messages_dropped), (2, 8));
    let taken = take(&mut links, id).unwrap();
    links.send(sending(), NODE, &vec![7u8; 50]);
    assert_eq!(links.counters.messages_dropped, 9, "what is in flight counts");
    links.written(id, taken.len());
    links.send(sending(), NODE, &vec![7u8; 50]);
    assert_eq!((links.counters.messages_sent, links.counters.messages_dropped), (3, 9));
}

/// Three of them fill a link.
fn long() -> Value {
    Value::from(vec![7; 2000])
}

#[test]
fn long_values_count_where_they_wait_and_for_a_flush_as_well() {
    let mut links = Links::new();
    let id = links.open(LinkOptions { frame_bytes: 3000, most_waiting_bytes: 5000, ..options() });
    for after in [0, 1] {
        for _ in 0..10 {
            links.send(Sending { after, ..sending() }, NODE, &long());
        }
        let (held, ready) = links.waiting_bytes();
        assert!((5000..7500).contains(&(held + ready)), "{held} {ready}");
    }
    assert_eq!((links.counters.messages_sent, links.counters.messages_dropped), (3, 17));
    let taken = take(&mut links, id).unwrap();
    links.written(id, taken.len());
    assert_eq!(links.waiting_bytes(), (0, 0));
    links.send(Sending { after: 1, ..sending() }, NODE, &long());
    links.send(sending(), NODE, &long());
    assert!(links.waiting_bytes().0 > 2000 && links.waiting_bytes().1 > 2000);
    links.release(1);
    let (held, ready) = links.waiting_bytes();
    assert!(held == 0 && ready > 4000, "{held} {ready}");
    let mut released = take(&mut links, id).unwrap();
    assert_eq!((released.len(), released.copy_all().len()), (ready, ready));
}

#[test]
fn what_goes_to_other_cores_and_to_other_nodes_at_once_is_copied_only_for_the_cores() {
    let mut links = Links::new();
    let frames = LinkOptions { frame_bytes: 3000, most_waiting_bytes: 5000, ..options() };
    let inside =
        links.open(LinkOptions { end: End::Core { member: 0, core: 0 }, internal: true, ..frames });
    let outside = links.open(frames);
    links.send(sending(), NODE, &long());
    links.send(sending(), NodeId(0), &long());
    let inside = take(&mut links, inside).unwrap();
    let payloads: Vec<usize> = inside.payloads().map(<[u8]>::len).collect();
    assert!(payloads.len() == 1 && payloads[0] > 2000);
    assert!(take(&mut links, outside).unwrap().len() > 2000);
}

#[test]
fn messages_take_the_link_on_which_a_node_spoke_last() {
    let mut links = Links::new();
    let first = links.open(options());
    let second = links.open(LinkOptions { route: false, ..options() });
    links.send(sending(), NODE, &1u8);
    assert!(take(&mut links, first).is_some() && take(&mut links, second).is_none());
    links.route(second);
    links.send(sending(), NODE, &1u8);
    assert!(take(&mut links, first).is_none() && take(&mut links, second).is_some());
    links.remove(first);
    assert!(links.leads_to(END), "the removed link was not the one in use");
    links.remove(second);
    assert!(!links.leads_to(END));
    links.send(sending(), NODE, &1u8);
    assert_eq!(links.counters.messages_dropped, 1);
}

#[test]
fn a_reader_waits_until_its_writer_has_caught_up() {
    let mut links = Links::new();
    let id = links.open(options());
    let mut cx = Context::from_waker(Waker::noop());
    links.send(sending(), NODE, &vec![7u8; 50]);
    assert!(links.is_behind(id, 20) && !links.is_behind(id, 1000));
    assert!(links.poll_drained(id, 20, &mut cx).is_pending());
    let taken = take(&mut links, id).unwrap();
    assert!(links.poll_drained(id, 20, &mut cx).is_pending(), "what is in flight counts");
    links.written(id, taken.len());
    assert!(links.poll_drained(id, 20, &mut cx).is_ready());
}

#[test]
fn a_closing_link_ends_once_everything_is_taken() {
    let mut links = Links::new();
    let id = links.open(options());
    links.send(sending(), NODE, &1u8);
    links.close_all();
    assert!(take(&mut links, id).is_some());
    let (mut spare, mut patience) = (OutBuffer::default(), 0);
    let mut cx = Context::from_waker(Waker::noop());
    let ended = links.poll_take(id, &mut spare, &mut patience, &mut cx);
    assert_eq!(ended, Poll::Ready(None));
    let late = links.open(options());
    assert_eq!(links.poll_waiting(late, &mut cx), Poll::Ready(false));
}

#[test]
fn a_writer_lets_what_is_ready_run_before_it_takes_anything() {
    let mut links = Links::new();
    let id = links.open(options());
    let (mut spare, mut patience) = (OutBuffer::default(), 0);
    let mut cx = Context::from_waker(Waker::noop());
    links.send(sending(), NODE, &1u8);
    assert!(links.poll_take(id, &mut spare, &mut patience, &mut cx).is_pending());
    links.send(sending(), NODE, &2u8);
    assert!(links.poll_take(id, &mut spare, &mut patience, &mut cx).is_ready());
    assert!(!spare.is_empty() && take(&mut links, id).is_none());
}

#[test]
fn a_message_waits_for_its_flush_and_others_do_not_wait_for_it() {
    let mut links = Links::new();
    let id = links.open(options());
    let after = |after| Sending { after, ..sending() };
    links.send(after(1), NODE, &1u8);
    links.send(after(2), NODE, &2u8);
    links.send(after(1), NODE, &3u8);
    assert!(take(&mut links, id).is_none());
    links.send(after(0), NODE, &4u8);
    let message = PREFIX_BYTES + 1;
    let frame = crate::frame::HEADER_BYTES;
    assert_eq!(take(&mut links, id).map(|taken| taken.len()), Some(frame + message));
    links.release(1);
    assert_eq!(take(&mut links, id).map(|taken| taken.len()), Some(frame + message));
    links.close_all();
    let (mut spare, mut patience) = (OutBuffer::default(), 0);
    let mut cx = Context::from_waker(Waker::noop());
    let ended = links.poll_take(id, &mut spare, &mut patience, &mut cx);
    assert!(ended.is_pending(), "what is held may still leave");
    links.release(2);
    assert_eq!(take(&mut links, id).map(|taken| taken.len()), Some(frame + 2 * message));
    links.send(after(2), NODE, &5u8);
    assert!(take(&mut links, id).is_some() && links.waiting_bytes().0 == 0);
}

#[test]
fn messages_go_to_the_core_that_serves_the_partition() {
    let mut links = Links::new();
    links.set_cores(1, 2, [(7, 3), (8, 4)]);
    let cores = [0, 1]
        .map(|core| links.open(LinkOptions { end: End::Core { member: 1, core }, ..options() }));
    links.send(sending(), NodeId::replica(0, 1), &1u8);
    assert!(take(&mut links, cores[0]).is_none() && take(&mut links, cores[1]).is_some());
    links.send(sending(), NodeId::replica(1, 1), &1u8);
    assert!(take(&mut links, cores[0]).is_some() && take(&mut links, cores[1]).is_none());
    links.send(Sending { keyspace: 8, ..sending() }, NodeId::replica(0, 1), &1u8);
    assert!(take(&mut links, cores[0]).is_some() && take(&mut links, cores[1]).is_none());
}

#[test]
fn messages_go_to_the_node_that_has_the_partition_of_a_site() {
    let mut links = Links::new();
    // Three sites with two partitions and one node each.
    links.set_cores(1, 2, [(7, 3)]);
    let cores = [0, 1]
        .map(|core| links.open(LinkOptions { end: End::Core { member: 1, core }, ..options() }));
    let second = links.open(LinkOptions { end: End::Core { member: 2, core: 0 }, ..options() });
    let sending = Sending { placement: Placement::new(3, 2, 1), ..sending() };
    links.send(sending, NodeId::replica(2, 0), &1u8);
    assert!(take(&mut links, cores[0]).is_none() && take(&mut links, cores[1]).is_some());
    links.send(sending, NodeId::replica(3, 0), &1u8);
    assert!(take(&mut links, cores[0]).is_some() && take(&mut links, cores[1]).is_none());
    links.broadcast(sending, 5, NodeSet::first(1), &1u8);
    assert!(take(&mut links, second).is_some());
    links.send(sending, NodeId::replica(6, 0), &1u8);
    assert_eq!(links.counters.messages_dropped, 1, "there is no fourth site");
}

#[test]
fn a_link_in_a_place_used_before_is_another_link() {
    let mut links = Links::new();
    let old = links.open(options());
    links.remove(old);
    let new = links.open(options());
    links.remove(old);
    links.send(sending(), NODE, &1u8);
    assert!(take(&mut links, old).is_none() && take(&mut links, new).is_some());
}

//! One connection: its handshake, and the loop that reads it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serried_model::{NodeId, sharing};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;

use crate::endpoint::{Endpoint, Side};
use crate::frame::{BadFrame, Frame, FrameReader, HEADER_BYTES, Kind, finish_frame};
use crate::handshake::WELCOME_BYTES;
use crate::links::{Cut, LinkId};
use crate::options::TransportOptions;
use crate::writer;

/// For how long the frames of a connection are handled before what they have caused is sent, and other connections have their
/// turn. With batches of costly messages, both ends would otherwise wait for each other. Measured with stored procedures under
/// ROCOCO: 1.16 to 1.27 times the calls.
const TURN: Duration = Duration::from_micros(100);

/// Why a connection has ended, or has not come about.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The other end closed it.
    #[error("the other end closed the connection")]
    Closed,
    /// The operating system reported an error.
    #[error("{0}")]
    Lost(#[from] io::Error),
    /// It brought bytes that can't be understood.
    #[error("{0}")]
    Bad(#[from] BadFrame),
    /// The two ends do not fit together.
    #[error("{0}")]
    Rejected(String),
    /// The data of the node that connects does not count.
    #[error("{0}")]
    Disowned(String),
    /// A node has as many connections as it may.
    #[error("{0}: try again later")]
    Full(String),
    /// The other end did not answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// It was given up at this end.
    #[error("{0}")]
    Cut(Cut),
    /// Another core has it now.
    #[error("another core has the connection")]
    HandedOver,
}

impl Ended {
    /// The kind of cause, in words.
    pub fn cause(&self) -> &'static str {
        match self {
            Ended::Closed => "closed",
            Ended::Lost(_) => "lost",
            Ended::Bad(_) => "bad frame",
            Ended::Rejected(_) => "rejected",
            Ended::Disowned(_) => "disowned",
            Ended::Full(_) => "full",
            Ended::TimedOut => "timed out",
            Ended::Cut(_) => "cut",
            Ended::HandedOver => "handed over",
        }
    }
}

/// A connection that belongs to no runtime, with what was read from it.
#[derive(Debug)]
pub struct Detached {
    stream: std::net::TcpStream,
    reader: FrameReader,
}

/// A connection whose two directions have not been handed to their loops yet.
pub struct Connection {
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
    reader: FrameReader,
    /// Frames that came while another one was expected.
    early: Vec<(Kind, Vec<u8>)>,
}

impl Connection {
    /// A connection over which nothing has been sent. Until the handshake is over, only small frames are accepted.
    ///
    /// # Errors
    /// If the operating system refuses to send small packets at once.
    pub fn new(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        let reader = FrameReader::new(TransportOptions::LEAST_FRAME_BYTES);
        Ok(Connection { read, write, reader, early: Vec::new() })
    }

    /// The same for the side that receives a [`Welcome`](crate::Welcome), which is longer.
    pub(crate) fn of_dialer(stream: TcpStream) -> io::Result<Connection> {
        let mut connection = Connection::new(stream)?;
        connection.reader.limit = WELCOME_BYTES;
        Ok(connection)
    }

    /// A connection that was detached from another runtime.
    ///
    /// # Errors
    /// If the current runtime can't take it.
    pub fn attach(detached: Detached) -> io::Result<Connection> {
        let Detached { stream, reader } = detached;
        let (read, write) = TcpStream::from_std(stream)?.into_split();
        Ok(Connection { read, write, reader, early: Vec::new() })
    }

    /// Detaches it from its runtime, so that another thread can attach it to its own.
    ///
    /// # Errors
    /// If the runtime does not give it up.
    pub fn detach(self) -> io::Result<Detached> {
        let Connection { read, write, reader, .. } = self;
        let stream = read.reunite(write).map_err(io::Error::other)?;
        Ok(Detached { stream: stream.into_std()?, reader })
    }

    /// Sends one frame at once.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<(), Ended> {
        let mut frame = vec![0; HEADER_BYTES];
        frame.extend_from_slice(payload);
        finish_frame(&mut frame, kind);
        Ok(self.write.write_all(&frame).await?)
    }

    /// Waits for one frame.
    ///
    /// # Errors
    /// If the connection ends, or brings something that is no frame.
    pub async fn receive(&mut self) -> Result<(Kind, Vec<u8>), Ended> {
        loop {
            if let Some(frame) = self.reader.next_frame()? {
                return Ok((frame.kind, frame.payload.to_vec()));
            }
            if self.reader.fill(&mut self.read).await? == 0 {
                return Err(Ended::Closed);
            }
        }
    }

    /// Waits for one frame of a kind. Frames that may come at any time are kept for later, and pings are answered.
    ///
    /// # Errors
    /// If the connection ends, or brings something else.
    pub async fn receive_only(&mut self, wanted: Kind) -> Result<Vec<u8>, Ended> {
        loop {
            match self.receive().await? {
                (kind, payload) if kind == wanted => return Ok(payload),
                (Kind::Ping, _) => self.send(Kind::Pong, &[]).await?,
                (kind @ (Kind::Obstacle | Kind::ReportRequest), payload) => {
                    self.early.push((kind, payload));
                }
                (kind, _) => return Err(BadFrame::Unexpected(kind).into()),
            }
        }
    }

    /// Carries messages in both directions over `link` until one direction ends or the connection is given up. Messages
    /// that arrive are from `from`. The link ends with the connection.
    pub async fn run<S: Side>(
        self,
        endpoint: &Arc<Endpoint<S>>,
        from: NodeId,
        link: LinkId,
    ) -> Ended {
        let Connection { mut read, write, mut reader, early } = self;
        reader.limit = endpoint.transport.frame_bytes;
        // A node keeps the values that it gets for long, so it copies them out of what else came with them.
        if endpoint.id.is_coordinator() {
            reader.share();
        }
        let cuts = {
            let moment = endpoint.clock.moment();
            let mut core = endpoint.lock();
            let cuts = core.connected(link);
            for (kind, payload) in early {
                let frame = Frame { kind, payload: &payload, memory: None };
                if let Err(bad) = core.on_frame(from, link, frame, moment) {
                    core.lose(link);
                    return Ended::Bad(bad);
                }
            }
            cuts
        };
        let writer = tokio::spawn(writer::write_loop(endpoint.clone(), link, write));
        let mut writer = AbortOnDrop(writer);
        let ended = tokio::select! {
            biased;
            ended = read_loop(endpoint, from, link, &mut read, &mut reader) => ended,
            ended = &mut writer.0 => match ended {
                Ok(Err(error)) => Ended::Lost(error),
                Ok(Ok(_)) => Ended::Closed,
                Err(ended) => match ended.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Ended::Closed,
                },
            },
            cut = cuts => cut.map_or(Ended::Closed, Ended::Cut),
        };
        endpoint.lock().lose(link);
        ended
    }
}

async fn read_loop<S: Side>(
    endpoint: &Endpoint<S>,
    from: NodeId,
    link: LinkId,
    read: &mut OwnedReadHalf,
    reader: &mut FrameReader,
) -> Ended {
    let slow_waiting_bytes = match from.is_coordinator() {
        true => endpoint.transport.slow_waiting_bytes,
        false => usize::MAX,
    };
    let mut bytes = 0;
    loop {
        let mut deferred = Vec::new();
        let began = Instant::now();
        let (handled, behind) = {
            let moment = endpoint.clock.moment();
            let mut core = endpoint.lock();
            if bytes > 0 {
                core.received(bytes, moment);
            }
            if let Some(why) = core.links.given_up(link) {
                return Ended::Cut(why);
            }
            let handled = loop {
                match reader.next_frame() {
                    Ok(Some(frame)) => {
                        let mut on_frame = || core.on_frame(from, link, frame, moment);
                        let handled = match frame.memory {
                            Some(memory) => sharing::sharing(memory, on_frame),
                            None => on_frame(),
                        };
                        match handled {
                            Ok(left) => deferred.extend(left),
                            Err(bad) => break Err(bad),
                        }
                    }
                    Ok(None) => break Ok(false),
                    Err(bad) => break Err(bad),
                }
                if began.elapsed() >= TURN {
                    break Ok(true);
                }
            };
            core.links.heard(link, reader.kept_bytes());
            core.settle(moment);
            (handled, core.links.is_behind(link, slow_waiting_bytes))
        };
        let is_more = match handled {
            Ok(is_more) => is_more,
            Err(bad) => return Ended::Bad(bad),
        };
        if !deferred.is_empty() {
            S::answer(endpoint, link, deferred);
        }
        if behind {
            std::future::poll_fn(|cx| {
                endpoint.lock().links.poll_drained(link, slow_waiting_bytes, cx)
            })
            .await;
        }
        if is_more {
            bytes = 0;
            tokio::task::yield_now().await;
            continue;
        }
        bytes = match reader.fill(read).await {
            Ok(0) => return Ended::Closed,
            Ok(bytes) => bytes,
            Err(error) => return Ended::Lost(error),
        };
    }
}

/// A task that is aborted when this is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use serried_actor::Random;
    use tokio::net::TcpListener;

    use super::*;
    use crate::endpoint::tests::Bare;
    use crate::links::{End, LinkOptions};

    fn endpoint() -> Arc<Endpoint<Bare>> {
        let random = Random::seed_from_u64(1);
        Arc::new(Endpoint::new(NodeId(0), TransportOptions::default(), random, Bare))
    }

    fn open(endpoint: &Endpoint<Bare>) -> LinkId {
        endpoint.lock().links.open(LinkOptions {
            end: End::Core { member: 1, core: 0 },
            route: false,
            internal: false,
            delay: Duration::ZERO,
            frame_bytes: 1000,
            most_waiting_bytes: 1000,
        })
    }

    #[tokio::test]
    async fn nothing_more_is_taken_over_a_connection_that_is_given_up() {
        for (given_up, taken) in [(false, 1), (true, 0)] {
            let endpoint = endpoint();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let mut there = Connection::new(there).unwrap();
            there.send(Kind::Hello, &[]).await.unwrap();
            // A batch of one message without content.
            there.send(Kind::Batch, &[0; 16]).await.unwrap();
            let mut here = Connection::new(listener.accept().await.unwrap().0).unwrap();
            assert!(matches!(here.receive().await, Ok((Kind::Hello, _))));
            let link = open(&endpoint);
            if given_up {
                endpoint.lock().links.cut_node(1);
            }
            drop(there);
            let ended = here.run(&endpoint, NodeId(1), link).await;
            assert_eq!(matches!(ended, Ended::Cut(Cut::Disowned)), given_up, "{ended}");
            assert_eq!(endpoint.lock().links.counters.messages_received, taken);
        }
    }

    /// The side of an endpoint that takes a value from each frame, and notes whether it points into what was read.
    #[derive(Default)]
    struct Taking {
        shared: Vec<bool>,
    }

    impl Side for Taking {
        type Actor = dyn crate::driven::ErasedActor<Taking>;
        type Outside = ();
        type Deferred = ();

        fn home(&self) -> Option<usize> {
            Some(0)
        }

        fn on_frame(
            core: &mut crate::endpoint::Core<Self>,
            _: NodeId,
            _: LinkId,
            Frame { kind, payload, .. }: Frame<'_>,
            _: crate::clock::Moment,
        ) -> Result<Option<()>, BadFrame> {
            let value: serried_model::Value = crate::codec::decode(kind, payload)?;
            let begins = value.as_bytes().as_ptr();
            core.side.shared.push(payload.as_ptr_range().contains(&begins));
            Ok(None)
        }

        fn answer(_: &Endpoint<Self>, _: LinkId, _: Vec<()>) {}

        fn lost(&mut self, _: LinkId) {}

        fn next_due(&self) -> Option<serried_actor::Timestamp> {
            None
        }

        fn advance(&mut self, _: serried_actor::Timestamp, _: &mut crate::links::Links) {}
    }

    #[tokio::test]
    async fn values_that_clients_get_point_into_what_was_read_and_nodes_copy_theirs() {
        let value = serried_model::Value::from(vec![7; 400 << 10]);
        for (id, shares) in [(0, false), (NodeId::FIRST_COORDINATOR, true)] {
            let random = Random::seed_from_u64(1);
            let (options, side) = (TransportOptions::default(), Taking::default());
            let endpoint = Arc::new(Endpoint::new(NodeId(id), options, random, side));
            let link = endpoint.lock().links.open(LinkOptions {
                end: End::Core { member: 1, core: 0 },
                route: false,
                internal: false,
                delay: Duration::ZERO,
                frame_bytes: 1000,
                most_waiting_bytes: 1000,
            });
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let here = Connection::new(listener.accept().await.unwrap().0).unwrap();
            let payload = crate::codec::encode(&value);
            let sending = async move {
                let mut there = Connection::new(there).unwrap();
                there.send(Kind::StatusReply, &payload).await.unwrap();
            };
            let (ended, ()) = tokio::join!(here.run(&endpoint, NodeId(1), link), sending);
            assert!(matches!(ended, Ended::Closed), "{ended}");
            assert_eq!(endpoint.lock().side.shared, [shares]);
        }
    }
}

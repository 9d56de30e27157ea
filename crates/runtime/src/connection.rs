//! One connection: its handshake, and the loop that reads it.

use std::io;
use std::sync::Arc;

use serried_model::NodeId;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;

use crate::core::{Endpoint, Handled, encode};
use crate::frame::{BadFrame, Frame, FrameReader, HEADER_BYTES, Kind, finish_frame};
use crate::handshake::WELCOME_BYTES;
use crate::links::{Cut, LinkId};
use crate::{TransportOptions, writer};

/// Why a connection has ended, or has not come about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the other end closed the connection")]
    Closed,
    #[error("{0}")]
    Lost(#[from] io::Error),
    #[error("{0}")]
    Bad(#[from] BadFrame),
    #[error("{0}")]
    Rejected(String),
    #[error("{0}")]
    Disowned(String),
    #[error("{0}: try again later")]
    Full(String),
    #[error("no answer in time")]
    TimedOut,
    #[error("{0}")]
    Cut(Cut),
    #[error("another core has the connection")]
    HandedOver,
}

impl Ended {
    /// What is the same for all connections that end for the same cause.
    pub(crate) fn cause(&self) -> &'static str {
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

/// A connection whose two directions have not been handed to their loops yet.
pub(crate) struct Connection {
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
    reader: FrameReader,
    /// What came while something else was waited for.
    early: Vec<(Kind, Vec<u8>)>,
}

impl Connection {
    /// Until the handshake is over, only small frames are accepted.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        let reader = FrameReader::new(TransportOptions::LEAST_FRAME_BYTES);
        Ok(Connection { read, write, reader, early: Vec::new() })
    }

    /// As above, for the side that receives a node's keyspaces, which are longer.
    pub(crate) fn of_dialer(stream: TcpStream) -> io::Result<Connection> {
        let mut connection = Connection::new(stream)?;
        connection.reader.limit = WELCOME_BYTES;
        Ok(connection)
    }

    /// A connection that was taken apart.
    pub(crate) fn resume(stream: TcpStream, reader: FrameReader) -> Connection {
        let (read, write) = stream.into_split();
        Connection { read, write, reader, early: Vec::new() }
    }

    /// Takes it apart, for another thread's runtime.
    pub(crate) fn into_parts(self) -> io::Result<(std::net::TcpStream, FrameReader)> {
        let Connection { read, write, reader, .. } = self;
        let stream = read.reunite(write).map_err(io::Error::other)?;
        Ok((stream.into_std()?, reader))
    }

    /// Sends one frame at once.
    pub(crate) async fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<(), Ended> {
        let mut frame = vec![0; HEADER_BYTES];
        frame.extend_from_slice(payload);
        finish_frame(&mut frame, kind);
        Ok(self.write.write_all(&frame).await?)
    }

    /// Waits for one frame.
    pub(crate) async fn receive(&mut self) -> Result<(Kind, Vec<u8>), Ended> {
        loop {
            if let Some(frame) = self.reader.next_frame()? {
                return Ok((frame.kind, frame.payload.to_vec()));
            }
            if self.reader.fill(&mut self.read).await? == 0 {
                return Err(Ended::Closed);
            }
        }
    }

    /// Waits for one frame of a kind; what may come at any time is kept for later, and pings are answered.
    pub(crate) async fn receive_only(&mut self, wanted: Kind) -> Result<Vec<u8>, Ended> {
        loop {
            match self.receive().await? {
                (kind, payload) if kind == wanted => return Ok(payload),
                (Kind::Ping, _) => self.send(Kind::Pong, &[]).await?,
                (Kind::Obstacle, payload) => self.early.push((Kind::Obstacle, payload)),
                (kind, _) => return Err(BadFrame::Unexpected(kind).into()),
            }
        }
    }

    /// Carries messages both ways over `link`, those that arrive being `from`'s, until either
    /// direction ends or the connection is given up. The link ends with it.
    pub(crate) async fn run(self, endpoint: &Arc<Endpoint>, from: NodeId, link: LinkId) -> Ended {
        let Connection { mut read, write, mut reader, early } = self;
        reader.limit = endpoint.transport.frame_bytes;
        let cuts = {
            let moment = endpoint.clock.moment();
            let mut core = endpoint.lock();
            let cuts = core.connected(link);
            for (kind, payload) in early {
                let frame = Frame { kind, payload: &payload };
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

async fn read_loop(
    endpoint: &Endpoint,
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
        let mut requests = Vec::new();
        let (handled, behind) = {
            let moment = endpoint.clock.moment();
            let mut core = endpoint.lock();
            core.links.counters.reads += u64::from(bytes > 0);
            core.links.counters.bytes_received += bytes as u64;
            if let Some(why) = core.links.given_up(link) {
                return Ended::Cut(why);
            }
            let handled = loop {
                match reader.next_frame() {
                    Ok(Some(frame)) => match core.on_frame(from, link, frame, moment) {
                        Ok(Handled::Done) => {}
                        Ok(Handled::StatusWanted(request)) => requests.push(request),
                        Err(bad) => break Err(bad),
                    },
                    Ok(None) => break Ok(()),
                    Err(bad) => break Err(bad),
                }
            };
            core.links.heard(link, reader.kept_bytes());
            core.settle(moment);
            (handled, core.links.is_behind(link, slow_waiting_bytes))
        };
        if let Err(bad) = handled {
            return Ended::Bad(bad);
        }
        if let Some(status) = (!requests.is_empty()).then(|| endpoint.status()).flatten() {
            let mut core = endpoint.lock();
            for request in requests {
                let reply = encode(&(request, &status));
                core.links.push_frame(link, Kind::StatusReply, &reply);
            }
        }
        if behind {
            std::future::poll_fn(|cx| {
                endpoint.lock().links.poll_drained(link, slow_waiting_bytes, cx)
            })
            .await;
        }
        bytes = match reader.fill(read).await {
            Ok(0) => return Ended::Closed,
            Ok(bytes) => bytes,
            Err(error) => return Ended::Lost(error),
        };
    }
}

/// A task that ends when the one that spawned it loses interest.
pub(crate) struct AbortOnDrop<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::SeedableRng;
    use serried_actor::Random;
    use tokio::net::TcpListener;

    use super::*;
    use crate::links::{End, LinkOptions};

    fn endpoint() -> Arc<Endpoint> {
        let random = Random::seed_from_u64(1);
        Arc::new(Endpoint::new(NodeId(0), TransportOptions::default(), random))
    }

    fn open(endpoint: &Endpoint) -> LinkId {
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
}

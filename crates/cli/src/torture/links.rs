//! Links between nodes that can be cut.
//!
//! Nodes connect to each other through this process, which forwards the bytes. While a link is cut, it forwards nothing and
//! closes no connection: as in a network, neither end notices. The bytes arrive when the link is mended, unless an end has
//! closed the connection by then. A client that learnt of a node from another node connects to it over the link between
//! the two.

use std::io;
use std::net::TcpListener;
use std::time::Instant;

use anyhow::Context;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::TICK;

/// How many bytes are carried at a time.
const CARRIED_BYTES: usize = 64 << 10;

pub(super) struct Links {
    /// Where each node listens.
    nodes: Vec<String>,
    links: Vec<Link>,
    /// It carries the bytes.
    _runtime: Runtime,
}

/// What a node reaches another one by.
struct Link {
    from: usize,
    to: usize,
    /// Where `from` finds `to`.
    address: String,
    is_cut: watch::Sender<bool>,
    /// When it is mended; none if it is whole.
    until: Option<Instant>,
}

impl Links {
    /// Links between nodes that listen at these addresses.
    pub(super) fn start(nodes: &[String]) -> anyhow::Result<Links> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build();
        let runtime = runtime.context("can't start what carries bytes between nodes")?;
        let pairs = (0..nodes.len()).flat_map(|from| (0..nodes.len()).map(move |to| (from, to)));
        let link = |(from, to): (usize, usize)| {
            let link = Link::start(from, to, &nodes[to], &runtime);
            link.with_context(|| format!("can't make a link from node {from} to node {to}"))
        };
        let links = pairs.filter(|(from, to)| from != to).map(link);
        let links = links.collect::<anyhow::Result<_>>()?;
        Ok(Links { nodes: nodes.to_vec(), links, _runtime: runtime })
    }

    /// Where a node finds all nodes, itself included.
    pub(super) fn of(&self, node: usize) -> Vec<String> {
        let mut peers = self.nodes.clone();
        for link in self.links.iter().filter(|link| link.from == node) {
            peers[link.to].clone_from(&link.address);
        }
        peers
    }

    /// Cuts a node off from one other or from all others, in both directions. If there are several sites, each with
    /// `of_site` nodes, it cuts a whole site off from the others just as often.
    pub(super) fn cut(&mut self, random: &mut Pcg64Mcg, of_site: usize, until: Instant) {
        let nodes = self.nodes.len();
        let node = random.random_range(0..nodes);
        let other = (node + random.random_range(1..nodes)) % nodes;
        let all = random.random_range(0..2) == 0;
        let whole_site = of_site < nodes && random.random_range(0..2) == 0;
        let is_of_site = |end: usize| end / of_site == node / of_site;
        for link in &mut self.links {
            let ends = [link.from, link.to];
            let is_cut = match whole_site {
                true => is_of_site(link.from) != is_of_site(link.to),
                false => ends.contains(&node) && (all || ends.contains(&other)),
            };
            if is_cut {
                link.until = link.until.max(Some(until));
                link.is_cut.send_replace(true);
            }
        }
    }

    /// Mends the links that were to be cut until now.
    pub(super) fn mend_until(&mut self, now: Instant) {
        let over = |link: &&mut Link| link.until.is_some_and(|until| until <= now);
        self.links.iter_mut().filter(over).for_each(Link::mend);
    }

    pub(super) fn mend_all(&mut self) {
        self.links.iter_mut().for_each(Link::mend);
    }
}

impl Link {
    fn start(from: usize, to: usize, listens_at: &str, runtime: &Runtime) -> io::Result<Link> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let (is_cut, cut) = watch::channel(false);
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let listens_at = listens_at.to_string();
        runtime.spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((near, _)) => {
                        drop(tokio::spawn(carry(near, listens_at.clone(), cut.clone())))
                    }
                    // There are too many open files for the moment.
                    Err(_) => tokio::time::sleep(TICK).await,
                }
            }
        });
        Ok(Link { from, to, address, is_cut, until: None })
    }

    fn mend(&mut self) {
        self.until = None;
        self.is_cut.send_replace(false);
    }
}

/// Connects to where a node listens, and carries bytes in both directions until one end is closed.
async fn carry(near: TcpStream, to: String, cut: watch::Receiver<bool>) -> io::Result<()> {
    whole(&cut).await?;
    let far = TcpStream::connect(to).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    tokio::select! {
        ended = carry_one_way(near_read, far_write, &cut) => ended,
        ended = carry_one_way(far_read, near_write, &cut) => ended,
    }
}

async fn carry_one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    cut: &watch::Receiver<bool>,
) -> io::Result<()> {
    let mut bytes = vec![0; CARRIED_BYTES];
    loop {
        let read = from.read(&mut bytes).await?;
        whole(cut).await?;
        match read {
            0 => return Ok(()),
            _ => to.write_all(&bytes[..read]).await?,
        }
    }
}

/// Waits until the link is whole.
async fn whole(cut: &watch::Receiver<bool>) -> io::Result<()> {
    let mended = cut.clone().wait_for(|cut| !cut).await.map(|_| ());
    mended.map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))
}

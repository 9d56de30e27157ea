//! Where nodes can listen, and how far they are.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::TICK;

/// Ports below those that the system gives to outgoing connections: one of theirs could be taken while
/// its node is down.
const PORTS: std::ops::Range<u16> = 10_000..32_000;
/// How long a node may take to answer about its health.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// Whether something listens at an address.
pub(super) fn listens(address: &str) -> bool {
    let address = address.parse::<SocketAddr>();
    address.is_ok_and(|address| TcpStream::connect_timeout(&address, TICK).is_ok())
}

/// Whether a node's `/healthz` says that it serves.
pub(super) fn serves(health: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(health)?;
        stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Addresses of loopback at which nothing listens.
pub(super) fn free_addresses(count: usize, random: &mut Pcg64Mcg) -> anyhow::Result<Vec<String>> {
    // Those of runs at the same time with the same seed differ too.
    let offset = std::process::id() as u16;
    let mut listeners = Vec::new();
    for _ in 0..1000 {
        let drawn = random.random_range(PORTS).wrapping_add(offset);
        let port = PORTS.start + drawn % (PORTS.end - PORTS.start);
        // All are held until all are found, so that they differ.
        listeners.extend(TcpListener::bind(("127.0.0.1", port)));
        if listeners.len() == count {
            let address = |listener: &TcpListener| Ok(listener.local_addr()?.to_string());
            return listeners.iter().map(address).collect();
        }
    }
    anyhow::bail!("there are no {count} free ports on 127.0.0.1")
}

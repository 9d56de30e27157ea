//! A node's operations endpoint: metrics and health over HTTP.

use std::convert::Infallible;
use std::iter;
use std::sync::{Arc, Mutex, MutexGuard};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serried_node::{NodeObserver, NotServed};
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinSet};

/// The content type that Prometheus expects.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";
/// A node's metrics before it runs.
const STARTS: &str = "# HELP serried_starting 1 while the node does not serve yet.\n# TYPE serried_starting gauge\n\
                      serried_starting 1\n";
/// More connections than these wait until others have ended.
const MOST_CONNECTIONS: usize = 128;
/// How long a connection may last.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(60);
/// How long to wait after the operating system refused a connection.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Whether a node runs yet. The node and its operations endpoint share it.
#[derive(Clone)]
pub(crate) struct Progress(Arc<Mutex<Stage>>);

enum Stage {
    /// It does not serve yet, for this reason.
    Starts(String),
    Runs(NodeObserver),
}

impl Progress {
    /// A node that opens its data.
    pub(crate) fn begin() -> Progress {
        Progress(Arc::new(Mutex::new(Stage::Starts("the node opens its data".to_string()))))
    }

    /// It does not serve yet, for another reason.
    pub(crate) fn starts(&self, reason: impl Into<String>) {
        *self.stage() = Stage::Starts(reason.into());
    }

    /// It runs.
    pub(crate) fn runs(&self, node: NodeObserver) {
        *self.stage() = Stage::Runs(node);
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().expect("nobody panics with it")
    }

    fn metrics(&self) -> String {
        match &*self.stage() {
            Stage::Starts(_) => STARTS.to_string(),
            Stage::Runs(node) => node.metrics(),
        }
    }

    /// Whether the node serves, with a text that says more.
    fn health(&self) -> Result<String, String> {
        match &*self.stage() {
            Stage::Starts(reason) => Err(reason.clone()),
            Stage::Runs(node) => node.health().map(|()| healthy(&node.status().not_served)),
        }
    }
}

/// Answers `GET /metrics` and `GET /healthz` for as long as it is polled. A panic in a connection's task panics here.
pub(crate) async fn serve(listener: TcpListener, node: Progress) -> Infallible {
    let mut connections = JoinSet::new();
    // Since a connection was accepted last.
    let mut failures = 0u64;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => accepted,
            Some(ended) = connections.join_next() => {
                if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
                    std::panic::resume_unwind(panic);
                }
                continue;
            }
        };
        let stream = match accepted {
            Ok((stream, _)) => {
                failures = 0;
                stream
            }
            Err(error) => {
                failures += 1;
                // Logs the first, second, fourth and so on.
                if failures.is_power_of_two() {
                    tracing::warn!(%error, failures, "can't accept a connection for metrics");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let node = node.clone();
        let respond = move |request: Request<_>| {
            let response = answer(&request, &node);
            async move { Ok::<_, Infallible>(response) }
        };
        // It gives up on those that do not send a request within 30 s.
        let mut server = hyper::server::conn::http1::Builder::new();
        let connection = server
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service_fn(respond));
        connections.spawn(async move {
            if let Ok(Err(error)) = tokio::time::timeout(LONGEST, connection).await {
                tracing::debug!(%error, "a request for metrics failed");
            }
        });
    }
}

/// The answer of a node that serves, with a line for each keyspace that is not served because too few nodes have it. The
/// node is healthy all the same: to serve the keyspace, other nodes have to be started again, which may wait for this one.
fn healthy(not_served: &[NotServed]) -> String {
    let lines = not_served.iter().map(|refused| format!("{}\n", refused.reason));
    iter::once("ok\n".to_string()).chain(lines).collect()
}

fn answer<B>(request: &Request<B>, node: &Progress) -> Response<Full<Bytes>> {
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, METRICS_TYPE, node.metrics()),
        (&Method::GET, "/healthz") => match node.health() {
            Ok(text) => (StatusCode::OK, TEXT_TYPE, text),
            Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, TEXT_TYPE, format!("{reason}\n")),
        },
        (_, "/metrics" | "/healthz") => {
            (StatusCode::METHOD_NOT_ALLOWED, TEXT_TYPE, "GET is what there is\n".to_string())
        }
        _ => (StatusCode::NOT_FOUND, TEXT_TYPE, "there are /metrics and /healthz\n".to_string()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
    }
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    /// The answer to a request: its status and its text.
    async fn ask(path: &str, node: &Progress) -> (u16, String) {
        let request = Request::get(path).body(()).unwrap();
        let response = answer(&request, node);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_node_that_starts_says_what_it_waits_for() {
        let node = Progress::begin();
        let opens = (503, "the node opens its data\n".to_string());
        assert_eq!(ask("/healthz", &node).await, opens);
        node.starts("waits for room on the disk");
        let waits = (503, "waits for room on the disk\n".to_string());
        assert_eq!(ask("/healthz", &node).await, waits);
        let (status, text) = ask("/metrics", &node).await;
        assert!(status == 200 && text.ends_with("\nserried_starting 1\n"), "{text}");
    }

    #[test]
    fn a_healthy_node_names_the_keyspaces_that_it_refuses() {
        assert_eq!(healthy(&[]), "ok\n");
        let refused =
            NotServed { name: "new".to_string(), reason: "`new` is not served".to_string() };
        assert_eq!(healthy(&[refused]), "ok\n`new` is not served\n");
    }
}

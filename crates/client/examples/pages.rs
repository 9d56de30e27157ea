//! Pages of a social network: users post and comment, and everybody reads whole pages (004 §1).
//!
//! It shows
//! - `read_only`, which reads a post and the comment on it as of one moment. With single reads, a reader may find a
//!   comment and not the post that it answers;
//! - a session for each user, in which everything takes effect in the order in which the user does it;
//! - the token of a session, with which a user goes on at another front end;
//! - `WriteOutcome::omitted`: of concurrent writes of one key, only one need be stored.
//!
//! Run it with a cluster in this process, or with one that you have, with a keyspace `pages` that is `process-ordered`:
//!
//! ```sh
//! cargo run -p serried --example pages
//! cargo run -p serried --example pages -- serried://127.0.0.1:7400
//! ```

use std::error::Error;

use serried::{SessionToken, SnapshotError, SnapshotKeyspace, Value};
use tokio::task::JoinSet;

mod support;

const POSTS: u64 = 50;
const READERS: usize = 4;
const POST: &str = "example/alice/post";
const COMMENT: &str = "example/alice/comment";
const STATUS: &str = "example/status";

/// The number of a post, or of the post that a comment answers. 0 if there is none.
fn number(value: &Option<Value>) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let Some(value) = value else { return Ok(0) };
    Ok(std::str::from_utf8(value.as_bytes())?.parse()?)
}

/// Alice writes one post after the other. Her front ends are servers that know nothing of her but her cookie.
async fn post(front_ends: [SnapshotKeyspace; 2]) -> Result<(), SnapshotError> {
    let mut cookie: Option<String> = None;
    for number in 1..=POSTS {
        let front_end = &front_ends[number as usize % 2];
        let session = match &cookie {
            None => front_end.session(),
            Some(cookie) => front_end.resume(cookie.parse::<SessionToken>()?).await?,
        };
        session.write(POST, number.to_string()).await?;
        cookie = Some(session.token()?.to_string());
    }
    Ok(())
}

/// Bob comments on what he reads, until he has read the last post.
async fn comment(session: SnapshotKeyspace) -> Result<(), Box<dyn Error + Send + Sync>> {
    loop {
        let post = number(&session.read(POST).await?)?;
        session.write(COMMENT, post.to_string()).await?;
        if post == POSTS {
            return Ok(());
        }
    }
}

/// A reader looks at the page until the last post has its comment. Returns how often.
async fn read(session: SnapshotKeyspace) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let (mut looks, mut seen) = (0, 0);
    loop {
        let page = session.read_only([POST, COMMENT]).await?;
        let (post, comment) = (number(&page[0])?, number(&page[1])?);
        looks += 1;
        if comment > post {
            return Err(format!("a comment on post {comment}, and the post is {post}").into());
        }
        if post < seen {
            return Err(format!("post {post} after post {seen}").into());
        }
        seen = post;
        if comment == POSTS {
            return Ok(looks);
        }
    }
}

/// What the example does.
pub(crate) async fn run(address: Option<String>) -> Result<(), Box<dyn Error>> {
    let (db, _cluster) = support::open(address, Default::default()).await?;
    let pages = db.snapshots("pages").await?;
    for key in [POST, COMMENT, STATUS] {
        pages.delete(key).await?;
    }
    let begun = pages.token()?;
    let front_ends = [db.snapshots("pages").await?, db.snapshots("pages").await?];
    let alice = tokio::spawn(post([
        front_ends[0].resume(begun).await?,
        front_ends[1].resume(begun).await?,
    ]));
    let bob = tokio::spawn(comment(pages.resume(begun).await?));
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        readers.spawn(read(pages.resume(begun).await?));
    }
    let mut looks = 0;
    for reader in readers.join_all().await {
        looks += reader.map_err(|error| error.to_string())?;
    }
    alice.await??;
    bob.await?.map_err(|error| error.to_string())?;
    println!("{READERS} readers looked {looks} times, and no comment came before its post");

    // Everybody sets one status at the same time.
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let session = pages.session();
        writers.spawn(async move { session.write(STATUS, format!("status {writer}")).await });
    }
    let mut omitted = 0;
    for written in writers.join_all().await {
        omitted += usize::from(written?.omitted);
    }
    println!("of 8 statuses that were set at the same time, {omitted} were not even stored");
    db.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(std::env::args().nth(1)).await
}

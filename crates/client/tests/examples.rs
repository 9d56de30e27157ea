//! Every example keeps its invariants, with a cluster in this process.

#![expect(clippy::duplicate_mod, reason = "each example has the same helper")]
#![expect(dead_code, reason = "nobody calls the examples' `main` here")]

use std::error::Error;

use serried_local::{KeyspaceConfiguration, LocalCluster, LocalOptions};

#[path = "../examples/bank.rs"]
mod bank;
#[path = "../examples/flags_and_counters.rs"]
mod flags_and_counters;
#[path = "../examples/pages.rs"]
mod pages;
#[path = "../examples/snapshot_reports.rs"]
mod snapshot_reports;
#[path = "../examples/ticket_shop.rs"]
mod ticket_shop;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bank_makes_and_loses_no_money() -> Result<(), Box<dyn Error>> {
    bank::run(None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ticket_shop_sells_each_ticket_once() -> Result<(), Box<dyn Error>> {
    ticket_shop::run(None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registers_count_every_update_once() -> Result<(), Box<dyn Error>> {
    flags_and_counters::run(None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_comment_comes_before_its_post() -> Result<(), Box<dyn Error>> {
    pages::run(None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_are_of_one_time() -> Result<(), Box<dyn Error>> {
    snapshot_reports::run(None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_runs_already_is_used_again_and_again() -> Result<(), Box<dyn Error>> {
    let keyspaces = [("accounts", "morty"), ("flags", "gryff"), ("pages", "port")]
        .map(|(name, protocol)| KeyspaceConfiguration::new(name, protocol));
    let cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default())?;
    for _ in 0..2 {
        bank::run(Some(cluster.url())).await?;
        ticket_shop::run(Some(cluster.url())).await?;
        flags_and_counters::run(Some(cluster.url())).await?;
        snapshot_reports::run(Some(cluster.url())).await?;
        pages::run(Some(cluster.url())).await?;
    }
    Ok(())
}

//! The Stock-Level transaction (clause 2.8).

use serried_session::{Abort, Transaction};

use super::Tpcc;
use super::key::RowKey;
use super::request::StockLevel;
use super::row::{District, Order, OrderLine, Stock, decode};

/// How many orders it looks back.
const ORDERS: u32 = 20;

/// Counts the items of a district's last orders of which less than the threshold is in stock. Reads the
/// district, its orders, their lines and the stock, one after the other.
pub(super) async fn run(
    tpcc: &Tpcc,
    tx: &Transaction,
    request: &StockLevel,
) -> Result<usize, Abort> {
    let StockLevel { warehouse: w, district: d, threshold } = *request;
    let row = RowKey::district(w, d);
    let next = decode::<District>(row, &tpcc.read(tx, &[row]).await?[0])?.next_order;
    let numbers = next.saturating_sub(ORDERS).max(1)..next;
    let rows: Vec<RowKey> = numbers.clone().map(|number| RowKey::order(w, d, number)).collect();
    let values = tpcc.read(tx, &rows).await?;
    let mut lines = Vec::new();
    for (number, (row, value)) in numbers.zip(rows.iter().zip(&values)) {
        let order: Order = decode(*row, value)?;
        lines.extend((1..=order.lines).map(|line| RowKey::order_line(w, d, number, line)));
    }
    let values = tpcc.read(tx, &lines).await?;
    let mut stocks = Vec::with_capacity(lines.len());
    for (row, value) in lines.iter().zip(&values) {
        stocks.push(RowKey::stock(w, decode::<OrderLine>(*row, value)?.item));
    }
    stocks.sort_unstable();
    stocks.dedup();
    let values = tpcc.read(tx, &stocks).await?;
    let mut low = 0;
    for (row, value) in stocks.iter().zip(&values) {
        low += usize::from(decode::<Stock>(*row, value)?.quantity < threshold);
    }
    Ok(low)
}

//! The New-Order transaction (clause 2.4).

use serried_model::Value;
use serried_session::{Abort, Transaction};

use super::Tpcc;
use super::draw::ORIGINAL;
use super::key::RowKey;
use super::request::NewOrder;
use super::row::{
    Customer, District, Item, OUTSTANDING, Order, OrderLine, Stock, Warehouse, decode, encode,
};
use crate::RolledBack;

/// The output of the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ordered {
    /// The order's number in its district.
    pub(super) order: u32,
    /// The total, including discount and taxes.
    pub(super) total: i64,
    /// How many of its lines are originals.
    pub(super) brands: usize,
}

/// All its reads are known before it begins, so it reads in one round trip.
pub(super) async fn run(
    tpcc: &Tpcc,
    tx: &Transaction,
    request: &NewOrder,
) -> Result<Ordered, Abort> {
    let NewOrder { warehouse: w, district: d, customer: c, ref lines, date } = *request;
    let [warehouse, district, customer] =
        [RowKey::warehouse(w), RowKey::district(w, d), RowKey::customer(w, d, c)];
    let items = lines.iter().map(|line| RowKey::item(line.item));
    let stocks = lines.iter().map(|line| RowKey::stock(line.supplier, line.item));
    let rows: Vec<RowKey> =
        [warehouse, district, customer].into_iter().chain(items).chain(stocks).collect();
    // The district and the stocks are written afterwards.
    let reads = tx.get_many(rows.iter().copied()).for_update(1..2).for_update(3 + lines.len()..);
    let values = tpcc.found(&rows, reads).await?;
    let (item_values, stock_values) = values[3..].split_at(lines.len());
    if item_values.iter().any(Option::is_none) {
        return Err(RolledBack("an item of the order does not exist").into());
    }
    let district_row: District = decode(district, &values[1])?;
    let order = district_row.next_order;
    tx.put(district, encode(&District { next_order: order + 1, ..district_row }));
    tx.put(
        RowKey::order(w, d, order),
        encode(&Order {
            customer: c,
            entered: date,
            carrier: None,
            lines: lines.len() as u8,
            all_local: lines.iter().all(|line| line.supplier == w),
        }),
    );
    tx.put(RowKey::new_order(w, d, order), OUTSTANDING);
    tx.put(RowKey::latest_order(w, d, c), encode(&order));

    let (mut sum, mut brands) = (0, 0);
    let mut taken: Vec<Option<Value>> = Vec::with_capacity(lines.len());
    for (i, line) in lines.iter().enumerate() {
        let row = rows[3 + lines.len() + i];
        let item: Item = decode(rows[3 + i], &item_values[i])?;
        // An item may be ordered twice.
        let before = rows[3 + lines.len()..][..i].iter().rposition(|earlier| *earlier == row);
        let value = before.map_or(&stock_values[i], |earlier| &taken[earlier]);
        let stock: Stock = decode(row, value)?;
        let amount = i64::from(line.quantity) * item.price;
        sum += amount;
        brands += usize::from(item.data.contains(ORIGINAL) && stock.data.contains(ORIGINAL));
        let line_row = encode(&OrderLine {
            item: line.item,
            supplier: line.supplier,
            delivered: None,
            quantity: line.quantity,
            amount,
            info: stock.districts[usize::from(d) - 1],
        });
        tx.put(RowKey::order_line(w, d, order, i as u8 + 1), line_row);
        let quantity = i32::from(line.quantity);
        let refill = if stock.quantity >= quantity + 10 { 0 } else { 91 };
        let value = encode(&Stock {
            quantity: stock.quantity - quantity + refill,
            year_to_date: stock.year_to_date + u32::from(line.quantity),
            orders: stock.orders + 1,
            remote_orders: stock.remote_orders + u32::from(line.supplier != w),
            ..stock
        });
        tx.put(row, &value);
        taken.push(Some(value));
    }
    let tax = decode::<Warehouse>(warehouse, &values[0])?.tax + district_row.tax;
    let discount = decode::<Customer>(customer, &values[2])?.discount;
    let total = sum * (10_000 - i64::from(discount)) * (10_000 + i64::from(tax)) / 100_000_000;
    Ok(Ordered { order, total, brands })
}

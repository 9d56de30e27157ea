//! The calls that load the initial database.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_procedures::Datum;

use crate::procedures::{PlannedCall, numbers};
use crate::tpcc::Scale;
use crate::tpcc::draw::{self, mix, text};
use crate::tpcc::initial::{Initial, PAID};
use crate::tpcc::key::RowKey;

use super::places::Places;

/// How many rows one call loads, at most.
const ROWS: u32 = 100;
/// How many names, each with its customers.
const NAMES: u32 = 50;
/// How many orders with their lines, of which each has at most 15.
const ORDERS: u32 = 10;

/// What one call loads: so many rows from this one on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Share {
    Items(u32, u32),
    Stock(u16, u32, u32),
    District(u16, u8),
    Customers(u16, u8, u32, u32),
    Names(u16, u8, u32, u32),
    Orders(u16, u8, u32, u32),
    OpenOrders(u16, u8, u32, u32),
    Lines(u16, u8, u32, u32),
}

/// All shares.
pub(super) fn shares(warehouses: u16, places: Places, scale: Scale) -> Vec<Share> {
    let Scale { items, districts, customers, .. } = scale;
    // The first and the last of each share of the numbers from `first` to `last`.
    let split = |first: u32, last: u32, most: u32| {
        (first..=last).step_by(most as usize).map(move |at| (at, last.min(at + most - 1)))
    };
    let mut shares: Vec<Share> =
        split(1, items, ROWS).map(|(first, last)| Share::Items(first, last)).collect();
    for w in 1..=warehouses {
        if places.has_stock(w) {
            shares.extend(split(1, items, ROWS).map(|(first, last)| Share::Stock(w, first, last)));
        }
        for d in 1..=districts {
            shares.push(Share::District(w, d));
            let of = split(1, customers, ROWS);
            shares.extend(of.map(|(first, last)| Share::Customers(w, d, first, last)));
            let of = split(0, scale.names() - 1, NAMES);
            shares.extend(of.map(|(first, last)| Share::Names(w, d, first, last)));
            let of = split(1, customers, ROWS);
            shares.extend(of.map(|(first, last)| Share::Orders(w, d, first, last)));
            let of = split(scale.delivered() + 1, customers, ROWS);
            shares.extend(of.map(|(first, last)| Share::OpenOrders(w, d, first, last)));
            let of = split(1, customers, ORDERS);
            shares.extend(of.map(|(first, last)| Share::Lines(w, d, first, last)));
        }
    }
    shares
}

/// The tax of a warehouse, or of a district.
pub(super) fn tax(warehouse: u16, district: u8) -> i64 {
    (mix(u64::from(warehouse) << 8 | u64::from(district)) % 2001) as i64
}

/// How much of an item a warehouse has at first.
pub(super) fn quantity(warehouse: u16, item: u32) -> i64 {
    10 + (mix(u64::from(warehouse) << 32 | u64::from(item)) % 91) as i64
}

/// The amounts of the lines of an order that is there at first: 0 if it has been delivered.
pub(super) fn amounts(initial: &Initial, warehouse: u16, district: u8, order: u32) -> Vec<i64> {
    let row = RowKey::order(warehouse, district, order);
    let mut random = Pcg64Mcg::seed_from_u64(row.0);
    let is_delivered = order <= initial.scale.delivered();
    let amount = |_| if is_delivered { 0 } else { random.random_range(1..=999_999) };
    (0..initial.lines(order)).map(amount).collect()
}

impl Share {
    /// The call. It may be repeated: it writes what it has written.
    pub(super) fn call(self, initial: &Initial, places: Places) -> PlannedCall {
        let int = |number: i64| Datum::Int(number);
        let place = |w: u16, d: u8| places.district(w, d).map(int);
        let with = |place: &[Datum], more: Datum| -> Vec<Datum> {
            place.iter().cloned().chain([more]).collect()
        };
        let word = |seed: u64, length| text(&mut Pcg64Mcg::seed_from_u64(seed), length, length);
        match self {
            Share::Items(first, last) => {
                let items = (first..=last).map(|item| {
                    let seed = mix(item.into());
                    let (name, price) = (word(seed, 14), 100 + (seed % 9901) as i64);
                    Datum::record([int(item.into()), Datum::from(name.as_str()), int(price)])
                });
                PlannedCall::new("load_items", [Datum::list(items)])
            }
            Share::Stock(w, first, last) => {
                let items = (first..=last).map(|item| {
                    let info = word(mix(item.into()) ^ u64::from(w), 24);
                    let quantity = int(quantity(w, item));
                    Datum::record([int(item.into()), quantity, Datum::from(info.as_str())])
                });
                PlannedCall::new("load_stock", with(&[int(w.into())], Datum::list(items)))
            }
            Share::District(w, d) => {
                let name = word(mix(u64::from(w) << 8 | u64::from(d)), 8);
                let warehouse_name = word(mix(places.supplier(w).into()), 8);
                let customers = i64::from(initial.scale.customers);
                let numbers = [
                    tax(w, d),
                    tax(places.supplier(w), 0),
                    customers * PAID,
                    customers + 1,
                    i64::from(initial.scale.delivered()) + 1,
                ];
                let names = [name, warehouse_name].map(|name| Datum::from(name.as_str()));
                let inputs = place(w, d).into_iter().chain(names).chain(numbers.map(int));
                PlannedCall::new("load_district", inputs.collect::<Vec<Datum>>())
            }
            Share::Customers(w, d, first, last) => {
                let customers = (first..=last).map(|customer| {
                    let row = RowKey::customer(w, d, customer);
                    let district = Initial::name_of_district(row);
                    let name = draw::last_name(initial.last_name(district, customer));
                    let bits = mix(row.0);
                    let credit = if bits.is_multiple_of(10) { "BC" } else { "GC" };
                    Datum::record([
                        int(customer.into()),
                        Datum::from(Initial::first_name(w, d, customer).as_str()),
                        Datum::from(name.as_str()),
                        Datum::from(credit),
                        int((bits >> 8) as i64 % 5001),
                        int(initial.order_of(row, customer).into()),
                    ])
                });
                let [w, d] = place(w, d);
                let customers = Datum::list(customers);
                PlannedCall::new("load_customers", [w, d, int(PAID), customers])
            }
            Share::Names(w, d, first, last) => {
                let district = Initial::name_of_district(RowKey::district(w, d));
                let names = (first..=last).map(|name| {
                    let customers = 1..=initial.scale.customers;
                    let namesakes =
                        customers.filter(|customer| initial.last_name(district, *customer) == name);
                    let mut namesakes: Vec<u32> = namesakes.collect();
                    namesakes.sort_by_cached_key(|customer| Initial::first_name(w, d, *customer));
                    let namesakes = numbers(namesakes.into_iter().map(u64::from));
                    Datum::record([Datum::from(draw::last_name(name).as_str()), namesakes])
                });
                PlannedCall::new("load_names", with(&place(w, d), Datum::list(names)))
            }
            Share::Orders(w, d, first, last) => {
                let orders = (first..=last).map(|order| {
                    let row = RowKey::order(w, d, order);
                    let delivered = order <= initial.scale.delivered();
                    let amounts = amounts(initial, w, d, order);
                    Datum::record(
                        [
                            order.into(),
                            initial.customer_of(row, order).into(),
                            if delivered { 1 + (mix(row.0) % 10) as i64 } else { 0 },
                            amounts.len() as i64,
                            amounts.iter().sum(),
                            // Time 0 is before all; an order that was not delivered has 0, too.
                            i64::from(delivered),
                        ]
                        .map(int),
                    )
                });
                PlannedCall::new("load_orders", with(&place(w, d), Datum::list(orders)))
            }
            Share::OpenOrders(w, d, first, last) => {
                let orders = numbers((first..=last).map(u64::from));
                PlannedCall::new("load_open_orders", with(&place(w, d), orders))
            }
            Share::Lines(w, d, first, last) => {
                let lines = (first..=last).flat_map(|order| {
                    let amounts = amounts(initial, w, d, order).into_iter().zip(0..);
                    let seed = mix(RowKey::order(w, d, order).0);
                    amounts.map(move |(amount, line)| {
                        let item = 1 + (mix(seed ^ line as u64) % 15) as i64;
                        Datum::record([order.into(), line, item, 5, amount].map(int))
                    })
                });
                PlannedCall::new("load_lines", with(&place(w, d), Datum::list(lines)))
            }
        }
    }
}

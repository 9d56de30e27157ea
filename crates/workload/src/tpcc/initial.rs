//! The initial database (clause 4.3.3): every row a function of its key.
//!
//! Two liberties are taken so that no row depends on others: how many lines an order has depends on its
//! number alone, not on its district, and dates are all the same.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_model::Value;

use super::Scale;
use super::draw::{self, digits, mix, text};
use super::key::{RowKey, Table};
use super::permutation::Permutation;
use super::row::{
    Customer, District, History, Item, OUTSTANDING, Order, OrderLine, Place, Stock, Warehouse,
    encode,
};

/// When everything happened that has happened before a run.
const DATE: u64 = 0;
/// What each customer has paid before a run, in cents.
const PAID: i64 = 1_000;

/// The database before a run.
#[derive(Debug)]
pub(super) struct Initial {
    warehouses: u16,
    scale: Scale,
    /// How many lines the orders before have, for each order of a district and for what follows.
    lines_before: Vec<u32>,
    customers: Permutation,
}

impl Initial {
    pub(super) fn new(warehouses: u16, scale: Scale) -> Initial {
        let mut lines_before = vec![0];
        for order in 1..=scale.customers {
            let lines = lines_before[order as usize - 1] + 5 + (mix(order.into()) % 11) as u32;
            lines_before.push(lines);
        }
        Initial { warehouses, scale, lines_before, customers: Permutation::new(scale.customers) }
    }

    /// How many lines an order of the initial database has.
    fn lines(&self, order: u32) -> u8 {
        (self.lines_before[order as usize] - self.lines_before[order as usize - 1]) as u8
    }

    /// The district as a number of its own.
    fn name_of_district(row: RowKey) -> u64 {
        u64::from(row.warehouse_number()) << 4 | u64::from(row.district_number())
    }

    /// Who ordered; each customer has, once.
    fn customer_of(&self, row: RowKey, order: u32) -> u32 {
        self.customers.apply(Self::name_of_district(row), order - 1) + 1
    }

    fn order_of(&self, row: RowKey, customer: u32) -> u32 {
        self.customers.invert(Self::name_of_district(row), customer - 1) + 1
    }

    /// The number of a customer's last name: the first customers have one each, in order.
    fn last_name(&self, district: u64, customer: u32) -> u32 {
        if customer <= self.scale.names() {
            return customer - 1;
        }
        let bits = mix(mix(district) ^ u64::from(customer));
        draw::loaded_name(bits, self.scale.names())
    }

    fn first_name(warehouse: u16, district: u8, customer: u32) -> String {
        let row = RowKey::customer(warehouse, district, customer);
        text(&mut Pcg64Mcg::seed_from_u64(!row.0), 8, 16)
    }

    /// The value of a row; `None` if it is not there to begin with.
    pub(super) fn value(&self, row: RowKey) -> Option<Value> {
        let Scale { items, customers, .. } = self.scale;
        let table = row.table()?;
        let (warehouse, district) = (row.warehouse_number(), row.district_number());
        let has_district = !matches!(table, Table::Warehouse | Table::Item | Table::Stock);
        let warehouses = if table == Table::Item { 0..=0 } else { 1..=self.warehouses };
        let districts = if has_district { 1..=self.scale.districts } else { 0..=0 };
        if !warehouses.contains(&warehouse) || !districts.contains(&district) {
            return None;
        }
        let number = u32::try_from(match table {
            Table::OrderLine => row.order_and_line().0,
            Table::History => row.customer_and_payment().0,
            _ => row.number(),
        });
        let number = number.ok()?;
        let numbers = match table {
            Table::Warehouse | Table::District | Table::OldestUndelivered => 0..=0,
            Table::Item | Table::Stock => 1..=items,
            Table::CustomersByName => 0..=self.scale.names() - 1,
            Table::NewOrder => self.scale.delivered() + 1..=customers,
            // As many orders as customers.
            _ => 1..=customers,
        };
        if !numbers.contains(&number) {
            return None;
        }
        let mut random = Pcg64Mcg::seed_from_u64(row.0);
        let random = &mut random;
        Some(match table {
            Table::Warehouse => self.warehouse(random),
            Table::District => self.district(random),
            Table::Customer => self.customer(row, number, random),
            Table::History if row.customer_and_payment().1 == 1 => Self::history(row, random),
            Table::History => return None,
            Table::NewOrder => Value::from(OUTSTANDING),
            Table::Order => self.order(row, number, random),
            Table::OrderLine if !(1..=self.lines(number)).contains(&row.order_and_line().1) => {
                return None;
            }
            Table::OrderLine => self.order_line(row, number, random),
            Table::Item => Self::item(random),
            Table::Stock => Self::stock(random),
            Table::CustomersByName => self.customers_by_name(row, number),
            Table::LatestOrder => encode(&self.order_of(row, number)),
            Table::OldestUndelivered => encode(&(self.scale.delivered() + 1)),
        })
    }

    fn warehouse(&self, random: &mut Pcg64Mcg) -> Value {
        let name = text(random, 6, 10);
        let place = Address::new(random);
        let customers = i64::from(self.scale.districts) * i64::from(self.scale.customers);
        encode(&Warehouse {
            year_to_date: customers * PAID,
            tax: random.random_range(0..=2000),
            name: &name,
            place: place.borrow(),
        })
    }

    fn district(&self, random: &mut Pcg64Mcg) -> Value {
        let name = text(random, 6, 10);
        let place = Address::new(random);
        encode(&District {
            next_order: self.scale.customers + 1,
            year_to_date: i64::from(self.scale.customers) * PAID,
            tax: random.random_range(0..=2000),
            name: &name,
            place: place.borrow(),
        })
    }

    fn customer(&self, row: RowKey, customer: u32, random: &mut Pcg64Mcg) -> Value {
        let first = Self::first_name(row.warehouse_number(), row.district_number(), customer);
        let last = draw::last_name(self.last_name(Self::name_of_district(row), customer));
        let place = Address::new(random);
        let (phone, data) = (digits(random, 16), text(random, 300, 500));
        encode(&Customer {
            balance: -PAID,
            paid: PAID,
            payments: 1,
            deliveries: 0,
            credit_limit: 5_000_000,
            discount: random.random_range(0..=5000),
            good_credit: random.random_range(0..10) != 0,
            since: DATE,
            first: &first,
            middle: "OE",
            last: &last,
            place: place.borrow(),
            phone: &phone,
            data: &data,
        })
    }

    fn history(row: RowKey, random: &mut Pcg64Mcg) -> Value {
        encode(&History {
            warehouse: row.warehouse_number(),
            district: row.district_number(),
            date: DATE,
            amount: PAID,
            data: &text(random, 12, 24),
        })
    }

    fn order(&self, row: RowKey, order: u32, random: &mut Pcg64Mcg) -> Value {
        let delivered = order <= self.scale.delivered();
        encode(&Order {
            customer: self.customer_of(row, order),
            entered: DATE,
            carrier: delivered.then(|| random.random_range(1..=10)),
            lines: self.lines(order),
            all_local: true,
        })
    }

    fn order_line(&self, row: RowKey, order: u32, random: &mut Pcg64Mcg) -> Value {
        let delivered = order <= self.scale.delivered();
        encode(&OrderLine {
            item: random.random_range(1..=self.scale.items),
            supplier: row.warehouse_number(),
            delivered: delivered.then_some(DATE),
            quantity: 5,
            amount: if delivered { 0 } else { random.random_range(1..=999_999) },
            info: &text(random, 24, 24),
        })
    }

    fn item(random: &mut Pcg64Mcg) -> Value {
        let (name, data) = (text(random, 14, 24), draw::description(random));
        let image = random.random_range(1..=10_000);
        encode(&Item { image, price: random.random_range(100..=10_000), name: &name, data: &data })
    }

    fn stock(random: &mut Pcg64Mcg) -> Value {
        let districts: [String; 10] = core::array::from_fn(|_| text(random, 24, 24));
        encode(&Stock {
            quantity: random.random_range(10..=100),
            year_to_date: 0,
            orders: 0,
            remote_orders: 0,
            districts: core::array::from_fn(|i| districts[i].as_str()),
            data: &draw::description(random),
        })
    }

    fn customers_by_name(&self, row: RowKey, name: u32) -> Value {
        let (warehouse, district) = (row.warehouse_number(), row.district_number());
        let place = Self::name_of_district(row);
        let others = self.scale.names() + 1..=self.scale.customers;
        let namesakes = others.filter(|customer| self.last_name(place, *customer) == name);
        let mut customers: Vec<u32> = core::iter::once(name + 1).chain(namesakes).collect();
        customers.sort_by_cached_key(|customer| Self::first_name(warehouse, district, *customer));
        encode(&customers)
    }

    /// How many rows a district has.
    fn rows_of_district(&self) -> u64 {
        self.tables_of_district().into_iter().map(|(_, rows)| rows).sum()
    }

    fn tables_of_district(&self) -> [(Table, u64); 9] {
        let customers = u64::from(self.scale.customers);
        [
            (Table::District, 1),
            (Table::OldestUndelivered, 1),
            (Table::CustomersByName, self.scale.names().into()),
            (Table::Customer, customers),
            (Table::LatestOrder, customers),
            (Table::History, customers),
            (Table::Order, customers),
            (Table::NewOrder, self.scale.undelivered.into()),
            (Table::OrderLine, self.lines_before[self.scale.customers as usize].into()),
        ]
    }

    /// The `i`-th row of all; `None` from the last on.
    pub(super) fn nth(&self, i: u64) -> Option<RowKey> {
        let items = u64::from(self.scale.items);
        let of_warehouse = 1 + items + u64::from(self.scale.districts) * self.rows_of_district();
        let Some(i) = i.checked_sub(items) else { return Some(RowKey::item(i as u32 + 1)) };
        let warehouse = u16::try_from(i / of_warehouse + 1).ok();
        let warehouse = warehouse.filter(|warehouse| *warehouse <= self.warehouses)?;
        let i = i % of_warehouse;
        if i < items {
            return Some(RowKey::stock(warehouse, i as u32 + 1));
        }
        let Some(i) = (i - items).checked_sub(1) else { return Some(RowKey::warehouse(warehouse)) };
        let district = (i / self.rows_of_district()) as u8 + 1;
        let mut i = i % self.rows_of_district();
        for (table, rows) in self.tables_of_district() {
            if i < rows {
                return Some(self.nth_of_district(table, warehouse, district, i as u32));
            }
            i -= rows;
        }
        unreachable!("a district has no more rows than its tables")
    }

    fn nth_of_district(&self, table: Table, warehouse: u16, district: u8, i: u32) -> RowKey {
        match table {
            Table::District => RowKey::district(warehouse, district),
            Table::OldestUndelivered => RowKey::oldest_undelivered(warehouse, district),
            Table::CustomersByName => RowKey::customers_by_name(warehouse, district, i),
            Table::Customer => RowKey::customer(warehouse, district, i + 1),
            Table::LatestOrder => RowKey::latest_order(warehouse, district, i + 1),
            Table::History => RowKey::history(warehouse, district, i + 1, 1),
            Table::Order => RowKey::order(warehouse, district, i + 1),
            Table::NewOrder => {
                RowKey::new_order(warehouse, district, self.scale.delivered() + i + 1)
            }
            Table::OrderLine => {
                let order = self.lines_before.partition_point(|lines| *lines <= i);
                let line = i - self.lines_before[order - 1] + 1;
                RowKey::order_line(warehouse, district, order as u32, line as u8)
            }
            Table::Warehouse | Table::Item | Table::Stock => {
                unreachable!("{table:?} has no districts")
            }
        }
    }
}

/// A [`Place`] of its own.
struct Address([String; 5]);

impl Address {
    fn new(random: &mut Pcg64Mcg) -> Address {
        let [street_1, street_2, city] = core::array::from_fn(|_| text(random, 10, 20));
        let zip = digits(random, 4) + "11111";
        Address([street_1, street_2, city, text(random, 2, 2), zip])
    }

    fn borrow(&self) -> Place<'_> {
        let [street_1, street_2, city, state, zip] = &self.0;
        Place { street_1, street_2, city, state, zip }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::row::{Customers, decode};
    use std::collections::BTreeMap;

    fn all(initial: &Initial) -> impl Iterator<Item = RowKey> + '_ {
        (0..).map_while(|i| initial.nth(i))
    }

    #[test]
    fn what_is_listed_is_what_is_there_at_small_scale() {
        let initial = Initial::new(3, Scale::SMALL);
        let mut listed = BTreeMap::new();
        for row in all(&initial) {
            assert!(initial.value(row).is_some(), "{row} is listed, and not there");
            assert_eq!(listed.insert(row, ()), None, "{row} is listed twice");
        }
        // Every key anywhere near a listed one.
        let mut there = 0;
        for table in 0..14u64 {
            for warehouse in 0..6u64 {
                for district in 0..5u64 {
                    for number in 0..300u64 {
                        for number in [number, number << 28, number << 28 | 1, number << 28 | 2] {
                            let row =
                                RowKey(table << 60 | warehouse << 44 | district << 40 | number);
                            if initial.value(row).is_some() {
                                assert!(listed.contains_key(&row), "{row} is not listed");
                                there += usize::from(number > 0 || row.number() == 0);
                            }
                        }
                    }
                }
            }
        }
        assert!(there >= listed.len());
    }

    #[test]
    fn what_is_listed_is_what_is_there_at_full_scale() {
        let initial = Initial::new(100, Scale::FULL);
        let rows = 100_000 + 100 * (1 + 100_000 + 10 * initial.rows_of_district());
        assert_eq!(initial.nth(rows), None);
        assert_eq!(initial.nth(rows - 1).unwrap().warehouse_number(), 100);
        assert!((53_000_000..55_000_000).contains(&rows), "{rows}");
        let mut counts = BTreeMap::new();
        for i in (0..rows).step_by(9973) {
            let row = initial.nth(i).unwrap();
            assert!(initial.value(row).is_some(), "{row}");
            *counts.entry(row.table()).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 9, "single rows of a district are rare: {counts:?}");
        assert_eq!(initial.value(RowKey::item(100_001)), None);
        assert_eq!(initial.value(RowKey::order(100, 10, 3001)), None);
        assert_eq!(initial.value(RowKey::new_order(100, 10, 2100)), None);
        assert_eq!(initial.value(RowKey::warehouse(101)), None);
    }

    #[test]
    fn every_customer_is_found_by_its_last_name_in_the_order_of_first_names() {
        let initial = Initial::new(1, Scale { items: 15, ..Scale::FULL });
        let mut found = 0;
        for name in 0..1000 {
            let row = RowKey::customers_by_name(1, 2, name);
            let value = initial.value(row);
            let customers: Customers = decode(row, &value).unwrap();
            let mut before = String::new();
            for number in customers {
                let row = RowKey::customer(1, 2, number);
                let value = initial.value(row);
                let customer: Customer = decode(row, &value).unwrap();
                assert_eq!(customer.last, draw::last_name(name));
                assert!(*customer.first >= *before);
                before = customer.first.to_string();
                found += 1;
            }
        }
        assert_eq!(found, 3000);
    }

    #[test]
    fn every_customer_has_the_order_that_has_that_customer() {
        let initial = Initial::new(2, Scale::SMALL);
        for customer in 1..=Scale::SMALL.customers {
            let row = RowKey::latest_order(2, 1, customer);
            let order: u32 = decode(row, &initial.value(row)).unwrap();
            let row = RowKey::order(2, 1, order);
            let value = initial.value(row);
            assert_eq!(decode::<Order>(row, &value).unwrap().customer, customer);
        }
    }

    #[test]
    fn one_customer_in_ten_has_bad_credit() {
        let initial = Initial::new(1, Scale::FULL);
        let bad = (1..=3000).filter(|customer| {
            let row = RowKey::customer(1, 1, *customer);
            !decode::<Customer>(row, &initial.value(row)).unwrap().good_credit
        });
        let bad = bad.count();
        assert!((250..350).contains(&bad), "{bad}");
    }
}

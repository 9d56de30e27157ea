//! The initial database (clause 4.3.3): every row a function of its key.
//!
//! So that no row depends on others, it differs from the specification in two points: the number of lines of an order
//! depends only on its number, not on its district, and all dates are the same.

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

/// The date of everything before a run.
const DATE: u64 = 0;
/// What each customer has paid before a run, in cents.
pub(super) const PAID: i64 = 1_000;

/// The database before a run.
#[derive(Debug)]
pub(super) struct Initial {
    pub(super) warehouses: u16,
    pub(super) scale: Scale,
    /// The total number of lines of all earlier orders, for each order of a district and for the end.
    pub(super) lines_before: Vec<u32>,
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
    pub(super) fn lines(&self, order: u32) -> u8 {
        (self.lines_before[order as usize] - self.lines_before[order as usize - 1]) as u8
    }

    /// A unique number of the district.
    pub(super) fn name_of_district(row: RowKey) -> u64 {
        u64::from(row.warehouse_number()) << 4 | u64::from(row.district_number())
    }

    /// The customer of an order. Each customer has one order.
    pub(super) fn customer_of(&self, row: RowKey, order: u32) -> u32 {
        self.customers.apply(Self::name_of_district(row), order - 1) + 1
    }

    pub(super) fn order_of(&self, row: RowKey, customer: u32) -> u32 {
        self.customers.invert(Self::name_of_district(row), customer - 1) + 1
    }

    /// The number of a customer's last name: the first customers have one each, in order.
    pub(super) fn last_name(&self, district: u64, customer: u32) -> u32 {
        if customer <= self.scale.names() {
            return customer - 1;
        }
        let bits = mix(mix(district) ^ u64::from(customer));
        draw::loaded_name(bits, self.scale.names())
    }

    pub(super) fn first_name(warehouse: u16, district: u8, customer: u32) -> String {
        let row = RowKey::customer(warehouse, district, customer);
        text(&mut Pcg64Mcg::seed_from_u64(!row.0), 8, 16)
    }

    /// The value of a row, or `None` if it does not exist at first.
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

//! The requests of terminals (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1 and 2.8.1).

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::Scale;
use super::draw;

/// One transaction, with everything that is decided before it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A customer orders.
    NewOrder(NewOrder),
    /// A customer pays.
    Payment(Payment),
    /// A customer asks for the latest order.
    OrderStatus(OrderStatus),
    /// The oldest orders of all districts are delivered.
    Delivery(Delivery),
    /// How many items of a district's latest orders are running out?
    StockLevel(StockLevel),
}

/// A customer orders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOrder {
    pub(super) warehouse: u16,
    pub(super) district: u8,
    pub(super) customer: u32,
    /// The last one may be of an item that does not exist. Then the order is rolled back.
    pub(super) lines: Vec<OrderedItem>,
    pub(super) date: u64,
}

/// A line of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OrderedItem {
    pub(super) item: u32,
    pub(super) supplier: u16,
    pub(super) quantity: u8,
}

/// A customer pays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payment {
    pub(super) warehouse: u16,
    pub(super) district: u8,
    pub(super) customer: Customer,
    pub(super) amount: i64,
    pub(super) date: u64,
}

/// A customer asks for the latest order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderStatus {
    pub(super) customer: Customer,
}

/// The oldest orders of all districts are delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    pub(super) warehouse: u16,
    pub(super) carrier: u8,
    pub(super) date: u64,
}

/// How many items of a district's latest orders are running out?
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StockLevel {
    pub(super) warehouse: u16,
    pub(super) district: u8,
    pub(super) threshold: i32,
}

/// A customer, and how it is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Customer {
    pub(super) warehouse: u16,
    pub(super) district: u8,
    pub(super) by: By,
}

/// How a customer is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    Number(u32),
    /// The number of the last name.
    Name(u32),
}

impl Request {
    /// The transaction's name.
    pub fn kind(&self) -> &'static str {
        match self {
            Request::NewOrder(_) => "new-order",
            Request::Payment(_) => "payment",
            Request::OrderStatus(_) => "order-status",
            Request::Delivery(_) => "delivery",
            Request::StockLevel(_) => "stock-level",
        }
    }
}

/// A terminal: it belongs to one warehouse, and watches the stock of one district.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terminal {
    pub(super) warehouses: u16,
    pub(super) scale: Scale,
    pub(super) warehouse: u16,
    pub(super) district: u8,
}

impl Terminal {
    /// The terminal of `client`. Clients are spread evenly over the warehouses.
    pub(super) fn of(client: u64, warehouses: u16, scale: Scale) -> Terminal {
        let (row, column) = (client / u64::from(warehouses), client % u64::from(warehouses));
        let district = (row % u64::from(scale.districts)) as u8 + 1;
        Terminal { warehouses, scale, warehouse: column as u16 + 1, district }
    }

    /// The next request, in the mix of 000 Table 3; `date` is when it is made.
    pub(super) fn request(&self, date: u64, random: &mut Pcg64Mcg) -> Request {
        match random.random_range(0..100) {
            0..44 => Request::NewOrder(self.new_order(date, random)),
            44..88 => Request::Payment(self.payment(date, random)),
            88..92 => Request::Delivery(Delivery {
                warehouse: self.warehouse,
                carrier: random.random_range(1..=10),
                date,
            }),
            92..96 => {
                let district = self.any_district(random);
                let customer = self.customer(self.warehouse, district, random);
                Request::OrderStatus(OrderStatus { customer })
            }
            _ => Request::StockLevel(StockLevel {
                warehouse: self.warehouse,
                district: self.district,
                threshold: random.random_range(10..=20),
            }),
        }
    }

    /// One in a hundred asks for an item that there is not; one line in a hundred comes from another
    /// warehouse.
    fn new_order(&self, date: u64, random: &mut Pcg64Mcg) -> NewOrder {
        let count = random.random_range(5..=15);
        let mut line = || OrderedItem {
            item: draw::item(random, self.scale.items),
            supplier: match random.random_range(0..100) {
                0 => self.other_warehouse(random),
                _ => self.warehouse,
            },
            quantity: random.random_range(1..=10),
        };
        let mut lines: Vec<OrderedItem> = (0..count).map(|_| line()).collect();
        if random.random_range(0..100) == 0
            && let Some(last) = lines.last_mut()
        {
            last.item = self.scale.items + 1;
        }
        NewOrder {
            warehouse: self.warehouse,
            district: self.any_district(random),
            customer: draw::customer(random, self.scale.customers),
            lines,
            date,
        }
    }

    /// 15 in a hundred are by customers of another warehouse.
    fn payment(&self, date: u64, random: &mut Pcg64Mcg) -> Payment {
        let district = self.any_district(random);
        let (home, home_district) = match random.random_range(0..100) {
            0..15 => (self.other_warehouse(random), self.any_district(random)),
            _ => (self.warehouse, district),
        };
        Payment {
            warehouse: self.warehouse,
            district,
            customer: self.customer(home, home_district, random),
            amount: random.random_range(100..=500_000),
            date,
        }
    }

    /// 60 in a hundred are looked up by their last name.
    fn customer(&self, warehouse: u16, district: u8, random: &mut Pcg64Mcg) -> Customer {
        let by = match random.random_range(0..100) {
            0..60 => By::Name(draw::name(random, self.scale.names())),
            _ => By::Number(draw::customer(random, self.scale.customers)),
        };
        Customer { warehouse, district, by }
    }

    fn any_district(&self, random: &mut Pcg64Mcg) -> u8 {
        random.random_range(1..=self.scale.districts)
    }

    /// Any warehouse but this one, if there is one.
    fn other_warehouse(&self, random: &mut Pcg64Mcg) -> u16 {
        if self.warehouses == 1 {
            return self.warehouse;
        }
        let other = random.random_range(1..self.warehouses);
        other + u16::from(other >= self.warehouse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::BTreeMap;

    fn requests(count: usize) -> (Terminal, Vec<Request>) {
        let terminal = Terminal::of(7, 5, Scale::FULL);
        let mut random = Pcg64Mcg::seed_from_u64(1);
        (terminal, (0..count).map(|_| terminal.request(0, &mut random)).collect())
    }

    fn assert_percent(what: &str, part: usize, whole: usize, percent: f64) {
        let found = part as f64 * 100.0 / whole as f64;
        let spread = 0.15 * percent + 0.05;
        assert!((found - percent).abs() < spread, "{what}: {found} % instead of {percent} %");
    }

    #[test]
    fn the_mix_is_that_of_table_3() {
        let (_, requests) = requests(50_000);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for request in &requests {
            *counts.entry(request.kind()).or_default() += 1;
        }
        let shares = [("new-order", 44.0), ("payment", 44.0)];
        let shares = shares.into_iter().chain([("delivery", 4.0), ("order-status", 4.0)]);
        for (kind, percent) in shares.chain([("stock-level", 4.0)]) {
            assert_percent(kind, counts[kind], requests.len(), percent);
        }
    }

    #[test]
    fn one_order_in_a_hundred_is_bad_and_one_line_in_a_hundred_comes_from_elsewhere() {
        let (terminal, requests) = requests(50_000);
        let (mut orders, mut bad, mut lines, mut remote) = (0, 0, 0, 0);
        for request in &requests {
            let Request::NewOrder(order) = request else { continue };
            assert_eq!(order.warehouse, terminal.warehouse);
            assert!((5..=15).contains(&order.lines.len()));
            orders += 1;
            bad += usize::from(order.lines.iter().any(|line| line.item > Scale::FULL.items));
            lines += order.lines.len();
            remote += order.lines.iter().filter(|line| line.supplier != order.warehouse).count();
        }
        assert_percent("bad orders", bad, orders, 1.0);
        assert_percent("remote lines", remote, lines, 1.0);
    }

    #[test]
    fn fifteen_payments_in_a_hundred_are_by_strangers_and_sixty_by_last_name() {
        let (terminal, requests) = requests(50_000);
        let payments = requests.iter().filter_map(|request| match request {
            Request::Payment(payment) => Some(payment),
            _ => None,
        });
        let payments: Vec<&Payment> = payments.collect();
        let remote = payments.iter().filter(|payment| {
            let home = payment.customer.warehouse;
            home != terminal.warehouse || payment.customer.district != payment.district
        });
        assert_percent("strangers", remote.count(), payments.len(), 15.0);
        let by_name = payments.iter().filter(|p| matches!(p.customer.by, By::Name(_))).count();
        assert_percent("by name", by_name, payments.len(), 60.0);
    }

    #[test]
    fn clients_are_spread_evenly_over_warehouses_and_then_districts() {
        let place = |client| {
            let terminal = Terminal::of(client, 3, Scale::SMALL);
            (terminal.warehouse, terminal.district)
        };
        let places: Vec<_> = (0..7).map(place).collect();
        assert_eq!(places, [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2), (1, 1)]);
    }
}

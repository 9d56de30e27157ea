//! The keys of rows.

use serried_model::Key;

/// The tables of the specification (clause 1.3), and the rows that replace scans of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Table {
    Warehouse = 1,
    District,
    Customer,
    History,
    NewOrder,
    Order,
    OrderLine,
    Item,
    Stock,
    /// A secondary index: the customers of a district with one last name, ordered by first name.
    CustomersByName,
    /// A secondary index: the latest order of a customer.
    LatestOrder,
    /// The oldest order of a district that has not been delivered.
    OldestUndelivered,
}

const TABLES: [Table; 12] = [
    Table::Warehouse,
    Table::District,
    Table::Customer,
    Table::History,
    Table::NewOrder,
    Table::Order,
    Table::OrderLine,
    Table::Item,
    Table::Stock,
    Table::CustomersByName,
    Table::LatestOrder,
    Table::OldestUndelivered,
];

/// The most lines that an order can have, plus one.
const LINE_BITS: u32 = 4;
/// The number of bits for the payments of a customer, below the bits of the customer.
const PAYMENT_BITS: u32 = 28;
const NUMBER_BITS: u32 = 40;
const DISTRICT_BITS: u32 = 4;
const WAREHOUSE_BITS: u32 = 16;

/// A row's primary key: from the highest bits on its table (4), warehouse (16), district (4) and number
/// within it (40), which in turn is one number or two. As a key it is these 8 bytes, big-endian, so
/// that rows of one table, warehouse and district lie together and in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct RowKey(pub(super) u64);

impl RowKey {
    fn new(table: Table, warehouse: u16, district: u8, number: u64) -> RowKey {
        debug_assert!(u32::from(district) < 1 << DISTRICT_BITS && number < 1 << NUMBER_BITS);
        let bits = (table as u64) << WAREHOUSE_BITS | u64::from(warehouse);
        let bits = bits << DISTRICT_BITS | u64::from(district);
        RowKey(bits << NUMBER_BITS | number)
    }

    pub(super) fn warehouse(warehouse: u16) -> RowKey {
        RowKey::new(Table::Warehouse, warehouse, 0, 0)
    }

    pub(super) fn district(warehouse: u16, district: u8) -> RowKey {
        RowKey::new(Table::District, warehouse, district, 0)
    }

    pub(super) fn customer(warehouse: u16, district: u8, customer: u32) -> RowKey {
        RowKey::new(Table::Customer, warehouse, district, customer.into())
    }

    /// The specification's HISTORY has no key. A customer's payments are counted in its own row, so
    /// that their number is one that costs nothing.
    pub(super) fn history(warehouse: u16, district: u8, customer: u32, payment: u32) -> RowKey {
        let number = u64::from(customer) << PAYMENT_BITS | u64::from(payment);
        RowKey::new(Table::History, warehouse, district, number)
    }

    pub(super) fn new_order(warehouse: u16, district: u8, order: u32) -> RowKey {
        RowKey::new(Table::NewOrder, warehouse, district, order.into())
    }

    pub(super) fn order(warehouse: u16, district: u8, order: u32) -> RowKey {
        RowKey::new(Table::Order, warehouse, district, order.into())
    }

    pub(super) fn order_line(warehouse: u16, district: u8, order: u32, line: u8) -> RowKey {
        let number = u64::from(order) << LINE_BITS | u64::from(line);
        RowKey::new(Table::OrderLine, warehouse, district, number)
    }

    pub(super) fn item(item: u32) -> RowKey {
        RowKey::new(Table::Item, 0, 0, item.into())
    }

    pub(super) fn stock(warehouse: u16, item: u32) -> RowKey {
        RowKey::new(Table::Stock, warehouse, 0, item.into())
    }

    pub(super) fn customers_by_name(warehouse: u16, district: u8, name: u32) -> RowKey {
        RowKey::new(Table::CustomersByName, warehouse, district, name.into())
    }

    pub(super) fn latest_order(warehouse: u16, district: u8, customer: u32) -> RowKey {
        RowKey::new(Table::LatestOrder, warehouse, district, customer.into())
    }

    pub(super) fn oldest_undelivered(warehouse: u16, district: u8) -> RowKey {
        RowKey::new(Table::OldestUndelivered, warehouse, district, 0)
    }

    /// The row with this key, if it is a key of a row. The row need not exist.
    pub(super) fn of(key: &Key) -> Option<RowKey> {
        let row = RowKey(u64::from_be_bytes(key.as_bytes().try_into().ok()?));
        row.table().is_some().then_some(row)
    }

    pub(super) fn table(self) -> Option<Table> {
        let place = self.0 >> (WAREHOUSE_BITS + DISTRICT_BITS + NUMBER_BITS);
        TABLES.get((place as usize).checked_sub(1)?).copied()
    }

    pub(super) fn warehouse_number(self) -> u16 {
        (self.0 >> (DISTRICT_BITS + NUMBER_BITS)) as u16
    }

    pub(super) fn district_number(self) -> u8 {
        (self.0 >> NUMBER_BITS) as u8 & 0xf
    }

    /// The number within the district.
    pub(super) fn number(self) -> u64 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }

    /// The order and the line of an order line.
    pub(super) fn order_and_line(self) -> (u64, u8) {
        (self.number() >> LINE_BITS, (self.0 & ((1 << LINE_BITS) - 1)) as u8)
    }

    /// The customer and the payment of a history row.
    pub(super) fn customer_and_payment(self) -> (u64, u64) {
        (self.number() >> PAYMENT_BITS, self.0 & ((1 << PAYMENT_BITS) - 1))
    }
}

impl From<RowKey> for Key {
    fn from(row: RowKey) -> Key {
        Key::from(row.0.to_be_bytes())
    }
}

/// The row in words.
impl core::fmt::Display for RowKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (warehouse, district) = (self.warehouse_number(), self.district_number());
        let Some(table) = self.table() else { return write!(f, "row {:#018x}", self.0) };
        write!(f, "{table:?}")?;
        match table {
            Table::Item => write!(f, " {}", self.number()),
            Table::Warehouse => write!(f, " {warehouse}"),
            Table::Stock => write!(f, " {warehouse}/{}", self.number()),
            Table::District | Table::OldestUndelivered => write!(f, " {warehouse}/{district}"),
            Table::OrderLine => {
                let (order, line) = self.order_and_line();
                write!(f, " {warehouse}/{district}/{order}/{line}")
            }
            Table::History => {
                let (customer, payment) = self.customer_and_payment();
                write!(f, " {warehouse}/{district}/{customer}/{payment}")
            }
            _ => write!(f, " {warehouse}/{district}/{}", self.number()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_key_of_its_own_that_tells_which_it_is() {
        let rows = [
            (RowKey::warehouse(65535), "Warehouse 65535"),
            (RowKey::district(1, 10), "District 1/10"),
            (RowKey::customer(1, 10, 3000), "Customer 1/10/3000"),
            (RowKey::history(1, 10, 3000, 7), "History 1/10/3000/7"),
            (RowKey::new_order(1, 10, u32::MAX), "NewOrder 1/10/4294967295"),
            (RowKey::order(1, 10, u32::MAX), "Order 1/10/4294967295"),
            (RowKey::order_line(1, 10, u32::MAX, 15), "OrderLine 1/10/4294967295/15"),
            (RowKey::item(100_000), "Item 100000"),
            (RowKey::stock(65535, 100_000), "Stock 65535/100000"),
            (RowKey::customers_by_name(1, 10, 999), "CustomersByName 1/10/999"),
            (RowKey::latest_order(1, 10, 3000), "LatestOrder 1/10/3000"),
            (RowKey::oldest_undelivered(1, 10), "OldestUndelivered 1/10"),
        ];
        for (place, (row, text)) in rows.iter().enumerate() {
            assert_eq!(row.to_string(), *text);
            assert_eq!(RowKey::of(&Key::from(*row)), Some(*row));
            assert_eq!(row.table(), Some(TABLES[place]));
            assert!(rows[..place].iter().all(|(other, _)| other < row));
        }
    }

    #[test]
    fn what_is_no_row_of_a_table_is_told_from_one() {
        for key in [&b""[..], b"\0bench", &[0; 8], &[0x10; 9], &[0xd0, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(RowKey::of(&Key::from(key)).map(|row| row.to_string()), None, "{key:?}");
        }
    }
}

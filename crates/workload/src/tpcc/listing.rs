//! The rows of the initial database, one by one.

use super::initial::Initial;
use super::key::{RowKey, Table};

impl Initial {
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

#[cfg(test)]
mod tests {
    use super::super::Scale;
    use super::*;
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
}

//! Where districts and stocks are.

use crate::WorkloadError;
use crate::tpcc::Scale;

/// How many districts a warehouse has in the specification.
const DISTRICTS: u8 = Scale::FULL.districts;

/// Where the districts of the specification's warehouses are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Places {
    /// Each in its own warehouse.
    OfWarehouses,
    /// All in one warehouse, which has all stock (002 §5.4). What would be the second warehouse's first district is the
    /// eleventh, and so on. A terminal stays with its ten districts, and delivers these.
    OfOne,
}

impl Places {
    /// The warehouse and the number of a district, as the rows have them.
    pub(super) fn district(self, warehouse: u16, district: u8) -> [i64; 2] {
        match self {
            Places::OfWarehouses => [warehouse.into(), district.into()],
            Places::OfOne => {
                [1, i64::from(warehouse - 1) * i64::from(DISTRICTS) + i64::from(district)]
            }
        }
    }

    /// The district at this place.
    pub(super) fn at(self, [warehouse, district]: [i64; 2]) -> (u16, u8) {
        match self {
            Places::OfWarehouses => (warehouse as u16, district as u8),
            Places::OfOne => {
                let before = district - 1;
                let ten = i64::from(DISTRICTS);
                ((before / ten) as u16 + 1, (before % ten) as u8 + 1)
            }
        }
    }

    /// The warehouse whose stock supplies in place of this one.
    pub(super) fn supplier(self, warehouse: u16) -> u16 {
        match self {
            Places::OfWarehouses => warehouse,
            Places::OfOne => 1,
        }
    }

    /// Whether this warehouse has a stock and a row of its own.
    pub(super) fn has_stock(self, warehouse: u16) -> bool {
        self.supplier(warehouse) == warehouse
    }
}

/// How many of the specification's warehouses give one warehouse this many districts, and how many districts each has.
pub(super) fn split(districts: u64) -> Result<(u16, u8), WorkloadError> {
    let ten = u64::from(DISTRICTS);
    if (1..ten).contains(&districts) {
        return Ok((1, districts as u8));
    }
    let tens = u16::try_from(districts / ten).ok().filter(|tens| *tens > 0);
    tens.filter(|_| districts.is_multiple_of(ten)).map(|tens| (tens, DISTRICTS)).ok_or_else(|| {
        let most = ten * u64::from(u16::MAX);
        let reason = format!(
            "{districts} districts, choose from 1 to {ten}, or a multiple of {ten} up to {most}"
        );
        WorkloadError::Scale(reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn districts_of_one_warehouse_are_numbered_through() {
        let places = Places::OfOne;
        assert_eq!(places.district(1, 1), [1, 1]);
        assert_eq!(places.district(1, 10), [1, 10]);
        assert_eq!(places.district(2, 1), [1, 11]);
        for (warehouse, district) in [(1, 1), (1, 10), (2, 1), (100, 10)] {
            for places in [Places::OfOne, Places::OfWarehouses] {
                let place = places.district(warehouse, district);
                assert_eq!(places.at(place), (warehouse, district));
            }
        }
        assert!(places.has_stock(1) && !places.has_stock(2));
    }

    #[test]
    fn a_warehouse_has_up_to_ten_districts_or_tens_of_them() {
        assert_eq!(split(3).unwrap(), (1, 3));
        assert_eq!(split(80).unwrap(), (8, 10));
        for wrong in [0, 11, 10 << 16] {
            assert!(split(wrong).unwrap_err().to_string().contains("districts, choose"), "{wrong}");
        }
    }
}

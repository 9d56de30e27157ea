//! Command lines that ask for what can't be, and the numbers that options take.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The command line asks for what can't be. The exit code is that of every wrong command line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misuse(pub(crate) String);

/// Returns a [`Misuse`] with this text unless the condition holds.
macro_rules! demand {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err($crate::misuse::Misuse(format!($($text)+)).into());
        }
    };
}

/// The most clients of one run.
pub(crate) const MOST_CLIENTS: usize = 100_000;
/// The most keys, accounts or counters.
pub(crate) const MOST_KEYS: u64 = 1 << 32;
/// The largest exponent of a Zipf distribution. With this one, 999 of 1000 draws are the first key.
pub(crate) const MOST_THETA: f64 = 10.0;
/// The longest time in seconds: eleven days.
pub(crate) const MOST_SECONDS: f64 = 1e6;
/// The least deadline in seconds. Without time, a client would try for ever and never get anything done.
pub(crate) const LEAST_DEADLINE: f64 = 1e-3;

/// Reads a number of this range.
pub(crate) fn number<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + std::fmt::Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let read = text.parse::<T>().ok().filter(|number| range.contains(number));
        read.ok_or_else(|| format!("choose from {} to {}", range.start(), range.end()))
    }
}

/// Reads a share that is not everything.
pub(crate) fn partial_share(text: &str) -> Result<f64, String> {
    let read = text.parse::<f64>().ok().filter(|share| (0.0..1.0).contains(share));
    read.ok_or_else(|| "choose a share: 0 or more, below 1".to_string())
}

/// Reads a time above 0 and up to `most_s` seconds, as `300ms` or `2s`.
pub(crate) fn time(most_s: f64) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| {
        let wrong = || format!("write 300ms or 2s: above 0, and at most {most_s} s");
        let (number, unit_s) = match text.strip_suffix("ms") {
            Some(number) => (number, 1e-3),
            None => (text.strip_suffix('s').ok_or_else(wrong)?, 1.0),
        };
        let seconds = number.parse::<f64>().map_err(|_| wrong())? * unit_s;
        match seconds > 0.0 && seconds <= most_s {
            true => Ok(Duration::from_secs_f64(seconds)),
            false => Err(wrong()),
        }
    }
}

/// Reads a time to measure, in seconds.
pub(crate) fn seconds_above_0(text: &str) -> Result<f64, String> {
    let read = text.parse::<f64>().ok();
    let read = read.filter(|seconds| *seconds > 0.0 && *seconds <= MOST_SECONDS);
    read.ok_or_else(|| format!("choose above 0, and at most {MOST_SECONDS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_or_out_of_range_is_answered_with_the_range() {
        let read = number(0.0..=5.0);
        assert_eq!((read("0"), read("5")), (Ok(0.0), Ok(5.0)));
        for wrong in ["nan", "inf", "-1", "1e300", "5.1", "five", ""] {
            assert_eq!(read(wrong), Err("choose from 0 to 5".to_string()), "{wrong}");
            assert!(seconds_above_0(wrong).is_err() || wrong == "5.1", "{wrong}");
            assert!(partial_share(wrong).is_err(), "{wrong}");
        }
        assert!(seconds_above_0("0").is_err() && partial_share("1").is_err());
        assert_eq!(number(1..=3_u64)("4"), Err("choose from 1 to 3".to_string()));
        let minute = time(60.0);
        assert_eq!(
            (minute("60s"), minute("5ms")),
            (Ok(Duration::from_secs(60)), Ok(Duration::from_millis(5)))
        );
        for wrong in ["61s", "0s", "5", "ms", "-1s", "nans"] {
            assert!(minute(wrong).is_err_and(|said| said.contains("at most 60 s")), "{wrong}");
        }
        assert!(number(1..=u64::MAX)("18446744073709551616").is_err());
    }
}

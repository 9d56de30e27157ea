//! Windows as text.

use std::fmt::Write;

use crate::{Advice, Diagnosis, Interval, KeyWindows, Limit, Mean, Remedy, Window};

/// The keys with the summary of their windows, what would help each, and the first `listed` windows of each. Times are
/// relative to `origin_ns`.
pub fn text(keys: &[KeyWindows], diagnoses: &[Diagnosis], origin_ns: u64, listed: usize) -> String {
    let mut text = String::new();
    for (number, key) in keys.iter().enumerate() {
        let _ = writeln!(
            text,
            "key {}: {:.0} writes per second, {:.0} of them after a read",
            key.key, key.writes_per_s, key.achieved_per_s
        );
        mean(&mut text, "serialization windows", key.serialization);
        mean(&mut text, "validity windows", key.validity);
        if let Some(until) = key.until_told_ms {
            let _ = writeln!(
                text,
                "  of a serialization window {until:.3} ms pass until the next writer is told what it reads"
            );
        }
        if let Some(diagnosis) = diagnoses.get(number) {
            advise(&mut text, diagnosis);
        }
        if listed > 0 && !key.windows.is_empty() {
            let _ = writeln!(
                text,
                "  {:<34} {:<20} {:>26} {:>26}",
                "transaction", "kind", "serialization, ms", "validity, ms"
            );
        }
        for window in key.windows.iter().take(listed) {
            line(&mut text, window, origin_ns);
        }
        if key.windows.len() > listed && listed > 0 {
            let _ = writeln!(text, "  and {} more", key.windows.len() - listed);
        }
        text.push('\n');
    }
    text
}

fn advise(text: &mut String, diagnosis: &Diagnosis) {
    let busy = diagnosis.utilisation * 100.0;
    let _ = match (diagnosis.hot, diagnosis.advice.is_empty()) {
        (false, _) => writeln!(text, "  not hot: its transactions need {busy:.0} % of the time"),
        (true, true) => {
            writeln!(
                text,
                "  hot: windows fill {busy:.0} % of the time; what would help can't be estimated"
            )
        }
        (true, false) => writeln!(
            text,
            "  hot: windows fill {busy:.0} % of the time. If clients stay as many, all transactions together become faster by"
        ),
    };
    for Advice { remedy, factor, expected_per_s, limit } in &diagnosis.advice {
        let what = match remedy {
            Remedy::Modify => {
                "`tx.modify` in place of a read and a write, here and at keys like it, \
                               if the program does not look at what it reads"
                    .to_string()
            }
            Remedy::GetForUpdate => "`tx.get_for_update` in place of `tx.get`".to_string(),
            Remedy::Protocol { protocol, for_update: false } => format!("protocol `{protocol}`"),
            Remedy::Protocol { protocol, for_update: true } => {
                format!("protocol `{protocol}`, with `tx.get_for_update` in place of `tx.get`")
            }
            Remedy::Split { keys } => {
                format!("{keys} keys in place of this one, of which a transaction changes one")
            }
        };
        let limit = match limit {
            Limit::Clients => "clients, which wait for their own transactions",
            Limit::Keys => "windows",
            Limit::Processors => "processors",
        };
        let _ = writeln!(
            text,
            "    {factor:.1} times: {what} ({expected_per_s:.0} per second, then limited by {limit})"
        );
    }
}

fn mean(text: &mut String, what: &str, mean: Option<Mean>) {
    let _ = match mean {
        None => writeln!(text, "  {what}: none that began in the time recorded"),
        Some(Mean { windows, mean_ms, bound_per_s, achieved_per_s }) => writeln!(
            text,
            "  {what}: {windows}, mean {mean_ms:.3} ms: at most {bound_per_s:.0} per second, of which {:.0} % are achieved",
            achieved_per_s / bound_per_s * 100.0
        ),
    };
}

fn line(text: &mut String, window: &Window, origin_ns: u64) {
    let ms = |ns: u64| (ns as f64 - origin_ns as f64) / 1e6;
    let interval = |interval: Option<Interval>| match interval {
        None => "began before".to_string(),
        Some(interval) if interval.length_ns() == 0 => format!("at {:.2}", ms(interval.until_ns)),
        Some(interval) => {
            let length = interval.length_ns() as f64 / 1e6;
            format!("{:.2} .. {:.2} ({length:.2})", ms(interval.from_ns), ms(interval.until_ns))
        }
    };
    let _ = writeln!(
        text,
        "  {:<34} {:<20} {:>26} {:>26}",
        window.version.to_string(),
        window.kind,
        interval(window.serialization),
        interval(window.validity)
    );
}

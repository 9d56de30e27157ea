//! Windows as text.

use std::fmt::Write;

use crate::{Interval, KeyWindows, Mean, Window};

/// The keys with the summary of their windows, and the first `listed` windows of each. Times are relative to
/// `origin_ns`.
pub fn text(keys: &[KeyWindows], origin_ns: u64, listed: usize) -> String {
    let mut text = String::new();
    for key in keys {
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

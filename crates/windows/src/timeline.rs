//! Windows as an SVG timeline: two lanes for each key, in which windows follow each other.

use std::fmt::Write;
use std::ops::Range;

use serried_actor::Timestamp;

use crate::{Interval, KeyWindows, Window};

const WIDTH: f64 = 1100.0;
const LEFT: f64 = 16.0;
const RIGHT: f64 = 16.0;
const LANE: f64 = 22.0;
const KEY: f64 = 96.0;
const TOP: f64 = 30.0;

const STYLE: &str = "\
svg{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--faint:#d8dce2;--a:#0b5cad;--b:#6ea8dd;--c:#c2410c;--d:#ef9f72}\
@media(prefers-color-scheme:dark){svg{--ink:#e6e8eb;--paper:#15181c;--faint:#3a4048;--a:#6cb2ff;--b:#2f6aa6;--c:#ff9a5c;--d:#a8552a}}\
text{fill:var(--ink);font:12px system-ui,sans-serif}.key{font-weight:600}.paper{fill:var(--paper)}\
.grid{stroke:var(--faint)}.s0{fill:var(--a)}.s1{fill:var(--b)}.v0{fill:var(--c)}.v1{fill:var(--d)}\
.blind{stroke:var(--ink);stroke-width:1}";

/// Draws the windows of these keys within `period`. Neighbouring windows have different shades. A write without a read
/// is a line. The title of a window names its transaction. The SVG refers to no other files.
pub fn timeline(keys: &[KeyWindows], period: Range<Timestamp>) -> String {
    let height = TOP + KEY * keys.len() as f64 + 24.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"serialization and validity windows\">\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    );
    let scale = Scale { period };
    scale.grid(&mut svg, height);
    for (number, key) in keys.iter().enumerate() {
        let top = TOP + KEY * number as f64;
        let bound = key.serialization.map_or(String::new(), |mean| {
            format!(
                ", windows of {:.2} ms, at most {:.0} per second, achieved {:.0}",
                mean.mean_ms, mean.bound_per_s, mean.achieved_per_s
            )
        });
        let _ = writeln!(
            svg,
            "<text class=\"key\" x=\"{LEFT}\" y=\"{:.1}\">{}{bound}</text>",
            top + 16.0,
            escape(&key.key)
        );
        scale.lane(&mut svg, &key.windows, |window| window.serialization, ("s", top + 24.0));
        scale.lane(&mut svg, &key.windows, |window| window.validity, ("v", top + 28.0 + LANE));
    }
    svg.push_str("</svg>\n");
    svg
}

struct Scale {
    period: Range<Timestamp>,
}

impl Scale {
    fn length_ns(&self) -> f64 {
        (self.period.end.0.saturating_sub(self.period.start.0)).max(1) as f64
    }

    fn place(&self, ns: u64) -> f64 {
        let share = (ns as f64 - self.period.start.0 as f64) / self.length_ns();
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn grid(&self, svg: &mut String, height: f64) {
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"14\">milliseconds; upper lanes: serialization windows, lower lanes: validity windows</text>"
        );
        for tick in 0..=10u32 {
            let ns = self.length_ns() / 10.0 * f64::from(tick);
            let at = self.place(self.period.start.0 + ns as u64);
            let anchor = match tick {
                0 => "start",
                10 => "end",
                _ => "middle",
            };
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{:.1}</text>",
                height - 22.0,
                height - 8.0,
                ns / 1e6
            );
        }
    }

    fn lane(
        &self,
        svg: &mut String,
        windows: &[Window],
        which: fn(&Window) -> Option<Interval>,
        (class, top): (&str, f64),
    ) {
        let mut shade = 0;
        for window in windows {
            let Some(Interval { from_ns, until_ns }) = which(window) else { continue };
            if until_ns < self.period.start.0 || from_ns > self.period.end.0 {
                continue;
            }
            let (from, until) = (self.place(from_ns), self.place(until_ns));
            let title = format!(
                "{} {}: {:.3} ms",
                window.version,
                escape(&window.kind),
                (until_ns - from_ns) as f64 / 1e6
            );
            if window.reads {
                let _ = writeln!(
                    svg,
                    "<rect class=\"{class}{shade}\" x=\"{from:.2}\" y=\"{top:.1}\" width=\"{:.2}\" height=\"{LANE}\"><title>{title}</title></rect>",
                    (until - from).max(0.3)
                );
                shade = 1 - shade;
            } else {
                let _ = writeln!(
                    svg,
                    "<line class=\"blind\" x1=\"{until:.2}\" x2=\"{until:.2}\" y1=\"{top:.1}\" y2=\"{:.1}\"><title>{title}</title></line>",
                    top + LANE
                );
            }
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use serried_model::Version;

    use super::*;

    #[test]
    fn every_window_in_the_period_is_drawn_and_no_other() {
        let window = |from_ns, until_ns, reads| Window {
            version: Version::INITIAL,
            kind: "<transfer>".to_string(),
            reads,
            serialization: Some(Interval { from_ns, until_ns }),
            validity: None,
            told_ns: None,
        };
        let key = KeyWindows {
            key: "a&b".to_string(),
            read_only_per_s: 0.0,
            together: 1.0,
            closed: 1.0,
            latency_ms: None,
            writes_per_s: 3.0,
            achieved_per_s: 2.0,
            serialization: None,
            validity: None,
            until_told_ms: None,
            windows: vec![
                window(1, 5, true),
                window(5, 5, false),
                window(5, 9, true),
                window(90, 95, true),
            ],
        };
        let svg = timeline(&[key], Timestamp(0)..Timestamp(20));
        assert_eq!(svg.matches("<rect class=\"s").count(), 2);
        assert_eq!(svg.matches("class=\"blind\"").count(), 1);
        assert!(svg.contains("a&amp;b") && svg.contains("&lt;transfer&gt;"));
        let empty = timeline(&[], Timestamp(5)..Timestamp(5));
        assert!(empty.ends_with("</svg>\n") && !empty.contains("NaN"));
    }
}

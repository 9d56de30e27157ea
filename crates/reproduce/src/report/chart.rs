//! Line charts as SVG, without scripts or external files.

use std::fmt::Write;

use super::text::{number, thousands};

/// A chart of lines.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
}

/// An axis.
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) logarithmic: bool,
}

/// A line. Lines have different colours and marks.
pub(super) struct Line {
    pub(super) name: String,
    /// Its style: see the page's style sheet.
    pub(super) style: usize,
    pub(super) points: Vec<(f64, f64)>,
    /// The paper's numbers: marks at a place, or a line across the chart if only one of the two numbers is known.
    pub(super) stated: Vec<(Option<f64>, Option<f64>)>,
}

/// The number of styles for lines of systems. After that they repeat.
pub(super) const STYLES: usize = 5;
/// The style of lines that do not belong to a system.
pub(super) const OTHER_STYLE: usize = STYLES;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 50.0;

/// Maps numbers to places along an axis.
struct Scale {
    from: f64,
    to: f64,
    logarithmic: bool,
    begin: f64,
    end: f64,
}

impl Scale {
    fn new(axis: &Axis, numbers: impl Iterator<Item = f64>, begin: f64, end: f64) -> Scale {
        let logarithmic = axis.logarithmic;
        let numbers =
            numbers.filter(|number| number.is_finite() && (!logarithmic || *number > 0.0));
        let (least, most) =
            numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), n| (a.min(n), b.max(n)));
        let (from, to) = match (least <= most, logarithmic) {
            (false, true) => (1.0, 10.0),
            (false, false) => (0.0, 1.0),
            (true, true) => {
                let (from, to) = (least.log10().floor(), most.log10().ceil());
                (10f64.powf(from), 10f64.powf(to.max(from + 1.0)))
            }
            (true, false) => (0.0, if most > 0.0 { most * 1.05 } else { 1.0 }),
        };
        Scale { from, to, logarithmic, begin, end }
    }

    fn place(&self, number: f64) -> f64 {
        let share = match self.logarithmic {
            true => (number / self.from).log10() / (self.to / self.from).log10(),
            false => (number - self.from) / (self.to - self.from),
        };
        self.begin + share.clamp(0.0, 1.0) * (self.end - self.begin)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let (from, to) = (self.from.log10().round() as i32, self.to.log10().round() as i32);
            return (from..=to).map(|exponent| 10f64.powi(exponent)).collect();
        }
        let rough = (self.to - self.from) / 5.0;
        let magnitude = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
        let step = steps.iter().map(|step| step * magnitude).find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let count = ((self.to - self.from) / step).floor() as u32;
        (0..=count).map(|i| self.from + f64::from(i) * step).collect()
    }
}

impl Chart {
    /// The chart as an SVG element.
    pub(super) fn svg(&self) -> String {
        let stated = || self.lines.iter().flat_map(|line| &line.stated);
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let xs = points().map(|point| point.0).chain(stated().filter_map(|place| place.0));
        let ys = points().map(|point| point.1).chain(stated().filter_map(|place| place.1));
        let x = Scale::new(&self.x, xs, LEFT, WIDTH - RIGHT);
        let y = Scale::new(&self.y, ys, HEIGHT - BOTTOM, TOP);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\">\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"18\">{0}</text>\n",
            escape(&self.title)
        );
        self.grid(&mut svg, &x, &y);
        for line in &self.lines {
            line.draw(&mut svg, &x, &y);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn grid(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in x.ticks() {
            let at = x.place(tick);
            let text = tick_text(tick);
            put(
                svg,
                &format!(
                    "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\n\
                 <text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>\n",
                    bottom + 16.0
                ),
            );
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            let text = tick_text(tick);
            put(
                svg,
                &format!(
                    "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\n\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>\n",
                    LEFT - 6.0,
                    at + 4.0
                ),
            );
        }
        let (middle, height) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        put(
            svg,
            &format!(
                "<text class=\"label\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text class=\"label\" transform=\"translate(14 {height:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                HEIGHT - 12.0,
                escape(&self.x.label),
                escape(&self.y.label)
            ),
        );
    }
}

impl Line {
    fn draw(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let style = self.style;
        let places = self.points.iter().map(|(a, b)| (x.place(*a), y.place(*b)));
        let places: Vec<(f64, f64)> = places.collect();
        let path: Vec<String> = places.iter().map(|(a, b)| format!("{a:.1},{b:.1}")).collect();
        put(svg, &format!("<polyline class=\"s{style}\" points=\"{}\"/>\n", path.join(" ")));
        for ((a, b), (ours_x, ours_y)) in places.iter().zip(&self.points) {
            let title =
                format!("{}: {}, {}", escape(&self.name), tick_text(*ours_x), tick_text(*ours_y));
            put(svg, &mark(style, *a, *b, false, &title));
        }
        for stated in &self.stated {
            let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
            let name = escape(&self.name);
            match *stated {
                (Some(a), Some(b)) => {
                    let title = format!("{name} in the paper: {}, {}", tick_text(a), tick_text(b));
                    put(svg, &mark(style, x.place(a), y.place(b), true, &title));
                }
                (Some(a), None) => {
                    let (at, title) = (x.place(a), tick_text(a));
                    put(
                        svg,
                        &format!(
                            "<line class=\"s{style} stated\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"><title>{name} in the paper: {title}</title></line>\n"
                        ),
                    );
                }
                (None, Some(b)) => {
                    let (at, title) = (y.place(b), tick_text(b));
                    put(
                        svg,
                        &format!(
                            "<line class=\"s{style} stated\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"><title>{name} in the paper: {title}</title></line>\n"
                        ),
                    );
                }
                (None, None) => {}
            }
        }
    }
}

/// A mark whose shape depends on the style. The paper's numbers are hollow and larger.
pub(super) fn mark(style: usize, x: f64, y: f64, stated: bool, title: &str) -> String {
    let r = if stated { 7.0 } else { 3.5 };
    let class = if stated { format!("s{style} stated") } else { format!("s{style} mark") };
    let title = format!("<title>{title}</title>");
    match style % 4 {
        0 => format!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\">{title}</circle>\n"
        ),
        1 => {
            let (left, top, side) = (x - r, y - r, 2.0 * r);
            format!(
                "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{side}\" height=\"{side}\">{title}</rect>\n"
            )
        }
        shape => {
            let around: &[(f64, f64)] = match shape {
                2 => &[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
                _ => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
            };
            let corners = around.iter().map(|(a, b)| format!("{:.1},{:.1}", x + a * r, y + b * r));
            let corners = corners.collect::<Vec<_>>().join(" ");
            format!("<polygon class=\"{class}\" points=\"{corners}\">{title}</polygon>\n")
        }
    }
}

fn put(svg: &mut String, element: &str) {
    write!(svg, "{element}").expect("memory takes everything");
}

fn tick_text(number_: f64) -> String {
    if number_.abs() >= 1000.0 { thousands(Some(number_)) } else { number(Some(number_), 3) }
}

/// Escapes text for HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(logarithmic: bool, numbers: &[f64]) -> Scale {
        Scale::new(&Axis { label: String::new(), logarithmic }, numbers.iter().copied(), 0.0, 100.0)
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_has_round_ticks() {
        let scale = scale(false, &[3.0, 95.0]);
        assert_eq!(scale.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!((scale.place(0.0), scale.place(scale.to)), (0.0, 100.0));
    }

    #[test]
    fn a_logarithmic_axis_goes_from_power_to_power_of_ten() {
        let scale = scale(true, &[0.0, 30.0, 2000.0]);
        assert_eq!(scale.ticks(), [10.0, 100.0, 1000.0, 10_000.0]);
        assert!((scale.place(1000.0) - 200.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn an_empty_chart_can_be_drawn() {
        let axis = |logarithmic| Axis { label: "<x>".into(), logarithmic };
        let chart = Chart { title: "a & b".into(), x: axis(true), y: axis(false), lines: vec![] };
        let svg = chart.svg();
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;x&gt;") && !svg.contains("NaN"));
    }
}

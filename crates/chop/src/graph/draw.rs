//! The graph as a picture, as in Figs. 4 and 13 of 002.

use core::f64::consts::TAU;
use core::fmt::Write;

use super::siblings_and_conflicts::Graph;

/// The radius of a vertex, and the least distance of two on the circle of their instance. All lengths are in pixels.
const VERTEX: f64 = 13.0;
const DISTANCE: f64 = 74.0;
const MARGIN: f64 = 70.0;
const LEGEND: f64 = 46.0;

/// Draws the graph as SVG. Each instance of a procedure is a circle of vertices; the two instances of a procedure are side
/// by side. Grey vertices are immediate, white ones are deferred. Solid lines are S-edges, dotted ones C-edges.
pub fn draw(graph: &Graph<'_>) -> String {
    let layout = Layout::new(graph);
    let mut svg = String::new();
    let Layout { width, height, .. } = layout;
    // Writing into a string can't fail.
    let mut line = |text: String| svg.push_str(&(text + "\n"));
    line(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="sans-serif" font-size="12">"#
    ));
    line(r#"<rect width="100%" height="100%" fill="white"/>"#.to_owned());
    for at in 0..graph.vertices().len() {
        let (x, y) = layout.places[at];
        let edges = graph
            .siblings(at)
            .map(|to| (to, ""))
            .chain(graph.conflicting(at).map(|to| (to, r#" stroke-dasharray="2 4""#)));
        for (to, dots) in edges.filter(|(to, _)| *to > at) {
            let (to_x, to_y) = layout.places[to];
            let shade = if dots.is_empty() { "#bbb" } else { "#333" };
            line(format!(
                r#"<line x1="{x:.1}" y1="{y:.1}" x2="{to_x:.1}" y2="{to_y:.1}" stroke="{shade}"{dots}/>"#
            ));
        }
    }
    for (at, vertex) in graph.vertices().iter().enumerate() {
        let (x, y) = layout.places[at];
        let fill = if graph.is_immediate(at) { "#999" } else { "white" };
        let name = graph.name(at);
        let piece = name.split_once('.').map_or(name.as_str(), |(_, piece)| piece);
        line(format!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="{VERTEX}" fill="{fill}" stroke="black"><title>{name}</title></circle>"#
        ));
        line(format!(
            r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle">{piece}</text>"#,
            y + VERTEX + 13.0
        ));
        let first = at == 0 || !graph.are_siblings(at, at - 1);
        if first {
            let (x, y) = layout.centres[layout.instances[at]];
            let procedure = &graph.set.procedures[vertex.procedure].name;
            let title = format!("{procedure}, instance {}", vertex.instance + 1);
            line(format!(
                r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle" font-weight="bold">{title}</text>"#
            ));
        }
    }
    let mut legend =
        String::from("grey: immediate; white: deferrable; solid: S-edge; dotted: C-edge");
    if graph.vertices().is_empty() {
        let _ = write!(legend, "; no procedure writes");
    }
    line(format!(
        r#"<text x="{:.1}" y="{:.1}" text-anchor="middle" fill="gray">{legend}</text>"#,
        width / 2.0,
        height - 16.0
    ));
    line("</svg>".to_owned());
    svg
}

/// Where everything is.
struct Layout {
    /// The place of each vertex.
    places: Vec<(f64, f64)>,
    /// The instance of each vertex.
    instances: Vec<usize>,
    /// The centre of each instance's circle.
    centres: Vec<(f64, f64)>,
    width: f64,
    height: f64,
}

impl Layout {
    fn new(graph: &Graph<'_>) -> Layout {
        let mut sizes: Vec<usize> = Vec::new();
        let mut instances = Vec::new();
        for at in 0..graph.vertices().len() {
            if at == 0 || !graph.are_siblings(at, at - 1) {
                sizes.push(0);
            }
            let instance = sizes.len() - 1;
            sizes[instance] += 1;
            instances.push(instance);
        }
        let radius = |size: usize| (size as f64 * DISTANCE / TAU).max(DISTANCE);
        let widest = sizes.iter().map(|size| radius(*size)).fold(DISTANCE, f64::max);
        let width = 4.0 * (widest + MARGIN);
        let (mut centres, mut top) = (Vec::new(), 0.0);
        // The two instances of a procedure follow each other and have the same size.
        for pair in sizes.chunks(2) {
            let middle = top + MARGIN + radius(pair[0]);
            centres.extend([(width * 0.25, middle), (width * 0.75, middle)]);
            top = middle + radius(pair[0]) + MARGIN;
        }
        let mut met = vec![0; sizes.len()];
        let place = |instance: &usize| {
            let (x, y) = centres[*instance];
            let size = sizes[*instance];
            let turn = TAU * (met[*instance] as f64 + 0.5) / size as f64 - TAU / 4.0;
            met[*instance] += 1;
            (x + radius(size) * turn.cos(), y + radius(size) * turn.sin())
        };
        let places = instances.iter().map(place).collect();
        Layout { places, instances, centres, width, height: top + LEGEND }
    }
}

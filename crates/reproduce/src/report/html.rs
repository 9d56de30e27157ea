//! Findings as a self-contained page: without scripts, fonts or network.

use std::fmt::Write;

use super::chart::{escape, mark};
use super::page::Page;
use super::text::{Table, is_text};
use crate::Findings;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--faint:#d8dce2;\
--s0:#0b5cad;--s1:#c2410c;--s2:#15803d;--s3:#7e22ce;--s4:#a16207;--s5:#be123c}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--paper:#15181c;--faint:#3a4048;\
--s0:#6cb2ff;--s1:#ff9a5c;--s2:#5fd38a;--s3:#cf9bff;--s4:#e3c04d;--s5:#ff8aa0}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);\
max-width:1200px;margin:2em auto;padding:0 1em}\
.charts{display:flex;flex-wrap:wrap;gap:1em}.charts svg{flex:1 1 460px;max-width:620px}\
table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}\
.wide{overflow-x:auto}td,th{padding:.15em .6em;text-align:right;border-bottom:1px solid var(--faint)}\
td.text,th.text{text-align:left}\
svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg text.title{font-weight:600;font-size:14px}\
svg .grid{stroke:var(--faint)}svg polyline{fill:none;stroke-width:2}\
svg .stated{fill:none;stroke-width:1.5;stroke-dasharray:5 3}\
.legend svg{width:20px;height:16px;vertical-align:middle}.legend span{margin-right:1.5em}";

/// The page.
pub fn html(findings: &Findings) -> String {
    let Page { title, summary, set_up, legend, charts, sections, remarks, sources } =
        Page::new(findings);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n<style>{STYLE}{1}</style></head>\n\
         <body><h1>{0}</h1>\n<p>{2}.</p>\n<p>{3}</p>\n",
        escape(&title),
        line_styles(),
        escape(summary),
        escape(&set_up),
    );
    page.push_str("<p class=\"legend\">");
    for (style, name) in legend {
        let shape = mark(style, 10.0, 8.0, false, "");
        let name = escape(&name);
        let _ = write!(page, "<span><svg viewBox=\"0 0 20 16\">{shape}</svg> {name}</span>");
    }
    page.push_str("<span>Hollow or dashed: the paper's numbers</span></p>\n");
    page.push_str("<div class=\"charts\">\n");
    for chart in charts {
        page.push_str(&chart.svg());
    }
    page.push_str("</div>\n");
    for section in sections {
        let _ = writeln!(page, "<h2>{}</h2>", escape(section.heading));
        rows(&mut page, &section.table);
        if let Some(note) = section.note {
            let _ = writeln!(page, "<p>{}.</p>", escape(note));
        }
    }
    page.push_str("<h2>What to know</h2>\n<ul>\n");
    for remark in remarks {
        let _ = writeln!(page, "<li>{}.</li>", escape(&remark));
    }
    page.push_str("</ul>\n<h2>Where the paper says so</h2>\n<ul>\n");
    for source in sources {
        let _ = writeln!(page, "<li>{}</li>", escape(&source));
    }
    page.push_str("</ul>\n</body></html>\n");
    page
}

fn line_styles() -> String {
    (0..6).fold(String::new(), |mut styles, style| {
        let _ = write!(
            styles,
            "svg .s{style}{{stroke:var(--s{style})}}svg .s{style}.mark{{fill:var(--s{style})}}"
        );
        styles
    })
}

fn rows(page: &mut String, table: &Table) {
    let class = |column: usize| {
        if is_text(&table.header[column]) { " class=\"text\"" } else { "" }
    };
    page.push_str("<div class=\"wide\"><table><tr>");
    for (column, cell) in table.header.iter().enumerate() {
        let _ = write!(page, "<th{}>{}</th>", class(column), escape(cell));
    }
    page.push_str("</tr>\n");
    for row in &table.rows {
        page.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(page, "<td{}>{}</td>", class(column), escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

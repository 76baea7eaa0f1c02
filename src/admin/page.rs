//! The page at `/`: whether clients are served, and what else there is to ask. No script, no style, no outside
//! request; it inherits the reader's own colours and font size.

use std::fmt::Write;

use super::Readiness;

/// Path, what it shows.
const PATHS: [(&str, &str); 10] = [
    ("/metrics", "everything that is counted, for Prometheus"),
    ("/livez", "the process answers"),
    ("/readyz", "clients can be served, or why not"),
    (
        "/api/v1/topics",
        "topics, their limits in force and where these come from, the last sizes; ?topic=",
    ),
    (
        "/api/v1/refusals",
        "the last 1,000 refusals with their full text; ?topic=, ?gate=, ?limit=",
    ),
    (
        "/api/v1/families",
        "main topics with their retry and dead-letter topics, and whether their limits fit",
    ),
    (
        "/api/v1/clients",
        "connected clients by software and version",
    ),
    (
        "/api/v1/lingering",
        "producers whose large records wait for linger.ms although nothing can join them",
    ),
    (
        "/api/v1/fetch",
        "batches larger than consumers asked for, and consumers stuck at a large batch",
    ),
    (
        "/api/v1/config",
        "the configuration in force, secrets hidden",
    ),
];

pub(super) fn index(readiness: &Readiness) -> String {
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>sizegate</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n</head>\n<body>\n<main>\n",
    );
    let mut add = |html: std::fmt::Arguments<'_>| {
        let written = page.write_fmt(html);
        debug_assert!(written.is_ok(), "a String takes all that is written");
    };
    add(format_args!(
        "<h1>sizegate {}</h1>\n",
        env!("CARGO_PKG_VERSION")
    ));
    if readiness.is_ready() {
        add(format_args!("<p>Ready: clients are served.</p>\n"));
    } else {
        add(format_args!("<p>Not ready:</p>\n<ul>\n"));
        for why in &readiness.why_not {
            add(format_args!("<li>{}</li>\n", escaped(why)));
        }
        add(format_args!("</ul>\n"));
    }
    add(format_args!("<h2>What there is</h2>\n<dl>\n"));
    for (path, shows) in PATHS {
        add(format_args!(
            "<dt><a href=\"{path}\">{path}</a></dt>\n<dd>{shows}</dd>\n"
        ));
    }
    add(format_args!("</dl>\n</main>\n</body>\n</html>\n"));
    page
}

/// Text that a browser shows and never runs, in elements and in quoted attributes.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_page_is_told_is_shown_and_never_run() {
        let why = "<script>alert('x')</script>\"&amp;".to_owned();
        let page = index(&Readiness { why_not: vec![why] });
        assert!(
            page.contains(
                "<li>&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;amp;</li>"
            ),
            "{page}"
        );
        assert!(!page.contains("<script"));
    }

    #[test]
    fn the_page_says_whether_clients_are_served() {
        assert!(index(&Readiness::default()).contains("Ready: clients are served."));
        let page = index(&Readiness {
            why_not: vec!["no broker was reached".into()],
        });
        assert!(page.contains("Not ready:") && page.contains("<li>no broker was reached</li>"));
    }
}

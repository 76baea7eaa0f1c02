//! The page at `/`, for a person on call: its frame, and the files it is made of. Everything it shows it asks of
//! `/api/v1/…` itself.
//!
//! Invariants: nothing is loaded from elsewhere; the browser is told to run nothing but these files ([`POLICY`]), so
//! that no name a topic, a client or a configuration bears could ever run; the files contain no word of a peer's.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::Readiness;

/// Scripts, styles and pictures from here only, none within the page; and no text ever becomes markup in a script
/// (trusted types).
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

const FRAME: &str = include_str!("page/page.html");
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Name, media type, content.
const FILES: [(&str, &str, &str); 22] = [
    ("ask.js", SCRIPT, include_str!("page/ask.js")),
    ("bars.js", SCRIPT, include_str!("page/bars.js")),
    ("chart.js", SCRIPT, include_str!("page/chart.js")),
    ("claims.js", SCRIPT, include_str!("page/claims.js")),
    ("clients.js", SCRIPT, include_str!("page/clients.js")),
    ("consumers.js", SCRIPT, include_str!("page/consumers.js")),
    ("copy.js", SCRIPT, include_str!("page/copy.js")),
    ("dom.js", SCRIPT, include_str!("page/dom.js")),
    ("explain.js", SCRIPT, include_str!("page/explain.js")),
    ("families.js", SCRIPT, include_str!("page/families.js")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("lingering.js", SCRIPT, include_str!("page/lingering.js")),
    ("main.js", SCRIPT, include_str!("page/main.js")),
    (
        "page.css",
        "text/css; charset=utf-8",
        include_str!("page/page.css"),
    ),
    ("recent.js", SCRIPT, include_str!("page/recent.js")),
    ("refusal.js", SCRIPT, include_str!("page/refusal.js")),
    ("refusals.js", SCRIPT, include_str!("page/refusals.js")),
    ("replicas.js", SCRIPT, include_str!("page/replicas.js")),
    ("state.js", SCRIPT, include_str!("page/state.js")),
    ("topic.js", SCRIPT, include_str!("page/topic.js")),
    ("topics.js", SCRIPT, include_str!("page/topics.js")),
    ("words.js", SCRIPT, include_str!("page/words.js")),
];

/// Path, what it shows.
const PATHS: [(&str, &str); 14] = [
    ("/metrics", "everything that is counted, for Prometheus"),
    ("/livez", "the process answers"),
    ("/readyz", "clients can be served, or why not"),
    (
        "/api/v1/status",
        "how the process fares, as at the top of this page; ?peers=1: its replicas too, here and where counts are",
    ),
    (
        "/api/v1/topics",
        "topics, their limits in force and where these come from, the last and the largest sizes; ?topic=",
    ),
    (
        "/api/v1/sizes?topic=",
        "how the sizes on one topic are distributed",
    ),
    (
        "/api/v1/refusals",
        "the last 1,000 refusals with their full text; ?topic=, ?gate=, ?id=, ?limit=",
    ),
    (
        "/api/v1/refusals/recent",
        "the last hour's refusals by topic, gate and client, minute by minute",
    ),
    (
        "/api/v1/families",
        "main topics with their retry and dead-letter topics, and whether their limits fit",
    ),
    (
        "/api/v1/clients",
        "connected clients by client library and version",
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
        "/api/v1/claims",
        "values in the object store: by topic, and how the store fares",
    ),
    (
        "/api/v1/config",
        "the configuration in force, secrets hidden",
    ),
];

/// The frame. Whoever runs no scripts sees whether clients are served, and the paths.
pub(super) fn index(readiness: &Readiness) -> String {
    let paths: String = PATHS
        .iter()
        .map(|(path, shows)| {
            format!("      <dt><a href=\"{path}\">{path}</a></dt>\n      <dd>{shows}</dd>\n")
        })
        .collect();
    // What is escaped comes last: nothing in it is looked through for places to fill.
    FRAME
        .replace("{{version}}", env!("CARGO_PKG_VERSION"))
        .replace("{{paths}}", &paths)
        .replace("{{readiness}}", &ready(readiness))
}

fn ready(readiness: &Readiness) -> String {
    if readiness.is_ready() {
        return "<p>Ready: clients are served.</p>".into();
    }
    let why: String = readiness
        .why_not
        .iter()
        .map(|why| format!("<li>{}</li>", escaped(why)))
        .collect();
    format!("<p>Not ready:</p><ul>{why}</ul>")
}

/// One of the page's files.
pub(super) async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, media_type, content)) => {
            ([(header::CONTENT_TYPE, *media_type)], *content).into_response()
        }
        None => (StatusCode::NOT_FOUND, "the page has no such file\n").into_response(),
    }
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
        assert_eq!(page.matches("<script").count(), 1, "only the page's own");
    }

    #[test]
    fn the_page_says_whether_clients_are_served() {
        assert!(index(&Readiness::default()).contains("Ready: clients are served."));
        let page = index(&Readiness {
            why_not: vec!["no broker was reached".into()],
        });
        assert!(page.contains("Not ready:") && page.contains("<li>no broker was reached</li>"));
    }

    #[test]
    fn every_place_in_the_frame_is_filled() {
        assert!(!index(&Readiness::default()).contains("{{"));
    }

    #[test]
    fn no_file_makes_markup_of_text_or_asks_anyone_else() {
        for (name, _, content) in FILES {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "srcdoc",
                "javascript:",
            ] {
                assert!(!content.contains(word), "{name}: {word}");
            }
            let addresses = content
                .replace("http://www.w3.org/2000/svg", "")
                .replace("https?:", "");
            assert!(!addresses.contains("://"), "{name}");
        }
    }

    #[test]
    fn every_file_that_is_imported_is_served() {
        for (name, _, content) in FILES {
            for import in content.split(" from \"./").skip(1) {
                let import = import.split('"').next().unwrap_or_default();
                assert!(
                    FILES.iter().any(|(known, ..)| *known == import),
                    "{name} imports {import}"
                );
            }
        }
    }
}

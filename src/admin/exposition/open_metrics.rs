//! Prometheus' text format as OpenMetrics 1.0: counters named without `_total`, bounds as floats, an end.
//!
//! Invariant: what is in a label's value is never changed; no two families have one name.

use std::collections::HashSet;

/// A bound's label; a label value cannot hold it, as its quotes are escaped.
const BOUND: &str = "le=\"";
const COUNTER: &str = "_total";

/// The same samples.
pub(super) fn of(text: &str) -> String {
    let names: HashSet<&str> = text
        .lines()
        .filter_map(|line| described(line, "# TYPE "))
        .map(|(name, _)| name)
        .collect();
    // A counter whose short name is another family's keeps its own, and is of no type.
    let short = |name: &str| {
        let short = name.strip_suffix(COUNTER)?;
        (!names.contains(short)).then(|| short.to_owned())
    };
    let mut open = String::with_capacity(text.len().saturating_add(text.len() / 16));
    for line in text.lines() {
        if let Some((name, kind)) = described(line, "# TYPE ") {
            let (name, kind) = match (kind, short(name)) {
                ("counter", Some(short)) => (short, kind),
                ("counter", None) => (name.to_owned(), "unknown"),
                _ => (name.to_owned(), kind),
            };
            open.push_str(&format!("# TYPE {name} {kind}\n"));
        } else if let Some((name, help)) = described(line, "# HELP ") {
            let name = short(name).unwrap_or_else(|| name.to_owned());
            open.push_str(&format!("# HELP {name} {}\n", help.replace('"', "\\\"")));
        } else {
            sample(line, &mut open);
        }
    }
    open.push_str("# EOF\n");
    open
}

fn described<'a>(line: &'a str, comment: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(comment)?.split_once(' ')
}

/// `le="256"` is written as `le="256.0"`.
fn sample(line: &str, open: &mut String) {
    let bound = line.split_once(BOUND).and_then(|(before, after)| {
        let (bound, behind) = after.split_once('"')?;
        bound
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then_some((before, bound, behind))
    });
    match bound {
        Some((before, bound, behind)) => {
            for part in [before, BOUND, bound, ".0\"", behind] {
                open.push_str(part);
            }
        }
        None => open.push_str(line),
    }
    open.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_bounds_and_the_end_are_as_open_metrics_has_them() {
        let text = "# HELP x_total Times \"x\".\n# TYPE x_total counter\nx_total{topic=\"a,le=\\\"5\\\"\"} 3\n\
                    # HELP y Now.\n# TYPE y gauge\ny 1\n# HELP y_total Ever.\n# TYPE y_total counter\ny_total 9\n\
                    # TYPE z histogram\nz_bucket{topic=\"t\",le=\"256\"} 1\nz_bucket{le=\"0.5\"} 1\nz_bucket{le=\"+Inf\"} 2\n";
        let expected = "# HELP x Times \\\"x\\\".\n# TYPE x counter\nx_total{topic=\"a,le=\\\"5\\\"\"} 3\n\
                        # HELP y Now.\n# TYPE y gauge\ny 1\n# HELP y_total Ever.\n# TYPE y_total unknown\ny_total 9\n\
                        # TYPE z histogram\nz_bucket{topic=\"t\",le=\"256.0\"} 1\nz_bucket{le=\"0.5\"} 1\nz_bucket{le=\"+Inf\"} 2\n\
                        # EOF\n";
        assert_eq!(of(text), expected);
    }
}

//! Reads measurements: `/metrics` of a running proxy, or a file.

use std::io::{self, Read as _};
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;

use crate::net::http::{Get, Response};

/// How long a proxy may say nothing, and how long it may take for everything over a slow line.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_FOR_ALL: Duration = Duration::from_secs(600);
/// A thousand topics have 20 MB.
const MOST_BYTES: usize = 256 * 1024 * 1024;

/// The text at `from`: an `http://` address or a path.
///
/// # Errors
/// In words, with what to do.
pub(super) fn read(from: &str) -> Result<String, String> {
    if let Some(rest) = from.strip_prefix("http://") {
        return over_http(rest).map_err(|error| format!("{from}: {error}"));
    }
    if from.contains("://") {
        return Err(format!(
            "{from}: only http:// addresses are read; save the text to a file (curl '{from}?histograms=all' > metrics.txt) and name that"
        ));
    }
    read_file(Path::new(from)).map_err(|error| format!("{from}: {error}"))
}

fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MOST_BYTES as u64)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// `HOST:PORT[/PATH]`; if no path is given it is that of all histograms.
fn over_http(rest: &str) -> Result<String, String> {
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = if path.is_empty() {
        "metrics?histograms=all"
    } else {
        path
    };
    let with_port = if host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
    {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let get = Get {
        host,
        path: &format!("/{path}"),
        silence: PATIENCE,
        total: PATIENCE_FOR_ALL,
        most_bytes: MOST_BYTES,
    };
    let response = ask(&with_port, &get).map_err(|error| error.to_string())?;
    match response.status {
        200 => Ok(response.body),
        _ => Err(format!("the response is `{}`", response.status_line)),
    }
}

/// The first of the host's addresses that answers.
fn ask(address: &str, get: &Get<'_>) -> io::Result<Response> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in address.to_socket_addrs()? {
        match get.ask(address) {
            Ok(response) => return Ok(response),
            Err(error) => last = error,
        }
    }
    Err(last)
}

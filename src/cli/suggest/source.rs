//! Reads measurements: `/metrics` of a running proxy, or a file.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

/// How long a proxy may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// A thousand topics have 20 MB.
const MOST_BYTES: u64 = 256 * 1024 * 1024;

/// The text at `from`: an `http://` address or a path.
///
/// # Errors
/// In words, with what to do.
pub fn read(from: &str) -> Result<String, String> {
    if let Some(rest) = from.strip_prefix("http://") {
        return over_http(rest).map_err(|error| format!("{from}: {error}"));
    }
    if from.contains("://") {
        return Err(format!(
            "{from}: only http:// addresses are read; save the text to a file (curl {from} > metrics.txt) and name that"
        ));
    }
    read_file(Path::new(from)).map_err(|error| format!("{from}: {error}"))
}

fn read_file(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MOST_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// `HOST:PORT[/PATH]`; the path is `/metrics` if none is given.
fn over_http(rest: &str) -> Result<String, String> {
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = if path.is_empty() { "metrics" } else { path };
    let with_port = if host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
    {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let response = ask(
        &with_port,
        &format!("GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n"),
    )
    .map_err(|error| error.to_string())?;
    let response = String::from_utf8(response).map_err(|_| "the response is no text".to_owned())?;
    let (head, body) = response
        .split_once("\r\n\r\n")
        .ok_or("the response is no HTTP, or was cut")?;
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(format!("the response is `{status}`")),
    }
}

fn ask(address: &str, request: &str) -> std::io::Result<Vec<u8>> {
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.write_all(request.as_bytes())?;
                let mut response = Vec::new();
                stream.take(MOST_BYTES).read_to_end(&mut response)?;
                return Ok(response);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

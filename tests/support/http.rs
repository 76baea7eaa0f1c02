//! A GET, for the admin server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// Status and body of `GET path`; an error when nobody listens or the response is cut.
pub fn get(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    request(address, "GET", path, "")
}

/// Status and body of a request with `body`, sent as JSON.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let response = String::from_utf8_lossy(&response).into_owned();
    let cut = || {
        std::io::Error::new(
            std::io::ErrorKind::UnexpectedEof,
            format!("not HTTP: {response:?}"),
        )
    };
    let (head, body) = response.split_once("\r\n\r\n").ok_or_else(cut)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(cut)?;
    Ok((status, body.to_string()))
}

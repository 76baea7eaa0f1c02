//! Asks an HTTP server for one page: all that `check --ready`, `suggest` and the page's look at other replicas need.
//!
//! Invariant: done within [`Get::total`] and a little, with at most [`Get::most_bytes`] kept, whatever answers.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::text::first_bytes;

/// What is asked, and how long for.
pub(crate) struct Get<'a> {
    /// As the address is written.
    pub host: &'a str,
    /// With its slash.
    pub path: &'a str,
    /// How long the server may say nothing.
    pub silence: Duration,
    /// How long it may take for all of it.
    pub total: Duration,
    /// Head and body.
    pub most_bytes: usize,
}

/// What the server said.
pub(crate) struct Response {
    /// `200`
    pub status: u16,
    /// `HTTP/1.0 200 OK`
    pub status_line: String,
    /// Status line and headers.
    pub head: String,
    /// What follows the head.
    pub body: String,
}

impl Get<'_> {
    /// Asks `address`. HTTP/1.0: the server closes after its response and does not cut it into chunks.
    pub(crate) fn ask(&self, address: SocketAddr) -> io::Result<Response> {
        let began = Instant::now();
        let mut stream = TcpStream::connect_timeout(&address, self.silence)?;
        stream.set_write_timeout(Some(self.silence))?;
        let request = format!(
            "GET {} HTTP/1.0\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.path, self.host
        );
        // In one piece: who answers the first and hangs up would break what is still being written.
        stream.write_all(request.as_bytes())?;
        let mut response = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let left = self.total.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if response.len() > self.most_bytes {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            stream.set_read_timeout(Some(left.min(self.silence)))?;
            match stream.read(&mut chunk)? {
                0 => break,
                read => response.extend_from_slice(chunk.get(..read).unwrap_or_default()),
            }
        }
        Response::read(&response).ok_or_else(|| io::Error::other("it does not speak HTTP"))
    }
}

impl Response {
    /// A header's value; `name` in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    fn read(response: &[u8]) -> Option<Self> {
        let response = String::from_utf8_lossy(response);
        let (head, body) = response.split_once("\r\n\r\n")?;
        let status_line = head.lines().next()?;
        let (version, rest) = status_line.split_once(' ')?;
        version.strip_prefix("HTTP/")?;
        Some(Self {
            status: first_bytes(rest, 3).parse().ok()?,
            status_line: status_line.to_owned(),
            head: head.to_owned(),
            body: body.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_a_status_and_a_body_or_is_none() {
        let response =
            Response::read(b"HTTP/1.0 503 Not Ready\r\na: b\r\n\r\nwhy\r\n\r\nnot").unwrap();
        assert_eq!(response.status, 503);
        assert_eq!(response.status_line, "HTTP/1.0 503 Not Ready");
        assert_eq!(response.body, "why\r\n\r\nnot");
        assert_eq!(
            (response.header("a"), response.header("b")),
            (Some("b"), None)
        );
        for foreign in [
            &b"HTTP/1.0 200 OK\r\n"[..],
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/1.1 OK\r\n\r\n",
            b"\x15\x03\x03\x00\x02\x02\x32",
            b"",
        ] {
            assert!(Response::read(foreign).is_none(), "{foreign:?}");
        }
    }
}

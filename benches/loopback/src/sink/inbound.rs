//! One connection's way in: cuts the stream into frames, drops records, appends answers.

use super::control;
use super::produce::{self, Step};

/// Bytes kept of one request at most, records not counted.
const KEPT_BYTES: usize = 1 << 20;

/// Bytes looked at in one go: a Produce's head is shorter.
const LOOK_BYTES: usize = 256;

const PREFIX_BYTES: usize = 4;

/// The peer sent what this broker does not speak; its connection closes.
#[derive(Debug)]
pub struct Unspoken;

/// Where in the stream a connection stands.
#[derive(Debug)]
pub struct Inbound {
    /// The length prefix as far as it came.
    prefix: Vec<u8>,
    /// Bytes of this request, without its records.
    kept: Vec<u8>,
    /// Bytes of this request still to come.
    left: usize,
    /// Bytes of records still to drop; part of `left`.
    drop: usize,
    /// Records fields dropped.
    skipped: usize,
    /// Requests read so far.
    requests: u64,
}

impl Inbound {
    pub const fn new() -> Self {
        Self {
            prefix: Vec::new(),
            kept: Vec::new(),
            left: 0,
            drop: 0,
            skipped: 0,
            requests: 0,
        }
    }

    /// Requests read so far.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// Takes what was read; appends answers. `port` is this broker's, for Metadata.
    pub fn feed(&mut self, mut chunk: &[u8], port: u16, out: &mut Vec<u8>) -> Result<(), Unspoken> {
        while !chunk.is_empty() {
            if self.left == 0 {
                chunk = self.begin(chunk)?;
                continue;
            }
            let dropped = self.drop.min(chunk.len());
            self.drop -= dropped;
            self.left -= dropped;
            chunk = &chunk[dropped..];
            let taken = self.left.min(chunk.len()).min(LOOK_BYTES);
            if self.drop > 0 || taken == 0 {
                // A frame may end with its last records (before v9).
                if self.left == 0 {
                    self.step(port, out)?;
                }
                continue;
            }
            self.kept.extend_from_slice(&chunk[..taken]);
            self.left -= taken;
            let back = self.step(port, out)?;
            chunk = &chunk[taken - back..];
        }
        Ok(())
    }

    fn begin<'a>(&mut self, chunk: &'a [u8]) -> Result<&'a [u8], Unspoken> {
        let taken = (PREFIX_BYTES - self.prefix.len()).min(chunk.len());
        self.prefix.extend_from_slice(&chunk[..taken]);
        if let Ok(prefix) = <[u8; PREFIX_BYTES]>::try_from(&self.prefix[..]) {
            self.left = u32::from_be_bytes(prefix) as usize;
            if !(8..=100 << 20).contains(&self.left) {
                return Err(Unspoken);
            }
            self.prefix.clear();
            self.kept.clear();
            self.skipped = 0;
        }
        Ok(&chunk[taken..])
    }

    /// Looks at what is kept; answers if the request is whole. Returns how many bytes were kept that are records
    /// after all, to be taken again.
    fn step(&mut self, port: u16, out: &mut Vec<u8>) -> Result<usize, Unspoken> {
        let mut back = 0;
        loop {
            let api_key = self.kept.get(..2).map(|b| i16::from_be_bytes([b[0], b[1]]));
            match api_key {
                None => return Ok(back),
                Some(0) => {}
                Some(_) if self.left > 0 => {
                    let fits = self.kept.len() + self.left <= KEPT_BYTES;
                    return if fits { Ok(back) } else { Err(Unspoken) };
                }
                Some(_) => {
                    control::response(&self.kept, port, out).ok_or(Unspoken)?;
                    self.requests += 1;
                    return Ok(back);
                }
            }
            match produce::walk(&self.kept, self.skipped, out) {
                Step::Records { at, bytes } => {
                    let over = self.kept.len() - at;
                    self.kept.truncate(at);
                    self.left += over;
                    back += over;
                    if bytes > self.left {
                        return Err(Unspoken);
                    }
                    self.drop = bytes;
                    self.skipped += 1;
                    if bytes > 0 || back > 0 {
                        return Ok(back);
                    }
                }
                Step::Answered if self.left == 0 => {
                    self.requests += 1;
                    return Ok(back);
                }
                Step::More if self.left > 0 && self.kept.len() < KEPT_BYTES => return Ok(back),
                Step::Answered | Step::More | Step::Wrong => return Err(Unspoken),
            }
        }
    }
}

//! Fetch requests and responses: the same is seen in whatever pieces they come, whatever they hold, and sizes are never
//! more than what was sent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sizegate::wire::fetch::{PartitionRequest, RequestVisitor, ResponseReader, RequestReader, ResponseVisitor};
use sizegate::wire::produce::TopicKey;
use sizegate::wire::walk::{FETCH_RESPONSE, SHARE_FETCH_RESPONSE, Walker};

#[derive(Default, PartialEq, Debug)]
struct Told {
    lines: Vec<String>,
    batch_bytes: u64,
}

impl RequestVisitor for Told {
    fn client_id(&mut self, client_id: Option<&[u8]>) {
        self.lines.push(format!("{client_id:?}"));
    }

    fn begins(&mut self, max_bytes: i32, starts_anew: bool) {
        self.lines.push(format!("{max_bytes} {starts_anew}"));
    }

    fn partition(&mut self, topic: TopicKey<'_>, ask: PartitionRequest) {
        self.lines.push(format!("{topic:?} {ask:?}"));
    }
}

impl ResponseVisitor for Told {
    fn topic(&mut self, topic: TopicKey<'_>) {
        self.lines.push(format!("{topic:?}"));
    }

    fn first(&mut self, topic: TopicKey<'_>, partition: i32, wire_bytes: u64) {
        self.lines.push(format!("{topic:?} {partition} {wire_bytes}"));
    }

    fn batch(&mut self, wire_bytes: u64) {
        self.batch_bytes += wire_bytes;
    }
}

fn request(bytes: &[u8], version: i16, size: usize) -> (Told, bool) {
    let (mut reader, mut told) = (RequestReader::new(version, bytes.len()), Told::default());
    let is_sound = bytes.chunks(size).all(|piece| reader.read(piece, &mut told).is_ok());
    (told, is_sound)
}

fn response(bytes: &[u8], version: i16, size: usize, is_shared: bool) -> (Told, bool) {
    let message = if is_shared { &SHARE_FETCH_RESPONSE } else { &FETCH_RESPONSE };
    let (mut response, mut told) = (ResponseReader::default(), Told::default());
    let mut walker = Walker::new(message, version, bytes.len() as u64);
    let is_sound = bytes
        .chunks(size)
        .all(|piece| walker.is_at_tail() || walker.advance(piece, &mut response.seen_by(&mut told)).is_ok());
    (told, is_sound)
}

fuzz_target!(|input: (u8, u8, u8, &[u8])| {
    let (which, version, step, bytes) = input;
    let version = i16::from(version % 15) + 4;
    let (whole, size) = (bytes.len().max(1), usize::from(step).max(1));
    let (in_one, in_pieces) = match which % 3 {
        0 => (request(bytes, version, whole), request(bytes, version, size)),
        kind => (
            response(bytes, version, whole, kind == 1),
            response(bytes, version, size, kind == 1),
        ),
    };
    assert_eq!(in_one, in_pieces);
    assert!(in_one.0.batch_bytes <= bytes.len() as u64);
});

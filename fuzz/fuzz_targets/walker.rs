//! The resumable walk sees the same, in whatever pieces a message comes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sizegate::wire::walk::{self, Visitor, Walker};

#[derive(Default, PartialEq, Debug)]
struct Seen(Vec<(&'static str, Option<Vec<u8>>)>);

impl Visitor for Seen {
    fn fixed(&mut self, field: &'static str, bytes: &[u8]) {
        self.0.push((field, Some(bytes.to_vec())));
    }

    fn text(&mut self, field: &'static str, bytes: Option<&[u8]>) {
        self.0.push((field, bytes.map(<[u8]>::to_vec)));
    }
}

fuzz_target!(|input: (u8, u8, u8, &[u8])| {
    let (which, version, step, bytes) = input;
    let message = match which % 3 {
        0 => &walk::FETCH_RESPONSE,
        1 => &walk::SHARE_FETCH_RESPONSE,
        2 => &walk::METADATA_TOPICS,
        _ => &walk::PRODUCE_REQUEST,
    };
    let version = i16::from(version % 19);
    let walk = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut seen = Seen::default();
        let mut walker = Walker::new(message, version, bytes.len() as u64);
        let mut walked = 0;
        for piece in pieces {
            match walker.advance(piece, &mut seen) {
                Ok(n) => walked += n,
                Err(malformed) => return (seen, Err(malformed), false),
            }
            if walker.is_at_tail() {
                break;
            }
        }
        (seen, Ok(walked), walker.is_at_tail())
    };
    let whole = walk(&mut std::iter::once(bytes));
    let pieces = walk(&mut bytes.chunks(usize::from(step).max(1)));
    assert_eq!(whole, pieces);
});

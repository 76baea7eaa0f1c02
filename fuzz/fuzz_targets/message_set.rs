//! An old message set, its messages' checksums made right: what is over is over, and no effort changes that.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sizegate::batch::{BatchHeader, largest_message, messages};
use sizegate::codec::crc32;
use sizegate::inspect::{DeepLimits, Effort, Judgement, Scratch, inspect_message_set};

const MOST_DECODED: u64 = 1024 * 1024;

fuzz_target!(|input: (u16, &[u8])| {
    let (limit, bytes) = input;
    let mut set = bytes.to_vec();
    let mut at = 0;
    while let Some(Ok(message)) = messages(&bytes[at..]).next() {
        if message.magic < 2 {
            let crc = crc32(message.checked());
            set[at + 12..at + 16].copy_from_slice(&crc.to_be_bytes());
        }
        at += message.bytes.len();
    }
    let limit = Some(u64::from(limit));
    let limits = DeepLimits { record_bytes: limit, uncompressed_bytes: limit, key_bytes: limit, ..DeepLimits::NONE };
    let mut scratch = Scratch::new();
    let judged = inspect_message_set(&set, &limits, Effort::VERDICT, &mut scratch);
    match judged.finding {
        Judgement::Over(over) => assert!(over.size.bytes() > over.limit_bytes),
        Judgement::Unfinished => panic!("{judged:?}"),
        Judgement::BadCrc | Judgement::Within | Judgement::Undecodable(_) => {}
    }
    // The broker refuses all of a set in which a batch has no whole header.
    let is_whole = messages(&set).flatten().all(|message| message.magic < 2 || BatchHeader::read(message.bytes).is_ok());
    if let (true, Ok((largest, _))) = (is_whole, largest_message(&set)) {
        let is_plain = largest.magic < 2 && largest.attributes & 7 == 0;
        let is_over = is_plain && Some(largest.wire_bytes()) > limit;
        assert!(!is_over || judged.finding != Judgement::Within, "{judged:?}");
    }
    let bounded = inspect_message_set(&set, &limits, Effort::VERDICT.decode_at_most(MOST_DECODED), &mut scratch);
    assert!(bounded.finding == judged.finding || bounded.finding == Judgement::Unfinished);
});

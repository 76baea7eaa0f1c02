//! A broker's answer to Produce: read, written and read again, it says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sizegate::wire::produce_answer::{ProduceAnswer, is_plain};

fuzz_target!(|input: (u8, &[u8])| {
    let (version, frame) = (i16::from(input.0 % 14), input.1);
    let _ = is_plain(frame, version);
    if let Ok(answer) = ProduceAnswer::read(frame, version) {
        let again = ProduceAnswer::read(&answer.encode(version), version).unwrap();
        assert_eq!(again, answer);
    }
});

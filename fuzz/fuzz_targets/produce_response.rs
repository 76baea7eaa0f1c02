//! A broker's response to Produce: read, written and read again, it says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sizegate::wire::produce_response::{ProduceResponse, is_plain};

fuzz_target!(|input: (u8, &[u8])| {
    let (version, frame) = (i16::from(input.0 % 14), input.1);
    let _ = is_plain(frame, version);
    if let Ok(response) = ProduceResponse::read(frame, version) {
        let again = ProduceResponse::read(&response.encode(version), version).unwrap();
        assert_eq!(again, response);
    }
});

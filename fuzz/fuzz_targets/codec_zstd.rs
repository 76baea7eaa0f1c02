//! The zstd decoder.
#![no_main]

mod codec;

use libfuzzer_sys::fuzz_target;
use sizegate::vocabulary::Codec;

fuzz_target!(|payload: &[u8]| codec::decode(Codec::Zstd, payload));

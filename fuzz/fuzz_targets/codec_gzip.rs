//! The gzip decoder.
#![no_main]

mod codec;

use libfuzzer_sys::fuzz_target;
use sizegate::policy::Codec;

fuzz_target!(|payload: &[u8]| codec::decode(Codec::Gzip, payload));

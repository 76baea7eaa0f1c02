//! One codec's decoder: never more than the cap, never more than the bound, and the same twice.

use std::ops::ControlFlow;

use sizegate::codec::{Decoders, End, Output, scanned_bound, upper_bound};
use sizegate::vocabulary::Codec;

const CAP_BYTES: u64 = 8 * 1024 * 1024;

#[derive(Default)]
struct Count {
    bytes: u64,
    hash: u64,
}

impl Output for Count {
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.bytes += bytes.len() as u64;
        self.hash = bytes.iter().step_by(97).fold(self.hash, |hash, byte| hash.wrapping_mul(31) + u64::from(*byte));
        ControlFlow::Continue(())
    }
}

pub fn decode(codec: Codec, payload: &[u8]) {
    let mut decoders = Decoders::new();
    let mut run = || {
        let mut out = Count::default();
        let end = decoders.decoder(codec, CAP_BYTES).decode(payload, &mut out);
        (end, out.bytes, out.hash)
    };
    let (end, bytes, hash) = run();
    assert_eq!(run(), (end, bytes, hash));
    assert!(bytes <= CAP_BYTES + 1);
    if end == Ok(End::Complete) {
        for bound in [upper_bound(codec, payload), scanned_bound(codec, payload, u64::MAX)].into_iter().flatten() {
            assert!(bytes <= bound.at_most, "{bytes} {bound:?}");
            assert!(!bound.is_exact || bytes == bound.at_most, "{bytes} {bound:?}");
        }
        // RequestVisitor for no more than there is, a scan leaves nothing to guess.
        if let Some(bound) = scanned_bound(codec, payload, bytes) {
            assert_eq!(bound.at_most, bytes);
        }
    }
}

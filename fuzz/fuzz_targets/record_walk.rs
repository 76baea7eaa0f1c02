//! Both walks over the same records: what the strict one reads, the streaming one reads the same in any pieces.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use sizegate::batch::{RecordStream, walk_records};

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (count, piece_bytes, records) = input;
    let count = u32::from(count);
    let mut whole = Vec::new();
    let walked = walk_records(records, count, |sizes| {
        whole.push(*sizes);
        ControlFlow::Continue(())
    });
    let mut stream = RecordStream::new(count);
    let mut pieces = Vec::new();
    let mut fed = Ok(ControlFlow::Continue(()));
    for piece in records.chunks(usize::from(piece_bytes).max(1)) {
        fed = stream.feed(piece, |sizes| {
            pieces.push(*sizes);
            ControlFlow::Continue(())
        });
        if fed.is_err() {
            break;
        }
    }
    if walked.is_ok() {
        assert!(fed.is_ok() && stream.finish().is_ok());
        assert_eq!(whole, pieces);
        let total: u64 = whole.iter().map(|sizes| sizes.record_bytes).sum();
        assert_eq!(total, records.len() as u64);
    }
    for sizes in &pieces {
        let parts = sizes.key_bytes + sizes.value_bytes + sizes.headers_bytes;
        assert!(parts + 7 <= sizes.record_bytes);
        assert!(sizes.estimate_bytes <= sizes.record_bytes + sizegate::batch::ESTIMATE_SURPLUS_BYTES);
    }
});

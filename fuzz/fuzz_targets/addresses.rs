//! Responses that carry addresses: whatever a broker sends, nothing but a response or an error comes out, and a tail
//! keeps its length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sizegate::wire::addresses::{self, AddressBook, TailKind};
use sizegate::wire::{api, api_versions};

struct Book(usize);

impl AddressBook for Book {
    fn address(&self, _: i32) -> (Vec<u8>, i32) {
        (vec![b'h'; self.0], 19093)
    }

    fn learn(&self, _: i32, _: &[u8], _: i32) {}
}

fuzz_target!(|input: (u8, u8, u8, &[u8])| {
    let (kind, version, host_bytes, bytes) = input;
    let book = Book(usize::from(host_bytes));
    let version = i16::from(version % 14);
    let keys = [api::FIND_COORDINATOR, api::DESCRIBE_CLUSTER, api::DESCRIBE_QUORUM, api::SHARE_ACKNOWLEDGE];
    match kind % 8 {
        at @ 0..4 => drop(addresses::rewrite(bytes, keys[usize::from(at)], version, &book)),
        4 => drop(addresses::rewrite_metadata_head(bytes, version, &book)),
        5 => drop(api_versions::clamp(&mut bytes.to_vec(), version)),
        at => {
            let kind = if at == 6 { TailKind::Fetch } else { TailKind::ShareFetch };
            if let Ok(tail) = addresses::rewrite_tail_in_place(bytes, kind, &book) {
                assert_eq!(tail.len(), bytes.len());
            }
        }
    }
});

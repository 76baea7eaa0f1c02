//! A request that sets configs: laid out, spliced whole, and laid out again, it does the same to the same resources; and
//! refusals go into whatever a broker answers, or the response is malformed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sizegate::wire::config_response::{RefusedResource, merge};
use sizegate::wire::config_requests::{Key, Kind, Layout, Operation};
use sizegate::wire::splice::Piece;

type Told = Vec<(i8, Vec<u8>, Vec<(Key, Option<Vec<u8>>)>)>;

fn told(layout: &Layout, frame: &[u8]) -> Told {
    let resources = layout.resources.iter();
    let told = resources.map(|resource| {
        let configs = layout.configs_of(resource).iter();
        let configs = configs.map(|(key, operation)| match operation {
            Operation::Set(range) | Operation::Append(range) | Operation::Subtract(range) => (*key, Some(frame[range.clone()].to_vec())),
            Operation::Delete | Operation::Other => (*key, None),
        });
        (resource.resource_type, frame[resource.name.clone()].to_vec(), configs.collect())
    });
    told.collect()
}

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (kind, version) = match input.0 % 3 {
        0 => (Kind::Create, input.1 % 8),
        1 => (Kind::Replace, input.1 % 3),
        _ => (Kind::Change, input.1 % 2),
    };
    let (version, frame) = (i16::from(version), input.2);
    let refused = [RefusedResource {
        resource_type: 2,
        name: b"t".to_vec(),
        error_code: 44,
        message: "no".to_owned(),
    }];
    let _ = merge(frame, kind, version, &refused);
    let Ok(layout) = Layout::read(frame, kind, version) else {
        return;
    };
    let all: Vec<usize> = (0..layout.resources.len()).collect();
    let mut spliced = Vec::new();
    for piece in layout.splice(&all) {
        match piece {
            Piece::Original(range) => spliced.extend_from_slice(&frame[range]),
            Piece::Made(bytes) => spliced.extend_from_slice(&bytes),
        }
    }
    let again = Layout::read(&spliced, kind, version).unwrap();
    assert_eq!(told(&again, &spliced), told(&layout, frame));
});

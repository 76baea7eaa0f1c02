//! A Produce request: laid out, spliced whole, and laid out again, it names the same partitions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sizegate::wire::produce::Layout;
use sizegate::wire::splice::Piece;

fuzz_target!(|input: (u8, &[u8])| {
    let (version, frame) = (i16::from(input.0 % 14), input.1);
    let mut layout = Layout::default();
    if layout.read(frame, version).is_err() {
        return;
    }
    let whole: Vec<(usize, Vec<usize>)> =
        layout.topics.iter().enumerate().map(|(at, topic)| (at, topic.partitions.clone().collect())).collect();
    let mut spliced = Vec::new();
    for piece in layout.splice(&whole) {
        match piece {
            Piece::Original(range) => spliced.extend_from_slice(&frame[range]),
            Piece::Made(bytes) => spliced.extend_from_slice(&bytes),
        }
    }
    let mut again = Layout::default();
    again.read(&spliced, version).unwrap();
    assert_eq!(again.topics.len(), layout.topics.len());
    let entries = |layout: &Layout, frame: &[u8]| -> Vec<Vec<u8>> {
        layout.partitions.iter().map(|partition| frame[partition.entry.clone()].to_vec()).collect()
    };
    assert_eq!(entries(&again, &spliced), entries(&layout, frame));
});

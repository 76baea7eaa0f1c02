//! Which partition a record goes to: the one that Java's producer chooses for its key.

/// The partition of a key (`BuiltInPartitioner.partitionForKey`).
pub(super) fn of_key(key: &[u8], partitions: usize) -> usize {
    let positive = murmur2(key).cast_unsigned() & 0x7fff_ffff;
    usize::try_from(positive)
        .unwrap_or(0)
        .checked_rem(partitions)
        .unwrap_or(0)
}

/// `org.apache.kafka.common.utils.Utils.murmur2`.
fn murmur2(key: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let mut hash = SEED ^ length;
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k.wrapping_shr(24);
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (byte, shift) in rest.iter().zip([0, 8, 16]) {
            hash ^= u32::from(*byte).wrapping_shl(shift);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash.wrapping_shr(13);
    hash = hash.wrapping_mul(M);
    hash ^= hash.wrapping_shr(15);
    hash.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_kafkas_own_test() {
        // `UtilsTest.testMurmur2`, kafka-clients 4.4.0.
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn a_negative_hash_has_a_partition_too() {
        // -973,932,308 & 0x7fffffff = 1,173,551,340.
        assert_eq!(of_key(b"21", 7), 1_173_551_340 % 7);
        assert_eq!(of_key(b"21", 1), 0);
        assert_eq!(of_key(b"21", 0), 0);
    }
}

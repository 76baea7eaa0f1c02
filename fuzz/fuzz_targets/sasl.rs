//! SASL exchanges: whatever a client or a broker sends, a name comes out whole and printable or not at all.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sizegate::wire::sasl::{self, Mechanism};

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (mechanism, version, bytes) = input;
    let mechanism = [Mechanism::Plain, Mechanism::Scram, Mechanism::Other][usize::from(mechanism % 3)];
    let version = i16::from(version % 4);
    let _ = sasl::mechanism(bytes);
    let _ = sasl::is_authenticated(bytes, version, mechanism);
    if let Ok(Some(name)) = sasl::claimed_name(bytes, version, mechanism) {
        assert!(!name.is_empty() && name.len() <= 256);
        assert!(!name.chars().any(char::is_control));
        assert_ne!(mechanism, Mechanism::Other);
    }
});

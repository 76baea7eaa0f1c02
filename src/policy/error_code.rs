//! The error code that a refusal bears, from the rule's `error_code`.

use crate::error_code::{INVALID_RECORD, MESSAGE_TOO_LARGE, POLICY_VIOLATION};
use crate::vocabulary::{ErrorCode, Gate};

/// The number for `wanted`. `auto` is 10, and 87 where a client would send the batch for ever; a codec is refused with
/// 44, because Java splits what gets 10 and sends it again in pieces small enough to pass. What cannot be read is 87,
/// whatever is wanted.
pub fn error_code(wanted: ErrorCode, gate: Gate, is_unreadable: bool, is_loop: bool) -> i16 {
    match wanted {
        _ if is_unreadable => INVALID_RECORD,
        ErrorCode::Auto if gate == Gate::Codec => POLICY_VIOLATION,
        ErrorCode::Auto if is_loop => INVALID_RECORD,
        ErrorCode::Auto | ErrorCode::MessageTooLarge => MESSAGE_TOO_LARGE,
        ErrorCode::PolicyViolation => POLICY_VIOLATION,
        ErrorCode::InvalidRecord => INVALID_RECORD,
    }
}

//! A record batch and its records as they stand in bytes. Reads, never allocates.
//!
//! [`walk_records`] is for records that are all here, [`RecordStream`] for those that come out of a decoder in
//! pieces; both say sizes. [`RecordCursor`] says where in records that are all here the parts of each stand: what is
//! spliced is copied from there. None of them copies or keeps content.

mod checksum;
mod cursor;
mod estimate;
mod header;
mod message_set;
mod prefix;
mod record;
mod stream;
mod walk;

pub use checksum::{Checksum, is_crc_right};
pub use cursor::{HeaderParts, Headers, RecordCursor, RecordParts};
pub(crate) use estimate::estimate;
pub use estimate::{ESTIMATE_OVERHEAD_BYTES, ESTIMATE_SURPLUS_BYTES};
pub use header::BatchHeader;
pub use message_set::{Message, MessageStream, as_one_batch, largest_message, messages};
pub use prefix::{Prefix, prefix};
pub(crate) use record::varint_bytes;
pub use record::{RecordError, RecordSizes, Rewritten, put_varint};
pub use stream::RecordStream;
pub use walk::walk_records;

pub use crate::wire::record_batch::BATCH_HEADER_BYTES;

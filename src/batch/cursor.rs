//! Yields where the parts of each record stand, in records that lie in memory as a whole.
//!
//! Reads as a consumer reads (`DefaultRecord.readFrom(ByteBuffer)`): a record's fields must add up to its declared
//! length, and nothing may follow the last one. Every range that comes out lies within the records it was read from.

use std::ops::Range;

use super::record::{RecordError, RecordSizes, signed};
use super::walk::{read_fields, skip_nullable, varint};

/// One record, as ranges of the records of its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordParts {
    /// All of it, its length included.
    pub record: Range<usize>,
    /// Attributes, timestamp delta, offset delta.
    pub head: Range<usize>,
    /// The key with its length in front.
    pub key_field: Range<usize>,
    /// The key; `None` is null.
    pub key: Option<Range<usize>>,
    /// The value with its length in front.
    pub value_field: Range<usize>,
    /// The value; `None` is null.
    pub value: Option<Range<usize>>,
    /// The headers, without their count in front.
    pub headers: Range<usize>,
    /// How many they are.
    pub headers_count: u32,
    /// Its sizes.
    pub sizes: RecordSizes,
}

/// Goes through a declared number of records; ends behind the first error.
#[derive(Debug, Clone)]
pub struct RecordCursor<'a> {
    records: &'a [u8],
    rest: &'a [u8],
    left: u32,
    is_over: bool,
}

impl<'a> RecordCursor<'a> {
    /// Expects `count` records to be the whole of `records`.
    pub const fn new(records: &'a [u8], count: u32) -> Self {
        Self {
            records,
            rest: records,
            left: count,
            is_over: false,
        }
    }

    fn next_record(&mut self) -> Result<RecordParts, RecordError> {
        let whole = self.records.len();
        let at = |left: usize| whole.saturating_sub(left);
        let record_at = at(self.rest.len());
        let mut rest = self.rest;
        let length = signed(varint(&mut rest)?);
        let length = usize::try_from(length).map_err(|_| RecordError::NegativeLength)?;
        let (mut body, behind) = rest
            .split_at_checked(length)
            .ok_or(RecordError::Truncated)?;
        let head_at = at(rest.len());
        let (mut sizes, places) = read_fields(&mut body)?;
        if !body.is_empty() {
            return Err(RecordError::LengthMismatch);
        }
        self.rest = behind;
        let end = at(behind.len());
        sizes.record_bytes = end.saturating_sub(record_at) as u64;
        // Places count what was left of the body; behind it stands the rest.
        let at = |left: usize| end.saturating_sub(left);
        let key = at(places.key)..at(places.value_length);
        let value = at(places.value)..at(places.headers_count);
        Ok(RecordParts {
            record: record_at..end,
            head: head_at..at(places.key_length),
            key_field: at(places.key_length)..key.end,
            key: (!places.is_key_null).then_some(key),
            value_field: at(places.value_length)..value.end,
            value: (!places.is_value_null).then_some(value),
            headers: at(places.headers)..end,
            headers_count: places.headers_declared,
            sizes,
        })
    }
}

impl Iterator for RecordCursor<'_> {
    type Item = Result<RecordParts, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.is_over = true;
            return (!self.rest.is_empty()).then_some(Err(RecordError::TrailingBytes));
        };
        self.left = left;
        let record = self.next_record();
        self.is_over = record.is_err();
        Some(record)
    }
}

/// One header, as ranges of the records of its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderParts {
    /// All of it: name and value, each with its length.
    pub header: Range<usize>,
    /// Its name.
    pub name: Range<usize>,
    /// Its value; `None` is null.
    pub value: Option<Range<usize>>,
}

/// Goes through the headers of a record that a [`RecordCursor`] found sound.
#[derive(Debug, Clone)]
pub struct Headers<'a> {
    whole: &'a [u8],
    rest: &'a [u8],
    end: usize,
    left: u32,
}

impl<'a> Headers<'a> {
    /// Those of `record`, which stands in `records`.
    pub fn of(record: &RecordParts, records: &'a [u8]) -> Self {
        let rest = records.get(record.headers.clone()).unwrap_or_default();
        Self {
            whole: records,
            rest,
            end: record.headers.end,
            left: record.headers_count,
        }
    }

    /// The bytes of one of the ranges.
    pub fn bytes(&self, range: &Range<usize>) -> &'a [u8] {
        self.whole.get(range.clone()).unwrap_or_default()
    }

    fn here(&self) -> usize {
        self.end.saturating_sub(self.rest.len())
    }

    fn field(&mut self) -> Option<Option<Range<usize>>> {
        let length = signed(varint(&mut self.rest).ok()?);
        let from = self.here();
        skip_nullable(&mut self.rest, length).ok()?;
        Some((length >= 0).then_some(from..self.here()))
    }
}

impl Iterator for Headers<'_> {
    type Item = HeaderParts;

    fn next(&mut self) -> Option<HeaderParts> {
        self.left = self.left.checked_sub(1)?;
        let from = self.here();
        let name = self.field()??;
        let value = self.field()?;
        Some(HeaderParts {
            header: from..self.here(),
            name,
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::super::put_varint;
    use super::*;
    use crate::batch::walk_records;

    type Nullable = Option<Vec<u8>>;

    /// Key, value, headers.
    #[derive(Debug, Clone)]
    struct Content(Nullable, Nullable, Vec<(Vec<u8>, Nullable)>);

    fn put(out: &mut Vec<u8>, bytes: &Nullable) {
        put_varint(out, bytes.as_ref().map_or(-1, |bytes| bytes.len() as i32));
        out.extend(bytes.iter().flatten());
    }

    fn encode(Content(key, value, headers): &Content, head: &[u8]) -> Vec<u8> {
        let mut body = head.to_vec();
        put(&mut body, key);
        put(&mut body, value);
        put_varint(&mut body, headers.len() as i32);
        for (name, value) in headers {
            put(&mut body, &Some(name.clone()));
            put(&mut body, value);
        }
        let mut record = Vec::new();
        put_varint(&mut record, body.len() as i32);
        record.extend(body);
        record
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..200)
    }

    fn content() -> impl Strategy<Value = Content> {
        let nullable = || prop::option::of(bytes());
        let headers = prop::collection::vec((bytes(), nullable()), 0..4);
        (nullable(), nullable(), headers)
            .prop_map(|(key, value, headers)| Content(key, value, headers))
    }

    proptest! {
        #[test]
        fn parts_are_what_was_written(contents in prop::collection::vec(content(), 1..6)) {
            let head = [0, 0x80, 0x01, 5];
            let encoded: Vec<Vec<u8>> =
                contents.iter().map(|content| encode(content, &head)).collect();
            let records = encoded.concat();
            let found: Result<Vec<_>, _> =
                RecordCursor::new(&records, contents.len() as u32).collect();
            let found = found.unwrap();
            prop_assert_eq!(found.len(), contents.len());
            let mut sizes = Vec::new();
            let walked = walk_records(&records, contents.len() as u32, |record| {
                sizes.push(*record);
                ControlFlow::Continue(())
            });
            prop_assert_eq!(walked, Ok(ControlFlow::Continue(())));
            for (at, (parts, Content(key, value, headers))) in found.iter().zip(&contents).enumerate() {
                let of = |range: &Option<Range<usize>>| {
                    range.clone().map(|range| records[range].to_vec())
                };
                prop_assert_eq!(&records[parts.record.clone()], &encoded[at][..]);
                prop_assert_eq!(&records[parts.head.clone()], &head[..]);
                prop_assert_eq!(&of(&parts.key), key);
                prop_assert_eq!(&of(&parts.value), value);
                let mut key_field = Vec::new();
                put(&mut key_field, key);
                prop_assert_eq!(&records[parts.key_field.clone()], &key_field[..]);
                let mut value_field = Vec::new();
                put(&mut value_field, value);
                prop_assert_eq!(&records[parts.value_field.clone()], &value_field[..]);
                let read: Vec<(Vec<u8>, Nullable)> = Headers::of(parts, &records)
                    .map(|header| (records[header.name].to_vec(), of(&header.value)))
                    .collect();
                prop_assert_eq!(&read, headers);
                let all: Vec<u8> = Headers::of(parts, &records)
                    .flat_map(|header| records[header.header].to_vec())
                    .collect();
                prop_assert_eq!(&records[parts.headers.clone()], &all[..]);
                prop_assert_eq!(parts.sizes, sizes[at]);
            }
        }

        #[test]
        fn arbitrary_bytes_end_in_an_error_or_in_all_records(
            records in prop::collection::vec(any::<u8>(), 0..300),
            count in 0u32..20,
        ) {
            let mut found = 0;
            let mut error = None;
            for record in RecordCursor::new(&records, count) {
                match record {
                    Ok(parts) => {
                        found += 1;
                        for header in Headers::of(&parts, &records) {
                            prop_assert!(header.header.end <= parts.record.end);
                        }
                    }
                    Err(why) => error = Some(why),
                }
            }
            let walked = walk_records(&records, count, |_| ControlFlow::Continue(()));
            prop_assert_eq!(walked.err(), error);
            prop_assert!(error.is_some() || found == count);
        }
    }
}

//! Gathers sizes while the records of one batch go by.

use std::ops::ControlFlow;

use super::Over;
use super::limits::Ceilings;
use super::near::NearGates;
use super::sizes::Sizes;
use crate::batch::{RecordSizes, Rewritten};
use crate::inspect::RecordAt;
use crate::vocabulary::Size;

/// How far measuring goes on behind the first violation, so that a person reads an exact size, and what else is in
/// the batch, instead of "at least" wherever that costs little: about 2 ms of gzip, 0.5 ms of lz4.
pub(super) const GRACE_BYTES: u64 = 1024 * 1024;

/// Counts records and keeps the first violation.
pub(super) struct Tally<'a> {
    ceilings: &'a Ceilings,
    sizes: Option<&'a mut Sizes>,
    /// One violation for every gate.
    pub(super) overs: Option<&'a mut Vec<Over>>,
    index: u32,
    grace_left: u64,
    /// A record of so many bytes changes nothing but the index.
    unremarkable: u64,
    /// The records as the broker writes them, where it does.
    rewritten: Option<Rewritten>,
    pub(super) over: Option<Over>,
    pub(super) largest: Option<RecordAt>,
    /// The gates of records that one of them was near.
    pub(super) near: NearGates,
}

impl<'a> Tally<'a> {
    pub(super) fn new(
        ceilings: &'a Ceilings,
        over: Option<Over>,
        sizes: Option<&'a mut Sizes>,
    ) -> Self {
        Self {
            ceilings,
            sizes,
            overs: None,
            index: 0,
            grace_left: GRACE_BYTES,
            unremarkable: 0,
            rewritten: ceilings.is_rewritten.then(Rewritten::default),
            over,
            largest: None,
            near: NearGates::NONE,
        }
    }

    /// Goes on behind a violation, for those of the other gates.
    pub(super) fn of_all_gates(mut self, overs: Option<&'a mut Vec<Over>>) -> Self {
        self.overs = overs;
        self
    }

    /// The batch as the broker writes it, as far as its records came; 0 where it writes it as it came.
    pub(super) fn rewritten_bytes(&self) -> u64 {
        self.rewritten
            .map_or(0, |rewritten| rewritten.batch_bytes())
    }

    /// The next record, read to its end. Breaks when enough is known.
    #[inline(always)]
    pub(super) fn record(&mut self, sizes: &RecordSizes) -> ControlFlow<()> {
        if let Some(rewritten) = &mut self.rewritten {
            let record_bytes = rewritten.record(sizes).max(sizes.record_bytes);
            return self.next(&RecordSizes {
                record_bytes,
                ..*sizes
            });
        }
        self.next(sizes)
    }

    #[inline(always)]
    fn next(&mut self, sizes: &RecordSizes) -> ControlFlow<()> {
        let index = self.index;
        self.index = index.saturating_add(1);
        if sizes.record_bytes <= self.unremarkable {
            return ControlFlow::Continue(());
        }
        self.remark(index, sizes)
    }

    fn remark(&mut self, index: u32, sizes: &RecordSizes) -> ControlFlow<()> {
        if let Some(gathered) = &mut self.sizes {
            gathered.record(sizes);
        }
        if self
            .largest
            .is_none_or(|largest| sizes.record_bytes > largest.record_bytes)
        {
            self.largest = Some(record_at(index, sizes));
        }
        if sizes.record_bytes > self.ceilings.far_record {
            self.near = self.near.and(self.ceilings.record_near(sizes));
        }
        self.note_overs(index, sizes, Size::Exact);
        let flow = self.judge(index, sizes);
        if let (None, None, None, Some(largest)) =
            (&self.sizes, &self.overs, &self.over, &self.largest)
        {
            let harmless = self.ceilings.harmless_record;
            self.unremarkable = largest
                .record_bytes
                .min(harmless)
                .min(self.ceilings.far_record);
        } else {
            self.unremarkable = 0;
        }
        flow
    }

    fn judge(&mut self, index: u32, sizes: &RecordSizes) -> ControlFlow<()> {
        match self.over {
            None => {
                self.over = self.violation(index, sizes, Size::Exact);
                ControlFlow::Continue(())
            }
            Some(over) if over.is_partial(index) => {
                // It was over before its end came; now all of it is known.
                self.over = self.violation(index, sizes, Size::Exact).or(self.over);
                ControlFlow::Continue(())
            }
            Some(_) => self.spend(sizes.record_bytes),
        }
    }

    /// The record that is being read, as far as it came with the last `new_bytes`. Breaks when enough is known.
    pub(super) fn partial_record(
        &mut self,
        sizes: &RecordSizes,
        new_bytes: u64,
    ) -> ControlFlow<()> {
        self.note_overs(self.index, sizes, Size::AtLeast);
        match self.over {
            None => {
                self.over = self.violation(self.index, sizes, Size::AtLeast);
                if self.over.is_some() {
                    self.unremarkable = 0;
                }
                ControlFlow::Continue(())
            }
            Some(over) if over.is_partial(self.index) => {
                self.over = self
                    .violation(self.index, sizes, Size::AtLeast)
                    .or(self.over);
                self.spend(new_bytes)
            }
            Some(_) => ControlFlow::Continue(()),
        }
    }

    /// The first violation of each gate.
    fn note_overs(&mut self, index: u32, sizes: &RecordSizes, size: impl Fn(u64) -> Size) {
        let Some(overs) = &mut self.overs else { return };
        for (gate, bytes, limit_bytes) in self.ceilings.record_overs(sizes) {
            let over = Over {
                gate,
                size: size(bytes),
                limit_bytes,
                record: Some(record_at(index, sizes)),
            };
            match overs.iter_mut().find(|noted| noted.gate == gate) {
                Some(noted) if noted.is_partial(index) => *noted = over,
                Some(_) => {}
                None => overs.push(over),
            }
        }
    }

    fn violation(
        &self,
        index: u32,
        sizes: &RecordSizes,
        size: impl Fn(u64) -> Size,
    ) -> Option<Over> {
        let (gate, bytes, limit_bytes) = self.ceilings.record_over(sizes)?;
        Some(Over {
            gate,
            size: size(bytes),
            limit_bytes,
            record: Some(record_at(index, sizes)),
        })
    }

    fn spend(&mut self, bytes: u64) -> ControlFlow<()> {
        match self.grace_left.checked_sub(bytes) {
            Some(left) => {
                self.grace_left = left;
                ControlFlow::Continue(())
            }
            // Whoever asked for measures of all records gets them.
            None if self.sizes.is_some() || self.overs.is_some() => ControlFlow::Continue(()),
            None => ControlFlow::Break(()),
        }
    }
}

impl Over {
    /// Whether it is of a record whose end had not come.
    fn is_partial(&self, index: u32) -> bool {
        matches!(self.size, Size::AtLeast(_))
            && self.record.is_some_and(|record| record.index == index)
    }
}

pub(super) const fn record_at(index: u32, sizes: &RecordSizes) -> RecordAt {
    RecordAt {
        index,
        record_bytes: sizes.record_bytes,
        key_bytes: sizes.key_bytes,
        headers_bytes: sizes.headers_bytes,
    }
}

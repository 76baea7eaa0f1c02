//! Counts the bytes that a deflate stream (RFC 1951) holds, without making them: its symbols are read, their lengths added.
//!
//! No window, no output, no checksum: about half of what decoding costs (benches/README.md). Invariant: a stream that decodes at all decodes
//! to just the bytes counted here. Whether it does (distances that reach too far back, checksums) is not looked at;
//! what zlib refuses for its codes is refused here too.

use super::DecodeError;

/// The highest ratio: a match of 258 bytes takes at least one bit for its length and one for its distance.
pub(super) const MOST_PER_BYTE: u64 = 1032;

/// The longest code.
const MOST_BITS: usize = 15;
/// Codes up to so many bits are found in one step; longer ones, which are rare, bit by bit.
const LITERAL_BITS: u32 = 11;
const DISTANCE_BITS: u32 = 9;
const LITERALS: usize = 288;
const DISTANCES: usize = 32;
const END_OF_BLOCK: usize = 256;
/// How far is read before it is asked again whether enough is known.
const STRIDE_BYTES: usize = 512;
/// The order in which a dynamic block gives the lengths of its code length code.
const LENGTHS_ORDER: [u8; 19] = [
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
];

/// What a scan found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scanned {
    /// The stream ends within the input: bytes it holds, and bytes of input it takes.
    Whole { holds: u64, takes: usize },
    /// Whatever follows, all of the input holds no more than this.
    Enough { at_most: u64 },
    /// There is more than the ceiling.
    Over,
}

/// Reads a stream at the front of `input` until it ends, or until all of `input`, whatever it is, is known to hold
/// no more than `ceiling`, or until it is known to hold more.
pub(super) fn scan(input: &[u8], ceiling: u64) -> Result<Scanned, DecodeError> {
    let mut scan = Scan {
        bits: Bits {
            bytes: input,
            at: 0,
            hold: 0,
            count: 0,
        },
        ceiling,
        holds: 0,
        literals: Code::new(),
        distances: Code::new(),
    };
    loop {
        let is_last = scan.bits.read(1)? == 1;
        let early = match scan.bits.read(2)? {
            0 => scan.stored_block()?,
            1 => {
                scan.fixed_codes()?;
                scan.symbols()?
            }
            2 => {
                scan.dynamic_codes()?;
                scan.symbols()?
            }
            _ => return Err(DecodeError::Corrupt),
        };
        if let Some(early) = early {
            return Ok(early);
        }
        if is_last {
            if scan.holds > ceiling {
                return Ok(Scanned::Over);
            }
            scan.bits.align();
            return Ok(Scanned::Whole {
                holds: scan.holds,
                takes: scan.bits.at,
            });
        }
    }
}

struct Scan<'a> {
    bits: Bits<'a>,
    ceiling: u64,
    holds: u64,
    literals: Code<{ 1 << LITERAL_BITS }, LITERALS>,
    distances: Code<{ 1 << DISTANCE_BITS }, DISTANCES>,
}

impl Scan<'_> {
    fn stored_block(&mut self) -> Result<Option<Scanned>, DecodeError> {
        self.bits.align();
        let length = self.bits.read(16)?;
        if self.bits.read(16)? != length ^ 0xffff {
            return Err(DecodeError::Corrupt);
        }
        self.bits.align();
        self.bits.skip_bytes(length as usize)?;
        self.holds = self.holds.saturating_add(length);
        Ok(self.is_decided())
    }

    fn is_decided(&self) -> Option<Scanned> {
        let rest = (self.bits.rest_bytes() as u64).saturating_mul(MOST_PER_BYTE);
        let at_most = self.holds.saturating_add(rest);
        if at_most <= self.ceiling {
            Some(Scanned::Enough { at_most })
        } else if self.holds > self.ceiling {
            Some(Scanned::Over)
        } else {
            None
        }
    }

    fn fixed_codes(&mut self) -> Result<(), DecodeError> {
        let mut lengths = [8u8; LITERALS];
        for (symbol, length) in lengths.iter_mut().enumerate() {
            *length = match symbol {
                144..=255 => 9,
                256..=279 => 7,
                _ => 8,
            };
        }
        self.literals.build(&lengths, LITERAL_BITS, literal_entry)?;
        self.distances
            .build(&[5; DISTANCES], DISTANCE_BITS, distance_entry)
    }

    fn dynamic_codes(&mut self) -> Result<(), DecodeError> {
        let literals = (self.bits.read(5)? as usize).saturating_add(257);
        let distances = (self.bits.read(5)? as usize).saturating_add(1);
        let order = (self.bits.read(4)? as usize).saturating_add(4);
        if literals > 286 || distances > 30 {
            return Err(DecodeError::Corrupt);
        }
        let mut lengths = [0u8; 19];
        for place in LENGTHS_ORDER.iter().take(order) {
            let length = self.bits.read(3)? as u8;
            set(&mut lengths, usize::from(*place), length);
        }
        // Borrowed for the lengths of the other two.
        self.distances
            .build(&lengths, DISTANCE_BITS, length_entry)?;
        if self.distances.is_incomplete {
            return Err(DecodeError::Corrupt);
        }
        let mut lengths = [0u8; LITERALS + DISTANCES];
        let wanted = literals.saturating_add(distances);
        let (mut at, mut last) = (0usize, None);
        while at < wanted {
            self.bits.refill();
            let mut entry = self.distances.peek(&self.bits);
            if entry.is_special() {
                entry = self.distances.long(&self.bits)?;
            }
            self.bits.take(entry.bits())?;
            let (length, times) = match entry.adds() {
                16 => (
                    last.ok_or(DecodeError::Corrupt)?,
                    self.bits.read(2)?.saturating_add(3),
                ),
                17 => (0, self.bits.read(3)?.saturating_add(3)),
                18 => (0, self.bits.read(7)?.saturating_add(11)),
                length => (length as u8, 1),
            };
            let end = at.saturating_add(times as usize);
            if end > wanted {
                return Err(DecodeError::Corrupt);
            }
            lengths.get_mut(at..end).unwrap_or_default().fill(length);
            (at, last) = (end, Some(length));
        }
        let (of_literals, rest) = lengths.split_at_checked(literals).unwrap_or_default();
        let of_distances = rest.get(..distances).unwrap_or_default();
        if of_literals.get(END_OF_BLOCK) == Some(&0) {
            return Err(DecodeError::Corrupt);
        }
        self.literals
            .build(of_literals, LITERAL_BITS, literal_entry)?;
        self.distances
            .build(of_distances, DISTANCE_BITS, distance_entry)
    }

    /// The symbols of a block, to its end; `Some` where enough is known before.
    fn symbols(&mut self) -> Result<Option<Scanned>, DecodeError> {
        loop {
            let decided = self.is_decided();
            if decided.is_some() {
                return Ok(decided);
            }
            let pause_at = self.bits.at.saturating_add(STRIDE_BYTES);
            if self.symbols_until(pause_at)? {
                return Ok(None);
            }
        }
    }

    /// As many symbols as begin before `pause_at`; true at the block's end.
    fn symbols_until(&mut self, pause_at: usize) -> Result<bool, DecodeError> {
        // Copies, so that they stay in registers.
        let mut bits = self.bits;
        let mut holds = self.holds;
        let is_end = loop {
            if bits.at >= pause_at {
                break false;
            }
            // 15 and 5 bits of length, 15 and 13 of distance: one refill serves them all. Where the last bytes are
            // read ahead `at` moves no more, and the block ends or the input does.
            bits.refill();
            let mut entry = self.literals.peek(&bits);
            if entry.is_special() {
                entry = self.literals.long(&bits)?;
                if entry.is_end() {
                    holds = holds.saturating_add(entry.adds());
                    bits.take(entry.bits())?;
                    break true;
                }
            }
            // Without a branch on what it is: which one it is cannot be predicted. A literal takes no extra bits,
            // and a distance of none.
            let extra = bits.hold.wrapping_shr(entry.code_bits()) & entry.extra_mask();
            holds = holds.wrapping_add(entry.adds()).wrapping_add(extra);
            bits.take(entry.bits())?;
            let mut distance = self.distances.peek(&bits).only_if(entry.is_match());
            if distance.is_special() {
                distance = self.distances.long(&bits)?;
            }
            bits.take(distance.bits())?;
        };
        (self.bits, self.holds) = (bits, holds);
        Ok(is_end)
    }
}

/// What a code stands for, and what it takes: code and extra bits in the lowest byte, extra bits in the next, flags,
/// and what it adds in the upper half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry(u32);

impl Entry {
    /// A code that the table does not hold: longer, or of nothing.
    const LONG: Self = Self(Self::SPECIAL);
    const SPECIAL: u32 = 1 << 14;
    const END: u32 = 1 << 13;
    const MATCH: u32 = 1 << 12;

    const fn new(adds: u32, extra_bits: u32, flags: u32) -> Self {
        Self(adds.wrapping_shl(16) | flags | extra_bits.wrapping_shl(8) | extra_bits)
    }

    const fn with_code_bits(self, bits: u32) -> Self {
        Self(self.0.wrapping_add(bits))
    }

    /// Code and extra bits.
    const fn bits(self) -> u32 {
        self.0 & 0xff
    }

    const fn extra_bits(self) -> u32 {
        self.0.wrapping_shr(8) & 0xf
    }

    const fn code_bits(self) -> u32 {
        self.bits().wrapping_sub(self.extra_bits())
    }

    const fn extra_mask(self) -> u64 {
        1u64.wrapping_shl(self.extra_bits()).wrapping_sub(1)
    }

    const fn adds(self) -> u64 {
        self.0.wrapping_shr(16) as u64
    }

    const fn is_special(self) -> bool {
        self.0 & Self::SPECIAL != 0
    }

    const fn is_end(self) -> bool {
        self.0 & Self::END != 0
    }

    /// 1 or 0.
    const fn is_match(self) -> u32 {
        self.0.wrapping_shr(12) & 1
    }

    /// Nothing, where `wanted` is 0 and not 1.
    const fn only_if(self, wanted: u32) -> Self {
        Self(self.0 & 0u32.wrapping_sub(wanted))
    }
}

/// `None` for symbols that no code may have.
fn literal_entry(symbol: usize) -> Option<Entry> {
    let symbol = symbol as u32;
    Some(match symbol {
        0..=255 => Entry::new(1, 0, 0),
        256 => Entry::new(0, 0, Entry::END | Entry::SPECIAL),
        257..=264 => Entry::new(symbol.saturating_sub(254), 0, Entry::MATCH),
        265..=284 => {
            let step = symbol.saturating_sub(261);
            let extra_bits = step / 4;
            let base = (4 | (step & 3)).wrapping_shl(extra_bits);
            Entry::new(base.saturating_add(3), extra_bits, Entry::MATCH)
        }
        285 => Entry::new(258, 0, Entry::MATCH),
        _ => return None,
    })
}

fn distance_entry(symbol: usize) -> Option<Entry> {
    let extra_bits = (symbol as u32 / 2).saturating_sub(1);
    (symbol < 30).then_some(Entry::new(0, extra_bits, 0))
}

fn length_entry(symbol: usize) -> Option<Entry> {
    Some(Entry::new(symbol as u32, 0, 0))
}

/// A canonical Huffman code.
struct Code<const TABLE: usize, const SYMBOLS: usize> {
    /// By the next bits of input.
    table: [Entry; TABLE],
    /// How many codes there are of each length.
    counts: [u16; MOST_BITS + 1],
    /// Symbols in the order of their codes.
    symbols: [u16; SYMBOLS],
    /// Makes an entry of a symbol.
    entry: fn(usize) -> Option<Entry>,
    is_incomplete: bool,
}

impl<const TABLE: usize, const SYMBOLS: usize> Code<TABLE, SYMBOLS> {
    const fn new() -> Self {
        Self {
            table: [Entry::LONG; TABLE],
            counts: [0; MOST_BITS + 1],
            symbols: [0; SYMBOLS],
            entry: length_entry,
            is_incomplete: false,
        }
    }

    /// Takes each symbol's code length. Like zlib it refuses codes that overlap, and of those that leave gaps all but
    /// a single code of one bit, or none.
    fn build(
        &mut self,
        lengths: &[u8],
        table_bits: u32,
        entry: fn(usize) -> Option<Entry>,
    ) -> Result<(), DecodeError> {
        self.entry = entry;
        self.counts = [0; MOST_BITS + 1];
        for length in lengths {
            if let Some(count) = self.counts.get_mut(usize::from(*length)) {
                *count = count.saturating_add(1);
            }
        }
        self.counts[0] = 0;
        let mut free = 1i32;
        let mut longest = 0;
        // Where the codes of each length begin: among the symbols, and as numbers.
        let mut places = [0u16; MOST_BITS + 2];
        let mut codes = [0u32; MOST_BITS + 2];
        for (length, count) in self.counts.iter().enumerate().skip(1) {
            free = free.wrapping_mul(2).wrapping_sub(i32::from(*count));
            if free < 0 {
                return Err(DecodeError::Corrupt);
            }
            if *count > 0 {
                longest = length;
            }
            let next = length.saturating_add(1);
            let place = places.get(length).copied().unwrap_or(0);
            set(&mut places, next, place.saturating_add(*count));
            let code = codes.get(length).copied().unwrap_or(0);
            set(
                &mut codes,
                next,
                code.wrapping_add(u32::from(*count)).wrapping_mul(2),
            );
        }
        self.is_incomplete = free > 0;
        if self.is_incomplete && longest > 1 {
            return Err(DecodeError::Corrupt);
        }
        for (symbol, length) in lengths.iter().enumerate() {
            if let (1.., Some(place)) = (*length, places.get_mut(usize::from(*length))) {
                set(&mut self.symbols, usize::from(*place), symbol as u16);
                *place = place.saturating_add(1);
            }
        }
        self.fill_table(&codes, table_bits);
        Ok(())
    }

    /// By length: what stands there for shorter codes is doubled, then the codes of this length are set.
    fn fill_table(&mut self, first_codes: &[u32; MOST_BITS + 2], table_bits: u32) {
        let mut symbols = self.symbols.iter();
        set(&mut self.table, 0, Entry::LONG);
        let lengths = self.counts.iter().zip(first_codes).zip(0u32..);
        for ((count, first), bits) in lengths.skip(1).take(table_bits as usize) {
            let half = 1usize.wrapping_shl(bits.wrapping_sub(1));
            if let Some((done, double)) = self.table.split_at_mut_checked(half) {
                double
                    .iter_mut()
                    .zip(done)
                    .for_each(|(to, from)| *to = *from);
            }
            for (symbol, code) in symbols.by_ref().take(usize::from(*count)).zip(*first..) {
                // Codes are packed from their highest bit on, everything else from its lowest.
                let place = code.reverse_bits().wrapping_shr(32u32.wrapping_sub(bits));
                let entry = (self.entry)(usize::from(*symbol));
                let entry = entry.map_or(Entry::LONG, |entry| entry.with_code_bits(bits));
                set(&mut self.table, place as usize, entry);
            }
        }
    }

    /// What the table has for the next code.
    #[inline(always)]
    fn peek(&self, bits: &Bits<'_>) -> Entry {
        let place = (bits.hold as usize) & TABLE.wrapping_sub(1);
        self.table.get(place).copied().unwrap_or(Entry::LONG)
    }

    /// The next code, bit by bit.
    #[cold]
    fn long(&self, bits: &Bits<'_>) -> Result<Entry, DecodeError> {
        let (mut code, mut first, mut index) = (0u32, 0u32, 0u32);
        for (count, length) in self.counts.iter().zip(0u32..).skip(1) {
            code |= bits.hold.wrapping_shr(length.wrapping_sub(1)) as u32 & 1;
            let count = u32::from(*count);
            let above = code.wrapping_sub(first);
            if above < count {
                let place = index.saturating_add(above) as usize;
                let symbol = self.symbols.get(place).copied().unwrap_or(u16::MAX);
                let entry = (self.entry)(usize::from(symbol));
                return match entry {
                    Some(entry) => Ok(entry.with_code_bits(length)),
                    None => Err(DecodeError::Corrupt),
                };
            }
            index = index.saturating_add(count);
            first = first.saturating_add(count).wrapping_mul(2);
            code = code.wrapping_mul(2);
        }
        Err(DecodeError::Corrupt)
    }
}

fn set<T>(slots: &mut [T], at: usize, value: T) {
    if let Some(slot) = slots.get_mut(at) {
        *slot = value;
    }
}

/// Input bit by bit, the lowest of each byte first.
#[derive(Clone, Copy)]
struct Bits<'a> {
    bytes: &'a [u8],
    /// The next byte that is not in `hold`.
    at: usize,
    /// Bits read ahead; above `count` there may be some of the bytes from `at` on, as they will come.
    hold: u64,
    count: u32,
}

impl Bits<'_> {
    /// At least 56 bits ahead, or all there are.
    #[inline(always)]
    fn refill(&mut self) {
        let ahead = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk);
        if let Some(chunk) = ahead {
            self.hold |= u64::from_le_bytes(*chunk).wrapping_shl(self.count);
            self.at = self
                .at
                .wrapping_add((63u32.wrapping_sub(self.count) / 8) as usize);
            self.count |= 56;
            return;
        }
        while self.count < 56 {
            let Some(byte) = self.bytes.get(self.at) else {
                return;
            };
            self.hold |= u64::from(*byte).wrapping_shl(self.count);
            self.at = self.at.wrapping_add(1);
            self.count = self.count.wrapping_add(8);
        }
    }

    /// Some of the bits ahead, at most 32.
    #[inline(always)]
    fn take(&mut self, n: u32) -> Result<u64, DecodeError> {
        let Some(left) = self.count.checked_sub(n) else {
            return Err(DecodeError::Truncated);
        };
        let taken = self.hold & 1u64.wrapping_shl(n).wrapping_sub(1);
        self.hold = self.hold.wrapping_shr(n);
        self.count = left;
        Ok(taken)
    }

    fn read(&mut self, n: u32) -> Result<u64, DecodeError> {
        self.refill();
        self.take(n)
    }

    /// Drops what is left of a byte, and gives back whole bytes that were read ahead.
    fn align(&mut self) {
        self.at = self.at.saturating_sub((self.count / 8) as usize);
        (self.hold, self.count) = (0, 0);
    }

    /// Only where [`Self::align`] was called.
    fn skip_bytes(&mut self, n: usize) -> Result<(), DecodeError> {
        let at = self.at.saturating_add(n);
        if at > self.bytes.len() {
            return Err(DecodeError::Truncated);
        }
        self.at = at;
        Ok(())
    }

    /// Bytes not used up, a begun one among them.
    fn rest_bytes(&self) -> usize {
        let ahead = self.count.div_ceil(8) as usize;
        self.bytes
            .len()
            .saturating_sub(self.at)
            .saturating_add(ahead)
    }
}

//! Seeded choices: the same for the same seed, whatever the machine.

/// A linear congruential generator (Knuth's MMIX), of which the upper bits are used.
pub struct Random(pub u64);

impl Random {
    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// A place among `n`.
    pub fn place(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.place(most - least + 1)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these; `None` of none, which takes a number too.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = self.place(from.len().max(1));
        from.get(at).cloned()
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.place(choices.len())]
    }
}

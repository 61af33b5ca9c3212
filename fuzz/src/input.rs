//! Reads an input of the fuzzer as a sequence of decisions.

/// The rest of an input. At its end every byte is 0, so every input means something.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    /// A number below `end`, which is at most 256.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Whether a byte falls into one of `of` equal parts.
    pub fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    /// A length and as many bytes.
    pub fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    /// A number of any size.
    pub fn number(&mut self) -> i64 {
        match self.byte() {
            small @ 0..=223 => i64::from(small),
            224..=239 => i64::from(self.byte()) * 1000,
            _ => {
                let mut bytes = [0; 8];
                bytes.iter_mut().for_each(|byte| *byte = self.byte());
                i64::from_le_bytes(bytes)
            }
        }
    }
}

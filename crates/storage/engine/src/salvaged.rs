//! The fate of a damaged SSTable's content, once its readable rows were rewritten ([`crate::salvage`]).

use crate::watermark::RepairedWatermark;

/// Tokens greater than the first and up to the second.
pub type TokenSpan = (i64, i64);

/// The unreadable part of an SSTable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    /// The tokens.
    pub(crate) span: TokenSpan,
    /// Other SSTables of the time when it was salvaged may hold older rows of these tokens.
    pub(crate) may_hide: bool,
}

/// The fate of a damaged SSTable's content.
#[derive(Debug)]
pub(crate) struct Salvaged {
    /// The parts that could not be read, and were not yet repaired.
    pub(crate) lost: Vec<Lost>,
    /// Repairs that began with this mark or a later one of its epoch do without the SSTable.
    pub(crate) since: RepairedWatermark,
}

impl Salvaged {
    /// Removes repaired tokens.
    pub(crate) fn repaired(&mut self, (after, upto): TokenSpan) {
        if after >= upto {
            return;
        }
        let before = self.width();
        let lost = std::mem::take(&mut self.lost);
        let parts = lost.into_iter().flat_map(|lost| {
            let (from, to) = lost.span;
            [(from, to.min(after)), (from.max(upto), to)].map(|span| Lost { span, ..lost })
        });
        self.lost = parts.filter(|part| part.span.0 < part.span.1).collect();
        assert!(self.width() <= before, "a repair loses nothing");
    }

    /// How many tokens are lost.
    fn width(&self) -> u128 {
        self.lost.iter().map(|lost| u128::from(lost.span.1.abs_diff(lost.span.0))).sum()
    }

    /// Whether nothing is lost of the ranges that this node owns.
    pub(crate) fn is_complete(&self, owned: &[TokenSpan]) -> bool {
        let meet = |lost: &TokenSpan, owned: &TokenSpan| lost.0.max(owned.0) < lost.1.min(owned.1);
        !self.lost.iter().any(|lost| owned.iter().any(|owned| meet(&lost.span, owned)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repaired_tokens_are_not_lost() {
        let lost = [(0, 10), (20, 21)].map(|span| Lost { span, may_hide: false });
        let mut salvaged = Salvaged { lost: lost.into(), since: RepairedWatermark::default() };
        let spans = |salvaged: &Salvaged| salvaged.lost.iter().map(|lost| lost.span).collect::<Vec<_>>();
        salvaged.repaired((3, 5));
        assert_eq!(spans(&salvaged), [(0, 3), (5, 10), (20, 21)]);
        assert!(salvaged.is_complete(&[(3, 5), (10, 20), (21, 30)]));
        assert!(!salvaged.is_complete(&[(3, 5), (9, 20)]));
        salvaged.repaired((i64::MIN, 8));
        assert_eq!(spans(&salvaged), [(8, 10), (20, 21)]);
        salvaged.repaired((7, i64::MAX));
        assert!(salvaged.lost.is_empty() && salvaged.is_complete(&[(i64::MIN, i64::MAX)]));
    }
}

//! A rebuild as a value: its name, its source, whether it was cancelled, and its form in the node's directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A rebuild.
#[derive(Clone, Debug)]
pub struct Rebuild {
    /// When it was asked for, which is its name through all attempts.
    pub(crate) number: i64,
    /// The source datacenter; any replica without one.
    pub(crate) source: Option<Arc<str>>,
    /// All shards look whether it was cancelled.
    cancelled: Arc<AtomicBool>,
}

impl Rebuild {
    pub(super) fn new(number: i64, source: Option<Arc<str>>) -> Self {
        Self { number, source, cancelled: Arc::default() }
    }

    /// The same rebuild under the name of an earlier attempt.
    pub(super) fn named(self, number: i64) -> Self {
        Self { number, ..self }
    }

    /// The sources, for the operator.
    pub(super) fn name(&self) -> &str {
        self.source.as_deref().unwrap_or("(any dc)")
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// All shards stop at their next look.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        format!("{}\n{}", self.number, self.source.as_deref().unwrap_or_default()).into_bytes()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (number, source) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        Some(Self::new(number.parse().ok()?, Some(source).filter(|name| !name.is_empty()).map(Into::into)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_rebuild_is_read_again() {
        for source in [None, Some("dc east")] {
            let rebuild = Rebuild::new(1_795_316_596_000_000, source.map(Into::into));
            let read = Rebuild::decode(&rebuild.encode()).unwrap();
            assert_eq!((read.number, read.source), (rebuild.number, rebuild.source));
        }
        for damaged in [&b""[..], b"12", b"x\ny", b"\xff\n"] {
            assert!(Rebuild::decode(damaged).is_none(), "{damaged:?}");
        }
    }
}

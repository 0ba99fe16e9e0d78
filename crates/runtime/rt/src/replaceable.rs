//! A value that the shards of a node share and that is replaced as a whole, seldom.

use std::sync::{Arc, Mutex, PoisonError};

/// A shared value. Reading takes a lock for as long as an `Arc` is copied: not for every request.
#[derive(Debug)]
pub struct Replaceable<T>(Mutex<Arc<T>>);

impl<T> Replaceable<T> {
    /// Holds a value.
    pub fn new(value: T) -> Replaceable<T> {
        Replaceable(Mutex::new(Arc::new(value)))
    }

    /// The value of now.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the value. Holders of the former one are not affected.
    pub fn replace(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_of_the_old_value_keeps_it() {
        let shared = Replaceable::new(1);
        let before = shared.get();
        shared.replace(2);
        assert_eq!((*before, *shared.get()), (1, 2));
    }
}

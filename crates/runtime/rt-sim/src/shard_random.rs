//! The randomness of one shard of a simulated node.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use rt::driver::Random;

use crate::random::Rng;
use crate::world::World;

/// The randomness that one shard of the simulated node sees.
pub(crate) struct ShardRandom {
    pub(crate) rng: RefCell<Rng>,
    pub(crate) world: Rc<World>,
}

impl Random for ShardRandom {
    fn next_u64(&self) -> u64 {
        self.rng.borrow_mut().next_u64()
    }

    fn fill(&self, bytes: &mut [u8]) {
        let mut rng = self.rng.borrow_mut();
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&rng.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn disturbance(&self, point: &'static str) -> Option<Duration> {
        self.world.disturbance(point)
    }
}

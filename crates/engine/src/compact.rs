//! Compaction of one shard's tables: when it runs, and how its result enters the set.

use std::rc::Rc;

use crate::MaintenanceError;
use crate::engine::Inner;
use crate::store::Store;

/// See [`crate::Engine::compact`].
pub(crate) async fn major(inner: &Rc<Inner>, store: &Rc<Store>) -> Result<(), MaintenanceError> {
    inner.flush(store).await
}

//! Begins checks of derived tables, and ends them (`derived_checks`).

use std::rc::Rc;

use rt::{Group, LocalBoxFuture};

use crate::Coordinator;
use crate::derived_checks::{Check, DerivedCheck, DerivedCheckError, DerivedCheckStatus};
use crate::log_check_run::LogCheckRun;
use crate::view_check_run::ViewCheckRun;

impl Coordinator {
    /// Begins a check of a view or of a log of changes in the background; its number.
    ///
    /// # Errors
    /// When there is no such table, too many checks run, or the node stops.
    pub fn begin_derived_check(&self, wanted: DerivedCheck) -> Result<u64, DerivedCheckError> {
        let is_log = self.schema().table_by_id(wanted.derived).is_some_and(|table| table.is_cdc_log());
        let (check, run): (Rc<Check>, LocalBoxFuture<()>) = match is_log {
            true => {
                let run = LogCheckRun::new(self, wanted)?;
                (run.reads.check.clone(), Box::pin(async move { run.reads.end(run.all().await) }))
            }
            false => {
                let run = ViewCheckRun::new(self, wanted)?;
                (run.reads.check.clone(), Box::pin(async move { run.reads.end(run.all().await) }))
            }
        };
        let id = self.operations().derived_checks.add(check.clone())?;
        check.run_as(self.context().rt().spawn(Group::Maintenance, run));
        Ok(id)
    }

    /// Ends the checks that run, wherever they are, and begins none any more. To be called before the shards take no more requests.
    pub async fn stop_derived_checks(&self) {
        self.operations().derived_checks.stop().await;
    }

    /// The checks that run, and the last ones that have ended.
    pub fn derived_checks(&self) -> Vec<DerivedCheckStatus> {
        self.operations().derived_checks.statuses(self.context().rt().now())
    }

    /// Has a check end after the page at which it is; whether there is one of that number.
    pub fn cancel_derived_check(&self, id: u64) -> bool {
        self.operations().derived_checks.cancel(id)
    }
}

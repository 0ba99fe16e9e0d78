//! Statements of sessions to the executor.
use crate::node::Boot;
use coordinator::Coordinator;
use rt::Rt;
use std::rc::Rc;
use std::sync::Arc;
use wire::ResponseWriter;

pub(crate) type Processing = std::pin::Pin<Box<dyn Future<Output = ResponseWriter>>>;

pub(crate) fn processor(
    _rt: &Rt,
    _boot: &Arc<Boot>,
    _coordinator: &Coordinator,
) -> Box<dyn Fn(Rc<session::Client>, session::Statement, ResponseWriter) -> Processing> {
    Box::new(|_c, _s, mut w| {
        Box::pin(async move {
            w.void();
            w
        })
    })
}

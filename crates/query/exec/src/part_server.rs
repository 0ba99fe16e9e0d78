//! The parts of other shards' aggregations that this shard works on ([`select::parts`](crate::select::parts)): from the message to the plan, its rows, and
//! their states as a message. Apart from the others, because it plans the statement.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use replica::ReadCommand;
use rt::Instant;
use schema::ServiceLevel;

use crate::backend::{Clock, Coordinator};
use crate::error::Result;
use crate::expr::Env;
use crate::functions::CallContext;
use crate::lookup::Lookup;
use crate::plan::Plan;
use crate::principal::Principal;
use crate::request::{Caller, ExecLimits, Parameters, Request};
use crate::select::part_codec::PartRequest;
use crate::select::parts::{Divided, PART_TIME, add_rows, divides};

/// Does a part for another shard: its answer as a message.
///
/// # Errors
/// The reason why it is not done: the request is damaged or of another schema, or a read failed. The other shard then does the part itself.
pub(crate) async fn serve<C: Coordinator>(
    (coordinator, call, clock): (&C, &CallContext, &dyn Clock),
    limits: Rc<ExecLimits>,
    body: &Bytes,
    deadline: Instant,
) -> Result<Bytes, String> {
    let until = (clock.now() + PART_TIME).min(deadline);
    let schema = coordinator.schema();
    let asked = PartRequest::decode(body, &schema)?;
    let keyspace = asked.source.keyspace.as_deref();
    let planned = Plan::parse(&asked.source.text, keyspace, &Lookup { schema: &schema });
    let (plan, markers) = planned.map_err(|error| error.to_string())?;
    let Plan::Select(plan) = plan else { return Err("a part of a statement that is no SELECT".to_owned()) };
    let binds = asked.binds(&markers)?;
    let command = asked.command(&plan)?;
    let service_level = ServiceLevel::default();
    let principal = Principal { role: None, address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)) };
    let caller = Caller { principal, service_level: &service_level };
    let (now, deadline) = (Some(command.now), Some(deadline));
    let parameters = Parameters { now, deadline, ..Parameters::new(asked.consistency) };
    let request = Request::new(&caller, &parameters, keyspace, None, clock, limits);
    if !divides(&plan, &request, &ReadCommand { resume: None, ..command.clone() }) {
        return Err("this statement has no parts".to_owned());
    }
    let env = Env::new(&binds, call);
    let filters = plan.filters.iter().map(|one| one.bind(&env)).collect::<Result<Vec<_>>>();
    let filters = filters.map_err(|error| error.to_string())?;
    let divided = Divided::new(&plan, coordinator, &request, &env, &filters);
    let answer = add_rows(&divided, command, until).await.map_err(|error| error.to_string())?;
    Ok(answer.encode())
}

//! The state that the CQL connections of a shard share, and the messages between shards about them.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use rt::{DetachedStream, Instant, Port, Rt, Task};
use stdx::LogLimit;
use wire::Event;

use crate::accept::Acceptor;
use crate::admission::{Admission, Lending};
use crate::buffers::Buffers;
use crate::handshake::supported;
use crate::lending::Ledger;
use crate::peers::Peers;
use crate::pending::Places;
use crate::security::Security;
use crate::{
    Authenticator, ConnectionInfo, NodeDescription, SessionConfig, SessionMetrics, StatementProcessor,
};

/// The requests between shards.
pub(crate) enum Call {
    /// Own this connection from now on.
    Own(DetachedStream, Security),
    /// To shard 0: a connection of this address has ended.
    Closed(SocketAddr),
    /// Send this to the clients that have registered for it.
    Publish(Event),
    /// List the connections.
    List,
    /// Tell clients that this is the shard-aware port.
    ShardAwarePort(u16),
    /// To shard 0: about the node's limits on bytes in flight.
    Lending(Lending),
    /// From shard 0: a lease of so many bytes of a limit, of an address or in total.
    Leased(Option<IpAddr>, usize),
}

/// Their answers.
pub(crate) enum Reply {
    Done,
    /// The connection could not be handed over.
    Failed,
    Connections(Vec<ConnectionInfo>),
    /// A lease of so many bytes.
    Leased(usize),
}

/// The state that the connections of a shard share.
pub(crate) struct Shard<P: StatementProcessor> {
    pub(crate) rt: Rt,
    pub(crate) config: SessionConfig,
    pub(crate) node: NodeDescription,
    pub(crate) authenticator: Rc<dyn Authenticator>,
    pub(crate) processor: P,
    pub(crate) metrics: Rc<SessionMetrics>,
    pub(crate) admission: Rc<Admission>,
    /// The same for answers; each shard has its even share.
    pub(crate) answers: Rc<Admission>,
    pub(crate) buffers: Buffers,
    pub(crate) places: Places<P::Processing>,
    pub(crate) peers: Peers,
    /// On shard 0.
    pub(crate) acceptor: Option<Acceptor>,
    /// On shard 0.
    pub(crate) ledger: Option<RefCell<Ledger>>,
    pub(crate) accepting: RefCell<Vec<Task<()>>>,
    pub(crate) log_limit: RefCell<LogLimit>,
    pub(crate) shard_aware_port: Cell<Option<u16>>,
    pub(crate) port: Port<Call, Reply>,
}

impl<P: StatementProcessor> Shard<P> {
    /// The SUPPORTED options of this shard.
    pub(crate) fn supported(&self) -> Vec<(String, Vec<String>)> {
        let rt = &self.rt;
        supported(&self.node, rt.shard(), rt.shard_count(), self.shard_aware_port.get())
    }

    /// Logs why a connection was refused: at most some lines a second, however many there are.
    pub(crate) fn warn(&self, address: SocketAddr, why: &str) {
        let line = self.log_limit.borrow_mut().line(self.rt.now() - Instant::START);
        match line {
            None => {}
            Some(0) => tracing::warn!("refused a CQL connection from {address}: {why}"),
            Some(suppressed) => {
                tracing::warn!(
                    "refused a CQL connection from {address}: {why} ({suppressed} more such lines were left out)"
                );
            }
        }
    }
}

//! The calls of shard 0 to the shards of the node, and how each of them does it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::join_all;
use membership::{FetchedRanges, MembershipError, ShardTask};
use repair::JobStatus;
use rpc::{Messenger, RpcConfig};
use rt::ShardCall;
use rt::mesh::{Endpoint, Port};
use rt::sync::Notify;
use rt::{Rt, ShardId};
use topology::HostId;

use crate::boot::Boot;
use crate::facts::NodeFigures;
use crate::shard::{RunningShard, ShardSetup};
use crate::{Config, NodeError};

rt::shard_calls! {
    /// The calls of shard 0 to the shards.
    pub(crate) Order => Report, served by follower: &Follower {
        /// Reach other nodes.
        #[derive(Clone)]
        Connect { config: Arc<RpcConfig> } -> Result<(), NodeError> = follower.connect(config),
        /// Open storage.
        #[derive(Clone)]
        Open { boot: Arc<Boot> } -> Result<(), NodeError> = follower.open(boot).await,
        /// Carry out a task of a topology change.
        #[derive(Clone)]
        CarryOut { task: ShardTask } -> Result<FetchedRanges, MembershipError> = match follower.running() {
            Some(shard) => shard.streamer().carry_out(&follower.rt, task).await,
            None => Err(MembershipError::Stopped),
        },
        /// Complete logged batches that a crash interrupted.
        #[derive(Clone)]
        Replay {} -> Result<(), NodeError> = match follower.running() {
            Some(shard) => shard.replay_batches().await,
            None => Err(NodeError::Stopped),
        },
        /// Let clients in.
        #[derive(Clone)]
        Listen {} -> Result<(), NodeError> = match follower.running() {
            Some(shard) => shard.listen().await,
            None => Err(NodeError::Stopped),
        },
        /// Let no clients in any more, and close the connections of those that are there.
        #[derive(Clone)]
        CloseClients {} -> () = if let Some(shard) = follower.running() {
            shard.close_front().await;
        },
        /// Close the ports of CQL, and the connections.
        #[derive(Clone)]
        CloseNative {} -> () = if let Some(shard) = follower.running() {
            shard.front().close_native().await;
        },
        /// Let the shard have connections of CQL again.
        #[derive(Clone)]
        ResumeNative {} -> () = if let Some(shard) = follower.running() {
            shard.front().sessions().resume();
        },
        /// Open the ports of CQL again; shard 0 does so.
        #[derive(Clone)]
        ListenNative {} -> Result<(), NodeError> = match follower.running() {
            Some(shard) => shard.front().listen_native().await,
            None => Err(NodeError::Stopped),
        },
        /// Figures of this moment.
        #[derive(Clone)]
        Figures {} -> Box<admin::ShardFigures> = match follower.running() {
            Some(shard) => Box::new(shard.figures(&follower.rt)),
            None => Box::default(),
        },
        /// The requested repairs of the node; shard 0 has them.
        #[derive(Clone)]
        Repairs {} -> Vec<JobStatus> = follower.running().map_or_else(Vec::new, |shard| shard.repair().statuses()),
        /// Use changed settings.
        #[derive(Clone)]
        Configure { config: Arc<Config> } -> () = if let Some(shard) = follower.running() {
            shard.configure(&follower.rt, &config);
        },
        /// Change a setting of the node, and have every shard use it; shard 0 does so, so that no change is lost to another.
        #[derive(Clone)]
        ChangeSetting { name: String, value: String } -> Result<(), String> = follower.change_setting(&name, &value).await,
        /// Deliver no hints, or deliver them again.
        #[derive(Clone)]
        PauseHints { is_paused: bool } -> () = if let Some(shard) = follower.running() {
            shard.hints().set_paused(is_paused);
        },
        /// Drop the hints that are stored for a node, or for all.
        #[derive(Clone)]
        DropHints { host: Option<HostId> } -> () = if let Some(shard) = follower.running() {
            let stored = shard.hints().hosts().into_iter().map(|(stored, _)| stored);
            for stored in stored.filter(|stored| host.is_none_or(|host| host == *stored)) {
                shard.hints().drop_host(stored).await;
            }
        },
        /// Take no more requests, and finish those under way.
        #[derive(Clone)]
        Quiesce {} -> () = if let Some(shard) = follower.running() {
            shard.quiet().await;
        },
        /// Stop, in order, and end.
        #[derive(Clone)]
        Stop {} -> Result<(), NodeError> = follower.stop().await,
    }
}

/// A shard that carries out orders.
#[derive(Clone)]
pub(crate) struct Follower {
    rt: Rt,
    port: Port<Order, Report>,
    state: Rc<RefCell<State>>,
    ended: Rc<Notify>,
}

enum State {
    /// Not opened, and connected before it is.
    Waiting(Option<ShardSetup>, Option<Messenger>),
    Running(Rc<RunningShard>),
    Ended,
}

impl Follower {
    pub(crate) fn start(rt: &Rt, orders: Endpoint<Order, Report>, setup: ShardSetup) -> Self {
        let port = orders.attach(rt);
        let follower = Self {
            rt: rt.clone(),
            port: port.clone(),
            state: Rc::new(RefCell::new(State::Waiting(Some(setup), None))),
            ended: Rc::new(Notify::new()),
        };
        let server = follower.clone();
        port.serve(move |_, order| {
            let follower = server.clone();
            async move { order.serve(&follower).await }
        });
        follower
    }

    /// The way to all shards.
    pub(crate) fn port(&self) -> &Port<Order, Report> {
        &self.port
    }

    /// The shard's connections to other nodes, between connecting and opening.
    pub(crate) fn messenger(&self) -> Option<Messenger> {
        match &*self.state.borrow() {
            State::Waiting(_, messenger) => messenger.clone(),
            State::Running(_) | State::Ended => None,
        }
    }

    /// The shard, once its storage is open.
    pub(crate) fn running(&self) -> Option<Rc<RunningShard>> {
        match &*self.state.borrow() {
            State::Running(shard) => Some(shard.clone()),
            State::Waiting(..) | State::Ended => None,
        }
    }

    /// Returns when the shard has stopped.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Gives every shard an order; the first failure when all have reported.
    pub(crate) async fn order_all<C>(&self, order: C) -> Result<(), NodeError>
    where
        C: ShardCall<Request = Order, Response = Report, Answer = Result<(), NodeError>> + Clone,
    {
        join_all(self.port.ask_each(order)).await.into_iter().collect()
    }

    fn connect(&self, config: Arc<RpcConfig>) -> Result<(), NodeError> {
        match &mut *self.state.borrow_mut() {
            State::Waiting(Some(setup), messenger) => {
                let endpoint = setup.handover.take().expect("a shard is connected once");
                *messenger = Some(Messenger::new(&self.rt, config, endpoint));
            }
            State::Waiting(..) | State::Running(_) | State::Ended => {}
        }
        Ok(())
    }

    async fn open(&self, boot: Arc<Boot>) -> Result<(), NodeError> {
        let setup = match &mut *self.state.borrow_mut() {
            State::Waiting(setup, messenger) => setup.take().zip(messenger.clone()),
            State::Running(_) | State::Ended => None,
        };
        let (setup, messenger) = setup.expect("a shard is connected, then opened once");
        let changes = boot.config.enable_cql_config_updates;
        let shard = RunningShard::open(&self.rt, boot, setup, messenger).await?;
        if changes {
            let port = self.port.clone();
            shard.change_settings_with(Box::new(move |name, value| {
                let call = ChangeSetting { name: name.to_owned(), value: plain(value) };
                let port = port.clone();
                Box::pin(async move { port.ask(ShardId(0), call).await })
            }));
        }
        let (shards, repairs) = (self.port.clone(), self.port.clone());
        shard.show_node_with(NodeFigures {
            shards: Box::new(move || {
                let port = shards.clone();
                Box::pin(async move {
                    join_all(port.ask_each(Figures {})).await.into_iter().map(|figures| *figures).collect()
                })
            }),
            repairs: Box::new(move || {
                let port = repairs.clone();
                Box::pin(async move { port.ask(ShardId(0), Repairs {}).await })
            }),
        });
        *self.state.borrow_mut() = State::Running(Rc::new(shard));
        Ok(())
    }

    async fn change_setting(&self, name: &str, value: &str) -> Result<(), String> {
        assert_eq!(self.rt.shard(), ShardId(0), "shard 0 changes settings");
        let Some(shard) = self.running() else { return Err("the node is stopping".to_owned()) };
        let config = shard.settings().change(name, value).map_err(|error| error.to_string())?;
        join_all(self.port.ask_each(Configure { config })).await;
        Ok(())
    }

    async fn stop(&self) -> Result<(), NodeError> {
        let state = std::mem::replace(&mut *self.state.borrow_mut(), State::Ended);
        let result = match state {
            State::Running(shard) => shard.stop().await,
            State::Waiting(_, Some(messenger)) => {
                messenger.stop().await;
                Ok(())
            }
            State::Waiting(..) | State::Ended => Ok(()),
        };
        self.ended.notify_all();
        result
    }
}

/// A value as `torc.yaml` would have it. ScyllaDB's table shows JSON, in which a string is quoted: a value that is read can be written.
fn plain(value: &str) -> String {
    let unquoted = value.starts_with('"').then(|| serde_json::from_str(value).ok()).flatten();
    unquoted.unwrap_or_else(|| value.to_owned())
}

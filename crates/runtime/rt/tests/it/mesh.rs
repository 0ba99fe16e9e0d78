//! Messages between shards.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rt::{Endpoint, Group, Mesh, Port, Rt, ShardId};

use crate::backends::on_all_backends;

/// Hands the endpoints of one mesh to the shards of one node after another.
struct Endpoints<Req, Resp> {
    left: Arc<Mutex<Vec<Option<Endpoint<Req, Resp>>>>>,
    shards: u16,
    queue_max: usize,
}

impl<Req, Resp> Clone for Endpoints<Req, Resp> {
    fn clone(&self) -> Self {
        Endpoints { left: self.left.clone(), ..*self }
    }
}

impl<Req: Send + 'static, Resp: Send + 'static> Endpoints<Req, Resp> {
    fn new(shards: u16, queue_max: usize) -> Self {
        Endpoints { left: Arc::default(), shards, queue_max }
    }

    fn attach(&self, rt: &Rt) -> Port<Req, Resp> {
        let mut left = self.left.lock().unwrap();
        if left.iter().all(Option::is_none) {
            *left = Mesh::new(self.shards, self.queue_max).into_iter().map(Some).collect();
        }
        left[rt.shard().index()].take().expect("each shard takes its endpoint once").attach(rt)
    }
}

#[test]
fn every_shard_calls_every_shard() {
    let endpoints = Endpoints::<u64, (u16, u64)>::new(4, 16);
    on_all_backends(4, move |rt, _| {
        let port = endpoints.attach(&rt);
        async move {
            let me = rt.shard().0;
            let rt2 = rt.clone();
            port.serve(move |source, number| {
                let rt2 = rt2.clone();
                async move {
                    assert_eq!(rt2.current_group(), Group::Streaming, "the caller's group comes along");
                    if number % 3 == 0 {
                        rt2.sleep(Duration::from_micros(number % 100)).await;
                    }
                    (rt2.shard().0, number * 10 + u64::from(source.0))
                }
            });
            let calls: Vec<_> = (0..400u64)
                .map(|n| {
                    let port = port.clone();
                    let target = ShardId((n % 4) as u16);
                    rt.spawn(Group::Streaming, async move {
                        assert_eq!(port.call(target, n).await, (target.0, n * 10 + u64::from(me)));
                    })
                })
                .collect();
            for call in calls {
                call.await;
            }
            let stats = port.stats();
            assert_eq!((stats.local_calls, stats.calls), (100, 300));
            assert!(stats.throttled > 0, "100 calls do not fit into a queue of 16");
            assert!(stats.batches < stats.messages, "messages travel in batches: {stats:?}");
            for shard in 0..4 {
                assert_eq!((port.in_flight(ShardId(shard)), port.waiting(ShardId(shard))), (0, 0));
            }
        }
    });
}

#[test]
fn calls_wait_for_a_handler_and_for_room() {
    let endpoints = Endpoints::<u32, u32>::new(2, 4);
    on_all_backends(2, move |rt, _| {
        let port = endpoints.attach(&rt);
        async move {
            if rt.shard().0 == 1 {
                rt.sleep(Duration::from_millis(20)).await;
                let inside = Rc::new(Cell::new(0));
                let rt2 = rt.clone();
                port.serve(move |_, n| {
                    let (rt2, inside) = (rt2.clone(), Rc::clone(&inside));
                    async move {
                        inside.set(inside.get() + 1);
                        assert!(inside.get() <= 4, "no more than the queue has places");
                        rt2.sleep(Duration::from_micros(100)).await;
                        inside.set(inside.get() - 1);
                        n + 1
                    }
                });
                return;
            }
            port.serve(|_, n| async move { n + 1 });
            let done = Rc::new(Cell::new(0));
            let calls: Vec<_> = (0..50)
                .map(|n| {
                    let (port, done) = (port.clone(), Rc::clone(&done));
                    rt.spawn(Group::Statement, async move {
                        assert_eq!(port.call(ShardId(1), n).await, n + 1);
                        done.set(done.get() + 1);
                    })
                })
                .collect();
            rt.sleep(Duration::from_millis(2)).await;
            assert_eq!((port.in_flight(ShardId(1)), port.waiting(ShardId(1)), done.get()), (4, 46, 0));
            for call in calls {
                call.await;
            }
        }
    });
}

#[test]
fn a_call_given_up_gives_its_place_back() {
    let endpoints = Endpoints::<u32, u32>::new(2, 2);
    on_all_backends(2, move |rt, _| {
        let port = endpoints.attach(&rt);
        async move {
            let rt2 = rt.clone();
            port.serve(move |_, n| {
                let rt2 = rt2.clone();
                async move {
                    if n == 0 {
                        rt2.sleep(Duration::from_millis(10)).await;
                    }
                    n
                }
            });
            if rt.shard().0 == 1 {
                return;
            }
            for round in 1..20 {
                let slow = (0..3).map(|_| {
                    let port = port.clone();
                    rt.spawn(Group::Statement, async move { port.call(ShardId(1), 0).await })
                });
                let slow: Vec<_> = slow.collect();
                rt.sleep(Duration::from_millis(1)).await;
                drop(slow);
                assert_eq!(port.call(ShardId(1), round).await, round);
            }
            rt.sleep(Duration::from_millis(50)).await;
            assert_eq!(port.in_flight(ShardId(1)), 0);
        }
    });
}

/// The state of a shard of the typed calls.
struct Ledger {
    rt: Rt,
    sum: Cell<u64>,
}

rt::shard_calls! {
    /// Requests between ledgers.
    pub LedgerRequest => LedgerResponse, served by ledger: &Ledger {
        /// Adds.
        Add { amount: u64 } -> () = ledger.sum.set(ledger.sum.get() + amount),
        /// The sum so far, after a pause.
        #[derive(Clone)]
        Sum { pause: Duration } -> u64 = {
            ledger.rt.sleep(pause).await;
            ledger.sum.get()
        },
        /// The shard's name for an amount.
        Name { amount: u64, loud: bool } -> Result<String, bool> = {
            let name = format!("{} of {}", amount, ledger.rt.shard().0);
            if loud { Err(loud) } else { Ok(name) }
        },
    }
}

#[test]
fn typed_calls_have_the_answers_of_their_types() {
    let endpoints = Endpoints::<LedgerRequest, LedgerResponse>::new(3, 16);
    on_all_backends(3, move |rt, _| {
        let port = endpoints.attach(&rt);
        async move {
            let ledger = Rc::new(Ledger { rt: rt.clone(), sum: Cell::new(0) });
            port.serve(move |_, request| {
                let ledger = ledger.clone();
                async move { request.serve(&ledger).await }
            });
            if rt.shard() != ShardId(0) {
                return;
            }
            for shard in 0..3 {
                let () = port.ask(ShardId(shard), Add { amount: u64::from(shard) + 1 }).await;
            }
            port.ask(ShardId(2), Add { amount: 10 }).await;
            let mut sums = Vec::new();
            for sum in port.ask_each(Sum { pause: Duration::from_millis(1) }) {
                sums.push(sum.await);
            }
            assert_eq!(sums, [1, 2, 13], "one answer a shard, in their order");
            let name = port.ask(ShardId(1), Name { amount: 4, loud: false }).await;
            assert_eq!(name.as_deref(), Ok("4 of 1"));
            assert_eq!(port.ask(ShardId(0), Name { amount: 4, loud: true }).await, Err(true));
        }
    });
}

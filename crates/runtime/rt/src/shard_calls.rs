//! Typed calls between shards: each request names the type of its answer, and both enums that cross a [`crate::Mesh`] are made from
//! one list, so that a call cannot be answered with another's answer.

use crate::handle::ShardId;
use crate::mesh::Port;

/// A request of one shard to another of the same node, with the type of its answer. Implemented by [`crate::shard_calls!`].
pub trait ShardCall: Sized {
    /// The requests that cross the mesh.
    type Request: Send + 'static;
    /// The answers that cross the mesh.
    type Response: Send + 'static;
    /// The answer to this request.
    type Answer;

    /// The request as it crosses the mesh.
    fn request(self) -> Self::Request;

    /// The answer out of the response to this request.
    ///
    /// # Panics
    /// When it is the response to another request, which `serve` of the same list does not make.
    fn answer(response: Self::Response) -> Self::Answer;
}

impl<Req: Send + 'static, Resp: Send + 'static> Port<Req, Resp> {
    /// [`Port::call`] of a request of a list of [`crate::shard_calls!`].
    pub async fn ask<C>(&self, shard: ShardId, call: C) -> C::Answer
    where
        C: ShardCall<Request = Req, Response = Resp>,
    {
        C::answer(self.call(shard, call.request()).await)
    }

    /// A call of each shard, this one included, in their order. None is made before its future is polled.
    pub fn ask_each<C>(&self, call: C) -> impl Iterator<Item = impl Future<Output = C::Answer>>
    where
        C: ShardCall<Request = Req, Response = Resp> + Clone,
    {
        (0..self.shard_count()).map(move |shard| self.ask(ShardId(shard), call.clone()))
    }
}

/// Makes the calls between the shards of a node from one list: a struct a call, the enum of requests, the enum of answers, and
/// `serve`, by which a shard answers a request. A caller uses [`Port::ask`], which gives the answer of the type that the list says.
///
/// ```
/// struct Counter(std::cell::Cell<u64>);
///
/// rt::shard_calls! {
///     /// Requests between counters.
///     pub Request => Response, served by counter: &Counter {
///         /// Adds.
///         Add { amount: u64 } -> () = counter.0.set(counter.0.get() + amount),
///         /// The sum so far.
///         #[derive(Clone)]
///         Sum {} -> u64 = counter.0.get(),
///     }
/// }
/// ```
///
/// An expression may `await`, and uses the fields by their names.
#[macro_export]
macro_rules! shard_calls {
    (
        $(#[$meta:meta])*
        $vis:vis $request:ident => $response:ident, served by $server:ident: $server_type:ty {
            $(
                $(#[$call_meta:meta])*
                $call:ident { $($(#[$field_meta:meta])* $field:ident: $field_type:ty),* $(,)? }
                    -> $answer:ty = $serve:expr
            ),* $(,)?
        }
    ) => {
        $crate::shard_calls! {
            $(#[$meta])*
            $vis $request => $response {
                $($(#[$call_meta])* $call { $($(#[$field_meta])* $field: $field_type),* } -> $answer),*
            }
        }

        impl $request {
            /// Answers it on the shard that was asked.
            $vis async fn serve(self, $server: $server_type) -> $response {
                $crate::serve_shard_call!(self, $request => $response { $($call { $($field),* } => $serve),* })
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis $request:ident => $response:ident {
            $(
                $(#[$call_meta:meta])*
                $call:ident { $($(#[$field_meta:meta])* $field:ident: $field_type:ty),* $(,)? } -> $answer:ty
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis enum $request {
            $(#[doc = concat!("[`", stringify!($call), "`].")] $call($call)),*
        }

        #[doc = concat!("The answer to a [`", stringify!($request), "`].")]
        $vis enum $response {
            $(#[doc = concat!("To [`", stringify!($call), "`].")] $call($answer)),*
        }

        $(
            $(#[$call_meta])*
            $vis struct $call {
                $($(#[$field_meta])* $vis $field: $field_type),*
            }

            impl $crate::ShardCall for $call {
                type Request = $request;
                type Response = $response;
                type Answer = $answer;

                fn request(self) -> $request {
                    $request::$call(self)
                }

                fn answer(response: $response) -> $answer {
                    match response {
                        $response::$call(answer) => answer,
                        #[allow(unreachable_patterns)]
                        _ => unreachable!("a request is wrapped, and answered, by one line of the list"),
                    }
                }
            }
        )*
    };
}

/// Answers a request of a list of [`shard_calls!`] that does not say how: one line a call, as an expression of the answer's type. For a
/// server above its callers, which need the list.
#[macro_export]
macro_rules! serve_shard_call {
    ($asked:expr, $request:ident => $response:ident {
        $($call:ident { $($field:ident),* $(,)? } => $serve:expr),* $(,)?
    }) => {
        match $asked {
            $($request::$call($call { $($field),* }) => $response::$call($serve)),*
        }
    };
}

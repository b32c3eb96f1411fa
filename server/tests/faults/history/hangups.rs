//! Callers who hang up, at every step of every kind of request.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::clients::{Client, Held, LEFT};
use super::world::World;
use super::{Call, End, Operation};
use crate::wire::post;

/// How many callers there are at once.
const AT_ONCE: usize = 10;

/// The number of the first of them.
const FIRST: usize = 2_000;

/// So many callers ask and hang up, each of them at another step, at one node or another; how many did.
pub(super) async fn hang_up_at_every_step(world: &Arc<World>, seed: u64, callers: usize) -> u64 {
    let caller = |n: usize| async move {
        let mut client = Client::new(FIRST + n, seed, Arc::clone(world));
        let mut gone = 0;
        for step in 0..callers / AT_ONCE {
            gone += u64::from(client.leave(step * AT_ONCE + n).await);
        }
        gone
    };
    join_all((0..AT_ONCE).map(caller)).await.into_iter().sum()
}

impl Client {
    /// Sends a request, or half of one, and is gone.
    pub(super) async fn hang_up(&mut self) {
        let key = format!("hot/{}", self.chance.random_range(0..LEFT));
        let waits = self.likely(60);
        let (request, once) = (self.request(&key, waits), self.idempotency_key(30));
        if self.likely(20) {
            let (mut connection, _) = self.world.connect(self.node).await;
            let bytes = post(Call::Acquire.path(), &request, &self.world.id("half"), None);
            let _ = connection.send(&bytes[..bytes.len() - 10]).await;
            self.pause(20).await;
            return;
        }
        let patience = Duration::from_millis(self.chance.random_range(0..60));
        self.send_and_hang_up(Call::Acquire, request.clone(), once.as_deref(), sleep(patience)).await;
        if let Some(once) = once {
            // What was granted then is still to be had under the same key.
            let (answer, sent) = self.ask_surely(Call::Acquire, request, Some(&once)).await;
            if let Some(answer) = answer.filter(|answer| answer.status == 200)
                && let Some(held) = Held::of(&answer.body, 500, sent)
            {
                self.hold(held).await;
            }
        }
    }

    /// Asks for something that depends on `step`, and hangs up at a point that does; false if there was nobody to ask.
    async fn leave(&mut self, step: usize) -> bool {
        self.node = step % self.world.nodes();
        let key = format!("left/{}/{}", self.number, step % 2);
        let hot = format!("hot/{}", step % LEFT);
        let (call, body) = match step / 3 % 10 {
            0 => (Call::Acquire, self.request(&hot, true)),
            1 => (Call::Acquire, self.request(&hot, false)),
            2 => (Call::Get, json!({"lease_key": hot})),
            3 => (Call::List, json!({"prefix": "hot/", "limit": 50})),
            4 => {
                let leases = ["set/0", "set/3"].map(|key| Value::Object(self.terms(key)));
                (Call::AcquireMany, json!({"owner": format!("client-{}", self.number), "leases": leases}))
            }
            5 => (Call::Break, json!({"lease_key": hot, "reason": "never mind", "grace_ms": 100})),
            6 => (Call::Validate, json!({"lease_key": hot, "fencing_token": 1})),
            which => {
                let request = self.request(&key, false);
                let sent = self.world.now();
                let answer = self.ask(Call::Acquire, request, None).await;
                let held = answer.filter(|answer| answer.status == 200).and_then(|a| Held::of(&a.body, 500, sent));
                let Some(held) = held else { return false };
                let mut named = held.named();
                match which {
                    7 => (Call::Renew, named),
                    8 => (Call::Release, named),
                    _ => {
                        named["to_owner"] = json!(format!("heir-{}", self.number));
                        (Call::Transfer, named)
                    }
                }
            }
        };
        let point = async move {
            // From before it is read until after it is answered.
            for _ in 0..step % 24 {
                tokio::task::yield_now().await;
            }
            if !step.is_multiple_of(3) {
                sleep(Duration::from_millis(step as u64 % 13)).await;
            }
        };
        self.send_and_hang_up(call, body, None, point).await
    }

    /// Asks, and is gone once `patience` is over; false if nobody could be asked.
    async fn send_and_hang_up(
        &mut self,
        call: Call,
        body: Value,
        once: Option<&str>,
        patience: impl Future<Output = ()>,
    ) -> bool {
        let (mut connection, process) = self.world.connect(self.node).await;
        let id = self.world.id("op");
        let bytes = post(call.path(), &body, &id, once);
        let sent = self.world.now();
        let is_sent = connection.send(&bytes).await.is_ok();
        if is_sent {
            patience.await;
        }
        drop(connection);
        let (end, idempotency_key) = (End::HungUp { at: self.world.now() }, once.map(str::to_owned));
        self.world.note(Operation { id, client: self.number, process, call, body, idempotency_key, sent, end });
        is_sent
    }
}

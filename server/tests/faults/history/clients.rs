//! Clients that do all that clients do, as chance will have it, and write down what they asked and were told.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};
use tokio::time::{sleep, timeout};

use super::world::World;
use super::{Call, End, Mono, Operation};
use crate::process::PATIENCE;
use crate::wire::{Answer, Connection, post};

/// Keys that all clients want.
const HOT: usize = 5;
/// Those of them whose queues callers leave. Not all: where some may or may not still wait, less is known of the order
/// of the others.
pub(super) const LEFT: usize = 2;
/// Keys that are taken several at a time.
const SET: usize = 6;
/// Keys of each client's own.
const OWN: usize = 4;

/// A lease that a client holds.
#[derive(Clone)]
pub(super) struct Held {
    key: String,
    lease_id: String,
    token: u64,
    ttl: u64,
    sent: Mono,
}

impl Held {
    pub(super) fn of(lease: &Value, ttl: u64, sent: Mono) -> Option<Self> {
        let text = |field: &str| lease[field].as_str().map(str::to_owned);
        let (key, lease_id, token) = (text("lease_key")?, text("lease_id")?, lease["fencing_token"].as_u64()?);
        Some(Self { key, lease_id, token, ttl, sent })
    }

    pub(super) fn named(&self) -> Value {
        json!({"lease_key": self.key, "lease_id": self.lease_id})
    }
}

/// One client.
pub(super) struct Client {
    pub(super) number: usize,
    pub(super) world: Arc<World>,
    pub(super) chance: StdRng,
    /// The node it would rather ask.
    pub(super) node: usize,
    /// A connection that is kept, and the process it leads to.
    connection: Option<(Connection, usize)>,
    /// Tokens it had, by key.
    tokens: Vec<(String, u64)>,
}

impl Client {
    pub(super) fn new(number: usize, seed: u64, world: Arc<World>) -> Self {
        let chance = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let node = number % world.nodes();
        Self { number, world, chance, node, connection: None, tokens: Vec::new() }
    }

    /// Does this and that until told to stop.
    pub(super) async fn run(mut self) {
        while !self.world.is_over() {
            match self.chance.random_range(0..100) {
                0..42 => self.take_one().await,
                42..50 => self.take_several().await,
                50..58 => self.take_in_a_batch().await,
                58..65 => self.hang_up().await,
                65..71 => self.break_somebody().await,
                71..73 => self.quarantine().await,
                73..80 => self.validate().await,
                80..92 => {
                    let key = self.hot();
                    self.ask(Call::Get, json!({"lease_key": key}), None).await;
                }
                _ => {
                    let prefix = ["hot/", "own/", "set/"][self.chance.random_range(0..3)];
                    let mut request = json!({"prefix": prefix, "limit": 500});
                    if self.likely(50) {
                        request["status"] = json!("held");
                    }
                    self.ask(Call::List, request, None).await;
                }
            }
            self.pause(30).await;
        }
    }

    pub(super) fn likely(&mut self, percent: u32) -> bool {
        self.chance.random_ratio(percent, 100)
    }

    pub(super) async fn pause(&mut self, millis: u64) {
        let time = self.chance.random_range(0..=millis);
        sleep(Duration::from_millis(time)).await;
    }

    pub(super) fn hot(&mut self) -> String {
        format!("hot/{}", self.chance.random_range(0..HOT))
    }

    pub(super) fn idempotency_key(&mut self, percent: u32) -> Option<String> {
        self.likely(percent).then(|| self.world.id("once"))
    }

    /// Turns to the next node, if there is one.
    fn move_on(&mut self) {
        if self.world.is_shared() {
            self.node = (self.node + 1) % self.world.nodes();
            self.connection = None;
        }
    }

    /// How long it waits for an answer before it asks another node; none for as long as it takes. Who waits for a key
    /// is patient, but for the keys whose queues callers leave anyway.
    fn patience(&mut self, body: &Value) -> Option<Duration> {
        let wait = body["wait_ms"].as_u64().unwrap_or(0);
        let is_left = (0..LEFT).any(|n| body["lease_key"] == format!("hot/{n}"));
        if !self.world.is_shared() || (wait > 0 && !is_left) || self.likely(50) {
            return None;
        }
        Some(Duration::from_millis(wait + self.chance.random_range(800..2_500)))
    }

    /// Asks once, and writes down what came of it. `None` if the connection broke, or it was not answered in time.
    pub(super) async fn ask(&mut self, call: Call, body: Value, key: Option<&str>) -> Option<Answer> {
        if self.world.is_shared() && self.likely(6) {
            self.move_on();
        }
        self.ask_here(call, body, key).await
    }

    /// Asks this node once.
    pub(super) async fn ask_at(&mut self, node: usize, call: Call, body: Value) -> Option<Answer> {
        if self.node != node {
            (self.node, self.connection) = (node, None);
        }
        self.ask_here(call, body, None).await
    }

    async fn ask_here(&mut self, call: Call, body: Value, key: Option<&str>) -> Option<Answer> {
        let (mut connection, process) = match self.connection.take() {
            Some(kept) => kept,
            None => self.world.connect(self.node).await,
        };
        let id = self.world.id("op");
        let bytes = post(call.path(), &body, &id, key);
        let patience = self.patience(&body);
        self.world.begin(process);
        let sent = self.world.now();
        let exchange = async {
            connection.send(&bytes).await?;
            connection.receive().await
        };
        let exchanged = timeout(patience.unwrap_or(PATIENCE), exchange).await;
        let at = self.world.now();
        let (end, answer) = match exchanged {
            Ok(Ok(answer)) => {
                self.connection = Some((connection, process));
                let Answer { status, replayed, body } = answer.clone();
                (End::Answered { at, status, replayed, body }, Some(answer))
            }
            Ok(Err(_)) => (End::Broken { at }, None),
            Err(_) if patience.is_some() => {
                drop(connection);
                (End::HungUp { at: self.world.now() }, None)
            }
            Err(_) => panic!("{id} was never answered: {call:?} {body}"),
        };
        self.world.finish(process);
        if answer.as_ref().is_none_or(|answer| answer.status == 503) {
            self.move_on();
        }
        let idempotency_key = key.map(str::to_owned);
        self.world.note(Operation { id, client: self.number, process, call, body, idempotency_key, sent, end });
        answer
    }

    /// Asks until there is an answer, other than that nobody can answer now.
    pub(super) async fn insist(&mut self, call: Call, body: Value) -> Answer {
        loop {
            match self.ask(call, body.clone(), None).await {
                Some(answer) if answer.status != 503 => return answer,
                _ => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// Asks; with a key, again and again until there is an answer, and sometimes once more than needed.
    /// The answer, and when the request that it answers was sent.
    pub(super) async fn ask_surely(&mut self, call: Call, body: Value, key: Option<&str>) -> (Option<Answer>, Mono) {
        let mut sent = self.world.now();
        let mut answer = self.ask(call, body.clone(), key).await;
        if key.is_none() {
            return (answer, sent);
        }
        for _ in 0..8 {
            let is_open =
                answer.as_ref().is_none_or(|a| a.status == 503 || a.body["code"] == "idempotency_in_progress");
            if !is_open || !self.likely(85) {
                break;
            }
            self.pause(100).await;
            sent = self.world.now();
            answer = self.ask(call, body.clone(), key).await;
        }
        if self.likely(10) {
            sent = self.world.now();
            answer = self.ask(call, body.clone(), key).await;
        }
        if matches!(call, Call::Acquire | Call::Renew) && self.likely(8) {
            let mut other = body;
            other["ttl_ms"] = json!(other["ttl_ms"].as_u64().unwrap_or(500) + 1);
            // Should it be granted, since the first was refused, it is left to run out.
            self.ask(call, other, key).await;
        }
        (answer, sent)
    }

    /// The terms of an acquire.
    pub(super) fn terms(&mut self, key: &str) -> Map<String, Value> {
        let mut terms = Map::new();
        terms.insert("lease_key".into(), json!(key));
        terms.insert("ttl_ms".into(), json!(self.chance.random_range(150..2_500)));
        for (name, percent, least, most) in
            [("lock_delay_ms", 12, 0, 300), ("min_hold_ms", 10, 0, 400), ("max_hold_ms", 15, 400, 3_000)]
        {
            if self.likely(percent) {
                terms.insert(name.into(), json!(self.chance.random_range(least..most)));
            }
        }
        terms
    }

    pub(super) fn request(&mut self, key: &str, waits: bool) -> Value {
        let mut terms = self.terms(key);
        terms.insert("owner".into(), json!(format!("client-{}", self.number)));
        if waits {
            // Some wait for longer than a node that is gone is taken for one that lives.
            let (least, most) = if self.world.is_shared() && self.likely(20) { (3_500, 8_000) } else { (0, 2_500) };
            terms.insert("wait_ms".into(), json!(self.chance.random_range(least..most)));
        }
        if self.likely(10) {
            terms.insert("subjects".into(), json!(["customer:acme"]));
            terms.insert("metadata".into(), json!({"host": format!("h{}", self.number)}));
        }
        Value::Object(terms)
    }

    async fn take_one(&mut self) {
        let key = if self.likely(75) {
            self.hot()
        } else {
            format!("own/{}/{}", self.number, self.chance.random_range(0..OWN))
        };
        let waits = self.likely(65);
        let (request, once) = (self.request(&key, waits), self.idempotency_key(40));
        let (answer, sent) = self.ask_surely(Call::Acquire, request.clone(), once.as_deref()).await;
        if let Some(answer) = answer.filter(|answer| answer.status == 200)
            && let Some(held) = Held::of(&answer.body, request["ttl_ms"].as_u64().unwrap_or(0), sent)
        {
            self.hold(held).await;
        }
    }

    /// Does something with a lease, and comes to an end with it.
    pub(super) async fn hold(&mut self, mut held: Held) {
        self.tokens.push((held.key.clone(), held.token));
        for _ in 0..self.chance.random_range(0..4) {
            self.pause(120).await;
            if self.likely(75) && !self.renew(&mut held).await {
                break;
            }
        }
        match self.chance.random_range(0..100) {
            0..60 => self.release(&held).await,
            60..75 => self.transfer(held).await,
            // Leaves it to itself.
            75..85 => {}
            _ => {
                // Comes too late, or so it believes.
                let over = held.sent + Mono::try_from(held.ttl).unwrap() * 1_000;
                let left = u64::try_from(over - self.world.now()).unwrap_or(0);
                sleep(Duration::from_micros(left)).await;
                self.pause(40).await;
                self.renew(&mut held).await;
                self.release(&held).await;
            }
        }
    }

    async fn renew(&mut self, held: &mut Held) -> bool {
        let mut request = held.named();
        let mut ttl = held.ttl;
        if self.likely(60) {
            ttl = self.chance.random_range(150..2_500);
            request["ttl_ms"] = json!(ttl);
        }
        if self.likely(15) {
            request["shorten"] = json!(true);
        }
        let once = self.idempotency_key(30);
        let (answer, sent) = self.ask_surely(Call::Renew, request, once.as_deref()).await;
        let Some(answer) = answer else { return true };
        if answer.status == 200 {
            (held.ttl, held.sent) = (ttl, sent);
        }
        answer.status == 200
    }

    async fn release(&mut self, held: &Held) {
        let once = self.idempotency_key(20);
        self.ask_surely(Call::Release, held.named(), once.as_deref()).await;
        if self.likely(15) {
            self.pause(30).await;
            self.ask(Call::Release, held.named(), None).await;
        }
    }

    async fn transfer(&mut self, held: Held) {
        let mut request = held.named();
        request["to_owner"] = json!(format!("heir-{}", self.number));
        let once = self.idempotency_key(30);
        let (answer, sent) = self.ask_surely(Call::Transfer, request, once.as_deref()).await;
        let Some(answer) = answer.filter(|answer| answer.status == 200) else { return };
        let Some(mut heir) = Held::of(&answer.body, held.ttl, sent) else { return };
        self.tokens.push((heir.key.clone(), heir.token));
        self.pause(60).await;
        self.renew(&mut heir).await;
        self.release(&heir).await;
        if self.likely(30) {
            // The lease that was handed over is none of the one who gave it.
            self.ask(Call::Renew, held.named(), None).await;
        }
    }

    async fn take_several(&mut self) {
        let first = self.chance.random_range(0..SET);
        let count = self.chance.random_range(2..=4);
        let leases: Vec<Value> =
            (0..count).map(|place| Value::Object(self.terms(&format!("set/{}", (first + place) % SET)))).collect();
        let request = json!({"owner": format!("client-{}", self.number), "leases": leases});
        let once = self.idempotency_key(40);
        let (answer, sent) = self.ask_surely(Call::AcquireMany, request, once.as_deref()).await;
        let Some(answer) = answer.filter(|answer| answer.status == 200) else { return };
        let leases = answer.body["leases"].as_array().into_iter().flatten();
        let held: Vec<Held> = leases.filter_map(|lease| Held::of(lease, 500, sent)).collect();
        self.pause(100).await;
        self.give_back(&held).await;
    }

    async fn take_in_a_batch(&mut self) {
        let mut operations = Vec::new();
        for _ in 0..self.chance.random_range(1..5) {
            let key = format!("set/{}", self.chance.random_range(0..SET));
            operations.push(json!({"acquire": self.request(&key, false)}));
        }
        let once = self.idempotency_key(30);
        let (answer, sent) = self.ask_surely(Call::Batch, json!({"operations": operations}), once.as_deref()).await;
        let Some(answer) = answer.filter(|answer| answer.status == 200) else { return };
        let results = answer.body["results"].as_array().into_iter().flatten();
        let held: Vec<Held> = results.filter_map(|result| Held::of(&result["ok"], 500, sent)).collect();
        self.pause(100).await;
        self.give_back(&held).await;
    }

    /// Renews and releases several leases in one batch.
    async fn give_back(&mut self, held: &[Held]) {
        if held.is_empty() || self.likely(15) {
            return;
        }
        let mut operations = Vec::new();
        for one in held {
            self.tokens.push((one.key.clone(), one.token));
            if self.likely(40) {
                operations.push(json!({"renew": one.named()}));
            }
            operations.push(json!({"release": one.named()}));
        }
        let once = self.idempotency_key(30);
        self.ask_surely(Call::Batch, json!({"operations": operations}), once.as_deref()).await;
    }

    async fn break_somebody(&mut self) {
        let key = self.hot();
        let grace = if self.likely(40) { 0 } else { self.chance.random_range(50..800) };
        let reason = format!("stuck, says client {}", self.number);
        let once = self.idempotency_key(20);
        let request = json!({"lease_key": key, "reason": reason, "grace_ms": grace});
        self.ask_surely(Call::Break, request, once.as_deref()).await;
    }

    async fn quarantine(&mut self) {
        let key = self.hot();
        self.ask(Call::Quarantine, json!({"lease_key": key, "reason": "under suspicion"}), None).await;
        self.pause(300).await;
        self.lift(&key).await;
    }

    /// Until it is so: a key left in quarantine would have no history.
    pub(super) async fn lift(&mut self, key: &str) {
        self.insist(Call::Lift, json!({"lease_key": key, "reason": "cleared"})).await;
    }

    async fn validate(&mut self) {
        if self.tokens.is_empty() {
            return;
        }
        let place = self.chance.random_range(0..self.tokens.len());
        let (key, token) = self.tokens[place].clone();
        self.ask(Call::Validate, json!({"lease_key": key, "fencing_token": token}), None).await;
    }
}

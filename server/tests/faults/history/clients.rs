//! Clients that do all that clients do, as chance will have it, and write down what they asked and were told.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{Call, End, Mono, Operation};
use crate::process::PATIENCE;
use crate::wire::{Answer, Connection, post};

/// Keys that all clients want.
pub(super) const HOT: usize = 5;
/// Keys that are taken several at a time.
const SET: usize = 6;
/// Keys of each client's own.
const OWN: usize = 4;

/// What all clients share.
pub(super) struct World {
    began: Instant,
    address: watch::Receiver<Option<SocketAddr>>,
    next: AtomicU64,
    record: Mutex<Vec<Operation>>,
    in_flight: AtomicUsize,
    is_over: AtomicBool,
}

impl World {
    pub(super) fn new(address: watch::Receiver<Option<SocketAddr>>) -> Self {
        Self {
            began: Instant::now(),
            address,
            next: AtomicU64::new(1),
            record: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Microseconds since the start.
    pub(super) fn now(&self) -> Mono {
        Mono::try_from(self.began.elapsed().as_micros()).unwrap()
    }

    /// Tells the clients to come to an end.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// How many requests are under way.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// What was recorded, in the order of sending.
    pub(super) fn take_record(&self) -> Vec<Operation> {
        let mut operations = std::mem::take(&mut *self.record.lock().unwrap());
        operations.sort_by_key(|operation| operation.sent);
        operations
    }

    /// All keys that were asked for so far.
    pub(super) fn keys(&self) -> Vec<String> {
        let record = self.record.lock().unwrap();
        let single = record.iter().filter_map(|operation| operation.key());
        let many = record.iter().flat_map(|operation| operation.body["leases"].as_array().into_iter().flatten());
        let batch = record.iter().flat_map(|operation| operation.body["operations"].as_array().into_iter().flatten());
        let several = many.chain(batch.map(|one| &one["acquire"])).filter_map(|one| one["lease_key"].as_str());
        let mut keys: Vec<String> = single.chain(several).map(str::to_owned).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    fn id(&self, kind: &str) -> String {
        format!("{kind}-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// A connection to the server as it now is; waits while there is none.
    pub(super) async fn connect(&self) -> Connection {
        let mut address = self.address.clone();
        loop {
            let there = address.wait_for(Option::is_some).await.map(|address| *address);
            let Ok(Some(there)) = there else { panic!("the run ended under its clients") };
            if let Ok(connection) = Connection::open(there).await {
                return connection;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A lease that a client holds.
#[derive(Clone)]
struct Held {
    key: String,
    lease_id: String,
    token: u64,
    ttl: u64,
    sent: Mono,
}

impl Held {
    fn of(lease: &Value, ttl: u64, sent: Mono) -> Option<Self> {
        let text = |field: &str| lease[field].as_str().map(str::to_owned);
        let (key, lease_id, token) = (text("lease_key")?, text("lease_id")?, lease["fencing_token"].as_u64()?);
        Some(Self { key, lease_id, token, ttl, sent })
    }

    fn named(&self) -> Value {
        json!({"lease_key": self.key, "lease_id": self.lease_id})
    }
}

/// One client.
pub(super) struct Client {
    number: usize,
    world: Arc<World>,
    chance: StdRng,
    connection: Option<Connection>,
    /// Tokens it had, by key.
    tokens: Vec<(String, u64)>,
}

impl Client {
    pub(super) fn new(number: usize, seed: u64, world: Arc<World>) -> Self {
        let chance = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        Self { number, world, chance, connection: None, tokens: Vec::new() }
    }

    /// Does this and that until told to stop.
    pub(super) async fn run(mut self) {
        while !self.world.is_over.load(Ordering::Relaxed) {
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

    fn likely(&mut self, percent: u32) -> bool {
        self.chance.random_ratio(percent, 100)
    }

    async fn pause(&mut self, millis: u64) {
        let time = self.chance.random_range(0..=millis);
        sleep(Duration::from_millis(time)).await;
    }

    fn hot(&mut self) -> String {
        format!("hot/{}", self.chance.random_range(0..HOT))
    }

    fn idempotency_key(&mut self, percent: u32) -> Option<String> {
        self.likely(percent).then(|| self.world.id("once"))
    }

    /// Asks once, and writes down what came of it. `None` if the connection broke.
    pub(super) async fn ask(&mut self, call: Call, body: Value, key: Option<&str>) -> Option<Answer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.world.connect().await,
        };
        let id = self.world.id("op");
        let bytes = post(call.path(), &body, &id, key);
        self.world.in_flight.fetch_add(1, Ordering::Relaxed);
        let sent = self.world.now();
        let exchange = async {
            connection.send(&bytes).await?;
            connection.receive().await
        };
        let answer =
            timeout(PATIENCE, exchange).await.unwrap_or_else(|_| panic!("{id} was never answered: {call:?} {body}"));
        let at = self.world.now();
        self.world.in_flight.fetch_sub(1, Ordering::Relaxed);
        let end = match &answer {
            Ok(Answer { status, replayed, body }) => {
                End::Answered { at, status: *status, replayed: *replayed, body: body.clone() }
            }
            Err(_) => End::Broken { at },
        };
        if answer.is_ok() {
            self.connection = Some(connection);
        }
        self.note(id, call, body, key, sent, end);
        answer.ok()
    }

    fn note(&self, id: String, call: Call, body: Value, key: Option<&str>, sent: Mono, end: End) {
        let idempotency_key = key.map(str::to_owned);
        let operation = Operation { id, client: self.number, call, body, idempotency_key, sent, end };
        self.world.record.lock().unwrap().push(operation);
    }

    /// Asks; with a key, again and again until there is an answer, and sometimes once more than needed.
    /// The answer, and when the request that it answers was sent.
    async fn ask_surely(&mut self, call: Call, body: Value, key: Option<&str>) -> (Option<Answer>, Mono) {
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
    fn terms(&mut self, key: &str) -> Map<String, Value> {
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

    fn request(&mut self, key: &str, waits: bool) -> Value {
        let mut terms = self.terms(key);
        terms.insert("owner".into(), json!(format!("client-{}", self.number)));
        if waits {
            terms.insert("wait_ms".into(), json!(self.chance.random_range(0..2_500)));
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
    async fn hold(&mut self, mut held: Held) {
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

    /// Sends a request, or half of one, and is gone.
    async fn hang_up(&mut self) {
        // Not on all of them: where some may or may not still wait, less is known of the order of the others.
        let key = format!("hot/{}", self.chance.random_range(0..2));
        let waits = self.likely(60);
        let (request, once) = (self.request(&key, waits), self.idempotency_key(30));
        let mut connection = self.world.connect().await;
        if self.likely(20) {
            let bytes = post(Call::Acquire.path(), &request, &self.world.id("half"), None);
            let _ = connection.send(&bytes[..bytes.len() - 10]).await;
            self.pause(20).await;
            return;
        }
        let id = self.world.id("op");
        let bytes = post(Call::Acquire.path(), &request, &id, once.as_deref());
        let sent = self.world.now();
        let is_sent = connection.send(&bytes).await.is_ok();
        if is_sent {
            self.pause(60).await;
        }
        drop(connection);
        let at = self.world.now();
        self.note(id, Call::Acquire, request.clone(), once.as_deref(), sent, End::HungUp { at });
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
        let request = json!({"lease_key": key, "reason": "cleared"});
        while self.ask(Call::Lift, request.clone(), None).await.is_none_or(|answer| answer.status == 503) {}
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

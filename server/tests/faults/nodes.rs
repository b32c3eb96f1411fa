//! Two nodes on one PostgreSQL database, one of which is killed or stands still: what becomes of those who wait.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::history::Call;
use crate::postgres::Postgres;
use crate::process::{IN_TURN, PATIENCE, Place, ServerProcess};
use crate::wire::{Answer, Connection, post};

/// A while that is short for nodes.
const WHILE: Duration = Duration::from_secs(1);
/// What is to happen at once may take so long on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(2);
/// For so long a node that is gone is taken for one that lives.
const UNSEEN: Duration = Duration::from_secs(3);
/// How often nodes look after what others left behind.
const BEAT: Duration = Duration::from_secs(1);

/// Two nodes and a key that somebody holds at the second.
struct Scene {
    // First, so that nobody serves the database when it is dropped.
    nodes: Vec<ServerProcess>,
    _places: Vec<Place>,
    database: Postgres,
    holder: Connection,
    lease_id: Value,
}

impl Scene {
    async fn new() -> Self {
        let database = Postgres::new().await;
        let places: Vec<Place> = (0..2).map(|_| Place::on(database.url())).collect();
        let mut nodes = Vec::new();
        for place in &places {
            nodes.push(place.start().await);
        }
        let mut holder = Connection::open(nodes[1].address).await.unwrap();
        let lease = ask(&mut holder, Call::Acquire, &wanted("holder")).await;
        assert_eq!(lease.status, 200, "{}", lease.body);
        let lease_id = lease.body["lease_id"].clone();
        Self { nodes, _places: places, database, holder, lease_id }
    }

    /// Somebody waits at this node, known to be in the queue with so many.
    async fn wait_at(&mut self, node: usize, owner: &str, count: u64) -> Connection {
        let mut waiter = Connection::open(self.nodes[node].address).await.unwrap();
        let mut request = wanted(owner);
        request["wait_ms"] = json!(60_000);
        waiter.send(&post(Call::Acquire.path(), &request, "waits", None)).await.unwrap();
        let began = Instant::now();
        while ask(&mut self.holder, Call::Get, &json!({"lease_key": "k"})).await.body["queue_length"] != count {
            assert!(began.elapsed() < PATIENCE, "{owner} never joined the queue");
            sleep(Duration::from_millis(5)).await;
        }
        waiter
    }

    /// The holder gives the key back, at the second node.
    async fn release(&mut self) {
        let named = json!({"lease_key": "k", "lease_id": self.lease_id});
        let answer = ask(&mut self.holder, Call::Release, &named).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// Who was granted the key, in order.
    async fn granted(&self) -> Vec<String> {
        self.database.sequenced().await;
        let lines = self.database.timeline().await;
        let events = lines.iter().map(|line| serde_json::from_str::<Value>(&line.body).unwrap());
        let grants = events.filter(|event| event["kind"] == "lease.granted");
        grants.filter_map(|event| event["owner"].as_str().map(str::to_owned)).collect()
    }
}

fn wanted(owner: &str) -> Value {
    json!({"lease_key": "k", "owner": owner, "ttl_ms": 600_000})
}

async fn ask(connection: &mut Connection, call: Call, body: &Value) -> Answer {
    connection.send(&post(call.path(), body, "asked", None)).await.unwrap();
    told(connection, PATIENCE).await
}

/// What a waiter is told, within that time.
async fn told(waiter: &mut Connection, patience: Duration) -> Answer {
    timeout(patience, waiter.receive()).await.unwrap_or_else(|_| panic!("no answer within {patience:?}")).unwrap()
}

#[tokio::test]
async fn nodes_that_start_at_once_on_an_empty_database_all_serve_it() {
    let _alone = IN_TURN.lock().await;
    let database = Postgres::new().await;
    let places: Vec<Place> = (0..3).map(|_| Place::on(database.url())).collect();
    let nodes = join_all(places.iter().map(Place::start)).await;
    for (n, node) in nodes.iter().enumerate() {
        let mut connection = Connection::open(node.address).await.unwrap();
        let answer = ask(&mut connection, Call::Acquire, &wanted(&format!("w{n}"))).await;
        assert_eq!(answer.status, if n == 0 { 200 } else { 409 }, "{}", answer.body);
    }
}

#[tokio::test]
async fn who_waits_at_a_node_that_was_killed_is_passed_over_three_seconds_later() {
    let _alone = IN_TURN.lock().await;
    let mut scene = Scene::new().await;
    let _gone = scene.wait_at(0, "gone", 1).await;
    let mut next = scene.wait_at(1, "next", 2).await;
    scene.nodes.remove(0).kill().await;
    sleep(UNSEEN + WHILE).await;
    scene.release().await;
    let lease = told(&mut next, AT_ONCE).await;
    assert_eq!((lease.status, &lease.body["owner"]), (200, &json!("next")));
    assert_eq!(scene.granted().await, ["holder", "next"]);
}

#[tokio::test]
async fn a_key_that_falls_to_a_node_just_killed_goes_to_the_next_waiter_seconds_later() {
    let _alone = IN_TURN.lock().await;
    let mut scene = Scene::new().await;
    let _gone = scene.wait_at(0, "gone", 1).await;
    let mut next = scene.wait_at(1, "next", 2).await;
    scene.nodes.remove(0).kill().await;
    // So soon nobody can know that there is nobody to serve.
    scene.release().await;
    let lease = told(&mut next, UNSEEN + BEAT + AT_ONCE).await;
    assert_eq!((lease.status, &lease.body["owner"]), (200, &json!("next")));
    assert_eq!(scene.granted().await, ["holder", "gone", "next"]);
}

#[tokio::test]
async fn who_waits_at_a_node_that_stands_still_for_a_while_keeps_the_place() {
    let _alone = IN_TURN.lock().await;
    let mut scene = Scene::new().await;
    let mut first = scene.wait_at(0, "first", 1).await;
    let mut next = scene.wait_at(1, "next", 2).await;
    scene.nodes[0].pause();
    sleep(WHILE).await;
    scene.release().await;
    sleep(WHILE / 2).await;
    scene.nodes[0].go_on();
    let lease = told(&mut first, AT_ONCE).await;
    assert_eq!((lease.status, &lease.body["owner"]), (200, &json!("first")));
    // The other waits on.
    assert!(timeout(WHILE, next.receive()).await.is_err());
    assert_eq!(scene.granted().await, ["holder", "first"]);
}

#[tokio::test]
async fn a_node_that_stood_still_for_too_long_turns_away_all_who_wait_at_it() {
    let _alone = IN_TURN.lock().await;
    let mut scene = Scene::new().await;
    let mut passed_over = scene.wait_at(0, "passed over", 1).await;
    let mut next = scene.wait_at(1, "next", 2).await;
    scene.nodes[0].pause();
    sleep(UNSEEN + WHILE).await;
    scene.release().await;
    let lease = told(&mut next, AT_ONCE).await;
    assert_eq!((lease.status, &lease.body["owner"]), (200, &json!("next")));
    scene.nodes[0].go_on();
    let turned_away = told(&mut passed_over, BEAT + AT_ONCE).await;
    assert_eq!((turned_away.status, &turned_away.body["code"]), (503, &json!("unavailable")));
    // And it serves on.
    let busy = ask(&mut passed_over, Call::Acquire, &wanted("passed over")).await;
    assert_eq!((busy.status, &busy.body["details"]["owner"]), (409, &json!("next")));
    assert_eq!(scene.granted().await, ["holder", "next"]);
}

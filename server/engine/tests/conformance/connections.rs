//! The way to the database: cut, closed, silent, or left half way by callers who hang up.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use domain::lease::{Command, LeaseReading};
use engine::reading::HistoryQuery;
use engine::timeline::Position;
use engine::{Engine, Fault, Options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::database::Database;
use crate::fixture::{Fixture, Hands, call, call_once, delivered, lease_key, options, refusal, terms};
use crate::lists::all;
use crate::nodes::grants;

/// What becomes of what is sent to the database, and of its answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It arrives.
    Open,
    /// It is kept, and nobody is told.
    Silent,
    /// Connections are ended, and so is every new one.
    Closed,
}

/// A way to the database that fails when the test wants it to.
struct Way {
    address: SocketAddr,
    /// And how often all connections were cut.
    state: watch::Sender<(State, u32)>,
}

impl Way {
    async fn to(place: (String, u16)) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = watch::Sender::new((State::Open, 0));
        let seen = state.subscribe();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, place.clone(), seen.clone()));
            }
        });
        Self { address, state }
    }

    fn be(&self, state: State) {
        self.state.send_modify(|(now, _)| *now = state);
    }

    fn cut(&self) {
        self.state.send_modify(|(_, cuts)| *cuts += 1);
    }
}

/// Carries one connection until either side or the way ends it.
async fn carry(client: TcpStream, place: (String, u16), seen: watch::Receiver<(State, u32)>) {
    let (state, cuts) = *seen.borrow();
    if state == State::Closed {
        return;
    }
    let Ok(server) = TcpStream::connect(place).await else { return };
    for side in [&client, &server] {
        // Else it is slower, and nothing worse.
        let _ = side.set_nodelay(true);
    }
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let there = forward(from_client, to_server, seen.clone());
    let back = forward(from_server, to_client, seen.clone());
    tokio::select! {
        () = there => {}
        () = back => {}
        () = ended(seen, cuts) => {}
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut seen: watch::Receiver<(State, u32)>) {
    let mut piece = [0; 16_384];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        let is_there = seen.wait_for(|now| now.0 != State::Silent).await.is_ok();
        if !is_there || to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}

/// Until the way is closed, or cut once more than so often.
async fn ended(mut seen: watch::Receiver<(State, u32)>, cuts: u32) {
    // An error means that the test is over.
    let _ = seen.wait_for(|now| now.0 == State::Closed || now.1 != cuts).await;
}

/// An engine that has no other way to its database.
async fn by_a_way() -> (Fixture, Way) {
    let (database, hands) = Fixture::unopened().await;
    let way = Way::to(database.place()).await;
    (by(&way, database, hands).await, way)
}

async fn by(way: &Way, database: Arc<Database>, hands: Arc<Hands>) -> Fixture {
    let by = database.options_by(way.address, 1).database;
    let engine = Engine::open(Options { database: by, ..options(&database, &hands) }).await.unwrap();
    Fixture { engine, hands, database }
}

/// Asks again for as long as the database is said to be unavailable, at most ten seconds.
pub(crate) async fn until_available<T, A: Future<Output = Result<T, Fault>>>(ask: impl Fn() -> A) -> Result<T, Fault> {
    let asking = async {
        loop {
            match ask().await {
                Err(Fault::Unavailable { .. }) => sleep(Duration::from_millis(20)).await,
                answer => return answer,
            }
        }
    };
    timeout(Duration::from_secs(10), asking).await.expect("the database is available within ten seconds")
}

/// Takes a key under an idempotency key of the same name.
pub(crate) async fn take_once(fixture: &Fixture, key: &str) -> Result<LeaseReading, Fault> {
    let take = Command::Acquire { request: terms("one"), wait: None };
    fixture.engine.run(call_once(key, 1), lease_key(key), take).await.map(delivered)
}

#[tokio::test]
async fn a_node_whose_connections_are_cut_goes_on_where_it_was() {
    let (fixture, way) = by_a_way().await;
    let mut lease = fixture.acquire("a", "one").await.unwrap();
    for round in 1..=3 {
        way.cut();
        lease = until_available(|| fixture.renew(&lease)).await.unwrap();
        assert!(lease.lease.renewals >= round);
        refusal(until_available(|| fixture.acquire("a", "two")).await);
        let listed = until_available(|| fixture.engine.list(all())).await.unwrap();
        assert_eq!(listed.page.rows.len(), 1);
    }
}

#[tokio::test]
async fn a_database_that_is_not_to_be_reached_is_told_of_and_served_again_when_it_is() {
    let (fixture, way) = by_a_way().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    let waiter = fixture.wait("a", "two", 60_000);
    fixture.until_waiting("a", 1).await;
    way.be(State::Closed);
    let answer = timeout(Duration::from_secs(10), fixture.acquire("b", "one")).await.unwrap();
    assert!(matches!(answer, Err(Fault::Unavailable { .. })), "{answer:?}");
    assert!(!fixture.engine.is_healthy());
    way.be(State::Open);
    // By itself, with nobody asking for anything.
    let healthy = async {
        while !fixture.engine.is_healthy() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(10), healthy).await.unwrap();
    fixture.acquire("b", "one").await.unwrap();
    // Who waited still waits: the queue is in the database.
    fixture.release(&lease).await.unwrap();
    let next = timeout(Duration::from_secs(10), waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(next.lease.owner.as_str(), "two");
}

#[tokio::test]
async fn a_line_that_a_node_does_not_hear_of_is_not_called_gone() {
    // It sequences the timeline, since it is the first.
    let here = Fixture::new().await;
    let way = Way::to(here.database.place()).await;
    let there = by(&way, Arc::clone(&here.database), Arc::clone(&here.hands)).await;
    here.acquire("a", "one").await.unwrap();
    assert_eq!(there.engine.has_come_to(here.head().await).await.ok(), Some(true));
    way.be(State::Closed);
    here.acquire("b", "one").await.unwrap();
    let head = here.head().await;
    assert!(there.engine.has_come_to(head).await.is_err());
    way.be(State::Open);
    until_available(|| take_once(&there, "c")).await.unwrap();
    assert_eq!(there.engine.has_come_to(head).await.ok(), Some(true));
    // And what nobody has is not there.
    assert_eq!(there.engine.has_come_to(Position(head.0 + 1_000)).await.ok(), Some(false));
}

#[tokio::test]
async fn a_database_that_says_nothing_is_not_waited_for_for_ever() {
    let (fixture, way) = by_a_way().await;
    fixture.acquire("a", "one").await.unwrap();
    way.be(State::Silent);
    let answer = timeout(Duration::from_secs(20), fixture.acquire("b", "one")).await.unwrap();
    assert!(matches!(answer, Err(Fault::Unavailable { .. })), "{answer:?}");
    way.be(State::Open);
    until_available(|| take_once(&fixture, "c")).await.unwrap();
    refusal(until_available(|| fixture.acquire("a", "two")).await);
}

#[tokio::test]
async fn whatever_is_cut_off_a_request_that_is_asked_again_with_its_idempotency_key_is_done_once() {
    let (fixture, way) = by_a_way().await;
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    for (n, key) in keys.iter().enumerate() {
        let cut = async {
            // Before it begins, between its statements, in the middle of its commit, and after that.
            sleep(Duration::from_millis(n as u64 % 5)).await;
            for _ in 0..n {
                tokio::task::yield_now().await;
            }
            way.cut();
        };
        let (answer, ()) = tokio::join!(until_available(|| take_once(&fixture, key)), cut);
        let lease = answer.unwrap();
        let again = until_available(|| take_once(&fixture, key)).await.unwrap();
        assert_eq!(again, lease);
    }
    let lines = fixture.lines().await;
    for key in keys {
        assert_eq!(grants(&lines, &key), 1, "{key}");
    }
}

#[tokio::test]
async fn callers_who_hang_up_while_the_database_is_asked_spoil_nothing() {
    hang_up_on(Fixture::new().await, 40).await;
}

/// A transaction that is cancelled while it begins must not be left to whoever has the connection next.
#[tokio::test]
async fn callers_who_hang_up_spoil_nothing_where_there_is_one_connection_for_all() {
    let (database, hands) = Fixture::unopened().await;
    let options = options(&database, &hands);
    let engine::Database::Postgres(url) = options.database else { panic!("not PostgreSQL") };
    let one = engine::Database::Postgres(url.with_connections(1));
    let engine = Engine::open(Options { database: one, ..options }).await.unwrap();
    hang_up_on(Fixture { engine, hands, database }, 4).await;
}

/// Callers hang up on it; then so many ask at once as are more than it has connections, so that each is used.
async fn hang_up_on(fixture: Fixture, at_once: u32) {
    let mut lease = fixture.acquire("a", "one").await.unwrap();
    let history = || HistoryQuery { lease_key: lease_key("a"), before: None, limit: 5 };
    for n in 0..200 {
        let engine = fixture.engine.clone();
        let (key, query, renew) =
            (lease_key("a"), history(), Command::Renew { lease_id: lease.lease.id(), ttl: None, shorten: false });
        let caller = tokio::spawn(async move {
            match n % 6 {
                0 => drop(engine.list(all()).await),
                1 => drop(engine.history(query).await),
                2 => drop(engine.counters(&[]).await),
                3 => drop(engine.background(&key).await),
                4 => drop(engine.authenticate("jl_nobody").await),
                _ => drop(engine.run(call(), key, renew).await),
            }
        });
        // At one point of it or another.
        for _ in 0..n % 17 {
            tokio::task::yield_now().await;
        }
        if n % 2 == 0 {
            sleep(Duration::from_millis(n % 5)).await;
        }
        caller.abort();
        let _ = caller.await;
    }
    let lists = futures::future::join_all((0..at_once).map(|_| fixture.engine.list(all())));
    let renewals = futures::future::join_all((0..at_once).map(|_| fixture.renew(&lease)));
    let (lists, renewals) = tokio::join!(lists, renewals);
    for listed in lists {
        assert_eq!(listed.unwrap().page.rows.len(), 1);
    }
    for renewed in renewals {
        lease = renewed.unwrap();
    }
    assert!(lease.lease.renewals >= at_once, "{}", lease.lease.renewals);
}

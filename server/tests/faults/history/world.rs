//! What all clients share: where the servers are, one clock, and the record of what was asked and told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;

use super::{Call, Mono, Operation};
use crate::wire::Connection;

/// A server that listens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here {
    /// Which of all that were started.
    pub(super) process: usize,
    pub(super) address: SocketAddr,
}

/// The nodes of a database, each as it is now; one that is down is nowhere.
pub(super) type Nodes = Vec<Option<Here>>;

/// What all clients share.
pub(super) struct World {
    began: Instant,
    nodes: watch::Receiver<Nodes>,
    next: AtomicU64,
    record: Mutex<Vec<Operation>>,
    /// How many requests are under way, by the process.
    in_flight: Mutex<HashMap<usize, usize>>,
    is_over: AtomicBool,
}

impl World {
    pub(super) fn new(nodes: watch::Receiver<Nodes>) -> Self {
        Self {
            began: Instant::now(),
            nodes,
            next: AtomicU64::new(1),
            record: Mutex::default(),
            in_flight: Mutex::default(),
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

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// How many nodes there are, down or not.
    pub(super) fn nodes(&self) -> usize {
        self.nodes.borrow().len()
    }

    /// Whether there is more than one node to ask.
    pub(super) fn is_shared(&self) -> bool {
        self.nodes() > 1
    }

    /// A request is sent to this process.
    pub(super) fn begin(&self, process: usize) {
        *self.in_flight.lock().unwrap().entry(process).or_default() += 1;
    }

    /// It was answered, or nobody waits for that any more.
    pub(super) fn finish(&self, process: usize) {
        *self.in_flight.lock().unwrap().entry(process).or_default() -= 1;
    }

    /// How many requests are under way at this process.
    pub(super) fn in_flight(&self, process: usize) -> usize {
        self.in_flight.lock().unwrap().get(&process).copied().unwrap_or(0)
    }

    pub(super) fn note(&self, operation: Operation) {
        self.record.lock().unwrap().push(operation);
    }

    /// How many requests that were sent since then were refused because the database could not do it.
    pub(super) fn refused_since(&self, moment: Mono) -> u64 {
        let record = self.record.lock().unwrap();
        let since = record.iter().filter(|operation| operation.sent >= moment);
        since.filter(|operation| operation.refused().is_some_and(|(status, _)| status == 503)).count() as u64
    }

    /// What was recorded, in the order of sending.
    pub(super) fn take_record(&self) -> Vec<Operation> {
        let mut operations = std::mem::take(&mut *self.record.lock().unwrap());
        operations.sort_by_key(|operation| operation.sent);
        operations
    }

    /// When somebody who asked after this moment first heard of a grant.
    pub(super) fn first_grant_after(&self, moment: Mono) -> Option<Mono> {
        let record = self.record.lock().unwrap();
        let granted = record.iter().filter(|operation| {
            operation.call == Call::Acquire && operation.ok().is_some() && !operation.is_replayed()
        });
        granted.filter(|operation| operation.sent > moment).map(Operation::over).min()
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

    pub(super) fn id(&self, kind: &str) -> String {
        format!("{kind}-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// A connection to this node, or if that is down to another, and to which process; waits while all are down.
    pub(super) async fn connect(&self, node: usize) -> (Connection, usize) {
        let mut nodes = self.nodes.clone();
        loop {
            let there = nodes
                .wait_for(|nodes| nodes.iter().any(Option::is_some))
                .await
                .map(|nodes| (0..nodes.len()).find_map(|next| nodes[(node + next) % nodes.len()]));
            let Ok(Some(there)) = there else { panic!("the run ended under its clients") };
            if let Ok(connection) = Connection::open(there.address).await {
                return (connection, there.process);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

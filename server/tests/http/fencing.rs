//! What a fencing token is for: a worker that was paused past the end of its lease does not know it, and writes all the same.
//! Only the resource itself can refuse it.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{Client, Test};

const WORKERS: usize = 4;
/// How often each worker counts on.
const ROUNDS: usize = 12;
const TTL_MS: u64 = 150;

/// A number in a file that many workers count up, each reading it, thinking, and writing what comes next.
struct Resource {
    file: PathBuf,
    /// Whether tokens are looked at.
    checks: bool,
    greatest: u64,
    written: u64,
    refused: u64,
}

impl Resource {
    fn new(file: PathBuf, checks: bool) -> Self {
        fs::write(&file, "0").unwrap();
        Self { file, checks, greatest: 0, written: 0, refused: 0 }
    }

    /// Whether whoever has this token may go on. Readers too: from what the last one has read, no earlier one may write.
    fn admits(&mut self, token: u64) -> bool {
        let is_stale = token < self.greatest;
        self.greatest = self.greatest.max(token);
        if self.checks && is_stale {
            self.refused += 1;
        }
        !(self.checks && is_stale)
    }

    fn read(&mut self, token: u64) -> Option<u64> {
        self.admits(token).then(|| self.value())
    }

    fn write(&mut self, token: u64, value: u64) {
        if self.admits(token) {
            fs::write(&self.file, value.to_string()).unwrap();
            self.written += 1;
        }
    }

    fn value(&self) -> u64 {
        fs::read_to_string(&self.file).unwrap().parse().unwrap()
    }
}

/// Counts on, in a lease of its own each time; now and then something holds it up for longer than the lease lasts.
async fn work(client: Client, key: String, number: usize, resource: Arc<Mutex<Resource>>) {
    let locked = || resource.lock().unwrap_or_else(PoisonError::into_inner);
    for round in 0..ROUNDS {
        let request =
            json!({"lease_key": key, "owner": format!("worker-{number}"), "ttl_ms": TTL_MS, "wait_ms": 60_000});
        let lease: Value = client.post("leases/acquire", request).await.ok();
        let token = lease["fencing_token"].as_u64().unwrap();
        let Some(value) = locked().read(token) else { continue };
        let is_held_up = (round + number).is_multiple_of(3);
        sleep(Duration::from_millis(if is_held_up { TTL_MS * 2 } else { 5 })).await;
        // It looked at its clock before, not after: who is stopped in between cannot.
        locked().write(token, value + 1);
        let release = json!({"lease_key": key, "lease_id": lease["lease_id"]});
        // It may be lost; then somebody else has the key.
        client.post("leases/release", release).await;
    }
}

/// What came of it: how often something was written, how often somebody was refused, and what is in the file at the end.
async fn count(checks: bool) -> (u64, u64, u64) {
    let test = Test::start().await;
    let folder = tempfile::tempdir().unwrap();
    let resource = Arc::new(Mutex::new(Resource::new(folder.path().join("number"), checks)));
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| tokio::spawn(work(test.client(), "shared/number".to_owned(), number, Arc::clone(&resource))))
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    test.server.stop().await;
    let resource = resource.lock().unwrap_or_else(PoisonError::into_inner);
    (resource.written, resource.refused, resource.value())
}

#[tokio::test]
async fn a_resource_that_looks_at_no_token_loses_what_workers_wrote() {
    let (written, _, value) = count(false).await;
    assert!(value < written, "{written} were written, and the number is {value}: nobody was late");
}

#[tokio::test]
async fn a_resource_that_checks_tokens_loses_nothing_however_late_a_worker_is() {
    let (written, refused, value) = count(true).await;
    assert_eq!(value, written);
    assert!(refused > 0 && written > 10, "{refused} refused, {written} written");
}

//! Two database servers, of which one takes over from the other: what a node may say when the second one has not got it.

pub(crate) mod cluster;

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::{sleep, timeout};

use self::cluster::{Cluster, other_than};
use crate::history::Call;
use crate::process::{IN_TURN, Place};
use crate::wire::{Connection, post};

/// As an administrator does who sees a COMMIT that hangs. PostgreSQL answers it as any other then, and warns.
const CANCEL: &str =
    "SELECT count(*) FILTER (WHERE pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_replica_has_not_got_is_not_acknowledged_and_what_may_be_over_elsewhere_is_not_read() {
    let _alone = IN_TURN.lock().await;
    let mut cluster = Cluster::start().await;
    let place = Place::on(cluster.url(0));
    let node = place.start().await;
    let mut caller = Connection::open(node.address).await.unwrap();
    let acquire = |key: &str| {
        let request = json!({"lease_key": key, "owner": "o", "ttl_ms": 60_000});
        post(Call::Acquire.path(), &request, key, None)
    };
    let replica = other_than(cluster.until_in_step().await.primary);
    let mut admin = cluster.connect().await.unwrap();
    // The node remembers it, and writes it in another way than one that it has never seen.
    caller.send(&acquire("known")).await.unwrap();
    let known = caller.receive().await.unwrap();
    assert_eq!(known.status, 200, "{}", known.body);
    let release = json!({"lease_key": "known", "lease_id": known.body["lease_id"]});
    caller.send(&post(Call::Release.path(), &release, "given back", None)).await.unwrap();
    assert_eq!(caller.receive().await.unwrap().status, 200);

    cluster.order("hold", replica);
    for key in ["known", "new"] {
        caller.send(&acquire(key)).await.unwrap();
        let mut cancelled = 0;
        let answer = {
            let mut answer = std::pin::pin!(caller.receive());
            loop {
                tokio::select! {
                    answer = &mut answer => break answer.unwrap(),
                    () = sleep(Duration::from_millis(50)) => {
                        let more: i64 = sqlx::query_scalar(CANCEL).fetch_one(&mut admin).await.unwrap();
                        cancelled += more;
                    }
                }
            }
        };
        assert_eq!((answer.status, &answer.body["code"]), (503, &json!("unavailable")), "{key}: {}", answer.body);
        assert!(cancelled > 0, "{key}: no commit waited for the replica");
    }

    cluster.order("release", replica);
    let began = Instant::now();
    loop {
        caller.send(&acquire("again")).await.unwrap();
        let answer = caller.receive().await.unwrap();
        if answer.status == 200 {
            break;
        }
        assert!(answer.status == 503 && began.elapsed() < Duration::from_secs(30), "{}", answer.body);
        sleep(Duration::from_millis(100)).await;
    }

    // And what is read: after two seconds without a sign of life that would outlive this server another may have taken over.
    let replica = other_than(cluster.until_in_step().await.primary);
    let get = || post(Call::Get.path(), &json!({"lease_key": "again"}), "read", None);
    caller.send(&get()).await.unwrap();
    assert_eq!(caller.receive().await.unwrap().status, 200);
    cluster.order("hold", replica);
    sleep(Duration::from_millis(2_900)).await;
    caller.send(&get()).await.unwrap();
    if let Ok(answer) = timeout(Duration::from_secs(1), caller.receive()).await {
        let answer = answer.unwrap();
        assert_eq!((answer.status, &answer.body["code"]), (503, &json!("unavailable")), "{}", answer.body);
    }
    cluster.order("release", replica);
    node.kill().await;
}

//! Backups of a database that several nodes share: of what has no position yet, and of the states by which they decide.

use domain::lease::{Command, KeyStatus, Reply};
use engine::{CopyError, Engine, VerifyError, restore};

use crate::backup::Backup;
use crate::fixture::{Fixture, options};
use crate::nodes::two_nodes;

#[tokio::test]
async fn what_has_no_position_yet_is_in_the_backup_too() {
    let (here, there) = two_nodes().await;
    here.acquire("early", "one").await.unwrap();
    here.head().await;
    let held = here.database.hold_sequencer().await;
    let lease = here.acquire("late", "one").await.unwrap();
    there.renew(&lease).await.unwrap();
    let other = there.acquire("ended", "one").await.unwrap();
    here.release(&other).await.unwrap();
    let backup = Backup::of(&here.options().database).await.unwrap();
    let sequenced = here.engine.timeline().head();
    assert!(backup.copied.timeline.head.0 >= sequenced.0 + 4, "{:?} and {sequenced:?}", backup.copied);
    assert_eq!(backup.copied.keys, 3);
    held.let_go().await;
    here.head().await;

    let (database, hands) = Fixture::unopened().await;
    let open = options(&database, &hands);
    restore(&backup.path(), &open.database).await.unwrap();
    let restored = Fixture { engine: Engine::open(open).await.unwrap(), hands, database };
    let Reply::Key(key) = restored.run("late", Command::Get).await else { panic!() };
    assert_eq!(key.state.lease.as_ref().map(|lease| lease.renewals), Some(1));
    assert_eq!(key.state.status(restored.now()), KeyStatus::Held);
    restored.renew(&lease).await.unwrap();
    restored.acquire("ended", "two").await.unwrap();
    restored.database.verify().await.unwrap();
}

#[tokio::test]
async fn a_state_that_is_not_what_its_lines_come_to_is_found_and_nothing_is_backed_up() {
    for (sql, wrong) in [
        (
            r#"UPDATE job_leases.keys SET state = replace(state, '"renewals":0', '"renewals":1') WHERE lease_key = 'b'"#,
            "b",
        ),
        ("DELETE FROM job_leases.keys WHERE lease_key = 'c'", "c"),
        ("DELETE FROM job_leases.keys WHERE lease_key = 'd'", "d"),
        (
            r#"INSERT INTO job_leases.keys (lease_key, state) SELECT 'aa', replace(state, '"lease_key":"b"', '"lease_key":"aa"')
               FROM job_leases.keys WHERE lease_key = 'b'"#,
            "aa",
        ),
    ] {
        let (here, _there) = two_nodes().await;
        for key in ["a", "b", "c", "d"] {
            here.acquire(key, "one").await.unwrap();
        }
        Backup::of(&here.options().database).await.unwrap();
        here.database.change(sql).await;
        let error = Backup::of(&here.options().database).await.err().unwrap();
        let CopyError::Wrong(VerifyError::OtherState(key)) = error else { panic!("{sql}: {error}") };
        assert_eq!(key.as_str(), wrong);
    }
}

#[tokio::test]
async fn states_that_were_not_touched_since_an_outage_are_compared_as_they_are_read_through_it() {
    let fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    fixture.acquire("b", "one").await.unwrap();
    fixture.hands.pass(8_000).await;
    fixture.renew(&lease).await.unwrap();
    fixture.head().await;
    let lines = fixture.lines().await;
    assert!(lines.iter().any(|line| line.body.contains("service.outage")));
    let backup = Backup::of(&fixture.options().database).await.unwrap();
    assert_eq!(backup.copied.keys, 2);
}

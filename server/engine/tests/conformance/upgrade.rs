//! Versions side by side: a newer one may have changed the database, in a way that this one can live with or not.

use domain::lease::{Command, Reply};
use engine::timeline::Record;
use engine::{Engine, OpenError};

use crate::fixture::{Fixture, lease_key};

#[tokio::test]
async fn a_database_to_which_a_newer_version_has_added_something_is_opened_and_served() {
    let mut fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    fixture.database.be_newer(1).await;
    // Whoever serves it goes on, and so does whoever opens it anew.
    fixture.renew(&lease).await.unwrap();
    fixture.reopen().await;
    fixture.renew(&lease).await.unwrap();
    let next = fixture.acquire("b", "one").await.unwrap();
    assert!(next.lease.token > lease.lease.token);
    fixture.lose_views().await;
    assert_eq!(fixture.renew(&lease).await.unwrap().lease.renewals, 3);
    fixture.head().await;
    fixture.database.verify().await.unwrap();
}

#[tokio::test]
async fn a_database_that_a_newer_version_has_made_unusable_for_this_one_is_refused_and_left_as_it_is() {
    let mut fixture = Fixture::new().await;
    fixture.reopen().await;
    fixture.engine.close().await;
    fixture.database.be_newer(9999).await;
    let before = fixture.database.content().await;
    let error = Engine::open(fixture.options()).await.err().unwrap();
    assert!(matches!(error, OpenError::Newer { found: 9999, oldest: 9999, .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("newer version") && message.contains("restore a backup"), "{message}");
    assert!(fixture.database.content().await == before);
}

#[tokio::test]
async fn lines_of_a_kind_that_only_a_newer_version_knows_are_kept_and_passed_on_as_they_are() {
    let mut fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    fixture.head().await;
    let body = r#"{"at":"2027-01-15T08:00:00.000001Z","kind":"gate.opened","gate":{"name":"x"},"actor":{"kind":"token","id":"tk_1","name":"n"}}"#;
    fixture.engine.close().await;
    fixture.database.append(body).await;
    fixture.reopen().await;
    fixture.renew(&lease).await.unwrap();
    let lines = fixture.lines().await;
    assert_eq!(lines.len(), 3);
    assert_eq!(&*lines[1].body, body);
    assert!(matches!(&*lines[1].record, Record::Other(_)));
    fixture.database.verify().await.unwrap();
    // The read models pass it over.
    fixture.lose_views().await;
    let Reply::Key(key) = fixture.run("a", Command::Get).await else { panic!() };
    assert_eq!(key.state.lease.unwrap().renewals, 1);
    assert_eq!(key.state.lease_key, lease_key("a"));
}

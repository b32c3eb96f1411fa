//! Tokens, sessions and sign-in links.

use std::sync::Arc;

use domain::lease::Command;
use domain::{Role, Span};
use engine::engine::Scope;
use engine::{Call, Fault};

use crate::fixture::{Fixture, call, call_once, delivered, lease_key, terms};

fn scope(role: Role) -> Scope {
    Scope { role, prefixes: Arc::from([]) }
}

#[tokio::test]
async fn a_token_is_told_once_and_known_until_it_is_revoked() {
    let mut fixture = Fixture::new().await;
    let made = fixture.engine.create_token(call(), "worker", scope(Role::Worker), None).await.unwrap().value;
    let secret = made.secret.unwrap();
    assert!(secret.starts_with("jl_") && secret.len() == 46, "{secret}");
    for _ in 0..2 {
        let known = fixture.engine.authenticate(&secret).await.unwrap().unwrap();
        assert_eq!((known.role, &*known.actor.id), (Role::Worker, &*made.token.token_id));
        fixture.reopen().await;
    }
    fixture.engine.revoke_token(call(), &made.token.token_id).await.unwrap();
    assert!(fixture.engine.authenticate(&secret).await.unwrap().is_none());
    fixture.reopen().await;
    assert!(fixture.engine.authenticate(&secret).await.unwrap().is_none());
    let again = fixture.engine.revoke_token(call(), &made.token.token_id).await;
    assert_eq!(again.unwrap_err(), Fault::NotFound("token"));
}

#[tokio::test]
async fn no_secret_is_stored() {
    let fixture = Fixture::new().await;
    let made = fixture.engine.create_token(call_once("k", 1), "worker", scope(Role::Admin), None).await.unwrap();
    let secret = made.value.secret.unwrap();
    let link = fixture.engine.create_sign_in_link(call()).await.unwrap();
    let session = fixture.engine.sign_in_by_link(call(), &link).await.unwrap();
    fixture.engine.close().await;
    let content = fixture.database.content().await;
    let holds = |text: &str| content.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds(&made.value.token.token_id));
    for secret in [&secret, &link, &session.secret] {
        assert!(!holds(secret));
    }
}

#[tokio::test]
async fn making_a_token_again_under_the_same_idempotency_key_makes_none() {
    let fixture = Fixture::new().await;
    let first = fixture.engine.create_token(call_once("k", 1), "w", scope(Role::Worker), None).await.unwrap();
    let again = fixture.engine.create_token(call_once("k", 1), "w", scope(Role::Worker), None).await.unwrap();
    assert!(again.replayed && again.value.secret.is_none());
    assert_eq!(again.value.token, first.value.token);
    assert_eq!(fixture.engine.directory().tokens().len(), 1);
}

#[tokio::test]
async fn a_token_is_good_only_until_it_expires() {
    let fixture = Fixture::new().await;
    let until = fixture.engine.now() + Span::millis(1_000);
    let made = fixture.engine.create_token(call(), "w", scope(Role::Worker), Some(until)).await.unwrap().value;
    let secret = made.secret.unwrap();
    assert!(fixture.engine.authenticate(&secret).await.unwrap().is_some());
    fixture.hands.pass(1_000).await;
    assert!(fixture.engine.authenticate(&secret).await.unwrap().is_none());
}

#[tokio::test]
async fn a_sign_in_link_is_good_once_and_for_an_hour() {
    let mut fixture = Fixture::new().await;
    let link = fixture.engine.create_sign_in_link(call()).await.unwrap();
    fixture.reopen().await;
    let session = fixture.engine.sign_in_by_link(call(), &link).await.unwrap();
    assert_eq!(fixture.engine.authenticate(&session.secret).await.unwrap().unwrap().role, Role::Admin);
    let again = fixture.engine.sign_in_by_link(call(), &link).await;
    assert_eq!(again.unwrap_err(), Fault::NotFound("sign-in link"));
    let late = fixture.engine.create_sign_in_link(call()).await.unwrap();
    fixture.hands.pass(60 * 60 * 1000).await;
    assert!(fixture.engine.sign_in_by_link(call(), &late).await.is_err());
}

#[tokio::test]
async fn a_session_ends_with_the_token_that_opened_it() {
    let fixture = Fixture::new().await;
    let made = fixture.engine.create_token(call(), "w", scope(Role::Viewer), None).await.unwrap().value;
    let principal = fixture.engine.authenticate(&made.secret.unwrap()).await.unwrap().unwrap();
    let session = fixture.engine.sign_in_by_token(call(), &principal).await.unwrap();
    assert_eq!(fixture.engine.authenticate(&session.secret).await.unwrap().unwrap().role, Role::Viewer);
    fixture.engine.revoke_token(call(), &made.token.token_id).await.unwrap();
    assert!(fixture.engine.authenticate(&session.secret).await.unwrap().is_none());
}

#[tokio::test]
async fn signing_out_ends_a_session() {
    let fixture = Fixture::new().await;
    let link = fixture.engine.create_sign_in_link(call()).await.unwrap();
    let session = fixture.engine.sign_in_by_link(call(), &link).await.unwrap();
    let id = Arc::clone(&fixture.engine.authenticate(&session.secret).await.unwrap().unwrap().actor.id);
    fixture.engine.sign_out(call(), &id).await.unwrap();
    assert!(fixture.engine.authenticate(&session.secret).await.unwrap().is_none());
}

#[tokio::test]
async fn a_caller_whose_token_was_revoked_a_moment_ago_changes_nothing() {
    let fixture = Fixture::new().await;
    let made = fixture.engine.create_token(call(), "w", scope(Role::Worker), None).await.unwrap().value;
    let known = fixture.engine.authenticate(&made.secret.unwrap()).await.unwrap().unwrap();
    let take = async || {
        let caller = Call { actor: Arc::clone(&known.actor), ..call() };
        let command = Command::Acquire { request: terms("one"), wait: None };
        fixture.engine.run(caller, lease_key("a"), command).await.map(delivered)
    };
    let lease = take().await.unwrap();
    fixture.release(&lease).await.unwrap();
    fixture.engine.revoke_token(call(), &made.token.token_id).await.unwrap();
    assert_eq!(take().await, Err(Fault::NotGoodAnyMore));
    fixture.acquire("a", "two").await.unwrap();
}

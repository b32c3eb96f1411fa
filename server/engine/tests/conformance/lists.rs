//! Lists, history and counters.

use domain::lease::{LeaseStatus, Outcome};
use domain::{JobKey, Span, Subject};
use engine::reading::{HistoryQuery, ListQuery, Named, Sort, SortField};

use crate::fixture::{Fixture, lease_key, terms};

/// Every key's last grant, by name.
pub(crate) fn all() -> ListQuery {
    ListQuery {
        current_only: true,
        prefix: None,
        allowed_prefixes: Vec::new(),
        owner: None,
        job_key: None,
        subject: None,
        status: None,
        sort: Sort { field: SortField::LeaseKey, descending: false },
        limit: 100,
        cursor: None,
        count: false,
    }
}

async fn names(fixture: &Fixture, query: ListQuery) -> Vec<String> {
    let listed = fixture.engine.list(query).await.unwrap();
    listed.page.rows.iter().map(|row| row.lease_key.as_str().to_owned()).collect()
}

#[tokio::test]
async fn a_list_has_all_that_was_committed_when_it_was_asked_for() {
    let fixture = Fixture::new().await;
    for n in 0..50 {
        fixture.acquire(&format!("k{n:02}"), "one").await.unwrap();
        assert_eq!(names(&fixture, all()).await.len(), n + 1);
    }
}

#[tokio::test]
async fn figures_tell_up_to_where_they_include_everything() {
    let fixture = Fixture::new().await;
    for n in 0..20 {
        fixture.acquire(&format!("k{n:02}"), "one").await.unwrap();
        let head = fixture.head().await;
        for prefixes in [&[][..], &["k".to_owned()]] {
            let counters = fixture.engine.counters(prefixes).await.unwrap();
            assert_eq!((counters.as_of, counters.keys), (head, n + 1));
        }
    }
}

#[tokio::test]
async fn every_minute_tells_how_many_were_held_at_its_end() {
    let mut fixture = Fixture::new().await;
    let start = fixture.engine.now();
    let mut leases = Vec::new();
    // Many minutes in one batch, since nobody reads meanwhile; and again when the models are made anew.
    for n in 0..6 {
        let mut request = terms("one");
        request.ttl = Span::millis(3_600_000);
        leases.push(fixture.acquire_with(&format!("k{n}"), request).await.unwrap());
        if n % 3 == 2 {
            fixture.release(&leases[0]).await.unwrap();
            leases.remove(0);
        }
        fixture.pass(60_000).await;
    }
    for _ in 0..2 {
        let minutes = fixture.engine.minutes(start).await.unwrap();
        let granted = minutes.iter().filter(|minute| minute.granted > 0);
        let held: Vec<i64> = granted.take(6).map(|minute| minute.held).collect();
        assert_eq!(held, [1, 2, 2, 3, 4, 4]);
        fixture.lose_views().await;
    }
}

#[tokio::test]
async fn no_list_shows_as_held_what_is_over_although_nobody_recorded_it() {
    let fixture = Fixture::new().await;
    let mut short = terms("one");
    short.ttl = Span::millis(1_000);
    fixture.acquire_with("short", short).await.unwrap();
    fixture.acquire("long", "one").await.unwrap();
    let with = |status| ListQuery { status: Some(status), ..all() };
    assert_eq!(names(&fixture, with(LeaseStatus::Held)).await, ["long", "short"]);
    // Half a second at a time, so that it is no outage; nothing else touches these keys.
    for _ in 0..3 {
        fixture.hands.pass(500).await;
        fixture.touch().await;
    }
    let held = names(&fixture, with(LeaseStatus::Held)).await;
    assert_eq!(held, ["long"]);
    let expired = names(&fixture, with(LeaseStatus::Ended(Outcome::Expired))).await;
    assert_eq!(expired, ["short"]);
    assert_eq!(fixture.engine.counters(&[]).await.unwrap().held, 1);
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repeat_in_every_order() {
    let fixture = Fixture::new().await;
    for n in 0..23 {
        fixture.hands.pass(i64::from(n % 3)).await;
        let mut request = terms("one");
        request.ttl = Span::millis(5_000 + 1_000 * (n * 7 % 5));
        let lease = fixture.acquire_with(&format!("k{n:02}"), request).await.unwrap();
        if n % 4 == 0 {
            fixture.release(&lease).await.unwrap();
        }
    }
    for field in [SortField::LeaseKey, SortField::AcquiredAt, SortField::ExpiresAt, SortField::UpdatedAt] {
        for descending in [false, true] {
            let sort = Sort { field, descending };
            let whole = names(&fixture, ListQuery { sort, ..all() }).await;
            assert_eq!(whole.len(), 23);
            let mut paged = Vec::new();
            let mut cursor = None;
            loop {
                let query = ListQuery { sort, limit: 5, cursor, ..all() };
                let page = fixture.engine.list(query).await.unwrap().page;
                paged.extend(page.rows.iter().map(|row| row.lease_key.as_str().to_owned()));
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(paged, whole, "{sort:?}");
        }
    }
}

#[tokio::test]
async fn lists_are_filtered_by_prefix_owner_job_and_subject() {
    let fixture = Fixture::new().await;
    let mut request = terms("one");
    request.job_key = Some(domain::JobKey::parse("job-1").unwrap());
    request.subjects = std::sync::Arc::from([domain::Subject::parse("customer:acme").unwrap()]);
    fixture.acquire_with("nightly/a", request).await.unwrap();
    fixture.acquire("nightly/b", "two").await.unwrap();
    fixture.acquire("other", "one").await.unwrap();
    let prefix = |prefix: &str| ListQuery { prefix: Some(prefix.to_owned()), ..all() };
    assert_eq!(names(&fixture, prefix("nightly/")).await, ["nightly/a", "nightly/b"]);
    let allowed = ListQuery { allowed_prefixes: vec!["other".to_owned(), "nightly/b".to_owned()], ..all() };
    assert_eq!(names(&fixture, allowed).await, ["nightly/b", "other"]);
    let owner = ListQuery { owner: Some(domain::Owner::parse("one").unwrap()), ..all() };
    assert_eq!(names(&fixture, owner).await, ["nightly/a", "other"]);
    let job = ListQuery { job_key: Some(domain::JobKey::parse("job-1").unwrap()), ..all() };
    assert_eq!(names(&fixture, job).await, ["nightly/a"]);
    let subject = ListQuery { subject: Some(domain::Subject::parse("customer:acme").unwrap()), ..all() };
    assert_eq!(names(&fixture, subject).await, ["nightly/a"]);
}

#[tokio::test]
async fn history_is_every_grant_of_a_key_the_newest_first() {
    let mut fixture = Fixture::new().await;
    for n in 0..12 {
        let lease = fixture.acquire("a", &format!("w{n}")).await.unwrap();
        fixture.acquire(&format!("b{n}"), "noise").await.unwrap();
        fixture.release(&lease).await.unwrap();
    }
    fixture.reopen().await;
    let mut owners = Vec::new();
    let mut before = None;
    loop {
        let query = HistoryQuery { lease_key: lease_key("a"), before, limit: 5 };
        let page = fixture.engine.history(query).await.unwrap().page;
        owners.extend(page.rows.iter().map(|row| row.lease.owner.as_str().to_owned()));
        match page.next {
            Some(next) => before = domain::lease::FencingToken::new(next.token.cast_unsigned()),
            None => break,
        }
    }
    let expected: Vec<String> = (0..12).rev().map(|n| format!("w{n}")).collect();
    assert_eq!(owners, expected);
    let never = HistoryQuery { lease_key: lease_key("never"), before: None, limit: 5 };
    assert!(fixture.engine.history(never).await.unwrap().page.rows.is_empty());
}

#[tokio::test]
async fn collisions_are_counted_by_second_and_kept() {
    let mut fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    for _ in 0..7 {
        fixture.acquire("a", "two").await.unwrap_err();
    }
    fixture.reopen().await;
    let counters = fixture.engine.counters(&[]).await.unwrap();
    assert_eq!((counters.collisions, counters.collisions_today), (7, 7));
    let below = fixture.engine.counters(&["b".to_owned()]).await.unwrap();
    assert_eq!((below.collisions, below.keys), (0, 0));
    let below = fixture.engine.counters(&["a".to_owned()]).await.unwrap();
    assert_eq!((below.collisions, below.keys, below.held), (7, 1, 1));
}

#[tokio::test]
async fn names_are_found_by_their_beginning_each_once_and_in_their_order() {
    let fixture = Fixture::new().await;
    for n in 0..30 {
        let mut request = terms(&format!("w{}", n % 3));
        request.job_key = Some(JobKey::parse(&format!("j{n:02}")).unwrap());
        request.subjects = [format!("customer:c{}", n % 5), "x:\u{10ffff}".to_owned()]
            .iter()
            .map(|subject| Subject::parse(subject).unwrap())
            .collect();
        let lease = fixture.acquire_with(&format!("k{}", n % 7), request).await.unwrap();
        fixture.release(&lease).await.unwrap();
    }
    // Names are as far as lists have come.
    fixture.engine.list(all()).await.unwrap();
    let names = async |of, prefix: &str, limit| fixture.engine.names(of, prefix.to_owned(), limit).await.unwrap();
    assert_eq!(names(Named::Owner, "w", 10).await, ["w0", "w1", "w2"]);
    assert_eq!(names(Named::Owner, "w1", 10).await, ["w1"]);
    assert_eq!(names(Named::Owner, "v", 10).await, [""; 0]);
    assert_eq!(names(Named::Job, "j0", 3).await, ["j00", "j01", "j02"]);
    assert_eq!(names(Named::Subject, "customer:", 10).await, [0, 1, 2, 3, 4].map(|n| format!("customer:c{n}")));
    assert_eq!(names(Named::Subject, "customer:", 2).await, ["customer:c0", "customer:c1"]);
    assert_eq!(names(Named::Subject, "x", 2).await, ["x:\u{10ffff}"]);
}

#[tokio::test]
async fn a_key_that_is_granted_anew_between_two_pages_is_on_one_of_them() {
    let fixture = Fixture::new().await;
    for n in 0..9 {
        let lease = fixture.acquire(&format!("k{n}"), "one").await.unwrap();
        fixture.release(&lease).await.unwrap();
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let listed = fixture.engine.list(ListQuery { limit: 2, cursor, ..all() }).await.unwrap();
        let page: Vec<String> = listed.page.rows.iter().map(|row| row.lease_key.as_str().to_owned()).collect();
        let last = page.last().cloned();
        seen.extend(page);
        cursor = listed.page.next;
        if cursor.is_none() {
            break;
        }
        fixture.acquire(&last.unwrap(), "two").await.unwrap();
    }
    assert_eq!(seen, (0..9).map(|n| format!("k{n}")).collect::<Vec<_>>());
}

//! What is written as JSON is read back as it was.

use domain::lease::{Answer, Event, FencingToken, KeyState, LeaseId, Outage, Queue, Refusal, Reply};
use domain::{Actor, Timestamp};
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};

use crate::script::history;
use crate::service::{Line, Service};

fn returns<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) -> Result<(), TestCaseError> {
    let text = serde_json::to_string(value).unwrap();
    let read: T = serde_json::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
    prop_assert_eq!(&read, value, "{}", text);
    let read: T = serde_json::from_value(serde_json::to_value(value).unwrap()).unwrap();
    prop_assert_eq!(&read, value);
    Ok(())
}

/// Who waits is for the moment only, and not written.
fn without_waiters(reply: &Reply) -> Reply {
    let mut reply = reply.clone();
    if let Reply::Key(reading) = &mut reply {
        reading.queue = Queue::default();
    }
    reply
}

proptest! {
    #[test]
    fn every_event_state_answer_and_refusal_returns(steps in history()) {
        let mut service = Service::new();
        for step in steps {
            let task = service.task(&step);
            let decision = service.perform(&task);
            match decision.as_ref().map(|decision| &decision.answer) {
                Some(Answer::Done(reply)) => returns::<Reply>(&without_waiters(reply))?,
                Some(Answer::Refused(refusal)) => returns::<Refusal>(refusal)?,
                _ => {}
            }
            for woken in decision.iter().flat_map(|decision| &decision.settled.woken) {
                match &woken.result {
                    Ok(reply) => returns::<Reply>(reply)?,
                    Err(refusal) => returns::<Refusal>(refusal)?,
                }
            }
        }
        for line in &service.log {
            match line {
                Line::Event(event) => returns::<Event>(event)?,
                Line::Outage(outage) => returns::<Outage>(outage)?,
            }
        }
        for room in &service.rooms {
            returns::<KeyState>(&room.key)?;
        }
    }

    /// The flat head of every event: readers of the timeline find these where they look for them.
    #[test]
    fn every_event_is_flat(steps in history()) {
        let mut service = Service::new();
        for step in steps {
            let task = service.task(&step);
            service.perform(&task);
        }
        for line in &service.log {
            let Line::Event(event) = line else { continue };
            let json = serde_json::to_value(event).unwrap();
            prop_assert_eq!(&json["at"], &serde_json::Value::from(event.at.to_string()));
            prop_assert_eq!(json["kind"].as_str(), Some(event.change.kind()));
            prop_assert_eq!(json["lease_key"].as_str(), Some(event.lease_key.as_str()));
            prop_assert_eq!(json["fencing_token"].as_u64(), event.change.token().map(FencingToken::get));
            prop_assert_eq!(json["actor"]["id"].as_str(), Some(&*event.actor.id));
            prop_assert!(json.get("change").is_none());
        }
    }

    #[test]
    fn instants_return(micros in 0..=Timestamp::MAX.as_micros()) {
        let at = Timestamp::from_micros(micros);
        prop_assert_eq!(Timestamp::parse(&at.to_string()), Some(at));
        prop_assert_eq!(at.to_string().len(), 27);
        returns(&at)?;
    }

    #[test]
    fn instants_sort_as_their_texts_do(one in 0..=Timestamp::MAX.as_micros(), other in 0..=Timestamp::MAX.as_micros()) {
        let (one, other) = (Timestamp::from_micros(one), Timestamp::from_micros(other));
        prop_assert_eq!(one.cmp(&other), one.to_string().cmp(&other.to_string()));
    }

    #[test]
    fn lease_ids_return_and_sort_as_their_tokens_do(one in 1..1_u64 << 53, other in 1..1_u64 << 53) {
        let [one, other] = [one, other].map(|number| LeaseId::from(FencingToken::new(number).unwrap()));
        prop_assert_eq!(LeaseId::parse(&one.to_string()), Ok(one));
        prop_assert_eq!(one.cmp(&other), one.to_string().cmp(&other.to_string()));
        returns(&one)?;
        returns(&one.token())?;
    }

    #[test]
    fn no_other_text_is_a_lease_id(text in "(ls_)?[0-9a-zA-Z]{0,13}") {
        if let Ok(id) = LeaseId::parse(&text) {
            prop_assert_eq!(id.to_string(), text);
        }
    }

    #[test]
    fn no_other_text_is_an_instant(text in "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,7})?Z") {
        if let Some(at) = Timestamp::parse(&text) {
            let written = at.to_string();
            let digits = text.trim_end_matches('Z');
            prop_assert!(written.starts_with(digits), "{} became {}", text, written);
        }
    }
}

/// Stored for ever in timelines: a change here needs a reader of the old shape.
const PINNED: [&str; 11] = [
    concat!(
        r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"lease.granted","lease_id":"ls_00000000011","#,
        r#""fencing_token":33,"previous_token":32,"owner":"worker-1","job_key":"nightly","origin":"acquired","#,
        r#""expires_at":"2026-07-03T20:42:00.000000Z","ttl_us":30000000,"#,
        r#""max_hold_until":"2026-07-03T20:43:00.000000Z","min_hold_until":"2026-07-03T20:44:00.000000Z","#,
        r#""lock_delay_us":500000,"subjects":["customer:acme"],"metadata":{"pid":7},"lease_key":"backup","#,
        r#""actor":{"kind":"token","id":"t1","name":"ci"},"request_id":"r-1"}"#,
    ),
    concat!(
        r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"lease.granted","lease_id":"ls_00000000011","#,
        r#""fencing_token":33,"owner":"worker-1","origin":"waited","expires_at":"2026-07-03T20:42:00.000000Z","#,
        r#""ttl_us":30000000,"lease_key":"backup","actor":{"kind":"system","id":"clock","name":"clock"}}"#,
    ),
    concat!(
        r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"lease.renewed","lease_id":"ls_00000000011","#,
        r#""fencing_token":33,"expires_at":"2026-07-03T20:42:00.000000Z","ttl_us":30000000,"#,
        r#""margin_us":20000000,"lease_key":"backup","actor":{"kind":"token","id":"t1","name":"ci"},"#,
        r#""request_id":"r-1"}"#,
    ),
    concat!(
        r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"lease.breaking","lease_id":"ls_00000000011","#,
        r#""fencing_token":33,"ends_at":"2026-07-03T20:42:00.000000Z","#,
        r#""expires_at":"2026-07-03T20:42:00.000000Z","reason":"stuck","lease_key":"backup","#,
        r#""actor":{"kind":"token","id":"t1","name":"ci"},"request_id":"r-1"}"#,
    ),
    concat!(
        r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"lease.released","lease_id":"ls_00000000011","#,
        r#""fencing_token":33,"owner":"worker-1","ended_at":"2026-07-03T20:41:00.000000Z","#,
        r#""cooling_until":"2026-07-03T20:42:00.000000Z","lease_key":"backup","actor":{"kind":"token","#,
        r#""id":"t1","name":"ci"},"request_id":"r-1"}"#,
    ),
    concat!(
        r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"lease.expired","lease_id":"ls_00000000011","#,
        r#""fencing_token":33,"owner":"worker-1","ended_at":"2026-07-03T20:41:00.000000Z","lease_key":"backup","#,
        r#""actor":{"kind":"system","id":"clock","name":"clock"}}"#,
    ),
    concat!(
        r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"lease.broken","lease_id":"ls_00000000011","#,
        r#""fencing_token":33,"owner":"worker-1","ended_at":"2026-07-03T20:41:00.000000Z","reason":"stuck","#,
        r#""lease_key":"backup","actor":{"kind":"token","id":"t1","name":"ci"},"request_id":"r-1"}"#,
    ),
    concat!(
        r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"lease.transferred","lease_id":"ls_00000000011","#,
        r#""fencing_token":33,"owner":"worker-1","ended_at":"2026-07-03T20:41:00.000000Z","lease_key":"backup","#,
        r#""actor":{"kind":"token","id":"t1","name":"ci"},"request_id":"r-1"}"#,
    ),
    concat!(
        r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"lease.undelivered","lease_id":"ls_00000000011","#,
        r#""fencing_token":33,"owner":"worker-1","ended_at":"2026-07-03T20:41:00.000000Z","lease_key":"backup","#,
        r#""actor":{"kind":"system","id":"clock","name":"clock"}}"#,
    ),
    concat!(
        r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"key.quarantined","reason":"stuck","lease_key":"backup","#,
        r#""actor":{"kind":"token","id":"t1","name":"ci"},"request_id":"r-1"}"#,
    ),
    concat!(
        r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"key.lifted","reason":"mended","lease_key":"backup","#,
        r#""actor":{"kind":"token","id":"t1","name":"ci"},"request_id":"r-1"}"#,
    ),
];

#[test]
fn the_shape_of_events_is_pinned() {
    for text in PINNED {
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
        assert!(text.contains(&format!(r#""kind":"{}""#, event.change.kind())));
    }
    let outage = r#"{"from":"2026-07-03T20:41:00.000000Z","to":"2026-07-03T20:42:00.000000Z","grace_us":5000000}"#;
    let read: Outage = serde_json::from_str(outage).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), outage);
}

#[test]
fn an_actor_is_written_with_kind_id_and_name() {
    let json = serde_json::to_string(&Actor::system("clock")).unwrap();
    assert_eq!(json, r#"{"kind":"system","id":"clock","name":"clock"}"#);
}

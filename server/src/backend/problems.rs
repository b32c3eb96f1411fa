//! What went wrong, in the words of the API.

use app::api::ApiError;
use domain::Span;
use domain::lease::{Busy, Quarantine, RangeError, Refusal};
use engine::Fault;
use serde_json::{Map, Value, json};

use crate::http::jittered_ms;

/// The error of a command that was not carried out.
pub(crate) fn of_fault(fault: Fault) -> ApiError {
    match fault {
        Fault::Refused(refusal) => of_refusal(refusal),
        Fault::IdempotencyMismatch => {
            ApiError::new("idempotency_mismatch", "this Idempotency-Key came with another request before")
        }
        Fault::IdempotencyInProgress => ApiError::new(
            "idempotency_in_progress",
            "the first request with this Idempotency-Key still waits in a queue",
        )
        .retry_after_ms(jittered_ms(Span::millis(1_000))),
        Fault::NotFound(what) => ApiError::new("not_found", format!("there is no such {what}")),
        Fault::NotGoodAnyMore => ApiError::new("unauthenticated", "this token is no longer good"),
        Fault::Overloaded { retry_after } => {
            ApiError::new("overloaded", "too much is under way").retry_after_ms(jittered_ms(retry_after))
        }
        Fault::Unavailable { retry_after } => {
            ApiError::new("unavailable", "the database does not answer; whether anything was done is not known")
                .retry_after_ms(jittered_ms(retry_after))
        }
        Fault::Stopping => {
            ApiError::new("stopping", "the server is stopping").retry_after_ms(jittered_ms(Span::millis(1_000)))
        }
    }
}

/// The error of a refused command.
pub(super) fn of_refusal(refusal: Refusal) -> ApiError {
    let code = refusal.code();
    match refusal {
        Refusal::Held(busy) => ApiError::new(code, "somebody holds this key").with_details(of_busy(&busy)),
        Refusal::Breaking(busy) => {
            ApiError::new(code, "somebody holds this key, and it is being taken from them").with_details(of_busy(&busy))
        }
        Refusal::Cooling(busy) => {
            ApiError::new(code, "this key cools after its last lease").with_details(of_busy(&busy))
        }
        Refusal::Quarantined(quarantine) => {
            ApiError::new(code, "an operator has stopped grants on this key").with_details(of_quarantine(&quarantine))
        }
        Refusal::WaitTimeout(busy) => {
            let error = ApiError::new(code, "the wait is over, and the key was not to be had");
            match busy {
                Some(busy) => error.with_details(of_busy(&busy)),
                None => error,
            }
        }
        Refusal::QueueFull { limit } => ApiError::new(code, format!("{limit} callers wait for this key already"))
            .retry_after_ms(jittered_ms(Span::millis(1_000))),
        Refusal::KeysBusy(keys) => {
            let message = format!("{} of the keys cannot be had", keys.len());
            let keys: Vec<Value> = keys
                .into_iter()
                .map(|busy| {
                    let why = of_refusal(busy.refusal);
                    json!({"lease_key": busy.lease_key, "code": why.code, "details": why.details})
                })
                .collect();
            ApiError::new(code, message).with_details(details(json!({"keys": keys})))
        }
        Refusal::LeaseLost { reason, holder } => {
            let holder = holder.map(|(owner, since)| json!({"owner": owner, "since": since}));
            ApiError::new(code, format!("this lease is over: {}", reason.as_str()))
                .with_details(details(json!({"reason": reason, "holder": holder})))
        }
        Refusal::LeaseUnknown => ApiError::new(code, "no such lease is known on this key"),
        Refusal::KeyUnknown => ApiError::new(code, "nothing is known of this key"),
        Refusal::NotHeld => ApiError::new(code, "nobody holds this key"),
        Refusal::NotQuarantined => ApiError::new(code, "this key is not quarantined"),
    }
}

/// A length of time outside the rules.
pub(super) fn of_range(field: &'static str) -> impl FnOnce(RangeError) -> ApiError {
    move |error| ApiError::out_of_range(field, error)
}

fn of_busy(busy: &Busy) -> Map<String, Value> {
    details(json!({
        "owner": busy.owner,
        "since": busy.since,
        "expires_at": busy.expires_at,
        "retry_after_ms": jittered_ms(busy.retry_after),
        "queue_length": busy.queue_length,
    }))
}

fn of_quarantine(quarantine: &Quarantine) -> Map<String, Value> {
    details(json!({"since": quarantine.since, "reason": quarantine.reason, "by": quarantine.by.name}))
}

fn details(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

//! Taking several keys, all or none.

use super::decide::{grant, obstacle};
use super::{Acquire, Answer, Context, Decision, KeyBusy, LeaseReading, Origin, Refusal, Reply, Room, Settled, settle};

/// Settles every key, then grants all the requests, or none if any key is not free.
///
/// The rooms are of different keys, and each request is for the room at its place. What settling brought about stays in
/// either case.
pub fn decide_many(rooms: &mut [&mut Room], requests: &[Acquire], context: &mut Context<'_>) -> Decision {
    debug_assert_eq!(rooms.len(), requests.len());
    let mut settled = Settled::default();
    for room in rooms.iter_mut() {
        settle(room, context, &mut settled);
    }
    let in_the_way: Vec<KeyBusy> = rooms
        .iter()
        .filter_map(|room| {
            let refusal = obstacle(room, context.now)?;
            Some(KeyBusy { lease_key: room.key.lease_key.clone(), refusal })
        })
        .collect();
    if !in_the_way.is_empty() {
        return Decision { settled, answer: Answer::Refused(Refusal::KeysBusy(in_the_way)) };
    }
    let mut readings = Vec::with_capacity(rooms.len());
    for (room, request) in rooms.iter_mut().zip(requests) {
        let change = grant(room, request, Origin::Acquired, context);
        settled.happen(room, context.now, context.actor, context.request_id, change);
        if let Some(lease) = &room.key.lease {
            readings.push(LeaseReading { lease_key: room.key.lease_key.clone(), lease: lease.clone() });
        }
    }
    Decision { settled, answer: Answer::Done(Reply::Leases(readings)) }
}

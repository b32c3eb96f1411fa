//! The rules and the naive reference, side by side.

use domain::lease::{KeyReading, WaiterId};
use proptest::prelude::*;

use crate::reference::{Reference, Told, see_key, told, told_refusal, told_reply};
use crate::script::{KEYS, history, key, rules};
use crate::service::{LAST_TOKEN, Service, Task};

/// Four times as many as usual: the histories are short and the rules many.
fn more_cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.saturating_mul(4), ..usual }
}

proptest! {
    #![proptest_config(more_cases())]

    #[test]
    fn the_rules_answer_as_the_naive_reference_does(steps in history()) {
        let mut service = Service::new();
        let mut reference = Reference::new(&rules(), LAST_TOKEN);
        for step in steps {
            let task = service.task(&step);
            let gone = service.gone.clone();
            let is_live = |waiter: u64| !gone.contains(&WaiterId(waiter));
            let expected = match &task {
                Task::One(index, command) => {
                    Some(reference.run(service.now, key(*index).as_str(), command, "tester", &is_live))
                }
                Task::Many(requests) => {
                    let requests: Vec<_> =
                        requests.iter().map(|(index, request)| (key(*index).to_string(), request.clone())).collect();
                    Some(reference.run_many(service.now, &requests, &is_live))
                }
                Task::Outage(outage) => {
                    reference.outage(outage.from, outage.to, outage.grace_us);
                    None
                }
                Task::Restart => {
                    reference.restart();
                    None
                }
                Task::Forget(token) => {
                    reference.forget(token.get());
                    None
                }
                Task::HangUp(_) | Task::Nothing => None,
            };
            let decision = service.perform(&task);
            let got = decision.map(|decision| {
                let woken = decision.settled.woken.iter().filter(|woken| is_live(woken.waiter.0));
                let woken = woken.map(|woken| {
                    let told = match &woken.result {
                        Ok(reply) => told_reply(reply, service.now),
                        Err(refusal) => Told::Refused(told_refusal(refusal)),
                    };
                    (woken.waiter.0, told)
                });
                (told(&decision.answer, service.now), woken.collect::<Vec<_>>())
            });
            prop_assert_eq!(got, expected, "{:?}", task);
            for index in 0..KEYS {
                let room = &service.rooms[index];
                let seen = see_key(&KeyReading { state: room.key.clone(), queue_length: room.queue.len(), queue: room.queue.clone() }, service.now);
                prop_assert_eq!(seen, reference.see(key(index).as_str(), service.now.as_micros()), "{:?}", task);
            }
        }
    }
}

//! Properties of the rules on random histories, and of the texts and times they are made of.

mod differential;
mod history;
#[path = "../../../../server/engine/tests/reference/mod.rs"]
mod reference;
mod round_trips;
mod script;
mod service;
mod texts;

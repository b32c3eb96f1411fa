//! The shapes of requests and answers, as JSON Schema. A test asks every operation which fields it reads and holds them
//! against these.

mod answers;
mod parts;
mod requests;

use serde_json::{Map, Value};

/// All of them, by name.
pub(super) fn all() -> Value {
    let mut schemas = Map::new();
    let mut add = |name: &str, schema: Value| schemas.insert(name.to_owned(), schema);
    requests::all(&mut add);
    answers::all(&mut add);
    Value::Object(schemas)
}

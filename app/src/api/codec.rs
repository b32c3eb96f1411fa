//! Strict reading of requests: unknown fields, `null` and wrong values are refused, and the field at fault is named.
//!
//! A good request is read once, by plain serde. Only one that failed is read again, with the path recorded.

use serde::de::{DeserializeOwned, IgnoredAny};

use super::error::ApiError;
use super::values::OUT_OF_RANGE;

/// Reads a JSON body.
///
/// # Errors
/// `malformed` if it is not a JSON object; otherwise as [`from_query`].
pub fn from_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    // Serde by itself would take a list of the fields' values as well.
    if body.trim_ascii_start().first() == Some(&b'{')
        && let Ok(value) = serde_json::from_slice(body)
    {
        return Ok(value);
    }
    Err(problem::<T>(body))
}

/// What is wrong with a body that could not be read.
fn problem<T: DeserializeOwned>(body: &[u8]) -> ApiError {
    if std::str::from_utf8(body).is_err() {
        return ApiError::new("malformed", "the body is not UTF-8");
    }
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(body) {
        let place = format!("line {}, column {}", error.line(), error.column());
        return ApiError::new("malformed", format!("the body is not JSON (at {place})"));
    }
    if body.trim_ascii_start().first() != Some(&b'{') {
        return ApiError::new("malformed", NOT_AN_OBJECT);
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(error) => explain(&error.path().to_string(), &error.inner().to_string()),
        // It cannot be: the same bytes failed a moment ago.
        Ok(_) => ApiError::internal(),
    }
}

const NOT_AN_OBJECT: &str = "the body must be a JSON object with the fields of this operation";

/// Reads the parameters of a query.
///
/// # Errors
/// `malformed` if it is not percent-encoded UTF-8, `unknown_field`, `<field>_invalid` or `<field>_out_of_range`.
pub fn from_query<T: DeserializeOwned>(query: &str) -> Result<T, ApiError> {
    let replaced = form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name.contains(char::REPLACEMENT_CHARACTER) || value.contains(char::REPLACEMENT_CHARACTER));
    if replaced && !query.to_ascii_uppercase().contains("%EF%BF%BD") {
        return Err(ApiError::new("malformed", "the query is not percent-encoded UTF-8"));
    }
    let reader = serde_urlencoded::Deserializer::new(form_urlencoded::parse(query.as_bytes()));
    serde_path_to_error::deserialize(reader)
        .map_err(|error| explain(&error.path().to_string(), &error.inner().to_string()))
}

/// Turns serde's message about the value at `path` into ours.
fn explain(path: &str, message: &str) -> ApiError {
    let message = message.rfind(" at line ").map_or(message, |end| &message[..end]);
    // The library writes a path that it does not know as `.` or `?`.
    let path = path.trim_end_matches('?').trim_end_matches('.');
    if let Some(name) = quoted(message, "unknown field `") {
        let field = join(path, name);
        let mut error = ApiError::new("unknown_field", format!("{} is not known here", shorten(&field)));
        error.field = Some(field);
        return error;
    }
    if let Some(name) = quoted(message, "missing field `") {
        return ApiError::invalid(join(path, name), "is required");
    }
    if let Some(name) = quoted(message, "duplicate field `") {
        return ApiError::invalid(join(path, name), "is given twice");
    }
    if path.is_empty() {
        return ApiError::new("malformed", NOT_AN_OBJECT);
    }
    if let Some(problem) = message.strip_prefix(OUT_OF_RANGE) {
        return ApiError::out_of_range(path, problem);
    }
    if message.starts_with("invalid type: null") {
        return ApiError::invalid(path, "must not be null: leave the field out instead");
    }
    if message.starts_with("invalid value: integer") || message.contains(" lies between ") {
        return ApiError::out_of_range(path, format_args!("is out of range ({})", shorten(message)));
    }
    if message.starts_with("invalid ") || message.starts_with("unknown ") {
        return ApiError::invalid(path, format_args!("is not valid ({})", shorten(message)));
    }
    ApiError::invalid(path, shorten(message))
}

/// The name between `start` and the next backquote, if the message begins so.
fn quoted<'a>(message: &'a str, start: &str) -> Option<&'a str> {
    let rest = message.strip_prefix(start)?;
    // A field's name may itself hold a backquote; serde's list of what it expected comes behind the last such end.
    let end = rest.rfind("`, expected").map(|end| rest[..end].find("`, expected").unwrap_or(end));
    end.or_else(|| rest.rfind('`')).map(|end| &rest[..end])
}

fn join(path: &str, name: &str) -> String {
    // Some versions of the path already end in the name.
    if path == name || path.strip_suffix(name).is_some_and(|parent| parent.ends_with('.')) {
        path.to_owned()
    } else if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Messages repeat part of what was sent; a long value would make a long message.
fn shorten(text: &str) -> String {
    const MOST: usize = 200;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::leases::{AcquireManyRequest, AcquireRequest, BatchRequest, ListRequest, ValidateRequest};

    /// Code and field of the error that reading `body` brings.
    fn refusal<T: DeserializeOwned + std::fmt::Debug>(body: &str) -> (String, String) {
        let error = from_json::<T>(body.as_bytes()).unwrap_err();
        (error.code.into_owned(), error.field.unwrap_or_default())
    }

    fn pair(code: &str, field: &str) -> (String, String) {
        (code.to_owned(), field.to_owned())
    }

    #[test]
    fn what_is_not_a_json_object_is_malformed() {
        for body in [
            "",
            "{",
            "[1",
            "nonsense",
            "{\"lease_key\":\"a\",}",
            "{} {}",
            "[]",
            "null",
            "3",
            "\"x\"",
            "{\"a\":\"\u{0}\"}",
        ] {
            assert_eq!(refusal::<AcquireRequest>(body).0, "malformed", "{body}");
        }
        assert_eq!(from_json::<AcquireRequest>(b"{\"lease_key\":\"\xff\"}").unwrap_err().code, "malformed");
    }

    #[test]
    fn the_field_at_fault_is_named() {
        for (fields, code, field) in [
            ("\"owner\":\"o\"", "lease_key_invalid", "lease_key"),
            ("\"lease_key\":\"\",\"owner\":\"o\"", "lease_key_invalid", "lease_key"),
            ("\"lease_key\":7,\"owner\":\"o\"", "lease_key_invalid", "lease_key"),
            ("\"lease_key\":\"k\",\"lease_key\":\"k\",\"owner\":\"o\"", "lease_key_invalid", "lease_key"),
            ("\"lease_key\":\"k\",\"owner\":null", "owner_invalid", "owner"),
            ("\"lease_key\":\"k\",\"owner\":\"o\",\"ttl_ms\":null", "ttl_ms_invalid", "ttl_ms"),
            ("\"lease_key\":\"k\",\"owner\":\"o\",\"ttl_ms\":-1", "ttl_ms_out_of_range", "ttl_ms"),
            ("\"lease_key\":\"k\",\"owner\":\"o\",\"ttl_ms\":1.5", "ttl_ms_invalid", "ttl_ms"),
            ("\"lease_key\":\"k\",\"owner\":\"o\",\"ttl_ms\":99999999999999999999", "ttl_ms_out_of_range", "ttl_ms"),
            ("\"lease_key\":\"k\",\"owner\":\"o\",\"ttl\":1", "unknown_field", "ttl"),
            ("\"lease_key\":\"k\",\"owner\":\"o\",\"a`b\":1", "unknown_field", "a`b"),
            ("\"lease_key\":\"k\",\"owner\":\"o\",\"subjects\":[\"a:b\",\"c\"]", "subjects_invalid", "subjects[1]"),
            ("\"lease_key\":\"k\",\"owner\":\"o\",\"subjects\":null", "subjects_invalid", "subjects"),
            ("\"lease_key\":\"k\",\"owner\":\"o\",\"metadata\":[]", "metadata_invalid", "metadata"),
        ] {
            assert_eq!(refusal::<AcquireRequest>(&format!("{{{fields}}}")), pair(code, field), "{fields}");
        }
    }

    #[test]
    fn a_nested_field_is_named_by_its_path() {
        let of_many = |one: &str| refusal::<AcquireManyRequest>(&format!("{{\"owner\":\"o\",\"leases\":[{one}]}}"));
        assert_eq!(of_many("{\"lease_key\":\"k\",\"ttl_ms\":\"5\"}"), pair("ttl_ms_invalid", "leases[0].ttl_ms"));
        assert_eq!(of_many("{\"lease_key\":\"k\"},{}"), pair("lease_key_invalid", "leases[1].lease_key"));
        assert_eq!(of_many("{\"lease_key\":\"k\",\"wait_ms\":1}"), pair("unknown_field", "leases[0].wait_ms"));
        let one = |operation: &str| refusal::<BatchRequest>(&format!("{{\"operations\":[{operation}]}}"));
        assert_eq!(
            one("{\"release\":{\"lease_key\":\"k\"}}"),
            pair("lease_id_invalid", "operations[0].release.lease_id")
        );
        assert_eq!(one("{\"steal\":{}}").0, "operations_invalid");
        assert_eq!(
            one("{\"release\":{\"lease_key\":\"k\",\"lease_id\":\"ls_00000000001\"},\"renew\":1}").0,
            "operations_invalid"
        );
    }

    #[test]
    fn more_items_than_allowed_are_out_of_range() {
        let many = vec!["{\"lease_key\":\"k\"}"; 101].join(",");
        let body = format!("{{\"owner\":\"o\",\"leases\":[{many}]}}");
        assert_eq!(refusal::<AcquireManyRequest>(&body), pair("leases_out_of_range", "leases"));
        let subjects = vec!["\"a:b\""; 17].join(",");
        let body = format!("{{\"lease_key\":\"k\",\"owner\":\"o\",\"subjects\":[{subjects}]}}");
        assert_eq!(refusal::<AcquireRequest>(&body), pair("subjects_out_of_range", "subjects"));
    }

    #[test]
    fn a_query_is_read_as_strictly() {
        let list: ListRequest = from_query("prefix=a%2Fb&status=held&sort=-expires_at&limit=7").unwrap();
        assert_eq!(list.prefix.unwrap().as_str(), "a/b");
        assert_eq!(list.limit.unwrap().get(), 7);
        for (query, code, field) in [
            ("limit=0", "limit_out_of_range", "limit"),
            ("limit=501", "limit_out_of_range", "limit"),
            ("limit=x", "limit_invalid", "limit"),
            ("status=gone", "status_invalid", "status"),
            ("colour=red", "unknown_field", "colour"),
            ("owner=a&owner=b", "owner_invalid", "owner"),
            ("owner=%FF", "malformed", ""),
            ("owner=", "owner_invalid", "owner"),
        ] {
            let error = from_query::<ListRequest>(query).unwrap_err();
            assert_eq!((error.code.as_ref(), error.field.as_deref().unwrap_or_default()), (code, field), "{query}");
        }
        let validate: ValidateRequest = from_query("lease_key=k&fencing_token=12").unwrap();
        assert_eq!(validate.fencing_token.get(), 12);
        let error = from_query::<ValidateRequest>("lease_key=k&fencing_token=0").unwrap_err();
        assert_eq!(error.code, "fencing_token_out_of_range");
    }
}

//! A server in this process, and a client of it.

use std::sync::Arc;
use std::time::Duration;

use domain::lease::Rules;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use server::serve::{Config, Server};
use tempfile::TempDir;

/// The administrator's token.
pub(crate) const ADMIN: &str = "jl_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";

/// A server with a database of its own.
pub(crate) struct Test {
    pub(crate) server: Server,
    pub(crate) url: String,
    _folder: Arc<TempDir>,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) async fn of(response: Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self { status, headers, body }
    }

    /// The answer, which must be 200.
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.body
    }

    /// The error, whose status and code must be these.
    pub(crate) fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status.as_u16(), self.body["code"].as_str()), (status, Some(code)), "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/json");
        assert_eq!(self.body["request_id"], self.headers["x-request-id"].to_str().unwrap());
        assert!(!self.body["message"].as_str().unwrap().is_empty());
        for member in self.body.as_object().unwrap().keys() {
            assert!(["code", "message", "field", "details", "request_id"].contains(&member.as_str()), "{member}");
        }
        assert_eq!(self.headers.contains_key("retry-after"), matches!(status, 429 | 503), "{:?}", self.headers);
        assert_eq!(self.headers.contains_key("www-authenticate"), status == 401, "{:?}", self.headers);
        self.body
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Test {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), change).await
    }

    /// A server on a database that is there already.
    pub(crate) async fn on(folder: Arc<TempDir>, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(folder.path().join("test.db"));
        config.bootstrap_token = Some(ADMIN.to_owned());
        config.rules = Rules::default();
        change(&mut config);
        let server = Server::start(config).await.unwrap();
        let url = format!("http://{}", server.address());
        Self { server, url, _folder: folder }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(ADMIN)
    }

    pub(crate) fn client_with(&self, token: &str) -> Client {
        let http = server::cli::http_client().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Client { http, url: self.url.clone(), token: Some(token.to_owned()) }
    }

    pub(crate) fn stranger(&self) -> Client {
        Client { token: None, ..self.client() }
    }

    /// A client with a new token.
    pub(crate) async fn limited(&self, role: &str, prefixes: &[&str]) -> Client {
        let made = self.client().post("tokens/create", json!({"name": role, "role": role, "prefixes": prefixes})).await;
        self.client_with(made.ok()["token"].as_str().unwrap())
    }
}

/// Somebody who calls.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) url: String,
    pub(crate) token: Option<String>,
}

impl Client {
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) async fn post(&self, operation: &str, body: Value) -> Answer {
        let request = self.request(Method::POST, &format!("/api/v1/{operation}")).json(&body);
        Answer::of(request.send().await.unwrap()).await
    }

    pub(crate) async fn keyed(&self, key: &str, operation: &str, body: Value) -> Answer {
        let request = self.request(Method::POST, &format!("/api/v1/{operation}")).header("Idempotency-Key", key);
        Answer::of(request.json(&body).send().await.unwrap()).await
    }

    /// Sends this text as it is.
    pub(crate) async fn raw(&self, operation: &str, content_type: &str, body: impl Into<reqwest::Body>) -> Answer {
        let request = self.request(Method::POST, &format!("/api/v1/{operation}"));
        Answer::of(request.header("Content-Type", content_type).body(body).send().await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path).send().await.unwrap()).await
    }

    /// A lease on `key` for `owner`, for 30 seconds.
    pub(crate) async fn take(&self, key: &str, owner: &str) -> Value {
        self.post("leases/acquire", json!({"lease_key": key, "owner": owner})).await.ok()
    }
}

/// Waits until `condition` holds; fails if it does not within a minute.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    for _ in 0..3_000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not come to be that {what}");
}

/// The names of an object's members.
pub(crate) fn members(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// A form's fields, encoded as browsers do.
pub(crate) fn form(request: RequestBuilder, fields: &[(&str, &str)]) -> RequestBuilder {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    request.header("Content-Type", "application/x-www-form-urlencoded").body(body)
}

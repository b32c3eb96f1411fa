//! The built site: the style sheet, the script and the WASM that the pages ask for, as files in a folder.
//!
//! A build names its files after their contents and lists the names in `hash.txt`; such a file never changes, so that
//! browsers may keep it. They are compressed ahead of time, and sent so to whoever accepts it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use axum::{Router, response::Response};
use http::{HeaderValue, StatusCode, header};
use leptos::config::LeptosOptions;
use tower_http::{
    services::{ServeDir, ServeFile},
    set_header::SetResponseHeaderLayer,
};

/// As in Cargo.toml's `[[workspace.metadata.leptos]]`.
const OUTPUT_NAME: &str = "job-leases";
const PACKAGE: &str = "pkg";
const HASHES: &str = "hash.txt";

/// The site's folder and the names of its files.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    folder: PathBuf,
    options: LeptosOptions,
}

/// Why the folder that was asked for is no site.
#[derive(Debug, thiserror::Error)]
#[error("no built site in {folder}: {source}")]
pub(crate) struct NoSite {
    folder: PathBuf,
    source: io::Error,
}

impl Site {
    /// The site in `folder`; without one, `site` beside the program or where cargo-leptos says.
    ///
    /// Without any, the API works and pages come without style and script: a warning says so.
    ///
    /// # Errors
    /// When `folder` is given and holds no site.
    pub(crate) fn find(folder: Option<PathBuf>) -> Result<Self, NoSite> {
        if let Some(folder) = folder {
            return Self::open(folder);
        }
        let folder = match env::var_os("LEPTOS_SITE_ROOT") {
            Some(folder) => folder.into(),
            None => env::current_exe()
                .ok()
                .and_then(|exe| Some(exe.parent()?.join("site")))
                .unwrap_or_else(|| "site".into()),
        };
        Ok(Self::open(folder.clone()).unwrap_or_else(|error| {
            tracing::warn!("{error}; the console will come without style and script");
            Self { options: options(&folder, false), folder }
        }))
    }

    fn open(folder: PathBuf) -> Result<Self, NoSite> {
        match fs::read_dir(folder.join(PACKAGE)) {
            Ok(_) => Ok(Self { options: options(&folder, folder.join(HASHES).is_file()), folder }),
            Err(source) => Err(NoSite { folder, source }),
        }
    }

    /// What Leptos needs to name the files in a page.
    pub(crate) fn options(&self) -> LeptosOptions {
        self.options.clone()
    }

    /// Routes to the files: `/pkg/...`, and those that lie beside that folder, like `/favicon.svg`.
    pub(crate) fn routes<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        let kept = if self.options.hash_files { "public, max-age=31536000, immutable" } else { "no-cache" };
        let package = ServeDir::new(self.folder.join(PACKAGE)).append_index_html_on_directories(false);
        let package = Router::new().nest_service("/pkg", package.precompressed_br().precompressed_gzip());
        let assets = self.assets().fold(Router::new(), |routes, (name, path)| {
            routes.route_service(&format!("/{name}"), ServeFile::new(path).precompressed_br().precompressed_gzip())
        });
        with_headers(package, kept).merge(with_headers(assets, "no-cache"))
    }

    /// Files at the top of the folder, as they are when the server starts.
    fn assets(&self) -> impl Iterator<Item = (String, PathBuf)> + use<> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let compressed = name.ends_with(".br") || name.ends_with(".gz");
            (name != HASHES && !compressed && entry.path().is_file()).then(|| (name, entry.path()))
        })
    }
}

fn options(folder: &Path, hashed: bool) -> LeptosOptions {
    LeptosOptions::builder()
        .output_name(OUTPUT_NAME)
        .site_root(folder.to_string_lossy())
        .site_pkg_dir(PACKAGE)
        .hash_files(hashed)
        // An absolute path, since Leptos looks for a relative one beside the program.
        .hash_file(std::path::absolute(folder.join(HASHES)).unwrap_or_default().to_string_lossy().into())
        .build()
}

/// Adds what browsers and caches need to know. What is not there is not kept by them: the next build may bring it.
fn with_headers<S: Clone + Send + Sync + 'static>(routes: Router<S>, kept: &'static str) -> Router<S> {
    let kept = move |response: &Response| {
        let found = response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED;
        Some(HeaderValue::from_static(if found { kept } else { "no-store" }))
    };
    routes
        .layer(SetResponseHeaderLayer::overriding(header::CACHE_CONTROL, kept))
        .layer(SetResponseHeaderLayer::appending(header::VARY, HeaderValue::from_static("accept-encoding")))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::{HeaderMap, Request};
    use http_body_util::BodyExt;
    use tempfile::TempDir;
    use tower::ServiceExt;

    use super::*;

    /// A site of one WASM file, with or without the list of hashes.
    fn site(hashed: bool) -> (TempDir, Site) {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join(PACKAGE);
        fs::create_dir(&package).unwrap();
        for (ending, content) in [("", "plain"), (".br", "brotli"), (".gz", "gzip")] {
            fs::write(package.join(format!("job-leases.12.wasm{ending}")), content).unwrap();
        }
        fs::write(folder.path().join("favicon.svg"), "<svg/>").unwrap();
        if hashed {
            fs::write(folder.path().join(HASHES), "wasm: 12\n").unwrap();
        }
        let site = Site::find(Some(folder.path().to_owned())).unwrap();
        (folder, site)
    }

    async fn get(site: &Site, path: &str, accept: &str) -> (StatusCode, HeaderMap, String) {
        let request = Request::get(path).header(header::ACCEPT_ENCODING, accept).body(Body::empty()).unwrap();
        let (parts, body) = site.routes::<()>().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_file_is_sent_as_it_was_compressed_ahead_of_time() {
        let (_folder, site) = site(true);
        for (accept, encoding, content) in
            [("gzip, deflate, br", Some("br"), "brotli"), ("gzip", Some("gzip"), "gzip"), ("identity", None, "plain")]
        {
            let (status, headers, body) = get(&site, "/pkg/job-leases.12.wasm", accept).await;
            assert_eq!((status, body.as_str()), (StatusCode::OK, content));
            assert_eq!(headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap()), encoding);
            assert_eq!(headers[header::CONTENT_TYPE], "application/wasm");
            assert_eq!(headers[header::VARY], "accept-encoding");
        }
    }

    #[tokio::test]
    async fn only_a_name_that_holds_a_hash_is_kept_for_ever() {
        let (_folder, hashed) = site(true);
        let (_, headers, _) = get(&hashed, "/pkg/job-leases.12.wasm", "br").await;
        assert_eq!(headers[header::CACHE_CONTROL], "public, max-age=31536000, immutable");
        let (_, headers, _) = get(&hashed, "/favicon.svg", "br").await;
        assert_eq!(headers[header::CACHE_CONTROL], "no-cache");
        let (status, headers, _) = get(&hashed, "/pkg/job-leases.13.wasm", "br").await;
        assert_eq!(
            (status, &headers[header::CACHE_CONTROL]),
            (StatusCode::NOT_FOUND, &HeaderValue::from_static("no-store"))
        );

        let (_folder, plain) = site(false);
        let (_, headers, _) = get(&plain, "/pkg/job-leases.12.wasm", "br").await;
        assert_eq!(headers[header::CACHE_CONTROL], "no-cache");
    }

    #[tokio::test]
    async fn nothing_outside_the_site_is_served() {
        let (folder, site) = site(true);
        fs::write(folder.path().join("secret"), "no").unwrap();
        for path in ["/pkg/../secret", "/pkg/%2e%2e/secret", "/pkg/..%2fsecret", "/pkg/", "/pkg//etc/passwd"] {
            let (status, _, body) = get(&site, path, "br").await;
            assert_eq!((status, body.as_str()), (StatusCode::NOT_FOUND, ""), "{path}");
        }
    }

    #[test]
    fn a_folder_that_was_asked_for_must_be_a_site() {
        let empty = tempfile::tempdir().unwrap();
        assert!(Site::find(Some(empty.path().to_owned())).is_err());
    }
}

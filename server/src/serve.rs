//! `job-leases serve`: starts the server, and stops it well.

use std::env;
use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use domain::Span;
use domain::lease::Rules;
use engine::Engine;
use engine::engine::Retention;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::cli::duration;
use crate::database::Database;
use crate::http::site::Site;
use crate::http::{Http, MOST_CONNECTIONS, listener, router};
use crate::{backend, bootstrap, upkeep};

/// How long stopping may take.
const STOP_TIME: Duration = Duration::from_millis(9_500);

/// How the server is run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The address to listen on
    #[arg(long, env = "JOB_LEASES_LISTEN", default_value = "127.0.0.1:7411", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The database: `sqlite:PATH`, or `postgres://USER@HOST/DATABASE` for several nodes (with `?pgbouncer=true` behind it if a
    /// pooler in transaction mode is on the way); a file under the user's data folder if absent
    #[arg(long, env = "JOB_LEASES_DATABASE", hide_env_values = true, value_name = "URL")]
    database: Option<Database>,
    /// The most connections to PostgreSQL, besides one that listens
    #[arg(long, env = "JOB_LEASES_CONNECTIONS", default_value = "12", value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// PostgreSQL itself, where --database is a pooler: for the one connection that listens
    #[arg(long, env = "JOB_LEASES_DIRECT_DATABASE", hide_env_values = true, value_name = "URL")]
    direct_database: Option<String>,
    /// The address that browsers use, if it is another one: `https://leases.example.com`
    #[arg(long, env = "JOB_LEASES_PUBLIC_URL", value_name = "URL", value_parser = origin)]
    public_url: Option<String>,
    /// The folder of the built site; `site` beside the program if absent
    #[arg(long, env = "JOB_LEASES_SITE", value_name = "FOLDER")]
    site: Option<PathBuf>,
    /// How long grants that ended are kept, as in `30d`; the last one of each key is kept for ever
    #[arg(long, env = "JOB_LEASES_KEEP_GRANTS", default_value = "30d", value_parser = kept, value_name = "DURATION")]
    keep_grants: Span,
    /// How long the timeline is kept
    #[arg(long, env = "JOB_LEASES_KEEP_TIMELINE", default_value = "90d", value_parser = kept, value_name = "DURATION")]
    keep_timeline: Span,
    /// How long answers to requests with an Idempotency-Key are kept
    #[arg(long, env = "JOB_LEASES_KEEP_ANSWERS", default_value = "7d", value_parser = kept, value_name = "DURATION")]
    keep_answers: Span,
    /// What to log: `error`, `warn`, `info`, `debug` (each request), or a filter like `info,sqlx=warn`
    #[arg(long, env = "JOB_LEASES_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// How to log; `auto` is for people on a terminal and JSON otherwise
    #[arg(long, env = "JOB_LEASES_LOG_FORMAT", default_value = "auto", value_name = "FORMAT")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    Auto,
    Human,
    Json,
}

/// Reads an origin: scheme and authority, nothing behind.
fn origin(url: &str) -> Result<String, String> {
    let url = url.trim_end_matches('/');
    let authority = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    match authority {
        Some(authority) if !authority.is_empty() && !authority.contains(['/', '?', '#', '@']) => Ok(url.to_owned()),
        _ => Err("must be like https://leases.example.com".to_owned()),
    }
}

/// Reads how long something is kept: at least an hour.
fn kept(text: &str) -> Result<Span, String> {
    let length = duration::parse(text)?;
    let span = Span::from_millis(duration::millis(length)).ok_or("is too long")?;
    if span < Span::millis(60 * 60 * 1000) { Err("must be at least 1h".to_owned()) } else { Ok(span) }
}

/// Runs the server until it is told to stop.
pub async fn run(arguments: Arguments) -> ExitCode {
    match serve(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("job-leases: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(arguments: Arguments) -> Result<()> {
    start_logging(&arguments.log, arguments.log_format)?;
    // Whatever is written is for this user alone.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    raise_file_limit();
    let database = match arguments.database {
        Some(Database::Postgres(url)) => {
            let url = url.with_connections(arguments.connections);
            Database::Postgres(match &arguments.direct_database {
                Some(direct) => url.with_direct(direct),
                None => url,
            })
        }
        Some(file) => file,
        None => Database::Sqlite(Database::default_file()?),
    };
    // Before anything is opened: a signal while starting must be seen too.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut config = Config::new(database);
    config.listen = arguments.listen;
    config.public_url = arguments.public_url;
    config.site = arguments.site;
    config.retention = Retention {
        grants: arguments.keep_grants,
        timeline: arguments.keep_timeline,
        idempotency: arguments.keep_answers,
    };
    config.bootstrap_token = env::var("JOB_LEASES_BOOTSTRAP_TOKEN").ok().filter(|token| !token.is_empty());
    let server = Server::start(config).await?;
    server.greet().context("cannot write to stdout")?;
    let over = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        over = server.engine().over() => Some(over),
    };
    tracing::info!("stopping");
    tokio::select! {
        () = server.stop() => over.map_or(Ok(()), |reason| bail!("{reason}")),
        // Whoever asks twice does not want to wait.
        _ = terminate.recv() => bail!("stopped at once"),
        _ = interrupt.recv() => bail!("stopped at once"),
    }
}

fn start_logging(filter: &str, format: LogFormat) -> Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter:?} is not a filter"))?;
    let is_human = match format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = if is_human {
        log.with_ansi(std::io::stderr().is_terminal()).try_init()
    } else {
        log.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))?;
    // A fault of ours belongs in the logs like everything else, in one line.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or_default();
        tracing::error!(place, message, backtrace = %std::backtrace::Backtrace::capture(), "a fault in the program");
    }));
    Ok(())
}

/// Each connection is an open file, and many systems allow 1,024 unless asked for more.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(1 << 20, |most| most.min(1 << 20));
    if limit.current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// What a server needs to know before it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on; port 0 is any that is free.
    pub listen: SocketAddr,
    /// The database.
    pub database: Database,
    /// The origin that browsers see, if it is another one.
    pub public_url: Option<String>,
    /// The folder of the built site.
    pub site: Option<PathBuf>,
    /// The first administrator's token, instead of one made up.
    pub bootstrap_token: Option<String>,
    /// Limits and defaults of leases.
    pub rules: Rules,
    /// How long what is over is kept.
    pub retention: Retention,
}

impl Config {
    /// On that database, on any free port of this machine, with the default rules.
    #[must_use]
    pub fn new(database: impl Into<Database>) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            database: database.into(),
            public_url: None,
            site: None,
            bootstrap_token: None,
            rules: Rules::default(),
            retention: Retention::default(),
        }
    }
}

/// A server that listens.
pub struct Server {
    address: SocketAddr,
    public_url: Option<String>,
    welcome: Option<bootstrap::Welcome>,
    engine: Engine,
    stopping: CancellationToken,
    listener: JoinHandle<()>,
}

impl Server {
    /// Opens the database and listens.
    ///
    /// # Errors
    /// If the address is taken, the database cannot be opened, or the folder named is no site.
    pub async fn start(config: Config) -> Result<Self> {
        let Config { listen, database, public_url, site, bootstrap_token, rules, retention } = config;
        let site = Site::find(site)?;
        if let Database::Sqlite(file) = &database {
            bootstrap::make_folder(file).with_context(|| format!("cannot make the folder of {}", file.display()))?;
        }
        // First of all: if another server runs here, it may well serve this very database.
        let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        let address = listener.local_addr().context("cannot tell the address")?;
        let mut options = database.options();
        options.rules = rules;
        options.retention = retention;
        let engine = Engine::open(options).await?;
        let stopping = CancellationToken::new();
        let started = async {
            let welcome = bootstrap::first_start(&engine, &database, bootstrap_token.as_deref()).await?;
            let backends = Arc::new(backend::all(&engine));
            let http = Http::new(engine.clone(), backends, public_url.as_deref().map(Box::from), stopping.clone());
            Ok::<_, anyhow::Error>((welcome, router(Arc::new(http), &site)?))
        };
        let (welcome, router) = match started.await {
            Ok(started) => started,
            Err(error) => {
                engine.close().await;
                return Err(error);
            }
        };
        tokio::spawn(upkeep::sweep(engine.clone(), stopping.clone()));
        tokio::spawn(upkeep::retain(engine.clone(), stopping.clone()));
        let listener = tokio::spawn(listener::serve(listener, router, MOST_CONNECTIONS, stopping.clone()));
        if !address.ip().is_loopback() && !public_url.as_deref().is_some_and(|url| url.starts_with("https://")) {
            tracing::warn!(%address, "tokens are sent as they are: let others reach this only through TLS (--public-url)");
        }
        tracing::info!(%address, %database, version = env!("CARGO_PKG_VERSION"), "listening");
        Ok(Self { address, public_url, welcome, engine, stopping, listener })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The engine behind it.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The secret of the sign-in link of a first start.
    #[must_use]
    pub fn sign_in_link(&self) -> Option<&str> {
        self.welcome.as_ref().map(|welcome| welcome.link.as_str())
    }

    /// Where a browser on this machine, or the one that was told, finds it.
    #[must_use]
    pub fn url(&self) -> String {
        if let Some(url) = &self.public_url {
            return url.clone();
        }
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        format!("http://{}", SocketAddr::new(ip, self.address.port()))
    }

    /// Tells on stdout where it is, and at a first start how to get in.
    fn greet(&self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        let url = self.url();
        writeln!(out, "Job Leases listens on {url}")?;
        if let Some(welcome) = &self.welcome {
            writeln!(out, "Sign in, once and within the hour: {url}/sign-in?link={}", welcome.link)?;
            writeln!(out, "The command line finds its token in {}", welcome.token_file.display())?;
        }
        out.flush()
    }

    /// Stops: open requests end, waiters and streams are told, the database is closed; within ten seconds.
    pub async fn stop(self) {
        self.stopping.cancel();
        let Self { engine, listener, .. } = self;
        let stopped = async {
            let (ended, ()) = tokio::join!(listener, engine.close());
            if let Err(error) = ended {
                tracing::error!(%error, "the listener did not end well");
            }
        };
        if timeout(STOP_TIME, stopped).await.is_err() {
            tracing::error!("stopping took too long and was given up");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_kept_for_an_hour_at_least() {
        assert_eq!(kept("30d"), Ok(Span::millis(30 * 24 * 60 * 60 * 1000)));
        assert_eq!(kept("1h"), Ok(Span::millis(60 * 60 * 1000)));
        for text in ["0", "59m", "30", "999999999999999999d"] {
            assert!(kept(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_public_url_is_an_origin() {
        assert_eq!(origin("https://a.example:8443/").as_deref(), Ok("https://a.example:8443"));
        for url in ["a.example", "https://", "https://a/b", "ftp://a", "https://u@a"] {
            assert!(origin(url).is_err(), "{url}");
        }
    }
}

//! The hosts to which requests may go, and HTTP clients that cannot reach others.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rustls_platform_verifier::BuilderVerifierExt;

use super::address::is_public;

/// The hosts to which `rye/http/request` may send requests; all others are refused.
///
/// A host is written as `api.example.com`, `*.example.com` (all names below it, but not the name itself) or `*` (all hosts).
/// A port follows if it is not the default one: `api.example.com:8443`, or `:*` for all ports. Requests use TLS; a host with
/// `http://` before it allows only requests without TLS.
///
/// The rules apply to each hop of a redirect. Proxies of the environment are not used.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_tools::*; pub mod tools { pub use graph_tools::*; } }
/// use graph_runtime::{HttpPolicy, Runtime, ToolConfig};
///
/// let shops = HttpPolicy::new().allow("*.example.com")?.allow_internal("http://localhost:8080")?;
/// let runtime = Runtime::builder().tools(ToolConfig::new().http(shops)).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct HttpPolicy {
    rules: Vec<HostRule>,
    clients: Arc<Clients>,
}

/// The text does not name a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not name a host: write `api.example.com`, `*.example.com`, or `http://localhost:8080`")]
pub struct BadHost(String);

/// The clients share nothing, so that no connection of one can be used for a request of the other.
#[derive(Default)]
struct Clients {
    public: OnceLock<Result<Client, String>>,
    internal: OnceLock<Result<Client, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HostRule {
    scheme: &'static str,
    host: Host,
    /// `None` for all ports.
    port: Option<u16>,
    /// Whether the host may have an address that is not public.
    internal: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Any,
    /// The host as URLs spell it.
    Named(String),
    /// The names that end in this text, which begins with a dot.
    Below(String),
}

impl HttpPolicy {
    /// Returns a policy that allows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows requests to a host that has an address on the public internet.
    ///
    /// # Errors
    ///
    /// If `host` does not name a host.
    pub fn allow(mut self, host: &str) -> Result<Self, BadHost> {
        self.rules.push(HostRule::parse(host, false)?);
        Ok(self)
    }

    /// Allows requests to a host at any address: on this machine, in its network, or at a cloud's metadata address.
    ///
    /// # Errors
    ///
    /// If `host` does not name a host.
    pub fn allow_internal(mut self, host: &str) -> Result<Self, BadHost> {
        self.rules.push(HostRule::parse(host, true)?);
        Ok(self)
    }

    /// Returns the client for a request to `url`.
    ///
    /// The error says why there is no client. It contains no part of the URL except the host.
    pub(super) fn client(&self, url: &Url) -> Result<Client, String> {
        let allowed = self.rules.iter().filter(|rule| rule.allows(url));
        let Some(internal) = allowed.map(|rule| rule.internal).reduce(|one, other| one || other) else {
            return Err(self.refusal(url));
        };
        if !internal
            && let Some(address) = literal(url)
            && !is_public(address)
        {
            return Err(not_public(&shown(url)));
        }
        let client = if internal { &self.clients.internal } else { &self.clients.public };
        client.get_or_init(|| make_client(internal)).clone()
    }

    fn refusal(&self, url: &Url) -> String {
        let host = shown(url);
        if url.scheme() == "http" {
            return format!(
                "the program does not allow requests to `{host}` without TLS: it names hosts with `HttpPolicy::allow`"
            );
        }
        format!("the program does not allow requests to `{host}`: it names hosts with `HttpPolicy::allow`")
    }
}

impl fmt::Debug for HttpPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpPolicy").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl HostRule {
    fn parse(text: &str, internal: bool) -> Result<Self, BadHost> {
        let bad = || BadHost(text.to_owned());
        let (scheme, rest) = match text.split_once("://") {
            None => ("https", text),
            Some(("https", rest)) => ("https", rest),
            Some(("http", rest)) => ("http", rest),
            Some(_) => return Err(bad()),
        };
        let (rest, every_port) = rest.strip_suffix(":*").map_or((rest, false), |rest| (rest, true));
        let (kind, name) = match rest.strip_prefix('*') {
            None => (Host::Named as fn(String) -> Host, rest.to_owned()),
            // The URL parser cannot parse a wildcard, so a host name takes its place.
            Some(rest) if rest.is_empty() || rest.starts_with(':') => ((|_| Host::Any) as _, format!("any{rest}")),
            Some(rest) => {
                let name = rest.strip_prefix('.').ok_or_else(bad)?;
                ((|name| Host::Below(format!(".{name}"))) as _, name.to_owned())
            }
        };
        let url = Url::parse(&format!("{scheme}://{name}")).map_err(|_| bad())?;
        let host = url.host_str().filter(|host| !host.is_empty() && !host.contains('*')).ok_or_else(bad)?;
        let is_host = url.path() == "/" && url.query().is_none() && url.fragment().is_none() && !has_userinfo(&url);
        if !is_host || name.contains(['/', '@', '?', '#', '\\']) || (every_port && url.port().is_some()) {
            return Err(bad());
        }
        let port = if every_port { None } else { url.port_or_known_default() };
        Ok(Self { scheme, host: kind(host.to_owned()), port, internal })
    }

    fn allows(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let is_host = match &self.host {
            Host::Any => true,
            Host::Named(name) => host == name,
            Host::Below(end) => host.len() > end.len() && host.ends_with(end.as_str()),
        };
        is_host && url.scheme() == self.scheme && self.port.is_none_or(|port| url.port_or_known_default() == Some(port))
    }
}

/// Whether a URL has a user name or a password.
pub(super) fn has_userinfo(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Returns the part of a URL that messages show: the host, and the port if it is not the default one.
pub(super) fn shown(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Returns the address that a URL names directly; the URL parser normalizes all spellings of an address.
fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn not_public(host: &str) -> String {
    format!(
        "`{host}` has an address that is not on the public internet: the program allows it with `HttpPolicy::allow_internal`"
    )
}

fn make_client(internal: bool) -> Result<Client, String> {
    let failed = |error: &dyn fmt::Display| format!("TLS is not available: {error}");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| failed(&error))?
        .with_no_client_auth();
    Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(Arc::new(Resolver { internal }))
        // Each hop is checked before it is followed.
        .redirect(Policy::none())
        // A proxy would connect to addresses that have not been checked.
        .no_proxy()
        // The graph decides about retries.
        .retry(reqwest::retry::never())
        .referer(false)
        .user_agent(concat!("state-graphs/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| failed(&error))
}

/// Resolves host names, and returns only addresses that the client may connect to.
struct Resolver {
    internal: bool,
}

/// A host without an address that requests may go to.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotPublic(String);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let internal = self.internal;
        Box::pin(async move {
            // The client sets the port from the URL.
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let is_known = !found.is_empty();
            let allowed: Vec<SocketAddr> =
                found.into_iter().filter(|address| internal || is_public(address.ip())).collect();
            if is_known && allowed.is_empty() {
                return Err(NotPublic(not_public(name.as_str())).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(pattern: &str, url: &str) -> bool {
        HostRule::parse(pattern, false).unwrap().allows(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_host_is_allowed_with_its_scheme_and_port_only() {
        assert!(allows("api.example.com", "https://api.example.com/v1?q=1"));
        assert!(allows("API.example.com", "https://api.EXAMPLE.com:443/"));
        assert!(allows("http://localhost:8080", "http://localhost:8080/"));
        assert!(allows("api.example.com:*", "https://api.example.com:8443/"));
        assert!(allows("[::1]:8443", "https://[0:0::1]:8443/"));
        for (pattern, url) in [
            ("api.example.com", "http://api.example.com/"),
            ("api.example.com", "https://api.example.com:8443/"),
            ("api.example.com", "https://evil.com/api.example.com"),
            ("api.example.com", "https://api.example.com.evil.com/"),
            ("api.example.com", "https://xapi.example.com/"),
            ("http://api.example.com", "https://api.example.com/"),
            ("api.example.com:8443", "https://api.example.com/"),
        ] {
            assert!(!allows(pattern, url), "{pattern} {url}");
        }
    }

    #[test]
    fn a_star_covers_every_subdomain_but_not_the_name_itself() {
        assert!(allows("*.example.com", "https://a.b.example.com/"));
        assert!(!allows("*.example.com", "https://example.com/"));
        assert!(!allows("*.example.com", "https://evilexample.com/"));
        assert!(allows("*", "https://anything.org/"));
        assert!(!allows("*", "https://anything.org:8443/"));
        assert!(allows("*:*", "https://anything.org:8443/"));
        assert!(allows("*:8443", "https://anything.org:8443/"));
    }

    #[test]
    fn a_text_that_names_no_host_is_refused() {
        for text in [
            "", "a b", "ftp://a", "a/path", "a?q", "user@a", "*a.com", "a.*.com", "**", "*.", "http://", "a:99999",
            "a:1:*",
        ] {
            assert!(HostRule::parse(text, false).is_err(), "{text}");
        }
        assert!(BadHost("x y".into()).to_string().starts_with("`x y` does not name a host"));
    }

    #[test]
    fn addresses_that_are_not_public_are_refused_in_every_spelling() {
        let policy = HttpPolicy::new().allow("*:*").unwrap();
        for url in [
            "https://127.0.0.1/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://017700000001/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://169.254.169.254/latest/meta-data",
            "https://10.0.0.1:8080/",
        ] {
            let error = policy.client(&Url::parse(url).unwrap()).unwrap_err();
            assert!(error.contains("not on the public internet"), "{url}: {error}");
        }
        let policy = policy.allow_internal("10.0.0.1").unwrap();
        assert!(policy.client(&Url::parse("https://10.0.0.1/").unwrap()).is_ok());
        assert!(policy.client(&Url::parse("https://10.0.0.2/").unwrap()).is_err());
    }
}

//! Addresses of proxies and exporters as Metric Proxy's users write them: `HOST:PORT`, perhaps with a path that begins
//! with a token, and perhaps with a period in milliseconds behind `@`.

use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::client::{Address, Client};

/// The period where none is named with `-s` and `-r`.
pub const PERIOD_OF_OPTIONS: Duration = Duration::from_millis(100);
/// Shortest and longest period.
pub const PERIOD_MIN: Duration = Duration::from_millis(10);
pub const PERIOD_MAX: Duration = Duration::from_secs(3_600);
/// Longest address.
const ADDRESS_BYTES_MAX: usize = 512;
/// What is shown of a path: it may hold a token.
const PATH_SHOWN: &str = "/...";

/// Where a proxy or an exporter is asked. Its path is never printed, as it may hold a token.
#[derive(Clone, PartialEq, Eq)]
pub struct TargetAddress {
    /// `HOST:PORT`.
    authority: String,
    /// Before every path that is asked; without a slash at its end, mostly empty.
    path: String,
}

impl TargetAddress {
    /// # Errors
    /// Says what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = |what: &str| format!("{what}; expected HOST:PORT, such as node7:1337");
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(expected(&format!("an address of {} bytes", text.len())));
        }
        let text = text.strip_prefix("http://").unwrap_or(text);
        let (authority, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        let Some((host, port)) = authority.rsplit_once(':') else {
            return Err(expected(&format!("'{authority}' has no port")));
        };
        if port.parse::<u16>().is_err() || port.starts_with('+') {
            return Err(expected(&format!("'{port}' is no port")));
        }
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if host.is_empty() || !(host.chars().all(is_plain) || bracketed.is_some_and(is_ipv6)) {
            return Err(expected(&format!("'{host}' is no host")));
        }
        let is_of_path = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#' | '\\' | '"' | '<' | '>');
        if !path.chars().all(is_of_path) {
            return Err("a path has visible ASCII only, without '?' and '#'".to_owned());
        }
        Ok(Self { authority: authority.to_ascii_lowercase(), path: path.trim_end_matches('/').to_owned() })
    }

    /// With the period behind `@`, in milliseconds; one that is too short or too long is the next that is not.
    ///
    /// # Errors
    /// As [`TargetAddress::parse`]; and for a period that is none.
    pub fn with_period(text: &str) -> Result<(Self, Duration), String> {
        let Some((address, period)) = text.rsplit_once('@') else {
            return Ok((Self::parse(text)?, PERIOD_OF_OPTIONS));
        };
        let period = period.parse().map_err(|_| {
            format!("'{text}' has no period behind @; expected milliseconds from 10 to 3600000, such as @500")
        })?;
        Ok((Self::parse(address)?, Duration::from_millis(period).clamp(PERIOD_MIN, PERIOD_MAX)))
    }

    pub fn authority(&self) -> &str {
        &self.authority
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// `HOST:PORT/path`, the token included.
    pub fn secret_text(&self) -> String {
        format!("{}{}", self.authority, self.path)
    }

    /// The same without what nobody else is to read, in a text that may hold it.
    pub fn censored(&self, text: &str) -> String {
        if self.path.is_empty() { text.to_owned() } else { text.replace(&self.path, PATH_SHOWN) }
    }

    /// All addresses of its host.
    ///
    /// # Errors
    /// Says that there are none.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        let found = tokio::net::lookup_host(&self.authority).await;
        let found: Vec<SocketAddr> = found.map_err(|error| format!("{self} has no address: {error}"))?.collect();
        if found.is_empty() { Err(format!("{self} has no address")) } else { Ok(found) }
    }

    /// What asks it: at its name, or at one address.
    pub fn client(&self, at: Option<SocketAddr>, connect_max: Duration, silence_max: Duration) -> Client {
        let authority = at.map_or_else(|| self.authority.clone(), |at| at.to_string());
        let address = Address::Tcp { tls: false, authority, prefix: self.path.clone() };
        // The token of this server is nothing for others.
        Client::with_token(address, None).with_connect_timeout(connect_max).with_silence(silence_max)
    }
}

fn is_ipv6(text: &str) -> bool {
    text.parse::<std::net::Ipv6Addr>().is_ok()
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)?;
        if self.path.is_empty() { Ok(()) } else { f.write_str(PATH_SHOWN) }
    }
}

impl fmt::Debug for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether an address is on this machine: on loopback, or one that it has itself.
pub fn is_here(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    // An address can be bound only where it is.
    ip.is_loopback() || (!ip.is_unspecified() && !ip.is_multicast() && UdpSocket::bind((ip, 0)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_a_port_and_perhaps_a_path_that_is_not_shown() {
        let address = TargetAddress::parse("Node7:1337/t/secret/").unwrap();
        assert_eq!((address.authority(), address.path()), ("node7:1337", "/t/secret"));
        assert_eq!(
            (address.to_string(), address.secret_text()),
            ("node7:1337/...".into(), "node7:1337/t/secret".into())
        );
        assert_eq!(address.censored("cannot reach http://node7:1337/t/secret"), "cannot reach http://node7:1337/...");
        assert_eq!(TargetAddress::parse("http://[::1]:80").unwrap().authority(), "[::1]:80");
        for odd in
            ["node7", "node7:", "node7:port", "node7:99999", ":1337", "a b:1", "[::1:80", "a:1/x?y", "[x]:1", "[:1"]
        {
            assert!(TargetAddress::parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_period_stands_behind_an_at() {
        let of = |text: &str| TargetAddress::with_period(text).map(|(_, period)| period.as_millis());
        assert_eq!((of("a:1"), of("a:1@500")), (Ok(100), Ok(500)));
        assert_eq!((of("a:1@0"), of("a:1@3600001")), (Ok(10), Ok(3_600_000)));
        for odd in ["a:1@", "a:1@x", "a:1@-1", "@500"] {
            assert!(of(odd).is_err(), "{odd}");
        }
    }
}

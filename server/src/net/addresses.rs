//! The addresses of this machine at which others reach it.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

/// Most addresses that are named.
const ADDRESSES_MAX: usize = 16;

/// The address by which this machine is reached from `peer`: the one from which it would itself go there.
pub fn towards(peer: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    // Sends nothing: the kernel only chooses a route.
    socket.connect(peer).ok()?;
    let ip = socket.local_addr().ok()?.ip().to_canonical();
    (!ip.is_unspecified()).then_some(ip)
}

/// Addresses beyond loopback, best first: those of the host's name, then all others that the kernel has.
pub fn own(host: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    let resolved = (host, 0).to_socket_addrs().into_iter().flatten().map(|address| address.ip().to_canonical());
    let routes = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let interfaces = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let local: BTreeSet<IpAddr> = ipv4(&routes).chain(ipv6(&interfaces)).collect();
    let named: Vec<IpAddr> = resolved.filter(|ip| local.contains(ip)).collect();
    for ip in named.into_iter().chain(local) {
        if is_reachable(ip) && !found.contains(&ip) && found.len() < ADDRESSES_MAX {
            found.push(ip);
        }
    }
    found
}

/// Whether others may find a machine there: neither on loopback nor on one link only.
fn is_reachable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_unspecified(),
    }
}

/// Local addresses in the kernel's table of routes: the line before `/32 host LOCAL` has one.
fn ipv4(table: &str) -> impl Iterator<Item = IpAddr> {
    let lines = table.lines().zip(table.lines().skip(1));
    lines
        .filter(|(_, next)| next.trim() == "/32 host LOCAL")
        .filter_map(|(line, _)| line.trim().strip_prefix("|-- ")?.parse::<Ipv4Addr>().ok().map(IpAddr::V4))
}

/// Addresses of interfaces: 32 hexadecimal digits begin each line.
fn ipv6(table: &str) -> impl Iterator<Item = IpAddr> {
    table.lines().filter_map(|line| {
        let bits = u128::from_str_radix(line.split_ascii_whitespace().next()?, 16).ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(bits)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.0.0.0/24 2 0 2
        |-- 10.0.0.7
           /32 host LOCAL
        |-- 10.0.0.255
           /32 link BROADCAST
     |-- 127.0.0.1
        /32 host LOCAL
Local:
     |-- 10.0.0.7
        /32 host LOCAL
";
    const INTERFACES: &str = "\
00000000000000000000000000000001 01 80 10 80       lo
fe800000000000000042acfffe110002 02 40 20 80     eth0
fd000000000000000000000000000007 02 40 00 80     eth0
nonsense
";

    #[test]
    fn the_kernels_tables_name_the_addresses_of_this_machine() {
        let text = |ips: &mut dyn Iterator<Item = IpAddr>| ips.map(|ip| ip.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(text(&mut ipv4(ROUTES)), "10.0.0.7 127.0.0.1 10.0.0.7");
        assert_eq!(text(&mut ipv6(INTERFACES)), "::1 fe80::42:acff:fe11:2 fd00::7");
        let reachable = ipv4(ROUTES).chain(ipv6(INTERFACES)).filter(|ip| is_reachable(*ip));
        assert_eq!(text(&mut reachable.into_iter()), "10.0.0.7 10.0.0.7 fd00::7");
    }

    #[test]
    fn loopback_is_reached_from_loopback() {
        let here: SocketAddr = "127.0.0.1:9".parse().unwrap();
        assert_eq!(towards(here), Some(here.ip()));
    }
}

//! The owners of connections, as this machine's kernel reports them.

use super::*;
use crate::net::owner::OwnerLookup;
use crate::net::sock_diag::{self, SockDiag};

/// A connection from this process to one that listens at `listening`, both ends and the addresses of its client.
async fn connect(listening: &str, client: &str) -> Option<(TcpStream, TcpStream, SocketAddr, SocketAddr)> {
    // A machine may have no IPv6.
    let listener = listen(Some(listening.parse().unwrap())).await.ok()?;
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect((client, port)).await.ok()?;
    let (served, _) = listener.accept().await.unwrap();
    let (local, remote) = (served.peer_addr().unwrap(), served.local_addr().unwrap());
    Some((client, served, local, remote))
}

/// Every way in which a connection on loopback may be spelled: where the server listens, and whom the client asks for.
const WAYS: [(&str, &str); 5] = [
    ("127.0.0.1:0", "127.0.0.1"),
    ("0.0.0.0:0", "127.0.0.2"),
    ("[::]:0", "127.0.0.1"),
    ("[::1]:0", "::1"),
    ("[::]:0", "::ffff:127.0.0.1"),
];

#[tokio::test]
async fn the_owner_of_a_real_loopback_connection_is_found() {
    for (listening, asked) in WAYS {
        let Some((client, served, local, remote)) = connect(listening, asked).await else { continue };
        let own = Some(SocketOwner { uid: uid(), end: SocketHold::Held });
        let tables = OwnerLookup::of_tables();
        assert_eq!(tables.in_tables(local, remote).await.unwrap(), own, "{listening} {asked}");
        assert!(tables.at_once(local, remote).is_err(), "tables are not read at once");

        let lookup = OwnerLookup::new(listening.parse().unwrap());
        assert!(lookup.at_once(local, remote).is_err(), "nothing listens at port 0, so nothing is believed");
        drop((client, served));
    }
}

#[tokio::test]
async fn the_kernel_is_asked_for_one_connection() {
    for (listening, asked) in WAYS {
        let Ok(listener) = listen(Some(listening.parse().unwrap())).await else { continue };
        let address = listener.local_addr().unwrap();
        let Ok(diag) = SockDiag::open(address) else {
            println!("skipped: this machine does not answer over netlink");
            return;
        };
        let Ok(client) = TcpStream::connect((asked, address.port())).await else { continue };
        let (served, _) = listener.accept().await.unwrap();
        let (local, remote) = (served.peer_addr().unwrap(), served.local_addr().unwrap());
        let own = Some(SocketOwner { uid: uid(), end: SocketHold::Held });
        let lookup = OwnerLookup::new(address);
        assert_eq!(lookup.at_once(local, remote).unwrap(), own, "{listening} {asked}");
        // The socket that listens would be given what comes from a port that is not connected; it is no client.
        let free = SocketAddr::new(local.ip(), 1);
        assert!(diag.find(remote, free).unwrap().is_some());
        assert_eq!(lookup.at_once(remote, free).unwrap(), None);
        assert_eq!(lookup.at_once(free, remote).unwrap(), None);
        drop((client, served));
    }
}

#[tokio::test]
async fn a_client_that_hung_up_is_known_only_as_long_as_the_kernel_knows_it() {
    let listener = listen(Some("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let lookup = OwnerLookup::new(listener.local_addr().unwrap());
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (served, _) = listener.accept().await.unwrap();
    let (local, remote) = (served.peer_addr().unwrap(), served.local_addr().unwrap());
    client.set_zero_linger().unwrap();
    drop(client);
    let found = match lookup.at_once(local, remote) {
        Ok(found) => found,
        Err(_) => lookup.in_tables(local, remote).await.unwrap(),
    };
    assert_eq!(found, None, "a connection that was reset has no other end");
}

#[test]
fn a_description_of_a_socket_that_is_cut_short_is_none() {
    let mut body = [0; 72];
    body[..2].copy_from_slice(&[2, 1]);
    body[4..8].copy_from_slice(&[0xC3, 0x50, 0x10, 0x92]);
    body[8..12].copy_from_slice(&[127, 0, 0, 1]);
    body[24..28].copy_from_slice(&[127, 0, 0, 2]);
    body[64..68].copy_from_slice(&1001_u32.to_ne_bytes());
    body[68..].copy_from_slice(&7_u32.to_ne_bytes());
    let row = sock_diag::row(&body).unwrap();
    assert_eq!((row.local.to_string(), row.remote.to_string()), ("127.0.0.1:50000".into(), "127.0.0.2:4242".into()));
    assert_eq!((row.state, row.uid, row.inode), (1, 1001, 7));
    for len in 0..body.len() {
        assert!(sock_diag::row(&body[..len]).is_none(), "{len} bytes");
    }
    body[0] = 1;
    assert!(sock_diag::row(&body).is_none(), "a family that TCP does not have");
}

//! What a job learns about the service beside it.

use super::*;

#[test]
fn the_tunnel_leads_to_the_port_that_is_really_listened_on() {
    let line = "ssh command: ssh -NL localhost:4243:localhost:4243 nid01";
    assert_eq!(tunnel("http://127.0.0.1:4243", "nid01"), line);
    assert_eq!(tunnel("http://nid01:4243", "nid01"), line);
    assert_eq!(tunnel("http://[::1]:4243", "nid01"), line);
}

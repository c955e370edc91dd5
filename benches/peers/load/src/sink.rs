//! A server that answers every request with 204 and keeps nothing: what remains is the cost of client and loopback.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::{Failed, http};

/// Prints the port and serves until the process is ended.
///
/// # Errors
/// When no port can be had.
pub fn run() -> Result<(), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            if let Err(error) = swallow(stream) {
                eprintln!("telem-load sink: {error}");
            }
        });
    }
    Ok(())
}

fn swallow(mut stream: TcpStream) -> Result<(), Failed> {
    stream.set_nodelay(true)?;
    let mut requests = BufReader::with_capacity(256 << 10, stream.try_clone()?);
    let mut body = Vec::new();
    while let Some(head) = http::head(&mut requests)? {
        http::body(&mut requests, &head, &mut body)?;
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
    }
    Ok(())
}

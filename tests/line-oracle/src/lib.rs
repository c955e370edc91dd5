//! Random lines, parsed by telem and by InfluxDB 3's own parser: where both accept a line they agree, and both accept
//! every well-formed line.

#[cfg(test)]
mod tests;

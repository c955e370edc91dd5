//! Random lines, read by telem and by InfluxDB 3's own parser: what both read is the same, and every line that is
//! well-formed is read by both.

#[cfg(test)]
mod tests;

//! The node under the names that Metric Proxy gives its metrics, read when somebody asks.
//!
//! Nothing is sampled for it: what telem records of a node has names of its own. Rates are those between two readings,
//! which are a period apart at least.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sysinfo::Disks;
use telem_engine::Clock;
use telem_ingest::counters::{CounterReading, CounterValue, GaugeValue};
use telem_ingest::decode::proxy::label::FullName;

/// The documentation of each, by its name without labels.
const DOCS: [(&str, &str); 30] = [
    ("proxy_disk_size_bytes", "Total size in bytes of the given device"),
    ("proxy_disk_free_size_bytes", "Total remaining size in bytes of the given device"),
    ("proxy_disk_used_size_bytes", "Total used size in bytes of the given device"),
    ("proxy_disk_usage_percent", "Total used percentage of the given device"),
    ("proxy_network_transmit_bandwidth_bytes", "Outgoing Bandwidth during the refresh interval on the given device"),
    ("proxy_network_receive_bandwidth_bytes", "Incoming Bandwidth during the refresh interval on the given device"),
    ("proxy_network_transmit_packet_rate", "Outgoing packet rate during the refresh interval on the given device"),
    ("proxy_network_receive_packet_rate", "Incoming packet rate during the refresh interval on the given device"),
    ("proxy_network_transmit_bytes_total", "Total number of bytes sent on the given device"),
    ("proxy_network_receive_bytes_total", "Total number of bytes received on the given device"),
    ("proxy_network_transmit_packets_total", "Total number of packets sent on the given device"),
    ("proxy_network_receive_packets_total", "Total number of packets received on the given device"),
    ("proxy_network_transmit_packets_error_total", "Total number of erroneous packets sent on the given device"),
    ("proxy_network_receive_packets_error_total", "Total number of erroneous  packets received on the given device"),
    ("proxy_component_temperature_celcius", "Current temperature in celcius for the given component"),
    ("proxy_component_critical_temperature_celcius", "Critical temperature in celcius for the given component"),
    ("proxy_component_critical_temperature", "A boolean indicating if the component reached a critical temperature"),
    ("proxy_memory_total_bytes", "Total memory on the system in bytes"),
    ("proxy_memory_used_bytes", "Total memory on the system in bytes"),
    ("proxy_memory_used_percent", "Total memory usage on the system in percent"),
    ("proxy_swap_total_bytes", "Total swap size on the system in bytes"),
    ("proxy_swap_used_bytes", "Total used swap on the system in bytes"),
    ("proxy_memory_swap_used_percent", "Total swap usage on the system in percent"),
    ("proxy_scrape_total", "Number of scrapes for proxy instance"),
    ("proxy_cpu_frequency_ghz", "Current frequency of the given CPU"),
    ("proxy_cpu_usage_percent", "Current load in percent of the given CPU"),
    ("proxy_cpu_total", "Number of tracked CPUs by individual proxies"),
    ("proxy_cpu_load_average_percent", "Average load on all the CPUs"),
    ("proxy_messages_total", "Number of messages of clients that were taken"),
    ("proxy_messages_refused_total", "Number of messages of clients that were refused"),
];

/// The documentation of a metric of the node.
fn doc_of(name: &str) -> Option<&'static str> {
    let base = name.split('{').next().unwrap_or_default();
    DOCS.iter().find(|(known, _)| *known == base).map(|(_, doc)| *doc)
}

/// The unit of `proxy_cpu_frequency_ghz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrequencyUnit {
    /// That of its name.
    Gigahertz,
    /// That of the original.
    Megahertz,
}

/// What the node is like, as of the last time somebody asked.
#[derive(Debug)]
pub struct SystemReadings {
    host: String,
    /// Where proc, sys and etc are.
    sysroot: PathBuf,
    period: Duration,
    clock: Arc<dyn Clock>,
    frequency: FrequencyUnit,
    last: Mutex<LastLook>,
}

#[derive(Debug, Default)]
struct LastLook {
    at: Option<Duration>,
    looks: u64,
    cpus: BTreeMap<String, CoreTimes>,
    links: BTreeMap<String, LinkCounters>,
    readings: Arc<[CounterReading]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CoreTimes {
    busy: u64,
    all: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct LinkCounters {
    received: [u64; 3],
    sent: [u64; 3],
}

impl SystemReadings {
    pub fn new(host: &str, period: Duration, clock: Arc<dyn Clock>, frequency: FrequencyUnit) -> Self {
        Self { host: host.to_owned(), sysroot: "/".into(), period, clock, frequency, last: Mutex::default() }
    }

    /// The same of a node whose proc, sys and etc are below `sysroot`.
    #[must_use]
    pub fn below(self, sysroot: PathBuf) -> Self {
        Self { sysroot, ..self }
    }

    /// The documentation of a metric of the node; `None` of any other name.
    pub fn doc(&self, name: &str) -> Option<&'static str> {
        doc_of(name)
    }

    /// What the node is like. It is read anew when a period has passed.
    pub fn readings(&self) -> Arc<[CounterReading]> {
        let now = self.clock.monotonic();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = last.at.map(|at| now.saturating_sub(at));
        if passed.is_none_or(|passed| passed >= self.period) {
            self.look(&mut last, passed);
            last.at = Some(now);
        }
        Arc::clone(&last.readings)
    }

    fn look(&self, last: &mut LastLook, passed: Option<Duration>) {
        last.looks += 1;
        let mut found = FoundReadings::default();
        self.look_at_cpus(last, &mut found);
        look_at_memory(&self.text("proc/meminfo"), &mut found);
        look_at_disks(&mut found);
        look_at_links(&self.text("proc/net/dev"), last, passed, &mut found);
        look_at_sensors(&self.sysroot.join("sys/class/hwmon"), &mut found);
        let os = os_release(&self.text("etc/os-release"));
        let kernel = self.text("proc/sys/kernel/osrelease");
        let labels = [("os", &*os.0), ("osversion", &*os.1), ("kernel", kernel.trim()), ("hostname", &*self.host)];
        found.counter("proxy_scrape_total", &labels, last.looks as f64);
        last.readings = found.readings.into();
    }

    /// What a file says; nothing, if it is not there.
    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.sysroot.join(path)).unwrap_or_default()
    }

    fn look_at_cpus(&self, last: &mut LastLook, found: &mut FoundReadings) {
        let info = self.text("proc/cpuinfo");
        let field = |name: &str| {
            let values = info.lines().filter_map(move |line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            });
            values.collect::<Vec<String>>()
        };
        let (vendors, models, frequencies) = (field("vendor_id"), field("model name"), field("cpu MHz"));
        let stat = self.text("proc/stat");
        let (mut number, mut sum) = (0_usize, 0.0);
        for line in stat.lines().filter(|line| line.starts_with("cpu")) {
            let mut parts = line.split_ascii_whitespace();
            let name = parts.next().unwrap_or_default();
            if name == "cpu" {
                continue;
            }
            let times: Vec<u64> = parts.take(8).map(|part| part.parse().unwrap_or(0)).collect();
            let all: u64 = times.iter().sum();
            let idle = times.get(3).copied().unwrap_or(0) + times.get(4).copied().unwrap_or(0);
            let now = CoreTimes { busy: all.saturating_sub(idle), all };
            let before = last.cpus.insert(name.to_owned(), now).unwrap_or_default();
            let passed = now.all.saturating_sub(before.all);
            let usage = percent(now.busy.saturating_sub(before.busy) as f64, passed as f64);
            let own = |of: &[String]| of.get(number).or(of.first()).cloned().unwrap_or_default();
            let (vendor, model) = (own(&vendors), own(&models));
            let labels = [("name", name), ("vendor", &*vendor), ("model", &*model)];
            let frequency: f64 = own(&frequencies).parse().unwrap_or(0.0);
            found.gauge(
                "proxy_cpu_frequency_ghz",
                &labels,
                match self.frequency {
                    FrequencyUnit::Megahertz => frequency,
                    FrequencyUnit::Gigahertz => frequency / 1_000.0,
                },
            );
            found.gauge("proxy_cpu_usage_percent", &labels, usage);
            number += 1;
            sum += usage;
        }
        found.gauge("proxy_cpu_total", &[], number as f64);
        found.gauge("proxy_cpu_load_average_percent", &[], if number == 0 { 0.0 } else { sum / number as f64 });
    }
}

/// A part of a whole; 0 % of nothing.
fn percent(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole * 100.0 }
}

#[derive(Default)]
struct FoundReadings {
    readings: Vec<CounterReading>,
}

impl FoundReadings {
    fn add(&mut self, base: &str, labels: &[(&str, &str)], value: CounterValue) {
        let name = FullName::written(base, labels.iter().copied()).into();
        let doc = doc_of(base).unwrap_or_default().into();
        self.readings.push(CounterReading { name, doc, value });
    }

    fn gauge(&mut self, base: &str, labels: &[(&str, &str)], value: f64) {
        self.add(base, labels, CounterValue::Gauge(GaugeValue::of(value)));
    }

    fn counter(&mut self, base: &str, labels: &[(&str, &str)], value: f64) {
        self.add(base, labels, CounterValue::Counter(value));
    }
}

fn look_at_memory(info: &str, found: &mut FoundReadings) {
    let bytes = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib: u64 = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        kib as f64 * 1_024.0
    };
    let (total, available) = (bytes("MemTotal"), bytes("MemAvailable"));
    let (swap, swap_free) = (bytes("SwapTotal"), bytes("SwapFree"));
    let (used, swap_used) = (total - available, swap - swap_free);
    found.gauge("proxy_memory_total_bytes", &[], total);
    found.gauge("proxy_memory_used_bytes", &[], used);
    found.gauge("proxy_memory_used_percent", &[], percent(used, total));
    found.gauge("proxy_swap_total_bytes", &[], swap);
    found.gauge("proxy_swap_used_bytes", &[], swap_used);
    found.gauge("proxy_memory_swap_used_percent", &[], percent(swap_used, swap));
}

fn look_at_disks(found: &mut FoundReadings) {
    let disks = match Disks::new_with_refreshed_list() {
        Ok(disks) => disks,
        Err(error) => return tracing::debug!(%error, "the disks of the node are not told"),
    };
    for disk in &disks {
        let (kind, device) = (disk.kind().to_string(), disk.name().to_string_lossy().into_owned());
        let (fs, mount) =
            (disk.file_system().to_string_lossy().into_owned(), disk.mount_point().to_string_lossy().into_owned());
        let labels = [("kind", &*kind), ("device", &*device), ("fs", &*fs), ("mountpoint", &*mount)];
        let (total, free) = (disk.total_space() as f64, disk.available_space() as f64);
        found.gauge("proxy_disk_size_bytes", &labels, total);
        found.gauge("proxy_disk_free_size_bytes", &labels, free);
        found.gauge("proxy_disk_used_size_bytes", &labels, total - free);
        found.gauge("proxy_disk_usage_percent", &labels, percent(total - free, total));
    }
}

fn look_at_links(text: &str, last: &mut LastLook, passed: Option<Duration>, found: &mut FoundReadings) {
    for line in text.lines().skip(2) {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        let numbers: Vec<u64> = numbers.split_ascii_whitespace().map(|number| number.parse().unwrap_or(0)).collect();
        let at = |at: usize| numbers.get(at).copied().unwrap_or(0);
        let now = LinkCounters { received: [at(0), at(1), at(2)], sent: [at(8), at(9), at(10)] };
        let before = last.links.insert(name.trim().to_owned(), now);
        let seconds = passed.map_or(0.0, |passed| passed.as_secs_f64());
        let rate = |now: u64, before: Option<u64>| match before {
            Some(before) if seconds > 0.0 => now.saturating_sub(before) as f64 / seconds,
            _ => 0.0,
        };
        let labels = [("interface", name.trim())];
        for (way, now, before) in [
            ("receive", now.received, before.map(|before| before.received)),
            ("transmit", now.sent, before.map(|before| before.sent)),
        ] {
            let of = |what: &str| format!("proxy_network_{way}_{what}");
            found.gauge(&of("bandwidth_bytes"), &labels, rate(now[0], before.map(|before| before[0])));
            found.gauge(&of("packet_rate"), &labels, rate(now[1], before.map(|before| before[1])));
            found.counter(&of("bytes_total"), &labels, now[0] as f64);
            found.counter(&of("packets_total"), &labels, now[1] as f64);
            found.counter(&of("packets_error_total"), &labels, now[2] as f64);
        }
    }
}

fn look_at_sensors(dir: &Path, found: &mut FoundReadings) {
    let read = |path: &Path| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let Ok(chips) = fs::read_dir(dir) else { return };
    let mut chips: Vec<_> = chips.flatten().map(|chip| chip.path()).collect();
    chips.sort();
    for chip in chips {
        let chip_name = read(&chip.join("name")).unwrap_or_default();
        for number in 1..=64 {
            let file = |what: &str| chip.join(format!("temp{number}_{what}"));
            let celsius = |what: &str| {
                read(&file(what)).ok().and_then(|text| text.parse::<f64>().ok()).map(|milli| milli / 1_000.0)
            };
            let Some(now) = celsius("input") else { continue };
            let label = read(&file("label")).unwrap_or_else(|_| format!("temp{number}"));
            let component = format!("{chip_name} {label}");
            let labels = [("component", component.trim())];
            found.gauge("proxy_component_temperature_celcius", &labels, now);
            if let Some(critical) = celsius("crit") {
                found.gauge("proxy_component_critical_temperature_celcius", &labels, critical);
                let is_critical = if now >= critical { 1.0 } else { 0.0 };
                found.gauge("proxy_component_critical_temperature", &labels, is_critical);
            }
        }
    }
}

/// Name and version of the operating system.
fn os_release(text: &str) -> (String, String) {
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().trim_matches('"').to_owned()
    };
    (field("NAME"), field("VERSION_ID"))
}

#[cfg(test)]
mod tests {
    use telem_engine::SystemClock;

    use super::super::testing::TestClock;

    use super::*;

    /// A node that is written down: what each of its files says.
    fn node(dir: &Path, busy: u64, link: [u64; 6]) {
        let [received, packets, errors, sent, sent_packets, sent_errors] = link;
        let stat = format!("cpu  {busy} 0 0 {busy} 0 0 0 0\ncpu0 {busy} 0 0 {busy} 0 0 0 0\nintr 5\n");
        let link = format!(
            "Inter-|   Receive\n face |bytes\n  eth0: {received} {packets} {errors} 0 0 0 0 0 {sent} {sent_packets} \
             {sent_errors} 0 0 0 0 0\n"
        );
        for (path, text) in [
            ("proc/stat", &*stat),
            ("proc/net/dev", &link),
            ("proc/cpuinfo", "processor\t: 0\nvendor_id\t: V\nmodel name\t: M\ncpu MHz\t\t: 2500.0\n"),
            ("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 250 kB\nSwapTotal: 400 kB\nSwapFree: 100 kB\n"),
            ("proc/sys/kernel/osrelease", "6.1\n"),
            ("etc/os-release", "NAME=\"An OS\"\nVERSION_ID=\"3\"\n"),
        ] {
            fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
            fs::write(dir.join(path), text).unwrap();
        }
    }

    #[test]
    fn counters_are_the_kernels_own_however_often_they_are_looked_at_and_rates_are_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::default());
        let system = SystemReadings::new("n7", Duration::ZERO, clock.clone(), FrequencyUnit::Gigahertz)
            .below(dir.path().to_owned());
        let look = || -> BTreeMap<String, f64> {
            let value = |value| match value {
                CounterValue::Gauge(gauge) => gauge.average(),
                CounterValue::Counter(value) => value,
            };
            let named = system.readings();
            named.iter().map(|reading| (reading.name.to_string(), value(reading.value))).collect()
        };
        node(dir.path(), 100, [5_000, 50, 1, 7_000, 70, 2]);
        look();
        clock.pass(Duration::from_secs(2));
        node(dir.path(), 300, [6_000, 70, 1, 9_000, 80, 2]);
        for at in 0..3 {
            let found = look();
            let link = |name: &str| found[&format!("proxy_network_{name}{{interface=\"eth0\"}}")];
            let totals = ["receive_bytes_total", "receive_packets_total", "receive_packets_error_total"].map(link);
            assert_eq!(totals, [6_000.0, 70.0, 1.0]);
            let totals = ["transmit_bytes_total", "transmit_packets_total", "transmit_packets_error_total"].map(link);
            assert_eq!(totals, [9_000.0, 80.0, 2.0]);
            if at == 0 {
                assert_eq!(["receive_bandwidth_bytes", "transmit_packet_rate"].map(link), [500.0, 5.0], "a second");
                assert_eq!(found["proxy_cpu_load_average_percent"], 50.0);
            }
            let cpu = "{name=\"cpu0\",vendor=\"V\",model=\"M\"}";
            assert_eq!(found[&format!("proxy_cpu_frequency_ghz{cpu}")], 2.5);
            let bytes = ["proxy_memory_total_bytes", "proxy_swap_total_bytes", "proxy_swap_used_bytes"];
            assert_eq!(bytes.map(|name| found[name]), [1_024_000.0, 409_600.0, 307_200.0]);
            let shares = ["proxy_memory_used_percent", "proxy_memory_swap_used_percent"];
            assert_eq!(shares.map(|name| found[name]), [75.0, 75.0]);
            let scrapes = "proxy_scrape_total{os=\"An OS\",osversion=\"3\",kernel=\"6.1\",hostname=\"n7\"}";
            assert_eq!(found[scrapes], f64::from(at + 2));
            clock.pass(Duration::from_secs(1));
        }
    }

    #[test]
    fn frequencies_are_in_megahertz_for_who_wants_the_originals() {
        let dir = tempfile::tempdir().unwrap();
        node(dir.path(), 100, [0; 6]);
        for (unit, expected) in [(FrequencyUnit::Gigahertz, 2.5), (FrequencyUnit::Megahertz, 2_500.0)] {
            let clock = Arc::new(TestClock::default());
            let system = SystemReadings::new("n7", Duration::ZERO, clock, unit).below(dir.path().to_owned());
            let readings = system.readings();
            let name = "proxy_cpu_frequency_ghz{name=\"cpu0\",vendor=\"V\",model=\"M\"}";
            let found = readings.iter().find(|reading| &*reading.name == name).map(|reading| reading.value);
            let is_it = matches!(found, Some(CounterValue::Gauge(gauge)) if gauge.average() == expected);
            assert!(is_it, "{found:?} for {unit:?}");
        }
    }

    #[test]
    fn the_node_is_told_under_the_names_of_the_original_with_numbers_that_are_right() {
        let system = SystemReadings::new("n7", Duration::ZERO, Arc::new(SystemClock::new()), FrequencyUnit::Gigahertz);
        system.readings();
        let readings = system.readings();
        let value = |name: &str| match readings.iter().find(|reading| &*reading.name == name).unwrap().value {
            CounterValue::Gauge(gauge) => gauge.average(),
            CounterValue::Counter(value) => value,
        };
        assert!(value("proxy_memory_total_bytes") > value("proxy_memory_used_bytes"));
        assert!((0.0..=100.0).contains(&value("proxy_cpu_load_average_percent")));
        assert!(value("proxy_cpu_total") >= 1.0);
        for reading in readings.iter() {
            assert!(doc_of(&reading.name).is_some_and(|doc| *doc == *reading.doc), "{}", reading.name);
            assert!(
                !matches!(reading.value, CounterValue::Gauge(gauge) if gauge.average().is_nan()),
                "{}",
                reading.name
            );
        }
        let swap = value("proxy_swap_total_bytes");
        assert!(swap != value("proxy_memory_total_bytes") || swap == 0.0, "swap is not memory");
        let frequency = readings.iter().find(|reading| reading.name.starts_with("proxy_cpu_frequency_ghz")).unwrap();
        assert!(matches!(frequency.value, CounterValue::Gauge(gauge) if gauge.average() < 20.0), "GHz");
    }
}

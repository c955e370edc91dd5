//! A tree of `/proc` and `/sys` of a large node, grown from the recording of a small one.
//!
//! The shape (lines of CPUs, interrupts, disks with partitions, interfaces, processes) is that of the large node; the
//! numbers are those of the small one. On a real node a read costs the kernel more, because it makes the text anew.

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

/// The job whose processes some of the tree are.
pub const JOB: &str = "bench";

/// How large the node is.
#[derive(Clone, Copy, Debug)]
pub struct NodeSize {
    pub cpus: u32,
    pub processes: u32,
    /// How many of them are of the job [`JOB`].
    pub job_processes: u32,
    /// Numbers in the table of interrupts.
    pub interrupts: u32,
    /// Each with two partitions.
    pub disks: u32,
    /// Interfaces of hardware, and as many of containers.
    pub interfaces: u32,
}

impl NodeSize {
    /// Two sockets of 64 cores with two threads each, under a busy job.
    pub const LARGE: NodeSize =
        NodeSize { cpus: 256, processes: 5_000, job_processes: 256, interrupts: 4_000, disks: 8, interfaces: 4 };
}

/// Writes the tree into `root`, from the recording in `fixtures/proc/first`.
///
/// # Errors
/// When the recording cannot be read or the tree not be written.
pub fn grow(root: &Path, size: NodeSize) -> io::Result<()> {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/proc/first");
    let recorded = |path: &str| fs::read_to_string(recording.join(path));
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)
    };
    for same in ["proc/loadavg", "proc/meminfo", "proc/vmstat", "proc/mounts"] {
        write(same, &recorded(same)?)?;
    }
    for pressure in ["cpu", "memory", "io"] {
        let path = format!("proc/pressure/{pressure}");
        write(&path, &recorded(&path)?)?;
    }
    write("proc/stat", &stat(&recorded("proc/stat")?, size))?;

    let recorded_disks = recorded("proc/diskstats")?;
    let disk = line_of(&recorded_disks, "vda");
    let mut disks = String::new();
    for at in 0..size.disks {
        let name = format!("nvme{at}n1");
        for part in ["", "p1", "p2"] {
            let _ = writeln!(disks, "{}", disk.replace("vda", &format!("{name}{part}")));
        }
        write(&format!("sys/block/{name}/device"), "")?;
    }
    write("proc/diskstats", &disks)?;

    let recorded_net = recorded("proc/net/dev")?;
    let interface = line_of(&recorded_net, "eth0");
    let mut interfaces: String = recorded_net.lines().take(2).map(|line| format!("{line}\n")).collect();
    for at in 0..size.interfaces {
        for name in [format!("hsn{at}"), format!("veth{at}")] {
            let _ = writeln!(interfaces, "{}", interface.replace("eth0", &name));
        }
        write(&format!("sys/class/net/hsn{at}/device"), "")?;
    }
    write("proc/net/dev", &interfaces)?;

    let (process, io) = (recorded("proc/4242/stat")?, recorded("proc/4242/io")?);
    for pid in 1..=size.processes {
        write(&format!("proc/{pid}/stat"), &process.replacen("4242", &pid.to_string(), 1))?;
        write(&format!("proc/{pid}/io"), &io)?;
        let job = if pid <= size.job_processes { format!("TELEM_JOB={JOB}\0PMI_RANK={pid}\0") } else { String::new() };
        write(&format!("proc/{pid}/environ"), &job)?;
        for fd in 0..3 {
            write(&format!("proc/{pid}/fd/{fd}"), "")?;
        }
    }
    Ok(())
}

fn stat(recorded: &str, size: NodeSize) -> String {
    let cpu = line_of(recorded, "cpu0");
    let mut text = format!("{}\n", line_of(recorded, "cpu "));
    for at in 0..size.cpus {
        let _ = writeln!(text, "{}", cpu.replacen("cpu0", &format!("cpu{at}"), 1));
    }
    let numbers: Vec<&str> = line_of(recorded, "intr").split_whitespace().skip(1).collect();
    text.push_str("intr");
    numbers.iter().cycle().take(size.interrupts as usize).for_each(|number| {
        let _ = write!(text, " {number}");
    });
    text.push('\n');
    let rest = recorded.lines().skip_while(|line| !line.starts_with("ctxt"));
    rest.for_each(|line| {
        let _ = writeln!(text, "{line}");
    });
    text
}

/// The first line that holds `name`; empty when there is none.
fn line_of<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find(|line| line.contains(name)).unwrap_or_default()
}

//! The fuzz target of the text that the kernel and drivers tell of hardware, file systems and control groups in.

use crate::collect::cgroup::{self, IoWay};
use crate::collect::energy::cray;
use crate::collect::fabric::cxi;
use crate::collect::gpu::clients;
use crate::collect::{lustre, nfs, numa};

/// Whatever is read of a text, and written again as a kernel does, is read the same: nothing is made up, and no number
/// is changed on the way.
pub fn kernel_text(text: &[u8]) {
    pm_counters(text);
    lustre_counts(text);
    nfs_mounts(text);
    numa_nodes(text);
    control_group(text);
    if let Some(value) = cxi::parse_item(text) {
        assert_eq!(cxi::parse_item(format!("{value}@1.5").as_bytes()), Some(value));
    }
    if let Some(client) = clients::parse_fdinfo(text) {
        let place = client.pci.map(|pci| format!("drm-pdev:\t{pci}\n")).unwrap_or_default();
        // Sums of larger ones stop at the end.
        if client.bytes <= i64::MAX as u64 {
            let written = format!("drm-client-id:\t{}\n{place}drm-total-vram0:\t{}\n", client.id, client.bytes);
            assert_eq!(clients::parse_fdinfo(written.as_bytes()), Some(client));
        }
    }
    if let Some(pci) = clients::parse_place(text) {
        let location = u32::from(pci.bus) << 8 | u32::from(pci.device) << 3 | u32::from(pci.function);
        let written = format!("location_id {location}\ndomain {}\n", pci.domain);
        assert_eq!(clients::parse_place(written.as_bytes()), Some(pci));
    }
}

fn pm_counters(text: &[u8]) {
    for unit in ["W", "J"] {
        let Some(reading) = cray::parse(text, unit) else { continue };
        let written = format!("{} {unit} {} us\n", reading.value, reading.time.micros());
        assert_eq!(cray::parse(written.as_bytes(), unit), Some(reading));
    }
}

fn lustre_counts(text: &[u8]) {
    let counts: Vec<_> = lustre::parse(text).collect();
    let mut written = Vec::new();
    for count in &counts {
        written.extend_from_slice(count.operation);
        written.extend_from_slice(format!(" {} samples [", count.count).as_bytes());
        written.extend_from_slice(count.unit);
        written.extend_from_slice(b"]");
        if let Some(sum) = count.sum {
            written.extend_from_slice(format!(" 0 0 {sum}").as_bytes());
        }
        written.push(b'\n');
    }
    assert_eq!(lustre::parse(&written).collect::<Vec<_>>(), counts);
}

fn nfs_mounts(text: &[u8]) {
    let mounts = nfs::parse(text);
    let mut written = Vec::new();
    for mount in &mounts {
        for part in [&b"device "[..], mount.export, b" mounted on ", mount.mountpoint, b" with fstype nfs\n"] {
            written.extend_from_slice(part);
        }
        if let Some(age) = mount.age {
            written.extend_from_slice(format!("age: {age}\n").as_bytes());
        }
        if let Some([read, sent]) = mount.bytes {
            written.extend_from_slice(format!("bytes: 0 0 0 0 {read} {sent} 0 0\n").as_bytes());
        }
    }
    let of = |mounts: &[nfs::NfsMount<'_>]| -> Vec<_> {
        mounts.iter().map(|mount| (mount.export.to_vec(), mount.mountpoint.to_vec(), mount.age, mount.bytes)).collect()
    };
    assert_eq!(of(&nfs::parse(&written)), of(&mounts));
}

fn numa_nodes(text: &[u8]) {
    let pages: Vec<_> = numa::parse_pages(text).collect();
    let written: Vec<u8> =
        pages.iter().flat_map(|(key, count)| [key, format!(" {count}\n").as_bytes()].concat()).collect();
    assert_eq!(numa::parse_pages(&written).collect::<Vec<_>>(), pages);
    let sizes: Vec<_> = numa::parse_sizes(text).collect();
    let line = |(name, bytes): &(&[u8], u64)| {
        assert_eq!(bytes % 1_024, 0);
        [&b"Node 0 "[..], name, format!(": {} kB\n", bytes / 1_024).as_bytes()].concat()
    };
    let written: Vec<u8> = sizes.iter().flat_map(line).collect();
    assert_eq!(numa::parse_sizes(&written).collect::<Vec<_>>(), sizes);
}

fn control_group(text: &[u8]) {
    let devices = cgroup::parse_io_stat(text);
    let line = |(device, way, bytes): &(&[u8], IoWay, u64)| {
        let key = if *way == IoWay::Read { "rbytes" } else { "wbytes" };
        [device, format!(" {key}={bytes}\n").as_bytes()].concat()
    };
    let written: Vec<u8> = devices.iter().flat_map(line).collect();
    assert_eq!(cgroup::parse_io_stat(&written), devices);
    let devices = cgroup::parse_blkio(text);
    let line = |(device, way, bytes): &(&[u8], IoWay, u64)| {
        let way = if *way == IoWay::Read { "Read" } else { "Write" };
        [device, format!(" {way} {bytes}\n").as_bytes()].concat()
    };
    let written: Vec<u8> = devices.iter().flat_map(line).collect();
    assert_eq!(cgroup::parse_blkio(&written), devices);
    if let Some(count) = cgroup::count_cpus(text) {
        // As many of them in one stretch.
        let stretch = count.checked_sub(1).map(|last| format!("0-{last}"));
        let again = stretch.and_then(|stretch| cgroup::count_cpus(stretch.as_bytes()));
        assert!(again == Some(count) || count > i64::MAX as u64, "{count} CPUs");
    }
}

//! Every metric that telem itself defines: its name, level, kind, unit and help.
//!
//! A collector may emit only metrics that are listed here (a slot for a series checks that). The page `docs/metrics.md`
//! is made from this list, and a query for one of these names is never a query for an unknown name. Names follow
//! node_exporter where it has a name, so that its dashboards find them.

#[cfg(test)]
mod tests;

use telem_engine::{MetricKind, MetricMeta};

/// One metric that telem defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    pub name: &'static str,
    /// The lowest level at which it is collected.
    pub level: u8,
    pub kind: MetricKind,
    /// The unit's plural; what is counted where it is a number of things.
    pub unit: &'static str,
    /// One sentence without a full stop.
    pub help: &'static str,
    /// The tags beside `host`. In parentheses: at level 3 and above only, in place of the sum.
    pub tags: &'static str,
}

impl Described {
    pub fn meta(&self) -> MetricMeta {
        MetricMeta { kind: self.kind, unit: self.unit.to_owned(), help: self.help.to_owned() }
    }
}

/// All of them, sorted by level and subject.
pub fn catalog() -> &'static [Described] {
    CATALOG
}

/// The metric of that name, if telem defines it.
pub fn describe(name: &str) -> Option<&'static Described> {
    CATALOG.iter().find(|metric| metric.name == name)
}

/// Whether some metric of telem may carry that tag.
pub fn is_tag_key(name: &str) -> bool {
    let words = |metric: &Described| metric.tags.split(|c: char| !c.is_ascii_lowercase()).any(|word| word == name);
    name == "host" || (!name.is_empty() && CATALOG.iter().any(words))
}

const fn gauge(level: u8, name: &'static str, unit: &'static str, tags: &'static str, help: &'static str) -> Described {
    Described { name, level, kind: MetricKind::Gauge, unit, help, tags }
}

const fn counter(
    level: u8,
    name: &'static str,
    unit: &'static str,
    tags: &'static str,
    help: &'static str,
) -> Described {
    Described { name, level, kind: MetricKind::Counter, unit, help, tags }
}

// One line a metric, however long: it is a table.
#[rustfmt::skip]
const CATALOG: &[Described] = &[
    // The node at a glance, under the names that Dragon's dashboards ask for.
    gauge(2, "load_average", "threads", "", "Threads that ran or waited for a CPU or a disk, averaged over one minute"),
    gauge(2, "used_RAM", "percent", "", "Share of the memory that could not be given to a new process, to 0.01"),
    gauge(2, "cpu_percent", "percent", "", "Share of all CPU time since the last sample that was neither idle nor waiting for I/O, to 0.01"),
    gauge(2, "num_running_processes", "processes", "", "Processes of the user who runs telem; counted every 5 s"),
    // CPU and scheduler.
    counter(2, "node_cpu_seconds_total", "seconds", "mode (cpu)", "CPU time by mode; guests are part of user and nice"),
    gauge(2, "node_load1", "threads", "", "Load average over 1 minute"),
    gauge(2, "node_load5", "threads", "", "Load average over 5 minutes"),
    gauge(2, "node_load15", "threads", "", "Load average over 15 minutes"),
    gauge(2, "node_procs_running", "threads", "", "Threads that run or could run"),
    gauge(2, "node_procs_blocked", "threads", "", "Threads that wait for I/O to complete"),
    counter(2, "node_context_switches_total", "switches", "", "Switches from one thread to another"),
    counter(2, "node_forks_total", "forks", "", "Processes and threads that were started"),
    counter(2, "node_intr_total", "interrupts", "", "Interrupts that were served"),
    gauge(2, "node_boot_time_seconds", "seconds", "", "When the node was started, in seconds since 1970"),
    // Memory.
    gauge(2, "node_memory_MemTotal_bytes", "bytes", "", "Memory that the kernel can use"),
    gauge(2, "node_memory_MemFree_bytes", "bytes", "", "Memory that nothing uses"),
    gauge(2, "node_memory_MemAvailable_bytes", "bytes", "", "Memory that could be given to a new process without swapping"),
    gauge(2, "node_memory_Buffers_bytes", "bytes", "", "Cache of raw block devices"),
    gauge(2, "node_memory_Cached_bytes", "bytes", "", "Cache of files, shared memory included"),
    gauge(2, "node_memory_Active_bytes", "bytes", "", "Memory that was used recently"),
    gauge(2, "node_memory_Inactive_bytes", "bytes", "", "Memory that was not used recently and is reclaimed first"),
    gauge(2, "node_memory_Dirty_bytes", "bytes", "", "Cache that waits to be written to disk"),
    gauge(2, "node_memory_Writeback_bytes", "bytes", "", "Cache that is being written to disk"),
    gauge(2, "node_memory_AnonPages_bytes", "bytes", "", "Memory of processes that no file backs"),
    gauge(2, "node_memory_AnonHugePages_bytes", "bytes", "", "The part of AnonPages that transparent huge pages hold"),
    gauge(2, "node_memory_Mapped_bytes", "bytes", "", "Files that are mapped into processes"),
    gauge(2, "node_memory_Shmem_bytes", "bytes", "", "Shared memory and tmpfs"),
    gauge(2, "node_memory_Slab_bytes", "bytes", "", "Data structures of the kernel"),
    gauge(2, "node_memory_SReclaimable_bytes", "bytes", "", "The part of Slab that can be reclaimed"),
    gauge(2, "node_memory_SUnreclaim_bytes", "bytes", "", "The part of Slab that cannot be reclaimed"),
    gauge(2, "node_memory_PageTables_bytes", "bytes", "", "Page tables of processes"),
    gauge(2, "node_memory_KernelStack_bytes", "bytes", "", "Stacks of the kernel's side of threads"),
    gauge(2, "node_memory_Unevictable_bytes", "bytes", "", "Memory that cannot be reclaimed, locked memory included"),
    gauge(2, "node_memory_Committed_AS_bytes", "bytes", "", "Memory that processes asked for, used or not"),
    gauge(2, "node_memory_SwapTotal_bytes", "bytes", "", "Size of the swap space"),
    gauge(2, "node_memory_SwapFree_bytes", "bytes", "", "Swap space that nothing uses"),
    gauge(2, "node_memory_SwapCached_bytes", "bytes", "", "Memory whose copy in swap space is still good"),
    gauge(2, "node_memory_HugePages_Total", "pages", "", "Huge pages of the default size that are set aside"),
    gauge(2, "node_memory_HugePages_Free", "pages", "", "Huge pages of the default size that nothing uses"),
    gauge(2, "node_memory_Hugepagesize_bytes", "bytes", "", "The default size of a huge page"),
    counter(2, "node_vmstat_pgfault", "faults", "", "Page faults of all kinds"),
    counter(2, "node_vmstat_pgmajfault", "faults", "", "Page faults that had to read from a disk"),
    counter(2, "node_vmstat_pgpgin", "kibibytes", "", "Data read from block devices"),
    counter(2, "node_vmstat_pgpgout", "kibibytes", "", "Data written to block devices"),
    counter(2, "node_vmstat_pswpin", "pages", "", "Pages read from swap space"),
    counter(2, "node_vmstat_pswpout", "pages", "", "Pages written to swap space"),
    counter(2, "node_vmstat_oom_kill", "processes", "", "Processes that were killed because memory ran out"),
    // Pressure.
    counter(2, "node_pressure_cpu_waiting_seconds_total", "seconds", "", "Time in which some thread waited for a CPU, to 0.1 ms"),
    counter(2, "node_pressure_cpu_stalled_seconds_total", "seconds", "", "Time in which all threads waited for a CPU; 0 for a whole node, kept for completeness"),
    counter(2, "node_pressure_memory_waiting_seconds_total", "seconds", "", "Time in which some thread waited for memory, to 0.1 ms"),
    counter(2, "node_pressure_memory_stalled_seconds_total", "seconds", "", "Time in which all threads waited for memory, to 0.1 ms"),
    counter(2, "node_pressure_io_waiting_seconds_total", "seconds", "", "Time in which some thread waited for I/O, to 0.1 ms"),
    counter(2, "node_pressure_io_stalled_seconds_total", "seconds", "", "Time in which all threads waited for I/O, to 0.1 ms"),
    // Disks: those of the hardware, without partitions and without what is built on top of them.
    counter(2, "node_disk_reads_completed_total", "operations", "(device)", "Reads from disks that were completed"),
    counter(2, "node_disk_read_bytes_total", "bytes", "(device)", "Data that was read from disks"),
    counter(2, "node_disk_read_time_seconds_total", "seconds", "(device)", "Time that all reads from disks took together"),
    counter(2, "node_disk_writes_completed_total", "operations", "(device)", "Writes to disks that were completed"),
    counter(2, "node_disk_written_bytes_total", "bytes", "(device)", "Data that was written to disks"),
    counter(2, "node_disk_write_time_seconds_total", "seconds", "(device)", "Time that all writes to disks took together"),
    gauge(2, "node_disk_io_now", "operations", "(device)", "Reads and writes of disks in progress"),
    counter(2, "node_disk_io_time_seconds_total", "seconds", "(device)", "Time in which disks were busy; summed over disks below level 3"),
    counter(2, "node_disk_io_time_weighted_seconds_total", "seconds", "(device)", "Time that all reads and writes of disks took together, those in progress included"),
    // File systems.
    gauge(2, "node_filesystem_size_bytes", "bytes", "device, mountpoint, fstype", "Size of the file system; asked every 10 s"),
    gauge(2, "node_filesystem_avail_bytes", "bytes", "device, mountpoint, fstype", "Space of the file system that a user may still fill; asked every 10 s"),
    gauge(2, "node_filesystem_free_bytes", "bytes", "device, mountpoint, fstype", "Space of the file system that is free, what is kept for root included; asked every 10 s"),
    gauge(2, "node_filesystem_files", "files", "device, mountpoint, fstype", "Files that the file system can hold; asked every 10 s"),
    gauge(2, "node_filesystem_files_free", "files", "device, mountpoint, fstype", "Files that can still be made in the file system; asked every 10 s"),
    // Network: interfaces of the hardware, never loopback: the sum would hold it too.
    counter(2, "node_network_receive_bytes_total", "bytes", "(device)", "Data that interfaces received"),
    counter(2, "node_network_receive_packets_total", "packets", "(device)", "Packets that interfaces received"),
    counter(2, "node_network_receive_errs_total", "packets", "(device)", "Packets that arrived broken"),
    counter(2, "node_network_receive_drop_total", "packets", "(device)", "Packets that arrived and were dropped"),
    counter(2, "node_network_transmit_bytes_total", "bytes", "(device)", "Data that interfaces sent"),
    counter(2, "node_network_transmit_packets_total", "packets", "(device)", "Packets that interfaces sent"),
    counter(2, "node_network_transmit_errs_total", "packets", "(device)", "Packets that could not be sent"),
    counter(2, "node_network_transmit_drop_total", "packets", "(device)", "Packets that were dropped instead of sent"),
    counter(2, "node_infiniband_port_data_received_bytes_total", "bytes", "(device, port)", "Data that InfiniBand ports received, RDMA included"),
    counter(2, "node_infiniband_port_data_transmitted_bytes_total", "bytes", "(device, port)", "Data that InfiniBand ports sent, RDMA included"),
    // Power, energy and heat.
    gauge(2, "node_power_watts", "watts", "source", "Power that the node draws, from its best source: pm_counters and acpi_power_meter measure the whole node, rapl_gpu is CPUs, memory and GPUs, gpu and rapl are a part of that"),
    counter(2, "node_energy_joules_total", "joules", "source", "Energy that the node used, by the same sources; of a meter its power over time, without gaps of more than three intervals"),
    counter(2, "node_rapl_package_joules_total", "joules", "(index)", "Energy that CPU packages used; their cores and their uncore are a part of it"),
    counter(2, "node_rapl_dram_joules_total", "joules", "(index)", "Energy that memory used, beside the packages"),
    counter(2, "node_rapl_core_joules_total", "joules", "(index)", "The part of the packages' energy that their cores used"),
    counter(2, "node_rapl_uncore_joules_total", "joules", "(index)", "The part of the packages' energy that their uncore used, such as an integrated GPU"),
    counter(2, "node_rapl_psys_joules_total", "joules", "(index)", "Energy that the whole platform used, packages included"),
    gauge(2, "cray_pm_node_power_watts", "watts", "", "Power of the node at its supply, as Cray's blade controller measures it; at the time of the measurement"),
    counter(2, "cray_pm_node_energy_joules_total", "joules", "", "Energy of the node at its supply, to 1 J; at the time of the measurement"),
    gauge(2, "cray_pm_cpu_power_watts", "watts", "", "The part of the node's power that CPUs draw"),
    counter(2, "cray_pm_cpu_energy_joules_total", "joules", "", "The part of the node's energy that CPUs used"),
    gauge(2, "cray_pm_memory_power_watts", "watts", "", "The part of the node's power that memory draws"),
    counter(2, "cray_pm_memory_energy_joules_total", "joules", "", "The part of the node's energy that memory used"),
    gauge(2, "cray_pm_accel_power_watts", "watts", "accel", "The part of the node's power that an accelerator draws; one of an MI250X is two GPUs"),
    counter(2, "cray_pm_accel_energy_joules_total", "joules", "accel", "The part of the node's energy that an accelerator used"),
    gauge(2, "node_cpu_temperature_celsius", "celsius", "", "Temperature of the hottest CPU package; read every 10 s"),
    counter(2, "node_cpu_core_throttles_total", "throttles", "(package, core)", "How often cores were slowed down because of heat; read every 5 s"),
    counter(2, "node_cpu_package_throttles_total", "throttles", "(package)", "How often CPU packages were slowed down because of heat; read every 5 s"),
    counter(2, "node_edac_correctable_errors_total", "errors", "(controller)", "Errors of memory that were corrected; read every 5 s"),
    counter(2, "node_edac_uncorrectable_errors_total", "errors", "(controller)", "Errors of memory that could not be corrected; read every 5 s"),
    // Parallel file systems and those of a network.
    counter(2, "lustre_client_read_bytes_total", "bytes", "fs", "Data that programs on this node read from the Lustre file system, cached data included; root only since Lustre 2.12; begins anew when the statistics are cleared"),
    counter(2, "lustre_client_written_bytes_total", "bytes", "fs", "Data that programs on this node wrote to the Lustre file system; begins anew when the statistics are cleared"),
    counter(2, "lustre_client_reads_total", "calls", "fs", "Reads of the Lustre file system by programs on this node"),
    counter(2, "lustre_client_writes_total", "calls", "fs", "Writes to the Lustre file system by programs on this node"),
    counter(2, "lustre_client_operations_total", "operations", "fs (operation)", "Operations on files of the Lustre file system, as its client names them, without read_bytes and write_bytes"),
    counter(2, "node_mountstats_nfs_total_read_bytes_total", "bytes", "export, mountpoint", "Data that the NFS server sent for files of this mount; what stands at two places counts once"),
    counter(2, "node_mountstats_nfs_total_write_bytes_total", "bytes", "export, mountpoint", "Data that was sent to the NFS server for files of this mount"),
    // Slingshot.
    counter(2, "cxi_received_bytes_total", "bytes", "device", "Data that the Slingshot card received; of older drivers the least that it can be; begins anew beyond 56 bits"),
    counter(2, "cxi_transmitted_bytes_total", "bytes", "device", "Data that the Slingshot card sent; of older drivers the least that it can be; begins anew beyond 56 bits"),
    // The control group of the job that telem stands in.
    gauge(2, "cgroup_cpus", "CPUs", "", "CPUs that the job may use; asked every 5 s"),
    gauge(2, "cgroup_memory_used_bytes", "bytes", "", "Memory that counts towards the limit of the job, cached files included"),
    gauge(2, "cgroup_memory_peak_bytes", "bytes", "", "Most memory that the job ever had at once"),
    gauge(2, "cgroup_memory_limit_bytes", "bytes", "", "Memory that the job may have; no sample without a limit; asked every 5 s"),
    counter(2, "cgroup_memory_oom_kills_total", "processes", "", "Processes of the job that were killed because memory ran out"),
    counter(2, "cgroup_memory_limit_hits_total", "events", "", "Times that the job was about to exceed its memory limit"),
    counter(2, "cgroup_cpu_user_seconds_total", "seconds", "", "CPU time of the job in programs; to 0.01 s with control groups of version 1"),
    counter(2, "cgroup_cpu_system_seconds_total", "seconds", "", "CPU time of the job in the kernel; to 0.01 s with control groups of version 1"),
    counter(2, "cgroup_cpu_throttled_seconds_total", "seconds", "", "Time for which the job was kept from CPUs because it had used up its share"),
    counter(2, "cgroup_io_read_bytes_total", "bytes", "(device)", "Data that the job read from disks of this node; nothing where the scheduler does not have it counted"),
    counter(2, "cgroup_io_written_bytes_total", "bytes", "(device)", "Data that the job wrote to disks of this node; nothing where the scheduler does not have it counted"),
    // GPUs, of all vendors alike. There are few on a node, and an average hides the one that is slow.
    gauge(2, "gpu_up", "answers", "gpu", "1 while the GPU answers; 0 when it is lost, needs a reset or was asked in vain; not told while it sleeps"),
    gauge(2, "gpu_utilization_percent", "percent", "gpu, mig, partition", "Time in which the GPU computed; says nothing of how full it was. For Intel an upper bound: the time in which it was awake"),
    gauge(2, "gpu_memory_used_bytes", "bytes", "gpu, mig, partition", "Memory of the GPU that is in use; for Intel, that of the user's processes, every 5 s"),
    gauge(2, "gpu_memory_size_bytes", "bytes", "gpu, mig, partition", "Memory of the GPU"),
    gauge(2, "gpu_power_watts", "watts", "gpu", "Power that the GPU draws, which many average over about 1 s; for Intel its energy over the time since the last sample"),
    counter(2, "gpu_energy_joules_total", "joules", "gpu", "Energy that the GPU used since its driver was loaded, to 1 mJ"),
    gauge(2, "gpu_temperature_celsius", "celsius", "gpu", "Temperature of the GPU; its hottest place where it tells that"),
    // Fabrics.
    gauge(3, "node_infiniband_state_id", "state", "device, port", "State of the port: 1 is down, 2 initialising, 3 armed, 4 active"),
    counter(3, "node_infiniband_port_transmit_wait_total", "ticks", "device, port", "Ticks of the port's clock in which data waited and the other side had no room for it: congestion"),
    counter(3, "node_infiniband_port_packets_received_total", "packets", "device, port", "Packets that the port received"),
    counter(3, "node_infiniband_port_packets_transmitted_total", "packets", "device, port", "Packets that the port sent"),
    counter(3, "node_infiniband_port_errors_received_total", "packets", "device, port", "Packets with errors that the port received"),
    counter(3, "node_infiniband_port_discards_transmitted_total", "packets", "device, port", "Packets that the port dropped instead of sending them, because it was down or congested"),
    counter(3, "node_infiniband_symbol_error_total", "errors", "device, port", "Small errors of the cable or its plugs"),
    counter(3, "node_infiniband_link_downed_total", "events", "device, port", "Times that the link could not recover and went down"),
    counter(3, "node_infiniband_link_error_recovery_total", "events", "device, port", "Times that the link recovered from errors"),
    counter(3, "node_infiniband_out_of_sequence_packets_received_total", "packets", "device, port", "RDMA packets that arrived out of order"),
    counter(3, "node_infiniband_packet_sequence_errors_total", "packets", "device, port", "Notices of the other side that RDMA packets are missing"),
    counter(3, "node_infiniband_local_ack_timeout_errors_total", "timeouts", "device, port", "RDMA packets that nobody acknowledged in time"),
    counter(3, "node_infiniband_rnr_nak_retry_packets_received_total", "packets", "device, port", "Notices of the other side that no buffer was ready"),
    counter(3, "node_infiniband_np_cnp_packets_sent_total", "packets", "device, port", "Notices of congestion that the port sent (RoCE)"),
    counter(3, "node_infiniband_np_ecn_marked_roce_packets_received_total", "packets", "device, port", "Packets that a switch marked because of congestion (RoCE)"),
    counter(3, "node_infiniband_rp_cnp_packets_handled_total", "packets", "device, port", "Notices of congestion on which the port sent more slowly (RoCE)"),
    counter(3, "node_infiniband_roce_adp_retransmits_total", "packets", "device, port", "Packets that were sent again after an adaptive timeout (RoCE)"),
    counter(3, "cxi_paused_received_total", "counts", "device", "Pauses that the card was asked for, over all classes of traffic, in the card's own unit (hni_rx_paused)"),
    counter(3, "cxi_paused_transmitted_total", "counts", "device", "Pauses that the card asked for, over all classes of traffic, in the card's own unit (hni_tx_paused)"),
    counter(3, "cxi_pcs_corrected_codewords_total", "codewords", "device", "Code words of the link with errors that were corrected"),
    counter(3, "cxi_pcs_uncorrected_codewords_total", "codewords", "device", "Code words of the link with errors that were not corrected"),
    counter(3, "cxi_pct_no_tct_nacks_total", "packets", "device", "Refusals because the target had no context left (pct_no_tct_nacks)"),
    counter(3, "cxi_pct_trs_rsp_nack_drops_total", "packets", "device", "Refusals that were dropped (pct_trs_rsp_nack_drops)"),
    counter(3, "cxi_retry_nacks_total", "packets", "device", "Refusals that the retry handler saw"),
    counter(3, "cxi_retry_spt_timeouts_total", "timeouts", "device", "Packets that were not answered in time"),
    counter(3, "cxi_retry_sct_timeouts_total", "timeouts", "device", "Connections that were not closed in time"),
    counter(3, "cxi_retry_packets_cancelled_total", "packets", "device", "Packets that the retry handler gave up"),
    counter(3, "cxi_link_restarts_total", "restarts", "device", "Restarts of the link; of those before telem's start the last ten"),
    counter(3, "lustre_client_metadata_operations_total", "requests", "fs, operation", "Requests to metadata servers of the Lustre file system"),
    counter(3, "node_mountstats_nfs_operations_requests_total", "requests", "export, mountpoint, operation", "Requests to the NFS server; operations that never happened have no series"),
    // The control group of the job.
    gauge(3, "cgroup_memory_anon_bytes", "bytes", "", "Memory of the job that no file backs; asked every 5 s"),
    gauge(3, "cgroup_memory_file_bytes", "bytes", "", "Files that are cached for the job, shared memory included; asked every 5 s"),
    gauge(3, "cgroup_memory_shmem_bytes", "bytes", "", "Shared memory and tmpfs of the job; asked every 5 s"),
    counter(3, "cgroup_pressure_cpu_waiting_seconds_total", "seconds", "", "Time in which some thread of the job waited for a CPU, to 0.1 ms"),
    counter(3, "cgroup_pressure_cpu_stalled_seconds_total", "seconds", "", "Time in which all threads of the job waited for a CPU, to 0.1 ms"),
    counter(3, "cgroup_pressure_memory_waiting_seconds_total", "seconds", "", "Time in which some thread of the job waited for memory, to 0.1 ms"),
    counter(3, "cgroup_pressure_memory_stalled_seconds_total", "seconds", "", "Time in which all threads of the job waited for memory, to 0.1 ms"),
    counter(3, "cgroup_pressure_io_waiting_seconds_total", "seconds", "", "Time in which some thread of the job waited for I/O, to 0.1 ms"),
    counter(3, "cgroup_pressure_io_stalled_seconds_total", "seconds", "", "Time in which all threads of the job waited for I/O, to 0.1 ms"),
    // NUMA nodes, waits for CPUs, TCP.
    counter(3, "node_memory_numa_numa_hit_total", "pages", "node", "Pages taken from this node as the process wanted; every 5 s"),
    counter(3, "node_memory_numa_numa_miss_total", "pages", "node", "Pages taken from this node though the process wanted another; every 5 s"),
    counter(3, "node_memory_numa_numa_foreign_total", "pages", "node", "Pages that processes wanted from this node and got from another; every 5 s"),
    counter(3, "node_memory_numa_interleave_hit_total", "pages", "node", "Pages taken from this node in turn with others, as wanted; every 5 s"),
    counter(3, "node_memory_numa_local_node_total", "pages", "node", "Pages taken from this node by processes that ran on it; every 5 s"),
    counter(3, "node_memory_numa_other_node_total", "pages", "node", "Pages taken from this node by processes that ran on another; every 5 s"),
    gauge(3, "node_memory_numa_MemFree_bytes", "bytes", "node", "Memory of the NUMA node that nothing uses; every 5 s"),
    gauge(3, "node_memory_numa_MemUsed_bytes", "bytes", "node", "Memory of the NUMA node that is in use, cached files included; every 5 s"),
    counter(3, "node_schedstat_waiting_seconds_total", "seconds", "cpu", "Time that threads which could run waited for the CPU, to 0.1 ms"),
    counter(3, "node_netstat_Tcp_RetransSegs", "segments", "", "Segments that TCP sent again"),
    // Processes of the job.
    gauge(3, "job_processes", "processes", "", "Processes of the job"),
    gauge(3, "job_processes_together", "processes", "", "Processes of the job without series of their own: beyond the 512 with the most CPU time, or of a command whose processes are short"),
    counter(3, "job_process_cpu_seconds_total", "seconds", "pid, comm, parent, rank, counted", "CPU time of the process, user and system; summed over all series that of the job"),
    gauge(3, "job_process_resident_memory_bytes", "bytes", "pid, comm, parent, rank, counted", "Memory of the process that is in RAM"),
    gauge(3, "job_process_threads", "threads", "pid, comm, parent, rank, counted", "Threads of the process"),
    // Sensors, and clocks of CPUs.
    gauge(3, "node_hwmon_temp_celsius", "celsius", "chip, sensor", "Temperature of a sensor; read every 10 s"),
    gauge(3, "node_hwmon_power_watt", "watts", "chip, sensor", "Power that a sensor measures at the moment; read every 10 s"),
    gauge(3, "node_hwmon_power_average_watt", "watts", "chip, sensor", "Power that a sensor measures, averaged over an interval of its own; read every 10 s"),
    counter(3, "node_hwmon_energy_joule_total", "joules", "chip, sensor", "Energy that a sensor counts; read every 10 s"),
    gauge(3, "node_thermal_zone_temp", "celsius", "zone, type", "Temperature of a zone that the kernel cools; read every 10 s"),
    gauge(3, "node_cpu_scaling_frequency_hertz", "hertz", "cpu", "Clock of a CPU as its driver last set or measured it; read every 10 s"),
    // Under the names that Dragon's dashboards ask for.
    gauge(3, "DeviceUtilization", "percent", "gpu", "Time in which the GPU computed, under Dragon's name"),
    gauge(3, "DeviceMemoryUtilization", "percent", "gpu", "Share of the GPU's memory that is in use, under Dragon's name, to 0.01"),
    gauge(3, "DevicePowerUsage", "watts", "gpu", "Power that the GPU draws, under Dragon's name"),
    // More of GPUs.
    gauge(3, "gpu_memory_activity_percent", "percent", "gpu", "Time in which the GPU's memory was read or written; says nothing of how full it was"),
    gauge(3, "gpu_clock_hertz", "hertz", "gpu, clock", "Clock of the GPU's processors (sm) and of its memory (memory)"),
    gauge(3, "gpu_memory_temperature_celsius", "celsius", "gpu", "Temperature of the GPU's memory"),
    gauge(3, "gpu_power_limit_watts", "watts", "gpu", "Power at which the GPU is held; every 5 s"),
    counter(3, "gpu_throttled_seconds_total", "seconds", "gpu, reason", "Time in which the GPU's clocks were held down because of power, heat (thermal) or hardware. For Intel and older ones of NVIDIA an estimate: the time between samples at whose end the reason was given"),
    counter(3, "gpu_ecc_errors_total", "errors", "gpu, severity", "Errors of the GPU's memory, corrected and uncorrected; every 5 s"),
    counter(3, "gpu_pcie_replays_total", "replays", "gpu", "Packets that were sent again on the GPU's PCI Express link; every 5 s"),
    counter(3, "gpu_link_received_bytes_total", "bytes", "gpu", "Data that the GPU received over all of its links to other GPUs"),
    counter(3, "gpu_link_transmitted_bytes_total", "bytes", "gpu", "Data that the GPU sent over all of its links to other GPUs"),
    gauge(3, "gpu_sm_active_percent", "percent", "gpu", "Share of time and of multiprocessors in which a multiprocessor had work"),
    gauge(3, "gpu_sm_occupancy_percent", "percent", "gpu", "Warps on the multiprocessors as a share of those that fit"),
    gauge(3, "gpu_tensor_active_percent", "percent", "gpu", "Share of time in which tensor cores computed"),
    gauge(3, "gpu_memory_bandwidth_percent", "percent", "gpu", "Data read from and written to the GPU's memory as a share of what is possible"),
    counter(3, "gpu_xid_errors_total", "errors", "gpu, xid", "Errors that NVIDIA's driver reported since telem was started, by their number"),
    // Processes of our own user.
    counter(4, "process_cpu_seconds_total", "seconds", "pid, comm", "CPU time of the process, user and system; every 5 s"),
    gauge(4, "process_resident_memory_bytes", "bytes", "pid, comm", "Memory of the process that is in RAM; every 5 s"),
    gauge(4, "process_virtual_memory_bytes", "bytes", "pid, comm", "Address space of the process; every 5 s"),
    gauge(4, "process_threads", "threads", "pid, comm", "Threads of the process; every 5 s"),
    gauge(4, "process_open_fds", "descriptors", "pid, comm", "Open file descriptors of the process; every 5 s"),
    counter(4, "process_major_page_faults_total", "faults", "pid, comm", "Page faults of the process that had to read from a disk; every 5 s"),
    counter(4, "process_read_bytes_total", "bytes", "pid, comm", "Data that the process caused to be read from disks; every 5 s"),
    counter(4, "process_written_bytes_total", "bytes", "pid, comm", "Data that the process caused to be written to disks; every 5 s"),
    counter(4, "process_io_read_chars_total", "characters", "pid, comm", "Bytes that the process read by system calls from anything: disks, caches, Lustre, NFS, GPFS, pipes; every 5 s"),
    counter(4, "process_io_written_chars_total", "characters", "pid, comm", "Bytes that the process wrote by system calls to anything: disks, caches, Lustre, NFS, GPFS, pipes; every 5 s"),
    gauge(4, "gpu_process_memory_bytes", "bytes", "gpu, pid, comm", "Memory of the GPU that the process holds; every 5 s but for NVIDIA"),
    // telem itself.
    gauge(4, "db_size", "mebibytes", "", "Size of the database on disk, under Dragon's name"),
    counter(4, "telem_ingest_samples_accepted_total", "samples", "", "Samples of clients that were taken in"),
    counter(4, "telem_ingest_samples_rejected_total", "samples", "", "Samples of clients that were refused because something in them was wrong"),
    counter(4, "telem_ingest_samples_written_total", "samples", "", "Samples that were appended to the database, those of the collectors included"),
    counter(4, "telem_ingest_batches_written_total", "batches", "", "Batches of samples that were appended to the database"),
    counter(4, "telem_ingest_batches_refused_total", "batches", "", "Batches of samples that were lost to a full queue or an error of the database"),
    counter(4, "telem_ingest_samples_refused_total", "samples", "", "Samples of clients that the database refused, as on a full disk; they were told"),
    counter(4, "telem_ingest_samples_lost_total", "samples", "", "Samples of collectors that the database refused for so long that they are lost"),
    gauge(4, "telem_ingest_samples_kept", "samples", "", "Samples of collectors that wait in memory because the database refuses them"),
    gauge(4, "telem_ingest_queue_samples", "samples", "", "Samples that wait to be appended to the database"),
    counter(4, "telem_ingest_client_taken_total", "samples", "", "Samples that programs gave to the client library, by its own count"),
    counter(4, "telem_ingest_client_dropped_total", "samples", "", "Samples that the client library in programs dropped, for want of room or of a service, by its own count"),
    counter(4, "telem_ingest_syncs_total", "syncs", "", "Times that samples were made durable on disk"),
    counter(4, "telem_ingest_syncs_failed_total", "syncs", "", "Times that samples could not be made durable on disk"),
    counter(4, "telem_ingest_flushes_total", "flushes", "", "Times that samples in memory were written to a segment"),
    counter(4, "telem_ingest_flushes_failed_total", "flushes", "", "Times that samples in memory could not be written to a segment"),
    counter(4, "telem_ingest_ticks_total", "ticks", "", "Ticks at which the collectors sampled"),
    counter(4, "telem_ingest_ticks_skipped_total", "ticks", "", "Ticks that the collectors came too late for"),
    counter(4, "telem_ingest_device_ticks_skipped_total", "ticks", "", "Ticks that sources of hardware missed because drivers were slow: fabrics, parallel file systems, meters, energy, sensors and GPUs, each for itself"),
    gauge(4, "telem_ingest_tick_seconds", "seconds", "", "How long the collectors took to sample the tick before, without the processes"),
    gauge(4, "telem_ingest_sources_hanging", "sources", "", "Sources of the system, such as memory or disks, that are not sampled because reading them hangs"),
    gauge(4, "telem_ingest_processes_skipped", "processes", "", "Processes of the user beyond the 1,000 with the most CPU time, which have no series; every 5 s"),
    gauge(4, "telem_engine_series", "series", "", "Series in the database"),
    gauge(4, "telem_engine_metrics", "metrics", "", "Metrics in the database"),
    gauge(4, "telem_engine_samples", "samples", "", "Samples in the database; one that was written twice counts twice until it is merged"),
    gauge(4, "telem_engine_samples_unflushed", "samples", "", "Samples of the database that are not in a segment yet"),
    gauge(4, "telem_engine_segments", "segments", "", "Segments of the database"),
    gauge(4, "telem_engine_disk_bytes", "bytes", "", "Size of the database on disk"),
    gauge(4, "telem_engine_wal_bytes", "bytes", "", "Size of the write-ahead log"),
    counter(4, "telem_query_queries_total", "queries", "", "Queries that were started"),
    counter(4, "telem_query_queries_refused_total", "queries", "", "Queries that were refused because too many were running"),
    gauge(4, "telem_query_queries_running", "queries", "", "Queries that are running"),
    gauge(4, "telem_query_queries_left_behind", "queries", "", "Queries in SQL whose time is over and whose code goes on; when there are 8, no more SQL is taken"),
    gauge(4, "telem_query_leaves_running", "leaves", "", "Parts of queries, its own and those of heads, for which samples are read"),
    counter(4, "telem_server_cpu_seconds_total", "seconds", "", "CPU time of telem, user and system"),
    gauge(4, "telem_server_resident_memory_bytes", "bytes", "", "Memory of telem that is in RAM"),
    gauge(4, "telem_server_threads", "threads", "", "Threads of telem"),
    gauge(4, "telem_server_open_fds", "descriptors", "", "Open file descriptors of telem"),
];

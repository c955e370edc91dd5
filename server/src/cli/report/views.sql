-- Each view is one section of a report; the line above it is the title. Every one stands for itself: paste its SELECT
-- into `telem sql`. Columns in _bytes, _seconds, _share and _per_second are shown in these units. Stretches of time are
-- those of what telem collected itself: what a program sends may have any time.

-- Nodes: cores and memory
CREATE VIEW report_nodes AS
SELECT node, cores, cores_used, cores_used / cores AS used_share, memory_peak_bytes, memory_bytes,
       memory_peak_bytes / memory_bytes AS peak_share, samples
FROM (SELECT node, sum(each) AS cores, sum(each) FILTER (WHERE mode <> 'idle' AND mode <> 'iowait') AS cores_used
      FROM (SELECT node, tags, tags['mode'] AS mode, rate(value, ts) AS each FROM samples
            WHERE metric = 'node_cpu_seconds_total' GROUP BY node, tags) AS modes GROUP BY node) AS cpu
FULL JOIN (SELECT node, max(value) FILTER (WHERE metric = 'node_memory_MemTotal_bytes') AS memory_bytes,
             max(value) FILTER (WHERE metric = 'node_memory_MemTotal_bytes')
             - min(value) FILTER (WHERE metric = 'node_memory_MemAvailable_bytes') AS memory_peak_bytes,
             count(*) FILTER (WHERE metric = 'node_memory_MemAvailable_bytes') AS samples
      FROM samples WHERE metric IN ('node_memory_MemTotal_bytes', 'node_memory_MemAvailable_bytes')
      GROUP BY node) AS memory USING (node)
ORDER BY node;

-- Nodes: disks and network
CREATE VIEW report_traffic AS
SELECT node, sum(each) FILTER (WHERE metric = 'node_disk_read_bytes_total') AS read_bytes,
       sum(each) FILTER (WHERE metric = 'node_disk_written_bytes_total') AS written_bytes,
       sum(each) FILTER (WHERE metric = 'node_disk_written_bytes_total')
       / nullif(sum(each) FILTER (WHERE metric = 'node_disk_writes_completed_total'), 0) AS write_size_bytes,
       sum(pace) FILTER (WHERE metric = 'node_disk_writes_completed_total') AS writes_per_second,
       sum(each) FILTER (WHERE metric IN ('node_network_receive_bytes_total',
                                          'node_infiniband_port_data_received_bytes_total')) AS received_bytes,
       sum(each) FILTER (WHERE metric IN ('node_network_transmit_bytes_total',
                                          'node_infiniband_port_data_transmitted_bytes_total')) AS sent_bytes,
       max(count) AS samples
FROM (SELECT node, metric, tags, increase(value, ts) AS each, rate(value, ts) AS pace, count(*) AS count FROM samples
      WHERE metric IN ('node_disk_read_bytes_total', 'node_disk_written_bytes_total', 'node_disk_writes_completed_total',
                       'node_network_receive_bytes_total', 'node_network_transmit_bytes_total',
                       'node_infiniband_port_data_received_bytes_total',
                       'node_infiniband_port_data_transmitted_bytes_total')
      GROUP BY node, metric, tags) AS counters
GROUP BY node ORDER BY node;

-- What nodes waited for: share of the time
CREATE VIEW report_waits AS
SELECT node, sum(pace) FILTER (WHERE metric = 'node_pressure_cpu_waiting_seconds_total') AS for_cpu_share,
       sum(pace) FILTER (WHERE metric = 'node_pressure_memory_waiting_seconds_total') AS for_memory_share,
       sum(pace) FILTER (WHERE metric = 'node_pressure_io_waiting_seconds_total') AS for_io_share
FROM (SELECT node, metric, tags, rate(value, ts) AS pace FROM samples
      WHERE metric IN ('node_pressure_cpu_waiting_seconds_total', 'node_pressure_memory_waiting_seconds_total',
                       'node_pressure_io_waiting_seconds_total')
      GROUP BY node, metric, tags) AS pressures
GROUP BY node ORDER BY node;

-- Trouble: what kernels and hardware counted
CREATE VIEW report_trouble AS
SELECT node, metric, sum(each) AS count, max(readings) AS samples FROM
     (SELECT node, metric, tags, increase(value, ts) AS each, count(*) AS readings FROM samples
      WHERE metric IN ('node_vmstat_pswpin', 'node_vmstat_pswpout', 'node_vmstat_oom_kill',
                       'node_cpu_core_throttles_total', 'node_cpu_package_throttles_total',
                       'gpu_throttled_seconds_total')
        -- A GPU at its limit of power does what it was bought for.
        AND coalesce(tags['reason'], '') <> 'power'
      GROUP BY node, metric, tags) AS counters
GROUP BY node, metric HAVING sum(each) > 0 ORDER BY node, metric;

-- Energy: of nodes while the job ran, and of their GPUs
CREATE VIEW report_energy AS
SELECT node, gpu, source, kwh, mean_watts, peak_watts, unknown_seconds, gpu_hours, idle_gpu_hours, held_idle_gpu_hours,
       coalesce(doubt, reason) AS remark
FROM job_energy
WHERE joules IS NOT NULL OR gpu IS NOT NULL
   OR reason <> 'unknown, because nothing on this node tells power or energy'
ORDER BY node, gpu NULLS FIRST;

-- Clocks of the CPUs
CREATE VIEW report_clocks AS
SELECT node, avg(value) AS clock_hertz, min(value) AS slowest_hertz, count(*) AS samples FROM samples
WHERE metric = 'node_cpu_scaling_frequency_hertz' GROUP BY node ORDER BY node;

-- GPUs that the job was given
CREATE VIEW report_gpus AS
SELECT used.* FROM
     (SELECT node, tags['gpu'] AS gpu, avg(value) FILTER (WHERE metric = 'gpu_utilization_percent') / 100 AS used_share,
             max(value) FILTER (WHERE metric = 'gpu_memory_used_bytes') AS memory_peak_bytes,
             max(value) FILTER (WHERE metric = 'gpu_memory_size_bytes') AS memory_bytes,
             avg(value) FILTER (WHERE metric = 'gpu_power_watts') AS mean_watts,
             count(*) FILTER (WHERE metric = 'gpu_utilization_percent') AS samples
      FROM samples WHERE metric IN ('gpu_utilization_percent', 'gpu_memory_used_bytes', 'gpu_memory_size_bytes',
                                    'gpu_power_watts')
      GROUP BY node, tags['gpu']) AS used
LEFT JOIN (SELECT DISTINCT node, device AS gpu FROM inventory WHERE kind = 'gpu' AND in_job = false) AS of_others
  ON used.node = of_others.node AND used.gpu = of_others.gpu
WHERE of_others.gpu IS NULL ORDER BY used.node, used.gpu;

-- Ranks: processes of the job
CREATE VIEW report_ranks AS
SELECT rank, node, cpu_seconds, cpu_seconds / seconds AS cores_used, memory_peak_bytes, samples
FROM (SELECT rank, node, sum(each) AS cpu_seconds,
             nullif(CAST(max(last_ts) - min(first_ts) AS BIGINT), 0) / 1e6 AS seconds
      FROM (SELECT node, tags, tags['rank'] AS rank, increase(value, ts) AS each,
                   CAST(min(ts) AS BIGINT) AS first_ts, CAST(max(ts) AS BIGINT) AS last_ts
            FROM samples WHERE metric = 'job_process_cpu_seconds_total' AND tags['rank'] IS NOT NULL
            GROUP BY node, tags) AS processes GROUP BY rank, node) AS cpu
LEFT JOIN (SELECT rank, node, max(resident) AS memory_peak_bytes, count(*) AS samples
           FROM (SELECT tags['rank'] AS rank, node, ts, sum(value) AS resident FROM samples
                 WHERE metric = 'job_process_resident_memory_bytes' AND tags['rank'] IS NOT NULL
                 GROUP BY tags['rank'], node, ts) AS moments GROUP BY rank, node) AS memory USING (rank, node)
ORDER BY rank, node;

-- Metrics of the program
CREATE VIEW report_metrics AS
SELECT metric, count(*) AS samples, min(value) AS least, avg(value) AS mean, max(value) AS greatest,
       last(value, ts) AS last
FROM samples WHERE NOT isnan(value) AND metric !~ '^(node_|gpu_|job_process|process_|telem_)'
GROUP BY metric ORDER BY metric;

-- Metrics of the program by rank
CREATE VIEW report_rank_metrics AS
SELECT metric, tags['rank'] AS rank, node, tags, avg(value) AS mean, count(*) AS samples FROM samples
WHERE tags['rank'] IS NOT NULL AND NOT isnan(value) AND metric !~ '^(node_|gpu_|job_process|process_|telem_)'
GROUP BY metric, node, tags ORDER BY metric, rank;

-- Notes
CREATE VIEW report_notes AS
SELECT ts AS time, concat_ws(': ', text, details) AS note FROM notes
CROSS JOIN (SELECT min(first_ts) AS begins, max(last_ts) AS ends FROM series) AS run
WHERE ts BETWEEN begins - INTERVAL '1 minute' AND ends + INTERVAL '1 minute' ORDER BY ts;

-- Curves of the nodes, in two hundred stretches of the run
CREATE VIEW report_curves AS
SELECT metric, node, place, avg(value) AS mean, CAST(min(ts) AS BIGINT) - min(begins) AS since_us FROM
     (SELECT metric, node, ts, value, begins, (CAST(ts AS BIGINT) - begins) * 200 / (ends - begins + 1) AS place
      FROM samples CROSS JOIN (SELECT min(CAST(first_ts AS BIGINT)) AS begins, max(CAST(last_ts AS BIGINT)) AS ends
                               FROM series
                               WHERE metric IN ('cpu_percent', 'used_RAM', 'gpu_utilization_percent')) AS bounds
      WHERE metric IN ('cpu_percent', 'used_RAM', 'gpu_utilization_percent')) AS placed
GROUP BY metric, node, place ORDER BY metric, node, place;

-- Memory over time, in two hundred stretches of the run
CREATE VIEW report_memory AS
SELECT node, rank, place, sum(resident) AS resident_bytes, min(since_us) AS since_us FROM
     (SELECT node, rank, pid, place, avg(resident) AS resident, CAST(min(ts) AS BIGINT) - min(begins) AS since_us FROM
          (SELECT node, rank, pid, ts, resident, begins,
                  (CAST(ts AS BIGINT) - begins) * 200 / (ends - begins + 1) AS place
           FROM (SELECT node, tags['rank'] AS rank, tags['pid'] AS pid, ts, value AS resident FROM samples
                 WHERE metric = 'job_process_resident_memory_bytes' AND tags['rank'] IS NOT NULL
                 UNION ALL
                 SELECT total.node, NULL, NULL, available.ts, total.value - available.value
                 FROM (SELECT node, max(value) AS value FROM samples WHERE metric = 'node_memory_MemTotal_bytes'
                       GROUP BY node) AS total
                 JOIN (SELECT node, ts, value FROM samples
                       WHERE metric = 'node_memory_MemAvailable_bytes') AS available
                   ON total.node = available.node) AS amounts
           CROSS JOIN (SELECT min(CAST(first_ts AS BIGINT)) AS begins, max(CAST(last_ts AS BIGINT)) AS ends
                       FROM series
                       WHERE metric IN ('job_process_resident_memory_bytes', 'node_memory_MemAvailable_bytes'))
           AS bounds) AS placed
      GROUP BY node, rank, pid, place) AS processes
GROUP BY node, rank, place ORDER BY node, rank, place;

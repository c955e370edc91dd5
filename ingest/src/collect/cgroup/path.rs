//! Where the control group of the own job stands: from `/proc/self/cgroup`, and `/proc/self/mountinfo` where a container
//! or a distribution mounts it elsewhere.

use std::path::{Path, PathBuf};

use crate::collect::source::Tree;
use crate::collect::text::{fields, lines};

/// The directories of a job. Version 1 has one for each controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CgroupDirectories {
    /// Of version 2.
    pub unified: Option<PathBuf>,
    pub memory: Option<PathBuf>,
    pub cpu: Option<PathBuf>,
    pub cpuacct: Option<PathBuf>,
    pub cpuset: Option<PathBuf>,
    pub blkio: Option<PathBuf>,
}

/// What is seen of the job's control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// This process stands in none.
    InNoJob,
    InJob,
    /// It has one, and a namespace hides it.
    Hidden(PathBuf),
}

/// Where a hierarchy is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupMount {
    /// The controllers of version 1; none for version 2.
    pub controllers: Vec<String>,
    /// Which group of the hierarchy is seen at the mount point.
    pub root: String,
    pub point: PathBuf,
}

/// The group that a scheduler made for a job, if this path leads into one: the child of the directory by which
/// schedulers are known. What the child is called is not looked at: versions of Slurm differ.
pub(crate) fn scheduler_level(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    let is_schedulers = |part: &&str| {
        let slurm = *part == "slurmstepd.scope" || part.ends_with("_slurmstepd.scope") || part.starts_with("uid_");
        slurm || *part == "pbspro.slice"
    };
    let child = parts.iter().position(is_schedulers).map(|at| at + 2);
    let pbs = || parts.windows(2).position(|pair| pair == ["pbs_jobs.service", "jobid"]).map(|at| at + 3);
    // Below it stands the name of the cluster.
    let lsf = || parts.iter().position(|part| *part == "lsf").map(|at| at + 3);
    let end = child.or_else(pbs).or_else(lsf).filter(|end| *end <= parts.len())?;
    Some(parts[..end].join("/"))
}

/// The controllers and the path of each line of `/proc/self/cgroup`.
pub(crate) fn parse_paths(text: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    lines(text).filter_map(|line| {
        let mut parts = std::str::from_utf8(line).ok()?.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        // No path of the kernel climbs, but for groups outside of a namespace: those are not seen.
        (path.starts_with('/') && !path.split('/').any(|part| part == "..")).then_some((controllers, path))
    })
}

/// Mounts of control groups in `/proc/self/mountinfo`.
pub(crate) fn parse_mounts(text: &[u8]) -> Vec<CgroupMount> {
    let parse = |line| {
        let mut parts = fields(line).skip(3);
        let (root, point) = (std::str::from_utf8(parts.next()?).ok()?, std::str::from_utf8(parts.next()?).ok()?);
        let mut kind = parts.skip_while(|part| *part != b"-").skip(1);
        let controllers = match kind.next()? {
            b"cgroup2" => Vec::new(),
            b"cgroup" => std::str::from_utf8(kind.nth(1)?).ok()?.split(',').map(str::to_owned).collect(),
            _ => return None,
        };
        Some(CgroupMount { controllers, root: root.to_owned(), point: PathBuf::from(point) })
    };
    lines(text).filter_map(parse).collect()
}

/// What of `path` stands below the group `root`; `None` where it is not below it.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
}

/// Looks where the job's groups are. Below a root other than `/` the view is that of the host's first process, as for
/// everything that differs by process: that one is in no job, and the own path would not be one of that tree.
pub(super) fn directories(tree: &Tree) -> (CgroupDirectories, Sight) {
    let mut own = tree.file_of_self("cgroup");
    let own: Vec<(String, String)> = own
        .read()
        .map(|text| parse_paths(text).map(|(controllers, path)| (controllers.to_owned(), path.to_owned())).collect())
        .unwrap_or_default();
    let mut found = CgroupDirectories::default();
    if own.is_empty() {
        return (found, Sight::InNoJob);
    }
    let mounts = tree.file_of_self("mountinfo").read().map(parse_mounts).filter(|mounts| !mounts.is_empty());
    let mut hidden = None;
    for (controllers, path) in &own {
        let mount = match &mounts {
            Some(mounts) => mounts.iter().find(|mount| match controllers.as_str() {
                "" => mount.controllers.is_empty(),
                list => list.split(',').all(|name| mount.controllers.iter().any(|of| of == name)),
            }),
            None => None,
        };
        let mount = match (mount, &mounts) {
            (Some(mount), _) => mount.clone(),
            (None, Some(_)) => continue,
            (None, None) => usual_mount(tree, controllers),
        };
        let point = tree.path(mount.point.strip_prefix("/").unwrap_or(&mount.point));
        let directory = match scheduler_level(path) {
            Some(job) => match (below(&job, &mount.root), below(&mount.root, &job)) {
                (Some(rest), _) => point.join(rest),
                // The mount is a part of the job.
                (None, Some(_)) => point.clone(),
                (None, None) => continue,
            },
            // The group of a container: only the root of all groups has no type.
            None if path == "/" && controllers.is_empty() && point.join("cgroup.type").exists() => point.clone(),
            None if mount.root != "/" && below(path, &mount.root).is_some() => point.clone(),
            None => continue,
        };
        if !directory.is_dir() {
            hidden.get_or_insert(point);
            continue;
        }
        let places = match controllers.as_str() {
            "" => vec![&mut found.unified],
            list => {
                let CgroupDirectories { unified: _, memory, cpu, cpuacct, cpuset, blkio } = &mut found;
                let all =
                    [("memory", memory), ("cpu", cpu), ("cpuacct", cpuacct), ("cpuset", cpuset), ("blkio", blkio)];
                all.into_iter().filter(|(name, _)| list.split(',').any(|of| of == *name)).map(|(_, at)| at).collect()
            }
        };
        for place in places {
            place.get_or_insert_with(|| directory.clone());
        }
    }
    let CgroupDirectories { unified, memory, cpu, cpuacct, cpuset, blkio } = &mut found;
    // Both are mounted: the controllers are those of version 1, and the other only names processes.
    if [memory, cpu, cpuacct, cpuset, blkio].iter().any(|directory| directory.is_some()) {
        *unified = None;
    }
    let sight = match (found == CgroupDirectories::default(), hidden) {
        (false, _) => Sight::InJob,
        (true, Some(path)) => Sight::Hidden(path),
        (true, None) => Sight::InNoJob,
    };
    (found, sight)
}

/// Where systemd mounts a hierarchy, if nobody tells.
fn usual_mount(tree: &Tree, controllers: &str) -> CgroupMount {
    let base = Path::new("/sys/fs/cgroup");
    let is_hybrid = tree.path("sys/fs/cgroup/unified").is_dir();
    let point = match controllers {
        "" if is_hybrid => base.join("unified"),
        "" => base.to_path_buf(),
        list => base.join(list),
    };
    CgroupMount {
        controllers: controllers.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        root: "/".to_owned(),
        point,
    }
}

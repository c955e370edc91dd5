//! What a recorder needs before it can record: its part of the job, directories, and options.

use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use telem_engine::Clock;
use telem_engine::options::Options;
use telem_ingest::writer::WhenRemoved;

use super::nodes::RunNodesArgs;
use crate::cli::service::{Purpose, ServiceArgs};
use crate::cli::{CliFailure, live};
use crate::config;
use crate::job::member::{HeadPlace, MemberOf, Seeking};
use crate::job::mpi_profile::{self, MpiLibraryBuilder, MpiProfileError};
use crate::job::notes::Notes;
use crate::job::{Places, Preparation, PreparedJob};
use crate::join::HEAD_GONE_TIMEOUT;
use crate::launch::agents::{self, AgentsOptions};
use crate::launch::plan::{self, Fleet, JobName, Launch, PlanError, Role};
use crate::launch::scheduler::Surroundings;
use crate::launch::task::{Claim, Meeting, TaskPart};
use crate::launch::{Patience, ThisProcess, launcher};
use crate::net::socket::SocketPlace;
use crate::saving::save::Destination;
use crate::service::{HeadOptions, ServiceOptions};

/// Longest that the start waits for the place that is saved to: a file system that hangs must not prevent the
/// recording.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest that requests which still run are waited for when the command has ended.
const REQUESTS_TIMEOUT: Duration = Duration::from_secs(2);
/// A time that no job lasts.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);
/// Samples of this level and below come from the job, not from the node.
const LEVEL_OF_USERS: u8 = 1;

/// When the rest is saved.
#[derive(Clone, Copy, Debug)]
pub struct SaveTimes {
    pub interval: Duration,
    pub timeout: Duration,
}

/// All that was asked for.
pub struct RunOptions {
    pub service: ServiceArgs,
    pub purpose: Purpose,
    pub job_name: JobName,
    pub destination: Option<Destination>,
    pub strict: bool,
    pub nodes: RunNodesArgs,
    /// A tunnel is to lead here.
    pub is_tunnelled: bool,
    pub saving: SaveTimes,
    /// The compiler wrapper of the MPI whose calls are to be counted.
    pub mpi_compiler: Option<OsString>,
    pub notes: Notes,
    pub clock: Arc<dyn Clock>,
}

impl RunOptions {
    /// Finds out, and makes the directories.
    pub fn run(self, patience: &dyn Patience) -> Result<Preparation, String> {
        match plan::plan(&self.nodes.launch_options(self.job_name), &ThisProcess, &config::host_name()) {
            Ok(Role::Alone) => self.serve(JobRole::Alone, patience),
            Ok(Role::Launch(fleet)) => self.serve(JobRole::Launcher(fleet), patience),
            Ok(Role::Task { rank }) => self.meet(rank, patience),
            Ok(Role::TaskOfNode(launch)) => self.meet_on_node(&launch, patience),
            // Other nodes were not requested: this one is recorded whatever a scheduler says.
            Err(error @ PlanError::Job(_)) if !self.strict => {
                self.notes.warn(format_args!("this node alone is recorded: {error}"));
                self.serve(JobRole::Alone, patience)
            }
            Err(error @ PlanError::Job(_)) => Err(error.to_string()),
            // The user asked for it, and can correct it. A file of hosts is read here and not where options are
            // checked, because it may hang, and be no file but a pipe.
            Err(error) => Ok(Preparation::Refused { why: error.to_string() }),
        }
    }

    /// One of many processes on many nodes.
    fn meet(self, rank: u32, patience: &dyn Patience) -> Result<Preparation, String> {
        // What Slurm calls a node is another's never.
        let named = ThisProcess.variable("SLURMD_NODENAME").and_then(|name| config::checked_name("node", &name).ok());
        let host = named.unwrap_or_else(config::host_name);
        let here = std::env::current_dir().map_err(|error| format!("there is no working directory: {error}"))?;
        let mut meeting = Meeting::of(&here, &self.purpose.job, &host, &ThisProcess);
        meeting.open().map_err(|error| error.to_string())?;
        let machine = Options::default().machine;
        let part = meeting.enter(rank, &ThisProcess, &*machine, &self.clock, patience);
        let mut part = part.map_err(|error| error.to_string())?;
        if rank == 0 {
            let claim = if let TaskPart::Keeper(claim) = part { Some(claim) } else { None };
            return self.serve(JobRole::Head { join_file: meeting.head(), claim }, patience);
        }
        loop {
            let claim = match part {
                TaskPart::Keeper(claim) => claim,
                part => return elsewhere(part),
            };
            let is_here = || meeting.is_wished(&*machine);
            let seeking = Seeking { patience, notes: self.notes, clock: &*self.clock, is_here: &is_here };
            match seeking.head(&meeting.head(), &self.purpose.job, self.nodes.advertise()) {
                Ok(HeadPlace::There(head)) => return self.serve(JobRole::Member { head, claim }, patience),
                Ok(HeadPlace::Here) => {
                    let given_up = meeting.give_up(claim, &*machine, &self.clock, patience);
                    part = given_up.map_err(|error| error.to_string())?;
                }
                Err(why) if self.strict || patience.is_over() => return Err(why),
                Err(why) => {
                    self.notes.warn(format_args!("{host} is recorded alone: {why}"));
                    return self.serve(JobRole::Keeper(claim), patience);
                }
            }
        }
    }

    /// One of many processes of this node, of which one records it.
    fn meet_on_node(self, launch: &Launch, patience: &dyn Patience) -> Result<Preparation, String> {
        let name = launch.name.clone().or_else(|| launcher::of_this_process().map(|parent| parent.to_string()));
        let Some(name) = name else { return self.serve(JobRole::Alone, patience) };
        let uid = rustix::process::getuid().as_raw();
        let here = SocketPlace::Common.directory(uid).map_err(|error| error.to_string())?;
        let host = config::host_name();
        let mut meeting = Meeting::of_launch(&here, &name, &host);
        meeting.open().map_err(|error| error.to_string())?;
        let machine = Options::default().machine;
        let part = meeting.enter_as_task(&ThisProcess, &*machine, &self.clock, patience);
        match part.map_err(|error| error.to_string())? {
            TaskPart::Keeper(claim) => {
                if launch.spread {
                    self.notes.warn(format_args!(
                        "{host} is recorded as a job of its own, and so is every other node: nothing says which nodes \
                         this launch has; for one job, start telem once (telem run --hostfile FILE -- mpirun ...), or \
                         give all its processes the same --job ID in a directory that all nodes share"
                    ));
                }
                self.serve(JobRole::Keeper(claim), patience)
            }
            part => elsewhere(part),
        }
    }

    fn serve(mut self, place: JobRole, patience: &dyn Patience) -> Result<Preparation, String> {
        let mpi_library = self.mpi_library(patience)?;
        self.claim()?;
        let passing = self.service.data.is_none();
        let beside = self.destination.as_ref().and_then(|destination| destination.parent().parent());
        let base = self.service.data_base();
        let fresh = |job: &str, node: &str| live::fresh(job, node, base.as_deref(), beside).map_err(CliFailure::Failed);
        let first_port = self.service.reach.first_port();
        let is_default = self.service.reach.listen.is_none();
        let interval = self.service.interval();
        let made = self.service.options(self.purpose, fresh).map_err(CliFailure::into_message);
        let mut options = made.inspect_err(|_| {
            if let Some(destination) = &mut self.destination {
                destination.discard();
            }
        })?;
        options.limits.shutdown_timeout = REQUESTS_TIMEOUT;
        options.collect.at_ends = true;
        let save = self.destination.as_ref().map(|destination| destination.parent().to_path_buf());
        if let Some(destination) = &self.destination {
            options.engine.node = destination.node();
            // What comes in when the live data were removed is saved from memory.
            options.writer.when_removed = WhenRemoved::KeepInMemory;
        }
        let mut head = HeadOptions {
            advertise: self.nodes.advertise(),
            interval,
            save,
            save_interval: self.saving.interval,
            save_timeout: self.saving.timeout,
            head_gone_timeout: self.nodes.head_gone_timeout().unwrap_or(HEAD_GONE_TIMEOUT),
            ..HeadOptions::default()
        };
        let passing = passing.then(|| options.data.clone());
        let (mut agents, mut member) = (None, None);
        if is_default && !matches!(&place, JobRole::Launcher(fleet) if fleet.is_local()) && place.is_head() {
            options.listen = Some(everywhere(first_port));
        }
        if place.is_of_many() {
            options.socket_place = SocketPlace::Common;
            if let Some(dragon) = &mut options.protocols.dragon {
                dragon.is_of_many = true;
            }
        }
        // Of many nodes one: all tunnels would have the same end.
        options.is_tunnelled = self.is_tunnelled && !matches!(&place, JobRole::Member { .. });
        let claim = match place {
            JobRole::Alone => None,
            JobRole::Launcher(fleet) => {
                if fleet.is_local() {
                    // The agents collect what there is to be collected here.
                    options.collect.level = options.level.min(LEVEL_OF_USERS);
                }
                // An explicit time for agents without their head applies to all of them.
                let orphan_timeout = match self.nodes.head_gone_timeout() {
                    None => Some(agents::orphan_timeout(&fleet)),
                    Some(_) => None,
                };
                let started = agents_options(fleet, &options, passing.is_some());
                agents = Some(AgentsOptions { orphan_timeout, ..started });
                head.join_file = Some(beside_data(&options.data, "join"));
                options.head = Some(head);
                None
            }
            JobRole::Head { join_file, claim } => {
                if claim.is_none() {
                    // Another process collects what there is on this node.
                    options.collect.level = options.level.min(LEVEL_OF_USERS);
                }
                // Its nodes have commands of their own, and end with those.
                options.head = Some(HeadOptions { join_file: Some(join_file), head_gone_timeout: NEVER, ..head });
                claim
            }
            JobRole::Member { head, claim } => {
                head.secure(&mut options)?;
                member = Some(*head);
                Some(claim)
            }
            JobRole::Keeper(claim) => Some(claim),
        };
        if let Some(dir) = &passing {
            live::tell_leftovers(dir);
        }
        let places = Places { destination: self.destination, passing, mpi_library };
        Ok(Preparation::Serve(Box::new(PreparedJob { options, places, agents, claim, head: member })))
    }

    /// What counts calls of MPI, if they are to be counted; without it the command runs all the same.
    fn mpi_library(&self, patience: &dyn Patience) -> Result<Option<PathBuf>, String> {
        let Some(compiler) = self.mpi_compiler.clone() else { return Ok(None) };
        let began = self.clock.monotonic();
        let built = mpi_profile::cache("mpi").ok_or(MpiProfileError::Homeless).and_then(|cache| {
            let _working = self.notes.at_work("building what counts calls of MPI".to_owned());
            let recipe = &mpi_profile::COUNTS_FOR_TELEM;
            MpiLibraryBuilder { recipe, compiler, cache, clock: &*self.clock }.library(patience)
        });
        match built {
            Ok(library) => {
                let took = self.clock.monotonic().saturating_sub(began);
                tracing::debug!(library = %library.display(), ?took, "calls of MPI are counted");
                Ok(Some(library))
            }
            Err(error) if self.strict => Err(format!("calls of MPI cannot be counted: {error}")),
            Err(error) => {
                self.notes.warn(format_args!("calls of MPI are not counted: {error}"));
                Ok(None)
            }
        }
    }

    /// Makes the directory that is saved to. One that cannot be is tried again later.
    fn claim(&mut self) -> Result<(), String> {
        let Some(destination) = &mut self.destination else { return Ok(()) };
        match destination.claim_within(CLAIM_TIMEOUT) {
            Err(error) if self.strict => Err(format!("cannot save in {}: {error}", destination.path().display())),
            _ => Ok(()),
        }
    }
}

/// What becomes of a process whose node another one records.
fn elsewhere(part: TaskPart) -> Result<Preparation, String> {
    match part {
        TaskPart::Guest { environment } => Ok(Preparation::Elsewhere { environment }),
        TaskPart::Keeper(_) | TaskPart::Unheard => {
            Err("another process of telem records this node, and does not say how to reach it".to_owned())
        }
    }
}

/// What a recorder is in its job.
enum JobRole {
    /// The only one.
    Alone,
    /// The head of agents that it starts.
    Launcher(Fleet),
    /// The head of processes that a launcher started. `claim`: the keeper of its node, too.
    Head { join_file: PathBuf, claim: Option<Claim> },
    /// The keeper of a node, and a member of that head's job.
    Member { head: Box<MemberOf>, claim: Claim },
    /// The keeper of a node without a head.
    Keeper(Claim),
}

impl JobRole {
    /// Whether other machines may be in it: the environment of the command is for all of them.
    fn is_of_many(&self) -> bool {
        match self {
            Self::Alone => false,
            Self::Launcher(fleet) => !fleet.is_local(),
            Self::Head { .. } | Self::Member { .. } | Self::Keeper(_) => true,
        }
    }

    fn is_head(&self) -> bool {
        matches!(self, Self::Launcher(_) | Self::Head { .. })
    }
}

/// The wanted port, if it is free, or any, at all addresses, those of IPv6 too where there are any.
fn everywhere(wanted: Option<u16>) -> SocketAddr {
    let addresses = [wanted.unwrap_or(0), 0].into_iter().flat_map(|port| {
        [SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))]
    });
    let mut free = addresses.filter(|address| TcpListener::bind(address).is_ok());
    free.next().unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into())
}

/// A place beside the data directory, in which nothing but the database may lie.
fn beside_data(data: &Path, what: &str) -> PathBuf {
    let mut name = data.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{what}"));
    data.with_file_name(name)
}

fn agents_options(fleet: Fleet, options: &ServiceOptions, passing: bool) -> AgentsOptions {
    let host = config::host_name();
    let host = host.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let binary = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("telem"));
    // If the data need not stay, agents choose a place as their head did, and remove it when it is saved.
    let data = (fleet.is_local() && !passing).then(|| beside_data(&options.data, "nodes"));
    AgentsOptions { fleet, binary, host, data, logs: beside_data(&options.data, "agents"), orphan_timeout: None }
}

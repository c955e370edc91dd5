//! The log on stderr: as `TELEM_LOG` says if it is set, else as verbose as `-v` and `-q` say.

use std::fmt;
use std::io::{self, IsTerminal};

use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::Verbosity;
use crate::config;
use crate::membership::last_error::LastError;

/// How a line begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// With the time: stderr is telem's own.
    Stamped,
    /// With telem's name: stderr is the job's.
    Named,
}

pub fn start(verbosity: Verbosity, style: Style) {
    let default = match (verbosity.verbose, verbosity.quiet) {
        (0, 0) => "warn",
        (1, _) => "info",
        (2.., _) => "debug",
        (_, 1) => "error",
        (_, 2..) => "off",
    };
    let usual = || {
        EnvFilter::builder().parse_lossy(format!(
            "{},telem_engine={default},telem_ingest={default},telem_query={default},telem_server={default}{}",
            if default == "off" { "off" } else { "error" },
            // Who was told that an alarm is raised wants to know when it ended.
            if default == "warn" { ",telem_server::protocols::proxy::alarms=info" } else { "" }
        ))
    };
    // DataFusion and hyper speak up only when they are asked to by name.
    let filter = match config::environment("TELEM_LOG") {
        Some(wanted) => EnvFilter::builder().parse(&wanted).unwrap_or_else(|error| {
            // There is no log yet.
            eprintln!("telem: warning: TELEM_LOG is '{wanted}': {error}; write such as telem_engine=debug,info");
            usual()
        }),
        None => usual(),
    };
    // Saying on stderr that stderr is gone would end the thread that had something to say.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    match style {
        Style::Stamped => log.with_ansi(io::stderr().is_terminal()).finish().with(LastError).init(),
        Style::Named => log.with_ansi(false).event_format(PlainEvents).finish().with(LastError).init(),
    }
}

struct PlainEvents;

impl<S, N> FormatEvent<S, N> for PlainEvents
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = match event.metadata().level().as_str() {
            "WARN" => "warning".to_owned(),
            other => other.to_ascii_lowercase(),
        };
        write!(to, "telem: {level}: ")?;
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

//! `telem report`: what a run did, on one page. The facts are SQL views ([`view`], `report/views.sql`); [`warnings`] judges
//! them without asking anything; [`text`] and [`html`] show them.

mod html;
mod read;
mod robust;
#[cfg(test)]
mod tests;
mod text;
mod view;
mod warnings;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, json};

use self::read::ReportJob;
use self::view::{ReportTable, ReportView, ViewAnswers, ViewAuthor};
use self::warnings::ReportWarning;
use super::CliFailure;
use super::source::{RunSource, StrictArg};
use super::table::terminal_width;
use crate::footprint::raise_descriptor_limit;

/// Views that are pictures, or too long for people.
const NOT_SHOWN: [&str; 3] = ["report_curves", "report_memory", "report_rank_metrics"];

/// Report what a run did, how it used its nodes, and what went wrong
///
/// Warnings name the node, rank or GPU and the figure: memory nearly full, a leak, swap, throttled CPUs or GPUs, the
/// straggler, a rank that waits, idle GPUs, many small writes. Ranks need samples of `--level 3`, or metrics with a tag
/// `rank`. Every section is a view in SQL, and --views adds others.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct ReportArgs {
    /// A saved run, or a server: http://HOST:PORT, or unix:PATH of its socket
    ///
    /// One run among several in one place is DIR#JOB or URL#JOB.
    #[arg(value_name = "DIR|URL", required_unless_present = "sql")]
    run: Option<String>,
    /// As JSON: the job, the warnings, and all rows of all views
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// As Markdown
    #[arg(long)]
    markdown: bool,
    /// Write a page with pictures to a file, which needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Add a section for each view of a file
    ///
    /// A view is `CREATE VIEW name AS` at the beginning of a line, a query, and `;` at the end of a line, which nothing else
    /// in it may have. A comment in the line above is its title.
    #[arg(long, value_name = "FILE")]
    views: Vec<PathBuf>,
    /// Print the views of the report, and nothing else
    #[arg(long)]
    sql: bool,
    /// End with exit code 3 if there is a warning
    ///
    /// 1 means that there is no report, 2 that the command was used wrongly.
    #[arg(long)]
    fail_on_warning: bool,
    #[command(flatten)]
    strict: StrictArg,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem report ./telem-4711
  telem report ./telem-4711 --html report.html";

const EXAMPLES: &str = "\
Examples:
  telem report ./telem-4711
  telem report ./telem-4711 --html report.html
  telem report ./telem-4711 --json | jq -r '.warnings[].text'
  telem report ./telem-4711 --markdown --fail-on-warning      # in CI
  telem report --sql > mine.sql                               # to start views of your own from
  telem report http://127.0.0.1:4242                          # a running job

Environment:
  TELEM_TOKEN   the token, if the server needs one";

/// All that is known of a run.
struct RunReport {
    run: String,
    job: ReportJob,
    views: Vec<ReportView>,
    answers: ViewAnswers,
    warnings: Vec<ReportWarning>,
}

/// A view with its rows.
struct ReportSection<'a> {
    title: &'a str,
    table: &'a ReportTable,
}

impl RunReport {
    /// The sections that people see, which are not empty.
    fn shown(&self) -> impl Iterator<Item = ReportSection<'_>> {
        self.views.iter().filter(|view| !NOT_SHOWN.contains(&&*view.name)).filter_map(|view| {
            let table = self.answers.get(&view.name).filter(|table| !table.rows.is_empty())?;
            Some(ReportSection { title: &view.title, table })
        })
    }

    fn json(&self) -> serde_json::Result<String> {
        let views: Map<_, _> =
            self.answers.iter().map(|(name, table)| (name.clone(), json!(table.objects()))).collect();
        let report = json!({"run": self.run, "job": self.job, "warnings": self.warnings, "views": views});
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }
}

/// # Errors
/// Failed for a run that cannot be read; Warned for one with warnings, where that was asked for.
pub fn run(args: &ReportArgs) -> Result<(), CliFailure> {
    let mut out = io::stdout().lock();
    let Some(named) = args.run.as_ref().filter(|_| !args.sql) else {
        out.write_all(view::OWN.as_bytes())?;
        return Ok(out.flush()?);
    };
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliFailure::failed)?;
    let report = runtime.block_on(report(named, args))?;
    if let Some(file) = &args.html {
        std::fs::write(file, html::page(&report))
            .map_err(|error| CliFailure::Failed(format!("cannot write {}: {error}", file.display())))?;
    }
    let text = match (args.json, args.markdown) {
        (true, _) => report.json().map_err(CliFailure::failed)?,
        (false, true) => text::markdown(&report),
        (false, false) => text::text(&report, terminal_width()),
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    match args.fail_on_warning && !report.warnings.is_empty() {
        true => Err(CliFailure::Warned),
        false => Ok(()),
    }
}

async fn report(named: &str, args: &ReportArgs) -> Result<RunReport, CliFailure> {
    let mut views = view::parse(view::OWN, ViewAuthor::Telem).map_err(CliFailure::failed)?;
    for file in &args.views {
        let of_file = |why: String| CliFailure::Failed(format!("{}: {why}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| of_file(error.to_string()))?;
        for view in view::parse(&text, ViewAuthor::User).map_err(of_file)? {
            // A view of the same name takes the place of telem's.
            views.retain(|known| known.name != view.name);
            views.push(view);
        }
    }
    let open = async {
        let mut source = RunSource::open(named, args.strict)?;
        let job = read::job(&mut source).await?;
        let (answers, unanswered) = read::answers(&mut source, &views).await?;
        Ok((source, job, answers, unanswered))
    };
    let (source, job, answers, unanswered) = open.await.map_err(|failure: CliFailure| match failure {
        CliFailure::Usage(message) => CliFailure::Usage(message),
        other => CliFailure::Failed(format!("cannot report on '{named}': {}", other.into_message())),
    })?;
    if !source.lacking().is_empty() {
        let text = format!("nodes are missing: {}", source.lacking());
        match args.strict.strict {
            true => return Err(CliFailure::Failed(text)),
            false => writeln!(io::stderr(), "warning: {text}").unwrap_or_default(),
        }
    }
    let mut warnings = warnings::of(&answers);
    warnings.extend(unanswered);
    Ok(RunReport { run: named.to_owned(), job, views, answers, warnings })
}

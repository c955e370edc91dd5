//! Every example of every page, and of every `--help`, is run as it stands.
//!
//! A fenced block of `sh`, `sql` or `python` is run from top to bottom in the directory of a reader who follows its
//! page. Every command in it must exit with 0, and a query in SQL must return rows. An example that cannot run where
//! tests run has a comment before its fence, which readers do not see: `<!-- not run: REASON -->`.
//! `<!-- run: in a job -->` precedes an example that belongs inside a job. Three things differ from what a reader
//! types: 4242 is replaced by another port ([`world`]), servers run in the background and are stopped at the end, and
//! examples with programs that are not installed ([`PROGRAMS`]) are skipped.

mod page;
mod world;

use std::path::Path;
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::process::telem;
use page::{Example, How, Language};
use world::{Reader, World};

/// Programs of others that examples call. Where one is not installed, the example is not run.
const PROGRAMS: [&str; 5] = ["curl", "jq", "make", "nc", "python3"];
/// Pages that are followed at once.
const READERS: usize = 3;

/// Examples of helps that are not run, by what is in them, and why.
const NOT_RUN_OF_HELP: [(&str, &str); 14] = [
    ("ssh ", "needs another machine"),
    ("srun ", "needs Slurm"),
    ("--mpi-profile", "needs MPI; tests/py counts calls of real ones"),
    ("--nodes n[01-16]", "needs other machines"),
    ("--allow-user grafana", "needs a user of that name"),
    ("duckdb ", "needs DuckDB; tests/py asks it for the view"),
    ("nvidia-smi ", "needs a GPU of NVIDIA"),
    ("lightning_logs", "needs logs of TensorBoard; tests/py writes some"),
    ("wandb/latest-run", "needs a run of wandb; tests/py records one"),
    ("telem open ./trial", "needs a server of that directory; tests/page.rs has one"),
    ("--browser", "needs a browser"),
    ("proxy", "takes the port and the socket of Metric Proxy, which a machine has once; tests/proxy.rs has others"),
    ("127.0.0.1:1337", "asks a Metric Proxy that is not started here"),
    ("telem recover", "would take over what jobs of this user left on this machine"),
];
/// Helps whose examples belong together, as one block.
const ONE_BLOCK: [&str; 1] = ["node"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// What went wrong with an example.
fn wrong(place: &str, text: &str, done: &Output) -> Option<String> {
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (!done.status.success())
        .then(|| format!("{place}: {}\n{text}\n{}{}", done.status, said(&done.stdout), said(&done.stderr)))
}

fn follow(reader: &Reader<'_>, example: &Example) -> Option<String> {
    let Example { place, language, text, how } = example;
    let missing = |program: &&&str| {
        text.split(|c: char| !c.is_alphanumeric()).any(|word| word == **program) && !world::has(program)
    };
    if let Some(program) = PROGRAMS.iter().find(missing) {
        println!("{place} is not run: there is no {program} here");
        return None;
    }
    let done = match (language, how) {
        (Language::Shown, _) | (_, How::NotRun(_)) => return None,
        (Language::Sql, _) => {
            let statements = text.split(';').map(str::trim).filter(|statement| !statement.is_empty());
            return statements.filter_map(|one| wrong(place, one, &reader.ask(one))).next();
        }
        (Language::Python, _) => reader.python_in_job(text),
        (Language::Shell, How::InJob) => reader.shell_in_job(text),
        (Language::Shell, How::AsItStands) => reader.shell(text),
    };
    wrong(place, text, &done)
}

/// Does `work` for each of so many things, several at a time; what went wrong.
fn each(count: usize, work: impl Fn(usize) -> Vec<String> + Sync) -> Vec<String> {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    let wrong = work(at);
                    all.lock().unwrap().extend(wrong);
                }
            });
        }
    });
    all.into_inner().unwrap()
}

#[test]
fn every_example_of_every_page_runs_as_it_stands() {
    let mut pages = Vec::new();
    for path in page::pages(root()) {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        let examples = page::examples(&name, &text).unwrap_or_else(|why| panic!("{why}"));
        let runs = |example: &Example| example.language != Language::Shown && !matches!(example.how, How::NotRun(_));
        if examples.iter().any(runs) {
            pages.push(examples);
        }
    }
    let examples: usize = pages.iter().map(Vec::len).sum();
    assert!(pages.len() >= 7 && examples >= 25, "{examples} examples on {} pages", pages.len());
    let world = World::new();
    let wrong = each(pages.len(), |at| {
        let reader = world.reader(&format!("page-{at}"));
        pages[at].iter().filter_map(|example| follow(&reader, example)).collect()
    });
    assert!(wrong.is_empty(), "{} examples fail\n\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn every_example_of_every_help_runs_as_it_stands() {
    let help = |words: &[&str]| {
        let output = telem(words.iter().chain(&["--help"])).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let own = help(&[]);
    let listed = own.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> =
        listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    assert!(commands.len() >= 12, "{commands:?}");
    let world = World::new();
    let wrong = each(commands.len(), |at| {
        let command = commands[at];
        let mut lines = page::of_help(&help(&[command]));
        assert!(!lines.is_empty(), "telem {command} --help has no examples");
        lines.retain(|line| !NOT_RUN_OF_HELP.iter().any(|(part, _)| line.contains(part)));
        if ONE_BLOCK.contains(&command) {
            lines = vec![lines.join("\n")];
        }
        let reader = world.reader(command);
        let examples = lines.into_iter().map(|text| {
            // What finds its server in the environment is for the inside of a job.
            let finds = text.contains("$TELEM_") || (text.contains("telem put") && !text.contains("--url"));
            let starts = text.starts_with("telem run");
            let how = if finds && !starts { How::InJob } else { How::AsItStands };
            Example { place: format!("telem {command} --help"), language: Language::Shell, text, how }
        });
        examples.filter_map(|example| follow(&reader, &example)).collect()
    });
    assert!(wrong.is_empty(), "{} examples fail\n\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn an_example_that_fails_or_has_no_answer_is_noticed() {
    let world = World::new();
    let reader = world.reader("wrong");
    let run = |language, text: &str, how| {
        let example = Example { place: "here:1".to_owned(), language, text: text.to_owned(), how };
        follow(&reader, &example)
    };
    for (language, text) in [
        (Language::Shell, "telem info ./not-there"),
        (Language::Shell, "telem sql trial 'SELECT * FROM samples WHERE false'\necho goes on"),
        (Language::Shell, "telem sql trial 'SELECT 1' | false"),
        (Language::Shell, "telem serve --data ./trial --level 9"),
        (Language::Sql, "SELECT 1; SELECT nothing FROM samples;"),
        (Language::Sql, "SELECT * FROM samples WHERE metric = 'nothing'"),
        (Language::Python, "raise SystemExit(3)"),
    ] {
        assert!(run(language, text, How::AsItStands).is_some(), "{text}");
    }
    assert!(run(Language::Shell, "telem put queue 1", How::AsItStands).is_some(), "there is no job");
    for (text, how) in [
        ("telem put queue 1", How::InJob),
        (
            "telem serve --data ./new --level 2\ntelem sql http://127.0.0.1:4242 'SELECT * FROM node_load1'",
            How::AsItStands,
        ),
    ] {
        assert_eq!(run(Language::Shell, text, how), None, "{text}");
    }
}

//! One job among several in one place: `DIR#JOB` and `URL#JOB`, as of a server that jobs share, or of a folder of runs.
//! Its questions are those of a place that has no other: SQL in which the tables hold its rows alone.

use std::borrow::Cow;
use std::path::Path;

use super::cells::literal;
use super::{CliFailure, aligned::printable};

/// What stands between a place and a job.
const MARK: char = '#';
/// Jobs that a message names at most.
const JOBS_NAMED: usize = 6;

/// A run as its user names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedRun {
    /// A directory or a server.
    pub place: String,
    job: Option<String>,
}

impl NamedRun {
    /// What exists under the whole name is meant.
    pub fn parse(named: &str) -> Self {
        let whole = || Self { place: named.to_owned(), job: None };
        if Path::new(named).exists() {
            return whole();
        }
        match named.rsplit_once(MARK) {
            Some((place, job)) if !place.is_empty() && !job.is_empty() => {
                Self { place: place.to_owned(), job: Some(job.to_owned()) }
            }
            _ => whole(),
        }
    }

    /// What the run is called in `place`.
    pub fn name_of(place: &str, job: &str) -> String {
        format!("{place}{MARK}{job}")
    }

    /// `sql`, of this job alone.
    ///
    /// # Errors
    /// Usage for what cannot be asked of one job.
    pub fn narrowed<'a>(&self, sql: &'a str) -> Result<Cow<'a, str>, CliFailure> {
        let Some(job) = &self.job else { return Ok(Cow::Borrowed(sql)) };
        let job = literal(job);
        let tables = format!(
            "samples AS (SELECT * FROM samples WHERE job = {job}), \
             jobs AS (SELECT * FROM jobs WHERE job = {job}), \
             job_energy AS (SELECT * FROM job_energy WHERE job = {job}), \
             series AS (SELECT metric, node, tags, min(ts) AS first_ts, max(ts) AS last_ts, \
             last(value, ts) AS last_value FROM samples WHERE job = {job} GROUP BY metric, node, tags), \
             metrics AS (SELECT * FROM metrics WHERE metric IN (SELECT metric FROM series))"
        );
        let trimmed = sql.trim_start();
        let Some(rest) = trimmed.get(..5).filter(|word| word.eq_ignore_ascii_case("with ")).map(|_| &trimmed[5..])
        else {
            return Ok(Cow::Owned(format!("WITH {tables} {sql}")));
        };
        if rest.trim_start().get(..9).is_some_and(|word| word.eq_ignore_ascii_case("recursive")) {
            let what = format!("a view with WITH RECURSIVE cannot be asked of one job; name {} alone", self.place);
            return Err(CliFailure::Usage(what));
        }
        Ok(Cow::Owned(format!("WITH {tables}, {rest}")))
    }

    /// What to say where it has no samples.
    pub fn empty(&self) -> String {
        let Some(job) = &self.job else { return "it has no samples".to_owned() };
        let place = printable(&self.place);
        format!(
            "{place} has no samples of a job '{}'; `telem sql {place} \"SELECT DISTINCT job FROM jobs\"` lists its jobs",
            printable(job)
        )
    }

    /// What to say where one run is wanted and `jobs` are there.
    pub fn several(&self, jobs: &[&str]) -> String {
        let (named, example) = (Self::some_of(jobs), self.example(jobs));
        format!("it holds {} runs ({named}); name one of them, as in '{example}'", jobs.len())
    }

    /// The first of `jobs`, as people read them.
    pub fn some_of(jobs: &[&str]) -> String {
        let named: Vec<String> = jobs.iter().take(JOBS_NAMED).map(|job| printable(job)).collect();
        let more = if jobs.len() > JOBS_NAMED { ", ..." } else { "" };
        format!("{}{more}", named.join(", "))
    }

    /// How one of `jobs` is named here.
    pub fn example(&self, jobs: &[&str]) -> String {
        jobs.last().map_or_else(String::new, |job| printable(&Self::name_of(&self.place, job)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_behind_its_place_unless_that_is_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a#b");
        std::fs::create_dir(&odd).unwrap();
        let of = |named: &str| {
            let run = NamedRun::parse(named);
            (run.place, run.job)
        };
        assert_eq!(of("runs/a#trial-7"), ("runs/a".to_owned(), Some("trial-7".to_owned())));
        assert_eq!(of("http://h:1#x y"), ("http://h:1".to_owned(), Some("x y".to_owned())));
        assert_eq!(of(odd.to_str().unwrap()), (odd.to_str().unwrap().to_owned(), None));
        let within = format!("{}#7", odd.display());
        assert_eq!(of(&within), (odd.to_str().unwrap().to_owned(), Some("7".to_owned())));
        for whole in ["runs/a", "a#", "#a", "#"] {
            assert_eq!(of(whole), (whole.to_owned(), None));
        }
    }

    #[test]
    fn where_a_job_has_no_samples_its_place_says_how_others_are_found() {
        assert_eq!(NamedRun::parse("runs/a").empty(), "it has no samples");
        assert_eq!(
            NamedRun::parse("runs/a#7").empty(),
            "runs/a has no samples of a job '7'; `telem sql runs/a \"SELECT DISTINCT job FROM jobs\"` lists its jobs"
        );
    }

    #[test]
    fn a_question_is_asked_of_one_job_whatever_its_name_and_however_it_begins() {
        let all = NamedRun::parse("runs/a");
        assert_eq!(all.narrowed("SELECT 1").unwrap(), "SELECT 1");
        let one = NamedRun::parse("runs/a#it's");
        let sql = one.narrowed("SELECT count(*) FROM samples").unwrap();
        assert!(sql.starts_with("WITH samples AS (SELECT * FROM samples WHERE job = 'it''s'), "), "{sql}");
        assert!(sql.ends_with(") SELECT count(*) FROM samples"), "{sql}");
        let sql = one.narrowed("\n with mine AS (SELECT 1) SELECT * FROM mine").unwrap();
        assert!(sql.contains("series)), mine AS (SELECT 1) SELECT"), "{sql}");
        assert!(one.narrowed("WITH RECURSIVE r AS (SELECT 1) SELECT 1").is_err());
    }
}

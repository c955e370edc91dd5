//! The examples of a page: its fenced blocks, their languages, and how they are run.

use std::path::{Path, PathBuf};

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Where it stands, as `docs/sql.md:19`.
    pub place: String,
    pub language: Language,
    pub text: String,
    pub how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Shell,
    Sql,
    Python,
    /// What is shown and not typed: output, files, settings of other programs.
    Shown,
}

/// How an example is run. A comment before its fence says so; without one it stands alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    AsItStands,
    /// `<!-- run: in a job -->`: by `telem run`, as its page says.
    InJob,
    /// `<!-- not run: REASON -->`
    NotRun(String),
}

/// The fewest characters of a reason.
const REASON_MIN: usize = 10;

/// Every page with examples for readers, from the top of the repository.
pub fn pages(root: &Path) -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["README.md", "grafana/README.md", "clients/python/README.md", "benches/README.md"].map(PathBuf::from).into();
    for dir in ["docs", "docs/format", "docs/decisions"] {
        for entry in std::fs::read_dir(root.join(dir)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "md") {
                pages.push(path.strip_prefix(root).unwrap().to_path_buf());
            }
        }
    }
    pages.sort();
    pages
}

/// The examples of a page.
///
/// # Errors
/// A fence of no language that is known here, one that never ends, and a marker without a reason.
pub fn examples(page: &str, text: &str) -> Result<Vec<Example>, String> {
    let mut examples = Vec::new();
    let mut how = How::AsItStands;
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let place = format!("{page}:{}", at + 1);
        let trimmed = line.trim();
        if let Some(said) = trimmed.strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->")) {
            how = marker(said.trim()).map_err(|why| format!("{place}: {why}"))?;
            continue;
        }
        let Some(name) = trimmed.strip_prefix("```") else {
            if !trimmed.is_empty() {
                how = How::AsItStands;
            }
            continue;
        };
        let language = language(name).ok_or_else(|| {
            format!("{place}: a block of '{name}'; expected sh, sql, python, c, or text or toml for what nobody types")
        })?;
        let mut block = String::new();
        loop {
            let (_, line) = lines.next().ok_or_else(|| format!("{place}: the block never ends"))?;
            if line.trim() == "```" {
                break;
            }
            block.push_str(line);
            block.push('\n');
        }
        examples.push(Example { place, language, text: block, how: std::mem::replace(&mut how, How::AsItStands) });
    }
    Ok(examples)
}

fn language(name: &str) -> Option<Language> {
    Some(match name {
        "sh" => Language::Shell,
        "sql" => Language::Sql,
        "python" => Language::Python,
        // What is in C is compiled and run by tests/py/test_c_client.py.
        "text" | "toml" | "c" => Language::Shown,
        _ => return None,
    })
}

fn marker(said: &str) -> Result<How, String> {
    if said == "run: in a job" {
        return Ok(How::InJob);
    }
    match said.strip_prefix("not run:").map(str::trim) {
        Some(reason) if reason.len() >= REASON_MIN => Ok(How::NotRun(reason.to_owned())),
        Some(_) => Err("a block is not run and no reason is given; write <!-- not run: REASON -->".to_owned()),
        // Other comments are none of ours.
        None => Ok(How::AsItStands),
    }
}

/// The commands under `Examples:` of a help, a line each, with those that go on in the next line.
pub fn of_help(help: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let section = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    for line in section.take_while(|line| !line.is_empty()) {
        match commands.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.push('\n');
                last.push_str(line);
            }
            _ => commands.push(line.trim().to_owned()),
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_with_their_language_and_marker() {
        let text = "# A page\n```sh\ntelem info\n```\n<!-- not run: needs another machine -->\n\n```sh\nssh n1\n```\n\
                    <!-- run: in a job -->\n```python\nx = 1\n```\n<!-- a comment -->\ntext\n```sql\nSELECT 1;\n```\n\
                    ```text\nout\n```\n";
        let found = examples("a.md", text).unwrap();
        let short: Vec<_> = found.iter().map(|one| (one.place.as_str(), one.language, one.how.clone())).collect();
        assert_eq!(
            short,
            [
                ("a.md:2", Language::Shell, How::AsItStands),
                ("a.md:7", Language::Shell, How::NotRun("needs another machine".to_owned())),
                ("a.md:11", Language::Python, How::InJob),
                ("a.md:16", Language::Sql, How::AsItStands),
                ("a.md:19", Language::Shown, How::AsItStands),
            ]
        );
        assert_eq!(found[0].text, "telem info\n");
    }

    #[test]
    fn a_block_without_a_language_or_a_reason_is_an_error() {
        for text in ["```\nls\n```\n", "```perl\n1\n```\n", "```sh\nls\n", "<!-- not run: no -->\n```sh\nls\n```\n"] {
            let error = examples("a.md", text).unwrap_err();
            assert!(error.starts_with("a.md:1: "), "{error}");
        }
    }

    #[test]
    fn the_examples_of_a_help_end_with_their_section() {
        let help = "Ask\n\nExamples:\n  telem sql a  # one\n  curl x \\\n    -d y\n\nEnvironment:\n  TELEM_TOKEN  it\n";
        assert_eq!(of_help(help), ["telem sql a  # one", "curl x \\\n    -d y"]);
    }
}

//! `POST /api/panels`: many panels in one request, each answered by a line of JSON as soon as it is ready, in order.
//!
//! A panel is a question about one metric ([`question`]). Its samples are folded into the columns of a grid
//! ([`grid`]), where they are: the average of all samples with the least and the greatest in one pass ([`fold`]), sums
//! and rates by the pipeline of time series ([`series`]). The lines that come of it meet here ([`lines`]); here it is
//! decided which of them are sent and what stands for the others ([`choice`], [`answer`]).

mod answer;
mod choice;
mod column;
mod fold;
mod grid;
mod jobs;
mod lines;
mod question;
mod series;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::extract::{Request, State as Of};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde::Serialize;
use serde_json::Value as Json;
use telem_engine::{ErrorKind, JOB_TAG};

use self::answer::{PanelAnswer, PanelRead};
use self::choice::LineChoice;
use self::grid::PanelGrid;
use self::jobs::JobNaming;
use self::lines::PanelLines;
use self::question::{LineFunction, Panel, PanelsQuestion};
use crate::http::{self, ApiError, body};
use crate::state::State;

/// Most bytes of a request.
pub(crate) const PANELS_BYTES_MAX: usize = 256 << 10;
/// Most panels of a request.
pub(crate) const PANELS_MAX: usize = 64;
/// Panels of a request that are worked on at once.
pub(crate) const PANELS_AT_ONCE: usize = 2;
/// Most columns that may be asked for; one more may come, as the grid does not begin where the range does.
pub(crate) const COLUMNS_MAX: usize = 2_000;
/// Most lines of a panel that are sent.
pub(crate) const LINES_MAX: usize = 256;
/// Most rows of a heat map.
pub(crate) const ROWS_MAX: usize = 2_000;
/// Most cells (lines times columns) of a panel that are looked at, also of lines that are not sent.
pub(crate) const CELLS_MAX: usize = 4_000_000;
/// Most tag keys that make lines, or that are filtered by.
pub(crate) const KEYS_MAX: usize = 16;
/// Most values of a filter, and of lines that are asked for by name.
pub(crate) const NAMES_MAX: usize = 10_000;

/// A panel that could not be answered, among those that could.
#[derive(Debug, Serialize)]
struct FailedPanel {
    panel: usize,
    error: Json,
}

pub async fn panels(Of(state): Of<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let body = body::read(request, &state.limits.bodies.at_most(PANELS_BYTES_MAX)).await?;
    let question = PanelsQuestion::parse(&body)?;
    // Given back before the queries run, which may take long.
    drop(body);
    let (grid, columns, is_delta) = (question.grid()?, question.columns, question.since.is_some());
    let is_ordered = !question.as_ready;
    let panels = stream::iter(question.panels.into_iter().enumerate()).map(move |(number, panel)| {
        let asked = PanelTask { state: Arc::clone(&state), number, panel, grid, columns, is_delta };
        asked.line()
    });
    // A heavy panel does not hold up those behind it, where their order does not matter.
    let lines = match is_ordered {
        true => panels.buffered(PANELS_AT_ONCE).left_stream(),
        false => panels.buffer_unordered(PANELS_AT_ONCE).right_stream(),
    };
    let kind = (header::CONTENT_TYPE, "application/x-ndjson; charset=UTF-8");
    Ok(([kind], http::streamed(lines)).into_response())
}

/// One panel that is to be answered.
#[derive(Debug)]
pub struct PanelTask {
    pub state: Arc<State>,
    number: usize,
    pub panel: Panel,
    /// The whole range.
    pub grid: (PanelGrid, PanelGrid),
    columns: usize,
    /// Only the newest columns are asked for.
    is_delta: bool,
}

impl PanelTask {
    async fn line(self) -> Result<Bytes, ApiError> {
        let panel = self.number;
        match self.answer().await {
            Ok(bytes) => Ok(bytes),
            Err(error) => {
                let failed = FailedPanel { panel, error: error.to_json()["error"].take() };
                json_line(&failed)
            }
        }
    }

    /// The grid that this panel fills: cells of a heat map share a scale, so they come whole.
    pub fn own_grid(&self) -> PanelGrid {
        if self.panel.matrix { self.grid.0 } else { self.grid.1 }
    }

    async fn answer(self) -> Result<Bytes, ApiError> {
        let mut lines = PanelLines::new(self.own_grid(), self.state.limits.answers.start());
        let jobs = JobNaming::of(&self).await?;
        let filters = self.panel.filters(&self.state.index(), &jobs)?;
        let read = if filters.is_some() { PanelRead::Done } else { PanelRead::NothingMatches };
        if let Some(filters) = &filters {
            lines = match (&jobs, self.panel.is_folded()) {
                (JobNaming::Column, true) => fold::fill_by_table(&self, filters, lines).await?,
                (JobNaming::Column, false) => return Err(untold_job()),
                (_, true) => fold::fill(&self, filters, lines).await?,
                (_, false) => series::fill(&self, filters, lines).await?,
            };
            if let JobNaming::One(job) = &jobs {
                lines.name_all(self.panel.by.iter().position(|key| key == JOB_TAG), job);
            }
        }
        let (state, grid) = (Arc::clone(&self.state), self.own_grid());
        let limits = state.limits.walks.clone();
        let wish = self.panel.wish();
        let choice = move |lines: &PanelLines| LineChoice::of(&lines.lines, grid.columns, &wish);
        let is_short = || lines.longest() <= self.columns / SAMPLES_SHARE;
        let Some(filters) = filters.filter(|_| self.may_be_raw() && is_short()) else {
            let rendering = move || {
                let choice = choice(&lines);
                json_line(&PanelAnswer::of(&self, lines, choice, read))
            };
            return limits.render(rendering).await;
        };
        // Samples are read of the lines that are sent, and of no others.
        let choosing = move || {
            let choice = choice(&lines);
            Ok::<_, ApiError>((lines, choice))
        };
        let (mut lines, choice) = limits.render(choosing).await?;
        fold::fill_raw(&self, &filters, &mut lines, &choice.sent).await?;
        limits.render(move || json_line(&PanelAnswer::of(&self, lines, choice, read))).await
    }

    /// Whether samples themselves may be the answer: where every line is one series.
    fn may_be_raw(&self) -> bool {
        let Panel { metric, by, matrix, .. } = &self.panel;
        if self.is_delta || *matrix || !self.panel.is_folded() {
            return false;
        }
        // Of keys that make no difference nobody knows here whether they do.
        self.state.index().tag_keys(metric).iter().all(|key| by.iter().any(|by| **by == **key))
    }
}

/// Samples come as they are where a line has at most this part of the columns: one in five pixels.
const SAMPLES_SHARE: usize = 5;

fn untold_job() -> ApiError {
    let what = "sums and rates by job are not told where nodes have several jobs: ask for avg, min or max without rate, or \
                choose the time of the job, which is in the table jobs";
    ApiError::of_kind(ErrorKind::Invalid, what.to_owned())
}

fn json_line(line: &impl Serialize) -> Result<Bytes, ApiError> {
    let mut text = serde_json::to_vec(line)
        .map_err(|error| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {error}")))?;
    text.push(b'\n');
    Ok(Bytes::from(text))
}

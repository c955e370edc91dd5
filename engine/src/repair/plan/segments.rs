//! Plans the repair of segments.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bytes::Bytes;

use super::node::{is_node_name, node_of};
use super::{Planner, SegmentPart};
use crate::error::Result;
use crate::index::SeriesIndex;
use crate::layout::{self, SEGMENTS};
use crate::manifest::SegmentEntry;
use crate::progress::Progress;
use crate::repair::Act;
use crate::repair::segments::{self, Hole, RepairSource, SegmentFinding};
use crate::segment::Run;
use crate::segment::label::Label;
use crate::series::SeriesId;

impl Planner<'_> {
    pub(super) fn judge_segments(
        &mut self,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<(String, SegmentFinding)>> {
        let mut judged = Vec::new();
        if let Some(manifest) = self.manifest.clone() {
            for entry in &manifest.segments {
                let file = &entry.file.file;
                let examined = match self.read(file, progress)? {
                    None => {
                        let why = "there is no such file".to_owned();
                        SegmentFinding::Lost { why, entry: Some(entry.clone()), runs: Vec::new() }
                    }
                    Some(bytes) => {
                        let path = self.layout.named(file);
                        segments::examine(&path, file, &Bytes::from(bytes), Some(entry), &manifest.node)
                    }
                };
                judged.push((file.clone(), examined));
            }
            return Ok(judged);
        }
        for file in self.list(SEGMENTS)? {
            let Some(bytes) = self.read(&file, progress)? else { continue };
            let path = self.layout.named(&file);
            judged.push((file.clone(), segments::examine(&path, &file, &Bytes::from(bytes), None, "")));
        }
        Ok(judged)
    }

    pub(super) fn choose_segments(
        &mut self,
        judged: Vec<(String, SegmentFinding)>,
        index: &SeriesIndex,
    ) -> Vec<SegmentPart> {
        let name = |id: SeriesId| index.key(id).map_or(format!("series {}", id.0), |key| key.to_string());
        let passed_over = if self.manifest.is_some() { BTreeMap::new() } else { superseded(&judged) };
        let mut parts = Vec::new();
        for (file, examined) in judged {
            if let Some((by, loses)) = passed_over.get(&file) {
                if *loses {
                    let entry = entry_of(&examined);
                    let why = format!("{by} has samples of the same time and flush, and it is unknown which are newer");
                    self.losses.push(segments::loss_of_all(&file, &why, entry, runs_of(&examined), &name));
                }
                self.set_aside(&file, format!("{by} came in its place"));
                continue;
            }
            match examined {
                SegmentFinding::Sound { entry, runs } if segments::in_order(&runs, index) => {
                    parts.push(SegmentPart::Kept(entry));
                }
                SegmentFinding::Sound { entry, .. } => {
                    let node = self.manifest.as_ref().map(|manifest| manifest.node.clone()).unwrap_or_default();
                    let label = Label::of(&entry, &node);
                    self.act(
                        Act::RebuildSegment,
                        &file,
                        "its series have other names now, and rows are in the order of names",
                    );
                    self.aside.insert(file.clone());
                    parts.push(SegmentPart::Made { file, label, source: RepairSource::Runs(entry) });
                }
                SegmentFinding::Damaged { why, label, source, holes, .. } => {
                    self.note_damage(&file, &why, &source, &holes, &name);
                    parts.push(SegmentPart::Made { file, label, source });
                }
                SegmentFinding::Lost { why, entry, runs } => {
                    self.losses.push(segments::loss_of_all(&file, &why, entry.as_ref(), &runs, &name));
                    if self.disk.open(&self.layout.named(&file)).is_ok() {
                        self.set_aside(&file, why);
                    } else {
                        self.act(Act::RebuildManifest, layout::MANIFEST, format!("{file}: {why}"));
                    }
                }
            }
        }
        if self.manifest.is_none() {
            self.agree_on_the_node(&mut parts);
        }
        parts
    }

    /// Without a manifest nothing proves the labels of segments: what most of them say of the node counts, and the
    /// others are written anew.
    fn agree_on_the_node(&mut self, parts: &mut [SegmentPart]) {
        let said = |part: &SegmentPart| match part {
            SegmentPart::Made { label, .. } => Some(label.node.clone()).filter(|node| !node.is_empty()),
            SegmentPart::Kept(entry) => node_of(self.disk, self.layout, entry),
        };
        let nodes: Vec<Option<String>> = parts.iter().map(said).collect();
        let mut votes: BTreeMap<&String, usize> = BTreeMap::new();
        for node in nodes.iter().flatten() {
            *votes.entry(node).or_default() += 1;
        }
        let Some((chosen, _)) = votes.into_iter().max_by_key(|(node, count)| (*count, is_node_name(node))) else {
            return;
        };
        for (part, said) in parts.iter_mut().zip(&nodes) {
            match part {
                SegmentPart::Made { label, .. } => label.node.clone_from(chosen),
                SegmentPart::Kept(entry) if said.as_ref() != Some(chosen) => {
                    let (file, entry) = (entry.file.file.clone(), entry.clone());
                    self.act(Act::RebuildSegment, &file, "it names another node than the other files do");
                    self.aside.insert(file.clone());
                    let label = Label::of(&entry, chosen);
                    *part = SegmentPart::Made { file, label, source: RepairSource::Runs(entry) };
                }
                SegmentPart::Kept(_) => {}
            }
        }
    }

    fn note_damage(
        &mut self,
        file: &str,
        why: &str,
        source: &RepairSource,
        holes: &[Hole],
        name: &dyn Fn(SeriesId) -> String,
    ) {
        self.aside.insert(file.to_owned());
        if matches!(source, RepairSource::Healed(_)) {
            self.act(Act::Heal, file, why);
        } else if holes.is_empty() {
            self.act(Act::RebuildSegment, file, why);
        } else {
            self.act(Act::SalvageSegment, file, why);
            self.losses.push(segments::loss_of(file, why, holes, name));
        }
        if self.manifest.is_none() && matches!(source, RepairSource::Parquet(_)) {
            let what = "its rows were read without checksums, which are lost with its run index and the manifest";
            self.unproven.push(format!("{file}: {what}"));
        }
    }
}

/// Files of which another holds everything, and that other; and those that collide with another, which are lost.
fn superseded(judged: &[(String, SegmentFinding)]) -> BTreeMap<String, (String, bool)> {
    // Sound files first, then by the number in their name: a later file replaces those that it was made of.
    let mut order: Vec<(&String, &SegmentEntry, bool)> = Vec::new();
    let entries: Vec<(String, SegmentEntry, bool)> = judged
        .iter()
        .filter_map(|(file, examined)| {
            let sound = matches!(examined, SegmentFinding::Sound { .. });
            let entry = match examined {
                SegmentFinding::Sound { entry, .. } => entry.clone(),
                SegmentFinding::Damaged { label, .. } => label.entry(file.clone(), &[]),
                SegmentFinding::Lost { .. } => return None,
            };
            Some((file.clone(), entry, sound))
        })
        .collect();
    order.extend(entries.iter().map(|(file, entry, sound)| (file, entry, *sound)));
    order.sort_by_key(|(file, _, sound)| (!sound, Reverse(layout::number_in(file))));
    let mut kept: Vec<(&String, &SegmentEntry)> = Vec::new();
    let mut passed_over = BTreeMap::new();
    for (file, entry, _) in order {
        let by = kept.iter().find(|(_, other)| segments::covers(other, entry));
        let collides = || kept.iter().find(|(_, other)| segments::collide(other, entry));
        match (by, collides()) {
            (Some((by, _)), _) => passed_over.insert(file.clone(), ((*by).clone(), false)),
            (None, Some((by, _))) => passed_over.insert(file.clone(), ((*by).clone(), true)),
            (None, None) => {
                kept.push((file, entry));
                None
            }
        };
    }
    passed_over
}

fn entry_of(examined: &SegmentFinding) -> Option<&SegmentEntry> {
    match examined {
        SegmentFinding::Sound { entry, .. } => Some(entry),
        SegmentFinding::Lost { entry, .. } => entry.as_ref(),
        SegmentFinding::Damaged { source: RepairSource::Runs(entry) | RepairSource::Healed(entry), .. } => Some(entry),
        SegmentFinding::Damaged { .. } => None,
    }
}

fn runs_of(examined: &SegmentFinding) -> &[Run] {
    match examined {
        SegmentFinding::Sound { runs, .. }
        | SegmentFinding::Damaged { runs, .. }
        | SegmentFinding::Lost { runs, .. } => runs,
    }
}

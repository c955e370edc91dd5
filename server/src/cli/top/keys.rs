//! What a viewer chose, and the keys that choose it.

use crate::cli::glob::Glob;

/// Longest text to filter by.
const FILTER_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopKey {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    Char(char),
}

/// The keys in what a terminal sent at once. An Escape that comes alone is the key; other sequences are left out.
pub fn keys(bytes: &[u8]) -> Vec<TopKey> {
    let text = String::from_utf8_lossy(bytes);
    let mut rest = &*text;
    let mut keys = Vec::new();
    while let Some(first) = rest.chars().next() {
        if first == '\x1b' && rest[1..].starts_with(['[', 'O']) {
            let end = rest[2..].find(|c: char| ('@'..='~').contains(&c)).map_or(rest.len(), |at| at + 3);
            keys.extend(match &rest[2..end] {
                "A" => Some(TopKey::Up),
                "B" => Some(TopKey::Down),
                "5~" => Some(TopKey::PageUp),
                "6~" => Some(TopKey::PageDown),
                "H" | "1~" | "7~" => Some(TopKey::Home),
                "F" | "4~" | "8~" => Some(TopKey::End),
                "Z" => Some(TopKey::Tab),
                _ => None,
            });
            rest = &rest[end..];
            continue;
        }
        keys.extend(match first {
            '\x1b' => Some(TopKey::Escape),
            '\x03' => Some(TopKey::Interrupt),
            '\t' => Some(TopKey::Tab),
            '\r' | '\n' => Some(TopKey::Enter),
            '\x7f' | '\x08' => Some(TopKey::Backspace),
            other if other.is_control() => None,
            other => Some(TopKey::Char(other)),
        });
        rest = &rest[first.len_utf8()..];
    }
    keys
}

/// One of the two tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopTable {
    #[default]
    Nodes,
    Metrics,
}

/// What the nodes are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOrder {
    #[default]
    Name,
    Cores,
    Memory,
    Network,
    Disk,
}

/// What the metrics are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricOrder {
    #[default]
    Name,
    Value,
}

/// How one of the tables is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableView {
    /// The first line that is shown; drawing keeps it within the table.
    pub offset: usize,
    /// Lines that were there the last time.
    pub page: usize,
    pub filter: String,
}

impl TableView {
    /// A part of the name, or with * and ? all of it.
    pub fn keeps(&self, name: &str) -> bool {
        let is_pattern = self.filter.contains(['*', '?']);
        let matches = |glob: Result<Glob, _>| glob.is_ok_and(|glob: Glob| glob.matches(name));
        if is_pattern { matches(self.filter.parse()) } else { name.contains(&self.filter) }
    }
}

/// What goes on besides the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopMode {
    #[default]
    Tables,
    /// A filter is being typed.
    Filter,
    Help,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopView {
    pub focus: TopTable,
    pub mode: TopMode,
    pub nodes: TableView,
    pub metrics: TableView,
    pub node_order: NodeOrder,
    pub metric_order: MetricOrder,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOutcome {
    Stay,
    Quit,
}

impl TopView {
    pub fn table(&mut self) -> &mut TableView {
        match self.focus {
            TopTable::Nodes => &mut self.nodes,
            TopTable::Metrics => &mut self.metrics,
        }
    }

    pub fn key(&mut self, key: TopKey) -> KeyOutcome {
        match (self.mode, key) {
            (_, TopKey::Interrupt) => return KeyOutcome::Quit,
            (TopMode::Filter, key) => self.filter_key(key),
            (TopMode::Help, _) => self.mode = TopMode::Tables,
            (TopMode::Tables, TopKey::Char('q') | TopKey::Escape) => return KeyOutcome::Quit,
            (TopMode::Tables, key) => self.table_key(key),
        }
        KeyOutcome::Stay
    }

    fn filter_key(&mut self, key: TopKey) {
        match key {
            TopKey::Escape => {
                self.table().filter.clear();
                self.mode = TopMode::Tables;
            }
            TopKey::Enter | TopKey::Tab => self.mode = TopMode::Tables,
            TopKey::Backspace => {
                self.table().filter.pop();
            }
            TopKey::Char(c) if self.table().filter.len() < FILTER_MAX => self.table().filter.push(c),
            _ => {}
        }
        self.table().offset = 0;
    }

    fn table_key(&mut self, key: TopKey) {
        let table = self.table();
        match key {
            TopKey::Up | TopKey::Char('k') => table.offset = table.offset.saturating_sub(1),
            TopKey::Down | TopKey::Char('j') => table.offset = table.offset.saturating_add(1),
            TopKey::PageUp => table.offset = table.offset.saturating_sub(table.page.max(1)),
            TopKey::PageDown | TopKey::Char(' ') => table.offset = table.offset.saturating_add(table.page.max(1)),
            TopKey::Home => table.offset = 0,
            TopKey::End => table.offset = usize::MAX,
            TopKey::Char('s') => self.sort(),
            TopKey::Char('/') => self.mode = TopMode::Filter,
            TopKey::Char('?' | 'h') => self.mode = TopMode::Help,
            TopKey::Tab => {
                self.focus = match self.focus {
                    TopTable::Nodes => TopTable::Metrics,
                    TopTable::Metrics => TopTable::Nodes,
                };
            }
            _ => {}
        }
    }

    fn sort(&mut self) {
        match self.focus {
            TopTable::Nodes => {
                self.node_order = match self.node_order {
                    NodeOrder::Name => NodeOrder::Cores,
                    NodeOrder::Cores => NodeOrder::Memory,
                    NodeOrder::Memory => NodeOrder::Network,
                    NodeOrder::Network => NodeOrder::Disk,
                    NodeOrder::Disk => NodeOrder::Name,
                };
            }
            TopTable::Metrics => {
                self.metric_order = match self.metric_order {
                    MetricOrder::Name => MetricOrder::Value,
                    MetricOrder::Value => MetricOrder::Name,
                };
            }
        }
        self.table().offset = 0;
    }
}

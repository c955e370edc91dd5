//! The last error of this process, as its log reports it; the list of nodes shows it.

use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// There is one log in a process, and one last error in it.
static LAST: Mutex<Option<String>> = Mutex::new(None);
/// Longest that is kept.
const CHARS_MAX: usize = 300;

/// The last warning or error that was logged.
pub fn last() -> Option<String> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Remembers what is logged.
#[derive(Clone, Copy, Debug)]
pub struct LastError;

impl<S: Subscriber> Layer<S> for LastError {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() > Level::WARN {
            return;
        }
        let mut said = EventText::default();
        event.record(&mut said);
        let text = format!("{}{}", said.message, said.fields).chars().take(CHARS_MAX).collect();
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }
}

#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn what_went_wrong_last_is_kept_with_its_fields_and_what_went_well_is_not() {
        let log = tracing_subscriber::registry().with(LastError);
        tracing::subscriber::with_default(log, || {
            tracing::warn!(node = "n1", error = %"disk full", "a sample was lost");
            tracing::info!("all is well");
        });
        assert_eq!(last().as_deref(), Some("a sample was lost node=\"n1\" error=disk full"));
    }
}

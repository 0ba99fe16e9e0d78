//! The log of the process: lines on stderr, and the last of them in memory for `system_views.system_logs`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use server::{LogLevelHook, LogLine, LogTailHook};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, reload};

/// Lines in memory.
const LINES_MAX: usize = 1_000;
/// Bytes of the text of one, and of the name of its module.
const TEXT_BYTES_MAX: usize = 2_000;

/// The two ways from a node to the log of its process.
pub struct LogHooks {
    /// Changes the level.
    pub level: LogLevelHook,
    /// Gives the last lines.
    pub tail: LogTailHook,
}

/// Writes the log to stderr; with the names of threads where several nodes write it.
///
/// # Errors
/// A sentence for the user when `level` is no filter.
pub fn start(level: &str, threads: bool) -> Result<LogHooks, String> {
    let filter =
        parse(level).map_err(|error| format!("option log_level: '{level}' is not valid: {error}"))?;
    let (filter_layer, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(true);
    // Colours are for people: in a file they are noise.
    let lines = lines.with_ansi(std::io::stderr().is_terminal()).with_thread_names(threads);
    let tail = Tail::default();
    tracing_subscriber::registry().with(filter_layer).with(lines).with(tail.clone()).init();
    Ok(LogHooks {
        level: Arc::new(move |level| handle.reload(parse(level)?).map_err(|error| error.to_string())),
        tail: Arc::new(move || tail.lines()),
    })
}

fn parse(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(level).map_err(|error| {
        format!("error, warn, info, debug or trace, also by module (info,engine=debug): {error}")
    })
}

/// The last lines of the log, in bounded memory.
#[derive(Clone, Default)]
struct Tail(Arc<Mutex<VecDeque<LogLine>>>);

impl Tail {
    fn push(&self, line: LogLine) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while lines.len() >= LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn lines(&self) -> Vec<LogLine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl<S: Subscriber> Layer<S> for Tail {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.push(LogLine {
            millis: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            level: metadata.level().as_str(),
            module: cut(metadata.target().to_owned()),
            text: cut(text.0),
        });
    }
}

/// The message of an event, and its other fields behind it.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let written = match field.name() {
            "message" => {
                let rest = std::mem::take(&mut self.0);
                write!(self.0, "{value:?}{rest}")
            }
            name => write!(self.0, " {name}={value:?}"),
        };
        debug_assert!(written.is_ok(), "a string takes any text");
    }
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_stay_in_bounded_memory() {
        let tail = Tail::default();
        let subscriber = tracing_subscriber::registry().with(EnvFilter::new("info")).with(tail.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(target: "engine", count = 3, "a flush failed");
            tracing::debug!("nobody asked for this");
            tracing::info!("{}", "é".repeat(TEXT_BYTES_MAX));
        });
        let lines = tail.lines();
        assert_eq!(lines.len(), 2, "the filter holds for these lines, too");
        let first = &lines[0];
        assert_eq!(
            (first.level, first.module.as_str(), first.text.as_str()),
            ("WARN", "engine", "a flush failed count=3")
        );
        assert!(first.millis > 1_700_000_000_000);
        assert!(lines[1].text.len() <= TEXT_BYTES_MAX + 3 && lines[1].text.ends_with("..."));
        for number in 0..LINES_MAX + 7 {
            tail.push(LogLine { text: number.to_string(), ..first.clone() });
        }
        let lines = tail.lines();
        assert_eq!((lines.len(), lines[0].text.as_str()), (LINES_MAX, "7"));
    }
}

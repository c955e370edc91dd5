//! The terminal: all of it is ours while a [`Screen`] lives, and as it was afterwards, also after a panic.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Mutex, Once};

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::Terminal;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// How the terminal was. A panic has no other way to it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// The terminal as a whole; dropping it gives it back.
pub struct Screen {
    pub terminal: Terminal<AnsiBackend>,
}

impl Screen {
    /// # Errors
    /// When stdin and stdout are no terminal.
    pub fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        HOOK.call_once(|| {
            let then = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                give_back();
                then(info);
            }));
        });
        *lock() = Some(before);
        let opened = || {
            tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
            io::stdout().write_all(ENTER.as_bytes())?;
            Terminal::new(AnsiBackend)
        };
        opened().map(|terminal| Self { terminal }).inspect_err(|_| give_back())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn give_back() {
    if let Some(before) = lock().take() {
        let mut out = io::stdout();
        // There is nowhere to say that a terminal is gone.
        out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush()).unwrap_or_default();
        tcsetattr(io::stdin(), OptionalActions::Now, &before).unwrap_or_default();
    }
}

/// What every terminal of today understands.
pub struct AnsiBackend;

impl Backend for AnsiBackend {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        io::stdout().write_all(ansi(content).as_bytes())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        io::stdout().write_all(b"\x1b[?25l")
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        io::stdout().write_all(b"\x1b[?25h")
    }

    /// Nobody needs it: what is drawn says where.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        write!(io::stdout(), "\x1b[{};{}H", u32::from(y) + 1, u32::from(x) + 1)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        io::stdout().write_all(match region {
            ClearType::All => b"\x1b[2J",
            ClearType::AfterCursor => b"\x1b[0J",
            ClearType::BeforeCursor => b"\x1b[1J",
            ClearType::CurrentLine => b"\x1b[2K",
            ClearType::UntilNewLine => b"\x1b[0K",
        })
    }

    fn size(&self) -> io::Result<Size> {
        let size = tcgetwinsize(io::stdout())?;
        // Some terminals do not tell.
        let or = |told, usual| if told == 0 { usual } else { told };
        Ok(Size::new(or(size.ws_col, 80), or(size.ws_row, 24)))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// The cells, with what moves and colours where that changes.
fn ansi<'a>(content: impl Iterator<Item = (u16, u16, &'a Cell)>) -> String {
    let mut text = String::new();
    let mut next = None;
    let mut look = None;
    for (x, y, cell) in content {
        if next != Some((x, y)) {
            // A String takes whatever is written.
            write!(text, "\x1b[{};{}H", u32::from(y) + 1, u32::from(x) + 1).unwrap_or_default();
        }
        next = Some((x.saturating_add(1), y));
        if look != Some((cell.fg, cell.modifier)) {
            text.push_str("\x1b[0");
            for (modifier, code) in [(Modifier::BOLD, ";1"), (Modifier::DIM, ";2"), (Modifier::REVERSED, ";7")] {
                text.push_str(if cell.modifier.contains(modifier) { code } else { "" });
            }
            text.push_str(match cell.fg {
                Color::Red => ";31",
                Color::Cyan => ";36",
                _ => "",
            });
            text.push('m');
            look = Some((cell.fg, cell.modifier));
        }
        text.push_str(cell.symbol());
    }
    text.push_str("\x1b[0m");
    text
}

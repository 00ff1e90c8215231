//! Lines of output: time, place, text. A terminal gets colours.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use gardenlet::base::clock::{Clock, Mono};

/// The output.
pub struct Screen {
    clock: Clock,
    begun: Mono,
    coloured: bool,
}

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const BLUE: &str = "34";
const MAGENTA: &str = "35";
const CYAN: &str = "36";

impl Screen {
    pub fn new() -> Self {
        let clock = Clock::system();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { begun: clock.mono(), clock, coloured: std::io::stdout().is_terminal() && !plain }
    }

    /// Since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.clock.mono() - self.begun
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.coloured { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// One line as it is.
    pub fn plain(&self, line: &str) {
        // A closed reader, such as `head`, is no reason to panic.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }

    /// A part of the story begins.
    pub fn title(&self, text: &str) {
        self.plain(&format!("\n{}", self.paint(BOLD, text)));
    }

    /// A remark.
    pub fn aside(&self, text: &str) {
        self.plain(&format!("             {}", self.paint(DIM, text)));
    }

    /// Something happened in a place. `garden`, `seed`, `shoot` and `agent` have a colour each.
    pub fn say(&self, place: &str, text: &str) {
        let colour = match place {
            "garden" => GREEN,
            "seed" => CYAN,
            "shoot" => BLUE,
            _ => MAGENTA,
        };
        let at = self.paint(DIM, &format!("{:>7.2} s", self.elapsed().as_secs_f64()));
        self.plain(&format!("{at}  {}  {text}", self.paint(colour, &format!("{place:<6}"))));
    }

    /// A problem.
    pub fn problem(&self, text: &str) {
        self.plain(&format!("{:>9}  {}", "", self.paint(RED, text)));
    }

    /// A line of the summary.
    pub fn verdict(&self, good: bool, what: &str, how: &str) {
        let mark = if good { self.paint(GREEN, "ok     ") } else { self.paint(RED, "NOT OK ") };
        self.plain(&format!("  {mark} {what:<48} {}", self.paint(if good { DIM } else { YELLOW }, how)));
    }
}

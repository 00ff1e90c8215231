//! `gardenlet node`: what an operator does with the hosts of a Shoot. It works while the garden is away, because it needs only the seed and
//! the Shoot.

mod arguments;
mod list;
mod place;
mod remove;
mod script;

use std::ffi::OsString;
use std::path::PathBuf;

use super::unit::CommandEnvironment;
use super::{Io, Variable, fail_as, help, print, refuse, report_as};
use arguments::{NodeCommand, NodeOrder, NodeTask, parse};

/// Runs the command and returns the exit code.
pub(super) fn main(
    io: &mut Io<'_>,
    args: Vec<OsString>,
    config: Option<PathBuf>,
    variable: Variable<'_>,
) -> u8 {
    let task = match parse(args, config) {
        Err(usage) => return refuse(io, &usage),
        Ok(NodeCommand::Help(about)) => return print(io, &help::page(about)),
        Ok(NodeCommand::Task(task)) => task,
    };
    let NodeTask { name, place, as_json, order } = &*task;
    let handed = CommandEnvironment::new(&place.config, variable, &place.way);
    let variable = |name: &str| handed.variable(name);
    let settings = match handed.load() {
        Err(problems) => return report_as(io, *as_json, &place.config, &problems),
        Ok(loaded) => loaded.settings,
    };
    let place = match place::find(place, &settings, &variable) {
        Err(why) => return fail_as(io, *as_json, name, &why),
        Ok(place) => place,
    };
    let done = match order {
        NodeOrder::Script(asked) => script::script(io, &place, asked, &settings).map(|text| print(io, &text)),
        NodeOrder::List => list::list(io, &place, *as_json),
        NodeOrder::Remove(asked) => remove::remove(io, &place, asked, &settings).map(|text| print(io, &text)),
    };
    done.unwrap_or_else(|why| fail_as(io, *as_json, name, &why))
}

//! A garden that is known only by its name, and a name server that changes its answers: another address, several
//! addresses of which the first is dead, no address. After each change, the agent follows the garden.

use std::net::Ipv4Addr;

use crate::cluster;
use crate::failure::{Result, ensure};
use crate::filter::Swallowed;
use crate::gate::Gate;
use crate::lab::Lab;
use crate::names::{Answer, Names};
use crate::stories::faults::Day;
use crate::wait;
use support::proxy::{Mode, Proxy};

const GARDEN: &str = "api.garden.test";
/// The first address of the garden. Resolvers sort the addresses of one answer by their distance to ours; the order
/// here is by distance, too.
const OLD: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// An address without a server.
const DEAD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The address after the move.
const NEW: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 200);

/// The highest number of heartbeats until a change arrives. A dead address costs each new connection five seconds, a
/// list and its watch ten; the agent asks a silent resolver again after the same time.
const BEATS_MAX: u32 = 30;

pub(crate) fn garden_moves(lab: &mut Lab) -> Result<()> {
    let names = Names::start(lab, Answer::Addresses(vec![OLD]))?;
    let gates = [Gate::open(&lab.garden)?, Gate::open(&lab.seed)?];
    let port = gates[0].proxy.address().port();
    let new = gates[0].beside(NEW)?;
    let (from, until) = cluster::validity();
    gates[0].show(&lab.garden.authority.server(&[GARDEN.to_owned()], from, until));
    lab.garden.front = Some(format!("https://{GARDEN}:{port}"));
    let environment = lab.environment.clone();
    let mut day = Day::begin(lab, gates, Some(names.file.clone()))?;
    day.beats_max = BEATS_MAX;
    ensure(new.connections() == 0, || "the agent did not resolve the name".to_owned())?;

    day.agent.skip_log();
    let silent = Swallowed::begin(&environment, OLD, port)?;
    names.say(Answer::Addresses(vec![NEW]));
    day.misses()?;
    day.recovers("a move while the old address is silent")?;
    ensure(new.connections() > 0, || "there was no connection to the new address".to_owned())?;

    let dead = Swallowed::begin(&environment, DEAD, port)?;
    names.say(Answer::Addresses(vec![DEAD, NEW]));
    new.cut();
    day.recovers("a dead address before the right one")?;
    let knocks = dead.count()?;
    ensure(knocks > 0, || "the dead address was not tried".to_owned())?;

    for (what, answer) in [
        ("no such name", Answer::NoName),
        ("no answer but a failure", Answer::Failure),
        ("no answer at all", Answer::Silence),
    ] {
        loses_the_name(&mut day, &names, &new, answer)?;
        names.say(Answer::Addresses(vec![NEW]));
        day.recovers(what)?;
    }
    day.agent.terminate()?;
    day.agent.skip_log();
    names.say(Answer::NoName);
    day.agent.restart()?;
    day.agent.wait_log(&format!("look up {GARDEN}"), 30)?;
    names.say(Answer::Addresses(vec![NEW]));
    day.recovers("a start without a name")?;

    drop(silent);
    new.set(Mode::Refuse);
    new.cut();
    names.say(Answer::Addresses(vec![OLD]));
    day.recovers("the move back while the other address refuses connections")
}

/// The name has no address when connections are needed: the lease is late, and the log has the reason.
fn loses_the_name(day: &mut Day<'_>, names: &Names, new: &Proxy, answer: Answer) -> Result<()> {
    day.agent.skip_log();
    let before = day.agent.log().len();
    names.say(answer);
    new.cut();
    day.misses()?;
    // A heartbeat in flight may fail without the name. The watches need it for their next connections.
    let words = format!("look up {GARDEN}");
    wait::until_true(&format!("{words:?} in the log"), 60, || {
        day.agent.log().get(before..).is_some_and(|log| log.contains(&words))
    })
}
